/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xdp.h - loads the XDP program winnow.bpf.c, attaches it, and lends out the memory it shares
 *
 * xdp.c is the only code that knows libbpf. fastpath.h says what the memory means and who may write what;
 * nothing here looks at a packet. The program leaves the device when xdp_close() is called and
 * when the process dies, however it dies. Control code: one thread at a time, but the memory
 * may be used by any thread.
 */
#ifndef EBPF_XDP_H
#define EBPF_XDP_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/why.h"
#include "ebpf/fastpath.h"

#define XDP_SLOTS_MAX (1u << 17) /* 500 MB */

struct xdp;

/* Native runs in the device's driver; generic in the kernel's stack, on any device, slower. */
enum xdp_mode { XDP_MODE_AUTO, XDP_MODE_NATIVE, XDP_MODE_GENERIC };

struct xdp_config {
	const char *device; /* an interface's name; NULL: load, attach nowhere (tests) */
	enum xdp_mode mode; /* AUTO: native if the device can, else generic */
	enum { XDP_FOUR, XDP_SIX, XDP_BOTH } families; /* by which winnowd listens */
	uint32_t ip;         /* host byte order; of the listening address; 0: the device's first */
	uint8_t six[16];     /* XDP_SIX: the listening address. XDP_BOTH: all of the device's */
	uint16_t port;       /* host byte order */
	uint32_t slot_count; /* for all channels, 1 .. XDP_SLOTS_MAX; memory is used at once */
};

struct xdp_view {
	enum xdp_mode mode; /* as it is attached: AUTO only when the device is NULL */
	struct why note;    /* why native mode did not work; "" if it did or was not tried */
	/* The shared memory, valid until xdp_close(). */
	struct fast_settings *settings;
	struct fast_channel *channels; /* [FAST_CHANNELS_MAX] */
	struct fast_slot *slots;       /* [slot_count] */
};

/*
 * xdp_open - load the program and attach it to the device; no channel is known to it yet, so
 * packets to our port with a header of ours are dropped until xdp_known() or
 * xdp_channel_open() names their channels. On success stores *out; the caller closes it. On
 * failure returns -errno with one line in `why`: -EPERM (capabilities),
 * -ENODEV (no such device), -EBUSY (it has another XDP program), -EOPNOTSUPP (the kernel or the
 * driver cannot), -EINVAL (slot_count), -ENOMEM and what the kernel says. Blocks for some 100 ms.
 */
int xdp_open(const struct xdp_config *config, struct xdp **out, struct why *why);
void xdp_close(struct xdp *xdp); /* NULL is fine */

/*
 * xdp_taken - 0 when no XDP program sits on the device, -EBUSY when one does, with a line in `why`
 * that names it; -ENODEV, or what the kernel says. Changes nothing.
 */
int xdp_taken(const char *device, struct why *why);

const struct xdp_view *xdp_look(const struct xdp *xdp);

/* xdp_attached - is the program still on its device? Not when the device was deleted, also if there is another of that name. */
bool xdp_attached(const struct xdp *xdp);

/*
 * xdp_channel_open - a channel for the program: `window` (a power of two) neighbouring slots,
 * all closed, and a struct fast_channel that is zero but for id, first_slot and window_mask. It is
 * known and not active: its packets pass until the caller, having filled in the rest, sets
 * `active`. Returns its index in `channels`, or -ENOSPC when there is no room among
 * the slots or channels, -EINVAL for the window.
 */
int xdp_channel_open(struct xdp *xdp, uint16_t id, uint32_t window);

/*
 * xdp_known - user space alone serves this channel: its packets pass. False: it is unknown, and they are dropped. If
 * it had slots no CPU looks at them any more when this returns, which then takes some ms.
 */
void xdp_known(struct xdp *xdp, uint16_t id, bool known);

/* xdp_counters - the program's counters, summed over all CPUs; they count up from xdp_open(). */
void xdp_counters(const struct xdp *xdp, uint64_t out[FAST_COUNTER_COUNT]);

/* "short", "passed" and so on: the label of an enum fast_counter. */
const char *fast_counter_name(uint32_t counter);

/*
 * xdp_sweep - detach redirect.bpf.c from the device if a process that is no more has left it there.
 * 1: done; 0: there was nothing to do; -errno with one line in `why`.
 */
int xdp_sweep(const char *device, struct why *why);

/* Does this process have a capability (CAP_...) in effect? */
bool xdp_capable(int capability);

/* xdp_program - the loaded program as a file descriptor that stays ours, for test runs. */
int xdp_program(const struct xdp *xdp);

#endif /* EBPF_XDP_H */
