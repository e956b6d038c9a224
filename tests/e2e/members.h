/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * members.h - the parts of the program members
 *
 * members.c          the trainer: what happens to workers and aggregators, and whether the workers cope
 * members_worker.c   a worker: sums, checks, and continues in other memberships
 * members_daemons.c  the aggregators that the trainer starts, kills and drains
 */
#ifndef TESTS_E2E_MEMBERS_H
#define TESTS_E2E_MEMBERS_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

#define LIMIT_MS 20000
#define BLOCK 64
#define ADMIT_TURNS 8 /* Members look so often whether newcomers wait. */

/* The trainer tells a worker to form a membership. */
struct order {
	uint32_t id, rank, world; /* world 0: leave */
};

#define NEWCOMER UINT32_MAX /* for a world: that of the members, when they admit it */

/* A worker tells the trainer what has happened to it. */
struct report {
	enum { FAILED, FIRST, EXPELLED } kind;
	uint32_t id, world;
	int result;
	double at_ms;
	char text[256];
};

/* What each worker does, in memory that it shares with the trainer. */
struct shown {
	_Atomic uint64_t turns, longest_us; /* The longest turn took this long. */
	_Atomic uint32_t channels;
};

static inline double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* ---- members_worker.c ---- */

/*
 * A worker takes orders from one descriptor and writes reports to the other, until it must leave or the orders end.
 * alone: it continues by itself when others are lost, and admits newcomers.
 */
__attribute__((noreturn)) void work(int from, int to, uint64_t blocks, bool alone,
                                    struct shown *mine);

/* ---- members_daemons.c ---- */

#define DAEMONS_MAX 8

extern struct winnowd {
	uint16_t port;
	pid_t pid; /* 0: it does not run */
} daemons[DAEMONS_MAX];
extern uint32_t daemon_count;

/* Starts a winnowd by this command on each of the ports, which are a list with commas. */
void daemons_start(char *ports, char **command);
uint32_t daemons_running(void);
void daemons_end(void);

void winnowd_start(struct winnowd *d); /* Returns when it listens. */
void winnowd_kill(struct winnowd *d);
void winnowd_drain(struct winnowd *d); /* It must end by itself, and in good order. */

#endif /* TESTS_E2E_MEMBERS_H */
