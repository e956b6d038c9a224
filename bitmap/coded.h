/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coded.h - a set of blocks in few bytes, as the gaps between its members in a Rice code
 *
 * A stream of bits fills bytes from their least significant bit on. It begins with the
 * parameter r in 5 bits, least significant first. Then, for each set bit in ascending order,
 * comes the number g of clear bits between it and the set bit before it (or the start):
 *
 *     floor(g / 2^r) zeros, a one, and the low r bits of g, least significant first.
 *
 * Zeros fill the last byte, and no byte follows the last code. So the number of bytes says where
 * the set ends, because every code contains a one. With k set bits and z clear bits before the last
 * of them, r is the largest number for which k * 2^r <= z, and 0 where there is none or k is 0. So
 * each set has one coding, and a decoder that has found k and z can check r.
 *
 * A set of n random bits takes at most 1.2 times its entropy for densities of 0.1 to 5 % and
 * n >= 4096. With fewer than ten members the 5 bits and the padding matter more. From a density of
 * about 25 % on, the bitmap is shorter.
 */
#ifndef BITMAP_CODED_H
#define BITMAP_CODED_H

#include <stddef.h>
#include <stdint.h>

#define BITS_COUNT_MAX (UINT64_C(1) << 31)

/*
 * bits_write - writes the coding or the bitmap, whichever is shorter: at most 8 bytes a word, for
 * which `out` has room. Returns the number of bytes. No bit past `count` is set; `count` is at most
 * BITS_COUNT_MAX.
 */
size_t bits_write(const uint64_t words[], size_t count, uint8_t *out);

/*
 * bits_read - reads what bits_write() wrote; the number of bytes tells the form. Returns 0 and the
 * set in words[], with zeros past `count`, or -EINVAL for bytes that bits_write() does not write;
 * words[] is then undefined.
 */
int bits_read(const uint8_t *in, size_t bytes, uint64_t words[], size_t count);

#endif /* BITMAP_CODED_H */
