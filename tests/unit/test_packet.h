/* SPDX-License-Identifier: BSD-3-Clause */
/* test_packet.h - docs/vectors/packets.txt, for the tests of packet.c */
#ifndef TESTS_UNIT_TEST_PACKET_H
#define TESTS_UNIT_TEST_PACKET_H

#include "ebpf/packet.h"
#include "tests/unit/test_vectors.h"

#define VECTORS_MAX 64
#define TEXT_BYTES 4096
#define PACKET_BYTES 512

struct vector {
	char name[64];
	char text[TEXT_BYTES]; /* its fields, a line each */
	uint8_t bytes[PACKET_BYTES];
	uint32_t byte_count;
};

static struct vector vectors[VECTORS_MAX];
static size_t vector_count;

static inline void vector_add(struct paragraph *p)
{
	struct vector *v = &vectors[vector_count++];

	assert_true(vector_count <= VECTORS_MAX);
	strcpy(v->name, p->name);
	v->byte_count = bytes_of(p, "hex", v->bytes);
	assert_true(v->byte_count <= PACKET_BYTES);
	for (uint32_t i = 0; i < p->count; i++)
		if (strcmp(p->lines[i].key, "hex") != 0)
			sprintf(v->text + strlen(v->text), "%s %s\n", p->lines[i].key,
			        p->lines[i].value);
}

static inline int vectors_load(void **state)
{
	paragraphs_each(VECTORS "packets.txt", vector_add);
	return 0;
}

static inline const struct vector *vector_named(const char *name)
{
	for (size_t i = 0; i < vector_count; i++)
		if (strcmp(vectors[i].name, name) == 0)
			return &vectors[i];
	fail_msg("no vector %s", name);
	return NULL;
}

static inline enum wire_drop vector_parse(const struct vector *v, struct packet *out)
{
	return packet_parse(v->bytes, v->byte_count, v->bytes[3] & WIRE_TO_WORKER, out);
}

#endif /* TESTS_UNIT_TEST_PACKET_H */
