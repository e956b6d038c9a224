// SPDX-License-Identifier: BSD-3-Clause
/* frame.c - see frame.h: checksums and parsing */

#include "aggregator/dpdk/frame_state.h"

#define VLAN_BYTES 4
#define VLAN_ID 0x0fff
#define IP_FRAGMENT (IP_MF | IP_OFFMASK)
#define EXTENSIONS_MAX 8 /* headers between IPv6 and its content */
#define EXTENSION_UNIT 8 /* bytes in which lengths of headers and options count */

_Static_assert(FRAME_ETHER_BYTES == sizeof(struct ether_header), "the length of Ethernet's header");

static uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

/* Writes only what differs, over zeros or another IPv4 address, which costs less than a copy. */
static void ip_of_four(struct net_ip *out, const void *at)
{
	memset(out->bytes + 10, 0xff, 2);
	memcpy(out->bytes + 12, at, sizeof(struct in_addr));
}

static struct net_ip ip_of_six(const void *at)
{
	struct net_ip ip = {.scope = 0};

	memcpy(ip.bytes, at, sizeof(ip.bytes));
	return ip;
}

/* ---- checksums ---- */

uint64_t frame_sum_any(const void *data, size_t size)
{
	return sum_loop(data, size);
}

#ifdef __x86_64__

/* The compiler handles eight words at a time. */
__attribute__((target("avx2"))) static uint64_t sum_avx2(const uint8_t *data, size_t size)
{
	return sum_loop(data, size);
}

uint64_t frame_sum(const void *data, size_t size)
{
	return __builtin_cpu_supports("avx2") ? sum_avx2(data, size) : frame_sum_any(data, size);
}

#else

uint64_t frame_sum(const void *data, size_t size)
{
	return frame_sum_any(data, size);
}

#endif

uint16_t frame_fold(uint64_t sum)
{
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* The stored sum makes the total 0xffff, or it is only the pseudo-header's. */
static bool udp_sum_right(const uint8_t *udp, uint16_t stored, uint32_t bytes,
                          const struct frame *frame)
{
	uint64_t pseudo = pseudo_sum(&frame->from_ip, &frame->to_ip, IPPROTO_UDP, bytes);

	return (stored == 0 && net_ip_is_v4(&frame->to_ip)) ||
	       frame_fold(pseudo + frame_sum(udp, bytes)) == 0xffff || stored == frame_fold(pseudo);
}

/* ---- parsing ---- */

/* The content of an IP packet: `said` bytes, of which `size` have come; padding may follow. */
struct carried {
	const uint8_t *at;
	size_t size;
	uint32_t said;
	uint8_t protocol, hops;
	bool piece; /* a fragment */
	unsigned checked;
};

static enum frame_kind parse_arp(const uint8_t *bytes, size_t size, struct frame *out)
{
	struct ether_arp arp;
	uint16_t operation;

	if (size < sizeof(arp))
		return FRAME_DAMAGED;
	memcpy(&arp, bytes, sizeof(arp));
	operation = ntohs(arp.ea_hdr.ar_op);
	if (ntohs(arp.ea_hdr.ar_hrd) != ARPHRD_ETHER || ntohs(arp.ea_hdr.ar_pro) != ETHERTYPE_IP ||
	    arp.ea_hdr.ar_hln != sizeof(arp.arp_sha) || arp.ea_hdr.ar_pln != sizeof(arp.arp_spa) ||
	    (operation != ARPOP_REQUEST && operation != ARPOP_REPLY))
		return FRAME_OTHER;
	out->asks = operation == ARPOP_REQUEST;
	out->mac = bytes + offsetof(struct ether_arp, arp_sha);
	ip_of_four(&out->from_ip, arp.arp_spa);
	ip_of_four(&out->to_ip, arp.arp_tpa);
	return FRAME_NEIGHBOUR;
}

/*
 * A header with a length beyond the bytes that have come belongs to several datagrams that were
 * merged, for example by a sender's kernel.
 */
static enum frame_kind parse_udp(const struct carried *in, struct frame *out)
{
	struct udphdr udp;
	uint32_t bytes;

	if (in->size < sizeof(udp) || in->said < sizeof(udp))
		return FRAME_DAMAGED;
	memcpy(&udp, in->at, sizeof(udp));
	bytes = ntohs(udp.uh_ulen);
	out->from_port = ntohs(udp.uh_sport);
	out->to_port = ntohs(udp.uh_dport);
	if (in->said > in->size)
		return bytes == in->said ? FRAME_CUT : FRAME_DAMAGED;
	if (bytes < sizeof(udp) || bytes > in->said)
		return FRAME_DAMAGED;
	if (!(in->checked & FRAME_UDP_CHECKED) && !udp_sum_right(in->at, udp.uh_sum, bytes, out))
		return FRAME_DAMAGED;
	out->payload = in->at + sizeof(udp);
	out->payload_bytes = bytes - (uint32_t)sizeof(udp);
	return FRAME_UDP;
}

static enum frame_kind parse_igmp(const struct carried *in, struct frame *out)
{
	struct igmp igmp;

	if (in->said < sizeof(igmp))
		return FRAME_OTHER;
	memcpy(&igmp, in->at, sizeof(igmp));
	ip_of_four(&out->to_ip, &igmp.igmp_group);
	return igmp.igmp_type == IGMP_MEMBERSHIP_QUERY ? FRAME_QUERY : FRAME_OTHER;
}

/* Finds the MAC address among the options of a neighbour's message. False: they do not fit in. */
static bool parse_options(const uint8_t *at, size_t size, uint8_t wanted, const uint8_t **mac)
{
	struct nd_opt_hdr option;

	for (size_t bytes; size > 0; at += bytes, size -= bytes) {
		if (size < sizeof(option))
			return false;
		memcpy(&option, at, sizeof(option));
		bytes = (size_t)option.nd_opt_len * EXTENSION_UNIT;
		if (bytes == 0 || bytes > size)
			return false;
		if (option.nd_opt_type == wanted && bytes == sizeof(option) + FRAME_MAC_BYTES)
			*mac = at + sizeof(option);
	}
	return true;
}

/* Tells whether a well-formed message is one that no host may send. */
static bool odd_neighbour(const struct net_ip *target, bool solicited, const struct frame *frame)
{
	if (net_ip_multicast(target) || net_ip_is_v4(target) || net_ip_none(target))
		return true;
	return frame->asks ? net_ip_none(&frame->from_ip) && frame->mac != NULL
	                   : net_ip_multicast(&frame->to_ip) && solicited;
}

/* Solicitations, advertisements and MLD's queries have the same form, up to the options. */
static enum frame_kind parse_icmp6(const struct carried *in, struct frame *out)
{
	struct nd_neighbor_advert head;
	struct net_ip target;
	uint64_t pseudo;
	bool query;

	if (in->said < sizeof(struct icmp6_hdr))
		return FRAME_DAMAGED;
	query = in->at[0] == MLD_LISTENER_QUERY;
	out->asks = in->at[0] == ND_NEIGHBOR_SOLICIT;
	if (!query && !out->asks && in->at[0] != ND_NEIGHBOR_ADVERT)
		return FRAME_OTHER;
	pseudo = pseudo_sum(&out->from_ip, &out->to_ip, IPPROTO_ICMPV6, in->said);
	if (in->said < sizeof(head) || frame_fold(pseudo + frame_sum(in->at, in->said)) != 0xffff)
		return FRAME_DAMAGED;
	memcpy(&head, in->at, sizeof(head));
	if (head.nd_na_code != 0 || in->hops != (query ? LINK_HOPS : ND_HOPS))
		return FRAME_OTHER;
	target = ip_of_six(&head.nd_na_target);
	if (!query) {
		if (!parse_options(in->at + sizeof(head), in->said - sizeof(head),
		                   out->asks ? ND_OPT_SOURCE_LINKADDR : ND_OPT_TARGET_LINKADDR,
		                   &out->mac))
			return FRAME_DAMAGED;
		if (odd_neighbour(&target, head.nd_na_flags_reserved & ND_NA_FLAG_SOLICITED, out))
			return FRAME_OTHER;
	}
	*(query || out->asks ? &out->to_ip : &out->from_ip) = target;
	return query ? FRAME_QUERY : FRAME_NEIGHBOUR;
}

static enum frame_kind parse_carried(const struct carried *in, struct frame *out)
{
	if (in->said > in->size && (in->protocol != IPPROTO_UDP || in->piece))
		return FRAME_DAMAGED;
	if (in->piece)
		return FRAME_PIECE;
	if (in->protocol == IPPROTO_UDP)
		return parse_udp(in, out);
	if (net_ip_is_v4(&out->to_ip))
		return in->protocol == IPPROTO_IGMP ? parse_igmp(in, out) : FRAME_OTHER;
	return in->protocol == IPPROTO_ICMPV6 ? parse_icmp6(in, out) : FRAME_OTHER;
}

static enum frame_kind parse_four(const uint8_t *bytes, size_t size, unsigned checked,
                                  struct frame *out)
{
	struct carried in = {.checked = checked};
	uint32_t header, said;
	struct ip ip;

	if (size < sizeof(ip))
		return FRAME_DAMAGED;
	memcpy(&ip, bytes, sizeof(ip));
	header = ip.ip_hl * 4u;
	said = ntohs(ip.ip_len);
	if (ip.ip_v != 4 || header < sizeof(ip) || said < header || header > size)
		return FRAME_DAMAGED;
	if (!(checked & FRAME_IP_CHECKED) && frame_fold(sum_loop(bytes, header)) != 0xffff)
		return FRAME_DAMAGED;
	ip_of_four(&out->from_ip, &ip.ip_src);
	ip_of_four(&out->to_ip, &ip.ip_dst);
	in.at = bytes + header;
	in.size = size - header;
	in.said = said - header;
	in.protocol = ip.ip_p;
	in.hops = ip.ip_ttl;
	in.piece = (ntohs(ip.ip_off) & IP_FRAGMENT) != 0;
	out->marked = net_ecn_marked(ip.ip_tos);
	return parse_carried(&in, out);
}

/* Skips the extension headers. False: they do not fit in. */
static bool skip_extensions(struct carried *in)
{
	struct ip6_rthdr extension; /* the other two begin in the same way */
	uint32_t bytes;

	for (uint32_t i = 0; i < EXTENSIONS_MAX; i++) {
		if (in->protocol != IPPROTO_HOPOPTS && in->protocol != IPPROTO_ROUTING &&
		    in->protocol != IPPROTO_DSTOPTS)
			break;
		if (in->size < sizeof(extension))
			return false;
		memcpy(&extension, in->at, sizeof(extension));
		bytes = (extension.ip6r_len + 1u) * EXTENSION_UNIT;
		if (bytes > in->size || bytes > in->said)
			return false;
		if (in->protocol == IPPROTO_ROUTING && extension.ip6r_segleft != 0)
			break; /* other hosts come first on its way */
		in->protocol = extension.ip6r_nxt;
		in->at += bytes;
		in->size -= bytes;
		in->said -= bytes;
	}
	in->piece = in->protocol == IPPROTO_FRAGMENT;
	return true;
}

static enum frame_kind parse_six(const uint8_t *bytes, size_t size, unsigned checked,
                                 struct frame *out)
{
	struct carried in = {.checked = checked};
	struct ip6_hdr ip;

	if (size < sizeof(ip))
		return FRAME_DAMAGED;
	memcpy(&ip, bytes, sizeof(ip));
	if (ip.ip6_vfc >> 4 != 6)
		return FRAME_DAMAGED;
	out->from_ip = ip_of_six(&ip.ip6_src);
	out->to_ip = ip_of_six(&ip.ip6_dst);
	in.at = bytes + sizeof(ip);
	in.size = size - sizeof(ip);
	in.said = ntohs(ip.ip6_plen);
	in.protocol = ip.ip6_nxt;
	in.hops = ip.ip6_hlim;
	out->marked = net_ecn_marked(ntohl(ip.ip6_flow) >> SIX_CLASS_AT);
	if (!skip_extensions(&in))
		return FRAME_DAMAGED;
	/* A sender that writes ::ffff:10.0.0.1 there pretends to be another host. */
	if (net_ip_is_v4(&out->from_ip) || net_ip_is_v4(&out->to_ip))
		return FRAME_OTHER;
	return parse_carried(&in, out);
}

void frame_parse(const uint8_t *bytes, size_t size, unsigned checked, struct frame *out)
{
	size_t at = ETHER_HDR_LEN;
	uint32_t type;

	*out = (struct frame){.kind = FRAME_DAMAGED};
	if (size < ETHER_HDR_LEN)
		return;
	out->to_mac = bytes;
	out->from_mac = bytes + FRAME_MAC_BYTES;
	type = get16(bytes + 12);
	if (type == ETHERTYPE_VLAN && size >= ETHER_HDR_LEN + VLAN_BYTES &&
	    (get16(bytes + ETHER_HDR_LEN) & VLAN_ID) == 0) {
		type = get16(bytes + ETHER_HDR_LEN + 2);
		at += VLAN_BYTES;
	}
	if (type == ETHERTYPE_IP)
		out->kind = parse_four(bytes + at, size - at, checked, out);
	else if (type == ETHERTYPE_IPV6)
		out->kind = parse_six(bytes + at, size - at, checked, out);
	else if (type == ETHERTYPE_ARP)
		out->kind = parse_arp(bytes + at, size - at, out);
	else
		out->kind = FRAME_OTHER;
}
