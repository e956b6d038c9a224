/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listener.h - a TCP port on the control thread's loop
 *
 * It continues to accept connections when the process has no descriptor left, if its owner can give one back.
 * Otherwise connections wait in the kernel, and the loop does not spin.
 */
#ifndef AGGREGATOR_LISTENER_H
#define AGGREGATOR_LISTENER_H

#include <stdbool.h>
#include <uv.h>

#include "bitmap/net/net.h"

#define LISTENER_NONE ((struct listener){.fd = -1})

struct listener_hooks {
	void *context;
	/* A new connection: its socket, non-blocking, belongs to the callee. */
	void (*taken)(void *context, int fd, const struct net_addr *from);
	/* No descriptor is left. True: one is free now. */
	bool (*make_room)(void *context);
};

/* Part of its owner: uv_walk() and uv_close() with no callback of its own end its handles. */
struct listener {
	struct listener_hooks hooks;
	struct net_addr address;
	uv_poll_t poll;
	uv_timer_t pause;
	int fd;
	uint64_t short_ms; /* when a connection could not be taken for the last time; 0: never */
};

/*
 * listener_bind - a socket that listens, and is this process's alone; the kernel keeps the connections
 * that come before listener_open(). -errno with one line in `why` that begins with `what`: "cannot
 * listen on TCP".
 */
int listener_bind(const struct net_addr *address, const char *what, struct why *why);

/*
 * listener_open - accept what comes to `fd`, which listener_bind() has made for `address` and which
 * belongs to the listener from now on. 0, or -errno with one line in `why`; then there are no handles.
 */
int listener_open(struct listener *listener, uv_loop_t *loop, int fd,
                  const struct net_addr *address, const struct listener_hooks *hooks,
                  struct why *why);

/* listener_stop - accept no more; accepted connections continue. Also of LISTENER_NONE. */
void listener_stop(struct listener *listener);

/* listener_close - when the loop has closed its handles. Also of LISTENER_NONE. */
void listener_close(struct listener *listener);

#endif /* AGGREGATOR_LISTENER_H */
