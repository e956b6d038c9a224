/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xdp_world.h - what the tests of winnow.bpf.c share: a loaded program, packets, an independent eye
 *
 * The kernel runs the program on packets that we hand it (BPF_PROG_TEST_RUN); no device is
 * involved. Slots are opened here the way winnowd would.
 */
#ifndef TESTS_UNIT_XDP_WORLD_H
#define TESTS_UNIT_XDP_WORLD_H

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ebpf/packet.h"
#include "ebpf/xdp.h"
#include "ebpf/seal.h"
#include "tests/unit/test_random.h"
#include "tests/unit/unit.h"

#define HEADERS_BYTES 74     /* Ethernet, IPv4, UDP, ours */
#define SUM_BYTES_MAX 3424   /* of data, so that the RESULT fits, by IPv6 too */
#define OUR_IP 0x0a000001u   /* 10.0.0.1 */
#define GROUP_IP 0xefc16207u /* 239.193.98.7: the bit that its MAC leaves out is set */
#define WORKER_IP(w) (0x0a000100u + (w))
#define OUR_PORT 5555
#define GROUP_PORT 5600
#define TOS 0xaau /* of what is sent */
#define WORKER_PORT(w) ((uint16_t)(20000 + (w)))
#define CHANNEL 0x1203
#define GROUP_TOKEN UINT64_C(0xf0e1d2c3b4a59687)
#define FIRST_FRAME UINT32_C(0xfffffff0) /* so that frame numbers wrap */
#define WINDOW 64u
#define SLOT_COUNT 96u

struct __attribute__((packed)) bytes {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct wire_header wire;
	uint8_t data[4096];
};

struct frame { /* of a link: a packet as the program sees it */
	struct bytes at;
	uint32_t length;
	uint64_t
		sealed; /* the seal that frame_run() has put in; one that a test has put in stays */
};

struct world {
	struct xdp *xdp;
	struct fast_channel *channel;
	struct fast_slot *slots; /* of the channel */
	int index;
};

/* Are the jobs of worlds to come sealed? */
extern bool world_sealed;

/*
 * Do their datagrams go by IPv6? Tests see them as IPv4 in any case: frame_run() translates, there and
 * back, and checks IPv6's own. 10.0.0.1 is fd77::10.0.0.1 there.
 */
extern bool world_six;

/* frame_run() writes these two bytes into the IPv6 packet, at this offset; 0: it does not. */
extern struct six_edit {
	size_t at;
	uint8_t high, low;
} world_six_edit;

/* ---- a world ---- */

/* Data is poisoned: an open slot's old sums must not matter. */
struct fast_slot *slot_open(const struct world *world, uint32_t frame, uint32_t unit_bytes,
                            uint32_t block_count, const uint64_t owned[FAST_WORKERS_MAX]);

/* `workers` of them own all of `block_count` blocks. */
struct fast_slot *slot_open_dense(const struct world *world, uint32_t frame, uint32_t unit_bytes,
                                  uint32_t block_count, uint32_t workers);

/* ---- packets ---- */

/* Lengths of a packet with `payload` bytes of UDP payload, everywhere that a length stands. */
void frame_resize(struct frame *frame, uint32_t payload);

/* A packet of a worker with `data_bytes` of data behind the header. */
void frame_make(struct frame *frame, uint8_t kind, uint32_t worker, const void *data,
                uint32_t data_bytes);

void push_make(struct frame *frame, uint32_t worker, uint32_t number, const void *data,
               uint32_t data_bytes);

/* frame_run - the program's verdict; *out is what it made of *in. */
uint32_t frame_run(const struct world *world, const struct frame *in, struct frame *out);

void assert_unchanged(const struct frame *in, const struct frame *out);

/* Runs *in and asserts its verdict; unless sent, it must come out as it went in. */
void expect(const struct world *world, const struct frame *in, uint32_t verdict);

/* ---- what was sent ---- */

/* check_answer - headers of a packet to the group. */
void check_answer(const struct world *world, const struct frame *out, struct packet *packet);

uint64_t counted(const struct world *world, uint32_t counter);

uint64_t stat_of(const struct world *world, enum fast_stat which);

void expect_drop(const struct world *world, const struct frame *frame, enum wire_drop reason);

/* Passed up, and counted as that and, unless it is the same, as `why`. */
void expect_pass_as(const struct world *world, const struct frame *frame, enum fast_counter why);

void expect_pass(const struct world *world, const struct frame *frame);

/* ---- each test in a world of its own, of three workers ---- */

int set_up(void **state);

int tear_down(void **state);

#define WORLD_TEST_UNTIL(name, end)                                                                \
	static void test_##name##_in(struct world *world);                                         \
	TEST_BETWEEN(name, set_up, end)                                                            \
	{                                                                                          \
		test_##name##_in(*state);                                                          \
	}                                                                                          \
	static void test_##name##_in(struct world *world)
#define WORLD_TEST(name) WORLD_TEST_UNTIL(name, tear_down)

/* All tests: plain by IPv4, then sealed, sealed by IPv6, and plain by IPv6; so many of these. Not 0: one has failed. */
int world_run(int kinds);

/* The program, too, is loaded for this test alone: channels that it leaves open are gone. */
int tear_all_down(void **state);

#define WORLD_TEST_ALONE(name) WORLD_TEST_UNTIL(name, tear_all_down)

#endif /* TESTS_UNIT_XDP_WORLD_H */
