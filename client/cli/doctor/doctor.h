/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doctor.h - what the files of winnow doctor share
 *
 * doctor.c          options, the order of the checks
 * doctor_say.c      what has been found, as text and JSON
 * doctor_host.c     kernel, CPU, clock, memory, capabilities
 * doctor_net.c      sockets and devices
 * doctor_netlink.c  what a driver reports
 * doctor_path.c     the path to aggregators, with a job of one worker
 * doctor_soft.c     GPU driver, NCCL, PyTorch
 *
 * Nothing here changes the machine: it reads files, opens sockets without sending on them, and
 * loads an XDP program without attaching it.
 */
#ifndef CLIENT_CLI_DOCTOR_H
#define CLIENT_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ABSENT: something is missing that only some users need. WARN: slower. FAIL: it will not work. */
enum doctor_state { DOCTOR_OK, DOCTOR_ABSENT, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_STATES };

/* What was asked for. */
struct doctor {
	const char *aggregators, *job, *device, *python;
	const char *key_file, *key;
	int insecure_no_key;
};

/*
 * doctor_say - a finding, printf-like, and how to mend it unless it is OK; `fix` NULL: it cannot be.
 * Both are made printable.
 */
void doctor_say(enum doctor_state state, const char *name, const char *fix, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Before the first finding: they are for doctor_end() to print. Otherwise each is printed at once. */
void doctor_json(void);

/* How many there were, or all of them as JSON; returns 1 if something has failed, else 0. */
int doctor_end(void);

void doctor_host(void);
void doctor_net(const struct doctor *doctor);
void doctor_path(const struct doctor *doctor);
void doctor_soft(const struct doctor *doctor);

/* The first line of a file without its newline; false: it cannot be read. */
bool doctor_read(const char *path, char *text, size_t room);

/*
 * doctor_xdp_features - what the driver of device `index` reports that it can do with XDP: bits of
 * the kernel's enum netdev_xdp_act. False: this kernel cannot report it (before 6.3).
 */
#define DOCTOR_XDP_BASIC 1
bool doctor_xdp_features(uint32_t index, uint64_t *out);

#endif /* CLIENT_CLI_DOCTOR_H */
