/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reports.h - what data threads have to tell the control thread
 *
 * Stalled operations, workers that cannot be reached, and a network port that is gone. Data threads
 * put reports in, the control thread takes them. This object is older than both: it keeps what
 * arrives before the control thread listens.
 */
#ifndef AGGREGATOR_REPORTS_H
#define AGGREGATOR_REPORTS_H

#include <pthread.h>

#include "aggregator/jobs/jobs.h"
#include "aggregator/net/net.h"

#define REPORTS_MAX 64

enum report_kind { REPORT_STALL, REPORT_TROUBLE };

struct report {
	enum report_kind kind;
	uint16_t id; /* of the channel */
	union {
		struct channel_stall stall;
		struct jobs_trouble trouble;
	};
};

struct reports {
	pthread_mutex_t lock;
	uint32_t count; /* those beyond the limit are dropped: they are reported again */
	struct report list[REPORTS_MAX];
	struct why lost;             /* why the port is gone; "" while it is there */
	void (*wake)(void *context); /* NULL: nobody listens */
	void *wake_context;
};

void reports_init(struct reports *reports);
void reports_destroy(struct reports *reports);

/*
 * reports_listen - from now on the thread that puts a report calls wake(); at once if there is a
 * report already. NULL: no more calls after this returns.
 */
void reports_listen(struct reports *reports, void (*wake)(void *context), void *context);

/* Data threads; for struct data_config, whose context is the struct reports. */
void reports_stalled(void *reports, uint16_t id, const struct channel_stall *stall);
void reports_trouble(void *reports, uint16_t id, const struct jobs_trouble *trouble);
void reports_lost(void *reports, const char *why);

/* The control thread. reports_take() returns how many there are in `out`. */
uint32_t reports_take(struct reports *reports, struct report out[REPORTS_MAX], struct why *lost);
void reports_forget(struct reports *reports, uint16_t id); /* the channel's are void */

#endif /* AGGREGATOR_REPORTS_H */
