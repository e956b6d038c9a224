/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doctor.h - what the files of winnow doctor share
 *
 * doctor.c       options, the order of the checks, what has been found as text and JSON
 * doctor_host.c  kernel, CPU, capabilities, sockets, devices
 * doctor_path.c  the path to aggregators, with a job of one worker
 *
 * Nothing here changes the machine. Each warning and failure has a test that shows it.
 */
#ifndef CLIENT_CLI_DOCTOR_H
#define CLIENT_CLI_DOCTOR_H

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

#endif /* CLIENT_CLI_DOCTOR_H */
