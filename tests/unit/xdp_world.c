// SPDX-License-Identifier: BSD-3-Clause
/* xdp_world.c - see xdp_world.h */

#include "tests/unit/xdp_world.h"

#include <linux/ipv6.h>

bool world_sealed, world_six;
struct six_edit world_six_edit;

static uint64_t token_of(uint32_t worker)
{
	return (worker + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* As RFC 1071 has it: 16-bit words, high byte first. */
static uint32_t words_sum(const void *data, uint32_t bytes)
{
	const uint8_t *byte = data;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < bytes; i++)
		sum += i % 2 == 0 ? (uint32_t)byte[i] << 8 : byte[i];
	return sum;
}

static uint16_t words_fold(uint32_t sum)
{
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* ---- IPv6 ---- */

struct __attribute__((packed)) six_bytes {
	struct ethhdr eth;
	struct ipv6hdr ip;
	uint8_t rest[sizeof(struct bytes) - sizeof(struct ethhdr) - sizeof(struct iphdr)];
};

#define LONGER (sizeof(struct ipv6hdr) - sizeof(struct iphdr))

/* An IPv4 address, network byte order, as the tests have it by IPv6. */
static void six_of(uint32_t four, void *out)
{
	uint8_t *bytes = out;

	memset(bytes, 0, 16);
	memcpy(bytes, four == htonl(GROUP_IP) ? "\xff\x15" : "\xfd\x77", 2);
	memcpy(bytes + 12, &four, 4);
}

static uint32_t four_of(const void *six)
{
	uint8_t again[16];
	uint32_t four;

	memcpy(&four, (const uint8_t *)six + 12, 4);
	six_of(four, again);
	assert_memory_equal(again, six, 16);
	return four;
}

static struct fast_home home_of(uint32_t worker)
{
	struct fast_home home = {.port = htons(WORKER_PORT(worker))};

	if (world_six)
		six_of(htonl(WORKER_IP(worker)), home.six);
	else
		home.four = htonl(WORKER_IP(worker));
	return home;
}

static void to_six(const struct frame *in, struct six_bytes *out)
{
	memset(out, 0, sizeof(*out));
	out->eth = in->at.eth;
	out->eth.h_proto = htons(ETH_P_IPV6);
	out->ip.version = in->at.ip.version == 4 ? 6 : 4;
	*(uint8_t *)&out->ip |= (uint8_t)(in->at.ip.tos >> 4);
	out->ip.flow_lbl[0] = (uint8_t)(in->at.ip.tos << 4 | 5);
	out->ip.flow_lbl[1] = 0x77;
	out->ip.payload_len = htons((uint16_t)(ntohs(in->at.ip.tot_len) - 20));
	out->ip.nexthdr = in->at.ip.protocol;
	out->ip.hop_limit = in->at.ip.ttl;
	six_of(in->at.ip.saddr, &out->ip.saddr);
	six_of(in->at.ip.daddr, &out->ip.daddr);
	memcpy(out->rest, &in->at.udp, sizeof(out->rest));
	out->rest[7] |= in->at.udp.check == 0; /* there must be a checksum; nobody looks at it */
	if (world_six_edit.at == 0)
		return;
	((uint8_t *)out)[world_six_edit.at] = world_six_edit.high;
	((uint8_t *)out)[world_six_edit.at + 1] = world_six_edit.low;
}

static void from_six(const struct frame *sent, const struct six_bytes *in,
                     const struct six_bytes *got, uint32_t length, struct frame *out)
{
	struct iphdr head = {.version = 4, .ihl = 5}, *ip = &head;
	uint32_t first;

	out->at.eth = got->eth;
	out->at.eth.h_proto = sent->at.eth.h_proto;
	memcpy(&out->at.udp, got->rest, sizeof(got->rest));
	out->length = length - (uint32_t)LONGER;
	if (memcmp(in, got, sizeof(in->eth) + sizeof(in->ip)) == 0) {
		out->at.ip = sent->at.ip;
		out->at.udp.check = sent->at.udp.check;
		return;
	}
	memcpy(&first, &got->ip, sizeof(first));
	assert_int_equal(ntohl(first), 6u << 28 | TOS << 20);
	ip->tos = TOS;
	assert_int_equal(ntohs(got->ip.payload_len), length - 54);
	assert_int_equal(got->eth.h_proto, htons(ETH_P_IPV6));
	ip->tot_len = htons((uint16_t)(length - 54 + 20));
	ip->frag_off = htons(0x4000);
	ip->ttl = got->ip.hop_limit;
	ip->protocol = got->ip.nexthdr;
	ip->saddr = four_of(&got->ip.saddr);
	ip->daddr = four_of(&got->ip.daddr);
	ip->check = htons((uint16_t)~words_fold(words_sum(ip, sizeof(*ip))));
	out->at.ip = head;
	if (ip->daddr == htonl(GROUP_IP)) {
		assert_memory_equal(got->eth.h_dest, "\x33\x33\xef\xc1\x62\x07", 6);
		memcpy(out->at.eth.h_dest, "\x01\x00\x5e\x41\x62\x07", 6);
	}
}

/* ---- a world ---- */

static void channel_seal(struct fast_channel *channel)
{
	uint8_t *stretch = (uint8_t *)&channel->stretch, *keys = (uint8_t *)channel->keys;

	channel->sealed = world_sealed;
	for (uint32_t i = 0; i < sizeof(channel->stretch); i++)
		stretch[i] = (uint8_t)(i * i * 31 + i / 256 + 5);
	for (uint32_t i = 0; i < sizeof(channel->keys); i++)
		keys[i] = (uint8_t)(i * i * 37 + i / 256 + 11);
}

/* A packet that carries its worker's token, as tests make them, becomes one that carries its seal. */
static void frame_seal(const struct world *world, struct frame *frame)
{
	struct wire_header head, *wire = &head;
	struct packet_out out = {.piece_count = 1, .bytes = frame->length - 42};
	uint32_t payload = ntohs(frame->at.udp.len) - 8u;

	memcpy(&head, &frame->at.wire, sizeof(head));
	if (!world->channel->sealed || wire->worker >= world->channel->worker_count ||
	    payload < sizeof(*wire) || payload > frame->length - 42 ||
	    (wire->seal != token_of(wire->worker) && wire->seal != frame->sealed))
		return;
	memcpy(out.head, wire, sizeof(*wire));
	out.bytes = sizeof(*wire);
	out.pieces[0] = (struct iovec){out.head, sizeof(*wire)};
	packet_point(&out, frame->at.data, payload - (uint32_t)sizeof(*wire));
	seal_write(&out, &world->channel->stretch, &world->channel->keys[wire->worker],
	           world->channel->base);
	memcpy(wire, out.head, sizeof(*wire));
	memcpy(&frame->at.wire, wire, sizeof(*wire));
	frame->sealed = wire->seal;
}

/*
 * By family, the program once it is loaded, since the kernel takes a quarter of a second to look through
 * it. For a new world the memory that it shares is as it was, and counters begin with counted_before.
 */
static struct loaded {
	struct xdp *xdp;
	struct fast_settings settings;
} loaded[2];
static uint64_t counted_before[FAST_COUNTER_COUNT];

static struct xdp *load(void)
{
	struct xdp_config config = {.families = world_six ? XDP_SIX : XDP_FOUR,
	                            .ip = OUR_IP,
	                            .port = OUR_PORT,
	                            .slot_count = SLOT_COUNT};
	struct loaded *found = &loaded[world_six];
	struct why why;
	int status;

	if (found->xdp != NULL) {
		*xdp_look(found->xdp)->settings = found->settings;
		memset(xdp_look(found->xdp)->slots, 0, SLOT_COUNT * sizeof(struct fast_slot));
		xdp_counters(found->xdp, counted_before);
		return found->xdp;
	}
	if (world_six)
		six_of(htonl(OUR_IP), config.six);
	status = xdp_open(&config, &found->xdp, &why);
	if (status == -EPERM) {
		printf("%s\n", why.text);
		exit(77);
	}
	if (status != 0)
		fail_msg("%s", why.text);
	found->settings = *xdp_look(found->xdp)->settings;
	memset(counted_before, 0, sizeof(counted_before));
	return found->xdp;
}

static void unload(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		xdp_close(loaded[i].xdp);
		loaded[i].xdp = NULL;
	}
}

int set_up(void **state)
{
	struct world *world = malloc(sizeof(*world));
	struct fast_channel *channel;

	world->xdp = load();
	world->index = xdp_channel_open(world->xdp, CHANNEL, WINDOW);
	assert_int_equal(world->index, 0);
	channel = &xdp_look(world->xdp)->channels[world->index];
	channel->worker_count = 3;
	channel->group_token = GROUP_TOKEN;
	channel->multicast = 1;
	channel->group_ip = world_six ? 0 : htonl(GROUP_IP);
	memset(channel->group_six, 0, sizeof(channel->group_six));
	if (world_six)
		six_of(htonl(GROUP_IP), channel->group_six);
	channel->group_port = htons(GROUP_PORT);
	channel->ttl = 3;
	channel->tos = TOS;
	channel->base = FIRST_FRAME;
	channel->planned = FIRST_FRAME + WINDOW;
	channel->credit = FIRST_FRAME + WINDOW - 1;
	channel->call_mask = WINDOW / 4 - 1;
	for (uint32_t i = 0; i < FAST_WORKERS_MAX; i++) {
		channel->tokens[i] = token_of(i);
		channel->home[i] = home_of(i);
		channel->ack[i] = channel->room[i] = FIRST_FRAME;
	}
	channel_seal(channel);
	__atomic_store_n(&channel->active, 1, __ATOMIC_RELEASE);
	world->channel = channel;
	world->slots = xdp_look(world->xdp)->slots + channel->first_slot;
	*state = world;
	return 0;
}

int tear_down(void **state)
{
	struct world *world = *state;

	xdp_known(world->xdp, world->channel->id, false);
	free(world);
	return 0;
}

struct fast_slot *slot_open(const struct world *world, uint32_t frame, uint32_t unit_bytes,
                            uint32_t block_count, const uint64_t owned[FAST_WORKERS_MAX])
{
	struct fast_slot *slot = &world->slots[frame & (WINDOW - 1)];

	slot->state = FAST_CLOSED;
	slot->frame = frame;
	slot->unit_bytes = unit_bytes;
	slot->block_count = (uint16_t)block_count;
	slot->private = 0;
	slot->sent = slot->sequence = 0;
	slot->came = slot->touched = 0;
	slot->arrived = slot->expected = 0;
	memset(slot->data, 0xa5, sizeof(slot->data));
	for (uint32_t i = 0; i < FAST_WORKERS_MAX; i++) {
		slot->owned[i] = owned[i];
		slot->expected = (uint16_t)(slot->expected + (owned[i] != 0));
	}
	__atomic_store_n(&slot->state, FAST_OPEN, __ATOMIC_RELEASE);
	return slot;
}

struct fast_slot *slot_open_dense(const struct world *world, uint32_t frame, uint32_t unit_bytes,
                                  uint32_t block_count, uint32_t workers)
{
	uint64_t owned[FAST_WORKERS_MAX] = {0};

	for (uint32_t i = 0; i < workers; i++)
		owned[i] = block_count == 64 ? UINT64_MAX : (UINT64_C(1) << block_count) - 1;
	return slot_open(world, frame, unit_bytes, block_count, owned);
}

/* ---- packets ---- */

void frame_resize(struct frame *frame, uint32_t payload)
{
	frame->at.ip.tot_len = htons((uint16_t)(28 + payload));
	frame->at.udp.len = htons((uint16_t)(8 + payload));
	frame->length = 42 + payload;
}

void frame_make(struct frame *frame, uint8_t kind, uint32_t worker, const void *data,
                uint32_t data_bytes)
{
	memset(frame, 0, sizeof(*frame));
	memcpy(frame->at.eth.h_dest, "\x02\x11\x22\x33\x44\x55", 6);
	memcpy(frame->at.eth.h_source, "\x02\xaa\xbb\xcc\xdd", 5);
	frame->at.eth.h_source[5] = (uint8_t)worker;
	frame->at.eth.h_proto = htons(ETH_P_IP);
	frame->at.ip.version = 4;
	frame->at.ip.ihl = 5;
	frame->at.ip.ttl = 61;
	frame->at.ip.id = htons(4711);
	frame->at.ip.protocol = 17;
	frame->at.ip.saddr = htonl(WORKER_IP(worker));
	frame->at.ip.daddr = htonl(OUR_IP);
	frame->at.udp.source = htons(WORKER_PORT(worker));
	frame->at.udp.dest = htons(OUR_PORT);
	frame->at.wire = (struct wire_header){
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.kind = kind,
		.channel = CHANNEL,
		.worker = (uint16_t)worker,
		.seal = token_of(worker),
		.edge = FIRST_FRAME,
	};
	if (data_bytes > 0)
		memcpy(frame->at.data, data, data_bytes);
	frame_resize(frame, WIRE_HEADER_BYTES + data_bytes);
}

void push_make(struct frame *frame, uint32_t worker, uint32_t number, const void *data,
               uint32_t data_bytes)
{
	frame_make(frame, WIRE_PUSH, worker, data, data_bytes);
	frame->at.wire.frame = number;
}

uint32_t frame_run(const struct world *world, const struct frame *in, struct frame *out)
{
	struct six_bytes six_in, six_out;
	union bpf_attr attr;

	frame_seal(world, (struct frame *)(uintptr_t)in);
	memset(&attr, 0, sizeof(attr));
	memset(out, 0, sizeof(*out));
	attr.test.prog_fd = (uint32_t)xdp_program(world->xdp);
	attr.test.repeat = 1;
	attr.test.data_in = (uint64_t)(uintptr_t)&in->at;
	attr.test.data_size_in = in->length;
	attr.test.data_out = (uint64_t)(uintptr_t)&out->at;
	attr.test.data_size_out = sizeof(out->at);
	if (world_six) {
		to_six(in, &six_in);
		attr.test.data_in = (uint64_t)(uintptr_t)&six_in;
		attr.test.data_size_in = in->length + (uint32_t)LONGER;
		attr.test.data_out = (uint64_t)(uintptr_t)&six_out;
		attr.test.data_size_out = sizeof(six_out);
		memset(&six_out, 0, sizeof(six_out));
	}
	if (syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof(attr)) != 0) {
		printf("this kernel has no test runs of XDP programs: %s\n", strerror(errno));
		exit(errno == ENOTSUP || errno == 524 ? 77 : 1);
	}
	out->length = attr.test.data_size_out;
	if (world_six_edit.at != 0) /* what is not ours leaves as it came */
		assert_memory_equal(&six_in, &six_out, attr.test.data_size_out);
	else if (world_six)
		from_six(in, &six_in, &six_out, attr.test.data_size_out, out);
	return attr.test.retval;
}

void assert_unchanged(const struct frame *in, const struct frame *out)
{
	assert_int_equal(in->length, out->length);
	assert_memory_equal(&in->at, &out->at, in->length);
}

void expect(const struct world *world, const struct frame *in, uint32_t verdict)
{
	struct frame out;

	assert_int_equal(frame_run(world, in, &out), verdict);
	if (verdict != XDP_TX)
		assert_unchanged(in, &out);
}

/* ---- what was sent ---- */

static void check_ip(const struct frame *out)
{
	struct iphdr ip = out->at.ip;

	assert_int_equal(out->at.eth.h_proto, htons(ETH_P_IP));
	assert_memory_equal(out->at.eth.h_source, "\x02\x11\x22\x33\x44\x55", 6);
	assert_int_equal(ip.version, 4);
	assert_int_equal(ip.ihl, 5);
	assert_int_equal(ip.tos, TOS);
	assert_int_equal(ntohs(ip.tot_len), out->length - 14);
	assert_int_equal(ntohs(ip.frag_off), 0x4000);
	assert_int_equal(ip.ttl, 3);
	assert_int_equal(ip.protocol, 17);
	assert_int_equal(ntohl(ip.saddr), OUR_IP);
	assert_int_equal(ntohl(ip.daddr), GROUP_IP);
	assert_int_equal(words_fold(words_sum(&ip, sizeof(ip))), 0xffff);
}

static void check_udp(const struct frame *out)
{
	uint32_t bytes = out->length - 34;
	uint32_t sum = 17 + bytes;
	uint8_t copy[sizeof(struct bytes)], addresses[32];

	memcpy(copy, (const uint8_t *)&out->at + 34, bytes);
	six_of(out->at.ip.saddr, addresses);
	six_of(out->at.ip.daddr, addresses + 16);
	sum += world_six ? words_sum(addresses, 32) : words_sum(&out->at.ip.saddr, 8);
	sum += words_sum(copy, bytes);
	assert_int_equal(words_fold(sum), 0xffff);
	assert_int_not_equal(out->at.udp.check, 0);
	assert_int_equal(ntohs(out->at.udp.len), bytes);
	assert_int_equal(ntohs(out->at.udp.source), OUR_PORT);
	assert_int_equal(ntohs(out->at.udp.dest), GROUP_PORT);
}

void check_answer(const struct world *world, const struct frame *out, struct packet *packet)
{
	assert_memory_equal(out->at.eth.h_dest, "\x01\x00\x5e\x41\x62\x07", 6);
	check_ip(out);
	check_udp(out);
	assert_int_equal(packet_parse(&out->at.wire, out->length - 42, true, packet), 0);
	assert_int_equal(packet->channel, CHANNEL);
	assert_int_equal(packet->worker, WIRE_EVERYONE);
	if (world->channel->sealed)
		assert_true(seal_right(&out->at.wire, out->length - 42, &world->channel->stretch,
		                       &world->channel->keys[FAST_KEY_GROUP],
		                       world->channel->base));
	else
		assert_int_equal(packet->token, GROUP_TOKEN);
	assert_int_equal(packet->edge, (uint32_t)world->channel->base);
	assert_int_equal(packet->edge + packet->window, world->channel->told_credit);
	if (world->channel->credit - packet->edge <= WINDOW)
		assert_int_equal(world->channel->told_credit, world->channel->credit);
	else
		assert_int_equal(packet->window, WINDOW);
	assert_int_equal(packet->sequence, (uint16_t)world->channel->sequence);
	assert_int_equal(packet->planned, world->channel->planned);
}

uint64_t counted(const struct world *world, uint32_t counter)
{
	uint64_t counters[FAST_COUNTER_COUNT];

	xdp_counters(world->xdp, counters);
	return counters[counter] - counted_before[counter];
}

uint64_t stat_of(const struct world *world, enum fast_stat which)
{
	return __atomic_load_n(&world->channel->stats[which], __ATOMIC_RELAXED);
}

void expect_drop(const struct world *world, const struct frame *frame, enum wire_drop reason)
{
	uint64_t before[FAST_COUNTER_COUNT], after[FAST_COUNTER_COUNT];

	xdp_counters(world->xdp, before);
	expect(world, frame, XDP_DROP);
	xdp_counters(world->xdp, after);
	before[reason]++;
	assert_memory_equal(before, after, sizeof(before));
}

void expect_pass_as(const struct world *world, const struct frame *frame, enum fast_counter why)
{
	uint64_t before[FAST_COUNTER_COUNT], after[FAST_COUNTER_COUNT];

	xdp_counters(world->xdp, before);
	expect(world, frame, XDP_PASS);
	xdp_counters(world->xdp, after);
	before[FAST_COUNT_PASSED]++;
	before[why] += why != FAST_COUNT_PASSED;
	assert_memory_equal(before, after, sizeof(before));
}

void expect_pass(const struct world *world, const struct frame *frame)
{
	expect_pass_as(world, frame, FAST_COUNT_PASSED);
}

int tear_all_down(void **state)
{
	tear_down(state);
	unload();
	return 0;
}

int world_run(int kinds)
{
	int failed = 0;

	for (int kind = 0; kind < kinds; kind++) {
		world_sealed = kind == 1 || kind == 2;
		world_six = kind >= 2;
		failed += unit_run(NULL, NULL);
	}
	return failed != 0;
}
