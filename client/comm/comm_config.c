// SPDX-License-Identifier: BSD-3-Clause
/* comm_config.c - checks a struct winnow_config and opens a session from it */

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bitmap/control/options.h"
#include "client/comm/comm_state.h"

_Static_assert(WINNOW_F32 == (int)DTYPE_F32 && WINNOW_F16 == (int)DTYPE_F16 &&
                       WINNOW_BF16 == (int)DTYPE_BF16 && WINNOW_F64 == (int)DTYPE_F64 &&
                       WINNOW_I32 == (int)DTYPE_I32 && WINNOW_I64 == (int)DTYPE_I64,
               "winnow.h and dtype.h number types alike");
_Static_assert(WINNOW_SUM == (int)REDUCE_SUM && WINNOW_AVG == (int)REDUCE_AVG &&
                       WINNOW_MIN == (int)REDUCE_MIN && WINNOW_MAX == (int)REDUCE_MAX &&
                       WINNOW_PROD == (int)REDUCE_PROD,
               "winnow.h and dtype.h number reductions alike");

/* Warns as winnowd does, but once, however many communicators the process makes. */
static void exposed_say(const char *path)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		fprintf(stderr,
		        "winnow: every user of this machine may read the key file %s: chmod o-r "
		        "%s\n",
		        path, path);
}

static int load_key(struct winnow_comm *comm, const struct winnow_config *c, struct why *why)
{
	struct job_keys *keys;
	int err;

	if (c->insecure_no_key)
		return WINNOW_OK;
	if (job_keys_load(c->key_file, c->key, &keys, why) != 0)
		return WINNOW_ERR_INVALID;
	if (keys->exposed)
		exposed_say(c->key_file);
	(void)job_keys_stretch(keys, c->job);
	err = job_keys_find(keys, c->job, &comm->fixed.key);
	job_keys_free(keys);
	if (err == -EAGAIN)
		return why_set(why, WINNOW_ERR_MEMORY, "out of memory: a key takes 16 MB");
	if (err != 0)
		return why_set(why, WINNOW_ERR_INVALID,
		               "key file %s has no key for job '%s' and none for '*'", c->key_file,
		               c->job);
	return tls_context_open(NULL, &comm->fixed.tls) == 0
	               ? WINNOW_OK
	               : why_set(why, WINNOW_ERR_MEMORY, "out of memory");
}

/* An earlier aggregator with the same address as `peer`, or NULL. */
static const struct comm_peer *same_as(const struct winnow_comm *comm, const struct comm_peer *peer)
{
	for (const struct comm_peer *other = comm->peers; other < peer; other++)
		for (uint32_t i = 0; i < other->at.count; i++)
			for (uint32_t k = 0; k < peer->at.count; k++)
				if (net_addr_same(&other->at.list[i], &peer->at.list[k]))
					return other;
	return NULL;
}

/* Limits `us` to three quarters of the time for joining, so that the better reason is known before that is over. */
static uint64_t patience_at_most(const struct winnow_config *c, uint64_t us)
{
	const uint64_t join_us = (uint64_t)c->join_timeout_ms * 750;

	return us < join_us ? us : join_us;
}

static int add_peers(struct winnow_comm *comm, const struct winnow_config *c, struct why *why)
{
	char name[sizeof(comm->peers[0].name) + 1];
	const char *at = c->aggregators;

	while (at != NULL && *at != '\0') {
		struct comm_peer *peer = &comm->peers[comm->move.peer_count];
		int result;

		if (comm->move.peer_count == SESSION_LINKS_MAX)
			return why_set(why, WINNOW_ERR_INVALID, "more than %d aggregators",
			               SESSION_LINKS_MAX);
		at = option_item(at, name, sizeof(name));
		if (strlen(name) >= sizeof(peer->name))
			return why_set(why, WINNOW_ERR_INVALID, "an aggregator's name is too long");
		memcpy(peer->name, name, strlen(name) + 1);
		result = comm_resolve_first(peer, c, patience_at_most(c, COMM_CONNECT_US), why);
		if (result != WINNOW_OK)
			return result;
		if (same_as(comm, peer) != NULL)
			return why_set(why, WINNOW_ERR_INVALID,
			               "aggregators %s and %s are the same",
			               same_as(comm, peer)->name, peer->name);
		peer->place = comm->move.peer_count++;
		comm->fixed.peers_known = comm->move.peer_count;
	}
	return comm->move.peer_count > 0 ? WINNOW_OK
	                                 : why_set(why, WINNOW_ERR_INVALID, "no aggregator given");
}

int comm_configure(struct winnow_comm *comm, const struct winnow_config *config, struct why *why)
{
	struct winnow_config kept = *config;
	int result;

	result = comm_check_config(config, why);
	comm_tell_strangers(config);
	if (result == WINNOW_OK)
		result = load_key(comm, config, why);
	if (result == WINNOW_OK)
		result = add_peers(comm, config, why);
	if (result != WINNOW_OK)
		return result;
	/* The caller's texts are no longer needed. */
	kept.aggregators = kept.job = kept.key_file = kept.key = NULL;
	kept.datapath = kept.eal = kept.device = kept.interface = NULL;
	kept.data_address = kept.gateway = NULL;
	kept.give_up = NULL;
	comm->fixed.config = comm->move.config = kept;
	comm->shared.view = (struct comm_view){.rank = config->rank, .world = config->world};
	snprintf(comm->move.job, sizeof(comm->move.job), "%s", config->job);
	comm->any.holds = true;
	return comm_open_net(comm, config, why);
}

static int by_place(const void *a, const void *b)
{
	const struct comm_peer *x = a, *y = b;

	return x->place < y->place ? -1 : x->place > y->place;
}

/*
 * There is no thread, and only the first peer, which stays at its place, may have a connection. So a fork's child that
 * another thread makes meanwhile finds all descriptors, without the lock of comm_fork.c.
 */
void comm_leave_out(struct winnow_comm *comm, uint64_t without)
{
	qsort(comm->peers, comm->fixed.peers_known, sizeof(comm->peers[0]), by_place);
	comm->move.peer_count = 0;
	for (uint32_t i = 0; i < comm->fixed.peers_known; i++) {
		struct comm_peer peer = comm->peers[i], *to = &comm->peers[comm->move.peer_count];

		assert(i == 0 || peer.tcp.fd < 0);
		if (i > 0 && without >> i & 1)
			continue;
		memmove(to + 1, to, (i - comm->move.peer_count) * sizeof(peer));
		*to = peer;
		comm->move.peer_count++;
	}
}

/*
 * How long to try an aggregator that refuses connections. The decider has named only aggregators that were alive just
 * before, but the decider itself may be restarting.
 */
static uint64_t connect_patience_us(const struct winnow_comm *comm)
{
	if (comm->move.role != COMM_MEMBER)
		return patience_at_most(&comm->move.config, UINT64_MAX);
	if (message_name_is_next(comm->move.job))
		return patience_at_most(&comm->move.config, COMM_CONNECT_ALIVE_US);
	return patience_at_most(&comm->move.config,
	                        comm->move.stay.of > 0 ? COMM_CONNECT_BEFORE_US : COMM_CONNECT_US);
}

static uint64_t join_us(const struct winnow_comm *comm, uint64_t now_us)
{
	uint64_t us = (uint64_t)comm->move.config.join_timeout_ms * 1000;

	if (comm->move.role == COMM_STAYING) /* The decider waits for others. */
		us = UINT64_MAX - now_us;
	if (comm->move.begins_by_us == 0 || now_us + us < comm->move.begins_by_us)
		return us;
	return comm->move.begins_by_us > now_us ? comm->move.begins_by_us - now_us : 0;
}

int comm_open_session(struct winnow_comm *comm, const struct link *from, struct why *why)
{
	const struct winnow_config *c = &comm->move.config;
	struct link_config links[SESSION_LINKS_MAX];
	const char *names[SESSION_LINKS_MAX];
	struct session_config config = {
		.links = links,
		.names = names,
		.link_count = comm->move.peer_count,
		.bitmap = bitmap_best(),
		.stay = comm->move.stay,
		.bytes_max = (uint64_t)c->memory_mb << 20,
		.private_network = c->network == WINNOW_NETWORK_PRIVATE,
	};
	char host[CONTROL_NAME_BYTES] = "", job[CONTROL_JOB_BYTES];
	uint64_t now_us = clock_us();
	int err = 0;

	gethostname(host, sizeof(host) - 1);
	snprintf(job, sizeof(job), "%.*s",
	         (int)(comm->move.role == COMM_STAYING ? message_name_base(comm->move.job)
	                                               : strlen(comm->move.job)),
	         comm->move.job);
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		struct comm_peer *peer = &comm->peers[i];

		links[i] = (struct link_config){
			.job = job,
			.host = host,
			.rank = c->rank,
			.world = comm->move.role == COMM_MEMBER ? c->world : 0,
			.keyed = comm->fixed.tls != NULL,
			.payload = c->payload,
			.rcvbuf = comm->fixed.backend->facts(comm->fixed.net)->buffer_bytes,
			.silence_us = (uint64_t)c->silence_ms * 1000,
			.stall_us = (uint64_t)c->timeout_ms * 1000,
			.join_us = join_us(comm, now_us),
			.multicast = c->multicast != 0 && !peer->no_multicast,
			.place = peer->place,
			.from = i == 0 ? from : NULL,
		};
		names[i] = peer->name;
		/* A refused connection is a better reason than a late job, so it must show first. */
		peer->tries.patience_us = connect_patience_us(comm);
		peer->tries.due_us = now_us;
		peer->tries.until_us = now_us + peer->tries.patience_us;
		peer->tries.refused = 0;
	}
	if (comm->fixed.pool == NULL)
		err = bitmap_pool_open(config.bitmap, c->threads, &comm->fixed.pool);
	if (err != 0 && err != -ENOMEM)
		return why_set(why, WINNOW_ERR_SYSTEM, "cannot start a scan thread: %s",
		               strerror(-err));
	config.pool = comm->fixed.pool;
	if (err != 0 || session_open(&config, now_us, &comm->session) != 0)
		return why_set(why, WINNOW_ERR_MEMORY, "out of memory");
	if (from != NULL)
		comm_peer_secure(comm, &comm->peers[0]);
	return WINNOW_OK;
}
