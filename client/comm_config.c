// SPDX-License-Identifier: BSD-3-Clause
/* comm_config.c - from a struct winnow_config to an open session; everything that can be wrong with it */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/comm.h"

#define WHY_BYTES COMM_ERROR_BYTES

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

/* What is not a number becomes UINT32_MAX, which no field allows: the error comes at create. */
static uint32_t env_u32(const char *name, uint32_t fallback)
{
	const char *value = env_text(name, NULL);

	return value != NULL ? comm_number(value) : fallback;
}

void winnow_config_init(struct winnow_config *config)
{
	char why[WHY_BYTES];
	const char *wire = env_text("WINNOW_WIRE", NULL);

	*config = (struct winnow_config){
		.aggregators = env_text("WINNOW_AGGREGATORS", NULL),
		.job = env_text("WINNOW_JOB", "default"),
		.rank = env_u32("RANK", 0),
		.world = env_u32("WORLD_SIZE", 1),
		.key_file = env_text("WINNOW_KEY_FILE", NULL),
		.key = env_text("WINNOW_KEY", NULL),
		.insecure_no_key = env_u32("WINNOW_INSECURE_NO_KEY", 0) != 0,
		.block = 256,
		.wire = WINNOW_WIRE_AUTO,
		.threads = 1,
		.silence_ms = 10000,
		.timeout_ms = 600000,
		.join_timeout_ms =
			65000, /* winnowd, which knows who is missing, says so after 60 s */
		.multicast = 1,
		.datapath = env_text("WINNOW_DATAPATH", "udp"),
		.eal = env_text("WINNOW_EAL", NULL),
		.device = env_text("WINNOW_DEVICE", NULL),
		.data_address = env_text("WINNOW_DATA_ADDRESS", NULL),
		.gateway = env_text("WINNOW_GATEWAY", NULL),
	};
	(void)comm_file_read(config, why); /* what is wrong with it is said at create */
	config->block = env_u32("WINNOW_BLOCK", config->block);
	config->wire = wire != NULL ? comm_wire(wire) : config->wire;
	config->threads = env_u32("WINNOW_THREADS", config->threads);
	config->silence_ms = env_u32("WINNOW_SILENCE_MS", config->silence_ms);
	config->timeout_ms = env_u32("WINNOW_TIMEOUT_MS", config->timeout_ms);
	config->join_timeout_ms = env_u32("WINNOW_JOIN_TIMEOUT_MS", config->join_timeout_ms);
	config->multicast = env_u32("WINNOW_MULTICAST", config->multicast != 0) != 0;
	config->payload = env_u32("WINNOW_PAYLOAD", config->payload);
}

/* ---- checking ---- */

static int invalid(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int invalid(char *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, WHY_BYTES, format, args);
	va_end(args);
	return WINNOW_ERR_INVALID;
}

static int check(const struct winnow_config *c, char *why)
{
	if (c->aggregators == NULL)
		return invalid(why, "no aggregator given: set WINNOW_AGGREGATORS=HOST:PORT");
	if (c->job == NULL || !message_name_valid(c->job))
		return invalid(why,
		               "job name '%.80s': want 1 to 64 letters, digits, '.', '_' or '-'",
		               c->job != NULL ? c->job : "");
	if (c->world == 0 || c->world > WIRE_WORKERS_MAX)
		return invalid(why, "world is %u: want 1 to %u", c->world, WIRE_WORKERS_MAX);
	if (c->rank >= c->world)
		return invalid(why, "rank is %u: want 0 to %u, below world", c->rank, c->world - 1);
	if (c->block == 0 || c->block > WIRE_BLOCK_ELEMS_MAX)
		return invalid(why, "block is %u: want 1 to %u elements", c->block,
		               WIRE_BLOCK_ELEMS_MAX);
	if (c->wire < WINNOW_WIRE_AUTO || c->wire > WINNOW_WIRE_FIXED32)
		return invalid(why, "wire form %d: want auto, f32 or fixed32", (int)c->wire);
	if (c->threads == 0 || c->threads > BITMAP_POOL_THREADS_MAX)
		return invalid(why, "threads is %u: want 1 to %u", c->threads,
		               BITMAP_POOL_THREADS_MAX);
	if (c->silence_ms < 100 || c->silence_ms > 86400000)
		return invalid(why, "silence_ms is %u: want 100 to 86400000", c->silence_ms);
	if (c->timeout_ms < 100 || c->timeout_ms > 864000000)
		return invalid(why, "timeout_ms is %u: want 100 to 864000000", c->timeout_ms);
	if (c->join_timeout_ms < 100 || c->join_timeout_ms > 86400000)
		return invalid(why, "join_timeout_ms is %u: want 100 to 86400000",
		               c->join_timeout_ms);
	if (c->payload != 0 && (c->payload < WIRE_PAYLOAD_MIN || c->payload > WIRE_PAYLOAD_MAX))
		return invalid(why, "payload is %u: want %u to %u bytes, or 0", c->payload,
		               WIRE_PAYLOAD_MIN, WIRE_PAYLOAD_MAX);
	if (c->insecure_no_key && (c->key_file != NULL || c->key != NULL))
		return invalid(why, "insecure_no_key contradicts a key: give one of them");
	if (!c->insecure_no_key && c->key_file == NULL && c->key == NULL)
		return invalid(why, "no job key: give --key-file FILE or WINNOW_KEY, or, when "
		                    "winnowd runs so too, --insecure-no-key");
	return WINNOW_OK;
}

static int load_key(struct winnow_comm *comm, const struct winnow_config *c, char *why)
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
	                   : invalid(why, "key file %s has no key for job '%s' and none for '*'",
	                             c->key_file, c->job);
}

static int add_peers(struct winnow_comm *comm, const char *list, char *why)
{
	const char *at = list;

	while (*at != '\0') {
		size_t length = strcspn(at, ",");
		struct comm_peer *peer = &comm->peers[comm->peer_count];
		int err;

		if (comm->peer_count == SESSION_LINKS_MAX)
			return invalid(why, "more than %d aggregators", SESSION_LINKS_MAX);
		if (length >= sizeof(peer->name))
			return invalid(why, "an aggregator's name is too long");
		memcpy(peer->name, at, length);
		peer->name[length] = '\0';
		err = net_resolve(peer->name, &peer->address, why);
		if (err != 0)
			return err == -EINVAL ? WINNOW_ERR_INVALID : WINNOW_ERR_UNREACHABLE;
		peer->data = peer->address;
		for (uint32_t i = 0; i < comm->peer_count; i++)
			if (comm->peers[i].address.ip == peer->address.ip &&
			    comm->peers[i].address.port == peer->address.port)
				return invalid(why, "aggregators %s and %s are the same",
				               comm->peers[i].name, peer->name);
		peer->fd = -1;
		comm->peer_count++;
		at += length;
		at += *at == ',';
	}
	return comm->peer_count > 0 ? WINNOW_OK : invalid(why, "no aggregator given");
}

int comm_configure(struct winnow_comm *comm, const struct winnow_config *config, char *why)
{
	struct winnow_config unused;
	int result;

	if (proof_init() != 0) {
		snprintf(why, WHY_BYTES, "libsodium cannot start: no source of randomness?");
		return WINNOW_ERR_SYSTEM;
	}
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

int comm_open_session(struct winnow_comm *comm, char *why)
{
	struct link_config links[SESSION_LINKS_MAX];
	const char *names[SESSION_LINKS_MAX];
	struct session_config config = {.links = links, .names = names};
	char host[CONTROL_NAME_BYTES] = "";
	uint64_t now_us = comm_clock_us();
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
	if (bitmap_pool_open(comm->bitmap, comm->config.threads, &comm->pool) != 0) {
		snprintf(why, WHY_BYTES, "cannot start %u scan threads", comm->config.threads);
		return WINNOW_ERR_SYSTEM;
	}
	config.link_count = comm->peer_count;
	config.pool = comm->pool;
	config.bitmap = comm->bitmap;
	if (session_open(&config, now_us, &comm->session) != 0) {
		snprintf(why, WHY_BYTES, "out of memory");
		return WINNOW_ERR_MEMORY;
	}
	return WINNOW_OK;
}
