/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service.h - winnowd as a service: signals, and what a service manager wants to know
 *
 * SIGTERM and SIGINT end it, SIGHUP reloads what can be reloaded. If $NOTIFY_SOCKET is set
 * (systemd, podman), the manager learns of the start, reloads and the end through datagrams of
 * sd_notify(3), and, if it set $WATCHDOG_USEC, twice in that time that all threads still turn.
 */
#ifndef AGGREGATOR_SERVICE_H
#define AGGREGATOR_SERVICE_H

#include <uv.h>

#define SERVICE_SIGNALS 3

/* On the control thread. */
struct service_hooks {
	void *context;
	void (*end)(void *context, int signal);
	void (*reload)(void *context);
	void (*alive)(void *context); /* returns only if every thread turns */
};

/* Part of its owner: uv_walk() and uv_close() with no callback of its own end it. */
struct service {
	struct service_hooks hooks;
	uv_signal_t signals[SERVICE_SIGNALS];
	uv_timer_t watchdog;
};

void service_start(struct service *service, uv_loop_t *loop, const struct service_hooks *hooks);

/* service_tell - "READY=1\nSTATUS=.." to the service manager; nothing where there is none. */
void service_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* AGGREGATOR_SERVICE_H */
