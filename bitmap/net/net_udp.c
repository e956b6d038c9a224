// SPDX-License-Identifier: BSD-3-Clause
/*
 * net_udp.c - sockets, with UDP_GRO and UDP_SEGMENT
 *
 * A send() call sorts its datagrams into bins, by size and by the net that they are steered to. Each
 * bin leaves in one system call of up to 64 KB, which the kernel cuts, or does not need to:
 * super-packets cross veth, bridge and qdisc whole. Receiving is the reverse. Without either offload
 * everything works one by one. What the socket has no room for waits in the backlog.
 */

#include "bitmap/net/net.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bitmap/net/clock.h"
#include "bitmap/net/sockaddr.h"
#include "bitmap/net/trouble.h"
#include "bitmap/net/udp_socket.h"

#define RX_MESSAGES 16
#define RX_BYTES 65536
#define TX_SEGMENTS_MAX 64 /* UDP_MAX_SEGMENTS of the kernels before 6.9 */
#define TX_BYTES_MAX 65000 /* of one super-packet */
#define TX_IOVECS_MAX 1024 /* of one super-packet: UIO_MAXIOV */
#define BINS 8             /* super-packets that are collected at the same time */
#define CONTROL_BYTES 160
#define WAITED_US_MAX 10000000 /* longer: a clock was set */
#define NONE UINT32_MAX        /* all its bytes are 0xff */

/*
 * A super-packet, or a single datagram: a chain of the caller's datagrams of equal size. A receiver
 * with several nets gets a super-packet on one of them, whole: so all its datagrams are steered alike.
 */
struct message {
	uint32_t bytes, segments, segment_bytes;
	uint8_t steering;
	uint32_t iovec_count;
	uint32_t first, last; /* indices of the caller's array, linked by tx.next */
};

/* The messages of the last call, and how far they have been handed out. */
struct udp_rx {
	uint32_t count, at, offset;
	struct mmsghdr headers[RX_MESSAGES];
	struct iovec iovecs[RX_MESSAGES];
	union net_sockaddr names[RX_MESSAGES];
	struct net_in first[RX_MESSAGES]; /* A message's first datagram: the others are alike. */
	_Alignas(struct cmsghdr) uint8_t control[RX_MESSAGES][CONTROL_BYTES];
	uint8_t buffer[RX_MESSAGES][RX_BYTES];
};

/* What is being sent to one receiver. */
struct udp_tx {
	struct net_path path;  /* The last receiver, also that of what is kept. */
	union net_sockaddr to; /* path.to, as the system has it. */
	socklen_t to_bytes;
	uint32_t message_count;
	struct message messages[NET_BURST_MAX];
	uint32_t next[NET_BURST_MAX];
	struct iovec iovecs[TX_IOVECS_MAX];
	_Alignas(struct cmsghdr) uint8_t control[CONTROL_BYTES];
};

/* What the kernel did not take: copies for one receiver, one after the other. */
struct udp_kept {
	uint32_t count, at, offset;
	struct message messages[NET_BURST_MAX];
	uint8_t bytes[NET_BATCH_BYTES_MAX];
};

struct net {
	struct net_facts facts;
	bool six; /* The socket is of AF_INET6. */
	bool segment_offload;
	struct net_stats stats;
	struct net_troubles troubles;
	struct udp_rx rx;
	struct udp_tx tx;
	struct udp_kept kept;
};

/* ---- opening ---- */

static void udp_close(struct net *net)
{
	if (net == NULL)
		return;
	if (net->facts.fd >= 0)
		close(net->facts.fd);
	free(net);
}

static int udp_open(const struct net_config *config, struct net **out, struct why *why)
{
	struct net *net = calloc(1, sizeof(*net));
	int err;

	if (net == NULL)
		return why_set(why, -ENOMEM, "out of memory for a UDP socket's buffers");
	net->segment_offload = true; /* until the kernel says otherwise */
	err = udp_socket_open(config, &net->facts, why);
	if (err != 0) {
		udp_close(net);
		return err;
	}
	/* But the end of a fill that is larger than one call may be less: then the next call has more. */
	net->facts.burst = RX_MESSAGES;
	net->six = !net_ip_is_v4(&net->facts.address.ip);
	for (uint32_t i = 0; i < RX_MESSAGES; i++)
		net->rx.iovecs[i] =
			(struct iovec){.iov_base = net->rx.buffer[i], .iov_len = RX_BYTES};
	*out = net;
	return 0;
}

/* ---- receiving ---- */

/*
 * Our address, and whether a queue has marked it, as the kernel says of either family. The interface counts only where
 * the address needs it. The TOS byte is one byte in IPv4, and an int in IPv6.
 */
static void path_read(const struct cmsghdr *c, struct net_in *out)
{
	const bool four = c->cmsg_level == IPPROTO_IP, six = c->cmsg_level == IPPROTO_IPV6;
	struct in_pktinfo to;
	struct in6_pktinfo to6;
	int class;

	if (four && c->cmsg_type == IP_PKTINFO) {
		memcpy(&to, CMSG_DATA(c), sizeof(to));
		out->local = net_ipv4(ntohl(to.ipi_spec_dst.s_addr));
	} else if (six && c->cmsg_type == IPV6_PKTINFO) {
		memcpy(&to6, CMSG_DATA(c), sizeof(to6));
		memcpy(out->local.bytes, &to6.ipi6_addr, sizeof(out->local.bytes));
		out->local.scope = IN6_IS_ADDR_LINKLOCAL(&to6.ipi6_addr) ? to6.ipi6_ifindex : 0;
	} else if (four && c->cmsg_type == IP_TOS) {
		out->marked = net_ecn_marked(*CMSG_DATA(c));
	} else if (six && c->cmsg_type == IPV6_TCLASS) {
		memcpy(&class, CMSG_DATA(c), sizeof(class));
		out->marked = net_ecn_marked((uint32_t) class);
	}
}

/* When the system received it. Now, by our clock and by the one of its time stamps. */
static uint64_t came_read(const struct cmsghdr *c, uint64_t now_us, const struct timespec *system)
{
	struct timespec came;
	uint64_t waited_us;

	memcpy(&came, CMSG_DATA(c), sizeof(came));
	waited_us = (uint64_t)((system->tv_sec - came.tv_sec) * 1000000 +
	                       (system->tv_nsec - came.tv_nsec) / 1000);
	return waited_us < WAITED_US_MAX ? now_us - waited_us : now_us;
}

/* What the kernel says of message `i`: how long its datagrams are, where they were sent to, and when. */
static void control_read(struct net *net, uint32_t i, uint64_t now_us,
                         const struct timespec *system)
{
	struct msghdr *header = &net->rx.headers[i].msg_hdr;
	struct net_in *first = &net->rx.first[i];
	int size;

	*first = (struct net_in){.data = net->rx.iovecs[i].iov_base,
	                         .bytes = net->rx.headers[i].msg_len,
	                         .from = net_of_sockaddr(&net->rx.names[i].any),
	                         .local = net->facts.address.ip};
	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
		if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
			memcpy(&size, CMSG_DATA(c), sizeof(size));
			first->bytes = size > 0 ? (uint32_t)size : first->bytes;
		} else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
			first->came_us = came_read(c, now_us, system);
		} else {
			path_read(c, first);
		}
	}
}

static bool rx_fill(struct net *net)
{
	struct timespec system;
	uint64_t now_us;
	int count;

	for (uint32_t i = 0; i < RX_MESSAGES; i++)
		net->rx.headers[i].msg_hdr = (struct msghdr){
			.msg_name = &net->rx.names[i],
			.msg_namelen = sizeof(net->rx.names[i]),
			.msg_iov = &net->rx.iovecs[i],
			.msg_iovlen = 1,
			.msg_control = net->rx.control[i],
			.msg_controllen = CONTROL_BYTES,
		};
	net->rx.count = net->rx.at = net->rx.offset = 0;
	net->stats.rx_calls++;
	count = recvmmsg(net->facts.fd, net->rx.headers, RX_MESSAGES, 0, NULL);
	if (count <= 0)
		return false;
	net->rx.count = (uint32_t)count;
	now_us = clock_us();
	clock_gettime(CLOCK_REALTIME, &system);
	for (uint32_t i = 0; i < net->rx.count; i++)
		control_read(net, i, now_us, &system);
	return true;
}

static uint32_t udp_recv(struct net *net, struct net_in in[], uint32_t max)
{
	uint32_t count = 0;

	if (net->rx.at == net->rx.count && !rx_fill(net))
		return 0;
	while (count < max && net->rx.at < net->rx.count) {
		uint32_t i = net->rx.at, bytes = net->rx.headers[i].msg_len;
		uint32_t left = bytes - net->rx.offset;
		struct net_in *one = &in[count++];

		*one = net->rx.first[i];
		one->data += net->rx.offset;
		one->bytes = left < one->bytes ? left : one->bytes;
		net->stats.received++;
		net->stats.received_bytes += one->bytes;
		net->rx.offset += one->bytes;
		if (net->rx.offset >= bytes) {
			net->rx.at++;
			net->rx.offset = 0;
		}
	}
	return count;
}

/* ---- sending ---- */

/* One of the kernel's control messages, behind those that are there. */
static void control_add(struct net *net, struct msghdr *header, int level, int type,
                        const void *data, size_t bytes)
{
	struct cmsghdr *c = (struct cmsghdr *)(void *)(net->tx.control + header->msg_controllen);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(c), data, bytes);
	header->msg_controllen += CMSG_SPACE(bytes);
}

/* A socket of IPv6 takes our mapped addresses as well. */
static void control_fill(struct net *net, struct msghdr *header, const struct message *m)
{
	const struct net_ip *local = &net->tx.path.local;
	uint16_t size = (uint16_t)m->segment_bytes;
	struct in_pktinfo four = {.ipi_spec_dst.s_addr = htonl(net_ip_number(local))};
	struct in6_pktinfo six = {.ipi6_ifindex = local->scope};

	header->msg_controllen = 0;
	header->msg_control = net->tx.control;
	if (m->segments > 1)
		control_add(net, header, SOL_UDP, UDP_SEGMENT, &size, sizeof(size));
	if (net_ip_none(local))
		return;
	memcpy(&six.ipi6_addr, local->bytes, sizeof(local->bytes));
	if (net->six)
		control_add(net, header, IPPROTO_IPV6, IPV6_PKTINFO, &six, sizeof(six));
	else
		control_add(net, header, IPPROTO_IP, IP_PKTINFO, &four, sizeof(four));
}

static int send_iovecs(struct net *net, const struct message *m, struct iovec *iovecs,
                       uint32_t count)
{
	struct msghdr header = {
		.msg_name = &net->tx.to,
		.msg_namelen = net->tx.to_bytes,
		.msg_iov = iovecs,
		.msg_iovlen = count,
	};

	control_fill(net, &header, m);
	net->stats.tx_calls++;
	return sendmsg(net->facts.fd, &header, MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Counts what happened to a message. -EAGAIN: nothing yet, because the kernel has no room. */
static int message_judge(struct net *net, const struct message *m, int err)
{
	if (err == -EAGAIN || err == -ENOBUFS)
		return -EAGAIN;
	if (err != 0) {
		net->stats.tx_errors += m->segments;
		trouble_note(&net->troubles, &net->tx.path, -err, m->segments);
		return 0;
	}
	net->stats.sent += m->segments;
	net->stats.sent_bytes += m->bytes;
	return 0;
}

static uint32_t message_gather(struct net *net, const struct message *m, const struct net_out out[])
{
	uint32_t count = 0;

	for (uint32_t i = m->first; i != NONE; i = net->tx.next[i]) {
		memcpy(net->tx.iovecs + count, out[i].pieces,
		       out[i].piece_count * sizeof(struct iovec));
		count += out[i].piece_count;
	}
	return count;
}

/*
 * Either the route cannot segment, or the system refuses these datagrams. In the first case we send
 * one by one from now on.
 */
static void send_apart(struct net *net, const struct message *m, const struct net_out out[])
{
	for (uint32_t i = m->first; i != NONE; i = net->tx.next[i]) {
		struct message one = {
			.bytes = out[i].bytes, .segments = 1, .segment_bytes = out[i].bytes};
		int err = send_iovecs(net, &one, (struct iovec *)(uintptr_t)out[i].pieces,
		                      out[i].piece_count);

		if (message_judge(net, &one, err) == -EAGAIN)
			net->stats.tx_errors++;
		net->segment_offload = net->segment_offload && err != 0;
	}
}

static int send_message(struct net *net, const struct message *m, const struct net_out out[])
{
	int err = send_iovecs(net, m, net->tx.iovecs, message_gather(net, m, out));

	if ((err == -EIO || err == -EINVAL) && m->segments > 1) {
		send_apart(net, m, out);
		return 0;
	}
	return message_judge(net, m, err);
}

/*
 * Copies messages from `from` on, of a batch that fits, because the caller lends its memory for this
 * call only.
 */
static void messages_keep(struct net *net, uint32_t from, const struct net_out out[])
{
	uint32_t used = 0;

	net->kept.count = net->kept.at = net->kept.offset = 0;
	net->stats.tx_waits++;
	for (uint32_t i = from; i < net->tx.message_count; i++) {
		uint32_t count = message_gather(net, &net->tx.messages[i], out);

		net->kept.messages[net->kept.count++] = net->tx.messages[i];
		for (uint32_t k = 0; k < count; k++) {
			memcpy(net->kept.bytes + used, net->tx.iovecs[k].iov_base,
			       net->tx.iovecs[k].iov_len);
			used += (uint32_t)net->tx.iovecs[k].iov_len;
		}
	}
}

static bool udp_ready(struct net *net)
{
	while (net->kept.at < net->kept.count) {
		const struct message *m = &net->kept.messages[net->kept.at];
		struct iovec whole = {.iov_base = net->kept.bytes + net->kept.offset,
		                      .iov_len = m->bytes};
		int err = send_iovecs(net, m, &whole, 1);

		if (message_judge(net, m, err) == -EAGAIN)
			return false;
		net->kept.offset += m->bytes;
		net->kept.at++;
	}
	return true;
}

static void udp_limit(struct net *net, uint32_t bytes)
{
	udp_socket_limit(net->facts.fd, bytes);
}

/* Callers' first piece holds the header; one that is shorter is steered like a datagram of zeros. */
static uint8_t steering_of(const struct net_out *out)
{
	const struct iovec *first = out->pieces;

	if (out->piece_count == 0 || first->iov_len <= NET_STEERING_BYTE)
		return 0;
	return ((const uint8_t *)first->iov_base)[NET_STEERING_BYTE];
}

/* Room in this super-packet? */
static bool message_fits(const struct net *net, const struct message *m, const struct net_out *out)
{
	return net->segment_offload && out->bytes == m->segment_bytes &&
	       steering_of(out) == m->steering && m->segments < TX_SEGMENTS_MAX &&
	       m->bytes + out->bytes <= TX_BYTES_MAX &&
	       m->iovec_count + out->piece_count <= TX_IOVECS_MAX;
}

/* The bin with room for this datagram, or a new one in the place of the oldest. */
static struct message *bin_for(struct net *net, uint32_t bins[BINS], const struct net_out *out)
{
	for (uint32_t i = 0; i < BINS; i++)
		if (bins[i] != NONE && message_fits(net, &net->tx.messages[bins[i]], out))
			return &net->tx.messages[bins[i]];
	memmove(bins + 1, bins, (BINS - 1) * sizeof(bins[0]));
	bins[0] = net->tx.message_count++;
	net->tx.messages[bins[0]] = (struct message){
		.segment_bytes = out->bytes, .steering = steering_of(out), .last = NONE};
	return &net->tx.messages[bins[0]];
}

static void sort_into_bins(struct net *net, const struct net_out out[], uint32_t count)
{
	uint32_t bins[BINS], bytes = 0;

	assert(count <= NET_BURST_MAX);
	memset(bins, 0xff, sizeof(bins));
	net->tx.message_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct message *m = bin_for(net, bins, &out[i]);

		if (m->last == NONE)
			m->first = i;
		else
			net->tx.next[m->last] = i;
		net->tx.next[i] = NONE;
		m->last = i;
		m->segments++;
		m->bytes += out[i].bytes;
		m->iovec_count += out[i].piece_count;
		bytes += out[i].bytes;
	}
	assert(bytes <= NET_BATCH_BYTES_MAX);
}

static void send_one(struct net *net, const struct net_path *path, const struct net_out out[])
{
	net->tx.to_bytes = net->six ? net_sockaddr6(&path->to, &net->tx.to)
	                            : net_sockaddr(&path->to, &net->tx.to);
	net->tx.path = *path;
	for (uint32_t i = 0; i < net->tx.message_count; i++) {
		if (send_message(net, &net->tx.messages[i], out) == 0)
			continue;
		messages_keep(net, i, out);
		return;
	}
}

static uint32_t udp_send(struct net *net, const struct net_path to[], uint32_t to_count,
                         const struct net_out out[], uint32_t count)
{
	uint32_t served = 0;

	assert(net->kept.at == net->kept.count);
	sort_into_bins(net, out, count);
	do
		send_one(net, &to[served++], out);
	while (served < to_count && net->kept.at == net->kept.count);
	return served;
}

/* ---- looking ---- */

static uint32_t udp_troubles(struct net *net, struct net_trouble out[NET_TROUBLES_MAX])
{
	return trouble_take(&net->troubles, out);
}

static void udp_stats(const struct net *net, struct net_stats *out)
{
	*out = net->stats;
}

static const struct net_facts *udp_facts(const struct net *net)
{
	return &net->facts;
}

const struct net_backend net_udp = {
	.name = "udp",
	.open = udp_open,
	.recv = udp_recv,
	.send = udp_send,
	.ready = udp_ready,
	.limit = udp_limit,
	.troubles = udp_troubles,
	.stats = udp_stats,
	.facts = udp_facts,
	.close = udp_close,
};
