/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reports.h - what data threads have to tell the control thread
 *
 * Stalled operations, workers that cannot be reached, and a network port that is gone. Data threads
 * put reports into a pipe, the control thread takes them out. This object is older than both: the
 * pipe keeps what arrives before the control thread listens. What it has no room for is dropped:
 * data threads report again for as long as something is wrong.
 */
#ifndef AGGREGATOR_REPORTS_H
#define AGGREGATOR_REPORTS_H

#include "aggregator/data.h"

struct reports {
	int read_fd; /* readable while there are reports */
	int write_fd;
};

int reports_open(struct reports *reports); /* -errno */
void reports_close(struct reports *reports);

/* Data threads; for struct data_config, whose context is the struct reports. */
void reports_put(void *reports, const struct report *report);

/* The control thread. reports_take(): false: there is none. reports_forget(): all are void. */
bool reports_take(const struct reports *reports, struct report *out);
void reports_forget(const struct reports *reports);

#endif /* AGGREGATOR_REPORTS_H */
