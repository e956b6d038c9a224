/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log.h - winnowd's log: one line an event on stderr, logfmt or JSON; never from the data path
 *
 * Of one event at most LOG_BURST lines are written in LOG_WINDOW_S seconds (errors are not
 * counted); what is left out is said when the window is over: event=left_out.
 */
#ifndef AGGREGATOR_LOG_H
#define AGGREGATOR_LOG_H

#include <stdbool.h>

#define LOG_BURST 100
#define LOG_WINDOW_S 10

/* "info", "warn" or "error": what is below is left out. False: no such level. */
bool log_set_level(const char *level);

/* "logfmt" or "json". False: no such format. */
bool log_set_format(const char *format);

/* "time=... level=info event=... ": `text` is logfmt from "event=" on. Any thread: of a dpdk port, its own tell, too. */
void log_event(const char *level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Now and then, and at the end: say what has been left out in windows that are over, or in all. */
void log_flush(bool all);

/* The same with a finished text; for struct jobs_ports. */
void log_line(void *unused, const char *level, const char *text);

#endif /* AGGREGATOR_LOG_H */
