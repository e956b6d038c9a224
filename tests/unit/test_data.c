// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_data.c - data threads: what a full network does to them, and whose seals they take
 *
 * waits: for a network that stays full
 */

#include <sys/mman.h>
#include <unistd.h>

#include "ebpf/seal.h"
#include "tests/unit/test_data.h"
#include "tests/unit/unit.h"

/*
 * A network that stays full: what cannot go is counted, a thread waits for it once and not for each
 * batch, takes its orders, and sends again when there is room.
 */
STARTED_TEST(stuck, some)
{
	struct net *net = nets[0];
	uint64_t from_ms = clock_ms(), took_ms;
	struct data_stats stats = {0};

	locked(net, net->full_calls = UINT32_MAX);
	/* Announcements, pushes and questions, in many turns. */
	operation(net, BLOCKS);
	for (uint32_t i = 0; i < 100; i++) {
		deliver_one(net, status_of(ID, i % WORKERS, FIRST_FRAME, true));
		await(net, net->in_count == 0);
	}
	while (stats.unsent < 3 * (1 + BLOCKS) + 100 && clock_ms() < from_ms + LIMIT_MS)
		data_look(w->data, NULL, 0, &stats);
	took_ms = clock_ms() - from_ms;
	/* PLAN and RESULTs to the group and to two workers, and an answer to each question. */
	assert_int_equal(stats.unsent, 3 * (1 + BLOCKS) + 100);
	assert_int_equal(net->sent_count, 0);
	if (took_ms > 5000) /* 102 turns of 100 ms are twice that */
		fail_msg("a full network has kept the thread for %u ms", (unsigned)took_ms);
	locked(net, net->full_calls = 0);
	deliver_one(net, status_of(ID, 1, FIRST_FRAME, true));
	await(net, count_sent(net, WIRE_STATUS_BACK, WORKER_IP(1)) == 1);
	/* And it waits again. */
	locked(net, net->full_calls = 5);
	deliver_one(net, status_of(ID, 3, FIRST_FRAME, true));
	await(net, count_sent(net, WIRE_STATUS_BACK, WORKER_IP(3)) == 1);
	data_look(w->data, NULL, 0, &stats);
	assert_int_equal(stats.unsent, 3 * (1 + BLOCKS) + 100);
}

/* A system that calls a socket writable and takes nothing (ENOBUFS) does not make the thread spin. */
STARTED_TEST(writable_but_full, all)
{
	struct net *net = nets[0];
	uint32_t before, after;

	locked(net, net->full_calls = UINT32_MAX; before = net->ready_calls);
	deliver_one(net, status_of(ID, 1, FIRST_FRAME, true));
	usleep(500000); /* an eventfd is always writable */
	locked(net, after = net->ready_calls; net->full_calls = 0);
	assert_in_range(after - before, 2, 20000); /* 500 ms of system calls alone are 500,000 */
}

/* What goes to all goes once to a site, though each of its workers has knocked from there. */
WORLD_TEST(mute)
{
	static const uint16_t speakers[WORKERS] = {0, 0, 2, 2};
	struct channel_config config = channel_usual(ID);
	struct net *net = nets[0];

	config.speakers = speakers;
	attach(w, &config);
	knock_all(net, ID, config.payload);
	start(w, &config, none);
	forget_sent(net);
	operation(net, BLOCKS);
	await(net, count_sent(net, WIRE_RESULT, WORKER_IP(2)) == BLOCKS);
	assert_int_equal(count_sent(net, WIRE_PLAN, WORKER_IP(0)), 1);
	assert_int_equal(count_sent(net, WIRE_RESULT, WORKER_IP(0)), BLOCKS);
	for (uint16_t rank = 1; rank < WORKERS; rank += 2)
		assert_int_equal(count_sent(net, WIRE_PLAN, WORKER_IP(rank)) +
		                         count_sent(net, WIRE_RESULT, WORKER_IP(rank)),
		                 0);
}

/* ---- seals ---- */

/* Memory that ends where none is: one that is read beyond its end ends the test. */
static void *guarded(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
	uint8_t *at = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                   -1, 0);

	assert_true(at != MAP_FAILED);
	assert_int_equal(mprotect(at + whole, page, PROT_NONE), 0);
	return at + whole - bytes;
}

static void seal_all(struct datagram *d, const struct seals *seals, const struct seal_key *key)
{
	struct packet_out out = {.bytes = d->bytes, .piece_count = 2};

	memcpy(out.head, d->data, WIRE_HEADER_BYTES);
	out.pieces[0] = (struct iovec){out.head, WIRE_HEADER_BYTES};
	out.pieces[1] = (struct iovec){d->data + WIRE_HEADER_BYTES, d->bytes - WIRE_HEADER_BYTES};
	seal_write(&out, &seals->stretch, key, FIRST_FRAME);
	memcpy(d->data, out.head, WIRE_HEADER_BYTES);
}

/* Seals of a job's own workers are taken, others are not; of a worker number beyond the last nothing is looked up. */
WORLD_TEST(sealed)
{
	const struct channel_config usual = channel_usual(ID);
	struct seals *seals = guarded(seals_bytes(WORKERS));
	uint64_t *tokens = guarded(WORKERS * sizeof(*tokens));
	struct channel_config config = usual;
	struct jobs_channel info = {.id = ID,
	                            .worker_count = WORKERS,
	                            .group_token = GROUP_TOKEN,
	                            .secret = knock_secret,
	                            .tokens = tokens,
	                            .seals = seals};
	const struct seal_key strange = {{1, 2}};
	struct datagram *list[3];
	struct data_look look;

	memcpy(tokens, usual.tokens, WORKERS * sizeof(*tokens));
	for (size_t i = 0; i < sizeof(seals->stretch) / sizeof(uint64_t); i++)
		((uint64_t *)(void *)&seals->stretch)[i] = i * UINT64_C(0x9e3779b97f4a7c15);
	for (uint16_t rank = 0; rank < WORKERS; rank++)
		seals->workers[rank] = (struct seal_key){{rank, 77}};
	config.tokens = tokens;
	assert_int_equal(data_attach(w->data, &info), 0);
	for (uint16_t rank = 0; rank < WORKERS; rank++) {
		list[0] = knock_of(ID, rank, 600);
		seal_all(list[0], seals, &seals->workers[rank]);
		deliver(nets[0], list, 1);
		await(nets[0], count_sent(nets[0], WIRE_KNOCKED, WORKER_IP(rank)) == 1);
	}
	start(w, &config, none);
	list[0] = status_of(ID, WORKERS, FIRST_FRAME, true);
	seal_all(list[0], seals, &seals->workers[0]);
	list[1] = status_of(ID, 1, FIRST_FRAME, true);
	seal_all(list[1], seals, &strange);
	list[2] = status_of(ID, 2, FIRST_FRAME, true);
	seal_all(list[2], seals, &seals->workers[2]);
	deliver(nets[0], list, 3);
	await(nets[0], count_sent(nets[0], WIRE_STATUS_BACK, WORKER_IP(2)) == 1);
	assert_true(channel_looked(w, ID, &look));
	assert_int_equal(look.stats.drops[WIRE_DROP_WORKER], 1);
	assert_int_equal(look.stats.drops[WIRE_DROP_SEAL], 1);
	assert_int_equal(count_sent(nets[0], WIRE_STATUS_BACK, WORKER_IP(1)), 0);
}
