// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_resolve.c - looks up the addresses of aggregators' names, also while the communicator runs
 *
 * An aggregator that has been restarted may have another address, as pods do. A look-up may take seconds, so a thread of
 * its own does it. The question belongs to that thread and to the peer, and the last one frees it.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/comm/comm_state.h"

struct comm_question {
	atomic_uint holders;
	atomic_bool answered;
	char name[256];
	struct net_addr addresses[NET_NAME_ADDRESSES_MAX];
	uint32_t count; /* 0: `err` and `why` say why. */
	int err;
	struct why why; /* Valid if count is 0. */
};

static void let_go(struct comm_question *question)
{
	if (atomic_fetch_sub(&question->holders, 1) == 1)
		free(question);
}

static void *question_ask(void *context)
{
	struct comm_question *question = context;

	question->err = net_resolve_all(question->name, question->addresses, &question->count,
	                                &question->why);
	if (question->err != 0)
		question->count = 0;
	atomic_store_explicit(&question->answered, true, memory_order_release);
	let_go(question);
	return NULL;
}

/* An enum winnow_result, explained. */
static int question_begin(struct comm_peer *peer, struct why *why)
{
	struct comm_question *question = calloc(1, sizeof(*question));
	pthread_t thread;
	int result;

	if (question == NULL)
		return why_set(why, WINNOW_ERR_MEMORY, "out of memory");
	memcpy(question->name, peer->name, sizeof(question->name));
	atomic_init(&question->holders, 2);
	result = comm_thread_start(&thread, question_ask, question, why);
	if (result != WINNOW_OK) {
		free(question);
		return result;
	}
	pthread_detach(thread);
	peer->at.question = question;
	return WINNOW_OK;
}

static bool is_answered(const struct comm_peer *peer)
{
	return atomic_load_explicit(&peer->at.question->answered, memory_order_acquire);
}

static void addresses_take(struct comm_peer *peer)
{
	const struct comm_question *question = peer->at.question;

	if (question->count > 0) {
		memcpy(peer->at.list, question->addresses, sizeof(peer->at.list));
		peer->at.count = question->count;
		peer->at.index %= peer->at.count;
	}
}

void comm_resolve_again(struct comm_peer *peer)
{
	struct why unused;

	if (peer->at.question != NULL && !is_answered(peer))
		return;
	if (peer->at.question != NULL)
		addresses_take(peer);
	comm_resolve_drop(peer);
	(void)question_begin(peer, &unused); /* If this fails, the next call asks. */
}

int comm_resolve_first(struct comm_peer *peer, const struct winnow_config *config,
                       uint64_t patience_us, struct why *why)
{
	struct comm_wait wait = {.began_us = clock_us()};
	const uint64_t until_us = wait.began_us + patience_us;
	uint64_t ask_us = 0, pause_us = 50; /* What is an address already needs no name service. */
	char text[sizeof(wait.told)];
	int err = -EAGAIN;

	why_set(why, 0, "cannot find host of '%.100s': no answer", peer->name);
	while ((err == -EAGAIN || err == -EHOSTUNREACH) && clock_us() < until_us &&
	       !comm_given_up(config->give_up)) {
		if (peer->at.question == NULL && clock_us() >= ask_us) {
			const int result = question_begin(peer, why);

			if (result != WINNOW_OK)
				return result;
		}
		snprintf(text, sizeof(text), "%.400s; trying for %.0f s", why->text,
		         (double)patience_us / 1e6);
		comm_tell_wait(config, &wait, text, 0);
		nanosleep(&(struct timespec){.tv_nsec = (long)pause_us * 1000}, NULL);
		pause_us = pause_us < COMM_GIVE_UP_LOOK_US ? 2 * pause_us : COMM_GIVE_UP_LOOK_US;
		if (peer->at.question == NULL || !is_answered(peer))
			continue;
		err = peer->at.question->err;
		*why = peer->at.question->why;
		addresses_take(peer);
		comm_resolve_drop(peer);
		ask_us = clock_us() + COMM_CONNECT_AGAIN_US;
	}
	comm_resolve_drop(peer);
	if (err != 0 && comm_given_up(config->give_up))
		return why_set(why, WINNOW_ERR_ABORTED, "given up before %s was found", peer->name);
	return err == 0         ? WINNOW_OK
	       : err == -EINVAL ? WINNOW_ERR_INVALID
	       : err == -ENOMEM ? WINNOW_ERR_MEMORY
	                        : WINNOW_ERR_UNREACHABLE;
}

void comm_resolve_drop(struct comm_peer *peer)
{
	if (peer->at.question != NULL)
		let_go(peer->at.question);
	peer->at.question = NULL;
}
