/* SPDX-License-Identifier: BSD-3-Clause */
/* test_comm.h - a communicator whose thread is the test */
#ifndef TESTS_UNIT_TEST_COMM_H
#define TESTS_UNIT_TEST_COMM_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/comm/comm_state.h"
#include "tests/unit/unit.h"

#define COUNT 16

static const int32_t given[4 * COUNT];
static int32_t received[4 * COUNT];

/* A communicator with so many aggregators, one or two, without sockets and thread, where operations may begin. */
static inline struct winnow_comm *comm_made(uint32_t peer_count)
{
	static const char *const names[] = {"one:1", "two:2"};
	struct link_config link = {.job = "job",
	                           .host = "host",
	                           .world = 2,
	                           .silence_us = 10000000,
	                           .join_us = 60000000},
			   links[] = {link, link};
	struct session_config config = {.links = links, .names = names, .link_count = peer_count};
	struct winnow_comm *comm = calloc(1, sizeof(*comm));

	assert_non_null(comm);
	strcpy(comm->move.job, "job");
	comm->fixed.config.block = 256;
	comm->fixed.wake_fd = -1;
	comm->move.peer_count = peer_count;
	for (uint32_t i = 0; i < SESSION_LINKS_MAX; i++) {
		comm->peers[i].tcp.fd = -1;
		comm->peers[i].at.count = 1;
	}
	comm->shared.phase = COMM_RUNNING;
	STAILQ_INIT(&comm->shared.submitted);
	STAILQ_INIT(&comm->shared.unused);
	pthread_mutex_init(&comm->shared.lock, NULL);
	comm_cond_init(&comm->shared.changed);
	assert_int_equal(session_open(&config, 0, &comm->session), 0);
	return comm;
}

static inline void closed(struct winnow_comm *comm)
{
	for (uint32_t i = 0; i < SESSION_LINKS_MAX; i++) {
		comm_peer_close(&comm->peers[i]);
		comm_resolve_drop(&comm->peers[i]);
	}
	comm_requests_free(comm);
	session_close(comm->session);
	pthread_cond_destroy(&comm->shared.changed);
	pthread_mutex_destroy(&comm->shared.lock);
	free(comm);
}

#define COMM_TEST(name, opened) TEST_ON(name, struct winnow_comm *, comm, opened, closed(comm))

static inline struct winnow_request *begin(struct winnow_comm *comm)
{
	struct winnow_request *request;

	assert_int_equal(winnow_allreduce_async(given, received, COUNT, WINNOW_I32, WINNOW_SUM,
	                                        NULL, comm, &request),
	                 WINNOW_OK);
	return request;
}

/* What the thread does: the oldest operation that was queued has come to this. */
static inline struct winnow_request *taken(struct winnow_comm *comm)
{
	struct winnow_request *request = STAILQ_FIRST(&comm->shared.submitted);

	assert_non_null(request);
	STAILQ_REMOVE_HEAD(&comm->shared.submitted, next);
	return request;
}

static inline void end(struct winnow_request *request, int status)
{
	request->task.status = status;
	request->task.blocks = 3;
	request->task.blocks_nonzero = 2;
	request->task.blocks_union = 1;
	comm_complete(request);
}

static inline uint32_t made(const struct winnow_comm *comm)
{
	uint32_t count = 0;

	for (const struct winnow_request *r = comm->shared.requests; r != NULL; r = r->made_before)
		count++;
	return count;
}

static inline uint32_t unused(const struct winnow_comm *comm)
{
	const struct winnow_request *r;
	uint32_t count = 0;

	STAILQ_FOREACH(r, &comm->shared.unused, next)
		count++;
	return count;
}

#endif /* TESTS_UNIT_TEST_COMM_H */
