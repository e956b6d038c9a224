/* SPDX-License-Identifier: BSD-3-Clause */
/* test_session.h - a session of two links, whose aggregators are what a test tells it */
#ifndef TESTS_UNIT_TEST_SESSION_H
#define TESTS_UNIT_TEST_SESSION_H

#include "tests/unit/test_link.h"

#include "client/worker/array.h"
#include "client/worker/session.h"

#define SESSION_TEST(name, open)                                                                   \
	TEST_ON(name, struct session *, session, open, session_close(session))
#define LINKS 2
#define STALL_US 60000000

static struct bitmap_pool *pool;
static int32_t numbers[16];
static uint32_t done;

static inline void count_done(struct allreduce *task)
{
	(void)task;
	done++;
}

static uint32_t link_count = LINKS;
static uint64_t bytes_max; /* 0: no limit */

static inline struct session *session_of(const char *job)
{
	static const char *const names[LINKS] = {"one:1", "two:2"};
	struct link_config links[LINKS];
	struct session_config config = {.links = links,
	                                .names = names,
	                                .link_count = link_count,
	                                .pool = pool,
	                                .bitmap = bitmap_best(),
	                                .bytes_max = bytes_max,
	                                .stay = {.begun = "job/before", .of = 9}};
	struct session *session;

	for (uint32_t i = 0; i < LINKS; i++) {
		links[i] = basic();
		links[i].multicast = false;
		links[i].place = i;
		links[i].job = job;
	}
	assert_int_equal(session_open(&config, now_us, &session), 0);
	for (uint32_t i = 0; i < link_count; i++)
		link_connected(session_link(session, i), now_us);
	return session;
}

static inline struct session *session_opened(void)
{
	return session_of(basic().job);
}

/* At the decider's door, with what it says of memberships before. */
static inline struct session *session_at_door(const struct control_message *stay)
{
	struct link_config links[1] = {basic()};
	struct session_config config = {.links = links,
	                                .names = (const char *[]){"one:1"},
	                                .link_count = 1,
	                                .pool = pool,
	                                .bitmap = bitmap_best(),
	                                .stay = *stay};
	struct session *session;

	links[0].world = 0;
	assert_int_equal(session_open(&config, now_us, &session), 0);
	link_connected(session_link(session, 0), now_us);
	return session;
}

static inline void tell(struct session *session, uint32_t index,
                        const struct control_message *message)
{
	char *line = message_format(message);

	assert_non_null(line);
	session_line(session, index, line, now_us);
	free(line);
}

static inline struct control_message told(struct session *session, uint32_t index,
                                          enum control_kind kind)
{
	return line_of(session_take_line(session, index, now_us), kind);
}

/* Datagrams of this size pass to aggregator `index`, which has one channel. */
static inline void probe(struct session *session, uint32_t index, uint32_t bytes)
{
	uint8_t data[WIRE_PAYLOAD_MAX] = {0};
	struct wire_header head = {.kind = WIRE_KNOCKED,
	                           .channel = (uint16_t)(5 + index),
	                           .worker = 1,
	                           .seal = GROUP_TOKEN};
	struct packet_out out = {.scratch = scratch};

	packet_begin(&out, &head);
	packet_flatten(&out, data);
	session_datagram(session, index, &(struct arrival){.data = data, .bytes = bytes}, now_us);
}

/* The thread's turn: what there is to send. */
static inline void pull(struct session *session)
{
	struct packet_out out = {.scratch = scratch};

	for (uint32_t i = 0; i < LINKS; i++)
		while (session_pull(session, i, now_us, &out))
			;
	session_tick(session, now_us);
}

static inline void welcomed(struct session *session, uint32_t index, uint32_t payload)
{
	struct control_message message = welcome();

	message.payload = payload;
	message.channel_count = 1;
	message.channels[0] = (uint16_t)(5 + index);
	*message.group = '\0';
	tell(session, index, &hello);
	told(session, index, CONTROL_JOIN);
	tell(session, index, &message);
}

/* Every aggregator has said START. */
static inline struct session *started(void)
{
	struct session *session = session_opened();

	for (uint32_t i = 0; i < LINKS; i++)
		welcomed(session, i, i == 0 ? 8972 : 1472);
	pull(session);
	probe(session, 0, 8972);
	pull(session);
	assert_null(session_take_line(session, 0, now_us)); /* the other may carry less */
	probe(session, 1, 1472);
	pull(session);
	for (uint32_t i = 0; i < LINKS; i++)
		assert_int_equal(told(session, i, CONTROL_READY).payload, 1472);
	for (uint32_t i = 0; i < LINKS; i++) {
		assert_int_equal(session_state(session), SESSION_JOINING);
		tell(session, i,
		     &(struct control_message){.kind = CONTROL_START,
		                               .payload = 1472,
		                               .window = 32,
		                               .window_start = 8});
	}
	return session;
}

static inline struct session *running(void)
{
	struct session *session = started();

	assert_int_equal(session_state(session), SESSION_RUNNING);
	return session;
}

static inline void submit(struct session *session, struct allreduce *task)
{
	*task = (struct allreduce){.send = numbers,
	                           .recv = numbers,
	                           .count = 16,
	                           .block_elems = 16,
	                           .dtype = DTYPE_I32,
	                           .reduction = REDUCE_SUM,
	                           .tag = 1,
	                           .access = &array_access,
	                           .done = count_done};
	done = 0;
	assert_int_equal(session_submit(session, task, now_us), WINNOW_OK);
}

static inline struct session *all_joined(void)
{
	struct session *session = session_opened();

	for (uint32_t i = 0; i < LINKS; i++) {
		tell(session, i, &hello);
		told(session, i, CONTROL_JOIN);
	}
	return session;
}

int main(void)
{
	int failed = 1;

	if (bitmap_pool_open(bitmap_best(), 1, &pool) == 0)
		failed = unit_run(NULL, NULL);
	bitmap_pool_close(pool);
	return failed;
}

#endif /* TESTS_UNIT_TEST_SESSION_H */
