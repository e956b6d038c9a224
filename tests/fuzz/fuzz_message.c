// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_message.c - lines, messages and key files from strangers, and messages there and back
 *
 * Byte 0 says which: 0 a byte stream from a peer, 1 a message with any contents that we send,
 * 2 a key file.
 */

#include <errno.h>
#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bitmap/control/lines.h"
#include "bitmap/control/message.h"
#include "bitmap/control/job_keys.h"
#include "ebpf/wire.h"
#include "tests/fuzz/fuzz.h"

/* Peers' texts reach terminals and, between double quotes, logs. */
static void check_printable(const char *text, size_t room)
{
	size_t length = strnlen(text, room);

	assert(length < room);
	for (size_t i = 0; i < length; i++)
		assert(text[i] >= ' ' && text[i] <= '~' && text[i] != '"' && text[i] != '\\');
}

static void check_message(const struct control_message *m)
{
	bool first = m->kind == CONTROL_HELLO || m->kind == CONTROL_JOIN;

	assert(m->kind >= CONTROL_HELLO && m->kind <= CONTROL_KINDS);
	if (first && m->version != WIRE_VERSION)
		return; /* nothing else has been read */
	assert(m->channel_count <= CONTROL_CHANNELS_MAX);
	assert(m->kind != CONTROL_WELCOME || m->channel_count > 0);
	assert(m->kind != CONTROL_JOIN || message_name_valid(m->job));
	assert(m->next[0] == '\0' || (m->kind == CONTROL_NEXT && message_name_valid(m->next)));
	assert(m->seen.frames != 0 || (m->seen.rtt_us | m->seen.out | m->seen.in_lost) == 0);
	check_printable(m->software, sizeof(m->software));
	check_printable(m->job, sizeof(m->job));
	check_printable(m->host, sizeof(m->host));
	check_printable(m->says, sizeof(m->says));
	check_printable(m->group, sizeof(m->group));
	check_printable(m->data_address, sizeof(m->data_address));
	check_printable(m->code, sizeof(m->code));
	check_printable(m->text, sizeof(m->text));
}

/* The line is the one that JSON's library would have written. */
static void check_json(const char *line)
{
	json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
	char *again = json_dumps(root, JSON_COMPACT);

	assert(root != NULL && again != NULL);
	assert(strncmp(line, again, strlen(again)) == 0 && strcmp(line + strlen(again), "\n") == 0);
	free(again);
	json_decref(root);
}

/* What was read is written so that it reads the same, in one line of legal length. */
static void check_round_trip(const struct control_message *message)
{
	char *line = message_format(message);
	struct why why;
	struct control_message again;
	size_t length;

	assert(line != NULL);
	length = strlen(line);
	assert(length < LINES_BYTES_MAX && line[length - 1] == '\n');
	assert(strcspn(line, "\n") == length - 1);
	check_json(line);
	assert(message_parse(line, &again, &why) == 0);
	assert(memcmp(message, &again, sizeof(again)) == 0);
	free(line);
}

/* ---- from a peer ---- */

struct taken {
	uint32_t count;
	uint64_t hash; /* of all lines, to compare two ways of feeding */
};

static int take_line(void *context, const char *line)
{
	struct taken *taken = context;
	struct control_message message;
	char *copy = exact_copy(line, strlen(line) + 1);
	struct why why;

	memset(&why, 'x', sizeof(why));
	assert(strlen(line) + 1 < LINES_BYTES_MAX && strchr(line, '\n') == NULL);
	if (message_parse(copy, &message, &why) == 0) {
		check_message(&message);
		check_round_trip(&message);
	} else {
		check_printable(why.text, sizeof(why.text));
	}
	free(copy);
	taken->count++;
	for (const char *c = line; *c != '\0'; c++)
		taken->hash = taken->hash * 31 + (uint8_t)*c;
	taken->hash = taken->hash * 31 + '\n';
	return 0;
}

/* However the stream is cut, the same lines come out, and the same end. */
static void peer_bytes(struct script *s)
{
	struct lines *whole = calloc(1, sizeof(*whole)), *cut = calloc(1, sizeof(*cut));
	struct taken first = {0}, second = {0};
	size_t piece = 1 + script_u8(s) % 32u, at = 0;
	char *data = exact_copy(s->at, s->left);
	int want, got = 0;

	assert(whole != NULL && cut != NULL);
	want = lines_feed(whole, data, s->left, take_line, &first);
	assert(want == 0 || want == -EMSGSIZE);
	for (; got == 0 && at < s->left; at += piece)
		got = lines_feed(cut, data + at, s->left - at < piece ? s->left - at : piece,
		                 take_line, &second);
	assert(got == want && first.count == second.count && first.hash == second.hash);
	free(data);
	free(whole);
	free(cut);
}

/* ---- from us ---- */

static uint32_t within(uint32_t value, uint32_t low, uint32_t high)
{
	return low + value % (high - low + 1);
}

/* Any text that our own code may have put together, cut anywhere. */
static void our_text(struct script *s, char *out, size_t room)
{
	size_t length = script_below(s, (uint32_t)room);

	for (size_t i = 0; i < length; i++)
		out[i] = (char)script_u8(s);
}

/* What is between HELLO and START. */
static void our_join(struct script *s, struct control_message *m)
{
	m->rank = script_u32(s);
	m->world = script_u32(s);
	m->payload = script_u32(s);
	m->rcvbuf = script_u32(s);
	m->silence_ms = within(script_u32(s), 100, 86400000);
	m->stall_ms = within(script_u32(s), 100, 864000000);
	m->channel_count = within(script_u8(s), 1, CONTROL_CHANNELS_MAX);
	for (uint32_t i = 0; i < m->channel_count; i++)
		m->channels[i] =
			(uint16_t)(script_u16(s) / CONTROL_CHANNELS_MAX * CONTROL_CHANNELS_MAX + i);
	m->token = script_u64(s);
	m->group_token = script_u64(s);
	m->first_frame = script_u32(s);
	m->window = within(script_u16(s), 4, 8192);
	m->window_start = within(script_u16(s), 1, 8192);
	m->op_slots = within(script_u16(s), 1, 1024);
	m->segments_ahead = within(script_u16(s), 1, 64);
	strcpy(m->begun, script_u8(s) & 1 ? "job/next.0123456789abcdef" : "");
	strcpy(m->group, script_u8(s) & 1 ? "[ff15::1]:5555" : "");
	strcpy(m->data_address, script_u8(s) & 1 ? "10.0.0.1:65535" : "");
	strcpy(m->job, script_u8(s) & 1 ? "job" : "job/next.0123456789abcdef");
	script_fill(s, m->seed, sizeof(m->seed));
	our_text(s, m->software, sizeof(m->software));
	our_text(s, m->host, sizeof(m->host));
}

/* What is said of a job that runs, and when it ends. */
static void our_run(struct script *s, struct control_message *m)
{
	m->channel = script_u16(s);
	m->passing = script_u32(s);
	m->sent = script_u32(s);
	m->open = script_u32(s);
	m->tag = script_u64(s);
	script_fill(s, (uint8_t *)&m->seen, sizeof(m->seen));
	m->seen.frames *= script_u8(s) & 1;
	m->without = script_u64(s);
	m->waiting = script_u32(s) * (script_u8(s) & 1);
	m->admit = m->came = script_u32(s);
	m->of = script_u32(s);
	m->next_rank = m->next_world = script_u32(s);
	strcpy(m->next, script_u8(s) & 1 ? "job/next.0123456789abcdef" : "job");
	our_text(s, m->says, sizeof(m->says));
	our_text(s, m->code, sizeof(m->code));
	our_text(s, m->text, sizeof(m->text));
}

static void our_message(struct script *s)
{
	struct control_message message = {0}, again;
	uint8_t flags;
	char *line;
	struct why why;

	message.kind = (enum control_kind)(1 + script_u8(s) % CONTROL_KINDS);
	message.version = script_u8(s) == 0 ? script_u32(s) : WIRE_VERSION;
	flags = script_u8(s);
	message.multicast = flags & 1;
	message.fast = message.holds = flags & 2;
	message.drains = flags & 4;
	our_join(s, &message);
	our_run(s, &message);
	line = message_format(&message);
	assert(line != NULL);
	check_json(line);
	assert(message_parse(line, &again, &why) == 0);
	check_message(&again);
	assert(again.kind == message.kind);
	check_round_trip(&again);
	free(line);
}

/* ---- key files ---- */

static void key_file(struct script *s)
{
	int fd = memfd_create("keys", 0);
	struct job_keys *keys = NULL;
	struct job_key key;
	char path[64];
	struct why why;
	int err;

	assert(fd >= 0 && write(fd, s->at, s->left) == (ssize_t)s->left);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = job_keys_load(path, NULL, &keys, &why);
	if (err == 0) {
		job_keys_find(keys, "job", &key);
		job_keys_free(keys);
	} else {
		assert(keys == NULL && strnlen(why.text, sizeof(why.text)) < sizeof(why.text));
		assert(strchr(why.text, '\n') == NULL);
	}
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct script script = {.at = data, .left = bytes};

	switch (script_u8(&script) % 3) {
	case 0:
		peer_bytes(&script);
		break;
	case 1:
		our_message(&script);
		break;
	default:
		key_file(&script);
	}
	return 0;
}
