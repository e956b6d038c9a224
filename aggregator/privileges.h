/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * privileges.h - gives up rights, which are only for opening sockets, buffers and devices
 *
 * Capabilities belong to threads, users to the process. So each thread gives up its capabilities as
 * soon as it has what it needs. If the process is to become another user, which all of its threads
 * do together, they wait for the main thread's privileges_become(), which ends all rights.
 */
#ifndef AGGREGATOR_PRIVILEGES_H
#define AGGREGATOR_PRIVILEGES_H

#include "bitmap/why.h"

/*
 * privileges_begin - call it before there are other threads. This process holds keys: only root may
 * read its memory or trace it, and it leaves no core file. No program that it runs has more rights
 * than it has. Returns 0, or -errno.
 */
int privileges_begin(void);

/*
 * privileges_user - sets the user that the process is to become, a name or UID:GID, before other
 * threads start. Returns 0, or -errno and `why`: there is no such user, it is root, or this process
 * is neither root nor that user.
 */
int privileges_user(const char *user, struct why *why);

/* privileges_own - what the calling thread opens from now on belongs to that user. */
void privileges_own(void);

/*
 * privileges_drop - the calling thread and those that it starts give up all capabilities for good,
 * or will do so later if a user is named. Returns 0, or -errno.
 */
int privileges_drop(void);

/* privileges_become - makes the process that user's, without capabilities. 0, or -errno and `why`. */
int privileges_become(struct why *why);

#endif /* AGGREGATOR_PRIVILEGES_H */
