// SPDX-License-Identifier: BSD-3-Clause
/* test_control.c - lines from any pieces, messages there and back, keys and proofs */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "aggregator/control/lines.h"
#include "aggregator/control/message.h"
#include "aggregator/control/proof.h"

/* ---- lines ---- */

struct collected {
	uint32_t count;
	uint32_t stop_at; /* return 7 for this line, counted from 1 */
	char text[64];    /* the lines, each ended by a '|' */
	size_t last_length;
};

static int collect(void *context, const char *line)
{
	struct collected *all = context;
	size_t used = strlen(all->text);

	all->count++;
	all->last_length = strlen(line);
	if (used + all->last_length + 2 <= sizeof(all->text))
		sprintf(all->text + used, "%s|", line);
	return all->count == all->stop_at ? 7 : 0;
}

/* Cut in two anywhere, a stream gives the same lines; what has no end yet waits. */
static void test_lines_cut(void **state)
{
	const char stream[] = "one\n\n{\"two\": 2}\r\nthree";
	const size_t bytes = sizeof(stream) - 1;

	(void)state;
	for (size_t cut = 0; cut <= bytes; cut++) {
		struct lines lines = {0};
		struct collected all = {0};

		assert_int_equal(lines_feed(&lines, stream, cut, collect, &all), 0);
		assert_int_equal(lines_feed(&lines, stream + cut, bytes - cut, collect, &all), 0);
		assert_string_equal(all.text, "one||{\"two\": 2}\r|");
		assert_int_equal(lines_feed(&lines, "\n", 1, collect, &all), 0);
		assert_string_equal(all.text, "one||{\"two\": 2}\r|three|");
	}
}

/* 8191 bytes with the newline are the most; then an empty buffer begins again. */
static void test_lines_length(void **state)
{
	static char text[LINES_BYTES_MAX + 1];
	struct lines lines = {0};
	struct collected all = {0};

	(void)state;
	memset(text, 'x', sizeof(text));
	text[LINES_BYTES_MAX - 2] = '\n';
	for (uint32_t i = 1; i <= 3; i++) {
		assert_int_equal(lines_feed(&lines, text, LINES_BYTES_MAX - 1, collect, &all), 0);
		assert_int_equal(all.count, i);
		assert_int_equal(all.last_length, LINES_BYTES_MAX - 2);
	}
	text[LINES_BYTES_MAX - 2] = 'x';
	text[LINES_BYTES_MAX - 1] = '\n';
	assert_int_equal(lines_feed(&lines, text, LINES_BYTES_MAX, collect, &all), -EMSGSIZE);
	assert_int_equal(all.count, 3);
	memset(&lines, 0, sizeof(lines));
	for (uint32_t i = 0; i < LINES_BYTES_MAX - 1; i++)
		assert_int_equal(lines_feed(&lines, "y", 1, collect, &all), 0);
	assert_int_equal(lines_feed(&lines, "y", 1, collect, &all), -EMSGSIZE);
}

static void test_lines_refused(void **state)
{
	struct lines lines = {0};
	struct collected all = {.stop_at = 2};

	(void)state;
	assert_int_equal(lines_feed(&lines, "a\nb\nc\n", 6, collect, &all), 7);
	assert_string_equal(all.text, "a|b|");
	memset(&lines, 0, sizeof(lines));
	assert_int_equal(lines_feed(&lines, "d\0e\n", 4, collect, &all), -EMSGSIZE);
	assert_int_equal(all.count, 2);
}

/* ---- messages ---- */

/* As they are on the wire, spelled out: every field of every message, at an edge of its range. */
static const struct {
	enum control_kind kind;
	const char *line;
} wire[] = {
#define NONCE "00ff10203040506070809000a0b0c0d0e0f0112233445566778899aabbccddee"
#define PROOF "ffffffffffffffffffffffffffffffff00000000000000000000000000000001"
	{CONTROL_HELLO, "{\"type\":\"hello\",\"version\":2,\"key\":true,\"software\":\"winnowd 1\","
                        "\"nonce\":\"" NONCE "\",\"features\":[]}\n"},
	{CONTROL_JOIN,
         "{\"type\":\"join\",\"version\":2,\"software\":\"\",\"nonce\":\"" NONCE
         "\",\"proof\":\"" PROOF
         "\",\"features\":[\"scatter\"],\"job\":\"a.B_9-\",\"host\":\"h 1\",\"rank\":0,"
         "\"world\":4096,\"payload\":8972,\"rcvbuf\":1048576,\"silence_ms\":100,"
         "\"stall_ms\":864000000,\"after\":\"0123456789abcdef\"}\n"},
	{CONTROL_WELCOME,
         "{\"type\":\"welcome\",\"proof\":\"" PROOF
         "\",\"features\":[\"scatter\"],\"payload\":1472,"
         "\"silence_ms\":86400000,\"stall_ms\":100,\"channels\":[0,65535],\"epoch\":4294967295,"
         "\"salt\":\"" NONCE "\",\"token\":"
         "\"0123456789abcdef\","
         "\"group_token\":\"ffffffffffffffff\",\"window\":8192,\"op_slots\":1024,"
         "\"segments_ahead\":64,\"first_frame\":4294967295,\"group\":\"239.77.0.0:65535\","
         "\"data_address\":\"[fd00:1:2:3:4:5:6:7]:5555\"}\n"},
	{CONTROL_READY, "{\"type\":\"ready\",\"payload\":584,\"multicast\":false}\n"},
	{CONTROL_START, "{\"type\":\"start\",\"payload\":1472,\"window\":4,\"window_start\":1,"
                        "\"weight\":16,\"multicast\":true,\"fast\":true}\n"},
	{CONTROL_PING, "{\"type\":\"ping\",\"open\":3,\"tag\":\"0123456789abcdef\"}\n"},
	{CONTROL_PING,
         "{\"type\":\"ping\",\"open\":0,\"tag\":\"0000000000000000\",\"late\":\"rank 3\"}\n"},
	{CONTROL_PING,
         "{\"type\":\"ping\",\"open\":0,\"tag\":\"0000000000000000\",\"says\":\"3 rows\"}\n"},
	{CONTROL_PING,
         "{\"type\":\"ping\",\"open\":0,\"tag\":\"0000000000000000\",\"rtt_us\":240,"
         "\"rtt_least_us\":0,\"frames\":4294967295,\"held_window_us\":9007199254740991,"
         "\"held_credit_us\":1,\"out\":9007199254740991,\"out_marked\":2,"
         "\"pushes\":7,\"out_lost\":3,\"in\":4,\"in_marked\":5,\"in_lost\":6}\n"},
	{CONTROL_LEAVE, "{\"type\":\"leave\"}\n"},
	{CONTROL_LEFT, "{\"type\":\"left\",\"rank\":3,\"text\":\"rank 3 left\"}\n"},
	{CONTROL_ABORT, "{\"type\":\"abort\",\"code\":\"aborted\",\"text\":\"why not\"}\n"},
	{CONTROL_FAILED, "{\"type\":\"failed\",\"rank\":7,\"code\":\"lost\",\"text\":\"\"}\n"},
	{CONTROL_PATH, "{\"type\":\"path\",\"payload\":3470,\"channel\":65535,\"passing\":1472,"
                       "\"sent\":48}\n"},
	{CONTROL_MOVE, "{\"type\":\"move\",\"number\":\"0123456789abcdef\"}\n"},
	{CONTROL_STAY, "{\"type\":\"stay\",\"without\":\"8000000000000001\",\"agreed\":"
                       "\"0000000000000003\",\"fewer\":true,\"most\":2,\"of\":5,"
                       "\"first\":true}\n"},
	{CONTROL_NEXT, "{\"type\":\"next\",\"without\":\"0000000000000002\",\"drains\":true,"
                       "\"came\":1,\"next\":\"a/"
                       "next.1\",\"next_rank\":1,"
                       "\"next_world\":2,\"text\":\"so\"}\n"},
	{CONTROL_ORDER,
         "{\"type\":\"order\",\"version\":2,\"nonce\":\"" NONCE "\",\"proof\":\"" PROOF
         "\",\"job\":\"a/b\",\"rank\":3,\"order\":\"expel\",\"text\":\"why\"}\n"},
	{CONTROL_DONE, "{\"type\":\"done\",\"text\":\"so\"}\n"},
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

static void test_messages(void **state)
{
	(void)state;
	assert_int_equal(WIRE_COUNT, CONTROL_DONE + 3); /* four kinds of ping */
	for (size_t i = 0; i < WIRE_COUNT; i++) {
		struct control_message message = parsed(wire[i].line);
		char *line = message_format(&message);

		assert_int_equal(message.kind, wire[i].kind);
		assert_string_equal(line, wire[i].line);
		free(line);
	}
}

/* The fields land where they belong. */
static void test_message_fields(void **state)
{
	struct control_message join = parsed(wire[1].line), welcome = parsed(wire[2].line);

	(void)state;
	assert_int_equal(join.version, 2);
	assert_int_equal(join.nonce[1], 0xff);
	assert_int_equal(join.nonce[31], 0xee);
	assert_int_equal(join.proof[31], 1);
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
	assert_int_equal(welcome.features, CONTROL_SCATTER);
	assert_int_equal(parsed(wire[0].line).features, 0);
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
static void test_message_missing(void **state)
{
	const char *const wrong[] = {
		"null", "{}", "[]", "[-1]", "1.5", "-1", "\"\\u00e9\\u00e9 \""};

	(void)state;
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
			if (wire[i].kind != CONTROL_PING && strncmp(name, "after", 5) != 0 &&
			    strncmp(name, "next\"", 5) != 0 && strncmp(name, "drains", 6) != 0 &&
			    strncmp(name, "weight", 6) != 0)
				assert_refused(line, reason);
			else
				assert_int_equal(parsed(line).kind, wire[i].kind);
			for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
				/* Any text does for a text, and any list of features for a list. */
				if (wrong[k][0] == '"' && *value == '"' && end - value < 60 &&
				    strncmp(name, "job", 3) != 0 &&
				    strncmp(name, "next\"", 5) != 0 &&
				    strncmp(name, "after", 5) != 0 &&
				    strncmp(name, "without", 7) != 0 &&
				    strncmp(name, "agreed", 6) != 0 &&
				    strstr(at, "token") == NULL &&
				    strncmp(name, "group\"", 6) != 0 &&
				    strncmp(name, "data_address", 12) != 0)
					continue;
				if (wrong[k][1] == ']' && strncmp(name, "features", 8) == 0)
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

static void test_message_ranges(void **state)
{
	char channels[512] = "[0", long_job[80] = "\"";

	(void)state;
	assert_refused(changed(1, "\"version\":2", "\"version\":4294967296"), "'version'");
	/* Of another version, nothing else is read. */
	assert_int_equal(parsed("{\"type\":\"join\",\"version\":4294967295}").version, UINT32_MAX);
	assert_int_equal(parsed("{\"type\":\"hello\",\"version\":1,\"key\":7}").version, 1);
	assert_refused("{\"type\":\"hello\",\"version\":2}", "'key'");
	assert_refused(changed(1, ":100,", ":99,"), "'silence_ms'");
	assert_refused(changed(1, ":100,", ":86400001,"), "'silence_ms'");
	assert_refused(changed(1, "864000000", "864000001"), "'stall_ms'");
	assert_refused(changed(2, "8192", "8193"), "'window'");
	assert_refused(changed(4, ":4,", ":3,"), "'window'");
	assert_refused(changed(4, ":1,", ":0,"), "'window_start'");
	assert_refused(changed(4, ":16,", ":0,"), "'weight'");
	assert_refused(changed(4, ":16,", ":17,"), "'weight'");
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
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "fd00:1:2:3:4:5:6:7:"),
	               "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[fd00:1:2:3:4:5:6:7:"),
	               "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[1.2.3.4]:"), "'data_address'");
	assert_refused(changed(2, "[fd00:1:2:3:4:5:6:7]:", "[]:"), "'data_address'");
	assert_refused(changed(0, "[]", "[1]"), "'features'");
	assert_refused(changed(0, "[]", "{}"), "'features'");
	assert_refused(changed(2, "[0,65535]", "[0,65536]"), "'channels'");
	assert_refused(changed(2, "[0,65535]", "[\"0\"]"), "'channels'");
	for (int i = 1; i < CONTROL_CHANNELS_MAX; i++)
		strcat(channels, ",1");
	strcat(channels, "]");
	assert_int_equal(parsed(changed(2, "[0,65535]", channels)).channel_count, 64);
	memcpy(strchr(channels, ']'), ",1]", 4);
	assert_refused(changed(2, "[0,65535]", channels), "'channels'");
	assert_refused(changed(2, "0123456789abcdef", "0123456789abcde"), "'token'");
	assert_refused(changed(2, "0123456789abcdef", "0123456789abcdef0"), "'token'");
	assert_refused(changed(2, "0123456789abcdef", "0123456789ABCDEF"), "'token'");
	assert_refused(changed(2, "0123456789abcdef", "0123456789abcdeg"), "'token'");
	assert_refused(changed(0, NONCE, "00"), "'nonce'");
	assert_string_equal(parsed(changed(1, "\"a.B_9-\"", "\"a/b\"")).job, "a/b");
	assert_true(message_name_is_next("a/next.1"));
	assert_false(message_name_is_next("a/next") || message_name_is_next("next.1"));
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
	assert_false(message_name_valid(""));
}

static void test_message_garbage(void **state)
{
	struct control_message message;
	struct why why;

	(void)state;
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
static void test_message_texts(void **state)
{
	struct control_message message = {.kind = CONTROL_ABORT, .code = "c\xff\n"}, again;
	char *line;

	(void)state;
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

/* ---- keys and proofs ---- */

static char folder[64];

static struct proof_keys *keys_of(const char *contents, int want, const char *reason)
{
	struct proof_keys *keys = NULL;
	char path[128];
	struct why why = {""};
	FILE *file;

	snprintf(path, sizeof(path), "%s/keys", folder);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(contents, file);
	fclose(file);
	assert_int_equal(proof_keys_load(path, NULL, &keys, &why), want);
	if (reason != NULL && strstr(why.text, reason) == NULL)
		fail_msg("'%s' does not say %s", why.text, reason);
	unlink(path);
	return keys;
}

static void assert_key(struct proof_keys *keys, const char *job, const char *text)
{
	const struct proof_key *found = proof_keys_find(keys, job);
	struct proof_key want;

	assert_int_equal(proof_key_from_text(text, &want), 0);
	assert_non_null(found);
	assert_memory_equal(found->bytes, want.bytes, PROOF_BYTES);
}

static void test_key_file(void **state)
{
	struct proof_keys *keys = keys_of("# comment\n\n \t\r\njob-a\tkey-of-a-\r\n"
	                                  "  job-b   key-of-b-  # b\n* key-of-others",
	                                  0, NULL);
	char many[8192] = "", line[64];

	(void)state;
	assert_key(keys, "job-a", "key-of-a-");
	assert_key(keys, "job-b", "key-of-b-");
	assert_key(keys, "job-a/7", "key-of-a-"); /* of all its memberships */
	assert_key(keys, "job-c", "key-of-others");
	assert_key(keys, "job/7", "key-of-others");
	proof_keys_free(keys);
	keys = keys_of("job-a key-of-a-\n", 0, NULL);
	assert_null(proof_keys_find(keys, "job-b"));
	assert_null(proof_keys_find(NULL, "job-a"));
	proof_keys_free(keys);
	keys = keys_of("only-one-key\n", 0, NULL);
	assert_key(keys, "any", "only-one-key");
	proof_keys_free(keys);
	for (int i = 0; i < 200; i++) {
		snprintf(line, sizeof(line), "job-%d key-number-%d\n", i, i);
		strcat(many, line);
	}
	keys = keys_of(many, 0, NULL);
	assert_key(keys, "job-0", "key-number-0");
	assert_key(keys, "job-199", "key-number-199");
	proof_keys_free(keys);
}

/* Of all memberships of a job, and of those for which the line of all others stands. */
static void test_key_weights(void **state)
{
	struct proof_keys *keys = keys_of("a key-of-a- weight=3\nb key-of-b-\n"
	                                  "c key-of-c- weight=16 # c\n* key-of-others weight=01\n",
	                                  0, NULL);

	(void)state;
	assert_key(keys, "a", "key-of-a-");
	assert_int_equal(proof_keys_weight(keys, "a"), 3);
	assert_int_equal(proof_keys_weight(keys, "a/next.1"), 3);
	assert_int_equal(proof_keys_weight(keys, "b"), 1);
	assert_int_equal(proof_keys_weight(keys, "c"), 16);
	assert_int_equal(proof_keys_weight(keys, "other"), 1);
	assert_int_equal(proof_keys_weight(NULL, "a"), 1);
	proof_keys_free(keys);
	keys = keys_of("* key-of-others weight=2\na key-of-a-\n", 0, NULL);
	assert_int_equal(proof_keys_weight(keys, "other"), 2);
	assert_int_equal(proof_keys_weight(keys, "a"), 1);
	proof_keys_free(keys);
	keys = keys_of("weight=3\n", 0, NULL); /* a key, if a bad one */
	assert_key(keys, "a", "weight=3");
	assert_int_equal(proof_keys_weight(keys, "a"), 1);
	proof_keys_free(keys);
}

static void test_key_file_refused(void **state)
{
	static const char *const weights[] = {"weight=0",   "weight=17", "weight=", "weight=-1",
	                                      "weight=+3",  "weight=3x", "weight",  "weigh=3",
	                                      "weight=003", "Weight=3",  "3"};
	struct proof_keys *keys = NULL;
	char line[1100], path[96];
	struct why why;

	(void)state;
	keys_of("a goodkey8\njob short77\n", -EINVAL, "line 2");
	keys_of("job key-of-job third\n", -EINVAL, "line 1");
	keys_of("job key-of-job third fourth\n", -EINVAL, "line 1");
	keys_of("job key-of-job weight=3 fourth\n", -EINVAL, "line 1");
	for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
		snprintf(line, sizeof(line), "job key-of-job %s\n", weights[i]);
		keys_of(line, -EINVAL, "from 1 to 16");
	}
	keys_of("", -EINVAL, "no key");
	keys_of("# nothing\n", -EINVAL, "no key");
	memset(line, 'j', 65);
	strcpy(line + 65, " key-of-job\n");
	keys_of(line, -EINVAL, "line 1");
	memset(line, 'k', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	keys_of(line, -EINVAL, "line 1");
	assert_int_equal(proof_keys_load("/nowhere/keys", NULL, &keys, &why), -ENOENT);
	assert_non_null(strstr(why.text, "/nowhere/keys"));
	assert_int_equal(proof_keys_load(folder, NULL, &keys, &why), -EIO);
	assert_int_equal(proof_keys_load(NULL, "1234567", &keys, &why), -EINVAL);
	assert_non_null(strstr(why.text, "at least 8"));
	assert_null(keys);
	if (geteuid() == 0)
		return; /* root reads everything */
	snprintf(path, sizeof(path), "%s/secret", folder);
	fclose(fopen(path, "we"));
	chmod(path, 0);
	assert_int_equal(proof_keys_load(path, NULL, &keys, &why), -EACCES);
	unlink(path);
}

/* The proof of PROTOCOL.md 5.2, worked out by other software (Python's hashlib). */
static void test_proof_known(void **state)
{
	static const uint8_t want[2][PROOF_BYTES] = {
		{0x12, 0xb1, 0xe2, 0xbc, 0x15, 0x9e, 0x6a, 0x4e, 0xbf, 0x68, 0xe5,
	         0x2b, 0xde, 0xe6, 0x99, 0x67, 0x82, 0x47, 0xac, 0xb5, 0x87, 0x47,
	         0xaf, 0xae, 0xf3, 0x11, 0x26, 0x4b, 0xd6, 0x40, 0xe9, 0x6e},
		{0x59, 0x47, 0x6e, 0xa1, 0x2e, 0x68, 0x19, 0xec, 0xe7, 0xba, 0x24,
	         0xfc, 0xf1, 0x57, 0xf0, 0x79, 0xca, 0x9e, 0x2a, 0xd5, 0xad, 0x3c,
	         0xca, 0x70, 0xfd, 0x85, 0xa1, 0x8b, 0xf1, 0x1b, 0x5c, 0xf9},
	};
	uint8_t server[PROOF_BYTES], client[PROOF_BYTES], got[PROOF_BYTES];
	struct proof_statement statement = {server, client, "job-1", 0x01020304, 0x0a0b0c0d};
	struct proof_key key;

	(void)state;
	for (int i = 0; i < PROOF_BYTES; i++) {
		server[i] = (uint8_t)i;
		client[i] = (uint8_t)(100 + i);
	}
	assert_int_equal(proof_key_from_text("correct horse", &key), 0);
	proof_make(&key, PROOF_JOIN, &statement, got);
	assert_memory_equal(got, want[0], PROOF_BYTES);
	proof_make(&key, PROOF_WELCOME, &statement, got);
	assert_memory_equal(got, want[1], PROOF_BYTES);
}

/* A proof is good for one statement by one who knows the key: replayed for another it is not. */
static void test_proof_replay(void **state)
{
	uint8_t server[PROOF_BYTES] = {1}, client[PROOF_BYTES] = {2}, other[PROOF_BYTES] = {3};
	const struct proof_statement said = {server, client, "job", 1, 4};
	const struct proof_statement others[] = {
		{other, client, "job", 1, 4},  {server, other, "job", 1, 4},
		{client, server, "job", 1, 4}, {server, client, "jo", 1, 4},
		{server, client, "job", 0, 4}, {server, client, "job", 1, 5}};
	uint8_t proof[PROOF_BYTES], got[PROOF_BYTES];
	struct proof_key key, wrong;

	(void)state;
	assert_int_equal(proof_key_from_text("12345678", &key), 0);
	assert_int_equal(proof_key_from_text("12345679", &wrong), 0);
	proof_make(&key, PROOF_JOIN, &said, proof);
	proof_make(&key, PROOF_JOIN, &said, got);
	assert_true(proof_equal(proof, got));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		proof_make(&key, PROOF_JOIN, &others[i], got);
		assert_false(proof_equal(proof, got));
	}
	proof_make(&key, PROOF_WELCOME, &said, got);
	assert_false(proof_equal(proof, got));
	proof_make(&wrong, PROOF_JOIN, &said, got);
	assert_false(proof_equal(proof, got));
	memcpy(got, proof, sizeof(got));
	got[PROOF_BYTES - 1] ^= 1;
	assert_false(proof_equal(proof, got));
}

static int folder_make(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/winnow-test-XXXXXX");
	return proof_init() != 0 || mkdtemp(folder) == NULL;
}

static int folder_remove(void **state)
{
	(void)state;
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_cut),      cmocka_unit_test(test_lines_length),
		cmocka_unit_test(test_lines_refused),  cmocka_unit_test(test_messages),
		cmocka_unit_test(test_message_fields), cmocka_unit_test(test_message_missing),
		cmocka_unit_test(test_message_ranges), cmocka_unit_test(test_message_garbage),
		cmocka_unit_test(test_message_texts),  cmocka_unit_test(test_key_file),
		cmocka_unit_test(test_key_weights),    cmocka_unit_test(test_key_file_refused),
		cmocka_unit_test(test_proof_known),    cmocka_unit_test(test_proof_replay),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove) != 0;
}
