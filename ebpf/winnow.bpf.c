// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * winnow.bpf.c - adds frames up where they arrive, before the network stack sees them
 *
 * It is an accelerator beneath winnowd's UDP socket: it passes up unchanged what it does not
 * finish, and winnowd does the same work on the same slots. fastpath.h is the contract, and this
 * program behaves like aggregator/channel/channel_slot.c. It opens no slot, decides nothing, and
 * can only turn the current packet into an answer.
 *
 * It does not check the UDP checksum: on a virtual link it may not have been computed yet, and on a
 * wire Ethernet has its own. A datagram longer than its PUSH may be several that an offload has
 * merged, so it is passed up and taken apart there.
 */

#include "ebpf/answer.bpf.h"

/* An array that user space also maps into its memory. */
#define SHARED(name, type_of_values, entries)                                                      \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(map_flags, BPF_F_MMAPABLE);                                                 \
		__uint(max_entries, entries);                                                      \
		__type(key, __u32);                                                                \
		__type(value, type_of_values);                                                     \
	} name SEC(".maps")

SHARED(settings, struct fast_settings, 1);
SHARED(channels, struct fast_channel, FAST_CHANNELS_MAX);
SHARED(slots, struct fast_slot, 1); /* the loader sets the number */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FAST_COUNTER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* A PUSH from a worker whose seal or token is right. */
struct inbound {
	__u32 worker; /* below FAST_WORKERS_MAX */
	__u32 frame;
	__u32 ack;
	__u16 window;
	__u32 body_bytes; /* bytes after the header */
	int marked;       /* ECN: a queue on its way was long */
	int six;          /* by IPv6; a constant wherever it is used */
};

#define ECN_CE 3

#define load_now(field) (*(volatile typeof(field) *)&(field))
#define store_now(field, value) (*(volatile typeof(field) *)&(field) = (value))

static __always_inline int verdict_count(__u32 counter, int verdict)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		(*value)++;
	return verdict;
}

static __always_inline void stat_add(struct fast_channel *channel, enum fast_stat which, __u64 more)
{
	__sync_fetch_and_add(&channel->stats[which], more);
}

/*
 * If none of this worker's PUSHes came here since, the known number may be 2^31 frames old and look
 * like a future one. So the number closest behind `most`, which none can pass, is the latest.
 */
static __always_inline void later_note(__u32 *place, __u32 news, __u32 most)
{
	__u32 known = load_now(*place);

	for (int i = 0; i < 4 && most - news < most - known; i++) {
		__u32 found = __sync_val_compare_and_swap(place, known, news);

		if (found == known)
			return;
		known = found;
	}
}

/* Notes ack and window for user space. 8.3: "An ack or pushed after planned is ignored" */
static __always_inline void ack_note(struct fast_channel *channel, const struct inbound *in)
{
	__u32 most = channel->window_mask + 1, planned = load_now(channel->planned);
	__u32 window = in->window - 1u < most ? in->window : most;

	later_note(&channel->ack[in->worker], in->ack, planned);
	later_note(&channel->room[in->worker], in->ack + window, planned + most);
}

/* Now and then a PUSH goes up after it is added, so that user space looks at all acks and windows. */
static __always_inline int is_call(const struct fast_channel *channel, __u32 frame)
{
	return (~frame & load_now(channel->call_mask)) == 0;
}

/* ---- slots ---- */

/* A separate function, so that the verifier walks through the tries only once. */
__noinline int slot_wait(struct fast_slot *slot)
{
	if (!slot)
		return 0;
	for (int i = 0; i < FAST_LOCK_TRIES; i++)
		if (load_now(slot->lock) == 0 && __sync_lock_test_and_set(&slot->lock, 1) == 0)
			return 1;
	return 0;
}

static __always_inline int slot_lock(struct fast_slot *slot)
{
	return __sync_lock_test_and_set(&slot->lock, 1) == 0 || slot_wait(slot);
}

static __always_inline void slot_unlock(struct fast_slot *slot)
{
	order_keep();
	store_now(slot->lock, 0);
}

static __always_inline struct fast_slot *slot_of(const struct fast_channel *channel, __u32 frame)
{
	__u32 place = channel->first_slot + (frame & channel->window_mask);

	return bpf_map_lookup_elem(&slots, &place);
}

/* ---- PUSH ---- */

/*
 * add_runs - adds runs of blocks that are all touched or all untouched. A separate function for the
 * same reason as those in fold.bpf.h.
 */
__noinline __u64 add_runs(struct xdp_md *ctx, struct fast_slot *slot, __u64 mask, __u32 packet_at)
{
	__u32 unit;
	__u64 touched;

	if (!slot)
		return 0;
	unit = slot->unit_bytes;
	touched = slot->touched;
	for (int i = 0; i < FAST_BLOCKS_MAX && mask; i++) {
		__u64 lowest = mask & -mask;
		int again = (touched & lowest) != 0;
		__u64 alike = again ? mask & touched : mask & ~touched;
		__u64 run = alike & ~(alike + lowest); /* the ones from the lowest on */
		__u32 slot_at = (__u32)__builtin_popcountll(lowest - 1) * unit;
		__u32 bytes = (__u32)__builtin_popcountll(run) * unit;

		if (again)
			fold_add(ctx, slot, packet_at, slot_at, bytes);
		else
			fold_copy(ctx, slot, packet_at, slot_at, bytes);
		packet_at += bytes;
		mask &= ~run;
	}
	return 0;
}

/* The usual case comes first: blocks from the first on, all touched or all untouched. */
static __always_inline void block_sums_add(struct xdp_md *ctx, struct fast_slot *slot,
                                           const struct inbound *in)
{
	__u64 mask = slot->owned[in->worker], touched = slot->touched & mask;
	int whole = (mask & (mask + 1)) == 0 && (touched == 0 || touched == mask);
	__u32 at = HEADERS_BYTES(in->six);

	if (whole && touched)
		fold_add(ctx, slot, at, 0, in->body_bytes);
	else if (whole)
		fold_copy(ctx, slot, at, 0, in->body_bytes);
	else
		add_runs(ctx, slot, mask, at);
	slot->touched |= mask;
	slot->came |= 1ULL << in->worker;
	slot->arrived++;
}

/* Sends the RESULT. The slot is done and locked, and the packet has the RESULT's size and data. */
static __always_inline int send_result(struct xdp_md *ctx, struct fast_channel *channel,
                                       struct fast_slot *slot, struct answer *answer, int six)
{
	__u32 sequence = __sync_fetch_and_add(&channel->sequence, 1) + 1;

	answer->sequence = (__u16)sequence;
	store_now(slot->sequence, sequence & 0xffff);
	order_keep();
	store_now(slot->sent, 1);
	return answer_write(ctx, channel, answer, six);
}

/* Tells whether we may send to the group and the packet is of its family. */
static __always_inline int group_ours(const struct fast_channel *channel, int six)
{
	return channel->multicast && (six ? channel->group_six[0] != 0 : channel->group_ip != 0);
}

/* Completes a frame, under the lock. `quiet` means that user space need not see the PUSH. */
static __always_inline int push_last(struct xdp_md *ctx, struct fast_channel *channel,
                                     struct fast_slot *slot, const struct inbound *in, int quiet)
{
	struct answer answer = {.frame = in->frame};

	answer.data_bytes = slot->block_count * slot->unit_bytes;
	stat_add(channel, FAST_STAT_RESULTS, 1);
	if (slot->expected == 1)
		stat_add(channel, FAST_STAT_SINGLE, 1);
	block_sums_add(ctx, slot, in);
	order_keep();
	store_now(slot->state, FAST_DONE);
	if (!quiet)
		return XDP_PASS;
	if (answer.data_bytes > FAST_DATA_BYTES || !answer_size(ctx, answer.data_bytes, in->six)) {
		verdict_count(FAST_COUNT_NO_ROOM, 0);
		return XDP_PASS;
	}
	answer.sum = fold_emit(ctx, slot, HEADERS_BYTES(in->six), answer.data_bytes);
	return send_result(ctx, channel, slot, &answer, in->six);
}

/* Checks a PUSH against this slot. _FRAME leaves the decision to user space. */
static __always_inline enum wire_drop push_check(const struct fast_slot *slot,
                                                 const struct inbound *in)
{
	__u32 bytes = (__u32)__builtin_popcountll(slot->owned[in->worker]) * slot->unit_bytes;

	if (load_now(slot->frame) != in->frame || load_now(slot->state) == FAST_CLOSED)
		return WIRE_DROP_FRAME;
	if (in->body_bytes > bytes) {
		verdict_count(FAST_COUNT_MERGED, 0);
		return WIRE_DROP_FRAME;
	}
	return bytes != 0 && in->body_bytes == bytes ? WIRE_DROP_NONE : WIRE_DROP_LENGTH;
}

static __always_inline int push_add(struct xdp_md *ctx, struct fast_channel *channel,
                                    const struct inbound *in)
{
	struct fast_slot *slot = slot_of(channel, in->frame);
	enum wire_drop wrong;
	int call = is_call(channel, in->frame), verdict = call ? XDP_PASS : XDP_DROP;

	if (!slot || !slot_lock(slot))
		return slot ? verdict_count(FAST_COUNT_BUSY, XDP_PASS) : XDP_PASS;
	wrong = push_check(slot, in);
	if (wrong != WIRE_DROP_NONE) {
		slot_unlock(slot);
		return wrong == WIRE_DROP_FRAME ? XDP_PASS : verdict_count(wrong, XDP_DROP);
	}
	ack_note(channel, in);
	if (slot->came >> in->worker & 1) {
		slot_unlock(slot);
		stat_add(channel, FAST_STAT_DUPLICATES, 1);
		return verdict_count(WIRE_DROP_DUPLICATE, verdict);
	}
	if (slot->arrived + 1 == slot->expected)
		verdict = push_last(ctx, channel, slot, in,
		                    group_ours(channel, in->six) && !slot->private && !call);
	else
		block_sums_add(ctx, slot, in);
	slot_unlock(slot);
	stat_add(channel, FAST_STAT_PUSHES, 1);
	return verdict_count(FAST_COUNT_ADDED, verdict);
}

/* Congestion marks on packets that user space does not see are counted here. */
static __always_inline int push_take(struct xdp_md *ctx, struct fast_channel *channel,
                                     const struct inbound *in)
{
	int verdict = push_add(ctx, channel, in);

	if (in->marked && verdict != XDP_PASS)
		__sync_fetch_and_add(&channel->marked[in->worker], 1);
	return verdict;
}

/* ---- arrivals ---- */

/* Tells whether the packet carries its worker's token or a right seal. */
static __always_inline int seal_vouches(struct xdp_md *ctx, struct fast_channel *channel,
                                        const struct wire_header *wire, __u32 worker, int six)
{
	__u64 seal = wire->seal, made;
	__u32 high = 0;

	if (!channel->sealed)
		return worker < FAST_WORKERS_MAX && seal == channel->tokens[worker];
	if (wire->kind != WIRE_KNOCK)
		high = (__u32)(seal_extend(load_now(channel->base), wire->edge) >> 32);
	made = seal_packet(ctx, channel, worker, high, six);
	return made != 0 && seal == made;
}

/* This worker is on our side before the job starts, so packets to the group can reach it. */
static __always_inline void knock_note(struct xdp_md *ctx, struct fast_channel *channel,
                                       const struct wire_header *wire, int six)
{
	__u32 worker = wire->worker;

	if (worker < FAST_WORKERS_MAX && worker < channel->worker_count &&
	    seal_vouches(ctx, channel, wire, worker, six))
		__sync_fetch_and_or(&channel->knocked, 1ULL << worker);
}

/* Tells whether the datagram comes from this address. */
static __always_inline int is_home(const struct fast_home *home, const struct wire_header *wire,
                                   int six)
{
	const struct udphdr *udp = (const void *)wire - sizeof(*udp);
	const struct iphdr *ip = (const void *)udp - sizeof(*ip);
	const struct ipv6hdr *ip6 = (const void *)udp - sizeof(*ip6);
	const __u64 *from = (const __u64 *)&ip6->saddr;

	if (udp->source != load_now(home->port))
		return 0;
	return six ? from[0] == load_now(home->six[0]) && from[1] == load_now(home->six[1])
	           : ip->saddr == load_now(home->four);
}

/* The ECN field is bits 0 and 1 of the second byte in IPv4, and bits 4 and 5 of it in IPv6. */
static __always_inline int is_marked(const struct wire_header *wire, int six)
{
	__u32 before_wire = HEADERS_BYTES(six) - WIRE_HEADER_BYTES - sizeof(struct ethhdr);
	const __u8 *ip = (const void *)wire - before_wire;
	__u8 field = six ? ECN_CE << 4 : ECN_CE;

	return (ip[1] & field) == field;
}

static __always_inline int wire_receive(struct xdp_md *ctx, struct fast_channel *channel,
                                        const struct wire_header *wire, __u32 payload_bytes,
                                        int six)
{
	struct inbound in = {.worker = wire->worker,
	                     .frame = wire->frame,
	                     .ack = wire->edge,
	                     .window = wire->window,
	                     .body_bytes = payload_bytes - WIRE_HEADER_BYTES,
	                     .marked = is_marked(wire, six),
	                     .six = six};
	__u8 kind = wire->kind;
	int verdict;

	if (in.worker >= channel->worker_count || in.worker >= FAST_WORKERS_MAX)
		verdict = verdict_count(WIRE_DROP_WORKER, XDP_DROP);
	else if (!channel->sealed && wire->seal != channel->tokens[in.worker])
		verdict = verdict_count(WIRE_DROP_SEAL, XDP_DROP);
	else if (kind == WIRE_KNOCK)
		verdict = XDP_PASS; /* user space decides whether the worker may have moved */
	else if (!is_home(&channel->home[in.worker], wire, six))
		verdict = verdict_count(WIRE_DROP_ADDRESS, XDP_DROP);
	else if (kind != WIRE_PUSH)
		verdict = XDP_PASS;
	else if (channel->sealed && !seal_vouches(ctx, channel, wire, in.worker, six))
		verdict = XDP_PASS; /* forged, or several datagrams that an offload has merged */
	else
		verdict = push_take(ctx, channel, &in);
	if (verdict != XDP_PASS) {
		stat_add(channel, FAST_STAT_RECEIVED, 1);
		stat_add(channel, FAST_STAT_RECEIVED_BYTES, payload_bytes);
	}
	return verdict;
}

/* Takes a datagram to our port. Makes the same checks as packet_parse(). */
static __always_inline int xdp_datagram_take(struct xdp_md *ctx, const struct fast_settings *fast,
                                             const struct wire_header *wire, __u32 payload_bytes,
                                             int six)
{
	struct fast_channel *channel;
	__u32 known;
	int verdict;

	if (payload_bytes < sizeof(*wire) || (void *)(wire + 1) > (void *)(long)ctx->data_end)
		return verdict_count(WIRE_DROP_SHORT, XDP_DROP);
	if (wire->magic != WIRE_MAGIC)
		return verdict_count(WIRE_DROP_MAGIC, XDP_DROP);
	if (wire->version != WIRE_VERSION)
		return verdict_count(WIRE_DROP_VERSION, XDP_DROP);
	if (wire->kind < WIRE_ANNOUNCE || wire->kind > WIRE_KNOCK)
		return verdict_count(WIRE_DROP_KIND, XDP_DROP);
	known = load_now(fast->known[wire->channel]);
	if (known == 0)
		return verdict_count(WIRE_DROP_CHANNEL, XDP_DROP);
	known -= FAST_KNOWN_FIRST; /* no such index if user space serves the channel */
	channel = bpf_map_lookup_elem(&channels, &known);
	if (!channel || !load_now(channel->active)) {
		if (channel && wire->kind == WIRE_KNOCK)
			knock_note(ctx, channel, wire, six);
		return verdict_count(FAST_COUNT_PASSED, XDP_PASS);
	}
	order_keep(); /* user space fills the channel in before it sets `active` */
	verdict = wire_receive(ctx, channel, wire, payload_bytes, six);
	return verdict == XDP_PASS ? verdict_count(FAST_COUNT_PASSED, XDP_PASS) : verdict;
}

static __always_inline int is_ours(const struct fast_settings *fast, const __u64 *to)
{
	int ours = 0;

#pragma unroll
	for (int i = 0; i < FAST_ADDRESSES_MAX; i++)
		ours |= to[0] == fast->six[i][0] && to[1] == fast->six[i][1];
	return ours && (to[0] | to[1]) != 0;
}

/* Tells whether the packet is one whole UDP datagram of `bytes` bytes to us. */
static __always_inline int four_ours(const struct fast_settings *fast, const struct ethhdr *eth,
                                     __u32 bytes)
{
	const struct iphdr *ip = (const void *)(eth + 1);

	return eth->h_proto == bpf_htons(ETH_P_IP) && *(const __u8 *)ip == ANSWER_IHL &&
	       ip->protocol == IPPROTO_UDP && (ip->frag_off & bpf_htons(0x3fff)) == 0 &&
	       bpf_ntohs(ip->tot_len) == bytes + sizeof(*ip) &&
	       (fast->ip == 0 || ip->daddr == fast->ip);
}

/* The same by IPv6. Packets with extension headers are passed up. */
static __always_inline int six_ours(const struct fast_settings *fast, const struct ethhdr *eth,
                                    __u32 bytes)
{
	const struct ipv6hdr *ip = (const void *)(eth + 1);
	const struct udphdr *udp = (const void *)(ip + 1);

	return eth->h_proto == bpf_htons(ETH_P_IPV6) && *(const __u8 *)ip >> 4 == 6 &&
	       ip->nexthdr == IPPROTO_UDP && udp->check != 0 &&
	       bpf_ntohs(ip->payload_len) == bytes && is_ours(fast, (const __u64 *)&ip->daddr);
}

/*
 * Takes UDP datagrams to us and leaves the machine's other traffic alone. Answers leave from the
 * address that the datagram was sent to, so it must be a single host's.
 */
static __always_inline int packet_take(struct xdp_md *ctx, int six)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct udphdr *udp = (void *)eth + UDP_AT(six);
	const struct fast_settings *fast;
	__u32 key = 0, bytes;

	fast = bpf_map_lookup_elem(&settings, &key);
	if (!fast || (void *)(udp + 1) > end || udp->dest != fast->port || (eth->h_dest[0] & 1))
		return XDP_PASS;
	bytes = bpf_ntohs(udp->len);
	if (bytes < sizeof(*udp) || ctx->data_end - ctx->data < UDP_AT(six) + bytes ||
	    !(six ? six_ours(fast, eth, bytes) : four_ours(fast, eth, bytes)))
		return XDP_PASS;
	return xdp_datagram_take(ctx, fast, (void *)(udp + 1), bytes - sizeof(*udp), six);
}

/* A separate program, because the verifier counts paths for each program; IPv4's path stays short. */
SEC("xdp")
int winnow_six(struct xdp_md *ctx)
{
	return packet_take(ctx, 1);
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} families SEC(".maps") = {.values = {(void *)&winnow_six}};

static __always_inline int any_packet_take(struct xdp_md *ctx)
{
	const struct ethhdr *eth = (void *)(long)ctx->data;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (eth->h_proto != bpf_htons(ETH_P_IPV6))
		return packet_take(ctx, 0);
	bpf_tail_call(ctx, &families, 0);
	return XDP_PASS;
}

SEC("xdp")
int winnow(struct xdp_md *ctx)
{
	return any_packet_take(ctx);
}

char program_license[] SEC("license") = "Dual BSD/GPL";
