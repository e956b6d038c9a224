/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service.h - what a service manager wants to know
 *
 * If $NOTIFY_SOCKET is set (systemd, podman), the manager learns of the start, reloads and the end
 * through datagrams of sd_notify(3), and, if it set $WATCHDOG_USEC, twice in that time that all
 * threads still turn.
 */
#ifndef AGGREGATOR_SERVICE_H
#define AGGREGATOR_SERVICE_H

#include <stdint.h>

/* service_tell - "READY=1\nSTATUS=.." to the service manager; nothing where there is none. */
void service_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* How often "WATCHDOG=1" is due: half the manager's limit, in ms; 0: it does not watch us. */
uint64_t service_watchdog_ms(void);

#endif /* AGGREGATOR_SERVICE_H */
