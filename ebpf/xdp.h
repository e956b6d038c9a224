/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xdp.h - loads the XDP program winnow.bpf.c, attaches it, and maps the memory that it shares
 *
 * Only xdp.c knows libbpf. fastpath.h says what the memory means and who may write it; this code
 * looks at no packet. The program leaves the device when xdp_close() is called or the process dies
 * in any way. One thread at a time may call these functions, but any thread may use the memory.
 */
#ifndef EBPF_XDP_H
#define EBPF_XDP_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/why.h"
#include "ebpf/fastpath.h"

#define XDP_SLOTS_MAX (1u << 17) /* 500 MB */

struct xdp;

/* Native mode runs in the device's driver. Generic mode runs on any device, but slower. */
enum xdp_mode { XDP_MODE_AUTO, XDP_MODE_NATIVE, XDP_MODE_GENERIC };

struct xdp_config {
	const char *device; /* an interface's name; NULL attaches it nowhere (tests) */
	enum xdp_mode mode; /* AUTO: native if the device supports it, else generic */
	enum { XDP_FOUR, XDP_SIX, XDP_BOTH } families; /* that winnowd listens on */
	uint32_t ip;         /* listening address in host byte order; 0: the device's first */
	uint8_t six[16];     /* XDP_SIX: the listening address; XDP_BOTH: all of the device's */
	uint16_t port;       /* host byte order */
	uint32_t slot_count; /* for all channels, 1 .. XDP_SLOTS_MAX; takes its memory at once */
};

struct xdp_view {
	enum xdp_mode mode; /* as attached; AUTO only without a device */
	struct why note;    /* why native mode failed, or "" */
	/* The shared memory, valid until xdp_close(). */
	struct fast_settings *settings;
	struct fast_channel *channels; /* [FAST_CHANNELS_MAX] */
	struct fast_slot *slots;       /* [slot_count] */
};

/*
 * xdp_open - loads the program and attaches it to the device. It knows no channel yet, so it drops
 * packets to our port with our header until xdp_known() or xdp_channel_open() names their channels.
 * Returns 0 with *out, which the caller closes, or -errno with one line in `why`: -EPERM
 * (capabilities), -ENODEV (no such device), -EBUSY (it has another XDP program), -EOPNOTSUPP (the
 * kernel or the driver cannot), -EINVAL (slot_count), -ENOMEM, or the kernel's. Blocks for about
 * 100 ms.
 */
int xdp_open(const struct xdp_config *config, struct xdp **out, struct why *why);
void xdp_close(struct xdp *xdp); /* NULL is fine */

/*
 * xdp_taken - returns 0 if the device has no XDP program; -EBUSY with a line in `why` that names
 * the program; -ENODEV, or the kernel's error. Changes nothing.
 */
int xdp_taken(const char *device, struct why *why);

const struct xdp_view *xdp_look(const struct xdp *xdp);

/* xdp_attached - false once the device was deleted, even if another one now has its name. */
bool xdp_attached(const struct xdp *xdp);

/*
 * xdp_channel_open - gives the program a channel: `window` (a power of two) adjacent slots, all
 * closed, and a struct fast_channel of zeros except id, first_slot and window_mask. Its packets
 * pass until the caller has filled in the rest and sets `active`. Returns its index in `channels`,
 * -ENOSPC when there is no room among the slots or channels, or -EINVAL for the window.
 */
int xdp_channel_open(struct xdp *xdp, uint16_t id, uint32_t window);

/*
 * xdp_known - user space alone serves this channel, and its packets pass; or it is unknown, and
 * they are dropped. If it had slots, this takes some ms, after which no CPU uses them.
 */
void xdp_known(struct xdp *xdp, uint16_t id, bool known);

/* xdp_counters - the program's counters since xdp_open(), summed over all CPUs. */
void xdp_counters(const struct xdp *xdp, uint64_t out[FAST_COUNTER_COUNT]);

/* fast_counter_name - the label of an enum fast_counter: "short", "passed" and so on. */
const char *fast_counter_name(uint32_t counter);

/*
 * xdp_sweep - detaches redirect.bpf.c if a process that has ended left it on the device. Returns 1
 * if it did, 0 if there was nothing to do, or -errno with one line in `why`.
 */
int xdp_sweep(const char *device, struct why *why);

/* xdp_capable - tells whether this process has a capability (CAP_...) in effect. */
bool xdp_capable(int capability);

/* xdp_program - the loaded program's file descriptor, which `xdp` owns; for test runs. */
int xdp_program(const struct xdp *xdp);

#endif /* EBPF_XDP_H */
