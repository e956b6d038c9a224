/* SPDX-License-Identifier: BSD-3-Clause */
/* privileges.h - capabilities are only for opening sockets, buffers and devices */
#ifndef AGGREGATOR_PRIVILEGES_H
#define AGGREGATOR_PRIVILEGES_H

/*
 * privileges_hide - this process holds keys: nobody but root reads its memory, or traces it, and it leaves no
 * core file. 0, or -errno.
 */
int privileges_hide(void);

/*
 * privileges_drop - the calling thread, and those it starts, give up all capabilities for good.
 * Capabilities belong to threads: each calls it once it has opened what it needs. 0, or -errno.
 */
int privileges_drop(void);

#endif /* AGGREGATOR_PRIVILEGES_H */
