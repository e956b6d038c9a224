/* SPDX-License-Identifier: BSD-3-Clause */
/* flatten.h - a packet to send as the bytes of its datagram */
#ifndef TESTS_FLATTEN_H
#define TESTS_FLATTEN_H

#include "ebpf/packet.h"

/* Copies its pieces into `buffer`, which has room for out->bytes. */
static inline void packet_flatten(const struct packet_out *out, void *buffer)
{
	uint8_t *to = buffer;

	for (uint32_t i = 0; i < out->piece_count; i++) {
		memcpy(to, out->pieces[i].iov_base, out->pieces[i].iov_len);
		to += out->pieces[i].iov_len;
	}
}

#endif /* TESTS_FLATTEN_H */
