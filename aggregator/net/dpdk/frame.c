// SPDX-License-Identifier: BSD-3-Clause
/* frame.c - see frame.h */

#include "aggregator/net/dpdk/frame.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/igmp.h>
#include <netinet/ip.h>
#include <string.h>

#define VLAN_BYTES 4
#define VLAN_ID 0x0fff
#define IP_BYTES 20
#define IP_FRAGMENT 0x3fff /* more fragments, or an offset */
#define IP_TTL_OFFSET 8
#define IP_PROTOCOL_OFFSET 9
#define IP_SUM_OFFSET 10
#define UDP_BYTES 8
#define UDP_SUM_OFFSET 6
#define ARP_BYTES 28
#define IGMP_BYTES 8

static const uint8_t arp_kind[] = {0, 1, 8, 0, 6, 4}; /* Ethernet, IPv4, lengths of addresses */
static const uint8_t router_alert[] = {0x94, 4, 0, 0};

static uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t get32(const uint8_t *at)
{
	return get16(at) << 16 | get16(at + 2);
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
	put16(at, value >> 16);
	put16(at + 2, value & 0xffff);
}

/* ---- checksums ---- */

/* Halves of a 32-bit word fold to the same as two words of 16 bits; 2^32 words fit the sum. */
__attribute__((always_inline)) static inline uint64_t sum_loop(const uint8_t *at, size_t size)
{
	size_t words = size / sizeof(uint32_t);
	uint64_t sum = 0;
	uint32_t word;

	for (size_t i = 0; i < words; i++) {
		memcpy(&word, at + i * sizeof(word), sizeof(word));
		sum += word;
	}
	word = 0;
	memcpy(&word, at + words * sizeof(word), size % sizeof(word));
	return sum + word;
}

/* The compiler makes eight words at a time of it. */
__attribute__((target("avx2"))) static uint64_t sum_avx2(const uint8_t *data, size_t size)
{
	return sum_loop(data, size);
}

uint64_t frame_sum_any(const void *data, size_t size)
{
	return sum_loop(data, size);
}

uint64_t frame_sum(const void *data, size_t size)
{
	return __builtin_cpu_supports("avx2") ? sum_avx2(data, size) : frame_sum_any(data, size);
}

uint16_t frame_fold(uint64_t sum)
{
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static uint64_t pseudo_sum(const uint8_t *addresses, uint32_t udp_bytes)
{
	return sum_loop(addresses, 8) + htons(IPPROTO_UDP) + htons((uint16_t)udp_bytes);
}

/* The stored sum makes the whole 0xffff; or only the pseudo-header has been summed yet. */
static bool udp_sum_right(const uint8_t *udp, uint32_t bytes, const uint8_t *addresses)
{
	uint64_t pseudo = pseudo_sum(addresses, bytes);
	uint16_t stored;

	memcpy(&stored, udp + UDP_SUM_OFFSET, sizeof(stored));
	return stored == 0 || frame_fold(pseudo + frame_sum(udp, bytes)) == 0xffff ||
	       stored == frame_fold(pseudo);
}

/* ---- reading ---- */

static enum frame_kind parse_arp(const uint8_t *arp, size_t size, struct frame *out)
{
	uint32_t operation;

	if (size < ARP_BYTES)
		return FRAME_DAMAGED;
	operation = get16(arp + 6);
	if (memcmp(arp, arp_kind, sizeof(arp_kind)) != 0 ||
	    (operation != ARPOP_REQUEST && operation != ARPOP_REPLY))
		return FRAME_OTHER;
	out->arp_request = operation == ARPOP_REQUEST;
	out->arp_mac = arp + 8;
	out->from_ip = get32(arp + 14);
	out->to_ip = get32(arp + 24);
	return FRAME_ARP;
}

/*
 * `said`: by IP. More than what has come: several datagrams that were handed on in one, say, by a
 * sender's kernel.
 */
static enum frame_kind parse_udp(const uint8_t *ip, const uint8_t *udp, size_t size, uint32_t said,
                                 unsigned checked, struct frame *out)
{
	uint32_t bytes;

	if (size < UDP_BYTES || said < UDP_BYTES)
		return FRAME_DAMAGED;
	bytes = get16(udp + 4);
	out->from_port = (uint16_t)get16(udp);
	out->to_port = (uint16_t)get16(udp + 2);
	if (said > size)
		return bytes == said ? FRAME_CUT : FRAME_DAMAGED;
	if (bytes < UDP_BYTES || bytes > said)
		return FRAME_DAMAGED;
	if (!(checked & FRAME_UDP_CHECKED) && !udp_sum_right(udp, bytes, ip + 12))
		return FRAME_DAMAGED;
	out->payload = udp + UDP_BYTES;
	out->payload_bytes = bytes - UDP_BYTES;
	return FRAME_UDP;
}

static enum frame_kind parse_ip(const uint8_t *ip, size_t size, unsigned checked, struct frame *out)
{
	uint32_t header, bytes;

	if (size < IP_BYTES)
		return FRAME_DAMAGED;
	header = (ip[0] & 15u) * 4;
	bytes = get16(ip + 2);
	if (ip[0] >> 4 != 4 || header < IP_BYTES || bytes < header || header > size)
		return FRAME_DAMAGED;
	if (!(checked & FRAME_IP_CHECKED) && frame_fold(sum_loop(ip, header)) != 0xffff)
		return FRAME_DAMAGED;
	out->from_ip = get32(ip + 12);
	out->to_ip = get32(ip + 16);
	if (bytes > size && (ip[IP_PROTOCOL_OFFSET] != IPPROTO_UDP || get16(ip + 6) & IP_FRAGMENT))
		return FRAME_DAMAGED;
	if (get16(ip + 6) & IP_FRAGMENT)
		return FRAME_PIECE;
	if (ip[IP_PROTOCOL_OFFSET] == IPPROTO_UDP)
		return parse_udp(ip, ip + header, size - header, bytes - header, checked, out);
	if (ip[IP_PROTOCOL_OFFSET] != IPPROTO_IGMP || bytes - header < IGMP_BYTES ||
	    ip[header] != IGMP_MEMBERSHIP_QUERY)
		return FRAME_OTHER;
	out->to_ip = get32(ip + header + 4);
	return FRAME_IGMP_QUERY;
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
		out->kind = parse_ip(bytes + at, size - at, checked, out);
	else if (type == ETHERTYPE_ARP)
		out->kind = parse_arp(bytes + at, size - at, out);
	else
		out->kind = FRAME_OTHER;
}

/* ---- writing ---- */

static void write_ether(uint8_t *out, const uint8_t *to, const uint8_t *from, uint32_t type)
{
	memcpy(out, to, FRAME_MAC_BYTES);
	memcpy(out + FRAME_MAC_BYTES, from, FRAME_MAC_BYTES);
	put16(out + 12, type);
}

static void write_ip(uint8_t *ip, uint32_t header, uint32_t bytes, uint8_t protocol, uint8_t ttl,
                     uint32_t from, uint32_t to)
{
	uint16_t sum;

	memset(ip, 0, header);
	ip[0] = (uint8_t)(4 << 4 | header / 4);
	put16(ip + 2, bytes);
	put16(ip + 6, IP_DF);
	ip[IP_TTL_OFFSET] = ttl;
	ip[IP_PROTOCOL_OFFSET] = protocol;
	put32(ip + 12, from);
	put32(ip + 16, to);
	if (header > IP_BYTES)
		memcpy(ip + IP_BYTES, router_alert, sizeof(router_alert));
	sum = (uint16_t)~frame_fold(sum_loop(ip, header));
	memcpy(ip + IP_SUM_OFFSET, &sum, sizeof(sum));
}

void frame_udp(uint8_t out[FRAME_UDP_BYTES], const struct frame_route *route,
               uint32_t payload_bytes, uint64_t payload_sum, bool finish)
{
	uint8_t *ip = out + ETHER_HDR_LEN, *udp = ip + IP_BYTES;
	uint32_t bytes = UDP_BYTES + payload_bytes;
	uint64_t pseudo;
	uint16_t sum;

	write_ether(out, route->to_mac, route->from_mac, ETHERTYPE_IP);
	write_ip(ip, IP_BYTES, IP_BYTES + bytes, IPPROTO_UDP, route->ttl, route->from_ip,
	         route->to_ip);
	put16(udp, route->from_port);
	put16(udp + 2, route->to_port);
	put16(udp + 4, bytes);
	put16(udp + UDP_SUM_OFFSET, 0);
	pseudo = pseudo_sum(ip + 12, bytes);
	sum = frame_fold(finish ? pseudo : pseudo + sum_loop(udp, UDP_BYTES) + payload_sum);
	if (!finish)
		sum = (uint16_t)(sum == 0xffff ? sum : ~sum); /* 0 would mean: no checksum */
	memcpy(udp + UDP_SUM_OFFSET, &sum, sizeof(sum));
}

void frame_arp(uint8_t out[FRAME_SMALL_BYTES], bool request, const uint8_t *from_mac,
               uint32_t from_ip, const uint8_t *to_mac, uint32_t to_ip)
{
	static const uint8_t everyone[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint8_t *arp = out + ETHER_HDR_LEN;

	memset(out, 0, FRAME_SMALL_BYTES);
	write_ether(out, to_mac != NULL ? to_mac : everyone, from_mac, ETHERTYPE_ARP);
	memcpy(arp, arp_kind, sizeof(arp_kind));
	put16(arp + 6, request ? ARPOP_REQUEST : ARPOP_REPLY);
	memcpy(arp + 8, from_mac, FRAME_MAC_BYTES);
	put32(arp + 14, from_ip);
	if (to_mac != NULL)
		memcpy(arp + 18, to_mac, FRAME_MAC_BYTES);
	put32(arp + 24, to_ip);
}

void frame_igmp_report(uint8_t out[FRAME_SMALL_BYTES], const uint8_t *from_mac, uint32_t from_ip,
                       uint32_t group)
{
	uint8_t to_mac[FRAME_MAC_BYTES], *ip = out + ETHER_HDR_LEN;
	uint32_t header = IP_BYTES + sizeof(router_alert);
	uint8_t *igmp = ip + header;
	uint16_t sum;

	memset(out, 0, FRAME_SMALL_BYTES);
	frame_multicast_mac(group, to_mac);
	write_ether(out, to_mac, from_mac, ETHERTYPE_IP);
	write_ip(ip, header, header + IGMP_BYTES, IPPROTO_IGMP, 1, from_ip, group);
	igmp[0] = IGMP_V2_MEMBERSHIP_REPORT;
	put32(igmp + 4, group);
	sum = (uint16_t)~frame_fold(frame_sum(igmp, IGMP_BYTES));
	memcpy(igmp + 2, &sum, sizeof(sum));
}

bool frame_ip_multicast(uint32_t ip)
{
	return ip >> 28 == 0xe;
}

void frame_multicast_mac(uint32_t group, uint8_t mac[FRAME_MAC_BYTES])
{
	mac[0] = 0x01;
	mac[1] = 0x00;
	mac[2] = 0x5e;
	mac[3] = (uint8_t)(group >> 16 & 0x7f);
	put16(mac + 4, group & 0xffff);
}
