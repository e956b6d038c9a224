/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control.h - winnowd's control thread: TCP, signals, timers, HTTP; the shell around jobs.c
 *
 * Everything here runs on one libuv loop, in the thread that calls control_run().
 */
#ifndef AGGREGATOR_CONTROL_H
#define AGGREGATOR_CONTROL_H

#include "aggregator/data.h"
#include "aggregator/jobs/jobs.h"
#include "aggregator/offload.h"
#include "aggregator/reports.h"

struct control;

struct control_config {
	struct jobs_config jobs;
	struct net_addr listen;
	const char *bytes_from; /* where jobs.bytes_max comes from: "option", "default", "memory" */
	struct net_addr metrics; /* port 0: no HTTP */
	bool metrics_auto;       /* continue without HTTP if its port is taken */
	uint64_t drain_us;       /* how long jobs may continue after SIGTERM */
	struct data *data;
	struct reports *reports;            /* of the data threads */
	struct offload *offload;            /* NULL: udp alone */
	struct proof_keys *(*reload)(void); /* on SIGHUP: the keys from now on */
};

/*
 * control_open - bind the port and start listening. 0, or -errno with one line in `why`.
 */
int control_open(const struct control_config *config, struct control **out, struct why *why);

/* control_run - returns after SIGTERM or SIGINT: 0. -ENODEV: the network port was lost. */
int control_run(struct control *control);

void control_close(struct control *control);

#endif /* AGGREGATOR_CONTROL_H */
