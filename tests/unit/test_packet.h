/* SPDX-License-Identifier: BSD-3-Clause */
/* test_packet.h - docs/vectors/packets.txt, for the tests of packet.c */
#ifndef TESTS_UNIT_TEST_PACKET_H
#define TESTS_UNIT_TEST_PACKET_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebpf/packet.h"
#include "tests/unit/unit.h"

#define VECTORS "docs/vectors/packets.txt"
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

static inline void read_hex(struct vector *v, const char *hex)
{
	for (unsigned byte; sscanf(hex, "%2x", &byte) == 1; hex += 2) {
		assert_true(v->byte_count < PACKET_BYTES);
		v->bytes[v->byte_count++] = (uint8_t)byte;
	}
}

static inline void read_line(const char *line)
{
	struct vector *v = vector_count > 0 ? &vectors[vector_count - 1] : NULL;

	if (line[0] == '#' || line[0] == '\n')
		return;
	if (strncmp(line, "packet ", 7) == 0) {
		assert_true(vector_count < VECTORS_MAX);
		v = &vectors[vector_count++];
		assert_int_equal(sscanf(line, "packet %63s", v->name), 1);
		return;
	}
	assert_non_null(v);
	if (strncmp(line, "hex ", 4) == 0)
		read_hex(v, line + 4);
	else
		strncat(v->text, line, TEXT_BYTES - strlen(v->text) - 1);
}

static inline int vectors_load(void **state)
{
	FILE *file = fopen(VECTORS, "r");
	char line[1024];

	(void)state;
	if (file == NULL) {
		fprintf(stderr, "no %s: run from the root of the repository\n", VECTORS);
		return -1;
	}
	while (fgets(line, sizeof(line), file) != NULL)
		read_line(line);
	fclose(file);
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
