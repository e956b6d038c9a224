/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_data.h - data threads over a net that is only memory
 *
 * The threads are real, and so is the clock; nothing is waited for but signs. What a test puts into
 * the inbox comes to the thread in one burst. What the thread sends is written down, datagram by
 * datagram and receiver by receiver, and a send() that breaks net.h's rules is too. The
 * channels are real ones, with workers' packets made by hand.
 */
#ifndef TESTS_UNIT_TEST_DATA_H
#define TESTS_UNIT_TEST_DATA_H

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "aggregator/jobs/knocks.h"
#include "bitmap/bitmap.h"
#include "bitmap/net/clock.h"
#include "tests/flatten.h"
#include "tests/unit/test_data_net.h"

#define ID 0x0100
#define BLOCK_ELEMS 128 /* of f32: one block a frame at the smallest payload */
#define BLOCKS 32
#define WORKERS 4
#define GROUP_IP 0xef4d0102u
#define GROUP_PORT 5600
#define GROUP_TOKEN UINT64_C(0x6702)
#define TOKEN(rank) (UINT64_C(0xabcdef0100000000) + (rank))
#define WORKER_IP(rank) (0x0a000100u + (rank))
#define WORKER_PORT(rank) ((uint16_t)(20000 + (rank)))
#define LOCAL_IP(rank) (OUR_IP + (rank))
#define FIRST_FRAME 7u
#define TAG UINT64_C(0x1122334455667788)
#define LIMIT_MS 20000 /* for what comes at once on a machine with nothing else to do */

static const bool __attribute__((unused)) all[WORKERS] = {true, true, true, true};
static const bool __attribute__((unused)) some[WORKERS] = {true, false, true, false};
static const bool __attribute__((unused)) none[WORKERS];

/* ---- signs ---- */

static inline uint64_t clock_ms(void)
{
	return clock_us() / 1000;
}

/* Wait until `sign` is true of the net, looked at under its lock. */
#define await(net, sign)                                                                           \
	do {                                                                                       \
		uint64_t until_ms_ = clock_ms() + LIMIT_MS;                                        \
		bool seen_ = false;                                                                \
                                                                                                   \
		while (!seen_) {                                                                   \
			pthread_mutex_lock(&(net)->lock);                                          \
			seen_ = (sign);                                                            \
			pthread_mutex_unlock(&(net)->lock);                                        \
			if (!seen_ && clock_ms() > until_ms_)                                      \
				fail_msg("never: %s", #sign);                                      \
			if (!seen_)                                                                \
				usleep(1000);                                                      \
		}                                                                                  \
	} while (0)

/* Do this under the net's lock. */
#define locked(net, statement)                                                                     \
	do {                                                                                       \
		pthread_mutex_lock(&(net)->lock);                                                  \
		statement;                                                                         \
		pthread_mutex_unlock(&(net)->lock);                                                \
	} while (0)

static const struct seal_key knock_secret = {{0x0123456789abcdef, 0x1122334455667788}};

/* ---- data threads, with what they report ---- */

struct told {
	uint32_t stalls, troubles, losses;
	uint32_t troubles_of[4]; /* by the upper byte of the channel */
	uint16_t stalled_id, trouble_id;
	struct channel_stall stall;
	struct jobs_trouble trouble;
	char lost[WHY_BYTES];
};

struct world {
	struct data *data;
	struct data_config config;
	pthread_mutex_t lock; /* of `told` */
	struct told told;
	struct channel *channels[8];
	uint32_t channel_count;
};

static inline struct told told_of(struct world *w)
{
	struct told told;

	locked(w, told = w->told);
	return told;
}

static inline bool note_report(void *context, const struct report *report)
{
	struct world *w = context;

	pthread_mutex_lock(&w->lock);
	switch (report->kind) {
	case REPORT_STALL:
		w->told.stalls++;
		w->told.stalled_id = report->id;
		w->told.stall = report->stall;
		break;
	case REPORT_TROUBLE:
		w->told.troubles++;
		w->told.troubles_of[report->id >> 8 & 3]++;
		w->told.trouble_id = report->id;
		w->told.trouble = report->trouble;
		break;
	case REPORT_LOST:
		w->told.losses++;
		snprintf(w->told.lost, sizeof(w->told.lost), "%s", report->lost.text);
		break;
	case REPORT_ABOVE: /* there is no parent */
	case REPORT_REFUSED:
		break;
	}
	pthread_mutex_unlock(&w->lock);
	return true;
}

static inline struct world *world_open(uint32_t threads)
{
	struct world *w = calloc(1, sizeof(*w));
	struct why why;

	assert_non_null(w);
	pthread_mutex_init(&w->lock, NULL);
	w->config = (struct data_config){
		.backend = &fake,
		.net = {.local = {net_ipv4(OUR_IP), 5555},
	                .payload_max = 8972,
	                .buffer_bytes = 65536,
	                .queue_count = threads},
		.report = note_report,
		.context = w,
	};
	net_opens = nets_closed = 0;
	net_open_limit = THREADS_MAX;
	assert_int_equal(data_open(&w->config, &w->data, &why), 0);
	return w;
}

/* No send() may have been wrong. */
static inline void world_close(struct world *w)
{
	for (uint32_t i = 0; i < w->config.net.queue_count; i++)
		await(nets[i], nets[i]->calls_wrong == 0);
	data_close(w->data);
	assert_int_equal(nets_closed, w->config.net.queue_count);
	for (uint32_t i = 0; i < w->channel_count; i++)
		channel_close(w->channels[i]);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* ---- channels and their workers ---- */

static inline struct channel_config channel_usual(uint16_t id)
{
	static const uint64_t tokens[WORKERS] = {TOKEN(0), TOKEN(1), TOKEN(2), TOKEN(3)};

	return (struct channel_config){
		.id = id,
		.worker_count = WORKERS,
		.payload = WIRE_PAYLOAD_MIN,
		.window = 64,
		.op_slots = 2,
		.segments_ahead = 2,
		.first_frame = FIRST_FRAME,
		.group_token = GROUP_TOKEN,
		.tokens = tokens,
		.stall_us = 60000000,
		.engine = bitmap_best(),
	};
}

/* What data_look() says of a channel, in *look. False: it knows no such channel. */
static inline bool channel_looked(struct world *w, uint16_t id, struct data_look *look)
{
	struct channel_waits waits[WORKERS] = {0};
	struct data_stats unused;

	*look = (struct data_look){
		.id = id, .group_token = GROUP_TOKEN, .worker_count = WORKERS, .waits = waits};
	data_look(w->data, look, 1, &unused);
	return look->found;
}

static inline void attach(struct world *w, const struct channel_config *config)
{
	struct jobs_channel info = {
		.id = config->id,
		.worker_count = config->worker_count,
		.group_token = GROUP_TOKEN,
		.secret = knock_secret,
		.tokens = config->tokens,
		.group = net_ipv4(GROUP_IP),
		.group_port = GROUP_PORT,
		.group_from = net_ipv4(LOCAL_IP(2)),
	};

	assert_int_equal(data_attach(w->data, &info), 0);
}

static inline void start(struct world *w, const struct channel_config *config,
                         const bool multicast[WORKERS])
{
	struct channel **channel = &w->channels[w->channel_count++];

	assert_int_equal(channel_open(config, channel), 0);
	data_start(w->data, config->id, *channel, multicast);
}

static inline struct datagram *datagram_of(uint16_t rank, const struct packet_out *out)
{
	struct datagram *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	packet_flatten(out, d->data);
	d->bytes = out->bytes;
	d->from = (struct net_addr){net_ipv4(WORKER_IP(rank)), WORKER_PORT(rank)};
	d->local = net_ipv4(LOCAL_IP(rank));
	return d;
}

static inline struct wire_header head_of(uint16_t id, uint16_t rank, uint8_t kind, uint32_t frame)
{
	return (struct wire_header){
		.kind = kind,
		.channel = id,
		.worker = rank,
		.seal = TOKEN(rank),
		.frame = frame,
		.edge = FIRST_FRAME,
		.pushed = FIRST_FRAME,
	};
}

/* Datagrams come in one burst. */
static inline void deliver(struct net *net, struct datagram *const list[], uint32_t count)
{
	uint64_t one = 1;

	pthread_mutex_lock(&net->lock);
	assert_true(net->in_count + count <= INBOX_MAX);
	memcpy(net->in + net->in_count, list, count * sizeof(list[0]));
	net->in_count += count;
	assert_int_equal(write(net->readable, &one, sizeof(one)), sizeof(one));
	pthread_mutex_unlock(&net->lock);
}

static inline void deliver_one(struct net *net, struct datagram *datagram)
{
	deliver(net, &datagram, 1);
}

/* What KNOCKs of a worker from the address of another must carry, as an answer has said. */
static inline uint64_t proof_at(uint16_t id, uint16_t rank, uint16_t ip_rank)
{
	const struct net_ip from = net_ipv4(WORKER_IP(ip_rank)), local = net_ipv4(LOCAL_IP(rank));
	uint64_t path[KNOCK_PATH_WORDS] = {[4] = WORKER_PORT(rank), (uint64_t)id << 32 | rank};

	memcpy(path, from.bytes, sizeof(from.bytes));
	memcpy(path + 2, local.bytes, sizeof(local.bytes));
	return knock_proof(&knock_secret, path);
}

static inline struct datagram *knock_of(uint16_t id, uint16_t rank, uint32_t bytes)
{
	static uint8_t padding[WIRE_PAYLOAD_MAX];
	static uint32_t count;
	struct wire_header head = head_of(id, rank, WIRE_KNOCK, ++count);
	struct packet_out out;

	head.number = proof_at(id, rank, rank);
	packet_begin(&out, &head);
	packet_point(&out, padding, bytes - WIRE_HEADER_BYTES);
	return datagram_of(rank, &out);
}

static inline struct datagram *announce_made(uint16_t id, uint16_t rank, const struct announce *a)
{
	struct wire_header head = head_of(id, rank, WIRE_ANNOUNCE, 0);
	struct packet_out out;

	packet_begin(&out, &head);
	packet_put_announce(&out, a);
	return datagram_of(rank, &out);
}

/* An operation of one segment, all of it non-zero, of `blocks` blocks that fill a frame each. */
static inline struct announce announce_usual(uint32_t blocks, uint32_t block_elems)
{
	return (struct announce){
		.tag = TAG,
		.count = (uint64_t)blocks * block_elems,
		.block_elems = block_elems,
		.segment_count = 1,
		.block_count = (uint16_t)blocks,
		.generation = 1,
		.exponent = WIRE_EXPONENT_NONE,
		.dtype = DTYPE_F32,
		.reduction = REDUCE_SUM,
		.flags = WIRE_ALL,
	};
}

static inline struct datagram *announce_of(uint16_t id, uint16_t rank, uint32_t blocks,
                                           uint32_t block_elems)
{
	struct announce a = announce_usual(blocks, block_elems);

	return announce_made(id, rank, &a);
}

static inline struct datagram *push_of(uint16_t id, uint16_t rank, uint32_t frame,
                                       uint32_t block_elems)
{
	static uint8_t zeros[WIRE_PAYLOAD_MAX];
	struct wire_header head = head_of(id, rank, WIRE_PUSH, frame);
	struct packet_out out;

	packet_begin(&out, &head);
	packet_point(&out, zeros, block_elems * 4);
	return datagram_of(rank, &out);
}

/* From `ack` on nothing is here; what is there? */
static inline struct datagram *status_of(uint16_t id, uint16_t rank, uint32_t ack, bool asks)
{
	struct wire_header head = head_of(id, rank, WIRE_STATUS, 0);
	struct packet_out out;

	head.edge = ack;
	packet_begin(&out, &head);
	packet_put_status(&out, &(struct status){.stamp = 99, .asks = asks});
	return datagram_of(rank, &out);
}

/* How many datagrams of this kind went to `ip`. */
static inline uint32_t count_sent(const struct net *net, uint8_t kind, uint32_t ip)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < net->sent_count; i++)
		count += net->sent[i].kind == kind && net_ip_number(&net->sent[i].to.to.ip) == ip;
	return count;
}

static inline void forget_sent(struct net *net)
{
	locked(net, net->sent_count = net->batches = 0);
}

/* All workers knock; each has its answer. */
static inline void knock_all(struct net *net, uint16_t id, uint32_t bytes)
{
	forget_sent(net); /* other channels' answers are none */
	for (uint16_t rank = 0; rank < WORKERS; rank++) {
		deliver_one(net, knock_of(id, rank, bytes));
		await(net, count_sent(net, WIRE_KNOCKED, WORKER_IP(rank)) > 0);
	}
}

/* ---- one channel on one thread ---- */

static inline struct world *started(const struct channel_config *config,
                                    const bool multicast[WORKERS])
{
	struct world *w = world_open(1);

	attach(w, config);
	knock_all(nets[0], config->id, config->payload);
	start(w, config, multicast);
	forget_sent(nets[0]);
	return w;
}

static inline struct world *started_usual(const bool multicast[WORKERS])
{
	const struct channel_config config = channel_usual(ID);

	return started(&config, multicast);
}

/* Tests on one thread, and on one with a usual channel that has started. */
#define WORLD_TEST_OF(name, opened)                                                                \
	TEST_ON(name, struct world *, w, opened, (data_detach(w->data, ID), world_close(w)))
#define WORLD_TEST(name) WORLD_TEST_OF(name, world_open(1))
#define STARTED_TEST(name, multicast) WORLD_TEST_OF(name, started_usual(multicast))

/* All announce an operation of `blocks` blocks; its PLAN goes out. */
static inline void announce_all(struct net *net, uint16_t id, uint32_t blocks, uint32_t block_elems)
{
	struct datagram *list[WORKERS];

	for (uint16_t rank = 0; rank < WORKERS; rank++)
		list[rank] = announce_of(id, rank, blocks, block_elems);
	deliver(net, list, WORKERS);
}

/* Then all push frames [0, count), in one burst. */
static inline void push_all(struct net *net, uint16_t id, uint32_t count, uint32_t block_elems)
{
	struct datagram *list[INBOX_MAX] = {0};
	uint32_t at = 0;

	for (uint32_t i = 0; i < count; i++)
		for (uint16_t rank = 0; rank < WORKERS; rank++)
			list[at++] = push_of(id, rank, FIRST_FRAME + i, block_elems);
	deliver(net, list, at);
}

static inline void operation(struct net *net, uint32_t blocks)
{
	announce_all(net, ID, blocks, BLOCK_ELEMS);
	push_all(net, ID, blocks, BLOCK_ELEMS);
}

#endif /* TESTS_UNIT_TEST_DATA_H */
