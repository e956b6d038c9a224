// SPDX-License-Identifier: BSD-3-Clause
/* link.c - see link.h */

#include "client/worker/link.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebpf/seal.h"

__attribute__((format(printf, 3, 4))) static void link_fail(struct link *link, const char *code,
                                                            const char *format, ...)
{
	va_list args;

	if (link->state == LINK_FAILED)
		return; /* Later failures only follow from the first. */
	va_start(args, format);
	vsnprintf(link->error, sizeof(link->error), format, args);
	va_end(args);
	snprintf(link->error_code, sizeof(link->error_code), "%s", code);
	link->state = LINK_FAILED;
}

/* The aggregator has ended the job, or refused this worker. */
static void link_over(struct link *link, const struct control_message *failed)
{
	link->failed = *failed;
	link->send &= ~(uint32_t)SEND_JOIN;
	if (failed->text[0] != '\0')
		link_fail(link, failed->code, "%s", failed->text);
	else
		link_fail(link, failed->code, "it ended the job without a reason, with code '%s'",
		          failed->code);
}

static bool at_door(const struct link *link)
{
	return link->config.world == 0;
}

/* Takes over a connection. JOIN goes out as after HELLO, but not at the door, where a member only sends STAY. */
static void link_carry(struct link *link, const struct link *from)
{
	link->heard_us = from->heard_us;
	link->ticked_us = from->ticked_us;
	link->ping_due_us = from->ping_due_us;
	link->drains = from->drains;
	link->carried = true;
	link->send = at_door(link) ? 0 : SEND_JOIN;
	if (at_door(link))
		link->silence_us = from->silence_us; /* The job's, for this connection. */
	link->config.from = NULL;
	if (from->next_failed.kind == CONTROL_FAILED)
		link_over(link, &from->next_failed);
}

int link_open(const struct link_config *config, uint64_t now_us, struct link **out)
{
	struct link *link = calloc(1, sizeof(*link));

	if (link == NULL)
		return -ENOMEM;
	link->config = *config;
	snprintf(link->job, sizeof(link->job), "%s", config->job);
	snprintf(link->host, sizeof(link->host), "%s", config->host);
	link->silence_us = config->silence_us;
	link->ping.kind = CONTROL_PING;
	link->opened_us = link->ticked_us = now_us;
	link->heard_us = link->ping_due_us = NEVER;
	link->verdict_due_us = NEVER;
	if (config->from != NULL)
		link_carry(link, config->from);
	*out = link;
	return 0;
}

void link_close(struct link *link)
{
	if (link != NULL)
		explicit_bzero(link, sizeof(*link)); /* It holds keys. */
	free(link);
}

/* ---- queries ---- */

const struct control_message *link_welcome(const struct link *link)
{
	return link->state == LINK_PROBING ? &link->welcome : NULL;
}

/* The membership has ended, but the connection is open: the aggregator may name the next membership. */
static bool link_told(const struct link *link)
{
	return link->state == LINK_FAILED && link->failed.kind == CONTROL_FAILED &&
	       message_code_continues(link->failed.code) && !link->closed;
}

static bool waits_at_door(const struct link *link)
{
	return at_door(link) && link->state == LINK_JOINING && link->next.kind != CONTROL_NEXT;
}

bool link_stands(const struct link *link)
{
	if (link->heard_us == NEVER || link->closed)
		return false;
	return link->state != LINK_FAILED || link_told(link);
}

/* MEMBERS.md 3: "when its connection ends or is silent without FAILED, or after code shutdown" */
bool link_lost(const struct link *link)
{
	return (link->closed || (link->state == LINK_FAILED && !link_told(link))) &&
	       (link->failed.kind != CONTROL_FAILED || strcmp(link->failed.code, "shutdown") == 0);
}

bool link_ended(const struct link *link)
{
	const char *code = link->failed.code;

	return link->failed.kind == CONTROL_FAILED && !message_code_continues(code) &&
	       strcmp(code, "shutdown") != 0;
}

void link_stay(struct link *link, const struct control_message *stay)
{
	link->stay = *stay;
	link->stay.kind = CONTROL_STAY;
	link->send |= SEND_STAY;
}

const struct control_message *link_next(const struct link *link)
{
	return link->next.kind == CONTROL_NEXT ? &link->next : NULL;
}

/* ---- lines ---- */

static void hello_take(struct link *link, const struct control_message *message)
{
	if (message->version != WIRE_VERSION) {
		link_fail(link, "version",
		          "it speaks version %u of the protocol, this worker speaks %u",
		          message->version, WIRE_VERSION);
	} else {
		link->drains = message->drains;
		link->send |= SEND_JOIN | (link->stay.kind != 0 ? SEND_STAY : 0);
	}
}

/*
 * With a key, tokens never leave this worker, but the machines still write and compare them. Each worker needs a
 * different one, because streams derive their waiting times from it.
 */
static bool keys_make(struct link *link)
{
	struct control_message *welcome = &link->welcome;
	struct seed_keys keys;

	if (seed_expand(welcome->seed, &keys) != 0)
		return false;
	link->stretch = keys.stretch;
	link->group_key = keys.group;
	welcome->group_token = keys.token;
	welcome->token = keys.token ^ (link->config.rank + 1) * 0x9e3779b97f4a7c15;
	explicit_bzero(&keys, sizeof(keys));
	link->sealed = true;
	return true;
}

static bool shape_makes_sense(struct link *link, const char *kind,
                              const struct control_message *message, uint32_t payload_max)
{
	if (message->payload < WIRE_PAYLOAD_MIN || message->payload > payload_max)
		link_fail(link, "protocol", "it sent a %s with payload %u: want %u to %u", kind,
		          message->payload, WIRE_PAYLOAD_MIN, payload_max);
	else if ((message->window & (message->window - 1)) != 0)
		link_fail(link, "protocol", "it sent a %s with window %u: want a power of two",
		          kind, message->window);
	else
		return true;
	return false;
}

/* 5.1: "A worker that is told a longer one ends the connection" */
static bool times_make_sense(struct link *link, const struct control_message *message)
{
	const struct link_config *asked = &link->config;

	if (message->silence_ms > asked->silence_us / 1000)
		link_fail(link, "protocol",
		          "it sent a WELCOME with silence_ms %u: want at most %u, as we asked for",
		          message->silence_ms, (uint32_t)(asked->silence_us / 1000));
	else if (message->stall_ms > asked->stall_us / 1000)
		link_fail(link, "protocol",
		          "it sent a WELCOME with stall_ms %u: want at most %u, as we asked for",
		          message->stall_ms, (uint32_t)(asked->stall_us / 1000));
	else
		return true;
	return false;
}

static void welcome_take(struct link *link, const struct control_message *message, uint64_t now_us)
{
	if (!shape_makes_sense(link, "WELCOME", message, link->config.payload) ||
	    !times_make_sense(link, message))
		return;
	link->welcome = *message;
	if (link->config.keyed && !keys_make(link)) {
		link_fail(link, "memory", "out of memory");
		return;
	}
	link->silence_us = (uint64_t)message->silence_ms * 1000;
	if (now_us + link->silence_us / 4 < link->ping_due_us)
		link->ping_due_us = now_us + link->silence_us / 4;
	link->state = LINK_PROBING;
	knock_begin(&link->knock, message->channel_count, message->payload,
	            link->config.multicast && *message->group != '\0', now_us);
}

static void start_take(struct link *link, const struct control_message *message)
{
	if (!shape_makes_sense(link, "START", message, link->ready))
		return;
	link->start = *message;
	link->state = LINK_RUNNING;
	link->late[0] = '\0'; /* It was about workers that have come. */
	path_init(&link->path, link->welcome.channel_count, message->payload,
	          control_path_us(link->silence_us, (uint64_t)link->welcome.stall_ms * 1000));
}

/* Returns whether another attempt may succeed. A worker at the door may retry more often. */
static bool passes(const struct link *link, const char *code)
{
	static const char *const codes[] = {"connections", "jobs", "shutdown", "timeout"};
	const size_t count = at_door(link) ? sizeof(codes) / sizeof(codes[0]) : 1;

	for (size_t i = 0; i < count; i++)
		if (strcmp(code, codes[i]) == 0)
			return true;
	return false;
}

static void failed_take(struct link *link, const struct control_message *message)
{
	enum link_state was = link->state;

	link_over(link, message);
	if (was == LINK_JOINING && passes(link, message->code))
		link->state = LINK_JOINING; /* Then link_again() may retry. */
}

void link_connected(struct link *link, uint64_t now_us)
{
	link->heard_us = now_us;
}

/*
 * 5.2: "It heeds one plain line, a failed: its attempt has ended". A forged line can do no more than cut the
 * connection.
 */
void link_plain(struct link *link, const char *line)
{
	struct control_message message;
	struct why why;

	if (link->state != LINK_JOINING)
		return;
	if (message_parse(line, &message, &why) != 0) {
		link_fail(link, "protocol", "it does not speak Winnow's protocol: %s", why.text);
	} else if (message.kind == CONTROL_FAILED && message_code_continues(message.code)) {
		link->closed = true;
		link_fail(link, "gone", "%s", message.text);
	} else if (message.kind == CONTROL_FAILED) {
		failed_take(link, &message);
	} else {
		link_fail(link, "key",
		          "it runs with --insecure-no-key, but this worker has a key: give it the "
		          "key, or give this worker none and set WINNOW_INSECURE_NO_KEY=1");
	}
}

/* MEMBERS.md 3: "After stay, lines of the membership before mean nothing" */
static void door_take(struct link *link, const struct control_message *message)
{
	if (message->kind == CONTROL_NEXT)
		link->next = *message;
	else if (message->kind == CONTROL_FAILED && link->next.kind == CONTROL_NEXT)
		link->next_failed = *message;
	else if (message->kind == CONTROL_FAILED && !message_code_continues(message->code))
		failed_take(link, message);
}

void link_secured(struct link *link, const struct seal_key *own)
{
	link->own_key = *own;
}

void link_refused(struct link *link)
{
	link_fail(link, "key",
	          "wrong key for job '%.*s': give this worker the key that is in the aggregator's "
	          "--key-file",
	          (int)message_name_base(link->job), link->job);
}

void link_line(struct link *link, const char *line, uint64_t now_us)
{
	struct control_message message;
	struct why why;

	if (link->state == LINK_FAILED && !link_told(link))
		return;
	link->heard_us = now_us;
	if (message_parse(line, &message, &why) != 0) {
		link_fail(link, "protocol", "it does not speak Winnow's protocol: %s", why.text);
		return;
	}
	if (message.kind == CONTROL_PING) {
		snprintf(link->late, sizeof(link->late), "%s", message.text);
		link->waiting = message.waiting;
		link->drains = message.drains;
		return;
	}
	if (at_door(link) && message.kind != CONTROL_HELLO)
		door_take(link, &message);
	else if (message.kind == CONTROL_FAILED)
		failed_take(link, &message);
	else if (link->state == LINK_FAILED)
		return;
	else if (message.kind == CONTROL_HELLO && link->state == LINK_JOINING)
		hello_take(link, &message);
	else if (message.kind == CONTROL_WELCOME && link->state == LINK_JOINING)
		welcome_take(link, &message, now_us);
	else if (message.kind == CONTROL_START && link->state == LINK_WAITING)
		start_take(link, &message);
	else if (message.kind == CONTROL_LEFT && link->state == LINK_RUNNING)
		snprintf(link->left, sizeof(link->left), "%s",
		         *message.text != '\0' ? message.text : "a worker has left the job");
	else
		link_fail(link, "protocol", "it sent a message out of turn");
}

void link_gone(struct link *link, const char *reason)
{
	link->closed = true;
	if (link->state == LINK_JOINING && *link->error != '\0')
		link->state = LINK_FAILED; /* With the aggregator's reason. */
	else
		link_fail(link, "gone", "%s", reason);
}

/* 5.4: "After this code, or an end before welcome, a worker may try once more with a new connection" */
bool link_again(struct link *link)
{
	if (!waits_at_door(link) && (link->state != LINK_JOINING || link->carried || link->retried))
		return false;
	link->retried = true;
	link->carried = link->closed = false;
	link->silence_us = link->config.silence_us;
	link->send &= ~(uint32_t)(SEND_JOIN | SEND_STAY);
	link->drains = false;
	*link->error = '\0';
	link->failed = (struct control_message){0};
	link->heard_us = link->ping_due_us = NEVER;
	return true;
}

static void join_fill(const struct link *link, struct control_message *out)
{
	out->kind = CONTROL_JOIN;
	out->version = WIRE_VERSION;
	snprintf(out->software, sizeof(out->software), "libwinnow %s", WINNOW_VERSION);
	snprintf(out->job, sizeof(out->job), "%s", link->job);
	snprintf(out->host, sizeof(out->host), "%s", link->host);
	snprintf(out->site, sizeof(out->site), "%s",
	         link->config.site != NULL ? link->config.site : "");
	out->via = link->config.via;
	out->rank = link->config.rank;
	out->world = link->config.world;
	out->payload = link->config.payload;
	out->rcvbuf = link->config.rcvbuf;
	out->silence_ms = (uint32_t)(link->config.silence_us / 1000);
	out->stall_ms = (uint32_t)(link->config.stall_us / 1000);
}

static bool send_take(struct link *link, uint32_t line)
{
	bool was = (link->send & line) != 0;

	link->send &= ~line;
	return was;
}

bool link_pings(const struct link *link, uint64_t now_us)
{
	return now_us >= link->ping_due_us && (link->state != LINK_FAILED || link_told(link));
}

/* STAY goes out after JOIN, which waits for HELLO. */
static bool stays_now(const struct link *link)
{
	return (link->send & SEND_STAY) && link->ping_due_us != NEVER;
}

char *link_take_line(struct link *link, uint64_t now_us)
{
	struct control_message message = {0};

	if (send_take(link, SEND_JOIN)) {
		join_fill(link, &message);
		link->ping_due_us = now_us + link->silence_us / 4; /* No PING comes before JOIN. */
	} else if (send_take(link, SEND_READY)) {
		message.kind = CONTROL_READY;
		message.payload = link->ready;
		message.multicast = link->multicast_seen;
	} else if (send_take(link, SEND_ABORT)) {
		message = link->abort;
	} else if (send_take(link, SEND_PATH)) {
		message.kind = CONTROL_PATH;
		message.channel = link->welcome.channels[link->verdict.channel];
		message.payload = link->start.payload;
		message.passing = link->verdict.passing;
		message.sent = link->verdict.sent;
	} else if (send_take(link, SEND_LEAVE)) {
		message.kind = CONTROL_LEAVE;
	} else if (stays_now(link) && send_take(link, SEND_STAY)) {
		message = link->stay;
	} else if (link_pings(link, now_us)) {
		link->ping_due_us = now_us + link->silence_us / 4;
		message = link->ping;
	} else {
		return NULL;
	}
	return message_format(&message);
}

void link_doing(struct link *link, uint32_t open, uint64_t tag)
{
	if (open == 0 || tag != link->ping.tag)
		link->late[0] = '\0'; /* It was about another operation. */
	link->ping.open = open;
	link->ping.tag = tag;
}

void link_sees(struct link *link, const struct control_seen *seen)
{
	link->ping.seen = *seen;
}

void link_says(struct link *link, const char *text)
{
	snprintf(link->ping.says, sizeof(link->ping.says), "%s", text);
}

void link_leave(struct link *link)
{
	link->send |= SEND_LEAVE;
}

void link_abort(struct link *link, const char *code, const char *text)
{
	link->abort.kind = CONTROL_ABORT;
	snprintf(link->abort.code, sizeof(link->abort.code), "%s", code);
	snprintf(link->abort.text, sizeof(link->abort.text), "%s", text);
	link->send |= SEND_ABORT;
}

/* ---- seals ---- */

void link_seal(const struct link *link, struct packet_out *packet, uint64_t edge)
{
	if (link->sealed)
		seal_write(packet, &link->stretch, &link->own_key, edge);
}

void link_unseal(const struct link *link, const void *data, uint32_t bytes, uint64_t edge,
                 struct packet *packet)
{
	if (!link->sealed)
		return;
	seal_check(packet, data, bytes, link->welcome.group_token, &link->stretch, &link->group_key,
	           edge);
}

/* ---- knocking ---- */

/* Probing is over when datagrams pass and a PROBE has come or is not expected any more. */
static void probing_look(struct link *link)
{
	if (link->state == LINK_PROBING && link->knock.done) {
		link->size = link->knock.size;
		link->state = LINK_PROBED;
	}
}

void link_no_multicast(struct link *link)
{
	link->config.multicast = false;
	if (link->state != LINK_PROBING)
		return;
	knock_probed(&link->knock);
	probing_look(link);
}

void link_ready(struct link *link, uint32_t payload)
{
	link->ready = payload;
	link->state = LINK_WAITING;
	link->send |= SEND_READY;
}

bool link_channel(const struct link *link, uint16_t number, uint32_t *index)
{
	for (*index = 0; *index < link->welcome.channel_count; (*index)++)
		if (link->welcome.channels[*index] == number)
			return true;
	return false;
}

void link_packet(struct link *link, const struct packet *packet, uint32_t bytes, uint64_t now_us)
{
	uint32_t channel;
	bool answer;

	if ((link->state != LINK_PROBING && link->state != LINK_RUNNING) ||
	    packet->token != link->welcome.group_token)
		return;
	answer = packet->kind == WIRE_KNOCKED && packet->worker == link->config.rank &&
	         link_channel(link, packet->channel, &channel);
	if (answer && packet->number != 0) {
		link->proofs[channel] = packet->number;
		if (link->state == LINK_PROBING)
			knock_asked(&link->knock, channel);
		return;
	}
	if (answer && link->state == LINK_RUNNING)
		path_answer(&link->path, channel, bytes, now_us);
	if (link->state == LINK_RUNNING)
		return;
	if (packet->kind == WIRE_PROBE && link->config.multicast) {
		link->multicast_seen = true;
		knock_probed(&link->knock);
	}
	if (answer)
		knock_answer(&link->knock, channel, bytes, now_us);
	probing_look(link);
}

/* 5.3: "It counts all KNOCKs that it sends to an aggregator, from 1, and each carries its count" */
static void knock_build(struct link *link, uint32_t index, uint32_t bytes, struct packet_out *out)
{
	struct wire_header head = {
		.kind = WIRE_KNOCK,
		.channel = link->welcome.channels[index],
		.worker = (uint16_t)link->config.rank,
		.seal = link->welcome.token,
		.frame = ++link->knocks,
		.number = link->proofs[index],
	};

	out->dest = (uint16_t)link->config.rank;
	packet_begin(out, &head);
	memset(out->scratch, 0, bytes - out->bytes);
	packet_point(out, out->scratch, bytes - out->bytes);
}

bool link_checks(const struct link *link)
{
	return link->path.checking || link->verdict_due_us != NEVER;
}

void link_waits(struct link *link, uint64_t since_us, uint64_t now_us)
{
	if (link->state != LINK_RUNNING || link->verdict_due_us != NEVER)
		return;
	path_waits(&link->path, since_us, now_us);
	if (!path_failed(&link->path, now_us, &link->verdict))
		return;
	link->send |= SEND_PATH;
	/* 11.5: "A worker that has sent path gives up itself half a silence time later" */
	link->verdict_due_us = now_us + link->silence_us / 2;
}

bool link_pull(struct link *link, uint64_t now_us, struct packet_out *out)
{
	uint32_t channel, bytes;
	bool due = false;

	if (link->state == LINK_RUNNING && link->verdict_due_us == NEVER)
		due = path_pull(&link->path, now_us, &channel, &bytes);
	else if (link->state == LINK_PROBING)
		due = knock_pull(&link->knock, now_us, &channel, &bytes);
	if (due)
		knock_build(link, channel, bytes, out);
	probing_look(link);
	return due;
}

uint64_t link_deadline_lines(const struct link *link)
{
	uint64_t due_us = link->ping_due_us;

	if (link->state == LINK_FAILED && !link_told(link))
		return NEVER;
	if ((link->send & (SEND_READY | SEND_PATH)) || stays_now(link) ||
	    ((link->send & SEND_ABORT) && link_stands(link)))
		return 0; /* These lines may wait to be sent. */
	if (link->heard_us != NEVER) {
		sooner(&due_us, link->heard_us + link->silence_us);
		sooner(&due_us, link->ticked_us + link->silence_us / 4); /* For times_look(). */
	}
	if (link->state == LINK_FAILED)
		return due_us;
	if (link->state < LINK_RUNNING)
		sooner(&due_us, link->opened_us + link->config.join_us);
	sooner(&due_us, link->verdict_due_us);
	return due_us;
}

uint64_t link_deadline(const struct link *link)
{
	uint64_t due_us = link_deadline_lines(link);

	if (link->state == LINK_PROBING)
		sooner(&due_us, knock_deadline(&link->knock));
	if (link->state == LINK_RUNNING && link->verdict_due_us == NEVER)
		sooner(&due_us, path_deadline(&link->path));
	return due_us;
}

/* It is connected, but no HELLO has come. */
static bool is_mute(const struct link *link)
{
	return link->heard_us != NEVER && link->ping_due_us == NEVER;
}

#define MUTE_HINT ": check that this is the port of winnowd's --listen, and read winnowd's log"

const char *link_awaits(const struct link *link)
{
	static const char *const texts[] = {
		[LINK_JOINING] = "not all workers have joined",
		[LINK_PROBING] = "no datagrams come back from its data port",
		[LINK_PROBED] = "no datagrams come back from another aggregator",
		[LINK_WAITING] =
			("another worker is not ready: its datagrams do not pass, or it waits for "
	                 "an aggregator that this one does not list"),
	};

	assert(link->state < LINK_RUNNING);
	if (is_mute(link))
		return "it accepts connections, but sends nothing" MUTE_HINT;
	if (link->heard_us != NEVER && link->state == LINK_JOINING && at_door(link))
		return link->stay.kind != 0 ? "it waits for the other members, or for one that has "
		                              "the job's state"
		                            : "no member has admitted this worker; check that a "
		                              "job of this name runs and calls admit()";
	if (link->heard_us == NEVER)
		return "it has not answered";
	return *link->late != '\0' && link->state != LINK_PROBING && link->state != LINK_PROBED
	               ? link->late
	               : texts[link->state];
}

/* If this process stood still, lines may have come that it has not read yet, so it is not silence. */
static void times_look(struct link *link, uint64_t now_us)
{
	if (link->heard_us != NEVER)
		link->heard_us =
			control_heard_us(link->heard_us, link->silence_us, link->ticked_us, now_us);
	link->ticked_us = now_us;
}

void link_tick(struct link *link, uint64_t now_us)
{
	times_look(link, now_us);
	if ((link_told(link) || waits_at_door(link)) && link->heard_us != NEVER &&
	    now_us - link->heard_us >= link->silence_us)
		link->closed = true; /* At the door another connection may work. */
	if (link->state == LINK_FAILED || link->closed)
		return;
	if (link->heard_us != NEVER && now_us - link->heard_us >= link->silence_us)
		link_fail(link, "gone", "silent for %.1f s%s", (double)link->silence_us / 1e6,
		          is_mute(link) ? MUTE_HINT : "");
	else if (link->state != LINK_RUNNING && now_us - link->opened_us >= link->config.join_us)
		link_fail(link, "timeout", "could not join within %.1f s: %s",
		          (double)link->config.join_us / 1e6, link_awaits(link));
	else if (now_us >= link->verdict_due_us)
		link_fail(link, "path",
		          "no datagrams come back from its data port, and it gives no reason");
}
