// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_fork.c - closes the parent's connections in a fork's child, and marks its communicators as inherited
 *
 * A connection ends when the last process that has it open closes it. A data loader's child that
 * outlives a killed worker would keep the worker's place in the job until the silence time is over.
 * So children close inherited connections right after the fork. Close-on-exec is not enough,
 * because a child may never call exec().
 */

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/comm/comm_state.h"

/* It is held while a control connection's descriptor is opened or closed, and during a fork. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, winnow_comm) all = LIST_HEAD_INITIALIZER(all);

static void locks_hold(void)
{
	pthread_mutex_lock(&lock);
}

static void locks_release(void)
{
	pthread_mutex_unlock(&lock);
}

static void close_in_child(void)
{
	struct winnow_comm *comm;

	LIST_FOREACH(comm, &all, forked)
	{
		comm->inherited = true;
		for (uint32_t i = 0; i < SESSION_LINKS_MAX; i++)
			if (comm->peers[i].tcp.fd >= 0)
				close(comm->peers[i].tcp.fd);
	}
	LIST_INIT(&all); /* The child may reuse the numbers of the descriptors. */
	locks_release();
}

static void watch_forks(void)
{
	(void)pthread_atfork(locks_hold, locks_release, close_in_child);
}

void comm_fork_add(struct winnow_comm *comm)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	locks_hold();
	LIST_INSERT_HEAD(&all, comm, forked);
	locks_release();
}

void comm_fork_remove(struct winnow_comm *comm)
{
	locks_hold();
	LIST_REMOVE(comm, forked);
	locks_release();
}

int comm_fork_socket(int *fd, int domain)
{
	locks_hold();
	*fd = socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	locks_release();
	return *fd;
}

void comm_fork_close(int *fd)
{
	locks_hold();
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	locks_release();
}
