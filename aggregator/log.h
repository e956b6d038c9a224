/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log.h - winnowd's log: one line per event on stderr, logfmt or JSON; never from the data path
 *
 * Logging never waits for the reader of stderr. Lines go into a pipe of our own, and a thread
 * writes them, so a reader that reads nothing, a stopped terminal or a slow disk only blocks that
 * thread. stderr may also belong to other programs, so it is not made non-blocking. Lines beyond
 * LOG_QUEUE_BYTES are lost and counted; event=lines_lost says how many as soon as lines flow again.
 *
 * In LOG_WINDOW_S seconds at most LOG_BURST lines are written of one event, or of one event with
 * the same code=; errors have no limit. At the end of the window event=left_out says how many were
 * left out.
 */
#ifndef AGGREGATOR_LOG_H
#define AGGREGATOR_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/log_field.h"

#define LOG_BURST 100
#define LOG_WINDOW_S 10
#define LOG_QUEUE_BYTES (256u * 1024)
#define LOG_TEXT_BYTES 1024 /* longer texts are cut; a line of more than 4 KB is lost */
#define LOG_END_MS 1000     /* how long queued lines may take at the end */

/*
 * log_open - writes to `fd` from now on, including earlier events. Returns 0, or -errno if the
 * thread cannot be started.
 */
int log_open(int fd);

/* log_close - returns when all lines are written, or after LOG_END_MS. */
void log_close(void);

/* Lines lost so far. Any thread. */
uint64_t log_lines_lost(void);

enum log_format { LOG_LOGFMT, LOG_JSON };

/* `least` is 0 for all, 1 without "info", 2 for "error" only. Call it before the first event. */
void log_set(int least, enum log_format format);

/*
 * log_event - writes "time=.. level=info event=NAME", the fields, and text="..", made with
 * `format`. `fields` comes from LOG_FIELDS(); either may be NULL. Any thread.
 */
void log_event(const char *level, const char *name, const struct log_field fields[],
               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same with a finished text, for struct jobs_ports. */
void log_fields(void *unused, const char *level, const char *name, const struct log_field fields[],
                const char *text);

/* Call it now and then, and with `all` at the end: logs what was left out in windows that are over. */
void log_flush(bool all);

#endif /* AGGREGATOR_LOG_H */
