// SPDX-License-Identifier: BSD-3-Clause
/* test_xdp.c - what the XDP program takes, leaves and drops, and what it counts */

#include "tests/unit/xdp_world.h"

#include <linux/ipv6.h>

static const uint32_t block[64] = {1, 2, 3, 0xffffffff};

/* ---- not ours: passed, untouched, uncounted ---- */

#define at(field) offsetof(struct bytes, field)

static const struct {
	const char *what;
	size_t offset;     /* of two bytes, */
	uint8_t high, low; /* that become these */
} not_ours[] = {
	{"IPv6", at(eth.h_proto), 0x86, 0xdd},
	{"VLAN", at(eth.h_proto), 0x81, 0x00},
	{"to a group of Ethernet's", at(eth.h_dest), 0x01, 0x00},
	{"IP version 6", at(ip), 0x65, 0x00},
	{"IP options", at(ip), 0x46, 0x00},
	{"TCP", at(ip.ttl), 61, 6},
	{"the first fragment", at(ip.frag_off), 0x20, 0x00},
	{"the last fragment", at(ip.frag_off), 0x00, 185},
	{"another address", at(ip.daddr) + 2, 0x00, 0x02},
	{"another port", at(udp.dest), (OUR_PORT + 1) >> 8, (OUR_PORT + 1) & 0xff},
	{"UDP longer than IP", at(udp.len), (296 + 4) >> 8, (296 + 4) & 0xff},
	{"UDP shorter than IP", at(udp.len), (296 - 4) >> 8, (296 - 4) & 0xff},
	{"IP longer than the packet", at(ip.tot_len), (316 + 4) >> 8, (316 + 4) & 0xff},
};

WORLD_TEST(not_ours)
{
	static const uint32_t cut[] = {329, 74, 41, 33, 20, 14};
	uint64_t before[FAST_COUNTER_COUNT], after[FAST_COUNTER_COUNT];
	struct frame frame;

	if (world_six)
		return;
	slot_open_dense(world, FIRST_FRAME, 256, 1, 2);
	xdp_counters(world->xdp, before);
	for (size_t i = 0; i < sizeof(not_ours) / sizeof(not_ours[0]); i++) {
		push_make(&frame, 0, FIRST_FRAME, block, 256);
		((uint8_t *)&frame.at)[not_ours[i].offset] = not_ours[i].high;
		((uint8_t *)&frame.at)[not_ours[i].offset + 1] = not_ours[i].low;
		print_message("%s\n", not_ours[i].what);
		expect(world, &frame, XDP_PASS);
	}
	for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
		push_make(&frame, 0, FIRST_FRAME, block, 256);
		frame.length = cut[i];
		expect(world, &frame, XDP_PASS);
	}
	push_make(&frame, 0, FIRST_FRAME, block, 256); /* no room for a UDP header */
	frame.at.ip.tot_len = htons(27);
	frame.at.udp.len = htons(7);
	expect(world, &frame, XDP_PASS);
	xdp_counters(world->xdp, after);
	assert_memory_equal(before, after, sizeof(before));
	assert_int_equal(world->slots[FIRST_FRAME & (WINDOW - 1)].came, 0);

	/* And the same packet with nothing wrong. */
	push_make(&frame, 0, FIRST_FRAME, block, 256);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(world->slots[FIRST_FRAME & (WINDOW - 1)].came, 1);
}

#define at_six(field) (offsetof(struct ethhdr, h_proto) + 2 + offsetof(struct ipv6hdr, field))

static const struct {
	const char *what;
	struct six_edit edit;
} not_ours_six[] = {
	{"IPv4's number", {offsetof(struct ethhdr, h_proto), 0x08, 0x00}},
	{"IP version 4", {14, 0x40, 0x00}},
	{"an extension header", {at_six(nexthdr), 0, 61}},
	{"a fragment", {at_six(nexthdr), 44, 61}},
	{"TCP", {at_six(nexthdr), 6, 61}},
	{"another address", {at_six(daddr) + 14, 0x00, 0x02}},
	{"another network", {at_six(daddr), 0xfd, 0x78}},
	{"another port", {54 + 2, (OUR_PORT + 1) >> 8, (OUR_PORT + 1) & 0xff}},
	{"no checksum", {54 + 6, 0, 0}},
	{"UDP longer than IP", {54 + 4, (296 + 4) >> 8, (296 + 4) & 0xff}},
	{"UDP shorter than IP", {54 + 4, (296 - 4) >> 8, (296 - 4) & 0xff}},
	{"IP longer than UDP", {at_six(payload_len), (296 + 4) >> 8, (296 + 4) & 0xff}},
};

WORLD_TEST(not_ours_six)
{
	struct frame frame, out;

	if (!world_six)
		return;
	slot_open_dense(world, FIRST_FRAME, 256, 1, 2);
	for (size_t i = 0; i < sizeof(not_ours_six) / sizeof(not_ours_six[0]); i++) {
		push_make(&frame, 0, FIRST_FRAME, block, 256);
		world_six_edit = not_ours_six[i].edit;
		print_message("%s\n", not_ours_six[i].what);
		assert_int_equal(frame_run(world, &frame, &out), XDP_PASS);
	}
	world_six_edit = (struct six_edit){0};
	push_make(&frame, 0, FIRST_FRAME, block, 256); /* to a group of Ethernet's */
	frame.at.eth.h_dest[0] |= 1;
	expect(world, &frame, XDP_PASS);
	push_make(&frame, 0, FIRST_FRAME, block, 256); /* cut off */
	frame.length -= 4;
	expect(world, &frame, XDP_PASS);
	assert_int_equal(world->slots[FIRST_FRAME & (WINDOW - 1)].came, 0);
	push_make(&frame, 0, FIRST_FRAME, block, 256); /* a daemon that listens by IPv4 */
	memset(xdp_look(world->xdp)->settings->six, 0, sizeof(xdp_look(world->xdp)->settings->six));
	expect(world, &frame, XDP_PASS);
	assert_int_equal(world->slots[FIRST_FRAME & (WINDOW - 1)].came, 0);
}

WORLD_TEST(any_address)
{
	struct frame frame;

	if (world_six)
		return;
	slot_open_dense(world, FIRST_FRAME, 256, 1, 2);
	xdp_look(world->xdp)->settings->ip = 0;
	push_make(&frame, 0, FIRST_FRAME, block, 256);
	frame.at.ip.daddr = htonl(OUR_IP + 1);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(world->slots[FIRST_FRAME & (WINDOW - 1)].came, 1);
}

/* ---- ours and bad: dropped, and counted by reason ---- */

WORLD_TEST(bad_headers)
{
	static const uint8_t kinds[] = {0, 5, 0x7f, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0xff};
	uint32_t dropped;
	struct frame frame;

	for (uint32_t bytes = 0; bytes < WIRE_HEADER_BYTES; bytes++) {
		frame_make(&frame, WIRE_STATUS, 0, NULL, 0);
		frame_resize(&frame, bytes);
		expect_drop(world, &frame, WIRE_DROP_SHORT);
	}
	frame_make(&frame, WIRE_STATUS, 0, NULL, 0);
	frame.at.wire.magic ^= 1;
	expect_drop(world, &frame, WIRE_DROP_MAGIC);
	frame_make(&frame, WIRE_STATUS, 0, NULL, 0);
	frame.at.wire.version = WIRE_VERSION + 1;
	expect_drop(world, &frame, WIRE_DROP_VERSION);
	for (size_t i = 0; i < sizeof(kinds); i++) {
		frame_make(&frame, kinds[i], 0, NULL, 0);
		expect_drop(world, &frame, WIRE_DROP_KIND);
	}
	for (int kind = WIRE_ANNOUNCE; kind <= WIRE_KNOCK; kind++) {
		frame_make(&frame, (uint8_t)kind, 0, NULL, 0);
		frame.at.wire.channel = CHANNEL ^ 0x100;
		expect_drop(world, &frame, WIRE_DROP_CHANNEL);
		frame_make(&frame, (uint8_t)kind, 0, NULL, 0);
		frame.at.wire.worker = world->channel->worker_count;
		expect_drop(world, &frame, WIRE_DROP_WORKER);
		frame.at.wire.worker = WIRE_EVERYONE;
		expect_drop(world, &frame, WIRE_DROP_WORKER);
		frame_make(&frame, (uint8_t)kind, 1, NULL, 0);
		frame.at.wire.seal ^= UINT64_C(1) << 63;
		if (world->channel->sealed)
			expect_pass(world, &frame); /* user space counts it */
		else
			expect_drop(world, &frame, WIRE_DROP_SEAL);
	}
	dropped = world->channel->sealed ? 2 * WIRE_KNOCK : 3 * WIRE_KNOCK;
	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED), dropped);
	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED_BYTES), dropped * WIRE_HEADER_BYTES);
}

/* Not one bit of a sealed PUSH may be another: user space is to look, and nothing is done. */
WORLD_TEST(forged)
{
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME, 132, 1, 2);
	struct frame frame, forged;

	if (!world->channel->sealed)
		return;
	push_make(&frame, 1, FIRST_FRAME, block, 132);
	world->channel->active = 0; /* for its seal only */
	expect_pass(world, &frame);
	world->channel->active = 1;
	for (uint32_t bit = 0; bit < (WIRE_HEADER_BYTES + 132) * 8; bit++) {
		uint32_t byte = 42 + bit / 8;

		if (bit / 8 < 8) /* magic, version, kind, channel, worker: other reasons */
			continue;
		forged = frame;
		((uint8_t *)&forged.at)[byte] ^= (uint8_t)(1 << bit % 8);
		forged.sealed = 0;
		expect_pass(world, &forged);
	}
	world->channel->base += UINT64_C(1) << 32; /* it is of the turn before */
	forged = frame;
	forged.sealed = 0;
	expect_pass(world, &forged);
	world->channel->base -= UINT64_C(1) << 32;
	/* What the program cannot make a seal of has none, and that is not the seal 0. */
	for (uint32_t odd = 1; odd < 4; odd++) {
		uint32_t known = world->channel->ack[1];

		frame_make(&forged, WIRE_STATUS, 1, block, odd);
		forged.at.wire.seal = 0;
		forged.sealed = 1; /* or it gets a right one */
		forged.at.wire.edge = FIRST_FRAME + odd;
		expect_pass(world, &forged);
		assert_int_equal(world->channel->ack[1], known);
	}
	assert_int_equal(slot->came, 0);
	assert_int_equal(slot->data[0], 0xa5);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(slot->came, 2);
}

/* ---- what user space does ---- */

WORLD_TEST(passed_up)
{
	static const uint8_t kinds[] = {WIRE_ANNOUNCE, WIRE_STATUS, WIRE_KNOCK};
	uint16_t other = CHANNEL + 1;
	struct frame frame;

	for (size_t i = 0; i < sizeof(kinds); i++) {
		frame_make(&frame, kinds[i], 1, block, 64);
		expect_pass(world, &frame);
	}
	/* A channel of user space alone: nothing is looked at but the header's form. */
	push_make(&frame, 1, FIRST_FRAME, block, 256);
	frame.at.wire.channel = other;
	frame.at.wire.seal = 0;
	expect_drop(world, &frame, WIRE_DROP_CHANNEL);
	xdp_known(world->xdp, other, true);
	expect_pass(world, &frame);
	xdp_known(world->xdp, other, false);
	expect_drop(world, &frame, WIRE_DROP_CHANNEL);

	/* One that is not active yet. */
	slot_open_dense(world, FIRST_FRAME, 256, 1, 2);
	push_make(&frame, 1, FIRST_FRAME, block, 256);
	world->channel->active = 0;
	expect_pass(world, &frame);
	world->channel->active = 1;
	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED), 0);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED), 1);
}

WORLD_TEST(closed_frames)
{
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME, 256, 1, 2);
	struct frame frame;

	push_make(&frame, 1, FIRST_FRAME - WINDOW, block, 256); /* stale */
	expect_pass(world, &frame);
	push_make(&frame, 1, FIRST_FRAME + WINDOW, block, 256); /* not open yet */
	expect_pass(world, &frame);
	push_make(&frame, 1, FIRST_FRAME, block, 256);
	slot->state = FAST_CLOSED;
	expect_pass(world, &frame);
	slot->state = FAST_OPEN;
	world->channel->first_slot = SLOT_COUNT; /* a bug of ours must not be one of the kernel's */
	expect_pass(world, &frame);
	assert_int_equal(slot->came, 0);
	assert_int_equal(slot->lock, 0);
	assert_int_equal(world->channel->ack[1], FIRST_FRAME);
}

/* ---- a PUSH ---- */

WORLD_TEST(bad_push)
{
	uint64_t owned[FAST_WORKERS_MAX] = {0x5, 0x7, 0};
	struct fast_slot *slot = slot_open(world, FIRST_FRAME, 64, 3, owned);
	struct frame frame;

	push_make(&frame, 2, FIRST_FRAME, block, 0); /* who owes nothing */
	expect_drop(world, &frame, WIRE_DROP_LENGTH);
	for (uint32_t bytes = 0; bytes < 128; bytes += bytes < 120 ? 17 : 1) {
		push_make(&frame, 0, FIRST_FRAME, block, bytes);
		if (world->channel->sealed && bytes % 4 != 0)
			expect_pass(world, &frame); /* the program knows no seal of it */
		else
			expect_drop(world, &frame, WIRE_DROP_LENGTH);
	}
	/* Longer: perhaps several datagrams in one, which only user space can tell apart. */
	push_make(&frame, 0, FIRST_FRAME, block, 129);
	expect_pass_as(world, &frame,
	               world->channel->sealed ? FAST_COUNT_PASSED : FAST_COUNT_MERGED);
	push_make(&frame, 0, FIRST_FRAME, block, 192);
	expect_pass_as(world, &frame, FAST_COUNT_MERGED);
	assert_int_equal(slot->came, 0);
	assert_int_equal(slot->arrived, 0);
	assert_int_equal(slot->lock, 0);
	assert_int_equal(slot->data[0], 0xa5);
}

WORLD_TEST(push)
{
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME, 128, 2, 3);
	struct frame frame, out;
	struct packet packet;

	push_make(&frame, 1, FIRST_FRAME, block, 256);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(slot->state, FAST_OPEN);
	assert_int_equal(slot->came, 2);
	assert_int_equal(slot->touched, 3);
	assert_int_equal(slot->arrived, 1);
	assert_int_equal(slot->lock, 0);
	assert_memory_equal(slot->data, block, 256);
	assert_int_equal(slot->data[256], 0xa5);
	push_make(&frame, 2, FIRST_FRAME, block, 256);
	expect(world, &frame, XDP_DROP);
	assert_int_equal(counted(world, FAST_COUNT_ADDED), 2);
	assert_int_equal(world->channel->sequence, 0);

	push_make(&frame, 0, FIRST_FRAME, block, 256);
	frame.at.udp.check = 0x1234; /* not looked at */
	world->channel->base = FIRST_FRAME - 3;
	world->channel->planned = 77;
	assert_int_equal(frame_run(world, &frame, &out), XDP_TX);
	check_answer(world, &out, &packet);
	assert_int_equal(packet.kind, WIRE_RESULT);
	assert_int_equal(packet.frame, FIRST_FRAME);
	assert_int_equal(packet.sequence, 1);
	assert_int_equal(packet.body_bytes, 256);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(((uint32_t *)(void *)slot->data)[i], 3 * block[i]);
	assert_memory_equal(packet.body, slot->data, 256);
	assert_int_equal(slot->state, FAST_DONE);
	assert_int_equal(slot->sent, 1);
	assert_int_equal(slot->sequence, 1);
	assert_int_equal(slot->lock, 0);
	assert_int_equal(world->channel->told_base, FIRST_FRAME - 3);

	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED), 3);
	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED_BYTES), 3 * 288);
	assert_int_equal(stat_of(world, FAST_STAT_PUSHES), 3);
	assert_int_equal(stat_of(world, FAST_STAT_RESULTS), 1);
	assert_int_equal(stat_of(world, FAST_STAT_SENT), 1);
	assert_int_equal(stat_of(world, FAST_STAT_SENT_BYTES), 288);
	assert_int_equal(stat_of(world, FAST_STAT_SINGLE), 0);
	assert_int_equal(stat_of(world, FAST_STAT_DUPLICATES), 0);
}

/* Ethernet may pad what is short: what lies behind the datagram is none of it. */
WORLD_TEST(padding)
{
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME, 256, 1, 2);
	struct frame frame, out;
	struct packet packet;

	for (uint32_t worker = 0; worker < 2; worker++) {
		push_make(&frame, worker, FIRST_FRAME, block, 256);
		memset(frame.at.data + 256, 0xee, 64);
		frame.length += worker == 0 ? 3 : 64;
		assert_int_equal(frame_run(world, &frame, &out), worker == 0 ? XDP_DROP : XDP_TX);
	}
	check_answer(world, &out, &packet);
	assert_int_equal(packet.body_bytes, 256);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(((uint32_t *)(void *)slot->data)[i], 2 * block[i]);
	assert_memory_equal(packet.body, slot->data, 256);
}

/* Its data comes back as it went, and the slot keeps it. */
WORLD_TEST(single_contributor)
{
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME, 256, 1, 1);
	struct frame frame, out;
	struct packet packet;

	world->channel->sequence = 0x2ffff; /* only the low half is told */
	push_make(&frame, 0, FIRST_FRAME, block, 256);
	assert_int_equal(frame_run(world, &frame, &out), XDP_TX);
	check_answer(world, &out, &packet);
	assert_int_equal(packet.sequence, 0);
	assert_int_equal(slot->sequence, 0);
	assert_int_equal(world->channel->sequence, 0x30000);
	assert_memory_equal(packet.body, block, 256);
	assert_memory_equal(slot->data, block, 256);
	assert_int_equal(slot->state, FAST_DONE);
	assert_int_equal(stat_of(world, FAST_STAT_SINGLE), 1);
}

/* Why the program adds the last PUSH of a frame and leaves sending to user space. */
enum left { NO_MULTICAST, OTHER_GROUP, PRIVATE, CALL, NO_ROOM, LEFT_COUNT };

static void leave(struct fast_channel *channel, struct fast_slot *slot, enum left why)
{
	channel->multicast = why != NO_MULTICAST;
	slot->private = why == PRIVATE;
	if (why == OTHER_GROUP) {
		channel->group_ip = world_six ? htonl(GROUP_IP) : 0;
		channel->group_six[0] = world_six ? 0 : 0x15ff;
		channel->group_six[1] = 0;
	}
}

/* It goes up as it came, and its data is not lost. */
WORLD_TEST(left_to_user)
{
	const struct fast_channel before = *world->channel;
	uint64_t owned[FAST_WORKERS_MAX] = {0x3f, 0xc0};
	static uint8_t data[FAST_DATA_BYTES];
	struct frame frame;

	for (enum left why = 0; why < LEFT_COUNT; why++) {
		/* A packet cannot grow by 2,592 bytes. */
		uint32_t number = FIRST_FRAME + why, unit = why == NO_ROOM ? 432 : 128;
		struct fast_slot *slot;

		if (why == CALL)
			number = WINDOW / 4 - 1;
		slot = slot_open(world, number, unit, 8, owned);
		leave(world->channel, slot, why);
		push_make(&frame, 0, number, data, 6 * unit);
		expect(world, &frame, why == CALL ? XDP_PASS : XDP_DROP);
		memset(data, 0x11, sizeof(data));
		push_make(&frame, 1, number, data, 2 * unit);
		expect(world, &frame, XDP_PASS);
		assert_true(slot->state == FAST_DONE && slot->sent == 0 && slot->lock == 0);
		assert_int_equal(slot->came, 3);
		assert_memory_equal(slot->data + 6 * unit, data, 2 * unit);
		assert_int_equal(stat_of(world, FAST_STAT_PUSHES), 2 * (why + 1));
		assert_int_equal(stat_of(world, FAST_STAT_RESULTS), why + 1);
		world->channel->group_ip = before.group_ip;
		memcpy(world->channel->group_six, before.group_six, sizeof(before.group_six));
	}
	assert_int_equal(counted(world, FAST_COUNT_NO_ROOM), 1);
	assert_int_equal(counted(world, FAST_COUNT_ADDED), 2 * LEFT_COUNT);
	assert_int_equal(counted(world, FAST_COUNT_PASSED), LEFT_COUNT + 1);
	assert_int_equal(stat_of(world, FAST_STAT_RECEIVED), LEFT_COUNT - 1);
	assert_int_equal(stat_of(world, FAST_STAT_SENT), 0);
	assert_int_equal(world->channel->sequence, 0);
}

/* ---- the lock ---- */

WORLD_TEST(busy)
{
	struct fast_slot *slot = slot_open_dense(world, FIRST_FRAME, 256, 1, 1);
	struct frame frame;

	if (world_six)
		return;
	push_make(&frame, 0, FIRST_FRAME, block, 256);
	slot->lock = 1;
	expect(world, &frame, XDP_PASS);
	assert_int_equal(slot->lock, 1);
	assert_int_equal(slot->came, 0);
	assert_int_equal(slot->data[0], 0xa5);
	assert_int_equal(counted(world, FAST_COUNT_BUSY), 1);
	slot->lock = 0;
	expect(world, &frame, XDP_TX);
	assert_int_equal(counted(world, FAST_COUNT_BUSY), 1);
}

int main(void)
{
	return world_run(3);
}
