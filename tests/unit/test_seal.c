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
#include "tests/unit/unit.h"

#define LINE_BYTES 1024

static struct seal_stretch stretch;
static struct seal_key group_key, worker_key;
static struct line_proof to_aggregator, to_worker;

/* ---- vectors ---- */

/* A paragraph: what its lines said last, with bytes joined. */
struct said {
	char kind[16], key[64], job[64], by[16], line[128], proof[64];
	uint8_t bytes[8192], salt[32], hash[32], begin[32], end[32], group[16], worker[16];
	uint32_t byte_count;
	uint64_t number, first, second, edge;
	uint32_t epoch, world;
	struct transcript transcript;
};

static uint32_t hex_read(const char *hex, uint8_t *out)
{
	uint32_t count = 0;

	for (unsigned byte; sscanf(hex + 2 * count, "%2x", &byte) == 1; count++)
		out[count] = (uint8_t)byte;
	return count;
}

static void check_sip(const struct said *said)
{
	uint8_t bytes[16];
	struct seal_key key;
	uint64_t words[8];
	struct sip sip;

	assert_int_equal(hex_read(said->key, bytes), 16);
	memcpy(&key, bytes, sizeof(key));
	memcpy(words, said->bytes, said->byte_count);
	sip_begin(&sip, &key);
	for (uint32_t i = 0; i < said->byte_count / 8; i++)
		sip_word(&sip, words[i]);
	assert_true(sip_end(&sip, said->byte_count) == said->number);
}

static void check_keys(const struct said *said)
{
	const uint8_t *made = (const uint8_t *)&stretch;
	struct job_secret secret;
	struct proof_key key;

	assert_int_equal(proof_key_from_text(said->key, &key), 0);
	job_secret_make(&key, said->salt, said->epoch, said->job, said->world, &secret);
	seal_stretch_make(&secret, &stretch);
	seal_group_key(&secret, &group_key);
	seal_worker_key(&secret, &said->transcript, &worker_key);
	line_proofs_make(&secret, &said->transcript, &to_aggregator, &to_worker);
	if (sodium_is_zero(said->salt, sizeof(said->salt))) /* from JOIN to WELCOME */
		line_proofs_early(&key, said->job, said->world, &said->transcript, &to_aggregator,
		                  &to_worker);
	to_aggregator.on = to_worker.on = true;
	assert_memory_equal(said->transcript.hash, said->hash, 32);
	assert_memory_equal(made, said->begin, 32);
	assert_memory_equal(made + SEAL_STRETCH_BYTES - 32, said->end, 32);
	assert_memory_equal(&group_key, said->group, 16);
	assert_memory_equal(&worker_key, said->worker, 16);
}

static void check_proof(const struct said *said)
{
	struct line_proof *way = said->by[0] == 'w' ? &to_worker : &to_aggregator;
	char text[256], *line;

	way->next = said->number;
	snprintf(text, sizeof(text), "%s %s\n", said->proof, said->line);
	line = line_prove(way, strdup(strchr(text, ' ') + 1));
	assert_string_equal(line, text);
	free(line);
	assert_true(way->next == said->number + 1);
	way->next = said->number;
	text[strcspn(text, "\n")] = '\0';
	assert_string_equal(line_proven(way, text), said->line);
}

static void check_nh(const struct said *said)
{
	uint8_t padded[SEAL_CHUNK + 8] = {0};
	uint64_t sums[2];

	memcpy(padded, said->bytes, said->byte_count);
	seal_nh(&stretch, padded, (said->byte_count + 7) / 8 * 8, sums);
	assert_true(sums[0] == said->first && sums[1] == said->second);
}

static void check_seal(const struct said *said)
{
	const struct seal_key *key = said->by[0] == 'w' ? &worker_key : &group_key;

	assert_true(seal_right(said->bytes, said->byte_count, &stretch, key, said->edge));
	assert_true(seal_right(said->bytes, said->byte_count, &stretch, key, said->edge + 9));
}

static void line_take(struct said *said, const char *key, const char *value)
{
	if (strcmp(key, "key") == 0)
		snprintf(said->key, sizeof(said->key), "%s", value);
	else if (strcmp(key, "job") == 0)
		snprintf(said->job, sizeof(said->job), "%s", value);
	else if (strcmp(key, "by") == 0 || strcmp(key, "to") == 0)
		snprintf(said->by, sizeof(said->by), "%s", value);
	else if (strcmp(key, "line") == 0)
		transcript_add(&said->transcript, value);
	else if (strcmp(key, "said") == 0)
		snprintf(said->line, sizeof(said->line), "%s", value);
	else if (strcmp(key, "proof") == 0)
		snprintf(said->proof, sizeof(said->proof), "%s", value);
	else if (strcmp(key, "number") == 0)
		said->number = strtoull(value, NULL, 0);
	else if (strcmp(key, "epoch") == 0)
		said->epoch = (uint32_t)strtoul(value, NULL, 0);
	else if (strcmp(key, "world") == 0)
		said->world = (uint32_t)strtoul(value, NULL, 0);
	else if (strcmp(key, "hash") == 0)
		said->number = strtoull(value, NULL, 0);
	else if (strcmp(key, "first") == 0)
		said->first = strtoull(value, NULL, 0);
	else if (strcmp(key, "second") == 0)
		said->second = strtoull(value, NULL, 0);
	else if (strcmp(key, "edge") == 0)
		said->edge = strtoull(value, NULL, 0);
	else if (strcmp(key, "transcript") == 0)
		hex_read(value, said->hash);
	else if (strcmp(key, "salt") == 0)
		hex_read(value, said->salt);
	else if (strcmp(key, "stretch_begin") == 0)
		hex_read(value, said->begin);
	else if (strcmp(key, "stretch_end") == 0)
		hex_read(value, said->end);
	else if (strcmp(key, "group") == 0)
		hex_read(value, said->group);
	else if (strcmp(key, "worker") == 0)
		hex_read(value, said->worker);
	else if (strcmp(key, "text") == 0 || strcmp(key, "data") == 0 || strcmp(key, "hex") == 0)
		said->byte_count += hex_read(value, said->bytes + said->byte_count);
	else
		fail_msg("%s?", key);
}

static void check(const struct said *said)
{
	if (strcmp(said->kind, "sip") == 0)
		check_sip(said);
	else if (strcmp(said->kind, "keys") == 0)
		check_keys(said);
	else if (strcmp(said->kind, "proof") == 0)
		check_proof(said);
	else if (strcmp(said->kind, "nh") == 0)
		check_nh(said);
	else
		check_seal(said);
}

TEST(vectors)
{
	FILE *file = fopen("docs/vectors/seal.txt", "r");
	static struct said said;
	char line[LINE_BYTES];
	uint32_t checked = 0;

	assert_non_null(file);
	for (bool more = true; more;) {
		char *space;

		more = fgets(line, sizeof(line), file) != NULL;
		if (more && line[0] == '#')
			continue;
		if (!more || line[0] == '\n') {
			if (said.kind[0] != '\0') {
				check(&said);
				checked++;
			}
			memset(&said, 0, sizeof(said));
			continue;
		}
		line[strcspn(line, "\n")] = '\0';
		space = strchr(line, ' ');
		assert_non_null(space);
		*space = '\0';
		if (said.kind[0] == '\0')
			snprintf(said.kind, sizeof(said.kind), "%.15s", line);
		else
			line_take(&said, line, space + 1);
	}
	fclose(file);
	assert_int_equal(checked, 5 + 1 + 4 + 4 + 9 + 3);
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
