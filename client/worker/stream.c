// SPDX-License-Identifier: BSD-3-Clause
/* stream.c - memory, acknowledgements, timers, and what to send next: the door of stream_*.c */

#include "client/worker/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "client/worker/stream_state.h"

size_t stream_bytes(const struct stream_config *config)
{
	const struct stream *s = NULL; /* for its types */
	size_t segments = (size_t)config->op_slots * config->segments_ahead;

	return sizeof(*s) + config->op_slots * sizeof(*s->ops) +
	       config->window * sizeof(*s->frames) +
	       segments * (sizeof(*s->segments) + sizeof(*s->order) + sizeof(*s->announced));
}

int stream_open(const struct stream_config *config, struct stream **out)
{
	size_t segment_count;
	struct stream *s;

	assert(config->shard < config->shard_count && config->rank < config->world);
	assert(config->window >= 4 && (config->window & (config->window - 1)) == 0);
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
	s->hold = s->hold_room = config->first_frame;
	s->told.ack = s->told.room = s->credit = s->ack;
	s->due.ack_us = s->due.announce_us = NEVER;
	s->due.ask_us = 0;
	s->gap.due_us = NEVER;
	for (uint32_t i = 0; i < segment_count; i++)
		s->segments[i].slot = i / config->segments_ahead;
	s->jitter = (uint32_t)config->token;
	pace_init(&s->pace, &(struct pace_config){.window_start = config->window_start,
	                                          .window_max = config->window,
	                                          .private_network = config->private_network});
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

/* 8.3: "ack is the first frame whose plan it does not know, or whose RESULT (PLAN if hollow) it lacks" */
static void stream_advance(struct stream *s)
{
	while (s->order_count > 0) {
		struct stream_segment *segment = &s->segments[s->order[0]];
		uint32_t end = segment->first + segment->frame_count;

		if (s->ack - segment->first > segment->frame_count)
			break; /* the plan of the frames before it is missing */
		while (s->ack != end && !(s->config.passes_on && s->ack == s->hold) &&
		       (segment->hollow || (stream_frame_of(s, s->ack)->flags & FRAME_HAVE))) {
			if (!segment->hollow) {
				*stream_frame_of(s, s->ack) = (struct stream_frame){0};
				s->ahead--;
			}
			s->turns += ++s->ack == 0;
		}
		if (s->ack != end)
			break;
		segment->state = SEGMENT_IDLE;
		s->order_count--;
		memmove(s->order, s->order + 1, s->order_count * sizeof(s->order[0]));
	}
	if (frame_before(s->next, s->ack))
		s->next = s->ack;
}

/* 10.4: "1 ms after ack moved, unless another packet carried it"; at once if ack or room has moved far. */
static void ack_look(struct stream *s, uint64_t now_us)
{
	uint32_t room = stream_room(s);
	uint32_t news = frame_before(s->told.room, room) ? room - s->told.room : 0;

	if (2 * news >= s->pace.cc.window || s->ack - s->told.ack >= s->config.window / 4 ||
	    (s->ack != s->told.ack && stream_ack_urgent(s)))
		s->due.ack_us = now_us;
	else if (s->ack != s->told.ack)
		sooner(&s->due.ack_us, now_us + ACK_DELAY_US);
}

void stream_hold(struct stream *s, uint32_t frame, uint32_t room, uint64_t now_us)
{
	if (frame == s->hold && room == s->hold_room)
		return;
	s->hold = frame;
	s->hold_room = room;
	stream_advance(s);
	ack_look(s, now_us);
}

/*
 * From any packet; they only move forward. 8.3: "is ignored; so is a base after a worker's own ack". 8.4: "A worker may
 * push frames before base + window, as given by any packet, but takes no window above START's".
 */
static void edges_take(struct stream *s, const struct packet *packet)
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
	if (frame_before(s->planned, packet->planned))
		s->planned = packet->planned;
}

/* 10.2: "So a worker knows how many RESULTs it lacks; planned shows whether it lacks plans" */
static void gap_look(struct stream *s, uint64_t now_us)
{
	bool gap = sequence_before(s->stored, s->sequence) || frame_before(s->horizon, s->planned);

	if (!gap) {
		s->gap.due_us = NEVER;
	} else if (s->gap.due_us == NEVER) {
		s->gap.due_us = now_us + rtt_late_us(&s->pace.rtt);
		s->gap.sequence = s->sequence;
		s->gap.answered_us = s->asked.answered_us;
		s->gap.count = (uint16_t)(s->sequence - s->stored);
	}
}

/* How many packets were not as the protocol says, or for nothing that is under way: they are no news. */
static uint64_t senseless_drops(const struct stream *s)
{
	return s->stats.drops[WIRE_DROP_LENGTH] + s->stats.drops[WIRE_DROP_OPERATION];
}

/* 10.4: "after as long again as it has lasted, at most 32 probe times, or 400 ms if less" */
static uint64_t ask_wait_us(struct stream *s, uint64_t now_us)
{
	uint64_t silent_us = now_us - s->asked.since_us;

	if (silent_us < rtt_probe_us(&s->pace.rtt))
		return pace_measure_us(&s->pace);
	return stream_spread(s, rtt_silence_us(&s->pace.rtt, silent_us));
}

/* Something that operations wait for. */
static void news_take(struct stream *s, uint64_t now_us)
{
	s->news_us = s->asked.since_us = now_us;
	s->asked.silent_us = 0;
	sooner(&s->due.ask_us, now_us + rtt_probe_us(&s->pace.rtt));
}

/* When what has this stamp was sent: in the last 71 minutes. */
static uint64_t stamped_us(uint32_t stamp, uint64_t now_us)
{
	now_us |= 1; /* as stamps are */
	return now_us - (uint32_t)((uint32_t)now_us - stamp);
}

/* CONGESTION.md 2: "less its answer's held, and less what the answer has waited on the worker's host" */
static void rtt_measured(struct stream *s, const struct packet *packet, const struct status *status,
                         uint64_t asked_us, uint64_t now_us)
{
	uint64_t came_us = packet->came_us != 0 ? packet->came_us : now_us;
	uint32_t rtt_us = now_us > asked_us ? (uint32_t)(now_us - asked_us) : 0;
	uint32_t path_us = (uint32_t)came_us - status->stamp;

	path_us = path_us <= rtt_us ? path_us : rtt_us;
	path_us -= status->held < path_us ? status->held : 0;
	pace_rtt(&s->pace, rtt_us, path_us, now_us);
}

/*
 * The answer to a STATUS says something only if it was sent, and no later one has been answered: a datagram
 * that comes once more, or that somebody sends once more, says nothing of the path as it is now.
 */
static void answer_take(struct stream *s, const struct packet *packet, const struct status *status,
                        uint64_t now_us)
{
	uint64_t asked_us = stamped_us(status->stamp, now_us);

	if (status->stamp == 0 || asked_us <= s->asked.answered_us || asked_us > s->asked.last_us)
		return;
	s->asked.answered_us = asked_us;
	rtt_measured(s, packet, status, asked_us, now_us);
	sooner(&s->due.ask_us, now_us + ask_wait_us(s, now_us));
}

static void status_take(struct stream *s, const struct packet *packet, uint64_t now_us)
{
	struct status status;
	enum wire_drop drop = status_parse(packet, &status);

	if (drop != WIRE_DROP_NONE)
		stream_drop(s, drop);
	if (drop != WIRE_DROP_NONE || packet->worker == WIRE_EVERYONE)
		return;
	pace_marked(&s->pace, status.marked);
	answer_take(s, packet, &status, now_us);
	if (status.stamp != 0)
		resend_take(s, &status);
}

struct allreduce *stream_receive(struct stream *s, const struct packet *packet, uint64_t now_us)
{
	struct allreduce *task = NULL;
	uint64_t before = senseless_drops(s);
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
	pace_received(&s->pace, packet->marked);
	s->marked += packet->marked;
	edges_take(s, packet);
	switch (packet->kind) {
	case WIRE_RESULT:
		task = result_take(s, packet, now_us);
		break;
	case WIRE_PLAN:
		task = plan_take(s, packet);
		break;
	case WIRE_STATUS_BACK:
		status_take(s, packet, now_us);
		break;
	default:
		stream_drop(s, WIRE_DROP_KIND);
	}
	stream_advance(s);
	ack_look(s, now_us);
	if (s->base != base || ((packet->kind == WIRE_RESULT || packet->kind == WIRE_PLAN) &&
	                        senseless_drops(s) == before))
		news_take(s, now_us);
	gap_look(s, now_us);
	stream_check_edges(s);
	return task;
}

/* ---- sending ---- */

/* 10.2: "It lists a frame again after a probe time, or late after an answer to that STATUS or a later one" */
static bool may_ask(const struct stream *s, uint32_t asked_us, uint64_t now_us)
{
	return asked_us == 0 || s->gap.answered_us >= stamped_us(asked_us, now_us) ||
	       (uint32_t)now_us - asked_us >= rtt_probe_us(&s->pace.rtt);
}

/* 10.2: "the frames before its pushed that it lacks, and knows the plan of" */
static bool is_lacked(const struct stream *s, uint32_t frame, uint64_t now_us)
{
	const struct stream_frame *f = stream_frame_of(s, frame);
	const struct stream_segment *segment;

	if ((f->flags & (FRAME_HAVE | FRAME_RESEND)) || !may_ask(s, f->asked_us, now_us))
		return false;
	segment = stream_find(s, frame);
	return segment != NULL && !segment->hollow;
}

/* 10.2: "It lists only when more is missing than was listed and may still come" */
static void gap_list(struct stream *s, uint64_t now_us, struct status *out)
{
	uint16_t count = (uint16_t)(s->sequence - s->stored);
	uint32_t listed = 0;
	bool late;

	count = count < s->gap.count ? count : s->gap.count;
	late = count > s->gap.asked;
	count -= s->gap.asked;
	if (late) {
		s->gap.asked += count;
		s->gap.asked_us = (uint32_t)now_us | 1;
	}
	for (uint32_t frame = s->ack; late && frame != s->next; frame++) {
		if (!frame_before(frame, s->highest) && listed >= count)
			break;
		if (!is_lacked(s, frame, now_us))
			continue;
		listed++;
		if (!status_list(out, frame))
			return;
		stream_frame_of(s, frame)->asked_us = (uint32_t)now_us | 1;
		s->stats.lost++;
		pace_missed(&s->pace);
	}
	/* 10.2: "the first frame whose plan it does not know, if that is before planned" */
	if (frame_before(s->horizon, s->planned) && may_ask(s, s->asked.plan_us, now_us) &&
	    status_list(out, s->horizon)) {
		s->asked.plan_us = (uint32_t)now_us | 1;
		s->stats.lost++;
	}
}

static void status_build(struct stream *s, struct status *status, uint64_t now_us,
                         struct packet_out *out)
{
	status->stamp = (uint32_t)now_us | 1;
	status->marked = s->marked;
	if (status->asks) {
		s->calm = false;
		s->asked.last_us = now_us | 1;
		s->due.ask_us = now_us + ask_wait_us(s, now_us);
	}
	stream_head(s, out, WIRE_STATUS, status->first);
	packet_put_status(out, status);
}

static bool gap_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	struct status status = {.asks = true};

	if (now_us < s->gap.due_us)
		return false;
	if (may_ask(s, s->gap.asked_us, now_us))
		s->gap.asked = 0;
	gap_list(s, now_us, &status);
	if (status.word_count > 0) {
		status_build(s, &status, now_us, out);
		s->stats.nacks++;
	}
	s->gap.due_us = NEVER;
	gap_look(s, now_us + (status.word_count > 0 ? rtt_late_us(&s->pace.rtt) : 0));
	return status.word_count > 0;
}

/* When to ask. 10.4: "For base alone not before a silence of a probe time and 1 ms": others may wait to acknowledge. */
static uint64_t ask_due_us(const struct stream *s)
{
	uint64_t silent_us;

	if (s->next != s->ack || frame_before(s->horizon, s->planned) || s->calm ||
	    (s->pace.round.full && eager_under_way(s) > 0))
		return s->due.ask_us;
	silent_us = s->asked.since_us + rtt_probe_us(&s->pace.rtt) + ACK_DELAY_US;
	return s->next == s->base ? NEVER : s->due.ask_us > silent_us ? s->due.ask_us : silent_us;
}

/*
 * An acknowledgement that nothing else carries; or the aggregator is to answer, while frames are under way: its
 * answer measures the round trip, and lists what is lost. PUSH to RESULT would measure the slowest worker and
 * its losses.
 */
static bool status_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	bool asks = now_us >= ask_due_us(s);

	if (now_us < s->due.ack_us && !asks)
		return false;
	if (asks && now_us - s->asked.since_us >= rtt_probe_us(&s->pace.rtt)) {
		if (s->asked.answered_us < s->asked.silent_us)
			pace_unanswered(&s->pace);
		s->asked.silent_us = now_us | 1;
	}
	status_build(s, &(struct status){.asks = asks}, now_us, out);
	return true;
}

/* 10.1: "After the first measurement such a STATUS goes ahead of the PUSHes that could leave with it" */
static bool ahead_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	return s->pace.rtt.srtt_us != 0 && now_us >= ask_due_us(s) && status_pull(s, now_us, out);
}

bool stream_pull(struct stream *s, uint64_t now_us, struct packet_out *out)
{
	if (!resend_pull(s, now_us, out) && !announce_pull(s, now_us, out) &&
	    !gap_pull(s, now_us, out) && !ahead_pull(s, now_us, out) &&
	    !push_pull(s, now_us, out) && !status_pull(s, now_us, out))
		return false;
	s->stats.sent++;
	s->stats.sent_bytes += out->bytes;
	return true;
}

uint64_t stream_deadline(const struct stream *s)
{
	uint64_t due_us = s->due.ack_us;

	sooner(&due_us, s->due.announce_us);
	sooner(&due_us, s->gap.due_us);
	sooner(&due_us, ask_due_us(s));
	return due_us;
}

bool stream_is_busy(const struct stream *stream)
{
	uint32_t frames = stream->horizon - stream->next, enough = 2 * stream->pace.cc.window;

	for (uint32_t i = 0; i < stream->announced_count; i++) {
		const struct stream_segment *segment = &stream->segments[stream->announced[i]];

		if (segment->tries <= 1)
			frames += segment->own_frames;
	}
	return frames >= (enough > BUSY_FRAMES_MIN ? enough : BUSY_FRAMES_MIN);
}

/*
 * CONGESTION.md 6: "at least 256 frames, and twice its limit, are still to be pushed". Not in slow start, which counts what
 * comes, nor with a gap, whose repair would wait.
 */
uint32_t stream_gathers(const struct stream *stream)
{
	if (!stream_is_busy(stream) || stream->pace.cc.starting || stream->gap.count > 0)
		return 0;
	return stream->pace.cc.window / GATHER_PART;
}

/* 11.4: "A worker leaves when its operations are done and base has reached its ack on all channels" */
bool stream_quiet(const struct stream *stream)
{
	return stream->announced_count == 0 && stream->base == stream->ack &&
	       stream->ack == stream->told.ack && !frame_before(stream->horizon, stream->planned);
}

uint32_t stream_base(const struct stream *stream)
{
	return stream->base;
}

uint64_t stream_edge(const struct stream *stream)
{
	return (uint64_t)stream->turns << 32 | stream->ack;
}

const struct stream_stats *stream_stats(const struct stream *stream)
{
	return &stream->stats;
}

uint32_t stream_in_ms(const struct stream *stream)
{
	return pace_in_us(&stream->pace, 1000);
}

void stream_look(const struct stream *stream, struct control_seen *sum)
{
	const struct pace *pace = &stream->pace;
	const struct stream_stats *stats = &stream->stats;

	if (pace->rtt.srtt_us > 0 && (sum->rtt_us == 0 || pace->rtt.best_us < sum->rtt_least_us))
		sum->rtt_least_us = (uint32_t)pace->rtt.best_us;
	if (pace->rtt.srtt_us > sum->rtt_us)
		sum->rtt_us = (uint32_t)pace->rtt.srtt_us;
	sum->frames += pace->cc.window;
	sum->held_window_us += stream->held.us[STREAM_HELD_WINDOW];
	sum->held_credit_us += stream->held.us[STREAM_HELD_CREDIT];
	sum->out += stats->sent;
	sum->out_marked += pace->marked_total;
	sum->pushes += stats->pushes;
	sum->out_lost += stats->retransmits;
	sum->in += stats->received;
	sum->in_marked += stream->marked;
	sum->in_lost += stats->lost;
}

void stream_looked(struct control_seen *sum, uint32_t streams)
{
	sum->held_window_us /= streams;
	sum->held_credit_us /= streams;
}
