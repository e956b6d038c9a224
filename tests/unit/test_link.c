// SPDX-License-Identifier: BSD-3-Clause
/* test_link.c - joining one aggregator: all the way, refused, out of turn, silent, too slow */

#include "tests/unit/test_link.h"

static void test_join(void **state)
{
	struct link_config config = basic();
	struct control_message message = welcome(), join;
	struct link *link;
	uint32_t channels;

	(void)state;
	config.after = 77;
	link = opened(&config);
	assert_null(link_take_line(link, now_us));
	say(link, &hello);
	join = heard(link, CONTROL_JOIN);
	assert_string_equal(join.job, "job");
	assert_string_equal(join.host, "host");
	assert_true(join.rank == 1 && join.world == 4 && join.payload == 8972);
	assert_true(join.version == WIRE_VERSION && join.rcvbuf == 1 << 20);
	assert_true(join.silence_ms == 4000 && join.stall_ms == 60000 && join.after == 77);
	assert_memory_equal(join.nonce, config.nonce, sizeof(join.nonce));
	assert_null(link_take_line(link, now_us));
	assert_int_equal(link_state(link), LINK_JOINING);
	say(link, &message);
	assert_int_equal(link_welcome(link)->op_slots, 4);
	assert_true(link_deadline(link) <= now_us);
	assert_int_equal(knocks(link, 8972, &channels), 2);
	assert_int_equal(channels, 3);
	answer(link, WIRE_KNOCKED, 5, 8972);
	answer(link, WIRE_PROBE, 0, 8972);
	assert_int_equal(link_state(link), LINK_PROBING);
	answer(link, WIRE_KNOCKED, 9, 8972);
	assert_int_equal(link_state(link), LINK_PROBED);
	assert_int_equal(link_size(link), 8972);
	link_ready(link, 1472);
	assert_true(link_deadline(link) == 0); /* READY is to go out now */
	assert_int_equal(link_state(link), LINK_WAITING);
	message = heard(link, CONTROL_READY);
	assert_true(message.payload == 1472 && message.multicast);
	say(link, &(struct control_message){.kind = CONTROL_START,
	                                    .payload = 1472,
	                                    .window = 32,
	                                    .window_start = 8,
	                                    .multicast = true});
	assert_int_equal(link_state(link), LINK_RUNNING);
	assert_int_equal(link_start(link)->window_start, 8);
	assert_true(link_start(link)->multicast);
	assert_int_equal(link_left_rank(link), 4);
	say(link, &(struct control_message){.kind = CONTROL_LEFT, .rank = 2, .text = "gone home"});
	assert_int_equal(link_left_rank(link), 2);
	assert_string_equal(link_left_text(link), "gone home");
	/* Who is late holds until the next heartbeat, or until it is another operation that waits. */
	assert_string_equal(link_late(link), "");
	link_doing(link, 2, 7);
	say(link, &(struct control_message){.kind = CONTROL_PING, .text = "rank 3 is late"});
	assert_string_equal(link_late(link), "rank 3 is late");
	link_doing(link, 1, 7);
	assert_string_equal(link_late(link), "rank 3 is late");
	link_doing(link, 1, 8);
	assert_string_equal(link_late(link), "");
	say(link, &(struct control_message){.kind = CONTROL_PING, .text = "rank 3 is late"});
	link_doing(link, 0, 8);
	assert_string_equal(link_late(link), "");
	say(link, &(struct control_message){.kind = CONTROL_PING, .text = "rank 3 is late"});
	say(link, &(struct control_message){.kind = CONTROL_PING});
	assert_string_equal(link_late(link), "");
	link_leave(link);
	heard(link, CONTROL_LEAVE);
	assert_null(link_take_line(link, now_us));
	link_close(link);
}

/* Only what the aggregator may say at this point; the first error stays. */
static void test_out_of_turn(void **state)
{
	static const enum control_kind early[] = {CONTROL_START, CONTROL_LEFT,  CONTROL_READY,
	                                          CONTROL_JOIN,  CONTROL_LEAVE, CONTROL_ABORT};
	const struct link_config config = basic();

	(void)state;
	for (size_t i = 0; i < sizeof(early) / sizeof(early[0]); i++) {
		struct control_message message = welcome();
		struct link *link = opened(&config);

		message.kind = early[i];
		message.window_start = 1;
		message.silence_ms = message.stall_ms = 1000;
		strcpy(message.job, "job");
		say(link, &message);
		assert_failed(link, "protocol", "out of turn");
		link_gone(link, "connection reset");
		assert_failed(link, "protocol", "out of turn");
		link_close(link);
	}
}

static void test_garbage(void **state)
{
	static const char *const lines[] = {"", "HTTP/1.1 400 Bad Request", "{}",
	                                    "{\"type\":\"hello\"}", "{\"type\":\"\033[2J\"}"};
	const struct link_config config = basic();

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct link *link = opened(&config);

		link_line(link, lines[i], now_us);
		assert_failed(link, "protocol", "does not speak Winnow's protocol");
		assert_null(strchr(link_error(link), '\033'));
		say(link, &hello);
		assert_null(link_take_line(link, now_us));
		link_close(link);
	}
}

static void test_refused(void **state)
{
	const struct link_config config = basic();
	struct control_message refusal = {.kind = CONTROL_FAILED, .rank = 2, .code = "world"};
	struct link *link = opened(&config);

	(void)state;
	strcpy(refusal.text, "job 'job' has 8 workers");
	say(link, &hello);
	say(link, &refusal);
	assert_failed(link, "world", "job 'job' has 8 workers");
	link_close(link);
	link = opened(&config);
	refusal.rank = 99;
	say(link, &refusal);
	link_close(link);
	link = opened(&config);
	link_gone(link, "connection reset");
	assert_failed(link, "gone", "connection reset");
	link_close(link);
}

static void test_hello(void **state)
{
	struct link_config config = basic();
	struct control_message other = hello;
	struct link *link = opened(&config);
	struct proof_key key;

	(void)state;
	other.version = 3;
	say(link, &other);
	assert_failed(link, "version", "version 3");
	link_close(link);
	link = opened(&config);
	other = hello;
	other.key = true;
	say(link, &other);
	assert_failed(link, "key", "WINNOW_KEY_FILE");
	link_close(link);
	assert_int_equal(proof_key_from_text("12345678", &key), 0);
	config.key = &key;
	link = opened(&config);
	say(link, &hello);
	assert_failed(link, "key", "--insecure-no-key");
	link_close(link);
}

/* Both sides prove the key, over both nonces. */
static void test_key(void **state)
{
	struct link_config config = basic();
	static uint8_t server_nonce[CONTROL_NONCE_BYTES];
	struct proof_statement statement = {server_nonce, config.nonce, "job", 1, 4};
	struct control_message first = hello, message = welcome(), join;
	uint8_t want[PROOF_BYTES];
	struct proof_key key;
	struct link *link;

	(void)state;
	assert_int_equal(proof_key_from_text("12345678", &key), 0);
	config.key = &key;
	first.key = true;
	memset(server_nonce, 0x5a, sizeof(server_nonce));
	memcpy(first.nonce, server_nonce, sizeof(first.nonce));
	for (int good = 0; good < 2; good++) {
		link = opened(&config);
		say(link, &first);
		join = heard(link, CONTROL_JOIN);
		proof_make(&key, PROOF_JOIN, &statement, want);
		assert_memory_equal(join.proof, want, sizeof(want));
		proof_make(&key, PROOF_WELCOME, &statement, message.proof);
		message.proof[0] ^= !good;
		say(link, &message);
		if (good)
			assert_int_equal(link_state(link), LINK_PROBING);
		else
			assert_failed(link, "key", "does not know the key of job 'job'");
		link_close(link);
	}
}

/* Once there are keys each line has a proof: one without, of somebody on the path, is not the aggregator's. */
static void test_proven_lines(void **state)
{
	static const struct control_message ends = {
		.kind = CONTROL_FAILED, .code = "aborted", .text = "forged"};
	struct link_config config = basic();
	static uint8_t server_nonce[CONTROL_NONCE_BYTES];
	struct proof_statement statement = {server_nonce, config.nonce, "job", 1, 4};
	struct control_message first = hello, message = welcome();
	struct proof_key key;
	struct link *link;
	char *line;

	(void)state;
	assert_int_equal(proof_key_from_text("12345678", &key), 0);
	config.key = &key;
	first.key = true;
	proof_make(&key, PROOF_WELCOME, &statement, message.proof);
	link = opened(&config);
	say(link, &first);
	heard(link, CONTROL_JOIN);
	link_stay(link, &(struct control_message){.of = 4});
	heard(link, CONTROL_STAY);
	say(link, &message);
	assert_int_equal(link_state(link), LINK_PROBING);
	line = link_take_line(link, now_us); /* without a proof it was not heard */
	assert_non_null(line);
	assert_int_equal(strncmp(line + 48, " {\"type\":\"stay\"", 15), 0);
	free(line);
	now_us += SILENCE_US / 4;
	line = link_take_line(link, now_us);
	assert_non_null(line);
	assert_int_equal(strspn(line, "0123456789abcdef"), 48);
	assert_int_equal(strncmp(line + 48, " {\"type\":\"ping\"", 15), 0);
	free(line);
	now_us += SILENCE_US / 2;
	say(link, &ends);
	assert_int_equal(link_state(link), LINK_PROBING);
	now_us += SILENCE_US / 4; /* it was no sign of life */
	link_tick(link, now_us);
	assert_failed(link, "gone", "silent for 4.0 s: lines come, but with wrong proofs");
	link_close(link);
}

static void test_senseless(void **state)
{
	struct link_config config = basic();
	struct control_message wrong[5], start = {.kind = CONTROL_START, .window_start = 1};
	struct link *link;

	(void)state;
	for (int i = 0; i < 5; i++)
		wrong[i] = welcome();
	wrong[0].payload = 8973;
	wrong[1].payload = WIRE_PAYLOAD_MIN - 1;
	wrong[2].window = 63;
	wrong[3].payload = 0;
	wrong[4].window = 24;
	for (int i = 0; i < 5; i++) {
		link = opened(&config);
		say(link, &hello);
		say(link, &wrong[i]);
		assert_failed(link, "protocol", "WELCOME that makes no sense");
		link_close(link);
	}
	for (int i = 0; i < 4; i++) {
		link = probing(&config);
		answer(link, WIRE_PROBE, 0, 8972);
		answer(link, WIRE_KNOCKED, 5, 8972);
		answer(link, WIRE_KNOCKED, 9, 8972);
		link_ready(link, 1472);
		start.payload = i == 0 ? 1473 : i == 1 ? WIRE_PAYLOAD_MIN - 1 : 1472;
		start.window = i == 2 ? 48 : 128; /* it may be larger than WELCOME's */
		say(link, &start);
		if (i < 3)
			assert_failed(link, "protocol", "START that makes no sense");
		else
			assert_int_equal(link_state(link), LINK_RUNNING);
		link_close(link);
	}
}

/* ---- time ---- */

/* The smallest payload that the protocol knows is enough. */
static void test_least(void **state)
{
	const struct link_config config = basic();
	struct control_message message = welcome();
	struct link *link = opened(&config);

	(void)state;
	message.payload = WIRE_PAYLOAD_MIN;
	*message.group = '\0';
	say(link, &hello);
	say(link, &message);
	answer(link, WIRE_KNOCKED, 5, WIRE_PAYLOAD_MIN);
	answer(link, WIRE_KNOCKED, 9, WIRE_PAYLOAD_MIN);
	assert_int_equal(link_state(link), LINK_PROBED); /* no group: no PROBE to wait for */
	link_ready(link, WIRE_PAYLOAD_MIN);
	message.kind = CONTROL_START;
	message.window_start = 1;
	say(link, &message);
	assert_int_equal(link_state(link), LINK_RUNNING);
	link_close(link);
}

static void test_heartbeat(void **state)
{
	struct link_config config = basic();
	struct link *link;

	(void)state;
	config.join_us = UINT32_MAX;
	link = opened(&config);
	now_us += SILENCE_US - 1; /* its HELLO takes long: there is nothing to say before JOIN */
	assert_null(link_take_line(link, now_us));
	say(link, &hello);
	heard(link, CONTROL_JOIN);
	for (int i = 0; i < 100; i++) {
		assert_null(link_take_line(link, now_us));
		assert_true(link_deadline(link) == now_us + SILENCE_US / 4);
		now_us = link_deadline(link);
		link_tick(link, now_us);
		heard(link, CONTROL_PING);
		say(link, &(struct control_message){.kind = CONTROL_PING});
	}
	assert_int_equal(link_state(link), LINK_JOINING);
	for (int i = 0; i < 3; i++) {
		now_us += SILENCE_US / 4;
		heard(link, CONTROL_PING);
	}
	now_us += SILENCE_US / 4 - 1;
	link_tick(link, now_us);
	assert_int_equal(link_state(link), LINK_JOINING);
	assert_true(link_deadline(link) == now_us + 1);
	link_tick(link, ++now_us);
	assert_failed(link, "gone", "silent for 4.0 s");
	assert_null(link_take_line(link, now_us));
	link_close(link);
}

/* From WELCOME on the job's times hold, not ours: pings come as often as the most impatient peer wants. */
static void test_effective_times(void **state)
{
	const struct link_config config = basic();
	struct link *link = opened(&config);
	struct control_message message = welcome();

	(void)state;
	say(link, &hello);
	heard(link, CONTROL_JOIN);
	message.silence_ms = 400;
	message.stall_ms = 2000;
	say(link, &message);
	now_us += 99999;
	assert_null(link_take_line(link, now_us));
	now_us++;
	heard(link, CONTROL_PING);
	now_us += 100000;
	heard(link, CONTROL_PING);
	link_tick(link, now_us + 199999);
	assert_int_equal(link_state(link), LINK_PROBING);
	link_tick(link, now_us + 200000);
	assert_failed(link, "gone", "silent for 0.4 s");
	link_close(link);
}

/* What has failed stays as it is, also when it would be time to give up joining. */
static void test_failed_stays(void **state)
{
	struct link_config config = basic();
	struct link *link;

	(void)state;
	config.join_us = SILENCE_US / 2;
	link = opened(&config);
	say(link, &hello);
	link_gone(link, "connection closed");
	link_tick(link, now_us + config.join_us);
	assert_failed(link, "gone", "connection closed");
	link_close(link);
}

static struct link *running(const struct link_config *config)
{
	struct link *link = probing(config);

	answer(link, WIRE_PROBE, 0, 8972);
	answer(link, WIRE_KNOCKED, 5, 8972);
	answer(link, WIRE_KNOCKED, 9, 8972);
	link_ready(link, 1472);
	heard(link, CONTROL_READY);
	say(link, &(struct control_message){
			  .kind = CONTROL_START, .payload = 1472, .window = 64, .window_start = 8});
	assert_int_equal(link_state(link), LINK_RUNNING);
	return link;
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
			assert_true(strstr(line, "ping") != NULL || strstr(line, "move") != NULL);
			free(line);
		}
		assert_true(link_deadline(link) > now_us);
		now_us = link_deadline(link) < until_us ? link_deadline(link) : until_us;
	}
	return count;
}

/* While the job runs, and waits: KNOCKs. Without an answer the aggregator is told, and is to end the job. */
/* FAILED names a worker that is lost, which cannot continue, or the one that has told of another's loss. */
static void test_who_is_lost(void **state)
{
	static const struct {
		bool aborts, names_us, lost;
	} cases[] = {{false, false, true}, {false, true, false}, {true, true, true}};
	struct link_config config = basic();

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct link *link = running(&config);
		struct control_message failed = {
			.kind = CONTROL_FAILED,
			.rank = config.rank + !cases[i].names_us,
			.code = "lost",
			.text = "is lost",
		};

		if (cases[i].aborts)
			link_abort(link, "lost", "aggregator b: rank 1 is lost");
		say(link, &failed);
		assert_true(link_waits_for_us(link));
		assert_false(link_lost(link));
		link_gone(link, "connection reset");
		assert_false(link_waits_for_us(link));
		assert_int_equal(link_lost(link), cases[i].lost);
		link_close(link);
	}
}

static void test_path_dead(void **state)
{
	const struct link_config config = basic();
	struct link *link = running(&config);
	uint64_t since_us = now_us;
	struct control_message message;
	uint32_t channels;

	(void)state;
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
	assert_int_equal(link_state(link), LINK_RUNNING);
	link_tick(link, ++now_us);
	assert_failed(link, "path", "no datagrams come back from its data port");
	link_close(link);
}

/* The job ends for that, and the connection stays, to hear how the others continue: nothing is due all the time. */
static void test_path_dead_and_told(void **state)
{
	const struct link_config config = basic();
	struct link *link = running(&config);
	uint64_t since_us = now_us;

	(void)state;
	assert_int_equal(wait_on(link, since_us, since_us + SILENCE_US), 48);
	link_waits(link, since_us, now_us);
	heard(link, CONTROL_PATH);
	say(link, &(struct control_message){.kind = CONTROL_FAILED,
	                                    .code = "path",
	                                    .rank = 3,
	                                    .text = "rank 3 sends datagrams that do not arrive"});
	assert_int_equal(link_state(link), LINK_FAILED);
	assert_true(link_waits_for_us(link));
	now_us = since_us + SILENCE_US + SILENCE_US / 2; /* when the verdict was due */
	assert_true(link_deadline(link) <= now_us);
	free(link_take_line(link, now_us));
	assert_true(link_deadline(link) == now_us + SILENCE_US / 4);
	now_us += 2 * SILENCE_US;
	link_tick(link, now_us);
	assert_false(link_waits_for_us(link));
	assert_true(link_deadline(link) == UINT64_MAX);
	link_close(link);
}

/* Where operations may stall for less than the silence time, the path is looked at before they do. */
static void test_path_time(void **state)
{
	struct link_config config = basic();
	struct link *link;

	(void)state;
	config.stall_us = SILENCE_US / 2;
	link = running(&config);
	link_waits(link, now_us, now_us);
	assert_true(link_deadline(link) == now_us + SILENCE_US / 2 / 4 * 3 / 64 * 16);
	link_close(link);
}

/* A path without answers: may our address be another? KNOCKs carry the number that is told then. */
static void test_move(void **state)
{
	const struct link_config config = basic();
	struct link *link = running(&config);
	struct control_message move = {.kind = CONTROL_MOVE, .number = 0x1122334455667788};
	struct packet_out out = {.scratch = scratch};
	uint64_t since_us = now_us, mask;
	uint32_t asked = 0;

	(void)state;
	now_us += SILENCE_US / 4;
	for (int round = 0; round < 20; round++) {
		char *line;

		link_waits(link, since_us, now_us);
		while ((line = link_take_line(link, now_us)) != NULL) {
			asked += strstr(line, "move") != NULL;
			free(line);
		}
		while (link_pull(link, now_us, &out)) {
			memcpy(&mask, out.head + 24, 8);
			assert_true(mask == (round < 10 ? 0 : move.number));
		}
		assert_int_equal(asked, round < 4 ? 0 : round < 14 ? 1 : 2);
		if (round == 9)
			say(link, &move);
		now_us += SILENCE_US / 64;
	}
	link_close(link);
}

/* An aggregator that is alive, but never lets us in; and one that never answers at all. */
static void test_join_timeout(void **state)
{
	const struct link_config config = basic();
	struct link *link = probing(&config);

	(void)state;
	while (now_us < START_US + JOIN_US - SILENCE_US / 2) {
		now_us += SILENCE_US / 2;
		say(link, &(struct control_message){.kind = CONTROL_PING});
		link_tick(link, now_us);
	}
	now_us = START_US + JOIN_US - 1;
	link_tick(link, now_us);
	assert_int_equal(link_state(link), LINK_PROBING);
	link_tick(link, ++now_us);
	assert_failed(link, "timeout",
	              "could not join within 30.0 s: no datagrams come back from its data port");
	link_close(link);
	now_us = START_US;
	assert_int_equal(link_open(&config, now_us, &link), 0); /* never connected: no silence */
	assert_true(link_deadline(link) == START_US + JOIN_US);
	link_tick(link, START_US + JOIN_US - 1);
	assert_int_equal(link_state(link), LINK_JOINING);
	link_tick(link, START_US + JOIN_US);
	assert_failed(link, "timeout", "could not join within 30.0 s: it has not answered");
	link_close(link);
}

static void test_abort(void **state)
{
	const struct link_config config = basic();
	struct link *link = opened(&config);
	struct control_message message;

	(void)state;
	link_gone(link, "lost");
	link_abort(link, "stalled", "rank 3 is late");
	message = heard(link, CONTROL_ABORT);
	assert_string_equal(message.code, "stalled");
	assert_string_equal(message.text, "rank 3 is late");
	assert_null(link_take_line(link, now_us + SILENCE_US));
	assert_int_equal(link_worker(link)->world, 4);
	link_close(link);
}

/* ---- no room ---- */

/* Before the others have come, a connection may be made once more; the second end is the end. */
static void test_again(void **state)
{
	const struct link_config config = basic();
	struct link *link = opened(&config);
	struct control_message join, other = hello;

	(void)state;
	say(link, &hello);
	assert_true(link_again(link)); /* with the JOIN not yet sent */
	assert_int_equal(link_state(link), LINK_JOINING);
	assert_null(link_take_line(link, now_us + SILENCE_US));
	assert_true(link_deadline(link) == START_US + JOIN_US); /* nobody there is no silence */
	now_us += 200000;
	link_connected(link, now_us);
	other.nonce[0] = 77;
	say(link, &other);
	join = heard(link, CONTROL_JOIN);
	assert_int_equal(join.rank, 1);
	assert_false(link_again(link));
	link_gone(link, "connection closed");
	assert_failed(link, "gone", "connection closed");
	assert_false(link_again(link));
	link_close(link);
}

/* One that is being restarted: what drains is still the old one, and others may end while they start. */
static void test_early(void **state)
{
	struct control_message old = hello;
	struct link_config config = basic();
	struct link *link = opened(&config);

	(void)state;
	old.drains = true;
	say(link, &old);
	assert_false(link_early(link)); /* nobody has said that it will be restarted */
	heard(link, CONTROL_JOIN);
	link_close(link);
	config.restarts = true;
	link = opened(&config);
	for (uint32_t i = 0; i < 5; i++) {
		say(link, &old);
		assert_true(link_early(link));
		assert_null(link_take_line(link, now_us));
		assert_true(link_again(link));
		assert_false(link_early(link));
		link_connected(link, now_us);
		assert_true(link_again(link));
		link_connected(link, now_us);
	}
	say(link, &hello);
	assert_false(link_early(link));
	heard(link, CONTROL_JOIN);
	assert_true(link_again(link));
	now_us = START_US + JOIN_US;
	link_tick(link, now_us);
	assert_failed(link, "timeout", "could not join");
	assert_false(link_again(link));
	link_close(link);
}

/* The aggregator says that it has no room, and closes. What it says is the reason when no other connection is made, or that goes the same way. */
static void test_no_room(void **state)
{
	const struct link_config config = basic();
	struct control_message full = {
		.kind = CONTROL_FAILED, .code = "connections", .text = "4096 are open"};
	struct link *link;

	(void)state;
	for (uint32_t again = 0; again < 2; again++) {
		link = opened(&config);
		say(link, &full);
		assert_int_equal(link_state(link), LINK_JOINING);
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
	/* Nor does it come when the connection stays. */
	link = opened(&config);
	say(link, &full);
	now_us += SILENCE_US;
	link_tick(link, now_us);
	assert_failed(link, "gone", "silent");
	link_close(link);
	/* Whoever is let in is not asked twice. */
	link = opened(&config);
	say(link, &hello);
	heard(link, CONTROL_JOIN);
	{
		struct control_message message = welcome();

		say(link, &message);
	}
	assert_false(link_again(link));
	link_close(link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join),         cmocka_unit_test(test_out_of_turn),
		cmocka_unit_test(test_garbage),      cmocka_unit_test(test_refused),
		cmocka_unit_test(test_hello),        cmocka_unit_test(test_key),
		cmocka_unit_test(test_proven_lines), cmocka_unit_test(test_senseless),
		cmocka_unit_test(test_heartbeat),    cmocka_unit_test(test_join_timeout),
		cmocka_unit_test(test_abort),        cmocka_unit_test(test_effective_times),
		cmocka_unit_test(test_failed_stays), cmocka_unit_test(test_who_is_lost),
		cmocka_unit_test(test_path_dead),    cmocka_unit_test(test_move),
		cmocka_unit_test(test_path_time),    cmocka_unit_test(test_path_dead_and_told),
		cmocka_unit_test(test_least),        cmocka_unit_test(test_again),
		cmocka_unit_test(test_early),        cmocka_unit_test(test_no_room),
	};

	return proof_init() != 0 || cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
