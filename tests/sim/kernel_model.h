/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel_model.h - what the XDP program does with a datagram, written down a second time
 *
 * From ebpf/fastpath.h and PROTOCOL.md, for the simulation and as a reference for the program's
 * own tests. UDP payloads only; knows nothing of Ethernet, IP and checksums.
 */
#ifndef TESTS_SIM_KERNEL_MODEL_H
#define TESTS_SIM_KERNEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "ebpf/fastpath.h"

enum kernel_verdict {
	KERNEL_PASS,  /* to user space, as it came */
	KERNEL_DROP,  /* taken, or no good */
	KERNEL_GROUP, /* `packet` is now a RESULT for everyone */
};

struct kernel_model {
	struct fast_channel *channel; /* the packet's */
	struct fast_slot *slots;      /* that channel's */
	bool no_room;                 /* packets cannot grow */
	bool at_home;                 /* the packet comes from where its worker knocked, */
	bool marked;                  /* with congestion marked */
};

/*
 * kernel_model - one datagram of `*bytes` bytes, in a buffer of FAST_PAYLOAD_MAX; its channel is
 * the model's. Changes the slots, and for GROUP the packet.
 */
enum kernel_verdict kernel_model(const struct kernel_model *model, uint8_t *packet,
                                 uint32_t *bytes);

#endif /* TESTS_SIM_KERNEL_MODEL_H */
