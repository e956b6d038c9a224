/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - winnowd's log: one logfmt line an event, on stderr; never from the data path */
#ifndef AGGREGATOR_LOG_H
#define AGGREGATOR_LOG_H

#include <stdbool.h>

/* "info", "warn" or "error": what is below is left out. False: no such level. */
bool log_set_level(const char *level);

/* "time=... level=info event=... ": `text` is logfmt from "event=" on. Control thread only. */
void log_event(const char *level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* AGGREGATOR_LOG_H */
