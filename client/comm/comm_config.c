// SPDX-License-Identifier: BSD-3-Clause
/* comm_config.c - from a struct winnow_config to an open session; everything that can be wrong with it */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/comm/comm.h"

_Static_assert(WINNOW_F32 == (int)DTYPE_F32 && WINNOW_F16 == (int)DTYPE_F16 &&
                       WINNOW_BF16 == (int)DTYPE_BF16 && WINNOW_F64 == (int)DTYPE_F64 &&
                       WINNOW_I32 == (int)DTYPE_I32 && WINNOW_I64 == (int)DTYPE_I64,
               "winnow.h and dtype.h number types alike");
_Static_assert(WINNOW_SUM == (int)REDUCE_SUM && WINNOW_AVG == (int)REDUCE_AVG &&
                       WINNOW_MIN == (int)REDUCE_MIN && WINNOW_MAX == (int)REDUCE_MAX &&
                       WINNOW_PROD == (int)REDUCE_PROD,
               "winnow.h and dtype.h number reductions alike");

/* ---- defaults and environment ---- */

static const char *env_text(const char *name, const char *fallback)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : fallback;
}

static int env_flag(const char *name, int fallback)
{
	const char *value = getenv(name);

	return value != NULL ? comm_flag(value) : fallback;
}

void winnow_config_init(struct winnow_config *config)
{
	struct why why;
	const char *wire = env_text("WINNOW_WIRE", NULL);

	*config = (struct winnow_config){
		.aggregators = env_text("WINNOW_AGGREGATORS", NULL),
		.job = env_text("WINNOW_JOB", "default"),
		.world = 1,
		.key_file = env_text("WINNOW_KEY_FILE", NULL),
		.key = env_text("WINNOW_KEY", NULL),
		.insecure_no_key = env_flag("WINNOW_INSECURE_NO_KEY", 0),
		.block = 256,
		.wire = WINNOW_WIRE_AUTO,
		.threads = 1,
		.silence_ms = 10000,
		.timeout_ms = 600000,
		.join_timeout_ms =
			65000, /* winnowd, which knows who is missing, says so after 60 s */
		.multicast = 1,
		.staging_mb = 64,
		.datapath = env_text("WINNOW_DATAPATH", "udp"),
		.eal = env_text("WINNOW_EAL", NULL),
		.device = env_text("WINNOW_DEVICE", NULL),
		.data_address = env_text("WINNOW_DATA_ADDRESS", NULL),
		.gateway = env_text("WINNOW_GATEWAY", NULL),
	};
	(void)comm_file_read(config, &why); /* what is wrong with it is said at create */
	for (const struct comm_number *n = comm_numbers; n->name != NULL; n++) {
		const char *value = env_text(n->env, NULL);

		if (value != NULL)
			*(uint32_t *)(void *)((char *)config + n->at) = comm_number(value);
	}
	config->wire = wire != NULL ? comm_wire(wire) : config->wire;
	config->multicast = env_flag("WINNOW_MULTICAST", config->multicast);
}

/* ---- checking ---- */

static uint32_t number_of(const struct winnow_config *c, const struct comm_number *n)
{
	return *(const uint32_t *)(const void *)((const char *)c + n->at);
}

/* "block is 0", by the name under which it was given. */
static void tell_value(const struct comm_number *n, uint32_t value, char *text, size_t room)
{
	const char *env = env_text(n->env, NULL), *path = env_text("WINNOW_CONFIG", NULL);
	struct winnow_config from_file = {0};
	struct why why;

	if (env != NULL && comm_number(env) == value)
		snprintf(text, room, "%s is '%.80s'", n->env, env);
	else if (path != NULL && value != 0 && comm_file_read(&from_file, &why) == WINNOW_OK &&
	         number_of(&from_file, n) == value)
		snprintf(text, room, "%s in WINNOW_CONFIG %.120s is %u", n->name, path, value);
	else
		snprintf(text, room, "%s is %u", n->name, value);
}

static int check_numbers(const struct winnow_config *c, struct why *why)
{
	char text[256];

	for (const struct comm_number *n = comm_numbers; n->name != NULL; n++) {
		uint32_t value = number_of(c, n);

		if ((value >= n->least && value <= n->most) || (n->or_0 && value == 0))
			continue;
		tell_value(n, value, text, sizeof(text));
		return why_set(why, WINNOW_ERR_INVALID, "%s: want %u to %u%s", text, n->least,
		               n->most, n->or_0 ? ", or 0" : "");
	}
	return WINNOW_OK;
}

static int check_flag(const char *name, int value, struct why *why)
{
	return value != COMM_NO_FLAG ? WINNOW_OK
	                             : why_set(why, WINNOW_ERR_INVALID,
	                                       "%s is '%.80s': want yes or no", name, getenv(name));
}

static int check_flags(const struct winnow_config *c, struct why *why)
{
	int result = check_flag("WINNOW_INSECURE_NO_KEY", c->insecure_no_key, why);

	if (result == WINNOW_OK)
		result = check_flag("WINNOW_MULTICAST", c->multicast, why);
	if (result == WINNOW_OK)
		result = check_flag(COMM_ASK_ENV, env_flag(COMM_ASK_ENV, 1), why);
	return result;
}

static int check_key(const struct winnow_config *c, struct why *why)
{
	if (c->insecure_no_key && (c->key_file != NULL || c->key != NULL))
		return why_set(why, WINNOW_ERR_INVALID,
		               "insecure_no_key contradicts a key: give one of them");
	if (!c->insecure_no_key && c->key_file == NULL && c->key == NULL)
		return why_set(why, WINNOW_ERR_INVALID,
		               "no job key: give --key-file FILE or WINNOW_KEY, or, when "
		               "winnowd runs so too, --insecure-no-key");
	return WINNOW_OK;
}

static int check(const struct winnow_config *c, struct why *why)
{
	const char *wire = env_text("WINNOW_WIRE", NULL);
	int result;

	if (c->aggregators == NULL)
		return why_set(why, WINNOW_ERR_INVALID,
		               "no aggregator given: set WINNOW_AGGREGATORS=HOST:PORT");
	if (c->job == NULL || !message_name_valid(c->job))
		return why_set(why, WINNOW_ERR_INVALID,
		               "job name '%.80s': want 1 to 64 letters, digits, '.', '_' or '-'",
		               c->job != NULL ? c->job : "");
	result = check_numbers(c, why);
	if (result == WINNOW_OK)
		result = check_flags(c, why);
	if (result != WINNOW_OK)
		return result;
	if (c->rank >= c->world)
		return why_set(why, WINNOW_ERR_INVALID, "rank is %u: want 0 to %u, below world",
		               c->rank, c->world - 1);
	if ((int)c->wire == -1 && wire != NULL)
		return why_set(why, WINNOW_ERR_INVALID,
		               "WINNOW_WIRE is '%.80s': want auto, f32 or fixed32", wire);
	if (c->wire < WINNOW_WIRE_AUTO || c->wire > WINNOW_WIRE_FIXED32)
		return why_set(why, WINNOW_ERR_INVALID, "wire form %d: want auto, f32 or fixed32",
		               (int)c->wire);
	return check_key(c, why);
}

static int load_key(struct winnow_comm *comm, const struct winnow_config *c, struct why *why)
{
	const struct proof_key *key;
	struct proof_keys *keys;

	if (c->insecure_no_key)
		return WINNOW_OK;
	if (proof_keys_load(c->key_file, c->key, &keys, why) != 0)
		return WINNOW_ERR_INVALID;
	key = proof_keys_find(keys, c->job);
	if (key != NULL) {
		comm->key = *key;
		comm->has_key = true;
	}
	proof_keys_free(keys);
	return key != NULL ? WINNOW_OK
	                   : why_set(why, WINNOW_ERR_INVALID,
	                             "key file %s has no key for job '%s' and none for '*'",
	                             c->key_file, c->job);
}

/* An aggregator that `peer` also names, or NULL. */
static const struct comm_peer *same_as(const struct winnow_comm *comm, const struct comm_peer *peer)
{
	for (const struct comm_peer *other = comm->peers; other < peer; other++)
		for (uint32_t i = 0; i < other->address_count; i++)
			for (uint32_t k = 0; k < peer->address_count; k++)
				if (other->addresses[i].ip == peer->addresses[k].ip &&
				    other->addresses[i].port == peer->addresses[k].port)
					return other;
	return NULL;
}

static int add_peers(struct winnow_comm *comm, const char *list, struct why *why)
{
	const char *at = list;

	while (*at != '\0') {
		size_t length = strcspn(at, ",");
		struct comm_peer *peer = &comm->peers[comm->peer_count];
		int err;

		if (comm->peer_count == SESSION_LINKS_MAX)
			return why_set(why, WINNOW_ERR_INVALID, "more than %d aggregators",
			               SESSION_LINKS_MAX);
		if (length >= sizeof(peer->name))
			return why_set(why, WINNOW_ERR_INVALID, "an aggregator's name is too long");
		memcpy(peer->name, at, length);
		peer->name[length] = '\0';
		err = net_resolve_all(peer->name, peer->addresses, &peer->address_count, why);
		if (err != 0)
			return err == -EINVAL ? WINNOW_ERR_INVALID : WINNOW_ERR_UNREACHABLE;
		if (same_as(comm, peer) != NULL)
			return why_set(why, WINNOW_ERR_INVALID,
			               "aggregators %s and %s are the same",
			               same_as(comm, peer)->name, peer->name);
		comm->peer_count++;
		at += length;
		at += *at == ',';
	}
	return comm->peer_count > 0 ? WINNOW_OK
	                            : why_set(why, WINNOW_ERR_INVALID, "no aggregator given");
}

int comm_configure(struct winnow_comm *comm, const struct winnow_config *config, struct why *why)
{
	struct winnow_config unused = {0};
	int result;

	if (proof_init() != 0)
		return why_set(why, WINNOW_ERR_SYSTEM,
		               "libsodium cannot start: no source of randomness?");
	result = comm_file_read(&unused, why);
	if (result == WINNOW_OK)
		result = check(config, why);
	if (result == WINNOW_OK)
		result = load_key(comm, config, why);
	if (result == WINNOW_OK)
		result = add_peers(comm, config->aggregators, why);
	if (result != WINNOW_OK)
		return result;
	comm->config = *config;
	/* The caller's texts are used up. */
	comm->config.aggregators = comm->config.job = NULL;
	comm->config.key_file = comm->config.key = NULL;
	comm->config.datapath = comm->config.eal = comm->config.device = NULL;
	comm->config.data_address = comm->config.gateway = NULL;
	comm->config.give_up = NULL;
	snprintf(comm->job, sizeof(comm->job), "%s", config->job);
	comm->rank = config->rank;
	comm->world = config->world;
	return comm_open_net(comm, config, why);
}

int comm_open_session(struct winnow_comm *comm, struct why *why)
{
	struct link_config links[SESSION_LINKS_MAX];
	const char *names[SESSION_LINKS_MAX];
	struct session_config config = {.links = links, .names = names};
	char host[CONTROL_NAME_BYTES] = "";
	uint64_t now_us = clock_us();
	uint64_t connect_us = (uint64_t)comm->config.join_timeout_ms * 750;

	if (connect_us > COMM_CONNECT_US)
		connect_us = COMM_CONNECT_US;
	gethostname(host, sizeof(host) - 1);
	for (uint32_t i = 0; i < comm->peer_count; i++) {
		links[i] = (struct link_config){
			.job = comm->job,
			.host = host,
			.rank = comm->rank,
			.world = comm->world,
			.key = comm->has_key ? &comm->key : NULL,
			.payload = comm->config.payload,
			.rcvbuf = comm->backend->buffer(comm->net),
			.silence_us = (uint64_t)comm->config.silence_ms * 1000,
			.stall_us = (uint64_t)comm->config.timeout_ms * 1000,
			.join_us = (uint64_t)comm->config.join_timeout_ms * 1000,
			.multicast = comm->config.multicast != 0,
		};
		proof_random(links[i].nonce, sizeof(links[i].nonce));
		names[i] = comm->peers[i].name;
		comm->peers[i].connect_due_us = now_us;
		/* A refused connection is a better reason than a late job. */
		comm->peers[i].connect_until_us = now_us + connect_us;
	}
	comm->bitmap = bitmap_best();
	if (bitmap_pool_open(comm->bitmap, comm->config.threads, &comm->pool) != 0)
		return why_set(why, WINNOW_ERR_SYSTEM, "cannot start %u scan threads",
		               comm->config.threads);
	config.link_count = comm->peer_count;
	config.pool = comm->pool;
	config.bitmap = comm->bitmap;
	if (session_open(&config, now_us, &comm->session) != 0)
		return why_set(why, WINNOW_ERR_MEMORY, "out of memory");
	return WINNOW_OK;
}
