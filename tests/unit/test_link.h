/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_link.h - what the tests of client/worker/link.c share: an aggregator's part, said by hand
 */
#ifndef TESTS_UNIT_TEST_LINK_H
#define TESTS_UNIT_TEST_LINK_H

#include <stdlib.h>
#include <string.h>

#include "client/worker/link.h"
#include "tests/flatten.h"
#include "tests/unit/unit.h"

#define LINK_TEST(name, open) TEST_ON(name, struct link *, link, open, link_close(link))
#define SILENCE_US 4000000
#define JOIN_US 30000000
#define GROUP_TOKEN 0x77
#define START_US 1000000

static uint64_t now_us;

static inline struct link_config basic(void)
{
	now_us = START_US;
	return (struct link_config){
		.job = "job",
		.host = "host",
		.rank = 1,
		.world = 4,
		.payload = 8972,
		.rcvbuf = 1 << 20,
		.silence_us = SILENCE_US,
		.stall_us = 60000000,
		.join_us = JOIN_US,
		.multicast = true,
	};
}

static inline struct link *opened(struct link_config config)
{
	struct link *link;

	assert_int_equal(link_open(&config, now_us, &link), 0);
	link_connected(link, now_us);
	return link;
}

static inline void say(struct link *link, const struct control_message *message)
{
	char *line = message_format(message);

	assert_non_null(line);
	link_line(link, line, now_us);
	free(line);
}

/* The next line of the link must be of this kind. */
static inline struct control_message heard(struct link *link, enum control_kind kind)
{
	struct control_message message;
	struct why why;
	char *line = link_take_line(link, now_us);

	assert_non_null(line);
	assert_int_equal(message_parse(line, &message, &why), 0);
	assert_int_equal(message.kind, kind);
	free(line);
	return message;
}

static const struct control_message hello = {.kind = CONTROL_HELLO, .version = WIRE_VERSION};

static inline struct control_message welcome(void)
{
	return (struct control_message){
		.kind = CONTROL_WELCOME,
		.payload = 8972,
		.silence_ms = SILENCE_US / 1000,
		.stall_ms = 60000,
		.channel_count = 2,
		.channels = {5, 9},
		.token = 0x1234,
		.group_token = GROUP_TOKEN,
		.window = 64,
		.op_slots = 4,
		.segments_ahead = 2,
		.group = "239.77.0.1:5555",
	};
}

static inline void assert_failed(const struct link *link, const char *code, const char *text)
{
	assert_int_equal(link_look(link)->state, LINK_FAILED);
	assert_string_equal(link_look(link)->error_code, code);
	if (strstr(link_look(link)->error, text) == NULL)
		fail_msg("'%s' does not say '%s'", link_look(link)->error, text);
	assert_true(link_deadline(link) == UINT64_MAX);
}

/* Time passes while nothing comes. */
static inline void pass(struct link *link, uint64_t us)
{
	for (uint64_t until_us = now_us + us; now_us < until_us;) {
		now_us = now_us + 100000 < until_us ? now_us + 100000 : until_us;
		link_tick(link, now_us);
	}
}

/* ---- knocking ---- */

static uint8_t scratch[WIRE_PAYLOAD_MAX];

/* All KNOCKs of this round; returns how many, their channels as bits 0 and 1. */
static inline uint32_t knocks(struct link *link, uint32_t bytes, uint32_t *channels)
{
	struct packet_out out = {.scratch = scratch};
	uint32_t count = 0;

	*channels = 0;
	for (; link_pull(link, now_us, &out); count++) {
		uint8_t data[WIRE_PAYLOAD_MAX];
		struct packet packet;

		assert_int_equal(out.bytes, bytes);
		assert_int_equal(out.dest, 1);
		packet_flatten(&out, data);
		assert_int_equal(packet_parse(data, out.bytes, false, &packet), WIRE_DROP_NONE);
		assert_int_equal(packet.kind, WIRE_KNOCK);
		assert_int_equal(packet.worker, 1);
		assert_true(packet.token == 0x1234);
		*channels |= packet.channel == 5 ? 1 : packet.channel == 9 ? 2 : 4;
	}
	return count;
}

static inline void answer(struct link *link, enum wire_kind kind, uint16_t channel, uint32_t bytes)
{
	struct packet packet = {
		.kind = (uint8_t)kind, .channel = channel, .worker = 1, .token = GROUP_TOKEN};

	link_packet(link, &packet, bytes, now_us);
}

/* A KNOCKED that asks for this number. */
static inline void answer_with(struct link *link, uint16_t channel, uint32_t bytes, uint64_t number)
{
	struct packet packet = {.kind = WIRE_KNOCKED,
	                        .channel = channel,
	                        .worker = 1,
	                        .token = GROUP_TOKEN,
	                        .number = number};

	link_packet(link, &packet, bytes, now_us);
}

/* HELLO, JOIN, WELCOME, which says what the link has asked for. */
static inline void let_in(struct link *link)
{
	struct control_message message = welcome();

	say(link, &hello);
	heard(link, CONTROL_JOIN);
	message.silence_ms = (uint32_t)(link_look(link)->config.silence_us / 1000);
	message.stall_ms = (uint32_t)(link_look(link)->config.stall_us / 1000);
	say(link, &message);
	assert_int_equal(link_look(link)->state, LINK_PROBING);
}

static inline struct link *probing(struct link_config config)
{
	struct link *link = opened(config);

	let_in(link);
	return link;
}

/* Datagrams pass, by the group as well; READY is to say this size. */
static inline void probed(struct link *link, uint32_t ready)
{
	answer(link, WIRE_PROBE, 0, 8972);
	answer(link, WIRE_KNOCKED, 5, 8972);
	answer(link, WIRE_KNOCKED, 9, 8972);
	link_ready(link, ready);
}

static inline struct link *link_running(struct link_config config)
{
	struct link *link = probing(config);

	probed(link, 1472);
	heard(link, CONTROL_READY);
	say(link, &(struct control_message){
			  .kind = CONTROL_START, .payload = 1472, .window = 64, .window_start = 8});
	assert_int_equal(link_look(link)->state, LINK_RUNNING);
	return link;
}

#endif /* TESTS_UNIT_TEST_LINK_H */
