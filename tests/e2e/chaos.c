// SPDX-License-Identifier: BSD-3-Clause
/*
 * chaos.c - a bad network between workers on this host and an aggregator
 *
 *   chaos LISTEN_PORT SERVER_HOST:PORT SEED LOSS DUPLICATE REORDER     (each in per cent)
 *
 * TCP is passed on as it is. Datagrams are lost, doubled, and held back until some later
 * ones have gone; each worker gets a socket of its own towards the aggregator, as behind * a NAT. Runs until it is killed; prints what it did on SIGTERM.
 *
 * What is written to its standard input happens to all datagrams from then on, a word a line:
 *
 *   mute       none gets to the aggregator        deaf     none gets to a worker
 *   narrow     none of more than 1472 bytes gets through
 *   rebind     the NAT forgets: workers get other addresses, and what comes for the old ones is lost
 *   well       none of that any more
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bitmap/net/net.h"

#define CLIENTS_MAX 64
#define HELD_MAX 256
#define BYTES_MAX 65536
#define NONE UINT32_MAX

struct client {
	struct sockaddr_in address;
	int fd; /* towards the aggregator */
};

struct relay {
	int a, b;
};

struct held {
	uint32_t bytes;
	uint32_t client;
	bool to_server;
	uint32_t countdown; /* packets that go first */
	uint8_t *data;
};

static struct sockaddr_in server;
static int udp_fd, tcp_fd;
static struct client clients[CLIENTS_MAX];
static uint32_t client_count;
static struct relay relays[CLIENTS_MAX];
static uint32_t relay_count;
static struct held held[HELD_MAX];
static uint32_t held_count;
static uint32_t loss, duplicate, reorder; /* in millionths */
static uint64_t state;
static unsigned long passed, lost, doubled, delayed;
static bool mute, deaf, narrow;
static volatile sig_atomic_t stopping;

static uint32_t roll(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % 1000000;
}

static void stop(int number)
{
	(void)number;
	stopping = 1;
}

static void send_now(uint32_t client, bool to_server, const uint8_t *data, uint32_t bytes)
{
	const struct sockaddr_in *to = to_server ? &server : &clients[client].address;
	int fd = to_server ? clients[client].fd : udp_fd;

	passed++;
	(void)!sendto(fd, data, bytes, 0, (const struct sockaddr *)to, sizeof(*to));
}

/* What has been held back long enough goes out. */
static void release(void)
{
	for (uint32_t i = 0; i < held_count;) {
		if (--held[i].countdown > 0) {
			i++;
			continue;
		}
		send_now(held[i].client, held[i].to_server, held[i].data, held[i].bytes);
		free(held[i].data);
		held[i] = held[--held_count];
	}
}

static void pass(uint32_t client, bool to_server, const uint8_t *data, uint32_t bytes)
{
	if (roll() < loss || (to_server ? mute : deaf) || (narrow && bytes > 1472)) {
		lost++;
		return;
	}
	if (roll() < reorder && held_count < HELD_MAX) {
		struct held *one = &held[held_count++];

		delayed++;
		*one = (struct held){bytes, client, to_server, 2 + roll() % 40, malloc(bytes)};
		memcpy(one->data, data, bytes);
		return;
	}
	send_now(client, to_server, data, bytes);
	if (roll() < duplicate) {
		doubled++;
		send_now(client, to_server, data, bytes);
	}
	release();
}

static int udp_socket(uint32_t ip, uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip), .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), bytes = 8 << 20;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		perror("chaos: bind UDP");
		exit(1);
	}
	return fd;
}

static uint32_t client_for(const struct sockaddr_in *from)
{
	for (uint32_t i = 0; i < client_count; i++)
		if (clients[i].address.sin_port == from->sin_port)
			return i;
	if (client_count == CLIENTS_MAX)
		return NONE;
	clients[client_count].address = *from;
	clients[client_count].fd = udp_socket(INADDR_ANY, 0);
	return client_count++;
}

static void obey(const char *word)
{
	mute = strcmp(word, "mute\n") == 0;
	deaf = strcmp(word, "deaf\n") == 0;
	narrow = strcmp(word, "narrow\n") == 0;
	for (uint32_t i = 0; strcmp(word, "rebind\n") == 0 && i < client_count; i++) {
		int old = clients[i].fd;

		clients[i].fd = udp_socket(INADDR_ANY, 0);
		close(old);
	}
}

/* False: nothing more will be said. */
static bool from_tester(void)
{
	char word[16];
	ssize_t bytes = read(STDIN_FILENO, word, sizeof(word) - 1);

	if (bytes <= 0)
		return false;
	word[bytes] = '\0';
	obey(word);
	return true;
}

static void from_workers(void)
{
	static uint8_t data[BYTES_MAX];
	struct sockaddr_in from;
	socklen_t size = sizeof(from);
	ssize_t bytes;

	while ((bytes = recvfrom(udp_fd, data, sizeof(data), 0, (struct sockaddr *)&from, &size)) >=
	       0) {
		uint32_t client = client_for(&from);

		if (client != NONE)
			pass(client, true, data, (uint32_t)bytes);
	}
}

static void from_server(uint32_t client)
{
	static uint8_t data[BYTES_MAX];
	ssize_t bytes;

	while ((bytes = recv(clients[client].fd, data, sizeof(data), 0)) >= 0)
		pass(client, false, data, (uint32_t)bytes);
}

/* ---- TCP ---- */

static void relay_new(void)
{
	int a = accept(tcp_fd, NULL, NULL), b = socket(AF_INET, SOCK_STREAM, 0);

	if (a < 0 || relay_count == CLIENTS_MAX ||
	    connect(b, (const struct sockaddr *)&server, sizeof(server)) != 0) {
		close(a);
		close(b);
		return;
	}
	relays[relay_count++] = (struct relay){a, b};
}

static bool copy(int from, int to)
{
	char data[65536];
	ssize_t bytes = read(from, data, sizeof(data));

	return bytes > 0 && write(to, data, (size_t)bytes) == bytes;
}

static void relay_run(uint32_t index, bool a_ready, bool b_ready)
{
	struct relay *relay = &relays[index];

	if ((a_ready && !copy(relay->a, relay->b)) || (b_ready && !copy(relay->b, relay->a))) {
		close(relay->a);
		close(relay->b);
		*relay = relays[--relay_count];
	}
}

static void listen_tcp(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	                              .sin_port = htons(port)};
	int on = 1;

	tcp_fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(tcp_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(tcp_fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(tcp_fd, 16) != 0) {
		perror("chaos: listen");
		exit(1);
	}
}

static void turn(void)
{
	static bool told = true;
	struct pollfd fds[3 + 3 * CLIENTS_MAX];
	uint32_t clients_now = client_count, relays_now = relay_count, n = 0;

	fds[n++] = (struct pollfd){.fd = tcp_fd, .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = udp_fd, .events = POLLIN};
	for (uint32_t i = 0; i < clients_now; i++)
		fds[n++] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
	for (uint32_t i = 0; i < relays_now; i++) {
		fds[n++] = (struct pollfd){.fd = relays[i].a, .events = POLLIN};
		fds[n++] = (struct pollfd){.fd = relays[i].b, .events = POLLIN};
	}
	fds[n++] = (struct pollfd){.fd = told ? STDIN_FILENO : -1, .events = POLLIN};
	if (poll(fds, n, 5) == 0) {
		release(); /* nothing overtakes what is held any more */
		return;
	}
	if (fds[n - 1].revents)
		told = from_tester();
	if (fds[1].revents)
		from_workers();
	for (uint32_t i = 0; i < clients_now; i++)
		if (fds[2 + i].revents)
			from_server(i);
	for (uint32_t i = relays_now; i-- > 0;)
		if (fds[2 + clients_now + 2 * i].revents || fds[3 + clients_now + 2 * i].revents)
			relay_run(i, fds[2 + clients_now + 2 * i].revents != 0,
			          fds[3 + clients_now + 2 * i].revents != 0);
	if (fds[0].revents)
		relay_new();
}

int main(int argc, char **argv)
{
	struct why why;
	struct net_addr to;

	if (argc != 7 || net_resolve(argv[2], &to, &why) != 0) {
		fprintf(stderr,
		        "usage: chaos LISTEN_PORT SERVER_HOST:PORT SEED LOSS DUPLICATE REORDER\n");
		return 2;
	}
	server = (struct sockaddr_in){.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(net_ip_number(&to.ip)),
	                              .sin_port = htons(to.port)};
	state = strtoull(argv[3], NULL, 10);
	loss = (uint32_t)(atof(argv[4]) * 1e4);
	duplicate = (uint32_t)(atof(argv[5]) * 1e4);
	reorder = (uint32_t)(atof(argv[6]) * 1e4);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTERM, stop);
	listen_tcp((uint16_t)atoi(argv[1]));
	udp_fd = udp_socket(INADDR_LOOPBACK, (uint16_t)atoi(argv[1]));
	while (!stopping)
		turn();
	printf("passed %lu, lost %lu, doubled %lu, held back %lu\n", passed, lost, doubled,
	       delayed);
	return 0;
}
