// SPDX-License-Identifier: BSD-3-Clause
/* comm_state.c - what all other comm_*.c use: errors, waking, phases, what callers see of the session */

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/comm/comm_state.h"

static _Thread_local struct why last_error, error_copy;

const char comm_after_fork[] = "the communicator is the parent process's: make one after the fork";
const char comm_moves[] = "no membership runs: the communicator goes on to another one";

int comm_fail(int result, const char *why)
{
	return why_set(&last_error, result, "%s", why);
}

const char *winnow_last_error(void)
{
	return last_error.text;
}

void comm_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attributes);
	pthread_condattr_destroy(&attributes);
}

int comm_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_us)
{
	struct timespec until = clock_timespec(until_us);

	return until_us == UINT64_MAX ? pthread_cond_wait(cond, lock)
	                              : pthread_cond_timedwait(cond, lock, &until);
}

int comm_thread_start(pthread_t *thread, void *(*run)(void *), void *context, struct why *why)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(thread, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err == 0)
		return WINNOW_OK;
	return why_set(why, WINNOW_ERR_SYSTEM, "cannot start a thread: %s", strerror(err));
}

void comm_wake(struct winnow_comm *comm)
{
	uint64_t one = 1;

	/* The eventfd cannot be full, as the thread reads it each time. */
	if (!atomic_exchange_explicit(&comm->any.woken, true, memory_order_acq_rel))
		(void)!write(comm->fixed.wake_fd, &one, sizeof(one));
}

void comm_end(struct winnow_comm *comm, enum winnow_result result, const char *text)
{
	struct comm_shared *shared = &comm->shared;

	if (comm->inherited)
		return;
	pthread_mutex_lock(&shared->lock);
	if (shared->end.result == WINNOW_OK) {
		snprintf(shared->end.text, sizeof(shared->end.text), "%s", text);
		text_show(shared->end.text);
		shared->end.result = result;
	}
	pthread_cond_broadcast(&shared->changed);
	pthread_mutex_unlock(&shared->lock);
	comm_wake(comm);
}

struct comm_view comm_view(const struct winnow_comm *comm)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&comm->shared.lock;
	struct comm_view view;

	if (comm->inherited)
		return comm->shared.view;
	pthread_mutex_lock(lock);
	view = comm->shared.view;
	pthread_mutex_unlock(lock);
	return view;
}

void comm_phase_set(struct winnow_comm *comm, enum comm_phase phase)
{
	/* The table of comm_state.h, as bits. */
	static const uint32_t next[] = {
		[COMM_FORMING] = 1 << COMM_JOINING | 1 << COMM_STRANDED,
		[COMM_STRANDED] = 1 << COMM_FORMING,
		[COMM_JOINING] = 1 << COMM_RUNNING | 1 << COMM_FAILED | 1 << COMM_STOPPING |
	                         1 << COMM_FORMING,
		[COMM_RUNNING] = 1 << COMM_FAILED | 1 << COMM_STOPPING,
		[COMM_FAILED] = 1 << COMM_STOPPING,
		[COMM_STOPPING] = 1 << COMM_LEAVING,
		[COMM_LEAVING] = 1 << COMM_LEFT,
		[COMM_LEFT] = 1 << COMM_FORMING,
	};

	assert(next[comm->shared.phase] >> phase & 1);
	comm->shared.phase = phase;
	pthread_cond_broadcast(&comm->shared.changed);
}

bool comm_runs(const struct winnow_comm *comm, uint32_t membership)
{
	return comm->shared.phase == COMM_RUNNING && comm->shared.view.number == membership;
}

bool comm_deserted(struct winnow_comm *comm, struct why *who)
{
	bool deserted;

	pthread_mutex_lock(&comm->shared.lock);
	why_set(who, 0, "%s while an operation needed it", comm->shared.news.deserter);
	deserted = comm->shared.news.deserter[0] != '\0';
	pthread_mutex_unlock(&comm->shared.lock);
	return deserted;
}

void comm_stats_add(struct winnow_stats *stats, const struct winnow_stats *more)
{
	stats->sent_packets += more->sent_packets;
	stats->sent_bytes += more->sent_bytes;
	stats->received_packets += more->received_packets;
	stats->received_bytes += more->received_bytes;
	stats->retransmits += more->retransmits;
	stats->nacks += more->nacks;
	stats->dropped += more->dropped;
	stats->sent_marked += more->sent_marked;
	stats->received_marked += more->received_marked;
	stats->received_lost += more->received_lost;
	stats->held_window_us += more->held_window_us;
	stats->held_credit_us += more->held_credit_us;
}

bool comm_unpublished(const struct winnow_comm *comm)
{
	const enum session_state state = session_state(comm->session);

	return (state == SESSION_RUNNING && comm->shared.phase == COMM_JOINING) ||
	       (state == SESSION_FAILED && comm->shared.result == WINNOW_OK);
}

void comm_publish(struct winnow_comm *comm)
{
	struct comm_shared *shared = &comm->shared;

	if (!comm_unpublished(comm))
		return;
	if (session_state(comm->session) == SESSION_FAILED) {
		shared->result = session_result(comm->session);
		why_set(&shared->error, 0, "%s", session_error(comm->session));
		if (shared->phase < COMM_STOPPING)
			comm_phase_set(comm, COMM_FAILED);
	} else if (shared->end.result == WINNOW_OK) {
		/* A membership that a caller has ended before it ran must not run. */
		shared->shape = session_shape(comm->session);
		shared->view.fast = shared->shape.fast;
		comm_phase_set(comm, COMM_RUNNING);
	}
}

void comm_publish_news(struct winnow_comm *comm)
{
	const struct control_message *next = link_next(session_link(comm->session, 0));
	struct comm_shared *shared = &comm->shared;

	session_stats(comm->session, &shared->news.stats);
	comm_stats_add(&shared->news.stats, &comm->move.before);
	snprintf(shared->news.late, sizeof(shared->news.late), "%s", session_late(comm->session));
	snprintf(shared->news.deserter, sizeof(shared->news.deserter), "%s",
	         session_who_left(comm->session));
	shared->news.waiting = session_link(comm->session, 0)->waiting;
	shared->news.drains = session_drains(comm->session);
	shared->news.back = comm->run.back;
	if (next != NULL && shared->news.next.kind == 0) {
		shared->news.next = *next;
		pthread_cond_broadcast(&shared->changed);
	}
	comm->run.news = false;
	comm->run.news_due_us = clock_us() + COMM_NEWS_US;
}

/* ---- arguments ---- */

/* They are apart, or the operation is in place: `recv` is its own part of `send`. */
static bool buffers_apart(const struct allreduce *task, uint32_t elem_bytes)
{
	uintptr_t send = (uintptr_t)task->send, recv = (uintptr_t)task->recv;
	uint64_t count = task->scatter ? task->share_count : task->count;

	return recv == send + task->share_first * elem_bytes ||
	       send + task->count * elem_bytes <= recv || recv + count * elem_bytes <= send;
}

const char *comm_wrong_argument(const struct allreduce *task, const struct winnow_options *options)
{
	uint32_t elem_bytes = dtype_bytes((enum dtype)task->dtype);

	if (task->dtype < 1 || task->dtype > DTYPE_COUNT)
		return "unknown element type";
	if (task->reduction < WINNOW_SUM || task->reduction > WINNOW_PROD)
		return "unknown operation";
	if (task->count > UINT64_C(1) << 48)
		return "count is above 2^48";
	if (task->count > 0 && (task->send == NULL || task->recv == NULL))
		return "a buffer is NULL";
	if (((uintptr_t)task->send | (uintptr_t)task->recv) % elem_bytes != 0)
		return "a buffer is not aligned for its element type";
	if (!buffers_apart(task, elem_bytes))
		return task->scatter ? "the buffers overlap: recv must be send + rank * "
		                       "recv_count, or apart"
		                     : "the buffers overlap: they must be equal or apart";
	if (options == NULL)
		return NULL;
	if (options->tag >= COMM_TAG_BY_ORDER)
		return "tags are 1 to 2^63 - 1";
	if (options->block > WIRE_BLOCK_ELEMS_MAX)
		return "block is above 65536";
	if (options->wire > WINNOW_WIRE_BF16)
		return "unknown wire form";
	if (options->memory > WINNOW_MEMORY_CUDA)
		return "unknown kind of memory";
	return NULL;
}

/* ---- the public calls that only look ---- */

const char *winnow_strerror(int result)
{
	static const char *const texts[] = {
		[WINNOW_OK] = "no error",
		[WINNOW_ERR_INVALID] = "an argument is impossible",
		[WINNOW_ERR_MEMORY] = "out of memory",
		[WINNOW_ERR_SYSTEM] = "the system refused a socket or a thread",
		[WINNOW_ERR_UNREACHABLE] = "no aggregator answers",
		[WINNOW_ERR_REFUSED] = "the aggregator refused this worker",
		[WINNOW_ERR_MISMATCH] = "workers do not agree on the operation",
		[WINNOW_ERR_LOST] = "an aggregator is lost",
		[WINNOW_ERR_ABORTED] = "the job was aborted",
		[WINNOW_ERR_TIMEOUT] = "timed out",
		[WINNOW_ERR_BUSY] = "an operation with this tag is under way",
		[WINNOW_ERR_PROTOCOL] = "not a Winnow aggregator",
		[WINNOW_ERR_GPU] = "the GPU or its driver failed",
		[WINNOW_ERR_MEMBERS] = "a worker is lost: the others can continue without it",
	};

	if (result < 0 || result > WINNOW_ERR_MEMBERS)
		return "unknown error";
	return texts[result];
}

int winnow_comm_check(struct winnow_comm *comm)
{
	struct comm_shared *shared = &comm->shared;
	struct why why;
	int result = WINNOW_OK;

	if (comm->inherited)
		return comm_fail(WINNOW_ERR_INVALID, comm_after_fork);
	pthread_mutex_lock(&shared->lock);
	if (shared->result != WINNOW_OK)
		result = why_set(&why, (int)shared->result, "%s", shared->error.text);
	else if (shared->end.result != WINNOW_OK) /* The thread is about to fail it. */
		result = why_set(&why, (int)shared->end.result, "%s", shared->end.text);
	pthread_mutex_unlock(&shared->lock);
	return result == WINNOW_OK ? WINNOW_OK : comm_fail(result, why.text);
}

const char *winnow_comm_error(struct winnow_comm *comm)
{
	if (comm->inherited)
		return comm_after_fork;
	pthread_mutex_lock(&comm->shared.lock);
	error_copy = comm->shared.error;
	pthread_mutex_unlock(&comm->shared.lock);
	return error_copy.text;
}

void winnow_comm_stats(struct winnow_comm *comm, struct winnow_stats *stats)
{
	*stats = (struct winnow_stats){0};
	if (comm->inherited)
		return;
	pthread_mutex_lock(&comm->shared.lock);
	*stats = comm->shared.news.stats;
	pthread_mutex_unlock(&comm->shared.lock);
	stats->pinned_bytes = atomic_load(&comm->any.pinned_bytes);
}

const char *winnow_comm_late(struct winnow_comm *comm)
{
	static _Thread_local char copy[CONTROL_TEXT_BYTES];

	if (comm->inherited)
		return "";
	pthread_mutex_lock(&comm->shared.lock);
	memcpy(copy, comm->shared.news.late, sizeof(copy));
	pthread_mutex_unlock(&comm->shared.lock);
	return copy;
}

void winnow_comm_say(struct winnow_comm *comm, const char *text)
{
	if (comm->inherited)
		return;
	pthread_mutex_lock(&comm->shared.lock);
	snprintf(comm->shared.says, sizeof(comm->shared.says), "%s", text);
	comm->shared.says_new = true;
	pthread_mutex_unlock(&comm->shared.lock);
	comm_wake(comm);
}

uint32_t winnow_comm_rank(const struct winnow_comm *comm)
{
	return comm_view(comm).rank;
}

uint32_t winnow_comm_world(const struct winnow_comm *comm)
{
	return comm_view(comm).world;
}

const char *winnow_version(void)
{
	return WINNOW_VERSION;
}

int winnow_abi_version(void)
{
	return WINNOW_ABI_VERSION;
}
