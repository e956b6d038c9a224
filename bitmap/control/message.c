// SPDX-License-Identifier: BSD-3-Clause
/* message.c - one table says which fields a message has; parsing and printing both use it */

#include "bitmap/control/message.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebpf/wire.h"

enum field_kind {
	FIELD_U32,
	FIELD_U53, /* any number that JSON holds everywhere, below 2^53 */
	FIELD_BOOL,
	FIELD_NAME,     /* CONTROL_NAME_BYTES, any printable text */
	FIELD_JOB,      /* a valid name, perhaps with a membership */
	FIELD_TEXT,     /* CONTROL_TEXT_BYTES, made printable */
	FIELD_ADDRESS,  /* CONTROL_ADDRESS_BYTES: one host's IP address and port, or nothing */
	FIELD_GROUP,    /* the same for a multicast group that an operator may use */
	FIELD_BYTES32,  /* 64 hex digits */
	FIELD_HEX64,    /* 16 hex digits, because JSON numbers do not hold 64 bits everywhere */
	FIELD_CHANNELS, /* array of numbers, with channel_count */
};

/* What a field must be, for people. NULL for numbers, whose range is printed. */
static const char *const kind_wants[] = {
	[FIELD_BOOL] = "true or false",
	[FIELD_NAME] = "a text",
	[FIELD_JOB] = "1 to 64 letters, digits, '.', '_', '-', and one '/' at most",
	[FIELD_TEXT] = "a text",
	[FIELD_ADDRESS] = "a host's IP address and port, or empty",
	[FIELD_GROUP] =
		"a multicast address and port, neither 224.0.0.0/24 nor ff00::/12, or empty",
	[FIELD_BYTES32] = "64 lower-case hex digits",
	[FIELD_HEX64] = "16 lower-case hex digits",
	[FIELD_CHANNELS] = "1 to 64 different numbers below 65536",
};

struct field {
	const char *name;
	enum field_kind kind;
	size_t offset;
	uint64_t min, max;
	uint32_t used_by; /* bits 1 << enum control_kind, and MAY_MISS */
};

#define FORMAT_BYTES 2048 /* longer than any line */

#define BIT(kind) (1u << CONTROL_##kind)
#define MAY_MISS (1u << 31)
#define U53_MAX ((UINT64_C(1) << 53) - 1)
#define AT(member) offsetof(struct control_message, member)

static const struct field fields[] = {
	{"version", FIELD_U32, AT(version), 0, UINT32_MAX, BIT(HELLO) | BIT(JOIN)},
	{"software", FIELD_NAME, AT(software), 0, 0, BIT(HELLO) | BIT(JOIN)},
	{"job", FIELD_JOB, AT(job), 0, 0, BIT(JOIN) | BIT(STAY)},
	{"host", FIELD_NAME, AT(host), 0, 0, BIT(JOIN)},
	{"rank", FIELD_U32, AT(rank), 0, UINT32_MAX,
         BIT(JOIN) | BIT(LEFT) | BIT(FAILED) | BIT(STAY)},
	{"world", FIELD_U32, AT(world), 0, UINT32_MAX, BIT(JOIN)},
	{"payload", FIELD_U32, AT(payload), 0, UINT32_MAX,
         BIT(JOIN) | BIT(WELCOME) | BIT(READY) | BIT(START) | BIT(PATH)},
	{"rcvbuf", FIELD_U32, AT(rcvbuf), 0, UINT32_MAX, BIT(JOIN)},
	{"site", FIELD_NAME, AT(site), 0, 0, BIT(JOIN) | MAY_MISS},
	{"via", FIELD_HEX64, AT(via), 0, 0, BIT(JOIN) | MAY_MISS},
	{"silence_ms", FIELD_U32, AT(silence_ms), 100, 86400000, BIT(JOIN) | BIT(WELCOME)},
	{"stall_ms", FIELD_U32, AT(stall_ms), 100, 864000000, BIT(JOIN) | BIT(WELCOME)},
	{"channels", FIELD_CHANNELS, AT(channels), 0, UINT16_MAX, BIT(WELCOME)},
	{"seed", FIELD_BYTES32, AT(seed), 0, 0, BIT(WELCOME)},
	{"token", FIELD_HEX64, AT(token), 0, 0, BIT(WELCOME)},
	{"group_token", FIELD_HEX64, AT(group_token), 0, 0, BIT(WELCOME)},
	{"window", FIELD_U32, AT(window), 4, WIRE_WINDOW_MAX, BIT(WELCOME) | BIT(START)},
	{"op_slots", FIELD_U32, AT(op_slots), 1, 1024, BIT(WELCOME)},
	{"segments_ahead", FIELD_U32, AT(segments_ahead), 1, 64, BIT(WELCOME)},
	{"first_frame", FIELD_U32, AT(first_frame), 0, UINT32_MAX, BIT(WELCOME)},
	{"group", FIELD_GROUP, AT(group), 0, 0, BIT(WELCOME)},
	{"data_address", FIELD_ADDRESS, AT(data_address), 0, 0, BIT(WELCOME)},
	{"window_start", FIELD_U32, AT(window_start), 1, WIRE_WINDOW_MAX, BIT(START)},
	{"multicast", FIELD_BOOL, AT(multicast), 0, 0, BIT(READY) | BIT(START)},
	{"fast", FIELD_BOOL, AT(fast), 0, 0, BIT(START)},
	{"channel", FIELD_U32, AT(channel), 0, UINT16_MAX, BIT(PATH)},
	{"passing", FIELD_U32, AT(passing), 0, UINT32_MAX, BIT(PATH)},
	{"sent", FIELD_U32, AT(sent), 0, UINT32_MAX, BIT(PATH)},
	{"open", FIELD_U32, AT(open), 0, UINT32_MAX, BIT(PING) | MAY_MISS},
	{"tag", FIELD_HEX64, AT(tag), 0, 0, BIT(PING) | MAY_MISS},
	{"late", FIELD_TEXT, AT(text), 0, 0, BIT(PING) | MAY_MISS},
	{"says", FIELD_NAME, AT(says), 0, 0, BIT(PING) | MAY_MISS},
	{"rtt_us", FIELD_U32, AT(seen.rtt_us), 0, UINT32_MAX, BIT(PING) | MAY_MISS},
	{"rtt_least_us", FIELD_U32, AT(seen.rtt_least_us), 0, UINT32_MAX, BIT(PING) | MAY_MISS},
	{"frames", FIELD_U32, AT(seen.frames), 0, UINT32_MAX, BIT(PING) | MAY_MISS},
	{"held_window_us", FIELD_U53, AT(seen.held_window_us), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"held_credit_us", FIELD_U53, AT(seen.held_credit_us), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"out", FIELD_U53, AT(seen.out), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"out_marked", FIELD_U53, AT(seen.out_marked), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"pushes", FIELD_U53, AT(seen.pushes), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"out_lost", FIELD_U53, AT(seen.out_lost), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"in", FIELD_U53, AT(seen.in), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"in_marked", FIELD_U53, AT(seen.in_marked), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"in_lost", FIELD_U53, AT(seen.in_lost), 0, U53_MAX, BIT(PING) | MAY_MISS},
	{"without", FIELD_HEX64, AT(without), 0, 0, BIT(STAY) | BIT(NEXT)},
	{"begun", FIELD_JOB, AT(begun), 0, 0, BIT(STAY) | MAY_MISS},
	{"of", FIELD_U32, AT(of), 0, UINT32_MAX, BIT(STAY)},
	{"admit", FIELD_U32, AT(admit), 0, UINT32_MAX, BIT(STAY)},
	{"holds", FIELD_BOOL, AT(holds), 0, 0, BIT(STAY)},
	{"waiting", FIELD_U32, AT(waiting), 0, UINT32_MAX, BIT(PING) | MAY_MISS},
	{"drains", FIELD_BOOL, AT(drains), 0, 0, BIT(HELLO) | BIT(PING) | MAY_MISS},
	{"came", FIELD_U32, AT(came), 0, UINT32_MAX, BIT(NEXT)},
	{"next", FIELD_JOB, AT(next), 0, 0, BIT(NEXT)},
	{"next_rank", FIELD_U32, AT(next_rank), 0, UINT32_MAX, BIT(NEXT)},
	{"next_world", FIELD_U32, AT(next_world), 0, UINT32_MAX, BIT(NEXT)},
	{"code", FIELD_NAME, AT(code), 0, 0, BIT(FAILED) | BIT(ABORT)},
	{"text", FIELD_TEXT, AT(text), 0, 0, BIT(FAILED) | BIT(ABORT) | BIT(LEFT)},
};

#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

static const char *const kind_names[] = {
	[CONTROL_HELLO] = "hello",   [CONTROL_JOIN] = "join",   [CONTROL_WELCOME] = "welcome",
	[CONTROL_READY] = "ready",   [CONTROL_START] = "start", [CONTROL_PING] = "ping",
	[CONTROL_LEAVE] = "leave",   [CONTROL_LEFT] = "left",   [CONTROL_ABORT] = "abort",
	[CONTROL_FAILED] = "failed", [CONTROL_PATH] = "path",   [CONTROL_STAY] = "stay",
	[CONTROL_NEXT] = "next",
};

#define KIND_COUNT (sizeof(kind_names) / sizeof(kind_names[0]))
_Static_assert(KIND_COUNT == CONTROL_KINDS + 1, "the last kind is the last");

static size_t name_part(const char *text)
{
	size_t length = 0;

	while (isalnum((unsigned char)text[length]) ||
	       (text[length] != '\0' && strchr("._-", text[length]) != NULL))
		length++;
	return length;
}

bool message_name_valid(const char *name)
{
	size_t base = name_part(name), length = base, membership = 0;

	if (name[base] == '/') {
		membership = name_part(name + base + 1);
		if (membership == 0)
			return false;
		length += 1 + membership;
	}
	return base > 0 && name[length] == '\0' && base < CONTROL_NAME_BYTES &&
	       membership < CONTROL_NAME_BYTES;
}

size_t message_name_base(const char *name)
{
	return strcspn(name, "/");
}

bool message_name_is_next(const char *name)
{
	static const char next[] = "/" CONTROL_NEXT_NAME;

	return strncmp(name + message_name_base(name), next, strlen(next)) == 0;
}

static const char hex_digits[] = "0123456789abcdef";

bool message_hex_read(const char *text, uint8_t *out, size_t bytes)
{
	if (text == NULL || strlen(text) != bytes * 2 || strspn(text, hex_digits) != bytes * 2)
		return false;
	for (size_t i = 0; i < bytes * 2; i++) {
		uint8_t digit = (uint8_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);

		out[i / 2] = (uint8_t)(i % 2 == 0 ? digit << 4 : out[i / 2] | digit);
	}
	return true;
}

char *message_hex_write(const uint8_t *from, size_t bytes, char *out)
{
	for (size_t i = 0; i < bytes; i++) {
		out[2 * i] = hex_digits[from[i] >> 4];
		out[2 * i + 1] = hex_digits[from[i] & 15];
	}
	out[2 * bytes] = '\0';
	return out;
}

/* The most significant digit comes first, as in numbers that people write. */
static bool read_hex64(const char *text, uint64_t *out)
{
	uint64_t bytes;

	if (!message_hex_read(text, (uint8_t *)&bytes, sizeof(bytes)))
		return false;
	*out = be64toh(bytes);
	return true;
}

uint64_t message_name_number(const char *name)
{
	uint64_t number;

	if (!message_name_is_next(name) ||
	    !read_hex64(name + message_name_base(name) + sizeof(CONTROL_NEXT_NAME), &number))
		return 0;
	return number;
}

/* MEMBERS.md 3: "the membership has ended; only connections of workers that are lost or not ready are closed" */
bool message_code_continues(const char *code)
{
	static const char *const codes[] = {"lost", "gone", "path", "join_timeout", "udp_timeout"};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (strcmp(code, codes[i]) == 0)
			return true;
	return false;
}

/*
 * Peers' texts reach terminals and logs, often between quotes, so only printable ASCII passes, and
 * no character that ends a quote.
 */
static char char_printable(char c)
{
	if (c == '"')
		return '\'';
	return (char)(c >= ' ' && c <= '~' && c != '\\' ? c : '?');
}

static void text_printable(const char *text, char *out, size_t room)
{
	size_t length = 0;

	for (; text[length] != '\0' && length + 1 < room; length++)
		out[length] = char_printable(text[length]);
	out[length] = '\0';
}

/* ---- reading ---- */

static bool read_number(const json_t *value, const struct field *field, uint64_t *out)
{
	json_int_t number = json_integer_value(value);

	*out = (uint64_t)number;
	return json_is_integer(value) && number >= 0 && *out >= field->min && *out <= field->max;
}

static bool read_text(const json_t *value, char *out, size_t room)
{
	const char *text = json_string_value(value);

	if (text == NULL)
		return false;
	text_printable(text, out, room);
	return true;
}

/* 5.1: "A group is multicast, beyond 224.0.0.0/24 and ff00::/12". 5.1: "A data address is one host's" */
static bool ip_fits(const uint8_t *ip, bool six, enum field_kind kind)
{
	static const uint8_t none[16], mapped[12] = {[10] = 0xff, 0xff};
	bool group;

	if (six && memcmp(ip, mapped, sizeof(mapped)) == 0) {
		ip += sizeof(mapped);
		six = false;
	}
	group = six ? ip[0] == 0xff : ip[0] >> 4 == 14;
	if (kind == FIELD_GROUP)
		return group && (six ? ip[1] >> 4 != 0 : ip[0] != 224 || ip[1] != 0 || ip[2] != 0);
	return !group && memcmp(ip, none, six ? 16 : 4) != 0 && (six || ip[0] < 240);
}

/* Reads "1.2.3.4:5", "[fd00::1]:5" or "". */
static bool read_address(const json_t *value, enum field_kind kind, char *out)
{
	const char *text = json_string_value(value), *port;
	bool six = text != NULL && text[0] == '[';
	char host[CONTROL_ADDRESS_BYTES], end;
	uint8_t address[16];
	unsigned number;

	if (text == NULL || strlen(text) >= sizeof(host))
		return false;
	strcpy(out, text);
	if (text[0] == '\0')
		return true;
	snprintf(host, sizeof(host), "%s", text + six);
	port = strrchr(host, ':');
	if (port == NULL || port == host || sscanf(port, ":%5u%c", &number, &end) != 1 ||
	    number == 0 || number > UINT16_MAX || (six && port[-1] != ']'))
		return false;
	host[port - host - six] = '\0';
	return inet_pton(six ? AF_INET6 : AF_INET, host, address) == 1 &&
	       ip_fits(address, six, kind);
}

static bool read_channels(const json_t *value, const struct field *field,
                          struct control_message *out)
{
	size_t count = json_array_size(value);

	if (!json_is_array(value) || count == 0 || count > CONTROL_CHANNELS_MAX)
		return false;
	for (size_t i = 0; i < count; i++) {
		uint64_t channel;

		if (!read_number(json_array_get(value, i), field, &channel))
			return false;
		for (size_t before = 0; before < i; before++)
			if (out->channels[before] == channel)
				return false;
		out->channels[i] = (uint16_t)channel;
	}
	out->channel_count = (uint32_t)count;
	return true;
}

static bool read_field(const json_t *value, const struct field *field, struct control_message *out)
{
	void *at = (uint8_t *)out + field->offset;
	uint64_t number;

	switch (field->kind) {
	case FIELD_U32:
		if (!read_number(value, field, &number))
			return false;
		*(uint32_t *)at = (uint32_t)number;
		return true;
	case FIELD_U53:
		return read_number(value, field, at);
	case FIELD_BOOL:
		*(bool *)at = json_is_true(value);
		return json_is_boolean(value);
	case FIELD_JOB:
		return read_text(value, at, CONTROL_JOB_BYTES) && message_name_valid(at) &&
		       strcmp(at, json_string_value(value)) == 0;
	case FIELD_NAME:
		return read_text(value, at, CONTROL_NAME_BYTES);
	case FIELD_TEXT:
		return read_text(value, at, CONTROL_TEXT_BYTES);
	case FIELD_ADDRESS:
	case FIELD_GROUP:
		return read_address(value, field->kind, at);
	case FIELD_BYTES32:
		return message_hex_read(json_string_value(value), at, SECRET_BYTES);
	case FIELD_HEX64:
		return read_hex64(json_string_value(value), at);
	case FIELD_CHANNELS:
		return read_channels(value, field, out);
	}
	return false;
}

static bool read_kind(const json_t *root, enum control_kind *out)
{
	const char *name = json_string_value(json_object_get(root, "type"));

	for (size_t i = 1; name != NULL && i < KIND_COUNT; i++) {
		if (strcmp(name, kind_names[i]) != 0)
			continue;
		*out = (enum control_kind)i;
		return true;
	}
	return false;
}

/* "join: 'rank' is missing, or not a number from 0 to 4294967295" */
static int field_refuse(enum control_kind kind, const struct field *field, struct why *why)
{
	if (kind_wants[field->kind] == NULL)
		return why_set(why, -EINVAL,
		               "%s: '%s' is missing, or not a number from %" PRIu64 " to %" PRIu64,
		               kind_names[kind], field->name, field->min, field->max);
	return why_set(why, -EINVAL, "%s: '%s' is missing, or not %s", kind_names[kind],
	               field->name, kind_wants[field->kind]);
}

/* Wipes the digits of the seed, because the memory goes back to the allocator. */
static void root_free(json_t *root)
{
	const json_t *seed = json_object_get(root, "seed");

	if (json_is_string(seed))
		explicit_bzero((char *)json_string_value(seed), json_string_length(seed));
	json_decref(root);
}

int message_parse(const char *line, struct control_message *out, struct why *why)
{
	char quoted[81];
	json_error_t error;
	json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, &error);
	int err = 0;

	memset(out, 0, sizeof(*out));
	if (root == NULL) {
		/* The JSON parser's message quotes its input. */
		text_printable(error.text, quoted, sizeof(quoted));
		return why_set(why, -EINVAL, "not JSON: %s", quoted);
	}
	if (!json_is_object(root) || !read_kind(root, &out->kind)) {
		err = why_set(why, -EINVAL, "the message type is missing or unknown");
		goto done;
	}
	for (size_t i = 0; i < FIELD_COUNT; i++) {
		const struct field *field = &fields[i];
		const json_t *value = json_object_get(root, field->name);

		if (!(field->used_by & 1u << out->kind) ||
		    (value == NULL && (field->used_by & MAY_MISS)))
			continue;
		if (!read_field(value, field, out)) {
			err = field_refuse(out->kind, field, why);
			goto done;
		}
		/* 5.1: "A HELLO or JOIN with another one is read no further" */
		if (field->offset == AT(version) && out->version != WIRE_VERSION)
			break;
	}
	if (out->seen.frames == 0) /* it says nothing about its path */
		out->seen = (struct control_seen){0};
done:
	root_free(root);
	return err;
}

/* ---- writing ---- */

static void field_write(const struct control_message *message, const struct field *field,
                        char *line)
{
	const void *at = (const uint8_t *)message + field->offset;
	char text[CONTROL_TEXT_BYTES];

	text_add(line, FORMAT_BYTES, ",\"%s\":", field->name);
	switch (field->kind) {
	case FIELD_U32:
		text_add(line, FORMAT_BYTES, "%" PRIu32, *(const uint32_t *)at);
		break;
	case FIELD_U53:
		text_add(line, FORMAT_BYTES, "%" PRIu64, *(const uint64_t *)at & U53_MAX);
		break;
	case FIELD_BOOL:
		text_add(line, FORMAT_BYTES, *(const bool *)at ? "true" : "false");
		break;
	case FIELD_JOB:
	case FIELD_NAME:
	case FIELD_TEXT:
	case FIELD_ADDRESS:
	case FIELD_GROUP:
		text_printable(at, text, sizeof(text));
		text_add(line, FORMAT_BYTES, "\"%s\"", text);
		break;
	case FIELD_BYTES32:
		text_add(line, FORMAT_BYTES, "\"%s\"", message_hex_write(at, SECRET_BYTES, text));
		explicit_bzero(text, sizeof(text));
		break;
	case FIELD_HEX64:
		text_add(line, FORMAT_BYTES, "\"%016" PRIx64 "\"", *(const uint64_t *)at);
		break;
	case FIELD_CHANNELS:
		text_add(line, FORMAT_BYTES, "[");
		for (uint32_t i = 0; i < message->channel_count; i++)
			text_add(line, FORMAT_BYTES, "%s%u", i > 0 ? "," : "",
			         message->channels[i]);
		text_add(line, FORMAT_BYTES, "]");
		break;
	}
}

/* 5.1: "All fields may be missing, and are then 0, false or empty" */
static bool left_out(const struct control_message *message, const struct field *field)
{
	const void *at = (const uint8_t *)message + field->offset;

	if (!(field->used_by & MAY_MISS))
		return false;
	if (field->kind == FIELD_U32)
		return *(const uint32_t *)at == 0;
	if (field->kind == FIELD_U53 || field->kind == FIELD_HEX64)
		return *(const uint64_t *)at == 0;
	return *(const char *)at == '\0';
}

char *message_format(const struct control_message *message)
{
	char text[FORMAT_BYTES] = "", *line;

	text_add(text, sizeof(text), "{\"type\":\"%s\"", kind_names[message->kind]);
	for (size_t i = 0; i < FIELD_COUNT; i++)
		if (fields[i].used_by & 1u << message->kind && !left_out(message, &fields[i]))
			field_write(message, &fields[i], text);
	text_add(text, sizeof(text), "}\n");
	assert(strlen(text) + 1 < sizeof(text));
	line = strdup(text);
	explicit_bzero(text, sizeof(text)); /* it may hold a seed */
	return line;
}

void message_free(char *line)
{
	if (line != NULL)
		explicit_bzero(line, strlen(line));
	free(line);
}
