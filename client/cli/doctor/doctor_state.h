/* SPDX-License-Identifier: BSD-3-Clause */
/* doctor_state.h - what the files of winnow doctor share; none of them changes the machine */
#ifndef CLIENT_CLI_DOCTOR_STATE_H
#define CLIENT_CLI_DOCTOR_STATE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * ABSENT means that something only some users need is missing, WARN that Winnow is slower, FAIL that it will not work.
 */
enum doctor_state { DOCTOR_OK, DOCTOR_ABSENT, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_STATES };

/* The options. */
struct doctor {
	const char *aggregators, *job, *device;
	const char *key_file, *key;
	int insecure_no_key;
};

/* Reports a finding (printf-like) and, unless it is OK, the way to mend it. `fix` is NULL if there is none. */
void doctor_say(enum doctor_state state, const char *name, const char *fix, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

void doctor_host(const struct doctor *doctor);
void doctor_path(const struct doctor *doctor);

#endif /* CLIENT_CLI_DOCTOR_STATE_H */
