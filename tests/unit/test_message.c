// SPDX-License-Identifier: BSD-3-Clause
/* test_message.c - control messages there and back, and what is none */

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/message.h"
#include "ebpf/wire.h"
#include "tests/unit/unit.h"

/* As they are on the wire, spelled out: every field of every message, at an edge of its range. */
static const struct {
	enum control_kind kind;
	const char *line;
} wire[] = {
#define SEED "00ff10203040506070809000a0b0c0d0e0f0112233445566778899aabbccddee"
	{CONTROL_HELLO, "{\"type\":\"hello\",\"version\":3,\"software\":\"winnowd 1\"}\n"},
	{CONTROL_JOIN, "{\"type\":\"join\",\"version\":3,\"software\":\"\","
                       "\"job\":\"a.B_9-\",\"host\":\"h 1\",\"rank\":0,"
                       "\"world\":4096,\"payload\":8972,\"rcvbuf\":1048576,\"silence_ms\":100,"
                       "\"stall_ms\":864000000}\n"},
	{CONTROL_WELCOME,
         "{\"type\":\"welcome\","
         "\"payload\":1472,"
         "\"silence_ms\":86400000,\"stall_ms\":100,\"channels\":[0,65535],"
         "\"seed\":\"" SEED "\",\"token\":"
         "\"0123456789abcdef\","
         "\"group_token\":\"ffffffffffffffff\",\"window\":8192,\"op_slots\":1024,"
         "\"segments_ahead\":64,\"first_frame\":4294967295,\"group\":\"239.77.0.0:65535\","
         "\"data_address\":\"[fd00:1:2:3:4:5:6:7]:5555\"}\n"},
	{CONTROL_READY, "{\"type\":\"ready\",\"payload\":584,\"multicast\":false}\n"},
	{CONTROL_START, "{\"type\":\"start\",\"payload\":1472,\"window\":4,\"window_start\":1,"
                        "\"multicast\":true,\"fast\":true}\n"},
	{CONTROL_PING, "{\"type\":\"ping\",\"open\":3,\"tag\":\"0123456789abcdef\"}\n"},
	{CONTROL_PING, "{\"type\":\"ping\",\"late\":\"rank 3\"}\n"},
	{CONTROL_PING, "{\"type\":\"ping\",\"says\":\"3 rows\"}\n"},
	{CONTROL_PING,
         "{\"type\":\"ping\",\"rtt_us\":240,"
         "\"rtt_least_us\":1,\"frames\":4294967295,\"held_window_us\":9007199254740991,"
         "\"held_credit_us\":1,\"out\":9007199254740991,\"out_marked\":2,"
         "\"pushes\":7,\"out_lost\":3,\"in\":4,\"in_marked\":5,\"in_lost\":6}\n"},
	{CONTROL_LEAVE, "{\"type\":\"leave\"}\n"},
	{CONTROL_LEFT, "{\"type\":\"left\",\"rank\":3,\"text\":\"rank 3 left\"}\n"},
	{CONTROL_ABORT, "{\"type\":\"abort\",\"code\":\"aborted\",\"text\":\"why not\"}\n"},
	{CONTROL_FAILED, "{\"type\":\"failed\",\"rank\":7,\"code\":\"lost\",\"text\":\"\"}\n"},
	{CONTROL_PATH, "{\"type\":\"path\",\"payload\":3470,\"channel\":65535,\"passing\":1472,"
                       "\"sent\":48}\n"},
	{CONTROL_STAY, "{\"type\":\"stay\",\"job\":\"a/next.2\",\"rank\":3,\"without\":"
                       "\"8000000000000001\",\"begun\":\"a/next.1\",\"of\":5,"
                       "\"admit\":2,\"holds\":true}\n"},
	{CONTROL_NEXT, "{\"type\":\"next\",\"without\":\"0000000000000002\",\"came\":1,"
                       "\"next\":\"a/next.1\",\"next_rank\":1,"
                       "\"next_world\":2}\n"},
};

#define WIRE_COUNT (sizeof(wire) / sizeof(wire[0]))

static struct control_message parsed(const char *line)
{
	struct control_message message;
	struct why why = {""};

	if (message_parse(line, &message, &why) != 0)
		fail_msg("%s: %s", line, why.text);
	return message;
}

static void *nothing(size_t bytes)
{
	return NULL;
}

/* There and back; whatever memory lacks, no line goes without one of its fields. */
TEST(messages)
{
	assert_int_equal(WIRE_COUNT, CONTROL_KINDS + 3); /* four kinds of ping */
	for (size_t i = 0; i < WIRE_COUNT; i++) {
		struct control_message message = parsed(wire[i].line);
		char *line;

		json_set_alloc_funcs(nothing, free);
		line = message_format(&message);
		json_set_alloc_funcs(malloc, free);
		assert_int_equal(message.kind, wire[i].kind);
		assert_string_equal(line, wire[i].line);
		message_free(line);
	}
}

/* The fields land where they belong. */
TEST(message_fields)
{
	struct control_message join = parsed(wire[1].line), welcome = parsed(wire[2].line);

	assert_int_equal(join.version, WIRE_VERSION);
	assert_int_equal(welcome.seed[1], 0xff);
	assert_int_equal(welcome.seed[31], 0xee);
	assert_string_equal(join.job, "a.B_9-");
	assert_string_equal(join.host, "h 1");
	assert_int_equal(join.world, 4096);
	assert_int_equal(join.silence_ms, 100);
	assert_int_equal(join.stall_ms, 864000000);
	assert_int_equal(welcome.channel_count, 2);
	assert_int_equal(welcome.channels[1], 65535);
	assert_true(welcome.token == 0x0123456789abcdef && welcome.group_token == UINT64_MAX);
	assert_string_equal(welcome.group, "239.77.0.0:65535");
	assert_string_equal(welcome.data_address, "[fd00:1:2:3:4:5:6:7]:5555");
}

static void assert_refused(const char *line, const char *reason)
{
	struct control_message message;
	struct why why = {""};

	if (message_parse(line, &message, &why) != -EINVAL)
		fail_msg("taken: %s", line);
	if (strstr(why.text, reason) == NULL)
		fail_msg("'%s' does not say %s: %s", why.text, reason, line);
}

/* Every field of every message: left out, which a PING's and few others may be, of another type, null. */
TEST(message_missing)
{
	const char *const wrong[] = {
		"null", "{}", "[]", "[-1]", "1.5", "-1", "\"\\u00e9\\u00e9 \""};

	for (size_t i = 0; i < WIRE_COUNT; i++) {
		const char *at = strchr(wire[i].line, ',');

		for (; at != NULL && at[1] == '"'; at = strstr(at + 1, ",\"")) {
			const char *name = at + 2, *value = strstr(at, "\":") + 2, *end;
			int length = (int)(value - 2 - name);
			char line[1024], reason[64];

			end = *value == '[' ? strchr(value, ']') + 1 : value + strcspn(value, ",}");
			snprintf(reason, sizeof(reason), "'%.*s'", length, name);
			snprintf(line, sizeof(line), "%.*s%s", (int)(at - wire[i].line),
			         wire[i].line, end);
			if (wire[i].kind != CONTROL_PING && strncmp(name, "begun", 5) != 0 &&
			    strncmp(name, "drains", 6) != 0)
				assert_refused(line, reason);
			else
				assert_int_equal(parsed(line).kind, wire[i].kind);
			for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
				/* Any text does for a text. */
				if (wrong[k][0] == '"' && *value == '"' && end - value < 60 &&
				    strncmp(name, "job", 3) != 0 &&
				    strncmp(name, "next\"", 5) != 0 &&
				    strncmp(name, "begun", 5) != 0 &&
				    strncmp(name, "without", 7) != 0 &&
				    strstr(at, "token") == NULL &&
				    strncmp(name, "group\"", 6) != 0 &&
				    strncmp(name, "data_address", 12) != 0)
					continue;
				snprintf(line, sizeof(line), "%.*s%s%s",
				         (int)(value - wire[i].line), wire[i].line, wrong[k], end);
				assert_refused(line, reason);
			}
		}
	}
}

/* Replace the first `old` of a line of the table. */
static const char *changed(size_t index, const char *old, const char *new)
{
	static char line[2048];
	const char *at = strstr(wire[index].line, old);

	assert_non_null(at);
	snprintf(line, sizeof(line), "%.*s%s%s", (int)(at - wire[index].line), wire[index].line,
	         new, at + strlen(old));
	return line;
}

TEST(message_ranges)
{
	char channels[512] = "[0";

	assert_refused(changed(1, "\"version\":3", "\"version\":4294967296"), "'version'");
	/* Of another version, nothing else is read. */
	assert_int_equal(parsed("{\"type\":\"join\",\"version\":4294967295}").version, UINT32_MAX);
	assert_int_equal(parsed("{\"type\":\"hello\",\"version\":1,\"software\":7}").version, 1);
	assert_refused("{\"type\":\"hello\",\"version\":3}", "'software'");
	assert_refused(changed(1, ":100,", ":99,"), "'silence_ms'");
	assert_refused(changed(1, ":100,", ":86400001,"), "'silence_ms'");
	assert_refused(changed(1, "864000000", "864000001"), "'stall_ms'");
	assert_refused(changed(2, "8192", "8193"), "'window'");
	assert_refused(changed(4, ":4,", ":3,"), "'window'");
	assert_refused(changed(4, ":1,", ":0,"), "'window_start'");
	assert_refused(changed(2, "1024", "1025"), "'op_slots'");
	assert_refused(changed(2, "1024", "0"), "'op_slots'");
	assert_refused(changed(2, ":64,", ":65,"), "'segments_ahead'");
	assert_refused(changed(2, "0.0:65535", "0.0:65536"), "'group'");
	assert_refused(changed(2, "0.0:65535", "0.0:0"), "'group'");
	assert_refused(changed(2, "0.0:65535", "0.0:1x"), "'group'");
	assert_refused(changed(2, "239.77.0.0:", "239.77.0:"), "'group'");
	assert_refused(changed(2, "239.77.0.0:", "host:"), "'group'");
	assert_refused(changed(2, "239.77.0.0:", ""), "'group'");
	assert_refused(changed(2, "239.77.0.0:", ":"), "'group'");
	/* Not a host's, nor one of the network's own protocols. */
	assert_refused(changed(2, "239.77.0.0:", "10.0.0.1:"), "'group'");
	assert_refused(changed(2, "239.77.0.0:", "240.0.0.1:"), "'group'");
	assert_refused(changed(2, "239.77.0.0:", "224.0.0.255:"), "'group'");
	assert_int_equal(parsed(changed(2, "239.77.0.0:", "224.0.1.0:")).kind, CONTROL_WELCOME);
	assert_refused(changed(2, "239.77.0.0:", "[fd00::1]:"), "'group'");
	assert_refused(changed(2, "239.77.0.0:", "[ff02::fb]:"), "'group'");
	assert_refused(changed(2, "239.77.0.0:", "[::ffff:224.0.0.1]:"), "'group'");
	assert_int_equal(parsed(changed(2, "239.77.0.0:", "[ff12::1]:")).kind, CONTROL_WELCOME);
	/* Of one host. */
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "239.77.0.0:"), "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "255.255.255.255:"), "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "0.0.0.0:"), "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[::]:"), "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[ff15::1]:"), "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[::ffff:239.0.0.1]:"),
	               "'data_address'");
	assert_int_equal(parsed(changed(2, "[fd00:1:2:3:4:5:6:7]:", "10.0.0.1:")).kind,
	                 CONTROL_WELCOME);
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "fd00:1:2:3:4:5:6:7:"),
	               "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[fd00:1:2:3:4:5:6:7:"),
	               "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[1.2.3.4]:"), "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[]:"), "'data_address'");
	assert_refused(changed(2, "[0,65535]", "[0,65536]"), "'channels'");
	assert_refused(changed(2, "[0,65535]", "[\"0\"]"), "'channels'");
	assert_refused(changed(2, "[0,65535]", "[7,8,7]"), "'channels'");
	for (int i = 1; i < CONTROL_CHANNELS_MAX; i++)
		sprintf(channels + strlen(channels), ",%d", i);
	strcat(channels, "]");
	assert_int_equal(parsed(changed(2, "[0,65535]", channels)).channel_count, 64);
	memcpy(strchr(channels, ']'), ",64]", 5);
	assert_refused(changed(2, "[0,65535]", channels), "'channels'");
	assert_refused(changed(2, "0123456789abcdef", "0123456789abcde"), "'token'");
	assert_refused(changed(2, "0123456789abcdef", "0123456789abcdef0"), "'token'");
	assert_refused(changed(2, "0123456789abcdef", "0123456789ABCDEF"), "'token'");
	assert_refused(changed(2, "0123456789abcdef", "0123456789abcdeg"), "'token'");
	assert_refused(changed(2, SEED, "00"), "'seed'");
	assert_refused(changed(2, "00ff", "00FF"), "'seed'");
}

TEST(message_names)
{
	char long_job[160] = "\"";

	assert_string_equal(parsed(changed(1, "\"a.B_9-\"", "\"a/b\"")).job, "a/b");
	assert_true(message_name_is_next("a/next.1"));
	assert_false(message_name_is_next("a/next") || message_name_is_next("next.1"));
	assert_true(message_name_number("a/next.00000000000000ff") == 255);
	assert_true(message_name_number("a/next.ffffffffffffffff") == UINT64_MAX);
	assert_true(message_name_number("a/next.0000000000000ff") == 0);
	assert_true(message_name_number("a/next.00000000000000FF") == 0);
	assert_true(message_name_number("a/nexts0000000000000ff") == 0);
	assert_true(message_name_number("a") == 0);
	assert_refused(changed(1, "\"a.B_9-\"", "\"a/\""), "'job'");
	assert_refused(changed(1, "\"a.B_9-\"", "\"/b\""), "'job'");
	assert_refused(changed(1, "\"a.B_9-\"", "\"a/b/c\""), "'job'");
	assert_refused(changed(1, "\"a.B_9-\"", "\"a b\""), "'job'");
	memset(long_job + 1, 'j', 65);
	memcpy(long_job + 66, "\"", 2);
	assert_refused(changed(1, "\"a.B_9-\"", long_job), "'job'");
	memcpy(long_job + 65, "\"", 2);
	assert_int_equal(strlen(parsed(changed(1, "\"a.B_9-\"", long_job)).job), 64);
	memcpy(long_job + 65, "j", 2);
	assert_false(message_name_valid(long_job + 1));
	assert_true(message_name_valid(long_job + 2));
	/* The longest NAME leaves room for the longest membership. */
	long_job[65] = '/';
	memset(long_job + 66, 'm', 64);
	memcpy(long_job + 130, "\"", 2);
	assert_int_equal(strlen(parsed(changed(1, "\"a.B_9-\"", long_job)).job), 129);
	memcpy(long_job + 130, "m\"", 3);
	assert_refused(changed(1, "\"a.B_9-\"", long_job), "'job'");
	assert_false(message_name_valid(""));
}

TEST(message_garbage)
{
	struct control_message message;
	struct why why;

	assert_refused("", "not JSON");
	assert_refused("GET / HTTP/1.1", "not JSON");
	assert_refused("{\"type\":\"ping\"} x", "not JSON");
	assert_refused("{\"type\":\"ping\",\"type\":\"ping\"}", "not JSON");
	assert_refused("[\"ping\"]", "type");
	assert_refused("{\"type\":\"pong\"}", "type");
	assert_refused("{\"type\":6}", "type");
	assert_refused("{}", "type");
	assert_int_equal(parsed("{\"later\":[1],\"type\":\"ping\"}").kind, CONTROL_PING);
	/* The reason quotes the line, but not what a terminal would obey. */
	assert_int_equal(message_parse("{\"a\": \033[2J\"", &message, &why), -EINVAL);
	for (const char *c = why.text; *c != '\0'; c++)
		assert_true(*c >= ' ' && *c <= '~' && *c != '"');
}

/* Texts are made printable on both ways, and cut to their room. */
TEST(message_texts)
{
	struct control_message message = {.kind = CONTROL_ABORT, .code = "c\xff\n"}, again;
	char *line;

	memset(message.text, 'x', sizeof(message.text) - 1);
	memcpy(message.text, "caf\xc3", 4); /* cut in the middle of a character */
	line = message_format(&message);
	again = parsed(line);
	assert_string_equal(again.code, "c??");
	assert_memory_equal(again.text, "caf?xxx", 7);
	assert_int_equal(strlen(again.text), sizeof(message.text) - 1);
	free(line);
	again = parsed("{\"type\":\"abort\",\"code\":\"\",\"text\":\"\\u001b[1m \\\"q\\\" \\\\ "
	               "\\u00e9\"}");
	assert_string_equal(again.text, "?[1m 'q' ? ??");
}
