// SPDX-License-Identifier: BSD-3-Clause
/* frame_write.c - see frame.h: building */

#include "aggregator/dpdk/frame_state.h"

#define ETHER_MIN_BYTES 60 /* shorter frames are padded */

static const uint8_t everyone[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static void write_ether(uint8_t *out, const uint8_t *to, const uint8_t *from, uint32_t type)
{
	memcpy(out, to, FRAME_MAC_BYTES);
	memcpy(out + FRAME_MAC_BYTES, from, FRAME_MAC_BYTES);
	out[12] = (uint8_t)(type >> 8);
	out[13] = (uint8_t)type;
}

/* An IP header of either family. `alert` asks routers to look at a report on its way. */
struct label {
	const struct net_ip *from, *to;
	uint32_t bytes;
	uint8_t protocol, hops, tos;
	bool alert;
};

static uint8_t *write_four(uint8_t *out, const struct label *label)
{
	static const uint8_t alert[] = {IPOPT_RA, 4, 0, 0};
	uint32_t header = sizeof(struct ip) + (label->alert ? sizeof(alert) : 0);
	struct ip ip = {.ip_v = 4,
	                .ip_hl = 5,
	                .ip_tos = label->tos,
	                .ip_len = htons((uint16_t)(header + label->bytes)),
	                .ip_off = htons(IP_DF),
	                .ip_ttl = label->hops,
	                .ip_p = label->protocol};

	ip.ip_hl += label->alert;
	memcpy(&ip.ip_src, label->from->bytes + 12, sizeof(ip.ip_src));
	memcpy(&ip.ip_dst, label->to->bytes + 12, sizeof(ip.ip_dst));
	ip.ip_sum = (uint16_t)~frame_fold(sum_loop((const uint8_t *)&ip, sizeof(ip)) +
	                                  (label->alert ? sum_loop(alert, sizeof(alert)) : 0));
	memcpy(out, &ip, sizeof(ip));
	if (label->alert)
		memcpy(out + sizeof(ip), alert, sizeof(alert));
	return out + header;
}

static uint8_t *write_six(uint8_t *out, const struct label *label)
{
	const uint8_t alert[] = {label->protocol,           0, IP6OPT_ROUTER_ALERT, 2, 0, 0,
	                         IP6OPT_PADN /* padding */, 0};
	uint32_t more = label->alert ? sizeof(alert) : 0;
	struct ip6_hdr ip = {.ip6_plen = htons((uint16_t)(more + label->bytes)),
	                     .ip6_nxt = label->alert ? IPPROTO_HOPOPTS : label->protocol,
	                     .ip6_hlim = label->hops};

	ip.ip6_flow = htonl(UINT32_C(6) << 28 | (uint32_t)label->tos << SIX_CLASS_AT);
	memcpy(&ip.ip6_src, label->from->bytes, sizeof(ip.ip6_src));
	memcpy(&ip.ip6_dst, label->to->bytes, sizeof(ip.ip6_dst));
	memcpy(out, &ip, sizeof(ip));
	memcpy(out + sizeof(ip), alert, more);
	return out + sizeof(ip) + more;
}

/* Returns where the content goes. */
static uint8_t *write_ip(uint8_t *out, const uint8_t *to_mac, const uint8_t *from_mac,
                         const struct label *label)
{
	bool v4 = net_ip_is_v4(label->to);

	write_ether(out, to_mac, from_mac, v4 ? ETHERTYPE_IP : ETHERTYPE_IPV6);
	return (v4 ? write_four : write_six)(out + ETHER_HDR_LEN, label);
}

void frame_udp(uint8_t *out, const struct frame_route *route, uint32_t payload_bytes,
               uint64_t payload_sum, bool finish)
{
	struct udphdr udp = {.uh_sport = htons(route->from_port),
	                     .uh_dport = htons(route->to_port)};
	const struct label label = {.from = &route->from_ip,
	                            .to = &route->to_ip,
	                            .bytes = (uint32_t)sizeof(udp) + payload_bytes,
	                            .protocol = IPPROTO_UDP,
	                            .hops = route->hops,
	                            .tos = route->tos};
	uint64_t pseudo = pseudo_sum(label.from, label.to, IPPROTO_UDP, label.bytes);
	uint8_t *at = write_ip(out, route->to_mac, route->from_mac, &label);
	uint16_t sum;

	udp.uh_ulen = htons((uint16_t)label.bytes);
	sum = frame_fold(finish ? pseudo
	                        : pseudo + sum_loop((const uint8_t *)&udp, sizeof(udp)) +
	                                  payload_sum);
	if (!finish)
		sum = (uint16_t)(sum == 0xffff ? sum : ~sum); /* 0 would mean no checksum */
	udp.uh_sum = sum;
	memcpy(at, &udp, sizeof(udp));
}

static uint32_t write_arp(uint8_t *out, uint16_t operation, const struct frame_station *from,
                          const struct frame_station *to)
{
	struct ether_arp arp = {.ea_hdr = {.ar_hrd = htons(ARPHRD_ETHER),
	                                   .ar_pro = htons(ETHERTYPE_IP),
	                                   .ar_hln = sizeof(arp.arp_sha),
	                                   .ar_pln = sizeof(arp.arp_spa),
	                                   .ar_op = htons(operation)}};

	memcpy(arp.arp_sha, from->mac, sizeof(arp.arp_sha));
	memcpy(arp.arp_spa, from->ip.bytes + 12, sizeof(arp.arp_spa));
	if (to->mac != NULL)
		memcpy(arp.arp_tha, to->mac, sizeof(arp.arp_tha));
	memcpy(arp.arp_tpa, to->ip.bytes + 12, sizeof(arp.arp_tpa));
	memset(out, 0, ETHER_MIN_BYTES);
	write_ether(out, to->mac != NULL ? to->mac : everyone, from->mac, ETHERTYPE_ARP);
	memcpy(out + ETHER_HDR_LEN, &arp, sizeof(arp));
	return ETHER_MIN_BYTES;
}

/* Writes one of ICMPv6's messages that look like a solicitation, to `to` about `target`. */
static uint32_t write_icmp6(uint8_t *out, const struct frame_station *from,
                            const struct frame_station *to, uint8_t type, uint32_t flags,
                            const struct net_ip *target)
{
	struct {
		struct nd_neighbor_advert head;
		struct nd_opt_hdr option;
		uint8_t mac[FRAME_MAC_BYTES];
	} message = {.option = {.nd_opt_len = 1}};
	bool report = type == MLD_LISTENER_REPORT;
	uint32_t bytes = report ? sizeof(message.head) : sizeof(message);
	const struct label label = {.from = &from->ip,
	                            .to = &to->ip,
	                            .bytes = bytes,
	                            .protocol = IPPROTO_ICMPV6,
	                            .hops = report ? LINK_HOPS : ND_HOPS,
	                            .alert = report};
	uint8_t *at = write_ip(out, to->mac, from->mac, &label);
	uint64_t sum = pseudo_sum(&from->ip, &to->ip, IPPROTO_ICMPV6, bytes);

	message.head.nd_na_type = type;
	message.head.nd_na_flags_reserved = flags;
	memcpy(&message.head.nd_na_target, target->bytes, sizeof(target->bytes));
	message.option.nd_opt_type =
		type == ND_NEIGHBOR_SOLICIT ? ND_OPT_SOURCE_LINKADDR : ND_OPT_TARGET_LINKADDR;
	memcpy(message.mac, from->mac, sizeof(message.mac));
	sum += sum_loop((const uint8_t *)&message, bytes);
	message.head.nd_na_cksum = (uint16_t)~frame_fold(sum);
	memcpy(at, &message, bytes);
	return (uint32_t)(at - out) + bytes;
}

/* The group of all addresses with the same end (RFC 4291): ff02::1:ffXX:XXXX. */
struct net_ip frame_asked_group(const struct net_ip *ip)
{
	const uint8_t *b = ip->bytes;

	if (net_ip_is_v4(ip))
		return (struct net_ip){.scope = 0};
	return (struct net_ip){.bytes = {0xff, 2, [11] = 1, 0xff, b[13], b[14], b[15]}};
}

uint32_t frame_ask(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                   const struct net_ip *ip)
{
	const struct net_ip group = frame_asked_group(ip);
	uint8_t mac[FRAME_MAC_BYTES];

	if (net_ip_is_v4(ip))
		return write_arp(out, ARPOP_REQUEST, from, &(struct frame_station){.ip = *ip});
	frame_multicast_mac(&group, mac);
	return write_icmp6(out, from, &(struct frame_station){mac, group}, ND_NEIGHBOR_SOLICIT, 0,
	                   ip);
}

uint32_t frame_answer(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                      const struct frame_station *to)
{
	static const struct net_ip all = {.bytes = {0xff, 2, [15] = 1}};
	uint8_t mac[FRAME_MAC_BYTES];

	if (net_ip_is_v4(&from->ip))
		return write_arp(out, ARPOP_REPLY, from, to);
	if (!net_ip_none(&to->ip))
		return write_icmp6(out, from, to, ND_NEIGHBOR_ADVERT,
		                   ND_NA_FLAG_SOLICITED | ND_NA_FLAG_OVERRIDE, &from->ip);
	frame_multicast_mac(&all, mac);
	return write_icmp6(out, from, &(struct frame_station){mac, all}, ND_NEIGHBOR_ADVERT,
	                   ND_NA_FLAG_OVERRIDE, &from->ip);
}

/* MLD is sent from a link-local address: the one made of the MAC address (RFC 2464). */
static struct net_ip link_address(const uint8_t *mac)
{
	return (struct net_ip){.bytes = {0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe,
	                                 mac[3], mac[4], mac[5]}};
}

uint32_t frame_report(uint8_t out[FRAME_SMALL_BYTES_MAX], const struct frame_station *from,
                      const struct net_ip *group)
{
	struct igmp igmp = {.igmp_type = IGMP_V2_MEMBERSHIP_REPORT};
	const struct label label = {.from = &from->ip,
	                            .to = group,
	                            .bytes = sizeof(igmp),
	                            .protocol = IPPROTO_IGMP,
	                            .hops = LINK_HOPS,
	                            .alert = true};
	uint8_t mac[FRAME_MAC_BYTES], *at;

	frame_multicast_mac(group, mac);
	if (!net_ip_is_v4(group))
		return write_icmp6(out, &(struct frame_station){from->mac, link_address(from->mac)},
		                   &(struct frame_station){mac, *group}, MLD_LISTENER_REPORT, 0,
		                   group);
	memset(out, 0, ETHER_MIN_BYTES);
	at = write_ip(out, mac, from->mac, &label);
	memcpy(&igmp.igmp_group, group->bytes + 12, sizeof(igmp.igmp_group));
	igmp.igmp_cksum = (uint16_t)~frame_fold(sum_loop((const uint8_t *)&igmp, sizeof(igmp)));
	memcpy(at, &igmp, sizeof(igmp));
	return ETHER_MIN_BYTES;
}

void frame_multicast_mac(const struct net_ip *group, uint8_t mac[FRAME_MAC_BYTES])
{
	const uint8_t *b = group->bytes;

	if (net_ip_is_v4(group))
		memcpy(mac, (const uint8_t[]){1, 0, 0x5e, b[13] & 0x7f, b[14], b[15]},
		       FRAME_MAC_BYTES);
	else
		memcpy(mac, (const uint8_t[]){0x33, 0x33, b[12], b[13], b[14], b[15]},
		       FRAME_MAC_BYTES);
}
