/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control.h - winnowd's control thread: TCP, signals, timers; the shell around jobs.c
 *
 * Everything here runs on one libuv loop, in the thread that calls control_run(); HTTP has its own.
 */
#ifndef AGGREGATOR_CONTROL_H
#define AGGREGATOR_CONTROL_H

#include "aggregator/data.h"
#include "aggregator/jobs/jobs.h"
#include "aggregator/offload.h"
#include "bitmap/control/job_keys.h"

struct control;

/*
 * Data threads report to the control thread through a pipe, which is older than both and keeps
 * reports until the control thread listens. Reports that it has no room for are dropped, because
 * data threads report again while the trouble lasts.
 */
struct reports {
	int read_fd; /* readable while there are reports */
	int write_fd;
};

int reports_open(struct reports *reports); /* 0, or -errno */
void reports_close(struct reports *reports);
bool reports_put(void *reports,
                 const struct report *report); /* for struct data_config; false: it is full */
bool reports_take(const struct reports *reports, struct report *out); /* false: there is none */
void reports_forget(const struct reports *reports);                   /* drops all */

struct control_config {
	struct jobs_config jobs;
	struct job_keys *keys; /* NULL if anyone may join */
	struct net_addr listen;
	int listen_fd;           /* listener_bind()'s, for that address */
	const char *bytes_from;  /* origin of jobs.bytes_max: "option", "default", "memory" */
	struct net_addr metrics; /* port 0: no HTTP */
	bool metrics_auto;       /* continue without HTTP if its port is taken */
	uint64_t drain_us;       /* how long jobs may continue after SIGTERM */
	struct data *data;
	struct net_addr parent;  /* of a site; port 0: none */
	const char *parent_text; /* the same as it was given */
	const char *site;        /* the name of this site */
	struct reports *reports; /* of the data threads */
	struct offload *offload; /* NULL for udp alone */
	const char *device;      /* the device of the XDP program */
	const char *key_file;    /* read again on SIGHUP; or NULL */
};

/*
 * control_open - serves the port. Its socket and config->keys belong to the control from now on,
 * even if this fails. Returns 0, or -errno with one line in `why`.
 */
int control_open(const struct control_config *config, struct control **out, struct why *why);

/* Returns the address of HTTP, or NULL if it is off or could not be served. */
const struct net_addr *control_metrics(const struct control *control);

/* control_run - returns 0 after SIGTERM or SIGINT, or -ENODEV if the network port was lost. */
int control_run(struct control *control);

void control_close(struct control *control);

#endif /* AGGREGATOR_CONTROL_H */
