// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_xdp_threads.c - two CPUs at one slot at the same time, and each PUSH counts once
 *
 * Either both run the program, or one plays winnowd and adds in user space under the lock.
 */

#include <pthread.h>
#include <sched.h>

#include "tests/unit/xdp_world.h"

#define ROUNDS 1500
#define WORKERS 64
#define ELEMS 256

enum pairing {
	KERNELS_APART, /* each CPU gets half of the workers' PUSHes */
	KERNELS_BOTH,  /* each gets all of them: every PUSH comes twice */
	KERNEL_AND_USER,
};

struct match {
	struct world *world;
	enum pairing pairing;
	pthread_barrier_t barrier;
	uint32_t results;  /* to everyone, of the round; atomic */
	uint64_t given_up; /* duplicates that met a taken lock */
};

struct player {
	struct match *match;
	uint32_t cpu;
};

/* None of those whose PUSHes go up. */
static uint32_t number_of(uint32_t round)
{
	return FIRST_FRAME + round * (WINDOW / 4);
}

static uint32_t element(uint32_t worker, uint32_t round, uint32_t i)
{
	return (worker + 1) * 2654435761u + round * 40503u + i * 2246822519u;
}

static void push_kernel(struct match *match, const struct fast_slot *slot, const struct frame *in)
{
	uint32_t worker = in->at.wire.worker;
	uint32_t verdict;
	struct frame out;

	/* A lock that was taken too long passes the packet up: try again, as winnowd would. */
	while ((verdict = frame_run(match->world, in, &out)) == XDP_PASS) {
		if (__atomic_load_n(&slot->came, __ATOMIC_ACQUIRE) >> worker & 1) {
			__atomic_add_fetch(&match->given_up, 1, __ATOMIC_RELAXED);
			return;
		}
	}
	if (verdict == XDP_TX)
		__atomic_add_fetch(&match->results, 1, __ATOMIC_RELAXED);
}

static void push_user(struct match *match, struct fast_slot *slot, const struct frame *in)
{
	uint32_t data[ELEMS], sums[ELEMS];

	memcpy(data, in->at.data, sizeof(data));
	while (__atomic_exchange_n(&slot->lock, 1, __ATOMIC_ACQUIRE) != 0)
		sched_yield();
	memcpy(sums, slot->data, sizeof(sums));
	for (uint32_t i = 0; i < ELEMS; i++)
		sums[i] = slot->touched ? sums[i] + data[i] : data[i];
	memcpy(slot->data, sums, sizeof(sums));
	slot->touched = 1;
	__atomic_or_fetch(&slot->came, UINT64_C(1) << in->at.wire.worker, __ATOMIC_RELEASE);
	if (++slot->arrived == slot->expected) {
		__atomic_store_n(&slot->state, FAST_DONE, __ATOMIC_RELEASE);
		slot->sent = 1;
		__atomic_add_fetch(&match->results, 1, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&slot->lock, 0, __ATOMIC_RELEASE);
}

static void play_round(const struct player *player, uint32_t round)
{
	struct match *match = player->match;
	uint32_t number = number_of(round);
	struct fast_slot *slot = &match->world->slots[number & (WINDOW - 1)];
	struct frame in;

	for (uint32_t turn = 0; turn < WORKERS; turn++) {
		uint32_t worker = player->cpu == 0 ? turn : WORKERS - 1 - turn;
		uint32_t data[ELEMS];

		if (match->pairing != KERNELS_BOTH && worker % 2 != player->cpu)
			continue;
		for (uint32_t i = 0; i < ELEMS; i++)
			data[i] = element(worker, round, i);
		push_make(&in, worker, number, data, sizeof(data));
		if (match->pairing == KERNEL_AND_USER && player->cpu == 1)
			push_user(match, slot, &in);
		else
			push_kernel(match, slot, &in);
	}
}

static void check_round(const struct match *match, uint32_t round)
{
	const struct fast_slot *slot = &match->world->slots[number_of(round) & (WINDOW - 1)];
	uint32_t sums[ELEMS];

	memcpy(sums, slot->data, sizeof(sums));
	assert_int_equal(match->results, 1);
	assert_int_equal(slot->state, FAST_DONE);
	assert_int_equal(slot->sent, 1);
	assert_int_equal(slot->lock, 0);
	assert_int_equal(slot->arrived, WORKERS);
	for (uint32_t i = 0; i < ELEMS; i++) {
		uint32_t want = 0;

		for (uint32_t worker = 0; worker < WORKERS; worker++)
			want += element(worker, round, i);
		assert_int_equal(sums[i], want);
	}
}

/* Where there is one CPU only, threads take turns. */
static void move_to(uint32_t cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	(void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
}

static void *play(void *argument)
{
	const struct player *player = argument;
	struct match *match = player->match;

	move_to(player->cpu);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		if (player->cpu == 0) {
			match->results = 0;
			slot_open_dense(match->world, number_of(round), ELEMS * 4, 1, WORKERS);
		}
		pthread_barrier_wait(&match->barrier);
		play_round(player, round);
		pthread_barrier_wait(&match->barrier);
		if (player->cpu == 0)
			check_round(match, round);
	}
	return NULL;
}

static void run_match(struct world *world, enum pairing pairing)
{
	struct match match = {.world = world, .pairing = pairing};
	struct player players[2] = {{&match, 0}, {&match, 1}};
	uint64_t pushes = (uint64_t)ROUNDS * WORKERS, busy;
	pthread_t other;

	world->channel->worker_count = WORKERS;
	assert_int_equal(pthread_barrier_init(&match.barrier, NULL, 2), 0);
	assert_int_equal(pthread_create(&other, NULL, play, &players[1]), 0);
	play(&players[0]);
	assert_int_equal(pthread_join(other, NULL), 0);
	pthread_barrier_destroy(&match.barrier);

	busy = counted(world, FAST_COUNT_BUSY);
	print_message("%llu of %llu met a lock for too long\n", (unsigned long long)busy,
	              (unsigned long long)pushes);
	assert_int_equal(stat_of(world, FAST_STAT_PUSHES),
	                 pairing == KERNEL_AND_USER ? pushes / 2 : pushes);
	assert_int_equal(counted(world, FAST_COUNT_ADDED), stat_of(world, FAST_STAT_PUSHES));
	assert_int_equal(stat_of(world, FAST_STAT_DUPLICATES),
	                 pairing == KERNELS_BOTH ? pushes - match.given_up : 0);
	if (pairing == KERNEL_AND_USER)
		return;
	assert_int_equal(stat_of(world, FAST_STAT_RESULTS), ROUNDS);
	assert_int_equal(world->channel->sequence, ROUNDS);
	assert_int_equal(stat_of(world, FAST_STAT_SENT), ROUNDS);
}

WORLD_TEST(kernels_apart)
{
	run_match(world, KERNELS_APART);
}

WORLD_TEST(kernels_both)
{
	run_match(world, KERNELS_BOTH);
}

WORLD_TEST(kernel_and_user)
{
	run_match(world, KERNEL_AND_USER);
}

int main(void)
{
	return world_run(2);
}
