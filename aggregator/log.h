/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * log.h - winnowd's log: one line an event on stderr, logfmt or JSON; never from the data path
 *
 * Nothing here waits for a reader of stderr. Lines go into a pipe of our own, and a thread writes
 * them: a reader that drains nothing, a stopped terminal or a slow disk blocks only that thread.
 * stderr may also belong to others, so it is not made non-blocking. Beyond LOG_QUEUE_BYTES lines are
 * lost and counted; event=lines_lost says how many as soon as lines flow again.
 *
 * Of one event, or of one event with the same code=, at most LOG_BURST lines are written in
 * LOG_WINDOW_S seconds (errors are not limited); when the window is over event=left_out says how
 * many were left out.
 */
#ifndef AGGREGATOR_LOG_H
#define AGGREGATOR_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/control/log_field.h"

#define LOG_BURST 100
#define LOG_WINDOW_S 10
#define LOG_QUEUE_BYTES (256u * 1024)
#define LOG_TEXT_BYTES 1024 /* what is longer is cut; a line of more than 4 KB is lost */
#define LOG_END_MS 1000     /* how long queued lines have at the end */

/*
 * log_open - write to `fd` from now on, including what was logged before. 0, or -errno when the
 * thread cannot be started.
 */
int log_open(int fd);

/* log_close - returns when all is written, or after LOG_END_MS. */
void log_close(void);

/* Lines lost so far. Any thread. */
uint64_t log_lines_lost(void);

enum log_format { LOG_LOGFMT, LOG_JSON };

/* `least`: 0: all, 1: no "info", 2: only "error". Before the first event. */
void log_set(int least, enum log_format format);

/*
 * log_event - "time=.. level=info event=NAME", the fields, and text="..", by `format`. `fields`: see
 * LOG_FIELDS(), or NULL. `format` NULL: no text. Any thread.
 */
void log_event(const char *level, const char *name, const struct log_field fields[],
               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same with a finished text; for struct jobs_ports. */
void log_fields(void *unused, const char *level, const char *name, const struct log_field fields[],
                const char *text);

/*
 * Call it now and then, and at the end: says what was left out in windows that are over, or in all.
 */
void log_flush(bool all);

#endif /* AGGREGATOR_LOG_H */
