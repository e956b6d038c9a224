/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check.h - what always holds of the machines between two calls, rule by rule
 *
 * Unit tests, simulation and fuzzers call these after every event. What costs nothing is in the machines themselves,
 * and runs in production as well: channel_check_edges(), stream_check_edges().
 */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Are all of so many entries to be walked through this time: a machine's frames, its segments? Up to 256 always are; more
 * in so many calls of all that about 16 a call are, or simulations would spend most of their time here. The calls are
 * drawn, since those of several machines may come in a fixed order.
 */
static inline bool check_walks(uint32_t entries)
{
	static _Thread_local uint32_t calls;

	calls++;
	return entries <= 256 ||
	       (uint32_t)(calls * UINT32_C(2654435761)) < UINT32_MAX / entries * 16;
}

struct channel;
struct engine;
struct jobs;
struct session;
struct stream;

void channel_check(
	const struct channel *channel); /* as long as the kernel does not add meanwhile */
void jobs_check(const struct jobs *jobs);
void stream_check(const struct stream *stream);
void engine_check(const struct engine *engine);    /* and its streams */
void session_check(const struct session *session); /* and its engine */
/* A site's channel, its stream to the parent, and the parent's channel: NULL if it is no more. */
void site_check(const struct channel *site, const struct stream *up, const struct channel *parent);

#endif /* TESTS_CHECK_H */
