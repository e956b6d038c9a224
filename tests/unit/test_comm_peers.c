// SPDX-License-Identifier: BSD-3-Clause
/* test_comm_peers.c - control connections over real sockets; the test is the thread, its clock, and the aggregators */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/test_comm.h"

#define HERE 0x7f000001
#define UNTIL_US 10000000
#define TURNS_MAX 5000 /* of a millisecond each, until the kernel has brought something */

/* A listener on 127.0.0.1 and a port of its own. */
static int listening(struct net_addr *out, int backlog)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(HERE)};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(listen(fd, backlog), 0);
	*out = (struct net_addr){.ip = net_ipv4(HERE), .port = ntohs(address.sin_port)};
	return fd;
}

/* Where nobody listens: another address of the same port. */
static struct net_addr refusing(const struct net_addr *address)
{
	return (struct net_addr){.ip = net_ipv4(HERE + 1), .port = address->port};
}

/* A communicator that is not connected yet. */
static struct winnow_comm *opened(uint32_t peer_count)
{
	struct winnow_comm *comm = comm_made(peer_count);

	for (uint32_t i = 0; i < SESSION_LINKS_MAX; i++)
		comm->peers[i].tries.until_us = UNTIL_US;
	return comm;
}

static void failed_as(const struct winnow_comm *comm, const char *text)
{
	assert_int_equal(session_state(comm->session), SESSION_FAILED);
	if (strstr(session_error(comm->session), text) == NULL)
		fail_msg("'%s' does not say '%s'", session_error(comm->session), text);
}

/* A turn in which each connection may have something. */
static void peers_turn(struct winnow_comm *comm, uint64_t now_us)
{
	for (uint32_t i = 0; i < comm->move.peer_count; i++)
		comm->peers[i].tcp.ready = true;
	(void)comm_peers_turn(comm, now_us);
}

/* Turns of a millisecond until its peer is connected, or is not, or the session has failed. */
static void turn_until(struct winnow_comm *comm, uint32_t peer, bool is_connected, uint64_t now_us)
{
	for (uint32_t turn = 0;
	     turn < TURNS_MAX && session_state(comm->session) != SESSION_FAILED &&
	     (comm->peers[peer].state == PEER_CONNECTED) != is_connected;
	     turn++) {
		peers_turn(comm, now_us);
		usleep(1000);
	}
}

/* Turns until the session has failed. */
static void turn_until_failed(struct winnow_comm *comm, uint64_t now_us)
{
	for (uint32_t turn = 0; turn < TURNS_MAX && session_state(comm->session) != SESSION_FAILED;
	     turn++) {
		peers_turn(comm, now_us);
		usleep(1000);
	}
}

/* A communicator with one aggregator; *fd is the aggregator's end of its connection. */
static struct winnow_comm *connected(int *fd)
{
	struct winnow_comm *comm = opened(1);
	int listener = listening(&comm->peers[0].at.list[0], 8);

	turn_until(comm, 0, true, 0);
	*fd = accept(listener, NULL, NULL);
	assert_true(*fd >= 0);
	close(listener);
	return comm;
}

/* The same, when it has come once more; what is closed now is not tried again. */
static struct winnow_comm *connected_again(int *fd)
{
	struct winnow_comm *comm = opened(1);
	struct comm_peer *peer = &comm->peers[0];
	int listener = listening(&peer->at.list[0], 8);

	turn_until(comm, 0, true, 0);
	close(accept(listener, NULL, NULL));
	turn_until(comm, 0, false, 0);
	assert_int_equal(session_state(comm->session), SESSION_JOINING);
	assert_int_equal(peer->tcp.fd, -1);
	turn_until(comm, 0, true, COMM_CONNECT_AGAIN_US);
	*fd = accept(listener, NULL, NULL);
	assert_true(*fd >= 0);
	close(listener);
	return comm;
}

/* ---- connecting ---- */

/* One that does not answer has its share of the time, then it is the next one's turn. */
COMM_TEST(silent_address, opened(1))
{
	struct comm_peer *peer = &comm->peers[0];
	int full = listening(&peer->at.list[0], 0), other = listening(&peer->at.list[1], 8);
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_addr.s_addr = htonl(HERE),
	                         .sin_port = htons(peer->at.list[0].port)};
	int filler = socket(AF_INET, SOCK_STREAM, 0);

	/* The queue of one is full: what else knocks is not answered. */
	assert_int_equal(connect(filler, (struct sockaddr *)&to, sizeof(to)), 0);
	peer->at.count = 2;
	peers_turn(comm, 0);
	usleep(20000);
	peers_turn(comm, UNTIL_US / 2 - 1);
	assert_int_not_equal(peer->state, PEER_CONNECTED);
	assert_int_equal(peer->at.index, 0);
	peers_turn(comm, UNTIL_US / 2);
	assert_int_equal(peer->at.index, 1);
	turn_until(comm, 0, true, UNTIL_US / 2 + 1);
	assert_int_equal(peer->state, PEER_CONNECTED);
	close(filler);
	close(full);
	close(other);
}

TEST(refused)
{
	for (uint32_t count = 1; count <= 2; count++) {
		struct winnow_comm *comm = opened(1);
		struct comm_peer *peer = &comm->peers[0];
		struct net_addr somewhere;
		int listener = listening(&somewhere, 8);

		peer->at.count = count;
		peer->at.list[0] = peer->at.list[1] = refusing(&somewhere);
		for (uint32_t turn = 0; turn < 20; turn++)
			peers_turn(comm, 0);
		assert_int_equal(session_state(comm->session), SESSION_JOINING);
		assert_int_equal(peer->at.index, 0); /* all again, but not at once */
		assert_int_equal(peer->tcp.fd, -1);
		assert_int_equal(peer->tries.due_us, COMM_CONNECT_AGAIN_US);
		turn_until_failed(comm, UNTIL_US);
		failed_as(comm,
		          count == 1 ? "aggregator one:1: no answer: Connection refused; is "
		                       "winnowd running there?"
		                     : "no answer from 127.0.0.2, 127.0.0.2: Connection refused");
		close(listener);
		closed(comm);
	}
}

/* ---- reading and writing ---- */

static void say(int fd, const char *text, size_t bytes)
{
	assert_int_equal(send(fd, text, bytes, MSG_NOSIGNAL), bytes);
}

/* The next line that the aggregator gets must have this in it. */
static void hears(struct winnow_comm *comm, int fd, uint64_t now_us, const char *text)
{
	char line[4096] = "";
	size_t used = 0;

	for (uint32_t turn = 0; turn < TURNS_MAX && strchr(line, '\n') == NULL; turn++) {
		ssize_t count;

		peers_turn(comm, now_us);
		count = recv(fd, line + used, 1, MSG_DONTWAIT);
		if (count == 1)
			used++;
		else
			usleep(1000);
	}
	if (strstr(line, text) == NULL)
		fail_msg("'%s' does not say '%s'", line, text);
}

TEST(not_lines)
{
	char garbage[LINES_BYTES_MAX + 1];
	struct winnow_comm *comm;
	int fd;

	memset(garbage, 'x', sizeof(garbage));
	comm = connected_again(&fd);
	say(fd, garbage, sizeof(garbage));
	turn_until_failed(comm, 0);
	failed_as(comm, "it sent something that is not a message");
	close(fd);
	closed(comm);

	comm = connected(&fd);
	say(fd, "HTTP/1.1 400 Bad Request\n", 25);
	turn_until_failed(comm, 0);
	failed_as(comm, "it does not speak Winnow's protocol");
	close(fd);
	closed(comm);
}

/* What breaks a handshake is told to the other side, and is no wrong key. */
TEST(handshake_broken)
{
	static const char broken[] = {0x16, 3, 3, 0, 4, 1, 2, 3, 4},
			  refused[] = {0x15, 3, 3, 0, 2, 2, 51};

	for (uint32_t way = 0; way < 2; way++) {
		struct winnow_comm *comm = opened(1);
		struct comm_peer *peer = &comm->peers[0];
		char head[5], body[4096];
		int fd, listener = listening(&peer->at.list[0], 8);

		assert_int_equal(tls_context_open(NULL, &comm->fixed.tls), 0);
		for (uint32_t i = 0; i < 2 && session_state(comm->session) == SESSION_JOINING;
		     i++) {
			turn_until(comm, 0, true, i * COMM_CONNECT_AGAIN_US);
			fd = accept(listener, NULL, NULL);
			assert_int_equal(recv(fd, head, sizeof(head), MSG_WAITALL), sizeof(head));
			assert_int_equal(head[0], TLS_FIRST_BYTE); /* its hello */
			assert_true(recv(fd, body, (size_t)(uint8_t)head[3] << 8 | (uint8_t)head[4],
			                 MSG_WAITALL) > 0);
			if (way == 0)
				say(fd, broken, sizeof(broken));
			else
				say(fd, refused, sizeof(refused));
			for (uint32_t turn = 0; turn < TURNS_MAX && peer->state == PEER_CONNECTED;
			     turn++) {
				peers_turn(comm, 0);
				usleep(1000);
			}
			if (way == 0) {
				assert_int_equal(recv(fd, head, sizeof(head), MSG_WAITALL),
				                 sizeof(head));
				assert_int_equal(head[0], TLS_ALERT_BYTE);
			}
			close(fd);
		}
		failed_as(comm, way == 0 ? "its TLS is broken" : "wrong key for job 'job'");
		close(listener);
		tls_context_close(comm->fixed.tls);
		closed(comm);
	}
}

/* A reset connection is no reason to write into nothing, or to stop the program. */
TEST(reset)
{
	struct linger now = {1, 0};
	struct winnow_comm *comm;
	int fd;

	comm = connected_again(&fd);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(fd);
	turn_until_failed(comm, 0);
	failed_as(comm, "Connection reset by peer");
	closed(comm);
}

/* A socket that takes only a part: what was not taken comes later, nothing twice. */
TEST(full_socket)
{
	static char piece[65536];
	size_t bytes, sent = 0, got = 0;
	struct winnow_comm *comm;
	struct comm_connection *tcp;
	ssize_t count;
	int fd;

	comm = connected(&fd);
	tcp = &comm->peers[0].tcp;
	/* It has said the line with which a worker without a key begins. */
	assert_int_equal(recv(fd, piece, sizeof(piece), 0), strlen("{\"type\":\"ping\"}\n"));
	assert_int_equal(tcp->out_at, tcp->out_bytes);
	do { /* until there is no room */
		for (size_t i = 0; i < sizeof(piece); i++)
			piece[i] = (char)(1 + (sent + i) % 251);
		count = send(tcp->fd, piece, sizeof(piece), MSG_NOSIGNAL);
		sent += count > 0 ? (size_t)count : 0;
	} while (count > 0);
	bytes = sent + sizeof(tcp->out);
	for (size_t i = 0; i < sizeof(tcp->out); i++)
		tcp->out[i] = (char)(1 + (sent + i) % 251);
	tcp->out_bytes = sizeof(tcp->out);
	tcp->out_at = 0;
	comm_peer_write(comm, &comm->peers[0], 0);
	assert_true(tcp->out_at < tcp->out_bytes);
	for (uint32_t turn = 0; turn < 10 * TURNS_MAX && got < bytes; turn++) {
		count = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
		comm_peer_write(comm, &comm->peers[0], 0);
		for (ssize_t i = 0; i < count; i++, got++)
			assert_int_equal((uint8_t)piece[i], 1 + got % 251);
	}
	assert_int_equal(got, bytes);
	assert_int_equal(tcp->out_at, tcp->out_bytes);
	session_abort(comm->session, "enough");
	hears(comm, fd, 0, "\"enough\"");
	close(fd);
	closed(comm);
}

/* ---- those that are left out, and those that are restarted ---- */

/* One that is left out, or is being restarted, is found by its name where it is now. */
TEST(moved)
{
	for (uint32_t way = 0; way < 2; way++) {
		struct winnow_comm *comm = opened(1);
		struct comm_peer *peer = &comm->peers[way];
		struct net_addr now_at;
		int listener = listening(&now_at, 8);
		uint64_t now_us = 0;

		peer->at.list[0] = refusing(&now_at);
		snprintf(peer->name, sizeof(peer->name), "127.0.0.1:%u", now_at.port);
		comm->move.role = way == 0 ? COMM_NEWCOMER : COMM_MEMBER;
		comm->fixed.peers_known = 2;
		if (way == 1)
			comm->peers[0].tries.due_us = UINT64_MAX;
		for (uint32_t turn = 0; turn < TURNS_MAX; turn++, now_us += 10000) {
			peers_turn(comm, now_us);
			if (net_addr_same(&peer->at.list[0], &now_at))
				break;
			usleep(1000);
		}
		assert_true(net_addr_same(&peer->at.list[0], &now_at));
		for (uint32_t turn = 0;
		     turn < TURNS_MAX && way == 0 && peer->state != PEER_CONNECTED; turn++) {
			peers_turn(comm, now_us += COMM_CONNECT_AGAIN_US);
			usleep(1000);
		}
		assert_int_equal(peer->state == PEER_CONNECTED, way == 0);
		/* A name that nobody knows now has its addresses of before. */
		comm_resolve_drop(peer);
		strcpy(peer->name, "no.such.host.invalid:1");
		comm_resolve_again(peer);
		usleep(20000);
		comm_resolve_again(peer);
		assert_int_equal(peer->at.count, 1);
		close(listener);
		comm_fork_close(&comm->peers[1].tcp.fd);
		closed(comm);
	}
}

/* Without a descriptor a look at who is left out makes nothing that the next one would forget. */
COMM_TEST(look_without_descriptor, opened(1))
{
	struct comm_peer *left_out = &comm->peers[1];
	struct rlimit before, none;

	comm->peers[0].state = PEER_GONE;
	comm->fixed.peers_known = 2;
	snprintf(left_out->name, sizeof(left_out->name), "127.0.0.1:1");
	left_out->at.list[0] = (struct net_addr){.ip = net_ipv4(HERE), .port = 1};
	assert_int_equal(tls_context_open(NULL, &comm->fixed.tls), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){.rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	(void)comm_peers_turn(comm, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(left_out->tcp.fd, -1);
	assert_null(left_out->tcp.tls);
	(void)comm_peers_turn(comm, UNTIL_US);
	assert_true(left_out->tcp.fd >= 0);
	assert_non_null(left_out->tcp.tls);
	comm_peer_close(left_out);
	tls_context_close(comm->fixed.tls);
}

/* ---- forks ---- */

/* In a fork's child: is the descriptor open? */
static bool open_in_child(int fd)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0)
		_exit(fcntl(fd, F_GETFD) != -1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) != 0;
}

TEST(forks)
{
	int fd, second, other = dup(0);
	struct winnow_comm *comm = connected(&fd);

	assert_true(comm_fork_socket(&comm->peers[1].tcp.fd, AF_INET) >= 0);
	second = comm->peers[1].tcp.fd;
	assert_true(open_in_child(comm->peers[0].tcp.fd)); /* not known yet */
	comm_fork_add(comm);
	assert_false(open_in_child(comm->peers[0].tcp.fd));
	assert_false(open_in_child(second));
	assert_true(open_in_child(other));
	comm_fork_close(&comm->peers[1].tcp.fd);
	assert_int_equal(comm->peers[1].tcp.fd, -1);
	assert_int_equal(dup2(other, second), second); /* the number is another's now */
	assert_true(open_in_child(second));
	comm_fork_remove(comm);
	assert_true(open_in_child(comm->peers[0].tcp.fd));
	close(second);
	close(other);
	close(fd);
	closed(comm);
}
