// SPDX-License-Identifier: BSD-3-Clause
/*
 * bench_seal.c - what it costs to check the seal of a datagram (PROTOCOL.md 2.4), in user space
 *
 * 256 KB of datagrams are checked one after the other, so that the data comes from the second cache.
 * The fastest of many turns counts: the machine may have other work. Prints one row: nanoseconds a
 * datagram, by its bytes.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bitmap/net/clock.h"
#include "ebpf/seal.h"

#define DATA_BYTES (256 << 10)
#define TURNS 200

static uint8_t data[DATA_BYTES];
static struct seal_stretch stretch;

static double check_ns(uint32_t bytes)
{
	const struct seal_key key = {.words = {1, 2}};
	uint32_t count = DATA_BYTES / bytes;
	uint64_t best = UINT64_MAX;

	for (int turn = 0; turn < TURNS; turn++) {
		uint64_t began = clock_ns(), took;
		uint32_t right = 0;

		for (uint32_t i = 0; i < count; i++)
			right += seal_right(data + (size_t)i * bytes, bytes, &stretch, &key, i);
		took = clock_ns() - began;
		if (right > 2) {
			fprintf(stderr, "bench_seal: random bytes have right seals\n");
			exit(1);
		}
		if (took < best)
			best = took;
	}
	return (double)best / count;
}

int main(void)
{
	static const uint32_t sizes[] = {32, 1056, 1472, 8972};

	srandom(1);
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)random();
	for (uint32_t i = 0; i < SEAL_PAIRS; i++)
		stretch.pairs[i] = (uint64_t)random() << 32 | (uint64_t)random();
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		printf("%s%u bytes: %.0f ns", i > 0 ? ", " : "", sizes[i], check_ns(sizes[i]));
	printf("\n");
	return 0;
}
