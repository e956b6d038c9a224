/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offload.h - which channels the kernel helps with: between jobs and the XDP program
 *
 * The program drops packets of channels that it does not know, so every channel is registered with
 * it from before its first packet until after its last. Control thread only. All functions but
 * offload_open() do nothing when `offload` is NULL.
 */
#ifndef AGGREGATOR_OFFLOAD_H
#define AGGREGATOR_OFFLOAD_H

#include "aggregator/jobs/jobs.h"
#include "ebpf/xdp.h"

struct offload;

/* offload_open - 0, or -errno with one line in `why`. */
int offload_open(const struct xdp_config *config, struct offload **out, struct why *why);
void offload_close(struct offload *offload);

/*
 * offload_lost - has the device gone, and the program with it? True once; from then on channels are not shared. Those that
 * are go on through user space, where all their packets come to.
 */
bool offload_lost(struct offload *offload);
bool offload_works(const struct offload *offload);

/* "native", or "generic: " and why; "no" for NULL, "no: " and why when lost. It lives as long as `offload`. */
const char *offload_describe(const struct offload *offload);

/*
 * For struct jobs_ports.
 *
 * offload_share - registers `channel` with the program, and gives config memory to share with it if
 * the program can serve such a channel and has room. Returns NULL if so, else why not in a few
 * words; "" if there is no program.
 */
const char *offload_share(void *offload, const struct jobs_channel *channel,
                          struct channel_config *config);

/* offload_unshare - the channel does not use the memory: others may. */
void offload_unshare(void *offload, uint16_t id);

/* offload_release - the channel is detached: the program forgets it. Unknown ids are fine. */
void offload_release(struct offload *offload, uint16_t id);

/* The program's counters, zeros without one: enum fast_counter. */
void offload_counters(const struct offload *offload, uint64_t out[FAST_COUNTER_COUNT]);

#endif /* AGGREGATOR_OFFLOAD_H */
