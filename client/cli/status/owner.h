/* SPDX-License-Identifier: BSD-3-Clause */
/* owner.h - as which user a daemon of this machine runs; of others nothing is known */
#ifndef CLIENT_CLI_OWNER_H
#define CLIENT_CLI_OWNER_H

#include <stddef.h>
#include <stdint.h>

#define OWNER_NAME_BYTES 64

/* owner_of - the user id of who listens where the TCP socket `fd` is connected to; -1: not known. */
int64_t owner_of(int fd);

/* owner_name - its login name, or its number where it has none. */
void owner_name(int64_t uid, char name[OWNER_NAME_BYTES]);

#endif /* CLIENT_CLI_OWNER_H */
