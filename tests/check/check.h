/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check.h - what always holds of the machines between two calls, rule by rule
 *
 * Unit tests, simulation and fuzzers call these after every event. What costs nothing is in the machines themselves,
 * and runs in production as well: channel_check_edges(), stream_check_edges().
 */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

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

#endif /* TESTS_CHECK_H */
