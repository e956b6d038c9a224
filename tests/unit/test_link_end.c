// SPDX-License-Identifier: BSD-3-Clause
/* test_link_end.c - what ends a connection to an aggregator, and which begins again: times, dead paths, refusals */

#include "tests/unit/test_link.h"

TEST(heartbeat)
{
	struct link_config config = basic();
	struct link *link;

	config.join_us = UINT32_MAX;
	link = opened(config);
	now_us += SILENCE_US - 1; /* its HELLO takes long: there is nothing to say before JOIN */
	assert_null(link_take_line(link, now_us));
	say(link, &hello);
	heard(link, CONTROL_JOIN);
	link_tick(link, now_us);
	for (int i = 0; i < 100; i++) {
		assert_null(link_take_line(link, now_us));
		assert_true(link_deadline(link) == now_us + SILENCE_US / 4);
		now_us = link_deadline(link);
		link_tick(link, now_us);
		heard(link, CONTROL_PING);
		say(link, &(struct control_message){.kind = CONTROL_PING});
	}
	assert_int_equal(link->state, LINK_JOINING);
	for (int i = 0; i < 3; i++) {
		pass(link, SILENCE_US / 4);
		heard(link, CONTROL_PING);
	}
	pass(link, SILENCE_US / 4 - 1);
	assert_int_equal(link->state, LINK_JOINING);
	assert_true(link_deadline(link) == now_us + 1);
	link_tick(link, ++now_us);
	assert_failed(link, "gone", "silent for 4.0 s");
	assert_null(link_take_line(link, now_us));
	link_close(link);
}

/* What has failed stays as it is, also when it would be time to give up joining. */
TEST(failed_stays)
{
	struct link_config config = basic();
	struct link *link;

	config.join_us = SILENCE_US / 2;
	link = opened(config);
	say(link, &hello);
	link_gone(link, "connection closed");
	link_tick(link, now_us + config.join_us);
	assert_failed(link, "gone", "connection closed");
	link_close(link);
}

/* Until `until_us`, as a shell does it; channel 5 answers. How many KNOCKs of the job's size channel 9 was sent. */
static uint32_t wait_on(struct link *link, uint64_t since_us, uint64_t until_us)
{
	struct packet_out out = {.scratch = scratch};
	uint32_t count = 0;

	while (now_us < until_us) {
		char *line;

		say(link, &(struct control_message){.kind = CONTROL_PING});
		link_waits(link, since_us, now_us);
		link_tick(link, now_us);
		while (link_pull(link, now_us, &out)) {
			if (out.bytes == 1472 && out.head[4] == 9)
				count++;
			if (out.bytes == 1472 && out.head[4] == 5)
				answer(link, WIRE_KNOCKED, 5, 1472);
		}
		while (link_deadline(link) <= now_us &&
		       (line = link_take_line(link, now_us)) != NULL) {
			assert_non_null(strstr(line, "ping"));
			free(line);
		}
		assert_true(link_deadline(link) > now_us);
		now_us = link_deadline(link) < until_us ? link_deadline(link) : until_us;
	}
	return count;
}

/* While the job runs, and waits: KNOCKs. Without an answer the aggregator is told, and is to end the job. */
LINK_TEST(path_dead, link_running(basic()))
{
	uint64_t since_us = now_us;
	struct control_message message;
	uint32_t channels;

	assert_int_equal(wait_on(link, UINT64_MAX, since_us + 10 * SILENCE_US), 0);
	since_us = now_us;
	assert_int_equal(wait_on(link, since_us, since_us + SILENCE_US / 4), 0);
	assert_int_equal(wait_on(link, since_us, since_us + SILENCE_US), 48);
	link_waits(link, since_us, now_us);
	message = heard(link, CONTROL_PATH);
	assert_int_equal(message.channel, 9);
	assert_int_equal(message.payload, 1472);
	assert_int_equal(message.passing, 0);
	assert_int_equal(message.sent, 48);
	assert_int_equal(knocks(link, 1472, &channels), 0);
	assert_int_equal(wait_on(link, since_us, since_us + SILENCE_US + SILENCE_US / 2 - 1), 0);
	assert_int_equal(link->state, LINK_RUNNING);
	link_tick(link, ++now_us);
	assert_failed(link, "path", "no datagrams come back from its data port");
}

/* An aggregator that is alive, but never lets us in; and one that never answers at all. */
TEST(join_timeout)
{
	const struct link_config config = basic();
	struct link *link = probing(config);

	while (now_us < START_US + JOIN_US - SILENCE_US / 2) {
		now_us += SILENCE_US / 2;
		say(link, &(struct control_message){.kind = CONTROL_PING});
		link_tick(link, now_us);
	}
	now_us = START_US + JOIN_US - 1;
	link_tick(link, now_us);
	assert_int_equal(link->state, LINK_PROBING);
	link_tick(link, ++now_us);
	assert_failed(link, "timeout",
	              "could not join within 30.0 s: no datagrams come back from its data port");
	link_close(link);
	now_us = START_US;
	assert_int_equal(link_open(&config, now_us, &link), 0); /* never connected: no silence */
	assert_true(link_deadline(link) == START_US + JOIN_US);
	link_tick(link, START_US + JOIN_US - 1);
	assert_int_equal(link->state, LINK_JOINING);
	link_tick(link, START_US + JOIN_US);
	assert_failed(link, "timeout", "could not join within 30.0 s: it has not answered");
	link_close(link);
}

/* The aggregator says that it has no room, and closes. What it says is the reason when no other connection is made, or that goes the same way. */
TEST(no_room)
{
	struct control_message full = {
		.kind = CONTROL_FAILED, .code = "connections", .text = "4096 are open"};
	struct link *link;

	for (uint32_t again = 0; again < 2; again++) {
		link = opened(basic());
		say(link, &full);
		assert_int_equal(link->state, LINK_JOINING);
		if (again) {
			assert_true(link_again(link));
			link_connected(link, now_us);
			say(link, &hello);
			heard(link, CONTROL_JOIN);
			say(link, &full);
			assert_false(link_again(link));
		}
		link_gone(link, "connection closed");
		assert_failed(link, "connections", "4096 are open");
		link_close(link);
	}
	/* Let in after all, and then lost, it is lost as any other. */
	link = opened(basic());
	say(link, &full);
	assert_true(link_again(link));
	link_connected(link, now_us);
	let_in(link);
	link_gone(link, "connection closed");
	assert_failed(link, "gone", "connection closed");
	assert_true(link_lost(link));
	link_close(link);
	/* Nor does it come when the connection stays. */
	link = opened(basic());
	say(link, &full);
	pass(link, SILENCE_US);
	assert_failed(link, "gone", "silent");
	link_close(link);
	/* Whoever is let in is not asked twice. */
	link = opened(basic());
	let_in(link);
	assert_false(link_again(link));
	link_close(link);
}

/* Its address may be another: it shows on each channel that it hears what is sent there. To be asked for that is no answer. */
LINK_TEST(moved, link_running(basic()))
{
	struct packet_out out = {.scratch = scratch};
	uint64_t since_us = now_us, number;

	now_us += SILENCE_US / 4;
	for (int round = 0; round < 6; round++) {
		link_waits(link, since_us, now_us);
		while (link_pull(link, now_us, &out)) {
			memcpy(&number, out.head + 24, 8);
			assert_true(number == (out.head[4] != 9 || round < 3 ? 0 : 0x99));
		}
		free(link_take_line(link, now_us)); /* a ping */
		if (round == 2)
			answer_with(link, 9, 1472, 0x99);
		assert_true(link_checks(link));
		now_us += SILENCE_US / 64;
	}
}

/* Before the others have come, a connection may be made once more; the second end is the end. */
LINK_TEST(again, opened(basic()))
{
	struct control_message join;

	say(link, &hello);
	assert_true(link_again(link)); /* with the JOIN not yet sent */
	assert_int_equal(link->state, LINK_JOINING);
	assert_null(link_take_line(link, now_us + SILENCE_US));
	assert_true(link_deadline(link) == START_US + JOIN_US); /* nobody there is no silence */
	now_us += 200000;
	link_connected(link, now_us);
	say(link, &hello);
	join = heard(link, CONTROL_JOIN);
	assert_int_equal(join.rank, 1);
	assert_false(link_again(link));
	link_gone(link, "connection closed");
	assert_failed(link, "gone", "connection closed");
	assert_false(link_again(link));
}

TEST(abort)
{
	const struct link_config config = basic();
	struct link *link = opened(config);
	struct control_message message;

	link_gone(link, "lost");
	link_abort(link, "stalled", "rank 3 is late");
	message = heard(link, CONTROL_ABORT);
	assert_string_equal(message.code, "stalled");
	assert_string_equal(message.text, "rank 3 is late");
	assert_null(link_take_line(link, now_us + SILENCE_US));
	assert_int_equal(link->config.world, 4);
	link_close(link);
	/* One that is there is told at once, though nothing comes from it. */
	link = opened(config);
	assert_true(link_deadline(link) > now_us);
	link_abort(link, "stalled", "rank 3 is late");
	assert_true(link_deadline_lines(link) == 0);
	heard(link, CONTROL_ABORT);
	assert_true(link_deadline_lines(link) > now_us);
	link_close(link);
}

/* ---- after the end of its membership: does its connection stand, is the aggregator lost? ---- */

/* FAILED about a loss leaves the connection; after that its end is no loss of the aggregator. */
TEST(stands)
{
	static const struct {
		const char *code;
		bool stands, lost, over;
	} cases[] = {{"lost", true, false, false},
	             {"gone", true, false, false},
	             {"shutdown", false, true, false},
	             {"aborted", false, false, true}};
	struct link_config config = basic();
	struct link *link = link_running(config);

	assert_true(link_stands(link) && !link_lost(link));
	link_gone(link, "connection reset");
	assert_true(!link_stands(link) && link_lost(link) && !link_ended(link));
	link_close(link);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct control_message failed = {
			.kind = CONTROL_FAILED, .rank = 2, .text = "is no more"};

		strcpy(failed.code, cases[i].code);
		link = link_running(config);
		say(link, &failed);
		assert_int_equal(link_stands(link), cases[i].stands);
		link_gone(link, "connection closed");
		assert_false(link_stands(link));
		assert_int_equal(link_lost(link), cases[i].lost);
		assert_int_equal(link_ended(link), cases[i].over);
		link_close(link);
	}
	/* Silence is its end, unless we stood still ourselves. */
	link = link_running(config);
	say(link, &(struct control_message){.kind = CONTROL_FAILED, .rank = 2, .code = "lost"});
	assert_string_equal(link->error, "it ended the job without a reason, with code 'lost'");
	now_us += 3600000000;
	link_tick(link, now_us);
	assert_true(link_stands(link));
	pass(link, SILENCE_US);
	assert_false(link_stands(link));
	link_close(link);
}

static const struct control_message next = {
	.kind = CONTROL_NEXT, .next = "job/next.0123456789abcdef", .next_world = 3};

/* How to go on is heard at the door alone: another word of it ends the session. */
LINK_TEST(next_unasked, link_running(basic()))
{
	say(link, &next);
	assert_failed(link, "protocol", "out of turn");
	assert_null(link_next(link));
}

/* A member's, by the connection that it has. */
static struct link *link_at_door(void)
{
	struct link_config config = basic();
	struct link *before = link_running(config), *link;

	config.world = 0;
	config.from = before;
	assert_int_equal(link_open(&config, now_us, &link), 0);
	link_close(before);
	link_stay(link, &(struct control_message){.job = "job"});
	heard(link, CONTROL_STAY);
	return link;
}

/* Its connection ends, or is silent: it makes another one, and says the same by that. */
LINK_TEST(door_again, link_at_door())
{
	pass(link, SILENCE_US);
	assert_int_equal(link->state, LINK_JOINING);
	assert_false(link_stands(link));
	assert_true(link_again(link));
	link_connected(link, now_us);
	assert_true(link_stands(link));
	say(link, &hello);
	assert_int_equal(heard(link, CONTROL_JOIN).world, 0);
	assert_string_equal(heard(link, CONTROL_STAY).job, "job");
}
