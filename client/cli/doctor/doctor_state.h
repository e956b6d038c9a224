/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doctor_state.h - what the files of winnow doctor share. Nothing there changes the machine, and each
 * warning and failure has a test that shows it.
 */
#ifndef CLIENT_CLI_DOCTOR_STATE_H
#define CLIENT_CLI_DOCTOR_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* ABSENT: something is missing that only some users need. WARN: slower. FAIL: it will not work. */
enum doctor_state { DOCTOR_OK, DOCTOR_ABSENT, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_STATES };

/* What was asked for. */
struct doctor {
	const char *aggregators, *job, *device;
	const char *key_file, *key;
	int insecure_no_key;
};

/*
 * doctor_say - a finding, printf-like, and how to mend it unless it is OK; `fix` NULL: it cannot be.
 * Both are made printable.
 */
void doctor_say(enum doctor_state state, const char *name, const char *fix, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

void doctor_host(const struct doctor *doctor);
void doctor_path(const struct doctor *doctor);

#endif /* CLIENT_CLI_DOCTOR_STATE_H */
