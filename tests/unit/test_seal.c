// SPDX-License-Identifier: BSD-3-Clause
/* test_seal.c - seals and their keys: docs/vectors/seal.txt, and every way to be wrong */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/job_keys.h"
#include "ebpf/seal.h"
#include "tests/flatten.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_vectors.h"

static struct seal_stretch stretch;
static struct seal_key group_key, worker_key;

/* ---- vectors ---- */

static void check_sip(const struct paragraph *p)
{
	uint8_t bytes[16];
	struct seal_key key;
	uint64_t words[8];
	struct sip sip;
	uint32_t count = bytes_of(p, "text", (uint8_t *)words);

	assert_int_equal(hex_read(text_of(p, "key"), bytes), 16);
	memcpy(&key, bytes, sizeof(key));
	sip_begin(&sip, &key);
	for (uint32_t i = 0; i < count / 8; i++)
		sip_word(&sip, words[i]);
	assert_true(sip_end(&sip, count) == number_of(p, "hash"));
}

static void expect_bytes(const struct paragraph *p, const char *key, const void *made,
                         uint32_t count)
{
	uint8_t want[VALUE_BYTES / 2];

	assert_int_equal(bytes_of(p, key, want), count);
	assert_memory_equal(made, want, count);
}

static void check_key(const struct paragraph *p)
{
	struct job_key key;

	assert_int_equal(job_key_from_text(text_of(p, "text"), &key), 0);
	expect_bytes(p, "key", key.bytes, sizeof(key.bytes));
}

static void check_keys(const struct paragraph *p)
{
	uint8_t seed[SECRET_BYTES];
	struct seed_keys keys;

	assert_int_equal(bytes_of(p, "seed", seed), sizeof(seed));
	assert_int_equal(bytes_of(p, "worker", (uint8_t *)&worker_key), sizeof(worker_key));
	assert_int_equal(seed_expand(seed, &keys), 0);
	stretch = keys.stretch;
	group_key = keys.group;
	expect_bytes(p, "stretch_begin", &stretch, 32);
	expect_bytes(p, "stretch_end", (const uint8_t *)&stretch + SEAL_STRETCH_BYTES - 32, 32);
	expect_bytes(p, "group", &group_key, 16);
}

static void check_seal(const struct paragraph *p)
{
	const struct seal_key *key = text_of(p, "by")[0] == 'w' ? &worker_key : &group_key;
	const uint64_t edge = number_of(p, "edge");
	uint8_t bytes[8192];
	uint32_t count = bytes_of(p, "hex", bytes);

	assert_true(seal_right(bytes, count, &stretch, key, edge));
	assert_true(seal_right(bytes, count, &stretch, key, edge + 9));
}

static struct {
	const char *kind;
	void (*check)(const struct paragraph *);
	uint32_t left;
} kinds[] = {{"sip", check_sip, 5},
             {"key", check_key, 3},
             {"keys", check_keys, 1},
             {"seal", check_seal, 9}};

static void check_kind(struct paragraph *p)
{
	for (uint32_t i = 0; i < 4; i++)
		if (strcmp(p->kind, kinds[i].kind) == 0) {
			kinds[i].check(p);
			kinds[i].left--;
		}
}

TEST(vectors)
{
	paragraphs_each(VECTORS "seal.txt", check_kind);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(kinds[i].left, 0);
}

/* ---- datagrams ---- */

/* A packet whose data is in pieces that end anywhere. */
static void packet_make(struct packet_out *out, const uint8_t *data, uint32_t bytes,
                        uint32_t pieces)
{
	struct wire_header head = {.kind = WIRE_PUSH,
	                           .channel = 7,
	                           .worker = 3,
	                           .frame = 100,
	                           .edge = 90,
	                           .pushed = 5};

	packet_begin(out, &head);
	for (uint32_t i = 0; i < pieces && bytes > 0; i++) {
		uint32_t now = i + 1 == pieces ? bytes : (uint32_t)random_below(bytes + 1);

		/* From elsewhere each time, or they would be merged. */
		uint8_t *copy = malloc(now + 1);

		memcpy(copy, data, now);
		packet_point(out, copy, now);
		if (now == 0)
			free(copy);
		data += now;
		bytes -= now;
	}
}

static void packet_free(struct packet_out *out)
{
	for (uint32_t i = 1; i < out->piece_count; i++)
		free(out->pieces[i].iov_base);
}

TEST(pieces)
{
	static uint8_t data[65535 - WIRE_HEADER_BYTES], flat[65535]; /* as long as UDP has them */
	uint64_t edge = UINT64_C(0x300000000) + 60;

	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)random_below(256);
	for (uint32_t round = 0; round < 2000; round++) {
		uint32_t bytes = (uint32_t)random_below(round % 2 ? 5000 : 80);
		struct packet_out out;

		if (round == 0)
			bytes = sizeof(data);
		packet_make(&out, data, bytes, 1 + (uint32_t)random_below(6));
		seal_write(&out, &stretch, &worker_key, edge);
		packet_flatten(&out, flat);
		assert_true(seal_right(flat, out.bytes, &stretch, &worker_key, edge));
		packet_free(&out);
	}
}

/* Each single bit, each length, the other key, another turn of the numbers, another stretch. */
TEST(wrong)
{
	static const uint32_t sizes[] = {0, 1, 7, 8, 64, 1440, 4095, 4096, 4097};
	static uint8_t data[4097], flat[4200];
	const uint64_t edge = UINT64_C(0x2fffffff0);

	for (uint32_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct seal_stretch other = stretch;
		struct packet_out out;

		packet_make(&out, data, sizes[s], 1);
		seal_write(&out, &stretch, &worker_key, edge);
		packet_flatten(&out, flat);
		packet_free(&out);
		for (uint32_t bit = 0; bit < out.bytes * 8; bit++) {
			flat[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_false(seal_right(flat, out.bytes, &stretch, &worker_key, edge));
			flat[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		assert_true(seal_right(flat, out.bytes, &stretch, &worker_key, edge));
		assert_false(seal_right(flat, out.bytes + 1, &stretch, &worker_key, edge));
		if (sizes[s] > 0)
			assert_false(seal_right(flat, out.bytes - 1, &stretch, &worker_key, edge));
		assert_false(seal_right(flat, out.bytes, &stretch, &group_key, edge));
		assert_false(seal_right(flat, out.bytes, &stretch, &worker_key,
		                        edge + (UINT64_C(1) << 32)));
		assert_false(seal_right(flat, out.bytes, &stretch, &worker_key,
		                        edge - (UINT64_C(1) << 32)));
		other.pairs[0] ^= 1;
		assert_int_equal(seal_right(flat, out.bytes, &other, &worker_key, edge),
		                 sizes[s] == 0);
	}
}
