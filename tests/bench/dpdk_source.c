// SPDX-License-Identifier: BSD-3-Clause
/*
 * dpdk_source.c - PUSHes of several workers, by DPDK, for an aggregator or for something that echoes frames
 *
 *   dpdk_source -e EAL -p echo|HOST:PORT [-n WORKERS] [-b BYTES] [-i] [-c] [-w WINDOW] [-a FIRST-ADDRESS]
 *               [-s SECONDS] [-t PID/TID]
 *
 * It has to be faster than what it feeds, so it does not add up, find or copy anything: dpdk_job.c plays the
 * workers' half of the protocol as far as a dense tensor without end needs it, and looks at some of the sums. Both kinds of
 * peer get the same frames. -i: int32; -c: no UDP checksums, as if a port had checked them; -t: the thread whose CPU
 * time is counted meanwhile. Prints a line of JSON, and stays until its input ends.
 */

#include "tests/bench/dpdk_source.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>

#define MBUFS 8191
#define DESCRIPTORS 1024
#define WARM_US 300000
#define UP_US 10000000
#define STUCK_US 10000
#define DATA_AT (UDP_BYTES + WIRE_HEADER_BYTES)

uint64_t source_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- frames ---- */

void source_aim(struct source *source, uint32_t worker, uint32_t to_ip, uint16_t to_port)
{
	struct source_lane *lane = &source->lanes[worker];
	struct frame_route route = {.from_ip = net_ipv4(lane->ip),
	                            .to_ip = net_ipv4(to_ip),
	                            .from_port = (uint16_t)(SOURCE_PORT + worker),
	                            .to_port = to_port,
	                            .hops = 64};

	memcpy(route.from_mac, source->mac, sizeof(route.from_mac));
	memcpy(route.to_mac, source->peer_mac, sizeof(route.to_mac));
	frame_udp(lane->headers, &route, WIRE_HEADER_BYTES + source->data_bytes, 0, false);
}

bool source_push(struct source *source, uint32_t worker, const struct wire_header *head)
{
	const struct source_lane *lane = &source->lanes[worker];
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(source->pushes);
	struct packet_out packet;
	uint16_t sum;
	uint8_t *at;

	if (mbuf == NULL)
		return false;
	packet_begin(&packet, head);
	mbuf->data_len = (uint16_t)(DATA_AT + source->data_bytes);
	mbuf->pkt_len = mbuf->data_len;
	at = rte_pktmbuf_mtod(mbuf, uint8_t *);
	memcpy(at, lane->headers, UDP_BYTES);
	memcpy(at + UDP_BYTES, packet.head, WIRE_HEADER_BYTES);
	memcpy(&sum, at + UDP_BYTES - 2, sizeof(sum));
	sum = frame_fold((uint16_t)~sum + frame_sum(packet.head, WIRE_HEADER_BYTES) +
	                 source->data_sum);
	sum = source->sums ? (uint16_t)(sum == 0xffff ? sum : ~sum) : 0;
	memcpy(at + UDP_BYTES - 2, &sum, sizeof(sum));
	source->out[source->out_count++] = mbuf;
	return true;
}

void source_small(struct source *source, const void *frame, uint32_t bytes)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(source->others);

	if (mbuf == NULL)
		return;
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)bytes), frame, bytes);
	if (rte_eth_tx_burst(source->port, 0, &mbuf, 1) == 0)
		rte_pktmbuf_free(mbuf);
}

bool source_flush(struct source *source)
{
	uint16_t sent = 0;

	if (source->out_count > 0)
		sent = rte_eth_tx_burst(source->port, 0, source->out, (uint16_t)source->out_count);
	source->sent += sent;
	source->out_count -= sent;
	memmove(source->out, source->out + sent, source->out_count * sizeof(source->out[0]));
	return source->out_count == 0;
}

/* ---- the port ---- */

static void fill_data(struct rte_mempool *pool, void *context, void *object, unsigned index)
{
	const struct source *source = context;
	struct rte_mbuf *mbuf = object;
	const int32_t one = 1;
	const float one_f = 1;
	uint8_t *at = (uint8_t *)mbuf->buf_addr + RTE_PKTMBUF_HEADROOM + DATA_AT;

	(void)pool;
	(void)index;
	for (uint32_t i = 0; i < source->data_bytes; i += 4)
		memcpy(at + i, source->integers ? (const void *)&one : (const void *)&one_f, 4);
}

static bool port_open(struct source *source)
{
	uint16_t room = (uint16_t)(RTE_PKTMBUF_HEADROOM +
	                           RTE_ALIGN(DATA_AT + source->data_bytes + 64, 2048));
	uint16_t rx_count = DESCRIPTORS, tx_count = DESCRIPTORS;
	struct rte_eth_conf conf = {.rxmode.mtu = source->data_bytes + DATA_AT - RTE_ETHER_HDR_LEN};
	struct rte_ether_addr mac;
	uint64_t until_us = source_now_us() + UP_US;
	struct rte_eth_link link = {0};
	struct rte_mbuf *mbuf;

	source->pushes = rte_pktmbuf_pool_create("pushes", MBUFS, 256, 0, room, SOCKET_ID_ANY);
	source->others = rte_pktmbuf_pool_create("others", MBUFS, 256, 0, room, SOCKET_ID_ANY);
	if (source->pushes == NULL || source->others == NULL)
		return false;
	rte_mempool_obj_iter(source->pushes, fill_data, source);
	mbuf = rte_pktmbuf_alloc(source->pushes);
	source->data_sum = frame_sum((uint8_t *)mbuf->buf_addr + RTE_PKTMBUF_HEADROOM + DATA_AT,
	                             source->data_bytes);
	rte_pktmbuf_free(mbuf);
	if (rte_eth_dev_configure(source->port, 1, 1, &conf) != 0) {
		conf.rxmode.mtu = 0;
		if (rte_eth_dev_configure(source->port, 1, 1, &conf) != 0)
			return false;
	}
	rte_eth_dev_adjust_nb_rx_tx_desc(source->port, &rx_count, &tx_count);
	if (rte_eth_rx_queue_setup(source->port, 0, rx_count, 0, NULL, source->others) != 0 ||
	    rte_eth_tx_queue_setup(source->port, 0, tx_count, 0, NULL) != 0 ||
	    rte_eth_dev_start(source->port) != 0 || rte_eth_macaddr_get(source->port, &mac) != 0)
		return false;
	rte_eth_allmulticast_enable(source->port);
	memcpy(source->mac, mac.addr_bytes, sizeof(source->mac));
	do {
		usleep(10000);
		if (rte_eth_link_get_nowait(source->port, &link) != 0)
			return false;
	} while (link.link_status != RTE_ETH_LINK_UP && source_now_us() < until_us);
	return link.link_status == RTE_ETH_LINK_UP;
}

/* ---- a peer that sends back what it gets ---- */

struct echo {
	struct source *source;
	uint32_t under_way, worker, frame;
	uint64_t heard_us;
};

static void echo_receive(struct echo *echo, struct rte_mbuf *frames[], uint32_t count)
{
	struct source *source = echo->source;

	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *at = rte_pktmbuf_mtod(frames[i], const uint8_t *);
		bool ours = rte_pktmbuf_data_len(frames[i]) == DATA_AT + source->data_bytes &&
		            at[UDP_BYTES] == (WIRE_MAGIC & 0xff);

		source->received += ours;
		echo->under_way -= ours && echo->under_way > 0;
	}
	rte_pktmbuf_free_bulk(frames, count);
}

static uint32_t echo_turn(struct echo *echo)
{
	struct source *source = echo->source;
	struct rte_mbuf *frames[64];
	uint32_t got = rte_eth_rx_burst(source->port, 0, frames, 64), made = 0;
	uint32_t limit = source->window * source->worker_count;

	echo_receive(echo, frames, got);
	if (got > 0)
		echo->heard_us = 0;
	else if (echo->heard_us == 0)
		echo->heard_us = source_now_us();
	else if (echo->under_way > 0 && source_now_us() - echo->heard_us > STUCK_US) {
		source->lost += echo->under_way;
		echo->under_way = 0;
		echo->heard_us = 0;
	}
	if (!source_flush(source) || echo->under_way + SOURCE_BURST > limit)
		return got;
	for (; made < SOURCE_BURST; made++) {
		struct wire_header head = {.kind = WIRE_PUSH,
		                           .channel = 1,
		                           .worker = (uint16_t)echo->worker,
		                           .frame = echo->frame + made,
		                           .edge = echo->frame};

		if (!source_push(source, echo->worker, &head))
			break;
	}
	source_flush(source);
	echo->under_way += made;
	if (++echo->worker == source->worker_count) {
		echo->worker = 0;
		echo->frame += SOURCE_BURST;
	}
	return got + made;
}

/* ---- measuring ---- */

struct clocks {
	uint64_t now_us, task_ns, own_ns, sent, received, turns, idle_turns;
};

static uint64_t task_ns(const char *task)
{
	unsigned pid, tid;
	unsigned long long ns = 0;
	char path[64];
	FILE *file;

	if (task == NULL || sscanf(task, "%u/%u", &pid, &tid) != 2)
		return 0;
	snprintf(path, sizeof(path), "/proc/%u/task/%u/schedstat", pid, tid);
	file = fopen(path, "re");
	if (file == NULL || fscanf(file, "%llu", &ns) != 1)
		ns = 0;
	if (file != NULL)
		fclose(file);
	return ns;
}

static void clocks_read(struct clocks *clocks, const struct source *source, const char *task)
{
	struct timespec own;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
	clocks->own_ns = (uint64_t)own.tv_sec * 1000000000 + (uint64_t)own.tv_nsec;
	clocks->task_ns = task_ns(task);
	clocks->now_us = source_now_us();
	clocks->sent = source->sent;
	clocks->received = source->received;
}

static void run_until(struct echo *echo, struct job *job, uint64_t until_us, struct clocks *clocks)
{
	uint32_t look = 0;

	while (++look % 64 != 0 || source_now_us() < until_us) {
		clocks->turns++;
		clocks->idle_turns += (job != NULL ? job_turn(job) : echo_turn(echo)) == 0;
	}
}

static int measure(struct source *source, double seconds, const char *task)
{
	struct echo echo = {.source = source};
	struct clocks begin = {0}, end = {0};
	struct job *job = NULL;

	for (uint32_t i = 0; i < source->worker_count; i++)
		source->lanes[i].ip = source->first_ip + i;
	if (strcmp(source->peer, "echo") == 0) {
		memset(source->peer_mac, 2, sizeof(source->peer_mac));
		for (uint32_t i = 0; i < source->worker_count; i++)
			source_aim(source, i, source->first_ip - 1, 5555);
	} else {
		job = job_join(source);
		if (job == NULL)
			return 1;
	}
	run_until(&echo, job, source_now_us() + WARM_US, &end);
	clocks_read(&begin, source, task);
	end = (struct clocks){0};
	run_until(&echo, job, begin.now_us + (uint64_t)(seconds * 1e6), &end);
	clocks_read(&end, source, task);
	if (job != NULL)
		job_leave(job);
	printf("{\"seconds\": %.6f, \"cpu\": %.6f, \"own_cpu\": %.6f, \"sent\": %" PRIu64
	       ", \"received\": %" PRIu64 ", \"idle\": %.3f, \"lost\": %" PRIu64
	       ", \"wrong\": %" PRIu64 "}\n",
	       (double)(end.now_us - begin.now_us) / 1e6,
	       (double)(end.task_ns - begin.task_ns) / 1e9,
	       (double)(end.own_ns - begin.own_ns) / 1e9, end.sent - begin.sent,
	       end.received - begin.received, (double)end.idle_turns / (double)end.turns,
	       source->lost, source->wrong);
	return source->wrong == 0 && end.received > begin.received ? 0 : 1;
}

static int eal_start(char *arguments)
{
	static char program[] = "dpdk_source";
	char *words[64] = {program};
	int count = 1;

	for (char *word = strtok(arguments, " \t"); word != NULL && count < 63;
	     word = strtok(NULL, " \t"))
		words[count++] = word;
	return rte_eal_init(count, words);
}

int main(int argc, char **argv)
{
	struct source source = {.worker_count = 4, .data_bytes = 1024, .sums = true, .window = 256};
	const char *task = NULL, *first = "10.99.0.11";
	char *eal = NULL;
	double seconds = 2;
	int option, status;

	while ((option = getopt(argc, argv, "e:p:n:b:icw:a:s:t:")) != -1) {
		switch (option) {
		case 'e':
			eal = optarg;
			break;
		case 'p':
			source.peer = optarg;
			break;
		case 'n':
			source.worker_count = (uint32_t)atoi(optarg);
			break;
		case 'b':
			source.data_bytes = (uint32_t)atoi(optarg);
			break;
		case 'i':
			source.integers = true;
			break;
		case 'c':
			source.sums = false;
			break;
		case 'w':
			source.window = (uint32_t)atoi(optarg);
			break;
		case 'a':
			first = optarg;
			break;
		case 's':
			seconds = atof(optarg);
			break;
		case 't':
			task = optarg;
			break;
		default:
			return 2;
		}
	}
	if (eal == NULL || source.peer == NULL || source.worker_count - 1 >= SOURCE_WORKERS_MAX ||
	    source.data_bytes % 4 != 0 || source.data_bytes == 0) {
		fprintf(stderr, "dpdk_source: see the head of dpdk_source.c\n");
		return 2;
	}
	source.first_ip = ntohl(inet_addr(first));
	if (eal_start(eal) < 0 || rte_eth_dev_count_avail() != 1) {
		fprintf(stderr, "dpdk_source: DPDK does not start with one port\n");
		return 1;
	}
	if (!port_open(&source)) {
		fprintf(stderr, "dpdk_source: the port cannot be used, or nobody is behind it\n");
		return 1;
	}
	status = measure(&source, seconds, task);
	fflush(stdout);
	/* Whoever polls the other end of a memif may crash when this end goes first. */
	while (getchar() != EOF)
		;
	rte_eth_dev_stop(source.port);
	rte_eal_cleanup();
	return status;
}
