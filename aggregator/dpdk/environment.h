/* SPDX-License-Identifier: BSD-3-Clause */
/* environment.h - DPDK's own start (EAL), once a process; its log; the CPUs that it was told to use */
#ifndef AGGREGATOR_DPDK_ENVIRONMENT_H
#define AGGREGATOR_DPDK_ENVIRONMENT_H

#include <rte_lcore.h>

#include "bitmap/net/net.h"

#define DPDK_QUEUES_MAX 64 /* nets of a process */

/* environment_start - once; -EALREADY when it runs. On failure -errno and one line in `why`. */
int environment_start(const struct net_config *config, struct why *why);

/* The CPUs that EAL was told to use for net `queue`; NULL: any. */
const rte_cpuset_t *environment_cpus(uint32_t queue);

extern struct environment {
	bool mute;   /* DPDK's complaints are only remembered: something is being tried out */
	bool in_use; /* A thread may still poll a port: the process ends around it. */
	/* Of DPDK's log above "info": why something has failed. */
	char last_line[WHY_BYTES], first_error[WHY_BYTES];
} environment;

#endif /* AGGREGATOR_DPDK_ENVIRONMENT_H */
