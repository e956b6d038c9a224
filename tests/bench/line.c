// SPDX-License-Identifier: BSD-3-Clause
/*
 * line.c - a long line between two network interfaces, for kernels without netem
 *
 *   line ONE OTHER DELAY_MS LOSS_PERCENT
 *
 * What comes in by one interface goes out by the other DELAY_MS later, in order, unless chance loses it. The rate is the
 * business of the queues before it. It goes before all other processes, or its waits for a CPU would be the line's. It
 * prints "ready"; on SIGTERM what passed, what chance lost, and what found no room, which should be nothing. Needs root.
 * Frames must be whole: no offloads before these interfaces.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define FRAME_MAX 2048
#define ROOM 32768 /* frames under way in a direction: 100 ms at 3.9 Gbit/s */
#define BATCH 64
#define SOCKET_BYTES (64 << 20) /* What is sent counts until it has passed the queues behind. */

struct frame {
	uint64_t due_ns;
	uint32_t bytes;
	uint8_t data[FRAME_MAX];
};

struct way {
	int from, to;
	struct frame *frames; /* [ROOM], a ring */
	uint64_t in, out;
	uint64_t lost, full;
};

static volatile sig_atomic_t ends;

static void on_term(int number)
{
	(void)number;
	ends = 1;
}

static void fail(const char *what)
{
	fprintf(stderr, "line: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int interface_open(const char *name)
{
	const struct sockaddr_ll address = {.sll_family = AF_PACKET,
	                                    .sll_protocol = htons(ETH_P_ALL),
	                                    .sll_ifindex = (int)if_nametoindex(name)};
	const struct packet_mreq all = {.mr_ifindex = address.sll_ifindex,
	                                .mr_type = PACKET_MR_PROMISC};
	const int on = 1, bytes = SOCKET_BYTES;
	const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) != 0 ||
	    bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
		fail(name);
	return fd;
}

/* Takes what has come. */
static void way_read(struct way *way, uint64_t delay_ns, double loss)
{
	struct mmsghdr messages[BATCH];
	struct iovec pieces[BATCH];
	int count;

	do {
		const uint64_t room = ROOM - (way->in - way->out);
		const unsigned int most = room < BATCH ? (unsigned int)room : BATCH;
		const uint64_t first = way->in;
		uint64_t due_ns;

		if (most == 0) { /* it is lost, as in a full queue */
			uint8_t frame[FRAME_MAX];

			while (recv(way->from, frame, sizeof(frame), 0) >= 0)
				way->full++;
			return;
		}
		memset(messages, 0, sizeof(messages));
		for (unsigned int i = 0; i < most; i++) {
			pieces[i] = (struct iovec){way->frames[(first + i) % ROOM].data, FRAME_MAX};
			messages[i].msg_hdr.msg_iov = &pieces[i];
			messages[i].msg_hdr.msg_iovlen = 1;
		}
		count = recvmmsg(way->from, messages, most, MSG_TRUNC, NULL);
		due_ns = now_ns() + delay_ns;
		for (int i = 0; i < count; i++) {
			struct frame *frame = &way->frames[(first + (uint64_t)i) % ROOM];
			const bool lost = drand48() < loss;

			if (messages[i].msg_len > FRAME_MAX) {
				fprintf(stderr, "line: a frame of %u bytes: offloads are on\n",
				        messages[i].msg_len);
				exit(1);
			}
			frame->due_ns = due_ns;
			frame->bytes = lost ? 0 : messages[i].msg_len;
			way->lost += lost;
			way->in++;
		}
	} while (count == BATCH);
}

/* Sends what is due. Returns when the next one is. */
static uint64_t way_write(struct way *way)
{
	const uint64_t now = now_ns();

	while (way->out < way->in && way->frames[way->out % ROOM].due_ns <= now) {
		struct mmsghdr messages[BATCH] = {0};
		struct iovec pieces[BATCH];
		unsigned int count = 0;
		int sent;

		for (; way->out < way->in && count < BATCH; way->out++) {
			struct frame *frame = &way->frames[way->out % ROOM];

			if (frame->due_ns > now)
				break;
			if (frame->bytes == 0)
				continue;
			pieces[count] = (struct iovec){frame->data, frame->bytes};
			messages[count].msg_hdr.msg_iov = &pieces[count];
			messages[count++].msg_hdr.msg_iovlen = 1;
		}
		for (unsigned int done = 0; done < count; done += (unsigned int)sent) {
			sent = sendmmsg(way->to, messages + done, count - done, 0);
			if (sent <= 0) { /* no buffer: the other end's is full */
				way->full++;
				sent = 1;
			}
		}
	}
	return way->out < way->in ? way->frames[way->out % ROOM].due_ns : UINT64_MAX;
}

int main(int argc, char **argv)
{
	struct way ways[2];
	struct pollfd polls[2];
	uint64_t delay_ns;
	double loss;

	if (argc != 5) {
		fprintf(stderr, "usage: line ONE OTHER DELAY_MS LOSS_PERCENT\n");
		return 2;
	}
	delay_ns = (uint64_t)(strtod(argv[3], NULL) * 1e6);
	loss = strtod(argv[4], NULL) / 100;
	signal(SIGTERM, on_term);
	if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}) != 0)
		fail("the CPU's priority");
	for (int i = 0; i < 2; i++)
		polls[i] = (struct pollfd){.fd = interface_open(argv[1 + i]), .events = POLLIN};
	for (int i = 0; i < 2; i++) {
		ways[i] = (struct way){.from = polls[i].fd, .to = polls[1 - i].fd};
		ways[i].frames = calloc(ROOM, sizeof(*ways[i].frames));
		if (ways[i].frames == NULL)
			fail("memory");
	}
	puts("ready");
	fflush(stdout);
	while (!ends) {
		uint64_t due_ns = UINT64_MAX, now;
		struct timespec wait;

		for (int i = 0; i < 2; i++) {
			uint64_t next;

			way_read(&ways[i], delay_ns, loss);
			next = way_write(&ways[i]);
			due_ns = next < due_ns ? next : due_ns;
		}
		now = now_ns();
		wait.tv_sec = 0;
		wait.tv_nsec = due_ns > now + 100000000 ? 100000000
		               : due_ns > now           ? (long)(due_ns - now)
		                                        : 0;
		(void)ppoll(polls, 2, &wait, NULL);
	}
	for (int i = 0; i < 2; i++) {
		struct tpacket_stats stats;
		socklen_t bytes = sizeof(stats);

		if (getsockopt(polls[i].fd, SOL_PACKET, PACKET_STATISTICS, &stats, &bytes) == 0)
			ways[i].full += stats.tp_drops;
		printf("from %s: %llu frames, %llu lost, %llu found no room\n", argv[1 + i],
		       (unsigned long long)ways[i].in, (unsigned long long)ways[i].lost,
		       (unsigned long long)ways[i].full);
	}
	return 0;
}
