/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * privileges.h - rights are only for opening sockets, buffers and devices
 *
 * Capabilities belong to threads, users to the process. So each thread gives its capabilities up as soon
 * as it has what it needs; only where the process is to become another user, which takes all of its
 * threads' consent, they wait for the main thread, whose privileges_become() is the end of all rights.
 */
#ifndef AGGREGATOR_PRIVILEGES_H
#define AGGREGATOR_PRIVILEGES_H

#include "bitmap/why.h"

/*
 * privileges_begin - before there are other threads. This process holds keys: nobody but root reads its memory, or
 * traces it, and it leaves no core file. No program that it runs has more rights than it has. 0, or -errno.
 */
int privileges_begin(void);

/*
 * privileges_user - as whom it is to go on: a name, or UID:GID. Before other threads start. 0, or -errno and
 * `why`: there is none such, it is root, or this process is not root and somebody else.
 */
int privileges_user(const char *user, struct why *why);

/* privileges_own - what the calling thread opens from now on belongs to that user. */
void privileges_own(void);

/*
 * privileges_drop - the calling thread, and those it starts, give up all capabilities for good; or, where a user is
 * named, will do so. 0, or -errno.
 */
int privileges_drop(void);

/* privileges_become - the process is that user's, if one is named, and has no capability. 0, or -errno and `why`. */
int privileges_become(struct why *why);

#endif /* AGGREGATOR_PRIVILEGES_H */
