// SPDX-License-Identifier: BSD-3-Clause
/* test_link.c - joining one aggregator: all the way, refused, out of turn, with whatever it sends */

#include "ebpf/seal.h"
#include "tests/unit/test_link.h"

/* Only what the aggregator may say at this point; the first error stays. */
TEST(out_of_turn)
{
	static const enum control_kind early[] = {CONTROL_START, CONTROL_LEFT,  CONTROL_READY,
	                                          CONTROL_JOIN,  CONTROL_LEAVE, CONTROL_ABORT};

	for (size_t i = 0; i < sizeof(early) / sizeof(early[0]); i++) {
		struct control_message message = welcome();
		struct link *link = opened(basic());

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

TEST(garbage)
{
	static const char *const lines[] = {"", "HTTP/1.1 400 Bad Request", "{}",
	                                    "{\"type\":\"hello\"}", "{\"type\":\"\033[2J\"}"};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct link *link = opened(basic());

		link_line(link, lines[i], now_us);
		assert_failed(link, "protocol", "does not speak Winnow's protocol");
		assert_null(strchr(link->error, '\033'));
		say(link, &hello);
		assert_null(link_take_line(link, now_us));
		link_close(link);
	}
}

LINK_TEST(refused, opened(basic()))
{
	say(link, &hello);
	say(link, &(struct control_message){.kind = CONTROL_FAILED,
	                                    .rank = 2,
	                                    .code = "world",
	                                    .text = "job 'job' has 8 workers"});
	assert_failed(link, "world", "job 'job' has 8 workers");
}

LINK_TEST(hello, opened(basic()))
{
	struct control_message other = hello;

	other.version = WIRE_VERSION - 1;
	say(link, &other);
	assert_failed(link, "version", "version 2 of the protocol, this worker speaks 3");
}

/* Times are the shortest that any worker has asked for: so none is longer than ours. */
TEST(times)
{
	static const char *const texts[] = {"silence_ms 60000: want at most",
	                                    "stall_ms 864000000: want"};

	for (int i = 0; i < 2; i++) {
		struct control_message message = welcome();
		struct link *link = opened(basic());

		*(i == 0 ? &message.silence_ms : &message.stall_ms) = i == 0 ? 60000 : 864000000;
		say(link, &hello);
		heard(link, CONTROL_JOIN);
		say(link, &message);
		assert_failed(link, "protocol", texts[i]);
		link_close(link);
	}
}

/* Where there is a key datagrams are sealed, with what the connection has and what WELCOME's seed makes. */
TEST(key)
{
	const struct seal_key own = {{1, 2}};
	struct link_config config = basic();
	struct control_message message = welcome();
	struct packet_out out = {.scratch = scratch};
	uint8_t flat[WIRE_PAYLOAD_MAX];
	struct seed_keys keys;
	struct packet packet;
	struct link *link;

	config.keyed = true;
	message.token = message.group_token = 0;
	memset(message.seed, 5, sizeof(message.seed));
	assert_int_equal(seed_expand(message.seed, &keys), 0);
	link = opened(config);
	link_secured(link, &own);
	say(link, &hello);
	heard(link, CONTROL_JOIN);
	say(link, &message);
	assert_int_equal(link->state, LINK_PROBING);
	assert_true(link->welcome.token != 0);
	assert_true(link_pull(link, now_us, &out));
	link_seal(link, &out, 0);
	packet_flatten(&out, flat);
	assert_true(seal_right(flat, out.bytes, &keys.stretch, &own, 0));
	flat[3] = WIRE_KNOCKED;
	packet_begin(&out, &(struct wire_header){.kind = WIRE_KNOCKED, .channel = 5, .worker = 1});
	seal_write(&out, &keys.stretch, &keys.group, 0);
	packet_flatten(&out, flat);
	for (int good = 1; good >= 0; good--) {
		flat[8] ^= !good;
		assert_int_equal(packet_parse(flat, out.bytes, true, &packet), WIRE_DROP_NONE);
		link_unseal(link, flat, out.bytes, 0, &packet);
		assert_true((packet.token == link->welcome.group_token) == good);
	}
	link_close(link);
}

/* Without TLS, where there is a key, nobody can send a worker elsewhere, nor make it send anything anywhere. */
TEST(plain)
{
	static const struct {
		const char *line, *code, *text;
		bool lost;
	} cases[] = {
		{"{\"type\":\"failed\",\"rank\":0,\"code\":\"lost\",\"text\":\"so\"}", "gone", "so",
	         true},
		{"{\"type\":\"failed\",\"rank\":0,\"code\":\"running\",\"text\":\"so\"}", "running",
	         "so", false},
		{"HTTP/1.1 400 Bad Request", "protocol", "does not speak Winnow's protocol", true},
		{"{\"type\":\"ping\"}", "key", "--insecure-no-key", true},
		{"{\"type\":\"next\",\"without\":\"0000000000000000\",\"came\":0,\"next\":\"job/"
	         "next."
	         "0123456789abcdef\",\"next_rank\":0,\"next_world\":1,\"text\":\"\"}",
	         "key", "--insecure-no-key", true},
	};
	struct link_config config = basic();

	config.keyed = true;
	config.world = 0;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct link *link = opened(config);

		link_plain(link, cases[i].line);
		assert_failed(link, cases[i].code, cases[i].text);
		assert_null(link_next(link));
		assert_true(link_lost(link) == cases[i].lost);
		link_plain(link, cases[0].line);
		assert_failed(link, cases[i].code, cases[i].text);
		link_close(link);
	}
}

TEST(no_key)
{
	struct link_config config = basic();
	struct link *link;

	config.keyed = true;
	config.job = "job/7";
	link = opened(config);
	link_refused(link);
	assert_failed(link, "key", "wrong key for job 'job'");
	link_close(link);
}

TEST(senseless)
{
	struct link_config config = basic();
	struct control_message wrong[5], start = {.kind = CONTROL_START, .window_start = 1};
	struct link *link;

	for (int i = 0; i < 5; i++)
		wrong[i] = welcome();
	wrong[0].payload = 8973;
	wrong[1].payload = WIRE_PAYLOAD_MIN - 1;
	wrong[2].window = 63;
	wrong[3].payload = 0;
	wrong[4].window = 24;
	for (int i = 0; i < 5; i++) {
		link = opened(config);
		say(link, &hello);
		say(link, &wrong[i]);
		assert_failed(link, "protocol",
		              i == 2 || i == 4 ? "WELCOME with window" : "WELCOME with payload");
		link_close(link);
	}
	for (int i = 0; i < 4; i++) {
		link = probing(config);
		probed(link, 1472);
		start.payload = i == 0 ? 1473 : i == 1 ? WIRE_PAYLOAD_MIN - 1 : 1472;
		start.window = i == 2 ? 48 : 128; /* it may be larger than WELCOME's */
		say(link, &start);
		if (i < 3)
			assert_failed(link, "protocol",
			              i < 2 ? "START with payload" : "START with window");
		else
			assert_int_equal(link->state, LINK_RUNNING);
		link_close(link);
	}
}
