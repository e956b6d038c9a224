// SPDX-License-Identifier: BSD-3-Clause
/*
 * bench_xdp.c - nanoseconds that the XDP program takes a frame, against echoing plus adding
 *
 * The kernel runs a program some 100,000 times on one packet and says how long a run took on
 * average. Four programs are run so: `prepare` makes the packet the next worker's PUSH and
 * opens a slot for each new frame (4 workers, 256 slots in turn), and the others do that first and
 * then their own work: the whole fast path; an echo, which turns addresses and ports round; the
 * bare addition of the data to a value of a map. The time of `prepare` is subtracted from each.
 * Every fourth PUSH is a frame's last and becomes the RESULT.
 *
 * They take turns, and the fastest of many turns counts: the machine may have other work.
 * Bound, from 256 elements: a PUSH takes at most 1.5 times what an echo and an addition take. Exit
 * status 1 if not.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "ebpf/fastpath.h"
#include "tests/bench/bench_xdp.h"
#include "tests/bench/bench_xdp.skel.h" /* made by bpftool from bench_xdp.bpf.c */

#define CHANNEL 7
#define PORT 5555
#define OUR_IP 0x0a000001u
#define WORKER_IP 0x0a000002u
#define GROUP_IP 0xefc10001u
#define REPEATS 100000
#define TURNS 15
#define BOUND 1.5
#define BOUND_ELEMS 256 /* of smaller frames, what is the same for all sizes takes the most */

enum program { PREPARE, WINNOW, ECHO, ADD, PREPARE_SEALED, SEALED, PROGRAMS };

struct __attribute__((packed)) bytes {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct wire_header wire;
	uint8_t data[FAST_DATA_BYTES];
};

struct bench {
	struct bench_xdp_bpf *skeleton;
	int programs[PROGRAMS];
	struct bytes packet;
	uint32_t packet_bytes;
};

static int refuse(const char *what)
{
	fprintf(stderr, "bench_xdp: %s: %s\n", what, strerror(errno));
	return -1;
}

/* ---- setting up ---- */

static int fill_maps(struct bench_xdp_bpf *skeleton)
{
	static struct fast_settings settings;
	struct fast_channel channel = {.active = 1,
	                               .worker_count = BENCH_WORKERS,
	                               .window_mask = BENCH_WINDOW - 1,
	                               .credit = BENCH_WINDOW,
	                               .call_mask = UINT32_MAX, /* nobody is woken */
	                               .group_token = 99,
	                               .multicast = 1,
	                               .group_ip = htonl(GROUP_IP),
	                               .group_port = htons(PORT + 1),
	                               .ttl = 1};
	uint32_t key = 0;

	settings.port = htons(PORT);
	for (uint32_t i = 0; i < BENCH_WORKERS; i++) {
		channel.tokens[i] = i + 1;
		channel.home[i] =
			(struct fast_home){.four = htonl(WORKER_IP), .port = htons(20000)};
	}
	memset(channel.keys, 0x35, sizeof(channel.keys));
	memset(&channel.stretch, 0x53, sizeof(channel.stretch));
	for (uint32_t i = 0; i < 2; i++) {
		settings.known[CHANNEL + i] = (uint16_t)(FAST_KNOWN_FIRST + i);
		channel.id = (uint16_t)(CHANNEL + i);
		channel.sealed = (uint8_t)i;
		if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.channels), &i, &channel, 0) != 0)
			return refuse("filling the maps");
	}
	if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.settings), &key, &settings, 0) != 0)
		return refuse("filling the maps");
	return 0;
}

static int fill_slots(struct bench_xdp_bpf *skeleton, uint32_t data_bytes)
{
	static struct fast_slot slot;

	memset(&slot, 0, sizeof(slot));
	slot.expected = BENCH_WORKERS;
	slot.unit_bytes = data_bytes;
	slot.block_count = 1;
	for (uint32_t i = 0; i < BENCH_WORKERS; i++)
		slot.owned[i] = 1;
	for (uint32_t key = 0; key < BENCH_WINDOW; key++)
		if (bpf_map_update_elem(bpf_map__fd(skeleton->maps.slots), &key, &slot, 0) != 0)
			return refuse("filling the slots");
	skeleton->bss->bench = (struct bench_packet){.from_ip = htonl(WORKER_IP),
	                                             .to_ip = htonl(OUR_IP),
	                                             .from_port = htons(20000),
	                                             .to_port = htons(PORT),
	                                             .data_bytes = data_bytes};
	skeleton->bss->turn = 0;
	return 0;
}

static int bench_open(struct bench *bench)
{
	struct bench_xdp_bpf *skeleton = bench_xdp_bpf__open();

	bench->skeleton = skeleton;
	if (skeleton == NULL || bpf_map__set_max_entries(skeleton->maps.slots, BENCH_WINDOW) != 0 ||
	    bench_xdp_bpf__load(skeleton) != 0)
		return refuse("loading the programs (root can)");
	bench->programs[PREPARE] = bpf_program__fd(skeleton->progs.bench_prepare);
	bench->programs[WINNOW] = bpf_program__fd(skeleton->progs.bench_winnow);
	bench->programs[ECHO] = bpf_program__fd(skeleton->progs.bench_echo);
	bench->programs[ADD] = bpf_program__fd(skeleton->progs.bench_add);
	bench->programs[PREPARE_SEALED] = bpf_program__fd(skeleton->progs.bench_prepare_sealed);
	bench->programs[SEALED] = bpf_program__fd(skeleton->progs.bench_sealed);
	return fill_maps(skeleton);
}

static int bench_frame(struct bench *bench, uint32_t data_bytes)
{
	struct bytes *packet = &bench->packet;

	memset(packet, 0, sizeof(*packet));
	packet->eth.h_proto = htons(ETH_P_IP);
	packet->ip.version = 4;
	packet->ip.ihl = 5;
	packet->ip.protocol = 17;
	packet->ip.tot_len = htons((uint16_t)(28 + WIRE_HEADER_BYTES + data_bytes));
	packet->udp.len = htons((uint16_t)(8 + WIRE_HEADER_BYTES + data_bytes));
	packet->wire.magic = WIRE_MAGIC;
	packet->wire.version = WIRE_VERSION;
	packet->wire.channel = CHANNEL;
	for (uint32_t i = 0; i < data_bytes; i++)
		packet->data[i] = (uint8_t)(i * 37);
	bench->packet_bytes = (uint32_t)offsetof(struct bytes, data) + data_bytes;
	return fill_slots(bench->skeleton, data_bytes);
}

/* ---- measuring ---- */

static int run(const struct bench *bench, enum program program, double *ns)
{
	struct bpf_test_run_opts options = {.sz = sizeof(options),
	                                    .data_in = &bench->packet,
	                                    .data_size_in = bench->packet_bytes,
	                                    .repeat = REPEATS};

	if (bpf_prog_test_run_opts(bench->programs[program], &options) != 0)
		return refuse("running a program");
	if (*ns == 0 || options.duration < *ns)
		*ns = options.duration;
	return 0;
}

/* Did the fast path add and answer, and do nothing else? */
static int check_counters(const struct bench *bench, uint32_t key, uint64_t pushes)
{
	static struct fast_channel channel;

	if (bpf_map_lookup_elem(bpf_map__fd(bench->skeleton->maps.channels), &key, &channel) != 0)
		return refuse("reading the channel");
	if (channel.stats[FAST_STAT_PUSHES] == pushes &&
	    channel.stats[FAST_STAT_RECEIVED] == pushes &&
	    channel.stats[FAST_STAT_SENT] == pushes / BENCH_WORKERS)
		return 0;
	fprintf(stderr, "bench_xdp: %llu PUSHes of %llu were added, %llu RESULTs were sent\n",
	        (unsigned long long)channel.stats[FAST_STAT_PUSHES], (unsigned long long)pushes,
	        (unsigned long long)channel.stats[FAST_STAT_SENT]);
	return -1;
}

static int measure(struct bench *bench, uint32_t elems, uint64_t *pushes)
{
	double ns[PROGRAMS] = {0};
	double push, echo, add, sealed;
	bool missed;

	if (bench_frame(bench, elems * 4) != 0)
		return -1;
	for (int turn = 0; turn < TURNS; turn++) {
		for (int program = 0; program < PROGRAMS; program++) {
			bench->packet.wire.channel =
				program >= PREPARE_SEALED ? CHANNEL + 1 : CHANNEL;
			if (run(bench, (enum program)program, &ns[program]) != 0)
				return -1;
		}
		*pushes += REPEATS;
	}
	push = ns[WINNOW] - ns[PREPARE];
	echo = ns[ECHO] - ns[PREPARE];
	add = ns[ADD] - ns[PREPARE];
	missed = elems >= BOUND_ELEMS && push > BOUND * (echo + add);
	sealed = ns[SEALED] - ns[PREPARE_SEALED];
	printf("%8u %10.0f %10.0f %10.0f %10.0f %12.2f %10.0f %12.2f%s\n", elems, ns[PREPARE], push,
	       echo, add, push / (echo + add), sealed, sealed / (echo + add),
	       missed ? "  missed" : "");
	return 0;
}

int main(void)
{
	static const uint32_t elems[] = {32, 256, 768};
	static struct bench bench;
	uint64_t pushes = 0;
	int status = 0;

	status = bench_open(&bench);
	if (status == 0)
		printf("%8s %10s %10s %10s %10s %12s %10s %12s\n", "elements", "prepare ns",
		       "PUSH ns", "echo ns", "add ns", "PUSH / both", "sealed ns", "sealed / both");
	for (size_t i = 0; status == 0 && i < sizeof(elems) / sizeof(elems[0]); i++)
		status = measure(&bench, elems[i], &pushes);
	if (status == 0)
		status = check_counters(&bench, 0, pushes);
	if (status == 0)
		status = check_counters(&bench, 1, pushes);
	bench_xdp_bpf__destroy(bench.skeleton);
	return status != 0;
}
