// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_data.c - data threads: who is sent what, what a full network does, orders, reports, counters
 *
 * waits: until they sleep
 */

#include <sys/mman.h>
#include <unistd.h>

#include "ebpf/seal.h"
#include "tests/unit/test_data.h"

/* ---- allocations of data threads ---- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 1
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_ulong allocations;

static void count_allocation(void)
{
	char name[16] = "";

	pthread_getname_np(pthread_self(), name, sizeof(name));
	allocations += strcmp(name, "winnow-data") == 0;
}

void *malloc(size_t bytes)
{
	count_allocation();
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	count_allocation();
	return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
	count_allocation();
	return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	count_allocation();
	return __libc_memalign(alignment, bytes);
}
#else
#define COUNTS_ALLOCATIONS 0
static unsigned long allocations;
#endif

/* ---- tests ---- */

/* What is for everyone goes once to the group and once to each worker that it does not reach. */
static void receivers(const bool multicast[WORKERS], bool to_group)
{
	const struct channel_config config = channel_usual(ID);
	struct world *w = started(&config, multicast);
	struct net *net = nets[0];

	operation(net, BLOCKS);
	for (uint16_t rank = 0; rank < WORKERS; rank++)
		if (!multicast[rank])
			await(net, count_sent(net, WIRE_RESULT, WORKER_IP(rank)) == BLOCKS);
	if (to_group)
		await(net, count_sent(net, WIRE_RESULT, GROUP_IP) == BLOCKS);
	/* An answer to one worker comes after all of them, and goes to it alone. */
	deliver(net, (struct datagram *[]){status_of(ID, 2, FIRST_FRAME, true)}, 1);
	await(net, count_sent(net, WIRE_STATUS_BACK, WORKER_IP(2)) == 1);
	assert_int_equal(count_sent(net, WIRE_PLAN, GROUP_IP), to_group);
	assert_int_equal(count_sent(net, WIRE_RESULT, GROUP_IP), to_group ? BLOCKS : 0);
	for (uint16_t rank = 0; rank < WORKERS; rank++) {
		assert_int_equal(count_sent(net, WIRE_PLAN, WORKER_IP(rank)), !multicast[rank]);
		assert_int_equal(count_sent(net, WIRE_RESULT, WORKER_IP(rank)),
		                 multicast[rank] ? 0 : BLOCKS);
		assert_int_equal(count_sent(net, WIRE_STATUS_BACK, WORKER_IP(rank)), rank == 2);
	}
	for (uint32_t i = 0; i < net->sent_count; i++) {
		const struct sent *s = &net->sent[i];

		assert_int_equal(s->worker, s->kind == WIRE_STATUS_BACK ? 2 : WIRE_EVERYONE);
		assert_int_equal(net_ip_number(&s->to.local),
		                 net_ip_number(&s->to.to.ip) == GROUP_IP
		                         ? LOCAL_IP(2)
		                         : LOCAL_IP(net_ip_number(&s->to.to.ip) - WORKER_IP(0)));
	}
	data_detach(w->data, ID);
	world_close(w);
}

static void test_receivers(void **state)
{
	(void)state;
	receivers(all, true);
	receivers(some, true);
	receivers(none, false);
}

/* RESULTs of `bytes` bytes that have gone to `ip` for frames [first, first + SHARE_BLOCKS). */
#define SHARE_BLOCKS 8
static uint32_t count_share(const struct net *net, uint32_t ip, uint32_t first, uint32_t bytes)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < net->sent_count; i++)
		count += net->sent[i].kind == WIRE_RESULT &&
		         net_ip_number(&net->sent[i].to.to.ip) == ip &&
		         net->sent[i].frame - first < SHARE_BLOCKS && net->sent[i].bytes == bytes;
	return count;
}

/* Of a reduce-scatter one worker gets the whole RESULTs, and all others, or the group, their heads. */
static void scatter(const bool multicast[WORKERS])
{
	const struct channel_config config = channel_usual(ID);
	const uint32_t head = WIRE_HEADER_BYTES, whole = head + BLOCK_ELEMS * 4;
	struct announce a = announce_usual(WORKERS * SHARE_BLOCKS, BLOCK_ELEMS);
	struct world *w = started(&config, multicast);
	struct net *net = nets[0];
	uint32_t group = 0, batches = 0;

	a.flags |= WIRE_SCATTER;
	a.segment_count = WORKERS;
	a.block_count = SHARE_BLOCKS;
	for (a.segment = 0; a.segment < 2; a.segment++)
		for (uint16_t rank = 0; rank < WORKERS; rank++)
			deliver(net, (struct datagram *[]){announce_made(ID, rank, &a)}, 1);
	push_all(net, ID, 2 * SHARE_BLOCKS, BLOCK_ELEMS);
	deliver(net, (struct datagram *[]){status_of(ID, 2, FIRST_FRAME, true)}, 1);
	await(net, net->in_count == 0 &&
	                   count_share(net, WORKER_IP(1), FIRST_FRAME + SHARE_BLOCKS, whole) ==
	                           SHARE_BLOCKS &&
	                   count_sent(net, WIRE_STATUS_BACK, WORKER_IP(2)) == 1);
	for (uint16_t rank = 0; rank < WORKERS; rank++)
		group += multicast[rank];
	for (uint32_t share = 0; share < 2; share++) {
		uint32_t first = FIRST_FRAME + share * SHARE_BLOCKS;

		for (uint16_t rank = 0; rank < WORKERS; rank++) {
			bool receives = rank == share, alone = !receives && !multicast[rank];

			assert_int_equal(count_share(net, WORKER_IP(rank), first, whole),
			                 receives ? SHARE_BLOCKS : 0);
			assert_int_equal(count_share(net, WORKER_IP(rank), first, head),
			                 alone ? SHARE_BLOCKS : 0);
		}
		assert_int_equal(count_share(net, GROUP_IP, first, whole), 0);
		assert_int_equal(count_share(net, GROUP_IP, first, head),
		                 group > 0 ? SHARE_BLOCKS : 0);
	}
	for (uint32_t i = 0; i < net->sent_count; i++)
		batches += i == 0 || net->sent[i].batch != net->sent[i - 1].batch;
	assert_in_range(batches, 5, 40); /* not one for each datagram */
	data_detach(w->data, ID);
	world_close(w);
}

static void test_scatter(void **state)
{
	(void)state;
	scatter(all);
	scatter(some);
	scatter(none);
}

/* A batch holds at most NET_BATCH_BYTES_MAX, whatever a channel has to say; fake_send() looks. */
static void test_batches(void **state)
{
	struct channel_config config = channel_usual(ID);
	uint32_t block_elems = 2235, frames = 200, last = 0, batches = 0; /* 8,940 bytes a block */
	struct world *w;
	struct net *net;

	(void)state;
	config.payload = 8972;
	config.window = 256;
	w = started(&config, all);
	net = nets[0];
	announce_all(net, ID, frames, block_elems);
	push_all(net, ID, frames, block_elems);
	await(net, count_sent(net, WIRE_RESULT, GROUP_IP) == frames);
	for (uint32_t i = 0; i < net->sent_count; i++) {
		if (net->sent[i].kind != WIRE_RESULT)
			continue;
		assert_int_equal(net->sent[i].frame, FIRST_FRAME + last++); /* all, in order */
		assert_int_equal(net->sent[i].bytes, 8972);
		batches += i == 0 || net->sent[i].batch != net->sent[i - 1].batch;
	}
	/* One at least for each burst of 256 PUSHes, and for 512 KB; not one for each datagram. */
	assert_in_range(batches, 4, 40);
	data_detach(w->data, ID);
	world_close(w);
}

/* A burst ends a window of one job and an operation's announcing in another: that one's PLAN goes first. */
static void test_small_first(void **state)
{
	const struct channel_config config = channel_usual(ID), other = channel_usual(ID + 0x100);
	struct world *w = started(&config, none);
	struct net *net = nets[0];
	struct datagram *list[BLOCKS + 1];
	uint32_t results_before = 0, plans = 0;

	(void)state;
	attach(w, &other);
	knock_all(net, other.id, other.payload);
	start(w, &other, none);
	announce_all(net, ID, BLOCKS, BLOCK_ELEMS);
	for (uint16_t rank = 0; rank + 1 < WORKERS; rank++) {
		for (uint32_t i = 0; i < BLOCKS; i++)
			list[i] = push_of(ID, rank, FIRST_FRAME + i, BLOCK_ELEMS);
		deliver(net, list, BLOCKS);
		deliver(net, (struct datagram *[]){announce_of(other.id, rank, 1, BLOCK_ELEMS)}, 1);
	}
	await(net, net->in_count == 0 && net->lent_count == 0); /* and answered */
	forget_sent(net);
	for (uint32_t i = 0; i < BLOCKS; i++)
		list[i] = push_of(ID, WORKERS - 1, FIRST_FRAME + i, BLOCK_ELEMS);
	list[BLOCKS] = announce_of(other.id, WORKERS - 1, 1, BLOCK_ELEMS);
	deliver(net, list, BLOCKS + 1);
	await(net, count_sent(net, WIRE_RESULT, WORKER_IP(0)) == BLOCKS &&
	                   count_sent(net, WIRE_RESULT, WORKER_IP(3)) == BLOCKS &&
	                   count_sent(net, WIRE_PLAN, WORKER_IP(3)) == 1);
	for (uint32_t i = 0; i < net->sent_count && plans < WORKERS; i++) {
		plans += net->sent[i].kind == WIRE_PLAN;
		results_before += net->sent[i].kind == WIRE_RESULT;
	}
	assert_int_equal(plans, WORKERS);
	assert_int_equal(results_before, 0);
	data_detach(w->data, ID);
	data_detach(w->data, other.id);
	world_close(w);
}

/* A network that has room again soon has lost nothing; one receiver a call is fine, too. */
static void test_not_ready(void **state)
{
	const struct channel_config config = channel_usual(ID);
	struct world *w = started(&config, some);
	struct net *net = nets[0];
	struct data_stats stats;

	(void)state;
	pthread_mutex_lock(&net->lock);
	net->keeps = true;
	net->not_ready_for = 5;
	pthread_mutex_unlock(&net->lock);
	operation(net, BLOCKS);
	await(net, count_sent(net, WIRE_RESULT, GROUP_IP) == BLOCKS &&
	                   count_sent(net, WIRE_RESULT, WORKER_IP(1)) == BLOCKS &&
	                   count_sent(net, WIRE_RESULT, WORKER_IP(3)) == BLOCKS);
	data_stats(w->data, &stats);
	assert_int_equal(stats.unsent, 0);
	data_detach(w->data, ID);
	world_close(w);
}

/*
 * A network that stays full: what cannot go is counted, a thread waits for it once and not for each
 * batch, takes its orders, and sends again when there is room.
 */
static void test_stuck(void **state)
{
	const struct channel_config config = channel_usual(ID);
	struct world *w = started(&config, some);
	struct net *net = nets[0];
	uint64_t from_ms = clock_ms(), took_ms;
	struct data_stats stats = {0};

	(void)state;
	pthread_mutex_lock(&net->lock);
	net->full_calls = UINT32_MAX;
	pthread_mutex_unlock(&net->lock);
	/* Announcements, pushes and questions, in many turns. */
	operation(net, BLOCKS);
	for (uint32_t i = 0; i < 100; i++) {
		deliver(net, (struct datagram *[]){status_of(ID, i % WORKERS, FIRST_FRAME, true)},
		        1);
		await(net, net->in_count == 0);
	}
	while (stats.unsent < 3 * (1 + BLOCKS) + 100 && clock_ms() < from_ms + LIMIT_MS)
		data_stats(w->data, &stats);
	took_ms = clock_ms() - from_ms;
	/* PLAN and RESULTs to the group and to two workers, and an answer to each question. */
	assert_int_equal(stats.unsent, 3 * (1 + BLOCKS) + 100);
	assert_int_equal(net->sent_count, 0);
	if (took_ms > 5000) /* 102 turns of 100 ms are twice that */
		fail_msg("a full network has kept the thread for %u ms", (unsigned)took_ms);
	pthread_mutex_lock(&net->lock);
	net->full_calls = 0;
	pthread_mutex_unlock(&net->lock);
	deliver(net, (struct datagram *[]){status_of(ID, 1, FIRST_FRAME, true)}, 1);
	await(net, count_sent(net, WIRE_STATUS_BACK, WORKER_IP(1)) == 1);
	/* And it waits again. */
	pthread_mutex_lock(&net->lock);
	net->full_calls = 5;
	pthread_mutex_unlock(&net->lock);
	deliver(net, (struct datagram *[]){status_of(ID, 3, FIRST_FRAME, true)}, 1);
	await(net, count_sent(net, WIRE_STATUS_BACK, WORKER_IP(3)) == 1);
	data_stats(w->data, &stats);
	assert_int_equal(stats.unsent, 3 * (1 + BLOCKS) + 100);
	data_detach(w->data, ID);
	world_close(w);
}

/* A system that calls a socket writable and takes nothing (ENOBUFS) does not make the thread spin. */
static void test_writable_but_full(void **state)
{
	const struct channel_config config = channel_usual(ID);
	struct world *w = started(&config, all);
	struct net *net = nets[0];
	uint32_t before, after;

	(void)state;
	pthread_mutex_lock(&net->lock);
	net->full_calls = UINT32_MAX;
	before = net->ready_calls;
	pthread_mutex_unlock(&net->lock);
	deliver(net, (struct datagram *[]){status_of(ID, 1, FIRST_FRAME, true)}, 1);
	usleep(500000); /* an eventfd is always writable */
	pthread_mutex_lock(&net->lock);
	after = net->ready_calls;
	net->full_calls = 0;
	pthread_mutex_unlock(&net->lock);
	assert_in_range(after - before, 2, 20000); /* 500 ms of system calls alone are 500,000 */
	data_detach(w->data, ID);
	world_close(w);
}

/* An operation that waits for one worker is reported until its job ends, without another packet coming. */
static void test_stall(void **state)
{
	struct channel_config config = channel_usual(ID), idle = channel_usual(ID + 0x100);
	uint32_t checks_before, checks;
	uint64_t from_ms, took_ms;
	struct world *w;

	(void)state;
	config.stall_us = idle.stall_us = 100000;
	w = started(&config, all);
	attach(w, &idle);
	start(w, &idle, all);
	for (uint16_t rank = 0; rank < WORKERS; rank++)
		if (rank != 2)
			deliver(nets[0],
			        (struct datagram *[]){announce_of(ID, rank, BLOCKS, BLOCK_ELEMS)},
			        1);
	await(w, w->told.stalls > 0);
	assert_int_equal(told_of(w).stalled_id, ID);
	assert_int_equal(told_of(w).stall.rank, 2);
	assert_int_equal(told_of(w).stall.missing, 1);
	assert_false(told_of(w).stall.streaming);
	assert_true(told_of(w).stall.tag == TAG);
	assert_in_range(told_of(w).stall.waited_us, 100000, LIMIT_MS * 1000);
	/* Four looks a second. */
	from_ms = clock_ms();
	pthread_mutex_lock(&nets[0]->lock);
	checks_before = nets[0]->health_calls;
	pthread_mutex_unlock(&nets[0]->lock);
	await(nets[0], nets[0]->health_calls >= checks_before + 8);
	took_ms = clock_ms() - from_ms;
	pthread_mutex_lock(&nets[0]->lock);
	checks = nets[0]->health_calls - checks_before;
	pthread_mutex_unlock(&nets[0]->lock);
	assert_true(checks * 1000 >= took_ms);      /* one a second, on the busiest machine, */
	assert_true(checks * 100 <= took_ms + 200); /* and no more than ten */
	assert_in_range(told_of(w).stalls, checks, checks + 2);
	assert_int_equal(told_of(w).stalled_id, ID);
	data_detach(w->data, ID);
	data_detach(w->data, idle.id);
	world_close(w);
}

/* A thread with nothing under way sleeps until something comes. */
static void test_idle(void **state)
{
	const struct channel_config config = channel_usual(ID);
	struct world *w = started(&config, all);
	uint32_t before, after;

	(void)state;
	usleep(600000); /* until the last look for stalls is over */
	pthread_mutex_lock(&nets[0]->lock);
	before = nets[0]->recv_calls;
	pthread_mutex_unlock(&nets[0]->lock);
	usleep(800000);
	pthread_mutex_lock(&nets[0]->lock);
	after = nets[0]->recv_calls;
	pthread_mutex_unlock(&nets[0]->lock);
	assert_in_range(after - before, 0, 1);
	data_detach(w->data, ID);
	world_close(w);
}

/* Data threads allocate nothing. */
static void test_no_allocation(void **state)
{
	const struct channel_config config = channel_usual(ID);
	struct world *w;
	unsigned long before;

	(void)state;
	if (!COUNTS_ALLOCATIONS)
		skip();
	w = started(&config, some);
	before = allocations;
	operation(nets[0], BLOCKS);
	await(nets[0], count_sent(nets[0], WIRE_RESULT, GROUP_IP) == BLOCKS);
	assert_int_equal(allocations - before, 0);
	data_detach(w->data, ID);
	world_close(w);
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
static void test_sealed(void **state)
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
	struct world *w = world_open(1);
	struct datagram *list[3];
	struct channel_stats stats;
	struct channel_view view;
	struct channel_waits waits[WORKERS] = {0};

	(void)state;
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
	assert_true(channel_looked(w, ID, &stats, &view, waits));
	assert_int_equal(stats.drops[WIRE_DROP_WORKER], 1);
	assert_int_equal(stats.drops[WIRE_DROP_SEAL], 1);
	assert_int_equal(count_sent(nets[0], WIRE_STATUS_BACK, WORKER_IP(1)), 0);
	data_detach(w->data, ID);
	world_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_receivers),
		cmocka_unit_test(test_scatter),
		cmocka_unit_test(test_small_first),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_not_ready),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_writable_but_full),
		cmocka_unit_test(test_stall),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_sealed),

		cmocka_unit_test(test_no_allocation),

	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
