// SPDX-License-Identifier: BSD-3-Clause
/* seal.c - see seal.h */

#include "ebpf/seal.h"

#include <assert.h>
#include <stddef.h>

#define WORDS_MAX (4 + 2 * (65536 / SEAL_CHUNK)) /* SipHash's, for the largest datagram */

#if defined __x86_64__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

/* A seal that is being computed. */
struct run {
	const struct seal_stretch *stretch;
	const struct seal_key *key;
	uint64_t words[WORDS_MAX]; /* for SipHash at the end, which needs all registers */
	uint32_t word_count;
	uint64_t sums[2]; /* NH's two passes over the chunk so far */
	uint32_t at;      /* bytes of the chunk so far */
	uint8_t rest[8];  /* an incomplete pair */
	uint32_t rest_bytes;
};

/* ---- NH ---- */

static void nh_plain(const __u64 *key, const uint8_t *data, uint32_t bytes, uint64_t sums[2])
{
	for (uint32_t i = 0; i < bytes / 8; i++) {
		uint64_t pair;

		memcpy(&pair, data + i * 8, 8);
		sums[0] += nh_pair(pair, key[i]);
		sums[1] += nh_pair(pair, key[i + SEAL_SHIFT / 8]);
	}
}

#if defined __x86_64__
__attribute__((target("avx2"))) static inline __m256i nh_four(__m256i sum, const __u64 *key,
                                                              __m256i data)
{
	__m256i t = _mm256_add_epi32(data, _mm256_loadu_si256((const __m256i *)(const void *)key));

	return _mm256_add_epi64(sum, _mm256_mul_epu32(t, _mm256_srli_epi64(t, 32)));
}

__attribute__((target("avx2"))) static uint64_t across(__m256i sum)
{
	__m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));

	return (uint64_t)_mm_cvtsi128_si64(half) + (uint64_t)_mm_extract_epi64(half, 1);
}

/* `bytes` is a multiple of 32. */
__attribute__((target("avx2"))) static void nh_wide(const __u64 *key, const uint8_t *data,
                                                    uint32_t bytes, uint64_t sums[2])
{
	const __u64 *other = key + SEAL_SHIFT / 8, *end = key + bytes / 64 * 8;
	const __m256i *from = (const __m256i *)(const void *)data;
	__m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;

	for (; key < end; key += 8, other += 8, from += 2) {
		__m256i low = _mm256_loadu_si256(from), high = _mm256_loadu_si256(from + 1);

		a = nh_four(a, key, low);
		b = nh_four(b, key + 4, high);
		c = nh_four(c, other, low);
		d = nh_four(d, other + 4, high);
	}
	if (bytes % 64 != 0) {
		__m256i low = _mm256_loadu_si256(from);

		a = nh_four(a, key, low);
		c = nh_four(c, other, low);
	}
	sums[0] += across(_mm256_add_epi64(a, b));
	sums[1] += across(_mm256_add_epi64(c, d));
}

__attribute__((target("avx512f"))) static inline __m512i nh_eight(__m512i sum, const __u64 *key,
                                                                  __m512i data)
{
	__m512i t = _mm512_add_epi32(data, _mm512_loadu_si512(key));

	return _mm512_add_epi64(sum, _mm512_mul_epu32(t, _mm512_srli_epi64(t, 32)));
}

/* `bytes` is a multiple of 128. */
__attribute__((target("avx512f"))) static void nh_widest(const __u64 *key, const uint8_t *data,
                                                         uint32_t bytes, uint64_t sums[2])
{
	const __u64 *other = key + SEAL_SHIFT / 8;
	__m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;

	for (uint32_t i = 0; i < bytes / 8; i += 16) {
		__m512i low = _mm512_loadu_si512(data + (size_t)i * 8);
		__m512i high = _mm512_loadu_si512(data + (size_t)i * 8 + 64);

		a = nh_eight(a, key + i, low);
		b = nh_eight(b, key + i + 8, high);
		c = nh_eight(c, other + i, low);
		d = nh_eight(d, other + i + 8, high);
	}
	a = _mm512_add_epi64(a, b);
	c = _mm512_add_epi64(c, d);
	sums[0] += across(
		_mm256_add_epi64(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1)));
	sums[1] += across(
		_mm256_add_epi64(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1)));
}

#elif defined __aarch64__

static inline uint64x2_t nh_two(uint64x2_t sum, const __u64 *key, uint32x4_t data)
{
	const uint64x2_t t = vreinterpretq_u64_u32(
		vaddq_u32(data, vreinterpretq_u32_u64(vld1q_u64((const uint64_t *)key))));

	return vmlal_u32(sum, vmovn_u64(t), vshrn_n_u64(t, 32));
}

/* `bytes` is a multiple of 32. */
static void nh_wide(const __u64 *key, const uint8_t *data, uint32_t bytes, uint64_t sums[2])
{
	const __u64 *other = key + SEAL_SHIFT / 8;
	uint64x2_t a = vdupq_n_u64(0), b = a, c = a, d = a;

	for (uint32_t i = 0; i < bytes / 8; i += 4) {
		const uint32x4_t low = vreinterpretq_u32_u8(vld1q_u8(data + (size_t)i * 8));
		const uint32x4_t high = vreinterpretq_u32_u8(vld1q_u8(data + (size_t)i * 8 + 16));

		a = nh_two(a, key + i, low);
		b = nh_two(b, key + i + 2, high);
		c = nh_two(c, other + i, low);
		d = nh_two(d, other + i + 2, high);
	}
	sums[0] += vaddvq_u64(vaddq_u64(a, b));
	sums[1] += vaddvq_u64(vaddq_u64(c, d));
}

#endif

/* The data is whole pairs within one chunk. */
static void nh(const __u64 *key, const uint8_t *data, uint32_t bytes, uint64_t sums[2])
{
	uint32_t wide = 0;

#if defined __x86_64__
	if (__builtin_cpu_supports("avx512f")) {
		wide = bytes / 128 * 128;
		nh_widest(key, data, wide, sums);
	}
	if (__builtin_cpu_supports("avx2")) {
		nh_wide(key + wide / 8, data + wide, (bytes - wide) / 32 * 32, sums);
		wide = bytes / 32 * 32;
	}
#elif defined __aarch64__
	wide = bytes / 32 * 32;
	nh_wide(key, data, wide, sums);
#endif
	nh_plain(key + wide / 8, data + wide, bytes - wide, sums);
}

/* ---- one datagram ---- */

/* 2.4: "for each 4,096 bytes after the header, the last of them possibly shorter, two words" */
static void chunk_end(struct run *run)
{
	assert(run->word_count + 2 <= WORDS_MAX);
	memcpy(run->words + run->word_count, run->sums, sizeof(run->sums));
	run->word_count += 2;
	run->sums[0] = run->sums[1] = 0;
	run->at = 0;
}

static void run_pairs(struct run *run, const uint8_t *data, uint32_t bytes)
{
	while (bytes > 0) {
		uint32_t now = bytes < SEAL_CHUNK - run->at ? bytes : SEAL_CHUNK - run->at;

		nh(run->stretch->pairs + run->at / 8, data, now, run->sums);
		run->at += now;
		data += now;
		bytes -= now;
		if (run->at == SEAL_CHUNK)
			chunk_end(run);
	}
}

/* Adds a piece, which may end anywhere. */
static void run_add(struct run *run, const uint8_t *data, uint32_t bytes)
{
	uint32_t whole;

	if (run->rest_bytes > 0) {
		uint32_t room = 8 - run->rest_bytes, now = bytes < room ? bytes : room;

		memcpy(run->rest + run->rest_bytes, data, now);
		run->rest_bytes += now;
		data += now;
		bytes -= now;
		if (run->rest_bytes < 8)
			return;
		run_pairs(run, run->rest, 8);
		run->rest_bytes = 0;
	}
	whole = bytes / 8 * 8;
	run_pairs(run, data, whole);
	run->rest_bytes = bytes - whole;
	memcpy(run->rest, data + whole, run->rest_bytes);
}

static uint64_t run_end(struct run *run)
{
	struct sip sip;

	if (run->rest_bytes > 0) {
		memset(run->rest + run->rest_bytes, 0, 8 - run->rest_bytes);
		run_pairs(run, run->rest, 8);
	}
	if (run->at > 0)
		chunk_end(run);
	sip_begin(&sip, run->key);
	for (uint32_t i = 0; i < run->word_count; i++)
		sip_word(&sip, run->words[i]);
	return sip_end(&sip, run->word_count * 8);
}

/* Adds header, except the seal, and length. 2.4: "In KNOCK, KNOCKED and PROBE its upper half is 0" */
static void run_begin(struct run *run, const struct seal_stretch *stretch,
                      const struct seal_key *key, const uint8_t *header, uint32_t bytes,
                      uint64_t edge)
{
	struct wire_header wire;
	uint64_t words[WIRE_HEADER_BYTES / 8];
	uint32_t high = 0;

	memcpy(&wire, header, sizeof(wire));
	memcpy(words, header, sizeof(words));
	if (wire.kind != WIRE_KNOCK && wire.kind != WIRE_KNOCKED && wire.kind != WIRE_PROBE)
		high = (uint32_t)(seal_extend(edge, wire.edge) >> 32);
	run->stretch = stretch;
	run->key = key;
	run->words[0] = words[0];
	run->words[1] = words[2];
	run->words[2] = words[3];
	run->words[3] = seal_length_word(bytes, high);
	run->word_count = 4;
	run->sums[0] = run->sums[1] = 0;
	run->at = run->rest_bytes = 0;
}

void seal_write(struct packet_out *packet, const struct seal_stretch *stretch,
                const struct seal_key *key, uint64_t edge)
{
	struct run run;
	uint64_t seal;

	run_begin(&run, stretch, key, packet->head, packet->bytes, edge);
	run_add(&run, packet->head + WIRE_HEADER_BYTES,
	        (uint32_t)packet->pieces[0].iov_len - WIRE_HEADER_BYTES);
	for (uint32_t i = 1; i < packet->piece_count; i++)
		run_add(&run, packet->pieces[i].iov_base, (uint32_t)packet->pieces[i].iov_len);
	seal = run_end(&run);
	memcpy(packet->head + offsetof(struct wire_header, seal), &seal, sizeof(seal));
}

bool seal_right(const void *datagram, uint32_t bytes, const struct seal_stretch *stretch,
                const struct seal_key *key, uint64_t edge)
{
	const uint8_t *data = datagram;
	struct run run;
	uint64_t seal;

	run_begin(&run, stretch, key, data, bytes, edge);
	run_add(&run, data + WIRE_HEADER_BYTES, bytes - WIRE_HEADER_BYTES);
	memcpy(&seal, data + offsetof(struct wire_header, seal), sizeof(seal));
	return run_end(&run) == seal;
}

void seal_check(struct packet *packet, const void *datagram, uint32_t bytes, uint64_t token,
                const struct seal_stretch *stretch, const struct seal_key *key, uint64_t edge)
{
	packet->token = seal_right(datagram, bytes, stretch, key, edge) ? token : ~token;
}
