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
static struct winnow_request *shared;  /* for calls that wait for it */
static char doing[100] = "creating\n"; /* a line */
static atomic_uint memberships;
static bool aborts; /* one of the two calls is an abort: anything may fail */

/* Each is to end in time. */
static void begin(const char *what, const char *beside)
{
	alarm(LIMIT_S);
	snprintf(doing, sizeof(doing), "%s beside %s\n", what, beside);
}

static void late(int number)
{
	(void)number;
	_exit(write(2, doing, sizeof(doing)) > 0 ? 1 : 2);
}

static void want(int right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "%s%s: %s\n", doing, what, winnow_last_error());
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

/* The first six are operations. */
enum {
	ALLREDUCE,
	SEGMENTS,
	REDUCE_SCATTER,
	BROADCAST,
	SPARSE_BLOCK,
	ROWS,
	WAIT,
	CHECK,
	ABORT,
	LOOK,
	TELL,
	RECONFIGURE,
	CONTINUE,
	ADMIT,
	CALLS
};

static const char *const names[CALLS] = {
	"allreduce", "segments", "reduce_scatter", "broadcast", "sparse_block", "rows",     "wait",
	"check",     "abort",    "stats",          "say",       "reconfigure",  "continue", "admit",
};

/* An operation, which has out[i] = i if it ends well. */
static void call_operation(int kind)
{
	const struct winnow_segment rows = {.count = COUNT, .row = ROW};
	int32_t data[COUNT], apart[COUNT];
	int32_t *out = kind == SPARSE_BLOCK ? apart : data;
	struct winnow_request *request = NULL;
	struct winnow_rows *list = NULL;
	int64_t index[COUNT / ROW];
	int result = WINNOW_OK;

	for (int32_t i = 0; i < COUNT; i++)
		data[i] = i;
	for (int64_t i = 0; i < COUNT / ROW; i++)
		index[i] = i * ROW;
	if (kind == ALLREDUCE)
		result = winnow_allreduce(data, data, COUNT, WINNOW_I32, WINNOW_SUM, comm);
	else if (kind == SEGMENTS)
		result = winnow_allreduce_segments_async(data, data, COUNT, WINNOW_I32, WINNOW_MAX,
		                                         &rows, 1, NULL, comm, &request);
	else if (kind == REDUCE_SCATTER)
		result = winnow_reduce_scatter_async(data, data, COUNT, WINNOW_I32, WINNOW_SUM,
		                                     NULL, comm, &request);
	else if (kind == BROADCAST)
		result = winnow_broadcast_async(data, sizeof(data), 0, NULL, comm, &request);
	else if (kind == SPARSE_BLOCK)
		result = winnow_allreduce_sparse_block_async(data, index, COUNT / ROW, ROW, out,
		                                             COUNT, WINNOW_I32, WINNOW_SUM, NULL,
		                                             comm, &request);
	else
		result = winnow_allreduce_rows_async(data, index, COUNT / ROW, ROW, COUNT,
		                                     WINNOW_I32, WINNOW_SUM, NULL, comm, &list,
		                                     &request);
	if (request != NULL)
		result = winnow_wait(request, -1, NULL);
	want(result == WINNOW_OK || result == WINNOW_ERR_MEMBERS || aborts, "it fails");
	for (int32_t i = 0; i < COUNT && result == WINNOW_OK; i++)
		want(out[i] == i, "a wrong result");
	want(kind != ROWS || result != WINNOW_OK || winnow_rows_count(list) == COUNT / ROW,
	     "a wrong list");
	winnow_request_free(&request);
	winnow_rows_free(&list);
}

static int reconfigured(uint32_t world)
{
	char id[16];

	snprintf(id, sizeof(id), "%u", atomic_fetch_add(&memberships, 1));
	return winnow_comm_reconfigure(comm, &(struct winnow_membership){.id = id, .world = world});
}

static void call(int kind)
{
	const struct winnow_membership left = {.join_timeout_ms = 1000};
	struct winnow_op_stats operation;
	struct winnow_stats stats;
	uint32_t came;
	int done, result = WINNOW_OK;

	switch (kind) {
	case WAIT:
		result = winnow_test(shared, &done, &operation);
		want(result == WINNOW_OK || *winnow_last_error() != '\0', "no reason");
		result = winnow_wait(shared, 1, &operation);
		break;
	case CHECK:
		result = winnow_comm_check(comm);
		break;
	case ABORT:
		winnow_comm_abort(comm, "enough");
		break;
	case LOOK:
		winnow_comm_stats(comm, &stats);
		want(winnow_comm_late(comm) != NULL && winnow_comm_error(comm) != NULL, "no line");
		want(winnow_comm_rank(comm) == 0 && winnow_comm_world(comm) >= 1, "not the worker");
		break;
	case TELL:
		winnow_comm_say(comm, "hello");
		winnow_comm_hold(comm);
		break;
	case RECONFIGURE:
		result = reconfigured(1);
		want(result == WINNOW_OK || aborts, "it does not continue");
		break;
	case CONTINUE:
		result = winnow_comm_reconfigure(comm, &left);
		want(result != WINNOW_ERR_TIMEOUT, "it waits in vain");
		break;
	case ADMIT:
		result = winnow_comm_admit(comm, 1, &came);
		break;
	default:
		call_operation(kind);
	}
	want(result == WINNOW_OK || *winnow_last_error() != '\0', "no reason");
}

/* ---- pairs ---- */

static atomic_bool stopping;

static void *call_often(void *context)
{
	do
		call((int)(intptr_t)context);
	while (!atomic_load(&stopping));
	return NULL;
}

static void start(pthread_t *thread, int kind)
{
	atomic_store(&stopping, false);
	want(pthread_create(thread, NULL, call_often, (void *)(intptr_t)kind) == 0, "no thread");
}

static void stop(pthread_t thread)
{
	atomic_store(&stopping, true);
	pthread_join(thread, NULL);
}

/* The communicator works, whatever has become of its membership. */
static void works(void)
{
	want(reconfigured(1) == WINNOW_OK, "it does not continue");
	call_operation(ALLREDUCE);
	want(winnow_comm_check(comm) == WINNOW_OK, "it does not work");
}

static void pair(int a, int b, useconds_t us)
{
	static int32_t data[COUNT];
	pthread_t first, second;

	aborts = a == ABORT || b == ABORT;
	begin(names[a], names[b]);
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
	aborts = false;
}

/* ---- moments ---- */

/* What is ordered before a membership ends with the one before it. */
static void abort_before(void)
{
	begin("abort before reconfigure", "nothing");
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

	begin("abort in reconfigure", "nothing");
	want(pthread_create(&thread, NULL, abort_soon, NULL) == 0, "no thread");
	want(reconfigured(2) == WINNOW_ERR_ABORTED, "it is not aborted");
	want(now_ms() - began_ms < 5000, "it is aborted too late");
	pthread_join(thread, NULL);
	works();
}

/* Callers who look meanwhile have an answer. */
static void without_thread(void)
{
	pthread_t thread;

	begin("reconfigure without a thread", names[LOOK]);
	for (uint32_t i = 0; i < 20; i++) {
		start(&thread, LOOK);
		usleep(1000);
		atomic_store(&no_threads, true);
		want(reconfigured(1) == WINNOW_ERR_SYSTEM, "a thread has begun");
		atomic_store(&no_threads, false);
		stop(thread);
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
	for (int a = 0; a < CALLS; a++)
		for (int b = 0; b <= a; b++)
			pair(a, b, us);
	abort_before();
	abort_meanwhile();
	without_thread();
	winnow_comm_destroy(comm);
	printf("%d pairs, %u memberships\n", CALLS * (CALLS + 1) / 2, atomic_load(&memberships));
	return 0;
}
