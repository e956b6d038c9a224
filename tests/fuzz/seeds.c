// SPDX-License-Identifier: BSD-3-Clause
/* seeds.c TARGET FOLDER - write the inputs that a fuzzer begins with: valid ones of each kind */

#include <jansson.h>

#include "bitmap/control/lines.h"
#include "bitmap/control/message.h"
#include "aggregator/dpdk/frame.h"
#include "bitmap/dtype.h"
#include "client/trace/trace_format.h"
#include "ebpf/wire.h"
#include "tests/fuzz/fuzz.h"

#define SCRIPTS 24

static const char *folder;

static void seed(const char *name, const void *data, size_t bytes)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	assert(file != NULL);
	if (fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
		abort();
}

/* ---- scripts: any bytes mean something ---- */

static void script_seeds(void)
{
	uint64_t state = 0x9e3779b97f4a7c15;

	for (uint32_t i = 0; i < SCRIPTS; i++) {
		size_t length = 64u << i % 6;
		uint8_t bytes[2048];
		char name[16];

		for (size_t k = 0; k < length; k++) {
			state = state * 6364136223846793005 + 1442695040888963407;
			bytes[k] = (uint8_t)(state >> 56);
		}
		snprintf(name, sizeof(name), "script-%u", i);
		seed(name, bytes, length);
	}
}

/* ---- frames ---- */

/* Byte 0 says what is done with it, see fuzz_frame.c: here, nothing. */
static void frame_seeds(void)
{
	static const uint8_t query[] = {1,    0, 0x5e, 0,  0, 1, 2,    0, 0, 0, 0, 9, 8,  0,
	                                0x45, 0, 0,    28, 0, 7, 0,    0, 1, 2, 0, 0, 10, 77,
	                                0,    9, 224,  0,  0, 1, 0x11, 0, 0, 0, 0, 0, 0,  0};
	static const uint8_t tag[] = {0x81, 0, 0x60, 0};
	const struct net_ip ours[] = {NET_IPV4(0x0a4d0065), {.bytes = {0xfd, 0x77, [15] = 0x65}}};
	const struct net_ip theirs[] = {NET_IPV4(0x0a4d0001), {.bytes = {0xfd, 0x77, [15] = 1}}};
	const struct net_ip groups[] = {NET_IPV4(0xefcd0007), {.bytes = {0xff, 0x15, [15] = 7}}};
	struct frame_route route = {.from_mac = {2, 0, 0, 0, 0, 1},
	                            .to_mac = {2, 0, 0, 0, 0, 2},
	                            .from_port = 49152,
	                            .to_port = 5555,
	                            .hops = 64};
	uint8_t bytes[160] = {0};

	for (uint32_t i = 0; i < 2; i++) {
		const struct frame_station us = {route.to_mac, ours[i]},
					   them = {route.from_mac, theirs[i]};
		uint32_t headers = frame_udp_bytes(&ours[i]);

		route.from_ip = theirs[i];
		route.to_ip = ours[i];
		memcpy(bytes + 1 + headers, "winnow!", 7);
		frame_udp(bytes + 1, &route, 7, frame_sum("winnow!", 7), false);
		seed(i == 0 ? "udp" : "udp6", bytes, 1 + headers + 7);
		frame_udp(bytes + 1, &route, 7, 0, true);
		seed(i == 0 ? "unfinished" : "unfinished6", bytes, 1 + headers + 7);
		memmove(bytes + 17, bytes + 13, headers - 12 + 7);
		memcpy(bytes + 13, tag, sizeof(tag));
		seed(i == 0 ? "tagged" : "tagged6", bytes, 1 + headers + 4 + 7);
		seed(i == 0 ? "ask" : "ask6", bytes, 1 + frame_ask(bytes + 1, &them, &us.ip));
		seed(i == 0 ? "answer" : "answer6", bytes, 1 + frame_answer(bytes + 1, &them, &us));
		seed(i == 0 ? "report" : "report6", bytes,
		     1 + frame_report(bytes + 1, &them, &groups[i]));
	}
	bytes[0] = 7; /* all is checked, and mended */
	memcpy(bytes + 1, query, sizeof(query));
	seed("query", bytes, 1 + sizeof(query));
	script_seeds();
}

/* ---- texts ---- */

/* Byte 0 says what it is, see fuzz_message.c; byte 1 in what pieces a stream is fed. */
static void message_seed(const char *name, const char *text)
{
	char input[LINES_BYTES_MAX + 3];
	int length = snprintf(input, sizeof(input), "%c%c%s", 0, '\a', text);

	seed(name, input, (size_t)length);
}

/* Nothing is left out of it, so its line has all fields of its kind. */
static struct control_message whole_message(enum control_kind kind)
{
	return (struct control_message){
		.kind = kind,
		.version = WIRE_VERSION,
		.job = "job",
		.host = "h",
		.channel_count = 2,
		.channels = {1, 2},
		.window = 64,
		.op_slots = 1,
		.segments_ahead = 1,
		.window_start = 1,
		.silence_ms = 1000,
		.stall_ms = 1000,
		.group = "239.77.1.2:5555",
		.data_address = "[fd00::1]:5555",
		.seen = {.rtt_us = 1, .frames = 1},
		.says = "s",
		.begun = "job/next.1",
		.of = 2,
		.waiting = 1,
		.drains = true,
		.next = "job/next.1",
		.code = "lost",
		.text = "why",
	};
}

/* The fields of that line for libFuzzer's dictionary: "\"rank\":0", the quotes escaped. */
static void dictionary_add(FILE *out, const char *line)
{
	json_t *root = json_loads(line, 0, NULL), *value;
	const char *name;

	assert(root != NULL);
	json_object_foreach(root, name, value)
	{
		char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

		assert(text != NULL);
		fprintf(out, "\"\\\"%s\\\":", name);
		for (const char *c = text; *c != '\0'; c++)
			fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
		fprintf(out, "\"\n");
		free(text);
	}
	json_decref(root);
}

static void message_seeds(void)
{
	const char keys[] = "\x02# keys\njob-a 0123456789\n* 9876543210\r\n\nabcdefgh\n";
	const char marked[] = "\x02\xef\xbb\xbfjob#1 key#12345 # c\n";
	char path[512];
	FILE *dictionary;

	snprintf(path, sizeof(path), "%s.dict", folder);
	dictionary = fopen(path, "we");
	assert(dictionary != NULL);
	for (int kind = CONTROL_HELLO; kind <= CONTROL_KINDS; kind++) {
		struct control_message message = whole_message((enum control_kind)kind);
		char name[16], *line = message_format(&message);

		assert(line != NULL);
		snprintf(name, sizeof(name), "message-%d", kind);
		message_seed(name, line);
		dictionary_add(dictionary, line);
		free(line);
	}
	if (fclose(dictionary) != 0)
		abort();
	message_seed("ping-of-no-frames", "{\"type\":\"ping\",\"rtt_us\":7,\"out\":9}\n");
	seed("keys", keys, sizeof(keys) - 1);
	seed("keys-marked", marked, sizeof(marked) - 1);
	script_seeds();
}

static void options_seeds(void)
{
	const char all[] = "--count=7\n--flag\n--size\n64K\0[fuzz]\ntext = hello\ncount = 9\n"
			   "join-time = 500ms\n\0WINNOW_REAL=0.25\nCOUNT=3\nWINNOW_RATE=10G";
	const char lines[] = "\0\xef\xbb\xbf# one\r\n[bench]\r\nabsurd\t: 3\r\n[fuzz] # two\r\n "
			     "text : a;b ;three\r\n"
			     "\r\n;four\ncount=9";
	const char arguments[] =
		"--counts\n3\n--choice=one\n--wait-ms=500\n--wait\n2s\n--count32=0";

	seed("all", all, sizeof(all) - 1);
	seed("lines", lines, sizeof(lines) - 1);
	seed("arguments", arguments, sizeof(arguments) - 1);
	seed("help", "--help", 6);
}

static void report_seeds(void)
{
	const char whole[] =
		"{\"version\":\"1\",\"uptime_s\":2,\"draining\":true,\"drops\":{\"stale\":3},"
		"\"last_failure\":{\"job\":\"x\",\"text\":\"why\",\"age_s\":2},\"jobs\":[{\"name\":"
		"\"j\",\"state\":\"forming\",\"state_s\":9,\"world\":2,\"members\":1,\"density\":0."
		"5,"
		"\"operations\":9,\"silence_limit_s\":1,\"slots\":{\"used\":3,\"total\":8},"
		"\"under_way\":2,\"operation\":{\"dtype\":\"f32\",\"op\":\"sum\",\"wire\":"
		"\"fixed32\",\"count\":100},\"waiting\":{\"for\":\"data\",\"waited_s\":6.5,"
		"\"missing\":2,\"ranks\":[1,3]},\"workers\":[{\"rank\":1,\"state\":\"missing\","
		"\"host\":\"h\",\"silent_s\":1.5}]}]}\0"
		"{\"version\":\"1\",\"uptime_s\":1,\"jobs\":[{\"name\":\"j\",\"operations\":3}]}";

	seed("whole", whole, sizeof(whole) - 1);
	seed("least", "{\"version\":\"1\",\"jobs\":[]}", 25);
}

/* ---- files ---- */

static void trace_seeds(void)
{
	const struct trace_head head = {.job = "j",
	                                .world = 2,
	                                .aggregators = 1,
	                                .channels = 1,
	                                .payload = 1472,
	                                .window = 64};
	struct trace_record record = {.kind = TRACE_OPERATION,
	                              .dtype = DTYPE_F32,
	                              .reduction = REDUCE_SUM,
	                              .block = 256,
	                              .fine = 4,
	                              .body_bytes = 3,
	                              .count = 1000};
	const uint8_t edges[] = {1, 250, 69, 38, 3};
	uint8_t bytes[1 + TRACE_HEAD_BYTES + 2 * TRACE_RECORD_BYTES + 3] = {0}, *at = bytes + 1;

	trace_head_put(&head, at);
	at += TRACE_HEAD_BYTES;
	trace_record_put(&record, at);
	at += TRACE_RECORD_BYTES;
	memcpy(at, edges + 2, 3);
	at += 3;
	record = (struct trace_record){.kind = TRACE_END, .operations = 1};
	trace_record_put(&record, at);
	seed("file", bytes, sizeof(bytes));
	seed("cut", bytes, sizeof(bytes) - 10);
	seed("edges", edges, sizeof(edges));
	script_seeds();
}

int main(int argc, char **argv)
{
	assert(argc == 3);
	folder = argv[2];
	if (strcmp(argv[1], "frame") == 0)
		frame_seeds();
	else if (strcmp(argv[1], "message") == 0)
		message_seeds();
	else if (strcmp(argv[1], "options") == 0)
		options_seeds();
	else if (strcmp(argv[1], "report") == 0)
		report_seeds();
	else if (strcmp(argv[1], "trace") == 0)
		trace_seeds();
	else
		script_seeds();
	return 0;
}
