// SPDX-License-Identifier: BSD-3-Clause
/* test_packet_refused.c - what is no packet, and the reason that it is dropped for */

#include "tests/unit/test_packet.h"

/* As the machines read it: the header, then the body. A packet of `bytes` bytes, exactly. */
static enum wire_drop read_packet(const uint8_t *data, uint32_t bytes, bool to_worker)
{
	uint8_t *copy = malloc(bytes > 0 ? bytes : 1); /* a sanitizer sees reads past it */
	enum wire_drop drop;
	struct announce announce;
	struct status status;
	struct plan plan;
	struct packet p;

	assert_non_null(copy);
	memcpy(copy, data, bytes);
	drop = packet_parse(copy, bytes, to_worker, &p);
	if (drop == WIRE_DROP_NONE && p.kind == WIRE_ANNOUNCE)
		drop = announce_parse(&p, &announce);
	if (drop == WIRE_DROP_NONE && p.kind == WIRE_PLAN)
		drop = plan_parse(&p, &plan);
	if (drop == WIRE_DROP_NONE && (p.kind & 0x7f) == WIRE_STATUS)
		drop = status_parse(&p, &status);
	free(copy);
	return drop;
}

/* What a packet of this kind, cut to this length, is: section 2.2's last column. */
static enum wire_drop drop_at(uint8_t kind, uint32_t bytes, bool mismatch, bool eager)
{
	if (bytes < 32)
		return WIRE_DROP_SHORT;
	switch (kind) {
	case 1:
		if (bytes < 80)
			return WIRE_DROP_SHORT;
		return eager && bytes < 80 + 2 + 1 ? WIRE_DROP_LENGTH : WIRE_DROP_NONE;
	case 0x81:
		if (bytes < 56)
			return WIRE_DROP_SHORT;
		if (eager && bytes < 56 + 2 + 1)
			return WIRE_DROP_LENGTH;
		return mismatch && bytes != 80 ? WIRE_DROP_LENGTH : WIRE_DROP_NONE;
	case 3:
	case 0x83:
		if (bytes < 48)
			return WIRE_DROP_SHORT;
		return bytes % 8 != 0 || bytes > 176 ? WIRE_DROP_LENGTH : WIRE_DROP_NONE;
	default:
		return WIRE_DROP_NONE;
	}
}

/* Every length, shorter and longer. The machines check lengths that depend on contents. */
TEST(lengths)
{
	for (size_t i = 0; i < vector_count; i++) {
		const struct vector *v = &vectors[i];
		bool mismatch = strcmp(v->name, "plan-mismatch") == 0;
		bool eager = strstr(v->name, "-eager") != NULL; /* with a set of one byte */
		uint8_t bytes[PACKET_BYTES] = {0};

		memcpy(bytes, v->bytes, v->byte_count);
		for (uint32_t n = 0; n < v->byte_count + 150; n++)
			assert_int_equal(read_packet(bytes, n, v->bytes[3] & WIRE_TO_WORKER),
			                 drop_at(v->bytes[3], n, mismatch, eager));
	}
}

TEST(header_refused)
{
	const struct vector *v = vector_named("status");

	for (unsigned at = 0; at < 3; at++) {
		for (unsigned value = 0; value < 256; value++) {
			uint8_t bytes[32];

			memcpy(bytes, v->bytes, sizeof(bytes));
			bytes[at] = (uint8_t)value;
			if (value == v->bytes[at])
				continue;
			assert_int_equal(read_packet(bytes, 32, false),
			                 at < 2 ? WIRE_DROP_MAGIC : WIRE_DROP_VERSION);
		}
	}
}

/* Unknown kinds, and known ones in the wrong direction. */
TEST(kind_refused)
{
	const char *known = "\1\2\3\4\x81\x82\x83\x84\x85";
	uint8_t bytes[80] = {0};

	memcpy(bytes, vector_named("status")->bytes, 32);
	for (unsigned kind = 0; kind < 256; kind++) {
		bool is_known = kind != 0 && strchr(known, (int)kind) != NULL;
		struct packet p;

		bytes[3] = (uint8_t)kind;
		for (unsigned to_worker = 0; to_worker < 2; to_worker++) {
			bool right = is_known && (kind >= 0x80) == (to_worker == 1);
			enum wire_drop drop = packet_parse(bytes, 80, to_worker, &p);

			assert_int_equal(drop == WIRE_DROP_KIND, !right);
		}
	}
}

/*
 * A flag that is not known here may change what the rest means, or ask for something; not both all and none; and
 * behind these two there is no set's length, which others that are eager have.
 */
TEST(flags_refused)
{
	static const struct {
		const char *vector;
		unsigned at, end;
		bool sets;
	} places[] = {{"announce-all", 79, 32, true},
	              {"plan-all", 52, 16, true},
	              {"status", 36, 2, false}};

	for (unsigned i = 0; i < 3; i++) {
		const struct vector *v = vector_named(places[i].vector);
		uint8_t bytes[PACKET_BYTES];

		memcpy(bytes, v->bytes, v->byte_count);
		for (unsigned flags = 0; flags < 256; flags++) {
			bool odd = places[i].sets && ((flags & 3) == 3 || (flags & 7) == 4);

			bytes[places[i].at] = (uint8_t)flags;
			assert_int_equal(read_packet(bytes, v->byte_count, i == 1),
			                 flags < places[i].end && !odd ? WIRE_DROP_NONE
			                                               : WIRE_DROP_LENGTH);
		}
	}
}

TEST(plan_refused)
{
	const struct vector *v = vector_named("plan-all");
	uint8_t bytes[80] = {0};

	memcpy(bytes, v->bytes, 56);
	memset(bytes + 44, 0, 4);
	assert_int_equal(read_packet(bytes, 56, true), WIRE_DROP_LENGTH); /* no frames */
	bytes[47] = 0x80;
	assert_int_equal(read_packet(bytes, 56, true), WIRE_DROP_NONE);
	for (unsigned status = 1; status < 0x10000; status++) {
		bytes[48] = (uint8_t)status;
		bytes[49] = (uint8_t)(status >> 8);
		assert_int_equal(read_packet(bytes, 80, true),
		                 status == 1 ? WIRE_DROP_NONE : WIRE_DROP_LENGTH);
	}
}

int main(void)
{
	return unit_run(vectors_load, NULL);
}
