// SPDX-License-Identifier: BSD-3-Clause
/* session.c - see session.h */

#include "client/worker/session_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/worker/explain.h"

#define OWN_QUEUE_MIN (4u << 16) /* CONGESTION.md 5: "or 256 KB if that is more" */
#define OWN_QUEUE_MAX (1u << 30)

int session_open(const struct session_config *config, uint64_t now_us, struct session **out)
{
	struct session *s;

	if (config->link_count == 0 || config->link_count > SESSION_LINKS_MAX)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->config = *config;
	s->world = config->links[0].world;
	snprintf(s->job, sizeof(s->job), "%s", config->links[0].job);
	s->left_due_us = s->silence_us = s->stall_us = NEVER;
	for (; s->link_count < config->link_count; s->link_count++) {
		s->names[s->link_count] = config->names[s->link_count];
		s->headers[s->link_count] = WIRE_ETHERNET_BYTES;
		if (link_open(&config->links[s->link_count], now_us, &s->links[s->link_count]) !=
		    0) {
			session_close(s);
			return -ENOMEM;
		}
	}
	if (s->world == 0 && config->stay.kind == CONTROL_STAY)
		link_stay(s->links[0], &config->stay);
	*out = s;
	return 0;
}

void session_close(struct session *session)
{
	if (session == NULL)
		return;
	for (uint32_t i = 0; i < session->link_count; i++)
		link_close(session->links[i]);
	engine_close(session->engine);
	free(session);
}

struct link *session_link(const struct session *session, uint32_t index)
{
	return session->links[index];
}

enum session_state session_state(const struct session *session)
{
	return session->state;
}

enum winnow_result session_result(const struct session *session)
{
	return session->result;
}

const char *session_error(const struct session *session)
{
	return session->error;
}

/* ---- failing ---- */

/* 5.4: "A worker's ABORT has code gone when an aggregator is lost to it, and lost when another worker is" */
static const char *code_of(const struct session *s, enum winnow_result result)
{
	switch (result) {
	case WINNOW_ERR_MEMBERS:
		return "lost";
	case WINNOW_ERR_LOST:
	case WINNOW_ERR_UNREACHABLE:
		return "gone";
	case WINNOW_ERR_TIMEOUT:
		return s->state == SESSION_RUNNING ? "stalled" : "lost";
	case WINNOW_ERR_MISMATCH:
		return "mismatch";
	default:
		return "aborted";
	}
}

/* Ends everything with the reason in s->error, and tells `told` to all aggregators but `except`. */
static void session_end(struct session *s, uint32_t except, enum winnow_result result,
                        const char *code, const char *told)
{
	s->state = SESSION_FAILED;
	s->result = result;
	for (uint32_t i = 0; i < s->link_count; i++)
		if (i != except)
			link_abort(s->links[i], code, told);
	if (s->engine != NULL)
		engine_fail(s->engine, (int)result);
}

__attribute__((format(printf, 4, 5))) static void session_end_with(struct session *s,
                                                                   uint32_t except,
                                                                   enum winnow_result result,
                                                                   const char *format, ...)
{
	va_list args;

	if (s->state == SESSION_FAILED)
		return;
	va_start(args, format);
	vsnprintf(s->error, sizeof(s->error), format, args);
	va_end(args);
	session_end(s, except, result, code_of(s, result), s->error);
}

/* A member at the door came too late: the others have continued without it, or the job has ended. */
static bool overtaken(const struct session *s)
{
	static const char *const codes[] = {"running", "stalled", "moved", "aborted"};
	bool known = false;

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		known = known || strcmp(s->links[0]->error_code, codes[i]) == 0;
	return known && s->world == 0 && s->config.stay.kind != 0;
}

static void link_check(struct session *s, uint32_t index)
{
	const struct link *link = s->links[index];
	const char *code = link->error_code;
	const bool running = s->state == SESSION_RUNNING;

	if (link->state != LINK_FAILED || s->state == SESSION_FAILED)
		return;
	session_end_with(s, index, overtaken(s) ? WINNOW_ERR_LOST : explain_code(code, running),
	                 "aggregator %s%s: %s", s->names[index],
	                 running && strcmp(code, "gone") == 0 ? " is lost" : "", link->error);
}

/* ---- starting ---- */

static struct stream_config stream_config_of(const struct session *s, uint32_t link, uint32_t shard)
{
	const struct link_config *worker = &s->links[link]->config;
	const struct control_message *welcome = &s->links[link]->welcome;
	const struct control_message *start = &s->links[link]->start;

	return (struct stream_config){
		.channel = welcome->channels[shard - s->first_stream[link]],
		.shard = (uint16_t)shard,
		.shard_count = (uint16_t)s->first_stream[s->link_count],
		.rank = (uint16_t)worker->rank,
		.world = (uint16_t)worker->world,
		.payload = start->payload,
		.window = start->window,
		.window_start = start->window_start,
		.op_slots = welcome->op_slots,
		.segments_ahead = welcome->segments_ahead,
		.first_frame = welcome->first_frame,
		.token = welcome->token,
		.group_token = welcome->group_token,
		.engine = s->config.bitmap,
		.private_network = s->config.private_network,
	};
}

/* We reserve memory for what aggregators grant, and they may not be trustworthy, so it is limited. */
static bool session_fits(struct session *s, const struct stream_config configs[], uint32_t total)
{
	uint64_t wanted = 0, limit = s->config.bytes_max;

	for (uint32_t i = 0; i < total; i++)
		wanted += stream_bytes(&configs[i]);
	if (limit == 0 || wanted <= limit)
		return true;
	session_end_with(
		s, s->link_count, WINNOW_ERR_MEMORY,
		"the aggregators' --op-slots, --segments-ahead, --threads and windows need "
		"%" PRIu64 " MB of memory on this worker, but only %" PRIu64
		" are allowed (memory_mb, WINNOW_MEMORY_MB)",
		(wanted + (1 << 20) - 1) >> 20, limit >> 20);
	return false;
}

/* Opens the engine when all links run. */
static void session_start(struct session *s)
{
	struct stream_config *configs;
	uint32_t total = 0;

	for (uint32_t i = 0; i < s->link_count; i++) {
		sooner(&s->silence_us, (uint64_t)s->links[i]->welcome.silence_ms * 1000);
		sooner(&s->stall_us, (uint64_t)s->links[i]->welcome.stall_ms * 1000);
		s->first_stream[i] = total;
		total += s->links[i]->welcome.channel_count;
	}
	s->first_stream[s->link_count] = total;
	if (total > WIRE_SHARDS_MAX) {
		session_end_with(s, s->link_count, WINNOW_ERR_INVALID,
		                 "the aggregators have %u threads together, but at most %u can "
		                 "share a tensor: lower their --threads",
		                 total, WIRE_SHARDS_MAX);
		return;
	}
	configs = calloc(total, sizeof(*configs));
	for (uint32_t i = 0; i < s->link_count && configs != NULL; i++)
		for (uint32_t c = s->first_stream[i]; c < s->first_stream[i + 1]; c++)
			configs[c] = stream_config_of(s, i, c);
	if (configs != NULL && !session_fits(s, configs, total)) {
		free(configs);
		return;
	}
	switch (configs != NULL ? engine_open(configs, total, s->config.pool, &s->engine)
	                        : -ENOMEM) {
	case 0:
		s->engine->eager_count = s->first_stream[1];
		s->state = SESSION_RUNNING;
		break;
	case -EINVAL:
		session_end_with(s, s->link_count, WINNOW_ERR_PROTOCOL,
		                 "the aggregators do not agree on the size of datagrams");
		break;
	default:
		session_end_with(s, s->link_count, WINNOW_ERR_MEMORY, "out of memory");
	}
	free(configs);
}

/* 5.3: "A worker reports to each of several aggregators the smallest size of all" */
static void ready_if_all_probed(struct session *s)
{
	uint32_t payload = UINT32_MAX;

	for (uint32_t i = 0; i < s->link_count; i++) {
		if (s->links[i]->state != LINK_PROBED)
			return;
		if (s->links[i]->size < payload)
			payload = s->links[i]->size;
	}
	for (uint32_t i = 0; i < s->link_count; i++)
		link_ready(s->links[i], payload);
}

static void start_if_all_run(struct session *s)
{
	for (uint32_t i = 0; i < s->link_count; i++)
		if (s->links[i]->state != LINK_RUNNING)
			return;
	if (s->state == SESSION_JOINING)
		session_start(s);
}

struct session_shape session_shape(const struct session *session)
{
	struct session_shape shape = {
		.fast = session->state == SESSION_RUNNING,
		.channels = session->first_stream[session->link_count],
		.payload = session->links[0]->start.payload,
		.op_slots = session->engine->op_slots,
		.segments_ahead = UINT32_MAX,
	};

	for (uint32_t i = 0; i < session->link_count; i++) {
		const struct link *link = session->links[i];

		shape.fast = shape.fast && link->start.fast;
		if (link->start.window > shape.window)
			shape.window = link->start.window;
		if (link->welcome.segments_ahead < shape.segments_ahead)
			shape.segments_ahead = link->welcome.segments_ahead;
	}
	return shape;
}

uint64_t session_tokens(const struct session *session)
{
	uint64_t tokens = 0;

	for (uint32_t i = 0; i < session->link_count; i++)
		tokens ^= session->links[i]->welcome.group_token; /* Random either way. */
	return tokens;
}

/* ---- in ---- */

void session_line(struct session *session, uint32_t index, const char *line, uint64_t now_us)
{
	struct link *link = session->links[index];

	link_line(link, line, now_us);
	if (index == 0 && session->links[0]->state == LINK_RUNNING) {
		memcpy(session->config.stay.begun, session->job, sizeof(session->job));
		session->config.stay.of = session->world;
	}
	link_check(session, index);
	/* 11.4: "At each of them an operation under way fails a silence time after LEFT" */
	if (*link->left != '\0' && session->left_due_us == NEVER)
		session->left_due_us = now_us + session->silence_us;
	start_if_all_run(session);
}

void session_gone(struct session *session, uint32_t index, const char *reason)
{
	link_gone(session->links[index], reason);
	link_check(session, index);
}

void session_plain(struct session *session, uint32_t index, const char *line)
{
	link_plain(session->links[index], line);
	link_check(session, index);
}

void session_refused(struct session *session, uint32_t index)
{
	link_refused(session->links[index]);
	link_check(session, index);
}

void session_headers(struct session *session, uint32_t index, uint32_t bytes)
{
	session->headers[index] = bytes;
}

void session_unreachable(struct session *session, uint32_t index, const char *reason)
{
	link_gone(session->links[index], reason);
	session_end_with(session, index, WINNOW_ERR_UNREACHABLE, "aggregator %s: %s",
	                 session->names[index], reason);
}

static bool stream_named(const struct session *s, uint32_t link, uint16_t channel, uint32_t *out)
{
	bool known = link_channel(s->links[link], channel, out);

	*out += s->first_stream[link];
	return known;
}

/* 2.4: "edge is the lower half of a 64-bit number: ack and base, counted on where 32 bits wrap". It begins at 0. */
static uint64_t edge_of(const struct session *s, uint32_t link, uint16_t channel)
{
	uint32_t stream;

	if (s->state != SESSION_RUNNING || !stream_named(s, link, channel, &stream))
		return 0;
	return stream_edge(s->engine->streams[stream]);
}

/* Ends the job, because the others must not wait for an operation that only this worker knows has failed. */
static void operation_failed(struct session *s, const struct allreduce *task)
{
	char text[CONTROL_TEXT_BYTES];

	if (task->status == WINNOW_ERR_MISMATCH)
		explain_mismatch(&task->mismatch, text, sizeof(text));
	else
		snprintf(text, sizeof(text),
		         "rank %u cannot take part in an operation: out of memory",
		         s->links[0]->config.rank);
	session_end_with(s, s->link_count, (enum winnow_result)task->status, "%s", text);
}

void session_datagram(struct session *session, uint32_t index, const struct arrival *in,
                      uint64_t now_us)
{
	const struct allreduce *failed = NULL;
	struct packet packet;
	uint32_t stream;

	if (packet_parse(in->data, in->bytes, true, &packet) != WIRE_DROP_NONE) {
		session->malformed++;
		return;
	}
	session->gather.datagrams++;
	packet.came_us = in->came_us;
	packet.marked = in->marked;
	link_unseal(session->links[index], in->data, in->bytes,
	            edge_of(session, index, packet.channel), &packet);
	if (packet.kind == WIRE_KNOCKED || packet.kind == WIRE_PROBE)
		link_packet(session->links[index], &packet, in->bytes, now_us);
	else if (session->state == SESSION_RUNNING &&
	         stream_named(session, index, packet.channel, &stream))
		failed = engine_receive(session->engine, stream, &packet, now_us);
	else
		session->strays++;
	if (failed != NULL)
		operation_failed(session, failed);
}

int session_submit(struct session *session, struct allreduce *task, uint64_t now_us)
{
	if (session->state == SESSION_FAILED)
		return (int)session->result;
	if (session->state == SESSION_JOINING)
		return WINNOW_ERR_INVALID;
	if (*session_who_left(session) != '\0') {
		session_end_with(session, session->link_count, WINNOW_ERR_MEMBERS, "%s",
		                 session_who_left(session));
		return (int)session->result;
	}
	return engine_submit(session->engine, task, now_us);
}

/* ---- out ---- */

/* Fills in the state of the paths to aggregators [first, end). Single values are those of the slowest path. */
static void seen_fill(const struct session *s, uint32_t first, uint32_t end,
                      struct control_seen *out)
{
	const uint32_t channel = s->first_stream[first], channel_end = s->first_stream[end];

	*out = (struct control_seen){0};
	for (uint32_t i = channel; i < channel_end; i++)
		stream_look(s->engine->streams[i], out);
	stream_looked(out, channel_end - channel);
}

char *session_take_line(struct session *session, uint32_t index, uint64_t now_us)
{
	struct link *link = session->links[index];
	struct control_seen seen;

	if (session->engine != NULL) {
		link_doing(link, session->engine->open, engine_tag(session->engine));
		if (link_pings(link, now_us)) {
			seen_fill(session, index, index + 1, &seen);
			link_sees(link, &seen);
		}
	}
	return link_take_line(link, now_us);
}

bool session_pull(struct session *session, uint32_t index, uint64_t now_us, struct packet_out *out)
{
	uint16_t channel;

	if (session->state == SESSION_FAILED)
		return false;
	if (!(session->state == SESSION_RUNNING &&
	      engine_pull(session->engine, session->first_stream[index],
	                  session->first_stream[index + 1], now_us, out)) &&
	    !link_pull(session->links[index], now_us, out)) {
		ready_if_all_probed(session);
		return false;
	}
	memcpy(&channel, out->head + offsetof(struct wire_header, channel), sizeof(channel));
	link_seal(session->links[index], out, edge_of(session, index, channel));
	return true;
}

bool session_work(struct session *session, uint64_t now_us)
{
	return session->state == SESSION_RUNNING && engine_work(session->engine, now_us);
}

/* ---- time ---- */

/*
 * 11.3: "when no PLAN or RESULT has come for a silence time more". The aggregators, which know the cause, come first.
 */
static uint64_t operation_due_us(const struct session *s)
{
	if (s->state != SESSION_RUNNING || s->engine->open == 0)
		return NEVER;
	if (s->left_due_us != NEVER)
		return s->left_due_us;
	return s->engine->progress_us + s->stall_us + s->silence_us;
}

uint64_t session_deadline(const struct session *session)
{
	uint64_t due_us = operation_due_us(session);

	if (session->state == SESSION_RUNNING)
		sooner(&due_us, engine_deadline(session->engine));
	if (session_busy(session) && !session->config.private_network)
		sooner(&due_us, session->breakers_due_us);
	for (uint32_t i = 0; i < session->link_count; i++) {
		const struct link *link = session->links[i];

		sooner(&due_us, session->state == SESSION_FAILED ? link_deadline_lines(link)
		                                                 : link_deadline(link));
	}
	return due_us;
}

const char *session_who_left(const struct session *session)
{
	for (uint32_t i = 0; i < session->link_count; i++)
		if (*session->links[i]->left != '\0')
			return session->links[i]->left;
	return "";
}

const char *session_late(const struct session *session)
{
	for (uint32_t i = 0; i < session->link_count; i++)
		if (*session->links[i]->late != '\0')
			return session->links[i]->late;
	return "";
}

/* Writes the datagrams that were dropped, or "", for an error about missing ones: they may be the same. */
static const char *drops_text(const struct session *s, char *text, size_t room)
{
	uint64_t seals = 0, senseless = s->malformed;

	for (uint32_t i = 0; i < s->first_stream[s->link_count]; i++) {
		const uint64_t *drops = stream_stats(s->engine->streams[i])->drops;

		seals += drops[WIRE_DROP_SEAL];
		senseless += drops[WIRE_DROP_KIND] + drops[WIRE_DROP_WORKER] +
		             drops[WIRE_DROP_LENGTH] + drops[WIRE_DROP_OPERATION];
	}
	*text = '\0';
	if (seals + senseless > 0)
		snprintf(text, room,
		         "; %llu datagrams came and were dropped: %llu had a wrong seal or token, "
		         "%llu made no sense",
		         (unsigned long long)(seals + senseless), (unsigned long long)seals,
		         (unsigned long long)senseless);
	return text;
}

/* CONGESTION.md 7: "It does not while it checks the path (11.5)" */
static void breakers_look(struct session *s, uint64_t now_us)
{
	struct breaker_verdict found;
	struct control_seen seen;
	char drops[160];

	if (s->config.private_network || s->state != SESSION_RUNNING || now_us < s->breakers_due_us)
		return;
	s->breakers_due_us = now_us + BREAKER_INTERVAL_US;
	for (uint32_t i = 0; i < s->link_count; i++) {
		seen_fill(s, i, i + 1, &seen);
		if (!breaker_look(&s->breakers[i], &seen, now_us, &found) ||
		    link_checks(s->links[i]))
			continue;
		session_end_with(
			s, s->link_count, WINNOW_ERR_ABORTED,
			"%.0f %% of the datagrams of rank %u %s aggregator %s were lost for %.0f s "
			"(%llu of %llu), which is too much for a shared network; if nobody else "
			"uses it, set WINNOW_NETWORK=private%s",
			100 * (double)found.lost / (double)found.packets, s->links[i]->config.rank,
			found.in ? "from" : "to", s->names[i], (double)found.for_us / 1e6,
			(unsigned long long)found.lost, (unsigned long long)found.packets,
			drops_text(s, drops, sizeof(drops)));
		return;
	}
}

void session_tick(struct session *session, uint64_t now_us)
{
	char drops[160];

	breakers_look(session, now_us);
	for (uint32_t i = 0; i < session->link_count; i++) {
		if (session->state == SESSION_RUNNING)
			link_waits(session->links[i],
			           engine_waits_us(session->engine, session->first_stream[i],
			                           session->first_stream[i + 1]),
			           now_us);
		link_tick(session->links[i], now_us);
		link_check(session, i);
	}
	if (now_us < operation_due_us(session))
		return;
	if (session->left_due_us != NEVER)
		session_end_with(session, session->link_count, WINNOW_ERR_MEMBERS,
		                 "%s while an operation needed it", session_who_left(session));
	else
		session_end_with(session, session->link_count, WINNOW_ERR_TIMEOUT,
		                 "no operation has made progress for %.1f s, and no aggregator "
		                 "gives a reason%s",
		                 (double)(session->stall_us + session->silence_us) / 1e6,
		                 drops_text(session, drops, sizeof(drops)));
}

bool session_busy(const struct session *session)
{
	return session->engine != NULL && session->engine->open > 0;
}

uint32_t session_gather_us(struct session *session, uint64_t now_us)
{
	bool may = session->state == SESSION_RUNNING && session->config.private_network;

	return gather_us(&session->gather, may ? engine_gathers(session->engine) : 0, now_us);
}

bool session_quiet(const struct session *session)
{
	return session->engine == NULL || engine_quiet(session->engine);
}

/* ---- ending ---- */

static uint64_t place_bit(const struct link *link)
{
	return UINT64_C(1) << link->config.place;
}

void session_stay(const struct session *session, struct control_message *out)
{
	*out = session->config.stay;
	if (session->world == 0)
		return;
	out->kind = CONTROL_STAY;
	out->rank = session->links[0]->config.rank;
	out->without = 0;
	memcpy(out->job, session->job, sizeof(out->job));
	for (uint32_t i = 1; i < session->link_count; i++)
		if (link_lost(session->links[i]))
			out->without |= place_bit(session->links[i]);
}

uint64_t session_drains(const struct session *session)
{
	uint64_t drains = 0;

	for (uint32_t i = 0; i < session->link_count; i++)
		if (session->links[i]->drains)
			drains |= place_bit(session->links[i]);
	return drains;
}

void session_says(struct session *session, const char *text)
{
	for (uint32_t i = 0; i < session->link_count; i++)
		link_says(session->links[i], text);
}

void session_leave(struct session *session)
{
	for (uint32_t i = 0; i < session->link_count; i++)
		link_leave(session->links[i]);
}

void session_abort(struct session *session, const char *text)
{
	if (session->state == SESSION_FAILED)
		return;
	snprintf(session->error, sizeof(session->error), "aborted here: %s", text);
	session_end(session, session->link_count, WINNOW_ERR_ABORTED, "aborted", text);
}

void session_move(struct session *session, bool keeps)
{
	if (session->state == SESSION_FAILED)
		return;
	/* MEMBERS.md 3: "At a boundary a worker waits as for LEAVE, says that to the aggregators but the decider" */
	if (keeps && !session_busy(session)) {
		for (uint32_t i = 1; i < session->link_count; i++)
			link_leave(session->links[i]);
		return;
	}
	/* MEMBERS.md 2: "unless operations are under way, sends ABORT with code moved, which ends the job" */
	snprintf(session->error, sizeof(session->error), "it has continued in another membership");
	session_end(session, keeps ? 0 : session->link_count, WINNOW_ERR_MEMBERS, "moved",
	            session->error);
}

void session_fail(struct session *session, enum winnow_result result, const char *text)
{
	session_end_with(session, session->link_count, result, "%s", text);
}

uint32_t session_passes(const struct session *session)
{
	uint32_t passes = UINT32_MAX;

	for (uint32_t i = 0; i < session->link_count && session->engine != NULL; i++)
		if (session->links[i]->size < passes)
			passes = session->links[i]->size;
	return session->engine != NULL ? passes : 0;
}

uint32_t session_own_queue(const struct session *session)
{
	uint64_t frames = 0, bytes;

	if (session->config.private_network || session->engine == NULL)
		return UINT32_MAX;
	for (uint32_t i = 0; i < session->first_stream[session->link_count]; i++)
		frames += stream_in_ms(session->engine->streams[i]);
	bytes = frames * session->links[0]->start.payload;
	if (bytes < OWN_QUEUE_MIN)
		return OWN_QUEUE_MIN;
	return bytes < OWN_QUEUE_MAX ? (uint32_t)bytes : OWN_QUEUE_MAX;
}

void session_stats(const struct session *session, struct winnow_stats *out)
{
	struct session_shape shape;
	struct control_seen seen;

	*out = (struct winnow_stats){.dropped = session->strays + session->malformed};
	for (uint32_t i = 0; i < session->link_count; i++)
		out->multicast += session->links[i]->start.multicast;
	if (session->engine == NULL)
		return;
	shape = session_shape(session);
	out->wire = shape.fast ? WINNOW_WIRE_FIXED32 : WINNOW_WIRE_NATIVE;
	out->payload = shape.payload;
	out->window = session->links[0]->start.window;
	out->channels = shape.channels;
	out->op_slots = shape.op_slots;
	for (uint32_t i = 0, link = 0; i < out->channels; i++) {
		const struct stream_stats *stats = stream_stats(session->engine->streams[i]);
		uint32_t headers;

		link += i == session->first_stream[link + 1];
		headers = session->headers[link];

		out->sent_bytes += stats->sent_bytes + stats->sent * headers;
		out->received_bytes += stats->received_bytes + stats->received * headers;
		out->nacks += stats->nacks;
		for (uint32_t d = 0; d < WIRE_DROP_COUNT; d++)
			out->dropped += stats->drops[d];
	}
	seen_fill(session, 0, session->link_count, &seen);
	out->sent_packets = seen.out;
	out->received_packets = seen.in;
	out->retransmits = seen.out_lost;
	out->rtt_us = seen.rtt_us;
	out->rtt_least_us = seen.rtt_least_us;
	out->window_now = seen.frames;
	out->sent_marked = seen.out_marked;
	out->received_marked = seen.in_marked;
	out->received_lost = seen.in_lost;
	out->held_window_us = seen.held_window_us;
	out->held_credit_us = seen.held_credit_us;
}
