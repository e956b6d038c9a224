// SPDX-License-Identifier: BSD-3-Clause
/*
 * pairs.c - calls of one communicator in two threads at the same time: each function of winnow.h beside each other one
 *
 *     pairs [MS]                WINNOW_AGGREGATORS, WINNOW_JOB and a key or none; so many ms a pair, 3 without MS
 *
 * The job has one worker. No call may take longer than LIMIT_S, an operation that ends well has the right result, and
 * after each pair the communicator continues in another membership. Built with the thread sanitizer it finds races.
 * Then come the moments that pairs do not meet by chance.
 */

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/winnow.h"

#define LIMIT_S 20
#define COUNT 1000
#define ROW 10

static struct winnow_comm *comm;
static struct winnow_request *shared; /* for calls that wait for it */
static const char *under_way = "creating", *beside = "nothing";
static atomic_uint memberships;

static void late(int number)
{
	char text[200];
	int bytes =
		snprintf(text, sizeof(text), "%s beside %s takes too long\n", under_way, beside);

	(void)number;
	_exit(write(2, text, (size_t)bytes) > 0 ? 1 : 2);
}

static void want(int right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "%s beside %s: %s: %s\n", under_way, beside, what, winnow_last_error());
	exit(1);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- threads that cannot be made ---- */

static atomic_bool no_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *context)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	*(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
	return atomic_load(&no_threads) ? EAGAIN : next(thread, attributes, run, context);
}

/* ---- the calls ---- */

/* A request is waited for, and freed; if it has ended well, out[i] = i. */
static void finish(int result, struct winnow_request **request, const int32_t *out)
{
	if (result == WINNOW_OK && request != NULL)
		result = winnow_wait(*request, -1, NULL);
	for (int32_t i = 0; i < COUNT && result == WINNOW_OK; i++)
		want(out[i] == i, "a wrong result");
	if (request != NULL)
		winnow_request_free(request);
}

static void fill(int32_t *data)
{
	for (int32_t i = 0; i < COUNT; i++)
		data[i] = i;
}

static void call_allreduce(void)
{
	int32_t data[COUNT];

	fill(data);
	finish(winnow_allreduce(data, data, COUNT, WINNOW_I32, WINNOW_SUM, comm), NULL, data);
}

static void call_segments(void)
{
	const struct winnow_segment rows = {.count = COUNT, .row = ROW};
	struct winnow_request *request;
	int32_t data[COUNT];

	fill(data);
	finish(winnow_allreduce_segments_async(data, data, COUNT, WINNOW_I32, WINNOW_MAX, &rows, 1,
	                                       NULL, comm, &request),
	       &request, data);
}

static void call_reduce_scatter(void)
{
	struct winnow_request *request;
	int32_t data[COUNT];

	fill(data);
	finish(winnow_reduce_scatter_async(data, data, COUNT, WINNOW_I32, WINNOW_SUM, NULL, comm,
	                                   &request),
	       &request, data);
}

static void call_broadcast(void)
{
	struct winnow_request *request;
	int32_t data[COUNT];

	fill(data);
	finish(winnow_broadcast_async(data, sizeof(data), 0, NULL, comm, &request), &request, data);
}

static void call_sparse(void)
{
	int64_t index[COUNT / ROW];
	struct winnow_request *request;
	int32_t data[COUNT], out[COUNT];

	fill(data);
	for (int64_t i = 0; i < COUNT / ROW; i++)
		index[i] = i * ROW;
	finish(winnow_allreduce_sparse_block_async(data, index, COUNT / ROW, ROW, out, COUNT,
	                                           WINNOW_I32, WINNOW_SUM, NULL, comm, &request),
	       &request, out);
}

static void call_rows(void)
{
	const int64_t index = 0;
	struct winnow_request *request;
	struct winnow_rows *rows;
	int32_t data[COUNT];

	fill(data);
	finish(winnow_allreduce_rows_async(data, &index, 1, COUNT, COUNT, WINNOW_I32, WINNOW_SUM,
	                                   NULL, comm, &rows, &request),
	       &request, data);
	winnow_rows_free(&rows);
}

static void call_wait(void)
{
	struct winnow_op_stats stats;
	int done, result = winnow_test(shared, &done, &stats);

	want(result == WINNOW_OK || *winnow_last_error() != '\0', "no reason");
	(void)!winnow_wait(shared, 1, &stats);
}

static void call_check(void)
{
	if (winnow_comm_check(comm) != WINNOW_OK)
		want(*winnow_comm_error(comm) != '\0' || *winnow_last_error() != '\0', "no reason");
}

static void call_abort(void)
{
	winnow_comm_abort(comm, "enough");
}

static void call_look(void)
{
	struct winnow_stats stats;

	winnow_comm_stats(comm, &stats);
	want(winnow_comm_late(comm) != NULL && winnow_comm_error(comm) != NULL, "no line");
	want(winnow_comm_rank(comm) == 0 && winnow_comm_world(comm) == 1, "not the worker");
}

static void call_tell(void)
{
	winnow_comm_say(comm, "hello");
	winnow_comm_hold(comm);
}

static int reconfigured(uint32_t world)
{
	char id[16];

	snprintf(id, sizeof(id), "%u", atomic_fetch_add(&memberships, 1));
	return winnow_comm_reconfigure(comm, &(struct winnow_membership){.id = id, .world = world});
}

static void call_reconfigure(void)
{
	(void)reconfigured(1);
}

static void call_continue(void)
{
	const struct winnow_membership left = {.join_timeout_ms = 1000};
	int result = winnow_comm_reconfigure(comm, &left);

	want(result != WINNOW_ERR_TIMEOUT, "it waits in vain");
}

static void call_admit(void)
{
	uint32_t came;

	(void)!winnow_comm_admit(comm, 1, &came);
}

static const struct call {
	const char *name;
	void (*make)(void);
} calls[] = {
	{"allreduce", call_allreduce},
	{"segments", call_segments},
	{"reduce_scatter", call_reduce_scatter},
	{"broadcast", call_broadcast},
	{"sparse_block", call_sparse},
	{"rows", call_rows},
	{"wait", call_wait},
	{"check", call_check},
	{"abort", call_abort},
	{"stats", call_look},
	{"say", call_tell},
	{"reconfigure", call_reconfigure},
	{"continue", call_continue},
	{"admit", call_admit},
};

#define CALLS (sizeof(calls) / sizeof(calls[0]))

/* ---- pairs ---- */

static atomic_bool stopping;

static void *call_often(void *context)
{
	const struct call *call = context;

	do
		call->make();
	while (!atomic_load(&stopping));
	return NULL;
}

static void start(pthread_t *thread, const struct call *call)
{
	atomic_store(&stopping, false);
	want(pthread_create(thread, NULL, call_often, (void *)(uintptr_t)call) == 0, "no thread");
}

static void stop(pthread_t thread)
{
	atomic_store(&stopping, true);
	pthread_join(thread, NULL);
}

/* The communicator works, whatever has become of its membership. */
static void works(void)
{
	int32_t data[COUNT];

	want(reconfigured(1) == WINNOW_OK, "it does not continue");
	fill(data);
	want(winnow_allreduce(data, data, COUNT, WINNOW_I32, WINNOW_SUM, comm) == WINNOW_OK,
	     "it does not work");
}

static void pair(const struct call *a, const struct call *b, useconds_t us)
{
	static int32_t data[COUNT];
	pthread_t first, second;

	alarm(LIMIT_S);
	under_way = a->name;
	beside = b->name;
	want(winnow_allreduce_async(data, data, COUNT, WINNOW_I32, WINNOW_SUM, NULL, comm,
	                            &shared) == WINNOW_OK,
	     "nothing begins");
	start(&first, a);
	start(&second, b);
	usleep(us);
	stop(first);
	stop(second);
	works();
	winnow_request_free(&shared);
}

/* ---- moments ---- */

/* What is ordered before a membership ends with the one before it. */
static void abort_before(void)
{
	alarm(LIMIT_S);
	under_way = "abort before reconfigure";
	for (uint32_t i = 0; i < 20; i++) {
		winnow_comm_abort(comm, "before");
		works();
	}
}

static void *abort_soon(void *context)
{
	(void)context;
	usleep(100000);
	winnow_comm_abort(comm, "meanwhile");
	return NULL;
}

/* Another worker is waited for, which never comes. */
static void abort_meanwhile(void)
{
	uint64_t began_ms = now_ms();
	pthread_t thread;

	alarm(LIMIT_S);
	under_way = "abort in reconfigure";
	want(pthread_create(&thread, NULL, abort_soon, NULL) == 0, "no thread");
	want(reconfigured(2) == WINNOW_ERR_ABORTED, "it is not aborted");
	want(now_ms() - began_ms < 5000, "it is aborted too late");
	pthread_join(thread, NULL);
	works();
}

/* Callers who look meanwhile have an answer. */
static void without_thread(void)
{
	const struct call look = {"stats", call_look};
	pthread_t thread;

	alarm(LIMIT_S);
	under_way = "reconfigure without a thread";
	beside = look.name;
	for (uint32_t i = 0; i < 20; i++) {
		start(&thread, &look);
		usleep(1000);
		atomic_store(&no_threads, true);
		want(reconfigured(1) == WINNOW_ERR_SYSTEM, "a thread has begun");
		atomic_store(&no_threads, false);
		stop(thread);
		call_allreduce();
		works();
	}
}

int main(int argc, char **argv)
{
	useconds_t us = (argc > 1 ? (useconds_t)atoi(argv[1]) : 3) * 1000;
	struct winnow_config config;

	signal(SIGALRM, late);
	winnow_config_init(&config);
	want(winnow_comm_create(&config, &comm) == WINNOW_OK, "it does not join");
	for (size_t a = 0; a < CALLS; a++)
		for (size_t b = 0; b <= a; b++)
			pair(&calls[a], &calls[b], us);
	abort_before();
	abort_meanwhile();
	without_thread();
	winnow_comm_destroy(comm);
	printf("%zu pairs, %u memberships\n", CALLS * (CALLS + 1) / 2, atomic_load(&memberships));
	return 0;
}
