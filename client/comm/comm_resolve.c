// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_resolve.c - the addresses of a name, asked for again while the communicator runs
 *
 * An aggregator that has been restarted may have another address, as pods do. Asking may take seconds, so a
 * thread of its own does it, which outlives nobody's memory: the question belongs to both until both are done.
 */

#include <stdlib.h>
#include <string.h>

#include "client/comm/comm.h"

struct comm_question {
	atomic_uint holders;
	atomic_bool answered;
	char name[256];
	struct net_addr addresses[NET_NAME_ADDRESSES_MAX];
	uint32_t count; /* 0: there are none */
};

static void let_go(struct comm_question *question)
{
	if (atomic_fetch_sub(&question->holders, 1) == 1)
		free(question);
}

static void *ask(void *context)
{
	struct comm_question *question = context;
	struct why why;

	if (net_resolve_all(question->name, question->addresses, &question->count, &why) != 0)
		question->count = 0;
	atomic_store_explicit(&question->answered, true, memory_order_release);
	let_go(question);
	return NULL;
}

static void begin(struct comm_peer *peer)
{
	struct comm_question *question = calloc(1, sizeof(*question));
	pthread_t thread;

	if (question == NULL)
		return;
	memcpy(question->name, peer->name, sizeof(question->name));
	atomic_init(&question->holders, 2);
	if (comm_thread_start(&thread, ask, question) != 0) {
		free(question);
		return;
	}
	pthread_detach(thread);
	peer->question = question;
}

void comm_resolve_again(struct comm_peer *peer)
{
	struct comm_question *question = peer->question;

	if (question != NULL && !atomic_load_explicit(&question->answered, memory_order_acquire))
		return;
	if (question != NULL && question->count > 0) {
		memcpy(peer->addresses, question->addresses, sizeof(peer->addresses));
		peer->address_count = question->count;
		peer->address_at %= peer->address_count;
	}
	comm_resolve_drop(peer);
	begin(peer);
}

void comm_resolve_drop(struct comm_peer *peer)
{
	if (peer->question != NULL)
		let_go(peer->question);
	peer->question = NULL;
}
