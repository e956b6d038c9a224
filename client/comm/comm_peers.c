// SPDX-License-Identifier: BSD-3-Clause
/* comm_peers.c - a communicator's control connections: connecting with retries, reading, writing */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bitmap/net/sockaddr.h"
#include "client/comm/comm_state.h"

#define ETHERNET_BYTES 14

/* An aggregator that has keys waits for who speaks first, and can say why it does not like this. */
#define FIRST_LINE "{\"type\":\"ping\"}\n"

void comm_peer_close(struct comm_peer *peer)
{
	comm_fork_close(&peer->fd);
	tls_close(peer->tls);
	peer->tls = NULL;
	free(peer->pending);
	peer->pending = NULL;
	peer->lines = (struct lines){.from = 0};
	peer->heard = peer->plain = false;
}

static void peer_gone(struct winnow_comm *comm, struct comm_peer *peer, const char *reason,
                      uint64_t now_us)
{
	comm_peer_close(peer);
	if (link_again(session_link(comm->session, (uint32_t)(peer - comm->peers)))) {
		peer->connected = false;
		peer->connect_due_us = now_us + COMM_CONNECT_AGAIN_US;
		peer->connect_until_us =
			now_us + (comm->at_door                     ? peer->patience_us
		                  : message_name_is_next(comm->job) ? COMM_CONNECT_ALIVE_US
		                                                    : COMM_CONNECT_ONCE_MORE_US);
		return;
	}
	peer->gone = true;
	session_gone(comm->session, (uint32_t)(peer - comm->peers), reason);
}

/* Those that were tried; "": the name is an address, or has one. */
static const char *addresses_text(const struct comm_peer *peer, char *out, size_t room)
{
	char one[NET_TEXT_BYTES];

	*out = '\0';
	for (uint32_t i = 0; i < peer->address_count && peer->address_count > 1; i++)
		text_add(out, room, "%s%s", i > 0 ? ", " : " from ",
		         net_ip_format(&peer->addresses[i].ip, one));
	return out;
}

/* Try the name's next address; after the last one start again, as winnowd may still be starting. */
static void connect_failed(struct winnow_comm *comm, struct comm_peer *peer, int error,
                           uint64_t now_us)
{
	char reason[320], all[256];

	comm_fork_close(&peer->fd);
	peer->refused = error;
	peer->address_at = (peer->address_at + 1) % peer->address_count;
	peer->connect_due_us = now_us + (peer->address_at == 0 ? COMM_CONNECT_AGAIN_US : 0);
	if (peer->connect_due_us < peer->connect_until_us)
		return;
	snprintf(reason, sizeof(reason), "no answer%s: %s; is winnowd running there?",
	         addresses_text(peer, all, sizeof(all)), strerror(error));
	peer->gone = true;
	session_unreachable(comm->session, (uint32_t)(peer - comm->peers), reason);
}

void comm_peer_data(struct winnow_comm *comm, struct comm_peer *peer, const struct net_addr *to)
{
	peer->data = *to;
	session_headers(comm->session, (uint32_t)(peer - comm->peers),
	                ETHERNET_BYTES + net_headers(&to->ip));
}

static void pending_set(struct comm_peer *peer, char *bytes, size_t count)
{
	peer->pending = bytes;
	peer->pending_bytes = count;
	peer->pending_at = 0;
}

static void connected(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	struct net_addr ours;

	if (net_end(getsockname, peer->fd, &ours) == 0)
		peer->local = ours.ip;
	comm_peer_data(comm, peer, &peer->addresses[peer->address_at]);
	peer->connected = true;
	peer->connected_us = now_us;
	if (comm->tls == NULL) {
		pending_set(peer, strdup(FIRST_LINE), strlen(FIRST_LINE));
	} else if (tls_connect(comm->tls, comm->job, comm->key.bytes, &peer->tls) != 0) {
		peer_gone(comm, peer, "out of memory", now_us);
		return;
	}
	link_connected(session_link(comm->session, (uint32_t)(peer - comm->peers)), now_us);
}

static void connect_begin(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	uint64_t left_us = peer->connect_until_us > now_us ? peer->connect_until_us - now_us : 0;
	union net_sockaddr address;
	socklen_t size;
	int on = 1, err;

	if (comm->at_door)
		comm_resolve_again(peer);
	if (left_us > COMM_CONNECT_TRY_US) /* an address may be dead, and the next one not */
		left_us = COMM_CONNECT_TRY_US;
	size = net_sockaddr(&peer->addresses[peer->address_at], &address);
	peer->attempt_until_us = now_us + left_us / (peer->address_count - peer->address_at);
	if (comm_fork_socket(&peer->fd, address.any.sa_family, SOCK_STREAM) < 0) {
		if (errno == EAFNOSUPPORT) /* a name's other address may be of a family we have */
			connect_failed(comm, peer, errno, now_us);
		else
			peer_gone(comm, peer, strerror(errno), now_us);
		return;
	}
	setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	err = net_source_bind(peer->fd, &comm->source, &peer->addresses[peer->address_at].ip);
	if (err == 0 && connect(peer->fd, &address.any, size) == 0)
		connected(comm, peer, now_us);
	else if (err != 0 || errno != EINPROGRESS)
		connect_failed(comm, peer, err != 0 ? -err : errno, now_us);
}

static void connect_check(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	struct pollfd fd = {.fd = peer->fd, .events = POLLOUT};
	socklen_t size = sizeof(int);
	int error = 0;

	if (poll(&fd, 1, 0) == 0) {
		if (now_us >= peer->attempt_until_us)
			connect_failed(comm, peer, ETIMEDOUT, now_us);
		return;
	}
	getsockopt(peer->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error != 0)
		connect_failed(comm, peer, error, now_us);
	else
		connected(comm, peer, now_us);
}

struct line_context {
	struct winnow_comm *comm;
	uint32_t index;
	uint64_t now_us;
};

static int take_line(void *context, const char *line)
{
	struct line_context *c = context;

	if (c->comm->peers[c->index].plain)
		session_plain(c->comm->session, c->index, line);
	else
		session_line(c->comm->session, c->index, line, c->now_us);
	return 0;
}

static void lines_take(struct winnow_comm *comm, struct comm_peer *peer, const char *bytes,
                       size_t count, uint64_t now_us)
{
	struct line_context context = {comm, (uint32_t)(peer - comm->peers), now_us};

	if (lines_feed(&peer->lines, bytes, count, take_line, &context) != 0)
		peer_gone(comm, peer, "it sent something that is not a message", now_us);
}

void comm_peer_secure(struct winnow_comm *comm, struct comm_peer *peer)
{
	struct seal_key own;

	if (peer->tls == NULL || !tls_ready(peer->tls) || peer->fd < 0 ||
	    tls_seal_key(peer->tls, comm->job, &own) != 0)
		return;
	link_secured(session_link(comm->session, (uint32_t)(peer - comm->peers)), &own);
	explicit_bzero(&own, sizeof(own));
}

/* The same where there is a key. */
static void tls_take(struct winnow_comm *comm, struct comm_peer *peer, const char *bytes,
                     size_t count, uint64_t now_us)
{
	const bool secured = tls_ready(peer->tls);
	ssize_t got = tls_feed(peer->tls, bytes, count) == 0 ? 1 : -ENOMEM;
	char said[4096];

	while (got > 0 && peer->tls != NULL) {
		got = tls_read(peer->tls, said, sizeof(said));
		if (!secured)
			comm_peer_secure(comm, peer);
		if (got > 0)
			lines_take(comm, peer, said, (size_t)got, now_us);
	}
	if (got >= 0)
		return;
	if (got == -EPROTO && !tls_ready(peer->tls)) {
		peer->gone = true;
		session_refused(comm->session, (uint32_t)(peer - comm->peers));
		comm_peer_close(peer);
	} else {
		peer_gone(comm, peer,
		          got == -EPIPE ? "connection closed"
		          : got == -EPROTO
		                  ? "its TLS is broken: somebody on the path has changed it"
		                  : "out of memory",
		          now_us);
	}
}

/* Does it answer a handshake, or in plain text, where there is a key? */
static bool is_plain(const char *bytes)
{
	return *bytes != TLS_FIRST_BYTE && *bytes != TLS_ALERT_BYTE;
}

static void peer_read(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	char buffer[4096];
	ssize_t count;

	while (peer->fd >= 0) {
		count = recv(peer->fd, buffer, sizeof(buffer), 0);
		if (count < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (count <= 0) {
			peer_gone(comm, peer, count == 0 ? "connection closed" : strerror(errno),
			          now_us);
			return;
		}
		peer->plain =
			peer->plain || (comm->tls != NULL && !peer->heard && is_plain(buffer));
		peer->heard = true;
		if (comm->tls != NULL && !peer->plain)
			tls_take(comm, peer, buffer, (size_t)count, now_us);
		else
			lines_take(comm, peer, buffer, (size_t)count, now_us);
	}
}

/* The next bytes to be sent. False: there is nothing. */
static bool pending_next(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	uint32_t index = (uint32_t)(peer - comm->peers);
	char bytes[4096], *line;
	size_t count = peer->tls != NULL ? tls_pull(peer->tls, bytes, sizeof(bytes)) : 0;

	while (count == 0) {
		if (comm->tls != NULL && (peer->tls == NULL || !tls_ready(peer->tls)))
			return false;
		line = session_take_line(comm->session, index, now_us);
		if (line == NULL)
			return false;
		if (comm->tls == NULL) {
			pending_set(peer, line, strlen(line));
			return true;
		}
		(void)tls_write(peer->tls, line, strlen(line)); /* reading finds out why not */
		free(line);
		count = tls_pull(peer->tls, bytes, sizeof(bytes));
	}
	line = malloc(count);
	if (line == NULL) { /* without this record the next one is of no use */
		peer_gone(comm, peer, "out of memory", now_us);
		return false;
	}
	pending_set(peer, memcpy(line, bytes, count), count);
	return true;
}

void comm_peer_write(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	while (peer->connected && peer->fd >= 0) {
		ssize_t count;

		if (peer->pending == NULL && !pending_next(comm, peer, now_us))
			return;
		count = send(peer->fd, peer->pending + peer->pending_at,
		             peer->pending_bytes - peer->pending_at, MSG_NOSIGNAL);
		if (count < 0 && errno != EINTR)
			return; /* full, or broken, which reading will find out */
		if (count > 0)
			peer->pending_at += (size_t)count;
		if (peer->pending_at < peer->pending_bytes)
			continue;
		free(peer->pending);
		peer->pending = NULL;
	}
}

/* ---- those that are left out ---- */

void comm_peers_left_out(struct winnow_comm *comm, uint64_t before)
{
	uint64_t now_us = clock_us();

	for (uint32_t i = comm->peer_count; i < comm->peers_known; i++) {
		struct comm_peer *peer = &comm->peers[i];

		if (before >> peer->place & 1)
			continue;
		if (peer->look_us == 0)
			peer->look_us = COMM_LOOK_US;
		else if (peer->look_us < COMM_LOOK_MAX_US)
			peer->look_us *= 2;
		peer->connect_due_us = now_us + peer->look_us;
	}
	atomic_store_explicit(&comm->back, 0, memory_order_relaxed);
}

/* What it has said, perhaps inside TLS, joins its lines. */
static void look_read(struct winnow_comm *comm, struct comm_peer *peer)
{
	struct net_addr there;
	char bytes[4096], *to;
	size_t room;
	ssize_t count;

	if (net_end(getpeername, peer->fd, &there) != 0)
		return; /* it is not connected yet */
	count = recv(peer->fd, bytes, sizeof(bytes), 0);
	if (comm->tls == NULL) {
		to = lines_room(&peer->lines, &room);
		count = count < (ssize_t)room ? count : (ssize_t)room;
		lines_added(&peer->lines, count > 0 ? (size_t)count : 0);
		if (count > 0)
			memcpy(to, bytes, (size_t)count);
		return;
	}
	if (peer->tls == NULL || (count > 0 && tls_feed(peer->tls, bytes, (size_t)count) != 0))
		return;
	to = lines_room(&peer->lines, &room);
	count = tls_read(peer->tls, to, room);
	lines_added(&peer->lines, count > 0 ? (size_t)count : 0);
	room = tls_pull(peer->tls, bytes, sizeof(bytes));
	(void)!send(peer->fd, bytes, room, MSG_NOSIGNAL);
}

/* Would it take us? It says hello first. */
static bool says_hello(struct comm_peer *peer)
{
	struct control_message message;
	const char *line;
	struct why why;

	return lines_next(&peer->lines, &line) == 1 && message_parse(line, &message, &why) == 0 &&
	       message.kind == CONTROL_HELLO && message.version == WIRE_VERSION && !message.drains;
}

/* Connect, and see later what it has said. */
static void look(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	uint64_t bit = UINT64_C(1) << peer->place;
	union net_sockaddr address;
	socklen_t size;

	peer->connect_due_us = now_us + COMM_LOOK_ANSWER_US / COMM_LOOK_TURNS;
	if (peer->fd < 0) {
		comm_resolve_again(peer);
		peer->address_at = (peer->address_at + 1) % peer->address_count;
		size = net_sockaddr(&peer->addresses[peer->address_at], &address);
		peer->look_turns = 0;
		if (comm_fork_socket(&peer->fd, address.any.sa_family, SOCK_STREAM) < 0)
			return;
		if (net_source_bind(peer->fd, &comm->source,
		                    &peer->addresses[peer->address_at].ip) == 0)
			(void)connect(peer->fd, &address.any, size);
		if (comm->tls != NULL &&
		    tls_connect(comm->tls, comm->job, comm->key.bytes, &peer->tls) != 0)
			comm_peer_close(peer);
		return;
	}
	look_read(comm, peer);
	if (says_hello(peer))
		atomic_fetch_or_explicit(&comm->back, bit, memory_order_relaxed);
	else if (++peer->look_turns < COMM_LOOK_TURNS)
		return;
	else
		atomic_fetch_and_explicit(&comm->back, ~bit, memory_order_relaxed);
	comm_peer_close(peer);
	peer->connect_due_us = now_us + peer->look_us;
}

/* ---- all ---- */

bool comm_peers_turn(struct winnow_comm *comm, uint64_t now_us)
{
	bool read = false;

	for (uint32_t i = 0; i < comm->peer_count; i++) {
		struct comm_peer *peer = &comm->peers[i];

		if (peer->gone)
			continue;
		if (peer->fd < 0 && now_us >= peer->connect_due_us)
			connect_begin(comm, peer, now_us);
		else if (peer->fd >= 0 && !peer->connected)
			connect_check(comm, peer, now_us);
		if (!peer->connected)
			continue;
		if (peer->fd_ready) {
			peer->fd_ready = false;
			peer_read(comm, peer, now_us);
			read = true;
		}
		if (comm->at_door && peer->fd >= 0 && !link_stands(session_link(comm->session, i)))
			peer_gone(comm, peer, "silent", now_us);
		comm_peer_write(comm, peer, now_us);
	}
	for (uint32_t i = comm->peer_count; i < comm->peers_known && !comm->at_door; i++)
		if (now_us >= comm->peers[i].connect_due_us)
			look(comm, &comm->peers[i], now_us);
	return read;
}
