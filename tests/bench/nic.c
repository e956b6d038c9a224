// SPDX-License-Identifier: BSD-3-Clause
/*
 * nic.c - four workers behind a NIC: a dense i32 stream that reaches an aggregator frame by frame
 *
 *   nic HOST:PORT DEVICE MAC PUSHES verified|checksum
 *
 * DEVICE is this end of a veth whose other end, with address MAC, is the aggregator's device. The
 * workers join as any do, and announce by sockets. Their PUSHes, 1,024 bytes of data each, are
 * made by nic.bpf.c and go through the device's ndo_xdp_xmit(): so the aggregator's device is
 * given what a NIC's driver has after DMA, a page with room around the packet, and runs its
 * program on it, or builds an sk_buff around it. Each worker sends within its credit, sends each
 * PUSH once, and acknowledges what came back; all four together have at most as many under
 * way as a veth's ring holds. A frame that gets lost ends the run with status 1.
 *
 * verified: without a UDP checksum, so that nobody spends time on it: as if hardware had looked at
 * it. checksum: with one, which the aggregator's kernel then looks at.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bitmap/control/lines.h"
#include "bitmap/net/net.h"
#include "bitmap/dtype.h"
#include "client/worker/link.h"
#include "tests/bench/nic.h"
#include "tests/bench/nic.skel.h" /* made by bpftool from nic.bpf.c */

#define BLOCK_ELEMS (NIC_DATA_BYTES / 4)
#define SEGMENT_FRAMES 4096 /* blocks of 1 KiB in 4 MiB: section 4.3 */
#define UNDER_WAY 256       /* PUSHes; places of a veth's ring */
#define PAYLOAD 1472
#define LOST_US 2000000

struct worker {
	struct link *link;
	int control;
	struct lines lines;
	struct net *net;
	uint32_t announced; /* segments */
};

struct nic {
	struct nic_bpf *skeleton;
	struct nic_stream *stream; /* in the program's memory */
	struct worker workers[NIC_WORKERS];
	struct net *group;
	struct net_addr aggregator;
	uint32_t device_ip;
	uint8_t device_mac[6], aggregator_mac[6];
	uint32_t first, frames;         /* of the stream */
	uint32_t base, planned, window; /* as the aggregator says */
	uint32_t next;                  /* first frame without a RESULT */
	uint64_t seen[WIRE_WINDOW_MAX / 64];
	uint64_t heard_us;
	int32_t sums[BLOCK_ELEMS]; /* what each RESULT must hold */
};

__attribute__((format(printf, 1, 2), noreturn)) static void stop(const char *format, ...)
{
	va_list args;

	fputs("nic: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static uint64_t clock_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- joining ---- */

static void worker_open(struct nic *nic, uint32_t rank)
{
	struct worker *worker = &nic->workers[rank];
	struct link_config config = {.job = "nic",
	                             .host = "nic",
	                             .rank = rank,
	                             .world = NIC_WORKERS,
	                             .payload = PAYLOAD,
	                             .rcvbuf = 16 << 20,
	                             .silence_us = 60000000,
	                             .stall_us = 60000000,
	                             .join_us = 10000000,
	                             .multicast = true};
	struct net_config net = {.local.ip = net_ipv4(nic->device_ip),
	                         .payload_max = PAYLOAD,
	                         .buffer_bytes = 1 << 20};
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_addr.s_addr = htonl(net_ip_number(&nic->aggregator.ip)),
	                         .sin_port = htons(nic->aggregator.port)};
	struct why why;

	worker->control = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (worker->control < 0 ||
	    connect(worker->control, (const struct sockaddr *)&to, sizeof(to)) != 0)
		stop("cannot reach the aggregator: %s", strerror(errno));
	if (net_udp.open(&net, &worker->net, &why) != 0)
		stop("%s", why.text);
	if (link_open(&config, clock_us(), &worker->link) != 0)
		stop("out of memory");
	link_connected(worker->link, clock_us());
}

static int take_line(void *context, const char *line)
{
	link_line(context, line, clock_us());
	return 0;
}

static void control_turn(struct worker *worker)
{
	char buffer[4096], *line;
	ssize_t count;

	while ((count = recv(worker->control, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
		lines_feed(&worker->lines, buffer, (size_t)count, take_line, worker->link);
	if (count == 0 && worker->link->state != LINK_FAILED)
		link_gone(worker->link, "connection closed");
	link_tick(worker->link, clock_us());
	while ((line = link_take_line(worker->link, clock_us())) != NULL) {
		(void)!send(worker->control, line, strlen(line), MSG_NOSIGNAL);
		free(line);
	}
	if (worker->link->state == LINK_FAILED)
		stop("%s", worker->link->error);
}

static void worker_send(struct nic *nic, struct worker *worker, const struct packet_out *packet)
{
	struct net_out out = {packet->pieces, packet->piece_count, packet->bytes};

	net_udp.send(worker->net, &(struct net_path){.to = nic->aggregator}, 1, &out, 1);
}

/* KNOCKs, and their answers from `net`, which is the worker's or the group's. */
static void knock_turn(struct nic *nic, struct worker *worker, struct net *net)
{
	uint8_t scratch[PAYLOAD];
	struct net_in in[NET_BURST_MAX];
	struct packet_out out = {.scratch = scratch};
	struct packet packet;
	uint32_t count = net_udp.recv(net, in, NET_BURST_MAX);

	for (uint32_t i = 0; i < count; i++) {
		if (packet_parse(in[i].data, in[i].bytes, true, &packet) != WIRE_DROP_NONE)
			continue;
		for (uint32_t rank = 0; rank < NIC_WORKERS; rank++)
			if (net == nic->group || worker == &nic->workers[rank])
				link_packet(nic->workers[rank].link, &packet, in[i].bytes,
				            clock_us());
	}
	while (link_pull(worker->link, clock_us(), &out))
		worker_send(nic, worker, &out);
}

static void group_open(struct nic *nic)
{
	const struct control_message *welcome = &nic->workers[0].link->welcome;
	struct net_config config = {.device = net_ipv4(nic->device_ip),
	                            .payload_max = PAYLOAD,
	                            .buffer_bytes = 16 << 20};
	struct why why;

	struct net_addr group;

	if (welcome->channel_count != 1 || net_resolve(welcome->group, &group, &why) != 0)
		stop("the aggregator must use multicast, and one thread");
	config.group = group.ip;
	config.local.port = group.port;
	if (net_udp.open(&config, &nic->group, &why) != 0)
		stop("%s", why.text);
}

static void join(struct nic *nic)
{
	uint32_t running = 0;

	for (uint32_t rank = 0; rank < NIC_WORKERS; rank++)
		worker_open(nic, rank);
	while (running < NIC_WORKERS) {
		running = 0;
		for (uint32_t rank = 0; rank < NIC_WORKERS; rank++) {
			struct worker *worker = &nic->workers[rank];

			control_turn(worker);
			if (nic->group == NULL && worker->link->state >= LINK_PROBING)
				group_open(nic);
			if (nic->group != NULL) {
				knock_turn(nic, worker, worker->net);
				knock_turn(nic, worker, nic->group);
			}
			if (worker->link->state == LINK_PROBED)
				link_ready(worker->link, worker->link->size);
			running += worker->link->state == LINK_RUNNING;
		}
		usleep(1000);
	}
}

/* ---- the stream ---- */

/* The ones' complement sum of 16-bit words as they lie in memory. */
static uint32_t sum_words(const void *data, size_t bytes, uint32_t sum)
{
	for (size_t i = 0; i < bytes; i += 2) {
		uint16_t word;

		memcpy(&word, (const uint8_t *)data + i, 2);
		sum += word;
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return sum;
}

/* A worker's PUSH without frame, ack and UDP checksum. */
static void make_head(struct nic *nic, uint32_t rank)
{
	const struct control_message *welcome = &nic->workers[rank].link->welcome;
	uint8_t *head = nic->stream->heads[rank];
	struct ethhdr eth = {.h_proto = htons(ETH_P_IP)};
	struct udphdr udp = {.source = htons(net_udp.facts(nic->workers[rank].net)->address.port),
	                     .dest = htons(nic->aggregator.port),
	                     .len = htons(sizeof(udp) + WIRE_HEADER_BYTES + NIC_DATA_BYTES)};
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tot_len = htons(sizeof(ip) + sizeof(udp) + WIRE_HEADER_BYTES + NIC_DATA_BYTES),
		.frag_off = htons(0x4000),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = htonl(nic->device_ip),
		.daddr = htonl(net_ip_number(&nic->aggregator.ip))};
	struct wire_header wire = {.magic = WIRE_MAGIC,
	                           .version = WIRE_VERSION,
	                           .kind = WIRE_PUSH,
	                           .channel = welcome->channels[0],
	                           .worker = (uint16_t)rank,
	                           .seal = welcome->token};
	uint32_t sum;

	memcpy(eth.h_source, nic->device_mac, 6);
	memcpy(eth.h_dest, nic->aggregator_mac, 6);
	ip.check = (uint16_t)~sum_words(&ip, sizeof(ip), 0);
	memcpy(head, &eth, sizeof(eth));
	memcpy(head + 14, &ip, sizeof(ip));
	memcpy(head + 34, &udp, sizeof(udp));
	memcpy(head + 42, &wire, sizeof(wire));
	sum = sum_words(&ip.saddr, 8, htons(IPPROTO_UDP)); /* both addresses */
	sum = sum_words(&udp.len, 2, sum);
	sum = sum_words(&udp, sizeof(udp), sum);
	sum = sum_words(&wire, sizeof(wire), sum);
	nic->stream->check[rank] = (uint16_t)sum_words(nic->stream->data, NIC_DATA_BYTES, sum);
}

/* Announce all segments that the aggregator's tables have room for. */
static void announce(struct nic *nic, uint32_t rank)
{
	struct worker *worker = &nic->workers[rank];
	const struct control_message *welcome = &worker->link->welcome;
	uint32_t done = (nic->base - nic->first) / SEGMENT_FRAMES;

	while (worker->announced < nic->frames / SEGMENT_FRAMES &&
	       worker->announced < done + welcome->segments_ahead) {
		struct wire_header head = {.kind = WIRE_ANNOUNCE,
		                           .channel = welcome->channels[0],
		                           .worker = (uint16_t)rank,
		                           .seal = welcome->token,
		                           .edge = nic->next};
		struct announce body = {.tag = 1,
		                        .count = (uint64_t)nic->frames * BLOCK_ELEMS,
		                        .block_elems = BLOCK_ELEMS,
		                        .segment = worker->announced++,
		                        .segment_count = nic->frames / SEGMENT_FRAMES,
		                        .block_count = SEGMENT_FRAMES,
		                        .generation = 1,
		                        .exponent = WIRE_EXPONENT_NONE,
		                        .dtype = DTYPE_I32,
		                        .reduction = REDUCE_SUM,
		                        .flags = WIRE_ALL};
		struct packet_out out;

		packet_begin(&out, &head);
		packet_put_announce(&out, &body);
		worker_send(nic, worker, &out);
	}
}

static void result(struct nic *nic, const struct packet *packet)
{
	uint32_t mask = nic->window - 1, frame = packet->frame;

	if (packet->body_bytes != NIC_DATA_BYTES ||
	    memcmp(packet->body, nic->sums, NIC_DATA_BYTES) != 0)
		stop("wrong sums in frame %u", frame - nic->first);
	if (frame_before(frame, nic->next) || frame - nic->next >= nic->window)
		return;
	nic->seen[(frame & mask) / 64] |= UINT64_C(1) << frame % 64;
	while (nic->seen[(nic->next & mask) / 64] >> nic->next % 64 & 1) {
		nic->seen[(nic->next & mask) / 64] &= ~(UINT64_C(1) << nic->next % 64);
		nic->next++;
	}
}

static void receive(struct nic *nic)
{
	struct pollfd fd = {.fd = net_udp.facts(nic->group)->fd, .events = POLLIN};
	struct net_in in[NET_BURST_MAX];
	struct packet packet;
	uint32_t count = net_udp.recv(nic->group, in, NET_BURST_MAX);

	if (count == 0)
		poll(&fd, 1, 10);
	for (uint32_t i = 0; i < count; i++) {
		if (packet_parse(in[i].data, in[i].bytes, true, &packet) != WIRE_DROP_NONE)
			continue;
		if (frame_before(nic->base, packet.edge))
			nic->base = packet.edge;
		if (frame_before(nic->planned, packet.planned))
			nic->planned = packet.planned;
		if (packet.kind == WIRE_RESULT)
			result(nic, &packet);
	}
	if (count > 0)
		nic->heard_us = clock_us();
	else if (clock_us() - nic->heard_us > LOST_US)
		stop("frame %u of %u got lost", nic->next - nic->first, nic->frames);
}

/* How far may the stream go? */
static void allow(struct nic *nic)
{
	uint32_t slack = (NIC_WORKERS - 1) * NIC_SKEW; /* the last worker is that far behind */
	uint32_t end = nic->next - nic->first + UNDER_WAY / NIC_WORKERS;

	if (nic->base + nic->window - nic->first < end)
		end = nic->base + nic->window - nic->first;
	if (nic->planned - nic->first < end)
		end = nic->planned - nic->first == nic->frames ? nic->frames + slack
		                                               : nic->planned - nic->first;
	__atomic_store_n(&nic->stream->ack, nic->next, __ATOMIC_RELAXED);
	__atomic_store_n(&nic->stream->turns_max, (uint64_t)end * NIC_WORKERS, __ATOMIC_RELEASE);
}

/* The kernel's side: it makes frames until the signal comes. */
static void *make_frames(void *context)
{
	struct nic *nic = context;
	uint8_t packet[NIC_HEAD_BYTES + NIC_DATA_BYTES] = {0};
	struct bpf_test_run_opts options = {.sz = sizeof(options),
	                                    .data_in = packet,
	                                    .data_size_in = sizeof(packet),
	                                    .repeat = INT32_MAX,
	                                    .flags = BPF_F_TEST_XDP_LIVE_FRAMES,
	                                    .batch_size = NIC_BATCH};

	if (bpf_prog_test_run_opts(bpf_program__fd(nic->skeleton->progs.nic), &options) != 0 &&
	    errno != EINTR)
		stop("the kernel does not run the program: %s", strerror(errno));
	return NULL;
}

static void wake(int number)
{
	(void)number;
}

static void stream(struct nic *nic)
{
	struct sigaction action = {.sa_handler = wake};
	uint64_t control_us = 0;
	pthread_t thread;

	nic->first = nic->next = nic->base = nic->planned =
		nic->workers[0].link->welcome.first_frame;
	nic->window = nic->workers[0].link->start.window;
	nic->stream->first = nic->first;
	nic->stream->total = nic->frames;
	nic->heard_us = clock_us();
	for (uint32_t rank = 0; rank < NIC_WORKERS; rank++)
		make_head(nic, rank);
	sigaction(SIGUSR1, &action, NULL);
	if (pthread_create(&thread, NULL, make_frames, nic) != 0)
		stop("cannot start a thread");
	while (nic->next != nic->first + nic->frames) {
		for (uint32_t rank = 0; rank < NIC_WORKERS; rank++) {
			announce(nic, rank);
			if (nic->heard_us - control_us > 1000000)
				control_turn(&nic->workers[rank]);
		}
		if (nic->heard_us - control_us > 1000000)
			control_us = nic->heard_us;
		receive(nic);
		allow(nic);
	}
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
}

/* ---- in and out ---- */

static void device_take(struct nic *nic, const char *name)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (fd < 0 || ioctl(fd, SIOCGIFHWADDR, &request) != 0)
		stop("%s: %s", name, strerror(errno));
	memcpy(nic->device_mac, request.ifr_hwaddr.sa_data, 6);
	if (ioctl(fd, SIOCGIFADDR, &request) != 0)
		stop("%s: %s", name, strerror(errno));
	nic->device_ip = ntohl(
		((const struct sockaddr_in *)(const void *)&request.ifr_addr)->sin_addr.s_addr);
	close(fd);
	nic->stream->out = if_nametoindex(name);
}

static void leave(struct nic *nic)
{
	for (uint32_t rank = 0; rank < NIC_WORKERS; rank++) {
		struct worker *worker = &nic->workers[rank];

		link_leave(worker->link);
		control_turn(worker);
		link_close(worker->link);
		net_udp.close(worker->net);
		close(worker->control);
	}
	net_udp.close(nic->group);
	nic_bpf__destroy(nic->skeleton);
}

int main(int argc, char **argv)
{
	static struct nic nic;
	uint8_t *mac = nic.aggregator_mac;
	struct why why;

	if (argc != 6 || sscanf(argv[3], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2],
	                        &mac[3], &mac[4], &mac[5]) != 6) {
		fprintf(stderr, "usage: nic HOST:PORT DEVICE MAC PUSHES verified|checksum\n");
		return 2;
	}
	if (net_resolve(argv[1], &nic.aggregator, &why) != 0)
		stop("%s", why.text);
	nic.skeleton = nic_bpf__open_and_load();
	if (nic.skeleton == NULL)
		stop("cannot load the program (root can): %s", strerror(errno));
	nic.stream = &nic.skeleton->bss->stream;
	nic.stream->checked = strcmp(argv[5], "checksum") == 0;
	for (size_t i = 0; i < NIC_DATA_BYTES; i++)
		nic.stream->data[i] = (uint8_t)(i * 37);
	memcpy(nic.sums, nic.stream->data, NIC_DATA_BYTES);
	for (size_t i = 0; i < BLOCK_ELEMS; i++)
		nic.sums[i] = (int32_t)((uint32_t)nic.sums[i] * NIC_WORKERS);
	device_take(&nic, argv[2]);
	nic.frames = (uint32_t)strtoul(argv[4], NULL, 10) / NIC_WORKERS / SEGMENT_FRAMES *
	             SEGMENT_FRAMES;
	join(&nic);
	stream(&nic);
	leave(&nic);
	return 0;
}
