/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * seal_words.h - the arithmetic of seals (PROTOCOL.md, section 2.4), for user space and for BPF
 *
 * Two passes of NH (RFC 4418) shorten the data after a datagram's header. The seal is SipHash-2-4
 * of header, length and NH's results. All datagrams of a job share one stretch of key for NH; each
 * sender has its own key for SipHash. gcc and clang -target bpf compile this file, so it includes
 * only <linux/types.h>.
 */
#ifndef EBPF_SEAL_WORDS_H
#define EBPF_SEAL_WORDS_H

#include <linux/types.h>

#define SEAL_CHUNK 4096 /* NH turns these bytes into two numbers */
#define SEAL_SHIFT 16   /* the second pass begins here in the stretch */
#define SEAL_STRETCH_BYTES (SEAL_CHUNK + SEAL_SHIFT)
#define SEAL_PAIRS (SEAL_STRETCH_BYTES / 8)

struct seal_stretch {
	__u64 pairs[SEAL_PAIRS]; /* pairs of 32-bit words, the first in the low half */
};

struct seal_key {
	__u64 words[2];
};

struct sip {
	__u64 v[4];
};

#define SEAL_INLINE static inline __attribute__((always_inline))

SEAL_INLINE __u64 sip_rotate(__u64 value, int bits)
{
	return value << bits | value >> (64 - bits);
}

SEAL_INLINE void sip_round(struct sip *sip)
{
	__u64 *v = sip->v;

	v[0] += v[1];
	v[2] += v[3];
	v[1] = sip_rotate(v[1], 13) ^ v[0];
	v[3] = sip_rotate(v[3], 16) ^ v[2];
	v[0] = sip_rotate(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = sip_rotate(v[1], 17) ^ v[2];
	v[3] = sip_rotate(v[3], 21) ^ v[0];
	v[2] = sip_rotate(v[2], 32);
}

SEAL_INLINE void sip_begin(struct sip *sip, const struct seal_key *key)
{
	sip->v[0] = key->words[0] ^ 0x736f6d6570736575ULL;
	sip->v[1] = key->words[1] ^ 0x646f72616e646f6dULL;
	sip->v[2] = key->words[0] ^ 0x6c7967656e657261ULL;
	sip->v[3] = key->words[1] ^ 0x7465646279746573ULL;
}

SEAL_INLINE void sip_word(struct sip *sip, __u64 word)
{
	sip->v[3] ^= word;
	sip_round(sip);
	sip_round(sip);
	sip->v[0] ^= word;
}

/* Ends the hash of a text of `bytes` bytes, all in whole words. */
SEAL_INLINE __u64 sip_end(struct sip *sip, __u32 bytes)
{
	sip_word(sip, (__u64)(bytes & 0xff) << 56);
	sip->v[2] ^= 0xff;
	sip_round(sip);
	sip_round(sip);
	sip_round(sip);
	sip_round(sip);
	return sip->v[0] ^ sip->v[1] ^ sip->v[2] ^ sip->v[3];
}

/* One step of NH: each half is added to its half of the key, and the sums are multiplied. */
SEAL_INLINE __u64 nh_pair(__u64 pair, __u64 key)
{
	__u32 low = (__u32)pair + (__u32)key, high = (__u32)(pair >> 32) + (__u32)(key >> 32);

	return (__u64)low * high;
}

/* 2.4: "in the low half the upper half of edge; in the high half the datagram's length in bytes, header included" */
SEAL_INLINE __u64 seal_length_word(__u32 bytes, __u32 high)
{
	return high | (__u64)bytes << 32;
}

/* 2.4: "A receiver takes the number that is nearest to its own" */
SEAL_INLINE __u64 seal_extend(__u64 near, __u32 number)
{
	return near + (__u64)(__s64)(__s32)(number - (__u32)near);
}

#endif /* EBPF_SEAL_WORDS_H */
