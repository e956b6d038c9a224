/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listener.h - a TCP port on its owner's loop
 *
 * It continues to accept connections when the process has no descriptor left, if its owner can free
 * one. Otherwise connections wait in the kernel, and the loop does not spin.
 */
#ifndef AGGREGATOR_LISTENER_H
#define AGGREGATOR_LISTENER_H

#include <stdbool.h>
#include <uv.h>

#include "bitmap/net/net.h"

#define LISTENER_NONE ((struct listener){.fd = -1})

struct listener_hooks {
	void *context;
	/* Receives a new connection, whose non-blocking socket belongs to the callee. */
	void (*taken)(void *context, int fd, const struct net_addr *from);
	/* Called when no descriptor is left. Returns true if one is free now. */
	bool (*make_room)(void *context);
};

/* Part of its owner. uv_walk() and uv_close(), without a callback, end its handles. */
struct listener {
	struct listener_hooks hooks;
	struct net_addr address;
	uv_poll_t poll;
	uv_timer_t pause;
	int fd;
	uint64_t short_ms; /* when the last connection could not be accepted; 0: never */
};

/*
 * listener_bind - opens a listening socket that only this process has; the kernel keeps connections
 * that come before listener_open(). Returns it, or -errno with one line in `why` that begins with
 * `what`: "cannot listen on TCP".
 */
int listener_bind(const struct net_addr *address, const char *what, struct why *why);

/*
 * listener_open - accepts connections on `fd`, which listener_bind() made for `address` and which
 * now belongs to the listener. Returns 0, or -errno with one line in `why` and no handles.
 */
int listener_open(struct listener *listener, uv_loop_t *loop, int fd,
                  const struct net_addr *address, const struct listener_hooks *hooks,
                  struct why *why);

/* listener_stop - accepts no more; accepted connections continue. LISTENER_NONE is fine. */
void listener_stop(struct listener *listener);

/* listener_close - call it when the loop has closed the handles. LISTENER_NONE is fine. */
void listener_close(struct listener *listener);

#endif /* AGGREGATOR_LISTENER_H */
