/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offload.h - registers channels with the XDP program, which helps with some of them
 *
 * The program drops packets of channels that it does not know, so every channel is registered from
 * before its first packet until after its last. Only the control thread may call these functions,
 * except those marked "any thread". All but offload_open() do nothing if `offload` is NULL.
 */
#ifndef AGGREGATOR_OFFLOAD_H
#define AGGREGATOR_OFFLOAD_H

#include "aggregator/jobs/jobs.h"
#include "ebpf/xdp.h"

struct offload;

/* offload_open - the program sends in class `dscp`. Returns 0, or -errno with one line in `why`. */
int offload_open(const struct xdp_config *config, uint32_t dscp, struct offload **out,
                 struct why *why);
void offload_close(struct offload *offload);

/*
 * offload_lost - returns true once, when the device and with it the program have gone. From then on
 * channels are not shared. Shared ones continue through user space, where all their packets arrive.
 */
bool offload_lost(struct offload *offload);
bool offload_works(const struct offload *offload); /* any thread */

/*
 * offload_describe - "native", or "generic: " and why; "no" for NULL, "no: " and why when lost. The
 * text lasts as long as `offload`; any thread.
 */
const char *offload_describe(const struct offload *offload);

/*
 * For struct jobs_ports.
 *
 * offload_share - registers `channel` with the program, and gives `config` memory to share with it
 * if the program can serve such a channel and has room. Returns NULL if so; else why not, in a few
 * words, or "" if there is no program.
 */
const char *offload_share(void *offload, const struct jobs_channel *channel,
                          struct channel_config *config);

/* offload_unshare - the channel does not use its memory, which others may have. */
void offload_unshare(void *offload, uint16_t id);

/* offload_release - the channel is detached, and the program forgets it. Unknown ids are fine. */
void offload_release(struct offload *offload, uint16_t id);

/* The program's counters (enum fast_counter), or zeros without a program; any thread. */
void offload_counters(const struct offload *offload, uint64_t out[FAST_COUNTER_COUNT]);

#endif /* AGGREGATOR_OFFLOAD_H */
