// SPDX-License-Identifier: BSD-3-Clause
/* test_link.c - joining one aggregator: all the way, refused, out of turn, with whatever it sends */

#include "tests/unit/test_link.h"

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
		assert_null(strchr(link_look(link)->error, '\033'));
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
	other.version = WIRE_VERSION - 1;
	say(link, &other);
	assert_failed(link, "version", "version 2 of the protocol, we speak 3");
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
			assert_int_equal(link_look(link)->state, LINK_PROBING);
		else
			assert_failed(link, "key", "does not know the key of job 'job'");
		link_close(link);
	}
}

/* A member at the door by the connection of before says STAY, and again when WELCOME comes: without that proof it was not heard. */
static void stays_twice(const struct link *before, const struct control_message *welcome)
{
	struct link_config config = link_look(before)->config;
	struct link *link;

	config.world = 0;
	config.from = before;
	assert_int_equal(link_open(&config, now_us, &link), 0);
	link_stay(link, &(struct control_message){.job = "job", .of = 4});
	for (int i = 0; i < 2; i++) {
		char *line = link_take_line(link, now_us);

		assert_non_null(line);
		assert_int_equal(strncmp(line + 48, " {\"type\":\"stay\"", 15), 0);
		free(line);
		say(link, welcome);
		assert_int_equal(link_look(link)->state, LINK_JOINING);
	}
	link_close(link);
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
	say(link, &(struct control_message){.kind = CONTROL_PING});
	say(link, &first);
	stays_twice(link, &message);
	say(link, &message);
	assert_int_equal(link_look(link)->state, LINK_PROBING);
	pass(link, SILENCE_US / 4);
	line = link_take_line(link, now_us);
	assert_non_null(line);
	assert_int_equal(strspn(line, "0123456789abcdef"), 48);
	assert_int_equal(strncmp(line + 48, " {\"type\":\"ping\"", 15), 0);
	free(line);
	pass(link, SILENCE_US / 2);
	say(link, &ends);
	assert_int_equal(link_look(link)->state, LINK_PROBING);
	pass(link, SILENCE_US / 4); /* it was no sign of life */
	assert_failed(link, "gone", "silent for 4.0 s: lines come, but with wrong proofs");
	link_close(link);
}

/* Before WELCOME nobody on the path can send a worker elsewhere, nor have it ask for that. */
static void test_unproven(void **state)
{
	static const struct control_message next = {
		.kind = CONTROL_NEXT, .next = "job/next.0123456789abcdef", .next_world = 1};
	static const struct {
		const char *code, *then;
		bool lost;
	} ends[] = {{"lost", "gone", true}, {"running", "running", false}};
	struct link_config config = basic();
	struct control_message first = hello;
	struct proof_key key;

	(void)state;
	assert_int_equal(proof_key_from_text("12345678", &key), 0);
	config.key = &key;
	config.world = 0;
	first.key = true;
	for (int i = 0; i < 2; i++) {
		struct control_message failed = {.kind = CONTROL_FAILED, .text = "forged"};
		struct link *link = opened(&config);

		snprintf(failed.code, sizeof(failed.code), "%s", ends[i].code);
		say(link, &first);
		heard(link, CONTROL_JOIN);
		say(link, &next);
		assert_null(link_next(link));
		assert_int_equal(link_look(link)->state, LINK_JOINING);
		say(link, &failed);
		assert_failed(link, ends[i].then, "forged");
		say(link, &next);
		assert_null(link_next(link));
		assert_true(link_lost(link) == ends[i].lost);
		link_close(link);
	}
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
		assert_failed(link, "protocol",
		              i == 2 || i == 4 ? "WELCOME with window" : "WELCOME with payload");
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
			assert_failed(link, "protocol",
			              i < 2 ? "START with payload" : "START with window");
		else
			assert_int_equal(link_look(link)->state, LINK_RUNNING);
		link_close(link);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_out_of_turn), cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_refused),     cmocka_unit_test(test_hello),
		cmocka_unit_test(test_key),         cmocka_unit_test(test_proven_lines),
		cmocka_unit_test(test_unproven),    cmocka_unit_test(test_senseless),
	};

	return proof_init() != 0 || cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
