/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz.h - what the fuzzers share: an input read as a script
 *
 * A fuzzer's bytes are not the packet itself: they say what to do next and fill in the fields
 * that matter, so that the mutator's changes survive the checks of tokens and lengths. A script
 * that has run out reads as zeros.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#undef NDEBUG
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct script {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t script_u8(struct script *script)
{
	if (script->left == 0)
		return 0;
	script->left--;
	return *script->at++;
}

static inline uint16_t script_u16(struct script *script)
{
	uint16_t low = script_u8(script);

	return (uint16_t)(low | script_u8(script) << 8);
}

static inline uint32_t script_u32(struct script *script)
{
	uint32_t low = script_u16(script);

	return low | (uint32_t)script_u16(script) << 16;
}

static inline uint64_t script_u64(struct script *script)
{
	uint64_t low = script_u32(script);

	return low | (uint64_t)script_u32(script) << 32;
}

/* 0 .. limit - 1, limit at most 65536 */
static inline uint32_t script_below(struct script *script, uint32_t limit)
{
	return (limit <= 256 ? script_u8(script) : script_u16(script)) % limit;
}

/* Fill `out` by repeating up to 16 bytes of the script: short scripts make long contents. */
static inline void script_fill(struct script *script, void *out, size_t bytes)
{
	uint8_t pattern[16];
	size_t length = 1 + script_u8(script) % sizeof(pattern);

	for (size_t i = 0; i < length; i++)
		pattern[i] = script_u8(script);
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)out)[i] = pattern[i % length];
}

/* A copy in memory of exactly its size, so that a read beyond it is seen. The caller frees it. */
static inline void *exact_copy(const void *data, size_t bytes)
{
	void *copy = malloc(bytes > 0 ? bytes : 1);

	assert(copy != NULL);
	if (bytes > 0)
		memcpy(copy, data, bytes);
	return copy;
}

#endif /* TESTS_FUZZ_FUZZ_H */
