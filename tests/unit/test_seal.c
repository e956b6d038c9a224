// SPDX-License-Identifier: BSD-3-Clause
/* test_seal.c - seals and their keys: docs/vectors/seal.txt, and every way to be wrong */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "bitmap/control/line_proof.h"
#include "ebpf/seal.h"
#include "tests/flatten.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_vectors.h"

static struct seal_stretch stretch;
static struct seal_key group_key, worker_key;
static struct line_proof to_aggregator, to_worker;

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

static void check_keys(const struct paragraph *p)
{
	const uint32_t world = (uint32_t)number_of(p, "world");
	const char *job = text_of(p, "job");
	struct transcript transcript = {0};
	struct job_secret secret;
	struct proof_key key;
	uint8_t salt[32];

	assert_int_equal(bytes_of(p, "salt", salt), sizeof(salt));
	assert_int_equal(proof_key_from_text(text_of(p, "key"), &key), 0);
	for (uint32_t i = 0; i < p->count; i++)
		if (strcmp(p->lines[i].key, "line") == 0)
			transcript_add(&transcript, p->lines[i].value);
	job_secret_make(&key, salt, (uint32_t)number_of(p, "epoch"), job, world, &secret);
	seal_stretch_make(&secret, &stretch);
	seal_group_key(&secret, &group_key);
	seal_worker_key(&secret, &transcript, &worker_key);
	line_proofs_make(&secret, &transcript, &to_aggregator, &to_worker);
	if (sodium_is_zero(salt, sizeof(salt))) /* from JOIN to WELCOME */
		line_proofs_early(&key, job, world, &transcript, &to_aggregator, &to_worker);
	to_aggregator.on = to_worker.on = true;
	expect_bytes(p, "transcript", transcript.hash, 32);
	expect_bytes(p, "stretch_begin", &stretch, 32);
	expect_bytes(p, "stretch_end", (const uint8_t *)&stretch + SEAL_STRETCH_BYTES - 32, 32);
	expect_bytes(p, "group", &group_key, 16);
	expect_bytes(p, "worker", &worker_key, 16);
}

static void check_proof(const struct paragraph *p)
{
	struct line_proof *way = text_of(p, "to")[0] == 'w' ? &to_worker : &to_aggregator;
	const uint64_t number = number_of(p, "number");
	char text[256], *line;

	way->next = number;
	snprintf(text, sizeof(text), "%s %s\n", text_of(p, "proof"), text_of(p, "said"));
	line = line_prove(way, strdup(strchr(text, ' ') + 1));
	assert_string_equal(line, text);
	free(line);
	assert_true(way->next == number + 1);
	way->next = number;
	text[strcspn(text, "\n")] = '\0';
	assert_string_equal(line_proven(way, text), text_of(p, "said"));
}

static void check_nh(const struct paragraph *p)
{
	uint8_t padded[SEAL_CHUNK + 8] = {0};
	uint64_t sums[2];

	seal_nh(&stretch, padded, (bytes_of(p, "data", padded) + 7) / 8 * 8, sums);
	assert_true(sums[0] == number_of(p, "first") && sums[1] == number_of(p, "second"));
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

TEST(vectors)
{
	static const struct {
		const char *kind;
		void (*check)(const struct paragraph *);
		uint32_t count;
	} kinds[] = {{"sip", check_sip, 5},
	             {"keys", check_keys, 2},
	             {"proof", check_proof, 6},
	             {"nh", check_nh, 4},
	             {"seal", check_seal, 9}};
	FILE *file = fopen(VECTORS "seal.txt", "r");
	static struct paragraph p;
	uint32_t checked[5] = {0};

	while (paragraph_read(file, &p))
		for (uint32_t i = 0; i < 5; i++)
			if (strcmp(p.kind, kinds[i].kind) == 0) {
				kinds[i].check(&p);
				checked[i]++;
			}
	fclose(file);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(checked[i], kinds[i].count);
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

/* ---- lines ---- */

/* What arrives in place of the lines that were sent is seen: it is NULL. */
static void assert_taken(struct line_proof way, const char *line, bool taken)
{
	assert_true((line_proven(&way, line) != NULL) == taken);
}

TEST(lines)
{
	struct line_proof out = {.on = true, .key = {1}}, other = {.on = true, .key = {2}},
			  in = out;
	char *first = line_prove(&out, strdup("{\"type\":\"ping\"}")), *second, *theirs;

	second = line_prove(&out, strdup("{\"type\":\"ping\"}"));
	theirs = line_prove(&other, strdup("{\"type\":\"ping\"}"));
	assert_string_not_equal(first, second);
	assert_taken(in, first, true);
	assert_taken(in, second, true); /* one was held back */
	assert_taken(in, theirs, false);
	assert_taken(in, strchr(first, ' ') + 1, false);
	assert_taken(in, "", false);
	for (size_t at = 0; at < strlen(first); at++) {
		first[at] ^= 1;
		assert_taken(in, first, false);
		first[at] ^= 1;
	}
	for (size_t left = strlen(first); left-- > 0;) {
		char *shorter = strndup(first, left);

		assert_taken(in, shorter, false);
		free(shorter);
	}
	assert_non_null(line_proven(&in, first));
	assert_taken(in, first, false); /* again */
	assert_int_equal(in.next, 1);
	assert_string_equal(line_proven(&in, second), "{\"type\":\"ping\"}");
	out.on = false;
	assert_string_equal(line_proven(&out, "x"), "x");
	assert_null(line_prove(&in, NULL));
	free(first);
	free(second);
	free(theirs);
}

/* Whoever changes a line of the join, or the job's name, has other keys. */
TEST(keys_cover)
{
	static const char hello[] = "{\"type\":\"hello\"}", join[] = "{\"type\":\"join\"}";
	struct proof_key key = {{1}};
	struct transcript a, b;
	struct job_secret one, two;
	struct seal_key first, second;
	uint8_t salt[32] = {2};

	job_secret_make(&key, salt, 0, "job", 4, &one);
	job_secret_make(&key, salt, 0, "job", 5, &two);
	assert_memory_not_equal(&one, &two, sizeof(one));
	job_secret_make(&key, salt, 0, "jo", 4, &two);
	assert_memory_not_equal(&one, &two, sizeof(one));
	salt[31] ^= 1;
	job_secret_make(&key, salt, 0, "job", 4, &two);
	assert_memory_not_equal(&one, &two, sizeof(one));
	a = (struct transcript){0};
	b = (struct transcript){0};
	transcript_add(&a, hello);
	transcript_add(&a, join);
	transcript_add(&b, "{\"type\":\"hello\"}\n"); /* the newline is no part of it */
	transcript_add(&b, join);
	assert_memory_equal(&a, &b, sizeof(a));
	b = (struct transcript){0};
	transcript_add(&b, join);
	transcript_add(&b, hello);
	assert_memory_not_equal(&a, &b, sizeof(a));
	seal_worker_key(&one, &a, &first);
	seal_worker_key(&one, &b, &second);
	assert_memory_not_equal(&first, &second, sizeof(first));
}

int main(void)
{
	if (proof_init() != 0)
		return 1;
	return unit_run(NULL, NULL);
}
