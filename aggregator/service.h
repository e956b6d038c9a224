/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service.h - tells a service manager about winnowd
 *
 * If $NOTIFY_SOCKET is set (systemd, podman), the manager learns of the start, reloads and the end
 * through datagrams of sd_notify(3). If it also set $WATCHDOG_USEC, it learns twice in that time
 * that all threads still turn.
 */
#ifndef AGGREGATOR_SERVICE_H
#define AGGREGATOR_SERVICE_H

#include <stdint.h>

/* service_tell - sends "READY=1\nSTATUS=.." to the service manager, if there is one. */
void service_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* How often "WATCHDOG=1" is due: half the manager's limit, in ms; 0 if it does not watch us. */
uint64_t service_watchdog_ms(void);

#endif /* AGGREGATOR_SERVICE_H */
