// SPDX-License-Identifier: BSD-3-Clause
/* stream.c - memory, acknowledgements, timers, and what to send next: the door of stream_*.c */

#include "client/worker/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "client/worker/stream_impl.h"

static bool config_valid(const struct stream_config *c)
{
	return c->world >= 1 && c->rank < c->world && c->shard < c->shard_count &&
	       c->payload >= WIRE_PAYLOAD_MIN && c->payload <= WIRE_PAYLOAD_MAX && c->window >= 4 &&
	       c->window <= WIRE_WINDOW_MAX && (c->window & (c->window - 1)) == 0 &&
	       c->op_slots >= 1 && c->op_slots <= 1024 && c->segments_ahead >= 1 &&
	       c->segments_ahead <= 64;
}

int stream_open(const struct stream_config *config, struct stream **out)
{
	size_t segment_count;
	struct stream *s;

	if (!config_valid(config))
		return -EINVAL;
	segment_count = (size_t)config->op_slots * config->segments_ahead;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->ops = calloc(config->op_slots, sizeof(*s->ops));
	s->segments = calloc(segment_count, sizeof(*s->segments));
	s->frames = calloc(config->window, sizeof(*s->frames));
	s->order = calloc(segment_count, sizeof(*s->order));
	s->announced = calloc(segment_count, sizeof(*s->announced));
	if (!s->ops || !s->segments || !s->frames || !s->order || !s->announced) {
		stream_close(s);
		return -ENOMEM;
	}
	s->config = *config;
	s->ack = s->base = s->next = s->horizon = s->highest = s->planned = config->first_frame;
	s->ack_sent = s->ack;
	s->credit = s->base + config->window;
	s->ack_due_us = s->quiet_due_us = s->announce_due_us = NEVER;
	s->ping_due_us = 0;
	s->ask_due_us = s->gap_due_us = s->rto_due_us = NEVER;
	for (uint32_t i = 0; i < segment_count; i++)
		s->segments[i].slot = i / config->segments_ahead;
	s->jitter = (uint32_t)config->token;
	pace_init(&s->pace, config->window_start, config->window);
	*out = s;
	return 0;
}

void stream_close(struct stream *stream)
{
	if (stream == NULL)
		return;
	free(stream->ops);
	free(stream->segments);
	free(stream->frames);
	free(stream->order);
	free(stream->announced);
	free(stream);
}

/* ---- receiving ---- */

/* Move ack over all that is here without a gap. */
static void stream_advance(struct stream *s, uint64_t now_us)
{
	uint32_t before = s->ack;

	while (s->order_count > 0) {
		struct stream_segment *segment = &s->segments[s->order[0]];
		uint32_t end = segment->first + segment->frame_count;

		if (s->ack - segment->first > segment->frame_count)
			break; /* the plan of the frames before it is missing */
		while (s->ack != end &&
		       (segment->hollow || (stream_frame_of(s, s->ack)->flags & FRAME_HAVE))) {
			if (!segment->hollow)
				*stream_frame_of(s, s->ack) = (struct stream_frame){0};
			s->turns += ++s->ack == 0;
		}
		if (s->ack != end)
			break;
		segment->state = SEGMENT_IDLE;
		s->order_count--;
		memmove(s->order, s->order + 1, s->order_count * sizeof(s->order[0]));
	}
	if (s->ack == before)
		return;
	if (frame_before(s->next, s->ack))
		s->next = s->ack;
	if (frame_before(s->highest, s->ack))
		s->highest = s->ack;
	if (s->ack - s->ack_sent >= s->config.window / 4 || stream_ack_urgent(s))
		s->ack_due_us = now_us;
	else
		sooner(&s->ack_due_us, now_us + ACK_DELAY_US);
}

/*
 * base, credit, sequence and planned, from any packet. They only move forward; values that cannot
 * come from the channel's aggregator are ignored.
 */
static void edges_take(struct stream *s, const struct packet *packet, uint64_t now_us)
{
	if (frame_before(s->base, packet->edge) && !frame_before(s->ack, packet->edge)) {
		s->base = packet->edge;
		s->wants_base = false; /* or it is asked again */
	}
	if (packet->window <= s->config.window &&
	    frame_before(s->credit, packet->edge + packet->window) &&
	    !frame_before(s->base, packet->edge))
		s->credit = packet->edge + packet->window;
	if (sequence_before(s->sequence, packet->sequence))
		s->sequence = packet->sequence;
	if (frame_before(s->planned, packet->planned)) {
		s->planned = packet->planned;
		if (frame_before(s->horizon, s->planned) && s->ask_due_us == NEVER) {
			s->ask_due_us = now_us + REORDER_US_MIN;
			s->ask_tries = 0;
		}
	}
}

static void quiet_restart(struct stream *s, uint64_t now_us)
{
	s->quiet_tries = 0;
	s->quiet_due_us = s->base != s->ack ? now_us + pace_rto_us(&s->pace) : NEVER;
}

struct allreduce *stream_receive(struct stream *s, const struct packet *packet, uint64_t now_us)
{
	struct allreduce *task = NULL;
	uint32_t base = s->base;

	s->stats.received++;
	s->stats.received_bytes += WIRE_HEADER_BYTES + packet->body_bytes;
	if (packet->token != s->config.group_token) {
		stream_drop(s, WIRE_DROP_SEAL);
		return NULL;
	}
	if (packet->worker != s->config.rank && packet->worker != WIRE_EVERYONE) {
		stream_drop(s, WIRE_DROP_WORKER);
		return NULL;
	}
	edges_take(s, packet, now_us);
	if (s->base != base || packet->kind == WIRE_RESULT || packet->kind == WIRE_PLAN)
		s->news_us = now_us;
	switch (packet->kind) {
	case WIRE_RESULT:
		task = result_take(s, packet, now_us);
		break;
	case WIRE_PLAN:
		task = plan_take(s, packet);
		break;
	case WIRE_WANT:
		want_take(s, packet);
		break;
	case WIRE_CREDIT:
		if (packet->worker == s->config.rank)
			pace_rtt(&s->pace, (uint32_t)now_us - packet->frame);
		if (s->ack != s->next && s->gap_due_us == NEVER) {
			/*
			 * RESULTs sent before this one, including the last of a burst, should be
			 * here.
			 */
			s->gap_due_us = now_us + REORDER_US_MIN;
			s->gap_edge = s->next;
		}
		break;
	default:
		stream_drop(s, WIRE_DROP_KIND);
	}
	stream_advance(s, now_us);
	quiet_restart(s, now_us);
	stream_check_edges(s);
	return task;
}

/* ---- sending ---- */

/*
 * Frames to examine for NACKs; a range still under way is widened. Frames whose own PUSH has not
 * been sent are skipped.
 */
static void nack_range(struct stream *s, uint32_t to, bool overdue)
{
	if (frame_before(s->next, to))
		to = s->next;
	if (s->nack_from == s->nack_to || frame_before(s->nack_to, to))
		s->nack_to = to;
	s->nack_from = s->ack;
	s->nack_overdue = overdue;
}

static bool nack_wanted(struct stream *s, uint32_t frame, uint32_t now_us, uint32_t rto_us)
{
	const struct stream_frame *f = stream_frame_of(s, frame);
	const struct stream_segment *segment;

	if (f->flags & (FRAME_HAVE | FRAME_RESEND))
		return false;
	segment = stream_find(s, frame);
	if (segment == NULL || segment->hollow)
		return false; /* a missing plan is asked for by ask_pull() */
	if (s->nack_overdue)
		return now_us - f->sent_us >= rto_us;
	return f->asked_us == 0 || now_us - f->asked_us >= rto_us;
}

/* One NACK for up to 1024 frames; false when the range holds nothing (more) to ask for. */
static bool nack_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	uint32_t rto_us = (uint32_t)pace_base_us(&s->pace);
	uint64_t words[WIRE_NACK_WORDS_MAX] = {0};
	uint32_t first = 0, word_count = 0;

	if (frame_before(s->nack_from, s->ack))
		s->nack_from = s->ack;
	for (; frame_before(s->nack_from, s->nack_to); s->nack_from++) {
		uint32_t bit = s->nack_from - first;

		if (!nack_wanted(s, s->nack_from, (uint32_t)now_us, rto_us))
			continue;
		if (word_count == 0) {
			first = s->nack_from;
			bit = 0;
		}
		if (bit >= WIRE_NACK_WORDS_MAX * 64)
			break;
		bit_set(words, bit);
		word_count = bit / 64 + 1;
		stream_frame_of(s, s->nack_from)->asked_us = (uint32_t)now_us | 1;
	}
	if (word_count == 0) {
		s->nack_from = s->nack_to;
		return false;
	}
	stream_head(s, out, WIRE_NACK, first,
	            s->sequence | (s->nack_overdue ? WIRE_NACK_FORCE : 0u));
	packet_put_words(out, words, word_count);
	s->stats.nacks++;
	return true;
}

static bool ask_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	if (now_us < s->ask_due_us)
		return false;
	if (!frame_before(s->horizon, s->planned)) {
		s->ask_due_us = NEVER;
		return false;
	}
	s->ask_due_us = now_us + stream_spread(s, pace_rto_us(&s->pace) << s->ask_tries);
	if (s->ask_tries < 5)
		s->ask_tries++;
	stream_head(s, out, WIRE_ASK, s->horizon, 0);
	return true;
}

/*
 * Now and then, while frames are under way, an ACK asks for a CREDIT: this measures the round trip
 * to the aggregator. PUSH to RESULT would measure the slowest worker and its losses.
 */
static bool ack_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	bool ping = now_us >= s->ping_due_us && s->ack != s->next;

	if (now_us < s->ack_due_us && !s->answer_due && !ping)
		return false;
	if (ping)
		s->ping_due_us = now_us + PING_US;
	stream_head(s, out, WIRE_ACK, (uint32_t)now_us,
	            s->answer_due || ping ? WIRE_ACK_ANSWER : 0);
	s->answer_due = false;
	return true;
}

static void timers_run(struct stream *s, uint64_t now_us)
{
	if (now_us >= s->gap_due_us) {
		s->gap_due_us = NEVER;
		nack_range(s, s->gap_edge, false);
	}
	if (now_us >= s->rto_due_us && s->ack == s->next) {
		s->rto_due_us = NEVER;
	} else if (now_us >= s->rto_due_us) {
		pace_timeout(&s->pace);
		nack_range(s, s->next, true);
		s->rto_due_us = now_us + stream_spread(s, pace_rto_us(&s->pace));
	}
	if (now_us >= s->quiet_due_us) {
		uint64_t wait_us = stream_spread(s, pace_rto_us(&s->pace) << s->quiet_tries);

		if (s->quiet_tries < 6)
			s->quiet_tries++;
		s->quiet_due_us = s->base != s->ack ? now_us + wait_us : NEVER;
		s->answer_due = s->base != s->ack;
	}
}

bool stream_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	timers_run(s, now_us);
	if (!resend_pull(s, now_us, out) && !announce_pull(s, now_us, out) &&
	    !nack_pull(s, now_us, out) && !ask_pull(s, now_us, out) && !push_pull(s, now_us, out) &&
	    !ack_pull(s, now_us, out))
		return false;
	s->stats.sent++;
	s->stats.sent_bytes += out->bytes;
	return true;
}

uint64_t stream_deadline(const struct stream *s)
{
	uint64_t due_us = s->ack_due_us;

	sooner(&due_us, s->quiet_due_us);
	sooner(&due_us, s->announce_due_us);
	sooner(&due_us, s->ask_due_us);
	sooner(&due_us, s->gap_due_us);
	sooner(&due_us, s->rto_due_us);
	if (s->ack != s->next)
		sooner(&due_us, s->ping_due_us);
	return due_us;
}

bool stream_is_busy(const struct stream *stream)
{
	uint32_t frames = stream->horizon - stream->next, enough = 2 * stream->pace.window;

	for (uint32_t i = 0; i < stream->announced_count; i++) {
		const struct stream_segment *segment = &stream->segments[stream->announced[i]];

		if (segment->tries <= 1)
			frames += segment->own_frames;
	}
	return frames >= (enough > BUSY_FRAMES_MIN ? enough : BUSY_FRAMES_MIN);
}

bool stream_quiet(const struct stream *stream)
{
	return stream->announced_count == 0 && stream->base == stream->ack &&
	       stream->ack == stream->ack_sent && !frame_before(stream->horizon, stream->planned);
}

uint64_t stream_edge(const struct stream *stream)
{
	return (uint64_t)stream->turns << 32 | stream->ack;
}

const struct stream_stats *stream_stats(const struct stream *stream)
{
	return &stream->stats;
}
