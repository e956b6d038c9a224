// SPDX-License-Identifier: BSD-3-Clause
/*
 * dpdk_job.c - the workers of dpdk_source.c: join a job and push one dense tensor that does not end
 *
 * client/worker/link.h joins. From then on there is no need for a plan: every block is non-zero, so the header's
 * `planned` says all. Sums are looked at in some frames only. Nothing is sent again: the ports have room for all that
 * is under way, and a job that loses something stands still, which the table shows.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bitmap/control/lines.h"
#include "bitmap/net/net.h"
#include "client/worker/link.h"
#include "ebpf/geometry.h"
#include "tests/bench/dpdk_source.h"
#include "tests/flatten.h"

#define JOIN_US 10000000
#define TAG 1
#define SEGMENTS 1000000
#define LOOK_AT 64 /* one of so many RESULTs is looked at */

struct worker {
	struct link *link;
	int fd;
	struct lines lines;
	char *pending;
	uint32_t next, ack; /* frames: to push, and missing */
	uint32_t told;      /* the ack that it has sent last */
	uint32_t announced; /* segments */
	uint32_t seen[WIRE_WINDOW_MAX];
};

struct job {
	struct source *source;
	uint32_t aggregator_ip, group_ip;
	uint16_t aggregator_port;
	bool peer_known;
	uint16_t channel;
	uint64_t group_token;
	uint32_t first, window, ahead; /* WELCOME's */
	uint32_t base, planned;
	uint16_t sequence;
	uint32_t segment_frames;
	struct announce asked;
	uint32_t turn, looked;
	struct worker workers[SOURCE_WORKERS_MAX];
};

/* ---- control ---- */

static int take_line(void *context, const char *line)
{
	link_line(context, line, source_now_us());
	return 0;
}

static void control_turn(struct worker *w)
{
	char buffer[4096], *line;
	ssize_t count = recv(w->fd, buffer, sizeof(buffer), MSG_DONTWAIT);

	if (count == 0)
		link_gone(w->link, "connection closed");
	else if (count > 0 && lines_feed(&w->lines, buffer, (size_t)count, take_line, w->link) != 0)
		link_gone(w->link, "not a message");
	while ((line = link_take_line(w->link, source_now_us())) != NULL) {
		if (send(w->fd, line, strlen(line), MSG_NOSIGNAL) < 0)
			link_gone(w->link, strerror(errno));
		free(line);
	}
	if (source_now_us() >= link_deadline(w->link))
		link_tick(w->link, source_now_us());
}

static bool worker_connect(struct job *job, uint32_t rank, const struct net_addr *to)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(net_ip_number(&to->ip)),
	                              .sin_port = htons(to->port)};
	struct link_config config = {
		.job = "bench",
		.host = "source",
		.rank = rank,
		.world = job->source->worker_count,
		.payload = WIRE_HEADER_BYTES + job->source->data_bytes + 4,
		.rcvbuf = 64u << 20,
		.silence_us = 60000000,
		.stall_us = 60000000,
		.join_us = JOIN_US,
		.multicast = true,
	};
	struct worker *w = &job->workers[rank];

	if (config.payload < WIRE_PAYLOAD_MIN)
		config.payload = WIRE_PAYLOAD_MIN;
	w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (w->fd < 0 || connect(w->fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    link_open(&config, source_now_us(), &w->link) != 0)
		return false;
	link_connected(w->link, source_now_us());
	return true;
}

/* ---- packets out ---- */

static void datagram_send(struct job *job, uint32_t rank, const struct packet_out *out)
{
	struct source *source = job->source;
	struct frame_route route = {.from_ip = net_ipv4(source->lanes[rank].ip),
	                            .to_ip = net_ipv4(job->aggregator_ip),
	                            .from_port = (uint16_t)(SOURCE_PORT + rank),
	                            .to_port = job->aggregator_port,
	                            .hops = 64};
	uint8_t frame[UDP_BYTES + WIRE_PAYLOAD_MAX];

	memcpy(route.from_mac, source->mac, sizeof(route.from_mac));
	memcpy(route.to_mac, source->peer_mac, sizeof(route.to_mac));
	packet_flatten(out, frame + UDP_BYTES);
	frame_udp(frame, &route, out->bytes, frame_sum(frame + UDP_BYTES, out->bytes), false);
	source_small(source, frame, UDP_BYTES + out->bytes);
}

static struct wire_header head_of(const struct job *job, uint32_t rank, uint8_t kind)
{
	return (struct wire_header){.kind = kind,
	                            .channel = job->channel,
	                            .worker = (uint16_t)rank,
	                            .seal = job->workers[rank].link->welcome.token,
	                            .edge = job->workers[rank].ack,
	                            .sequence = job->sequence,
	                            .pushed = job->workers[rank].ack};
}

static void announce(struct job *job, uint32_t rank, uint32_t segment)
{
	struct wire_header head = head_of(job, rank, WIRE_ANNOUNCE);
	struct packet_out out;

	job->asked.segment = segment;
	packet_begin(&out, &head);
	packet_put_announce(&out, &job->asked);
	datagram_send(job, rank, &out);
}

static void status_send(struct job *job, uint32_t rank)
{
	struct wire_header head = head_of(job, rank, WIRE_STATUS);
	struct status status = {.stamp = 1};
	struct worker *w = &job->workers[rank];
	struct packet_out out;

	w->told = w->ack;
	head.frame = w->ack;
	packet_begin(&out, &head);
	packet_put_status(&out, &status);
	datagram_send(job, rank, &out);
}

/* Segments whose predecessor by `ahead` has been finished by all. */
static void announce_more(struct job *job)
{
	uint32_t done = (job->base - job->first) / job->segment_frames;

	for (uint32_t rank = 0; rank < job->source->worker_count; rank++)
		for (struct worker *w = &job->workers[rank]; w->announced < done + job->ahead;
		     w->announced++)
			announce(job, rank, w->announced);
}

/* ---- packets in ---- */

static bool sums_right(const struct source *source, const struct packet *packet)
{
	const int32_t sum = (int32_t)source->worker_count;
	const float sum_f = (float)source->worker_count;

	if (packet->body_bytes != source->data_bytes)
		return false;
	for (uint32_t i = 0; i < packet->body_bytes; i += 4)
		if (memcmp(packet->body + i,
		           source->integers ? (const void *)&sum : (const void *)&sum_f, 4) != 0)
			return false;
	return true;
}

static void result_take(struct worker *w, uint32_t frame)
{
	if (frame_before(frame, w->ack) || !frame_before(frame, w->ack + WIRE_WINDOW_MAX))
		return;
	w->seen[frame % WIRE_WINDOW_MAX] = frame;
	while (w->seen[w->ack % WIRE_WINDOW_MAX] == w->ack)
		w->ack++;
}

static void packet_take(struct job *job, uint32_t first, uint32_t last, const struct frame *frame)
{
	struct source *source = job->source;
	struct packet packet;

	if (packet_parse(frame->payload, frame->payload_bytes, true, &packet) != WIRE_DROP_NONE ||
	    packet.kind == WIRE_KNOCKED || packet.kind == WIRE_PROBE) {
		for (uint32_t rank = first; rank < last; rank++)
			link_packet(job->workers[rank].link, &packet, frame->payload_bytes,
			            source_now_us());
		return;
	}
	if (frame_before(job->base, packet.edge))
		job->base = packet.edge;
	if (frame_before(job->planned, packet.planned))
		job->planned = packet.planned;
	if (sequence_before(job->sequence, packet.sequence))
		job->sequence = packet.sequence;
	if (packet.kind != WIRE_RESULT)
		return;
	for (uint32_t rank = first; rank < last; rank++)
		result_take(&job->workers[rank], packet.frame);
	source->received++;
	if (job->looked++ % LOOK_AT == 0)
		source->wrong += !sums_right(source, &packet);
}

static void arp_take(struct job *job, const struct frame *arp)
{
	struct source *source = job->source;
	const struct frame_station us = {source->mac, arp->to_ip}, them = {arp->mac, arp->from_ip};
	uint8_t answer[FRAME_SMALL_BYTES_MAX];

	if (arp->asks && net_ip_number(&arp->to_ip) - source->first_ip < source->worker_count)
		source_small(source, answer, frame_answer(answer, &us, &them));
	if (net_ip_number(&arp->from_ip) != job->aggregator_ip || job->peer_known)
		return;
	memcpy(source->peer_mac, arp->mac, sizeof(source->peer_mac));
	job->peer_known = true;
}

static void frame_take(struct job *job, const struct rte_mbuf *mbuf)
{
	uint32_t count = job->source->worker_count, rank;
	struct frame frame;

	frame_parse(rte_pktmbuf_mtod(mbuf, const uint8_t *), rte_pktmbuf_data_len(mbuf),
	            FRAME_IP_CHECKED | FRAME_UDP_CHECKED, &frame);
	if (frame.kind == FRAME_NEIGHBOUR)
		arp_take(job, &frame);
	if (frame.kind != FRAME_UDP || net_ip_number(&frame.from_ip) != job->aggregator_ip)
		return;
	rank = net_ip_number(&frame.to_ip) - job->source->first_ip;
	if (net_ip_multicast(&frame.to_ip))
		packet_take(job, 0, count, &frame);
	else if (rank < count)
		packet_take(job, rank, rank + 1, &frame);
}

static uint32_t receive(struct job *job)
{
	struct rte_mbuf *mbufs[64];
	uint32_t count = rte_eth_rx_burst(job->source->port, 0, mbufs, 64);

	for (uint32_t i = 0; i < count; i++)
		frame_take(job, mbufs[i]);
	rte_pktmbuf_free_bulk(mbufs, count);
	return count;
}

/* ---- streaming ---- */

static uint32_t push_some(struct job *job, uint32_t rank)
{
	struct worker *w = &job->workers[rank];
	struct wire_header head = head_of(job, rank, WIRE_PUSH);
	uint32_t made = 0;

	while (made < SOURCE_BURST && frame_before(w->next, job->planned) &&
	       frame_before(w->next, job->base + job->window) &&
	       w->next - w->ack < job->source->window) {
		head.frame = w->next;
		if (!source_push(job->source, rank, &head))
			break;
		w->next++;
		made++;
	}
	if (made > 0)
		w->told = w->ack;
	else if (w->ack - w->told >= job->window / 4)
		status_send(job, rank);
	return made;
}

uint32_t job_turn(struct job *job)
{
	uint32_t got = receive(job), made;

	announce_more(job);
	if (!source_flush(job->source))
		return got;
	made = push_some(job, job->turn);
	job->turn = (job->turn + 1) % job->source->worker_count;
	source_flush(job->source);
	return got + made;
}

/* ---- joining ---- */

static void neighbours_ask(struct job *job)
{
	struct source *source = job->source;
	const struct net_ip aggregator = net_ipv4(job->aggregator_ip);
	uint8_t frame[FRAME_SMALL_BYTES_MAX];

	for (uint32_t rank = 0; rank < source->worker_count; rank++) {
		const struct frame_station us = {source->mac, net_ipv4(source->lanes[rank].ip)};

		source_small(source, frame, frame_ask(frame, &us, &aggregator));
	}
}

/* WELCOME is here: where to send, and what about. */
static bool welcomed(struct job *job, const struct control_message *welcome)
{
	struct geometry cut;
	struct geometry_input input = {.block_elems = job->source->data_bytes / 4,
	                               .elem_bytes = 4,
	                               .shard_count = 1,
	                               .payload = welcome->payload};
	struct net_addr data;
	const char *address = welcome->data_address;
	struct why why;

	if (address[0] == '\0') /* where the connection goes */
		address = job->source->peer;
	if (net_resolve(address, &data, &why) != 0) {
		fprintf(stderr, "dpdk_source: %s\n", why.text);
		return false;
	}
	job->aggregator_ip = net_ip_number(&data.ip);
	job->aggregator_port = data.port;
	job->channel = welcome->channels[0];
	job->first = job->base = job->planned = welcome->first_frame;
	job->window = welcome->window;
	job->ahead = welcome->segments_ahead;
	job->asked = (struct announce){.tag = TAG,
	                               .block_elems = input.block_elems,
	                               .segment_count = SEGMENTS,
	                               .generation = 1,
	                               .exponent = WIRE_EXPONENT_NONE,
	                               .dtype = job->source->integers ? 5 : 1,
	                               .reduction = 1,
	                               .form = WIRE_NATIVE,
	                               .flags = WIRE_ALL};
	input.count = UINT64_C(1) << 20;
	geometry_compute(&input, &cut);
	job->segment_frames = cut.one.segment_blocks / cut.one.frames.frame_blocks;
	job->asked.block_count = (uint16_t)cut.one.segment_blocks;
	job->asked.count = (uint64_t)cut.one.segment_blocks * SEGMENTS * input.block_elems;
	for (uint32_t rank = 0; rank < job->source->worker_count; rank++) {
		job->workers[rank].next = job->workers[rank].ack = job->first;
		job->workers[rank].told = job->first;
		memset(job->workers[rank].seen, 0xff, sizeof(job->workers[rank].seen));
		job->workers[rank].seen[(job->first - 1) % WIRE_WINDOW_MAX] = job->first - 1;
	}
	return true;
}

/* True when all workers run. */
static bool join_turn(struct job *job, uint64_t *ask_us)
{
	struct source *source = job->source;
	static uint8_t scratch[WIRE_PAYLOAD_MAX];
	struct packet_out out = {.scratch = scratch};
	uint32_t running = 0, probing = 0;

	receive(job);
	for (uint32_t rank = 0; rank < source->worker_count; rank++) {
		struct link *link = job->workers[rank].link;

		control_turn(&job->workers[rank]);
		while (job->peer_known && link_pull(link, source_now_us(), &out))
			datagram_send(job, rank, &out);
		if (link->state == LINK_PROBED)
			link_ready(link, link->size);
		running += link->state == LINK_RUNNING;
		probing += link->state >= LINK_PROBING;
	}
	if (probing == source->worker_count && job->aggregator_ip == 0 &&
	    !welcomed(job, &job->workers[0].link->welcome))
		exit(1);
	if (job->aggregator_ip != 0 && !job->peer_known && source_now_us() > *ask_us) {
		neighbours_ask(job);
		*ask_us = source_now_us() + 50000;
	}
	return running == source->worker_count;
}

struct job *job_join(struct source *source)
{
	struct job *job = calloc(1, sizeof(*job));
	uint64_t until_us = source_now_us() + JOIN_US, ask_us = 0;
	struct why why = {"out of memory"};
	struct net_addr to;

	if (job == NULL || net_resolve(source->peer, &to, &why) != 0) {
		fprintf(stderr, "dpdk_source: %s\n", why.text);
		free(job);
		return NULL;
	}
	job->source = source;
	for (uint32_t rank = 0; rank < source->worker_count; rank++) {
		if (worker_connect(job, rank, &to))
			continue;
		fprintf(stderr, "dpdk_source: cannot connect to %s\n", source->peer);
		return NULL;
	}
	while (!join_turn(job, &ask_us)) {
		for (uint32_t rank = 0; rank < source->worker_count; rank++) {
			if (job->workers[rank].link->state != LINK_FAILED &&
			    source_now_us() < until_us)
				continue;
			fprintf(stderr, "dpdk_source: worker %u cannot join: %s\n", rank,
			        job->workers[rank].link->error);
			return NULL;
		}
	}
	if (job->workers[0].link->start.window < job->window)
		job->window = job->workers[0].link->start.window;
	for (uint32_t rank = 0; rank < source->worker_count; rank++)
		source_aim(source, rank, job->aggregator_ip, job->aggregator_port);
	return job;
}

void job_leave(struct job *job)
{
	for (uint32_t rank = 0; rank < job->source->worker_count; rank++) {
		link_abort(job->workers[rank].link, "aborted", "measured enough");
		control_turn(&job->workers[rank]);
		close(job->workers[rank].fd);
		link_close(job->workers[rank].link);
	}
	free(job);
}
