// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * mark.bpf.c - what a switch does that marks, and what passes it, counted; for tc's egress and ingress
 *
 * winnow_mark marks (ECN's CE) what may be marked: a share of it, or what a queue of a given rate would have
 * made wait behind more than mark_bytes. This queue is only counted: the true one stands behind the program. It
 * also reads what STATUSes to workers say of marks. winnow_count adds up bytes by time, and RESULTs, of the first jobs of an aggregator with one thread, and of TCP.
 *
 * winnow_forget is for where TCP enters the switch: a socket counts what it has in its own host's queues, and here also
 * what waits in the switch's. So it lets in a copy, which belongs to no socket.
 */

#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "ebpf/wire.h"

#define FLOWS 8
#define FLOW_TCP 7
#define FLOW_OTHER 6
#define BIN_NS 2000000
#define BINS 16384 /* 32 s */
#define SEGMENTS_MAX 64
#define CE 3
#define COPY 1 /* skb->mark */

/* Of a datagram: its protocol, its ECN field, and where what UDP carries begins. */
struct view {
	__u32 protocol, ecn, head_bytes;
};

struct mark_rules {
	__u64 of_1024;
	__u64 rate_bytes_s, mark_bytes; /* 0: marks by share alone */
};

enum { COUNT_PLAIN, COUNT_ECT, COUNT_CE, COUNT_MARKED, COUNT_TOLD, COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mark_rules);
} rules SEC(".maps");

/* Datagrams by UDP, by their ECN field as they came, those that we have marked, and the most that a worker was told of. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS *BINS);
	__type(key, __u32);
	__type(value, __u64);
} bins SEC(".maps");

/* By flow: all RESULTs, and those to one worker. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS * 2);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

static __u64 first_ns, full_bytes, full_ns;

static void add(void *map, __u32 key, __u64 number)
{
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value != NULL)
		__sync_fetch_and_add(value, number);
}

static __u64 segments_of(const struct __sk_buff *skb)
{
	return skb->gso_segs > 1 ? skb->gso_segs : 1;
}

/* False: neither UDP nor TCP. */
static int look(struct __sk_buff *skb, struct view *out)
{
	struct iphdr four;
	struct ipv6hdr six;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &four, sizeof(four)) != 0)
			return 0;
		out->protocol = four.protocol;
		out->ecn = four.tos & CE;
		out->head_bytes = sizeof(struct ethhdr) + sizeof(four) + sizeof(struct udphdr);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &six, sizeof(six)) != 0)
			return 0;
		out->protocol = six.nexthdr;
		out->ecn = six.flow_lbl[0] >> 4 & CE;
		out->head_bytes = sizeof(struct ethhdr) + sizeof(six) + sizeof(struct udphdr);
	} else {
		return 0;
	}
	return out->protocol == IPPROTO_UDP || out->protocol == IPPROTO_TCP;
}

/* On the wire, where each segment has headers. */
static __u64 bytes_of(const struct __sk_buff *skb, const struct view *view)
{
	return skb->len + (segments_of(skb) - 1) * view->head_bytes;
}

/* Does the queue, as it would be, hold too much? */
static int waits(const struct mark_rules *rule, __u64 bytes)
{
	__u64 now_ns = bpf_ktime_get_ns(), drained;

	if (rule->mark_bytes == 0)
		return 0;
	drained = (now_ns - full_ns) / 1000 * rule->rate_bytes_s / 1000000;
	full_bytes = full_bytes > drained ? full_bytes - drained : 0;
	full_ns = now_ns;
	full_bytes += bytes;
	return full_bytes > rule->mark_bytes;
}

/* What do STATUSes to a worker say of its marks? */
static void told_note(struct __sk_buff *skb, const struct view *view)
{
	__u64 segments = segments_of(skb), *told;
	struct {
		struct wire_header head;
		struct wire_status status;
	} packet;
	__u32 key = COUNT_TOLD;

	told = bpf_map_lookup_elem(&counts, &key);
	for (__u32 i = 0; told != NULL && i < SEGMENTS_MAX && i < segments; i++)
		if (bpf_skb_load_bytes(skb, view->head_bytes + i * skb->gso_size, &packet,
		                       sizeof(packet)) == 0 &&
		    packet.head.magic == WIRE_MAGIC && packet.head.kind == WIRE_STATUS_BACK &&
		    packet.status.marked > *told)
			*told = packet.status.marked;
}

SEC("tc")
int winnow_mark(struct __sk_buff *skb)
{
	struct mark_rules *rule;
	struct view view = {0};
	__u32 zero = 0;
	int wait;

	rule = bpf_map_lookup_elem(&rules, &zero);
	if (rule == NULL || !look(skb, &view))
		return TC_ACT_OK;
	wait = waits(rule, bytes_of(skb, &view));
	if (view.protocol == IPPROTO_UDP) {
		add(&counts,
		    view.ecn == CE  ? COUNT_CE
		    : view.ecn != 0 ? COUNT_ECT
		                    : COUNT_PLAIN,
		    segments_of(skb));
		told_note(skb, &view);
	}
	if (!wait && bpf_get_prandom_u32() % 1024 >= rule->of_1024)
		return TC_ACT_OK;
	/* Headers may be shared with copies, or lie in a packet socket's memory: then nothing would be marked. */
	if (bpf_skb_pull_data(skb, view.head_bytes) != 0)
		return TC_ACT_OK;
	if (view.ecn != CE && bpf_skb_ecn_set_ce(skb) > 0 && view.protocol == IPPROTO_UDP)
		add(&counts, COUNT_MARKED, segments_of(skb));
	return TC_ACT_OK;
}

/* An aggregator with one thread numbers its jobs' channels from 0. */
static __u32 flow_of(struct __sk_buff *skb, const struct view *view)
{
	struct wire_header head;

	if (view->protocol == IPPROTO_TCP)
		return FLOW_TCP;
	if (bpf_skb_load_bytes(skb, view->head_bytes, &head, sizeof(head)) != 0 ||
	    head.magic != WIRE_MAGIC || head.channel >= FLOW_OTHER)
		return FLOW_OTHER;
	return head.channel;
}

static void results_count(struct __sk_buff *skb, const struct view *view, __u32 flow)
{
	__u64 segments = segments_of(skb);
	struct wire_header head;

	for (__u32 i = 0; i < SEGMENTS_MAX && i < segments; i++) {
		if (bpf_skb_load_bytes(skb, view->head_bytes + i * skb->gso_size, &head,
		                       sizeof(head)) != 0 ||
		    head.kind != WIRE_RESULT)
			continue;
		add(&results, flow * 2, 1);
		if (head.worker != WIRE_EVERYONE)
			add(&results, flow * 2 + 1, 1);
	}
}

SEC("tc")
int winnow_count(struct __sk_buff *skb)
{
	__u64 now_ns = bpf_ktime_get_ns(), bin;
	struct view view = {0};
	__u32 flow;

	if (!look(skb, &view))
		return TC_ACT_OK;
	flow = flow_of(skb, &view);
	if (first_ns == 0)
		first_ns = now_ns;
	bin = (now_ns - first_ns) / BIN_NS;
	if (bin < BINS)
		add(&bins, flow * BINS + (__u32)bin, bytes_of(skb, &view));
	if (flow < FLOW_OTHER)
		results_count(skb, &view, flow);
	return TC_ACT_OK;
}

SEC("tc")
int winnow_forget(struct __sk_buff *skb)
{
	struct view view = {0};

	if (skb->mark == COPY || !look(skb, &view) || view.protocol != IPPROTO_TCP)
		return TC_ACT_OK;
	skb->mark = COPY;
	return bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS) == 0 ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
