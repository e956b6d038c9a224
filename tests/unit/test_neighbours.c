// SPDX-License-Identifier: BSD-3-Clause
/* test_neighbours.c - the table of neighbours: what is learned is found, and no reader ever sees another's address */

#include <endian.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/dpdk/neighbours.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

#define ADDRESSES 3000
#define CROWD 100000
#define WRITERS 3
#define READERS 2
#define SEEN_LEAST 500 /* by each of them */
#define TURNS 50000
#define RIVALS 16 /* twice as many as there is room for */

static bool six; /* which family is tested */

/* `ip` in 10.77.0.0 and the like, or in one network of IPv6. */
static struct net_ip address(uint32_t ip)
{
	struct net_ip out = net_ipv4(ip);

	if (six)
		memcpy(out.bytes, "\xfd\x77\0\1\0\2\0\3\2\0\x5e\xff", 12);
	return out;
}

/* A station that tells whose it is. */
static void mac_for(uint32_t ip, uint32_t version, uint8_t mac[6])
{
	uint32_t mixed = ip * 2246822519u;

	mac[0] = (uint8_t)(version & 0xfe);
	memcpy(mac + 1, &ip, 4);
	mac[5] = (uint8_t)(mixed >> 24);
}

static void learn(struct neighbours *table, uint32_t ip, uint32_t version, uint64_t now_us)
{
	const struct net_ip whose = address(ip);
	uint8_t mac[6];

	mac_for(ip, version, mac);
	neighbours_learn(table, &whose, mac, (uint8_t)(ip % 16), now_us);
}

static bool find(const struct neighbours *table, uint32_t ip, struct neighbour *out)
{
	const struct net_ip whose = address(ip);

	return neighbours_find(table, &whose, out);
}

static bool right(uint32_t ip, const struct neighbour *found)
{
	uint8_t mac[6];

	mac_for(ip, found->mac[0], mac);
	return memcmp(found->mac, mac, 6) == 0 && found->port == ip % 16;
}

TEST(one)
{
	struct neighbours *table = neighbours_new();
	const struct net_ip one = address(0x0a4d0001);
	const struct net_ip none = {.scope = 0}, nobody = six ? none : net_ipv4(0);
	struct net_ip other = one;
	const uint8_t ones[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	struct neighbour found;

	assert_non_null(table);
	assert_false(find(table, 0x0a4d0001, &found));
	neighbours_learn(table, &one, (const uint8_t *)"\x02\x11\x22\x33\x44\x55", 7, 99);
	assert_true(find(table, 0x0a4d0001, &found));
	assert_memory_equal(found.mac, "\x02\x11\x22\x33\x44\x55", 6);
	assert_int_equal(found.port, 7);
	assert_int_equal(found.heard_us, 99);
	assert_false(find(table, 0x0a4d0002, &found));
	/* It moves. */
	neighbours_learn(table, &one, ones, 255, 100);
	assert_true(find(table, 0x0a4d0001, &found));
	assert_memory_equal(found.mac, ones, 6);
	assert_int_equal(found.port, 255);
	assert_int_equal(found.heard_us, 100);
	/* An address of a link is the same one on whichever. */
	other.scope = 3;
	assert_true(neighbours_find(table, &other, &found));
	/* Another byte is another address. */
	for (uint32_t i = six ? 0 : 12; i < 16; i++) {
		other.bytes[i] ^= 1;
		assert_false(neighbours_find(table, &other, &found));
		other.bytes[i] ^= 1;
	}
	/* Nobody's. */
	neighbours_learn(table, &nobody, ones, 1, 100);
	assert_false(neighbours_find(table, &nobody, &found));
	neighbours_free(table);
	neighbours_free(NULL);
}

/* Addresses as networks have them: in a row, in steps of 256, at both ends of a /16. */
TEST(networks)
{
	static const uint32_t first[] = {0x0a4d0001, 0xc0a80000, 0xffff0000};
	static const uint32_t step[] = {1, 256, 65536};

	for (size_t i = 0; i < 3; i++) {
		for (size_t k = 0; k < 3; k++) {
			struct neighbours *table = neighbours_new();
			uint32_t count = step[k] == 65536 ? 250 : ADDRESSES, missing = 0;
			struct neighbour found;

			assert_non_null(table);
			for (uint32_t n = 0; n < count; n++)
				learn(table, first[i] + n * step[k], 0, n + 1);
			for (uint32_t n = 0; n < count; n++) {
				uint32_t ip = first[i] + n * step[k];

				if (ip == 0 || !find(table, ip, &found))
					missing++;
				else
					assert_true(right(ip, &found));
			}
			if (missing > count / 100)
				fail_msg("%u of %u from %x in steps of %u are forgotten", missing,
				         count, first[i], step[k]);
			neighbours_free(table);
		}
	}
}

/* Far more than there is room for: it holds its size, keeps the newest, and mixes nobody up. */
TEST(full)
{
	struct neighbours *table = neighbours_new();
	uint32_t there = 0, ips[CROWD / 100];
	struct neighbour found;

	random_seed();
	assert_non_null(table);
	for (uint32_t i = 0; i < CROWD; i++) {
		uint32_t ip = (uint32_t)random_bits() | 1;

		learn(table, ip, 0, i + 1);
		assert_true(find(table, ip, &found));
		assert_true(right(ip, &found));
		assert_int_equal(found.heard_us, i + 1);
		if (i >= CROWD - CROWD / 100)
			ips[i - (CROWD - CROWD / 100)] = ip;
	}
	for (uint32_t i = 0; i < CROWD / 100; i++)
		there += find(table, ips[i], &found);
	print_message("%u of the last %u are there\n", there, CROWD / 100);
	assert_true(there > CROWD / 100 * 95 / 100);
	neighbours_free(table);
}

/* Whom one hears of again and again is not replaced by those whom one hears of once. */
TEST(oldest_goes)
{
	struct neighbours *table = neighbours_new();
	struct neighbour found;
	uint64_t now_us = 1;

	random_seed();
	assert_non_null(table);
	for (uint32_t i = 0; i < CROWD; i++) {
		learn(table, 0x0a4d0001, 0, ++now_us);
		learn(table, (uint32_t)random_bits() | 1, 0, ++now_us);
		assert_true(find(table, 0x0a4d0001, &found));
	}
	neighbours_free(table);
}

/* ---- threads ---- */

struct player {
	struct neighbours *table;
	uint32_t seed;
	atomic_bool *stop;
	uint64_t seen;
	bool wrong;
	struct neighbour last;
};

/* Addresses that want the same few places, so that they take each other's all the time. */
static uint32_t crowd[RIVALS];

static void crowd_find(void)
{
	uint32_t count = 0;

	for (uint32_t ip = 1; count < RIVALS; ip++) {
		const struct net_ip whose = address(ip);
		uint64_t high, low;

		memcpy(&high, whose.bytes, 8);
		memcpy(&low, whose.bytes + 8, 8);
		if ((be64toh(high) * 0xc2b2ae3d27d4eb4f + be64toh(low)) * 0x9e3779b97f4a7c15 >>
		            51 ==
		    1000)
			crowd[count++] = ip;
	}
}

static uint32_t rival(uint32_t number)
{
	return crowd[number >> 8 & (RIVALS - 1)];
}

static void *read_on(void *argument)
{
	struct player *player = argument;
	uint32_t number = player->seed;

	/* On a busy machine one may come after all writers have gone. */
	while ((!atomic_load(player->stop) || player->seen <= SEEN_LEAST) && !player->wrong) {
		uint32_t ip = rival(number);

		number = number * 1664525 + 1013904223;
		if (!find(player->table, ip, &player->last))
			continue;
		player->seen++;
		player->wrong = !right(ip, &player->last);
	}
	return NULL;
}

static void *write_on(void *argument)
{
	struct player *player = argument;
	uint32_t number = player->seed;

	for (uint32_t i = 0; i < TURNS; i++) {
		learn(player->table, rival(number), i, i);
		number = number * 1664525 + 1013904223;
		if (i % 64 == 0)
			sched_yield();
	}
	return NULL;
}

TEST(threads)
{
	struct neighbours *table = neighbours_new();
	struct player players[WRITERS + READERS];
	pthread_t threads[WRITERS + READERS];
	atomic_bool stop = false;
	uint32_t there = 0;
	uint64_t seen = 0;

	assert_non_null(table);
	crowd_find();
	for (uint32_t i = 0; i < WRITERS + READERS; i++) {
		players[i] = (struct player){.table = table, .seed = i * 7919 + 1, .stop = &stop};
		assert_int_equal(pthread_create(&threads[i], NULL, i < WRITERS ? write_on : read_on,
		                                &players[i]),
		                 0);
	}
	for (uint32_t i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&stop, true);
	for (uint32_t i = WRITERS; i < WRITERS + READERS; i++) {
		pthread_join(threads[i], NULL);
		assert_false(players[i].wrong);
		seen += players[i].seen;
	}
	for (uint32_t i = 0; i < RIVALS; i++)
		there += find(table, crowd[i], &players[0].last);
	print_message("found %llu times; %u of %u are there\n", (unsigned long long)seen, there,
	              RIVALS);
	assert_true(seen > SEEN_LEAST * READERS);
	assert_true(there < RIVALS); /* or they were no rivals */
	neighbours_free(table);
}

int main(void)
{
	int failed = 0;

	for (int family = 0; family < 2; family++) {
		six = family == 1;
		failed += unit_run(NULL, NULL);
	}
	return failed != 0;
}
