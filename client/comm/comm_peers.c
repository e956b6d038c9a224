// SPDX-License-Identifier: BSD-3-Clause
/* comm_peers.c - a communicator's control connections: connecting with retries, reading, writing */

#include <assert.h>
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

void comm_peer_close(struct comm_peer *peer)
{
	comm_fork_close(&peer->tcp.fd);
	tls_close(peer->tcp.tls);
	peer->tcp.tls = NULL;
	peer->tcp.out_bytes = peer->tcp.out_at = 0;
	peer->tcp.lines = (struct lines){.from = 0};
	peer->tcp.heard = PEER_SILENT;
	peer->state = PEER_WAITS;
}

static void peer_gone(struct winnow_comm *comm, struct comm_peer *peer, const char *reason,
                      uint64_t now_us)
{
	comm_peer_close(peer);
	if (link_again(session_link(comm->session, (uint32_t)(peer - comm->peers)))) {
		peer->tries.due_us = now_us + COMM_CONNECT_AGAIN_US;
		peer->tries.until_us =
			now_us + (comm->move.role != COMM_MEMBER ? peer->tries.patience_us
		                  : message_name_is_next(comm->move.job)
		                          ? COMM_CONNECT_ALIVE_US
		                          : COMM_CONNECT_ONCE_MORE_US);
		return;
	}
	peer->state = PEER_GONE;
	session_gone(comm->session, (uint32_t)(peer - comm->peers), reason);
}

/* Which addresses were tried; "": the name is an address, or has only one. */
static const char *addresses_text(const struct comm_peer *peer, char *out, size_t room)
{
	char one[NET_TEXT_BYTES];

	*out = '\0';
	for (uint32_t i = 0; i < peer->at.count && peer->at.count > 1; i++)
		text_add(out, room, "%s%s", i > 0 ? ", " : " from ",
		         net_ip_format(&peer->at.list[i].ip, one));
	return out;
}

/* The name's next address is tried. After the last one it starts again, because winnowd may still be starting. */
static void connect_failed(struct winnow_comm *comm, struct comm_peer *peer, int error,
                           uint64_t now_us)
{
	char reason[320], all[256];

	comm_fork_close(&peer->tcp.fd);
	peer->state = PEER_WAITS;
	comm->run.news = true;
	peer->tries.refused = error;
	peer->at.index = (peer->at.index + 1) % peer->at.count;
	peer->tries.due_us = now_us + (peer->at.index == 0 ? COMM_CONNECT_AGAIN_US : 0);
	if (peer->tries.due_us < peer->tries.until_us)
		return;
	snprintf(reason, sizeof(reason), "no answer%s: %s; is winnowd running there?",
	         addresses_text(peer, all, sizeof(all)), strerror(error));
	peer->state = PEER_GONE;
	session_unreachable(comm->session, (uint32_t)(peer - comm->peers), reason);
}

void comm_peer_data(struct winnow_comm *comm, struct comm_peer *peer, const struct net_addr *to)
{
	peer->udp.to = *to;
	session_headers(comm->session, (uint32_t)(peer - comm->peers),
	                ETHERNET_BYTES + net_headers(&to->ip));
}

static void connected(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	struct net_addr ours;

	if (net_end(getsockname, peer->tcp.fd, &ours) == 0)
		peer->udp.local = ours.ip;
	comm_peer_data(comm, peer, &peer->at.list[peer->at.index]);
	peer->state = PEER_CONNECTED;
	comm->run.news = true;
	peer->tcp.since_us = now_us;
	if (comm->fixed.tls == NULL) {
		peer->tcp.out_bytes = strlen(LINK_FIRST_LINE);
		memcpy(peer->tcp.out, LINK_FIRST_LINE, peer->tcp.out_bytes);
	} else if (tls_connect(comm->fixed.tls, comm->move.job, comm->fixed.key.bytes,
	                       &peer->tcp.tls) != 0) {
		peer_gone(comm, peer, "out of memory", now_us);
		return;
	}
	link_connected(session_link(comm->session, (uint32_t)(peer - comm->peers)), now_us);
}

static void connect_begin(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	uint64_t left_us = peer->tries.until_us > now_us ? peer->tries.until_us - now_us : 0;
	union net_sockaddr address;
	socklen_t size;
	int on = 1, err;

	if (comm->move.role != COMM_MEMBER)
		comm_resolve_again(peer);
	if (left_us > COMM_CONNECT_TRY_US) /* One address may be dead, and the next one not. */
		left_us = COMM_CONNECT_TRY_US;
	size = net_sockaddr(&peer->at.list[peer->at.index], &address);
	peer->tries.attempt_until_us = now_us + left_us / (peer->at.count - peer->at.index);
	if (comm_fork_socket(&peer->tcp.fd, address.any.sa_family) < 0) {
		if (errno == EAFNOSUPPORT) /* Another address may be of a family that we have. */
			connect_failed(comm, peer, errno, now_us);
		else
			peer_gone(comm, peer, strerror(errno), now_us);
		return;
	}
	peer->state = PEER_CONNECTS;
	comm->run.news = true;
	setsockopt(peer->tcp.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	err = net_source_bind(peer->tcp.fd, &comm->fixed.source, &peer->at.list[peer->at.index].ip);
	if (err == 0 && connect(peer->tcp.fd, &address.any, size) == 0)
		connected(comm, peer, now_us);
	else if (err != 0 || errno != EINPROGRESS)
		connect_failed(comm, peer, err != 0 ? -err : errno, now_us);
}

static void connect_check(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	struct pollfd fd = {.fd = peer->tcp.fd, .events = POLLOUT};
	socklen_t size = sizeof(int);
	int error = 0;

	if (poll(&fd, 1, 0) == 0) {
		if (now_us >= peer->tries.attempt_until_us)
			connect_failed(comm, peer, ETIMEDOUT, now_us);
		return;
	}
	getsockopt(peer->tcp.fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error != 0)
		connect_failed(comm, peer, error, now_us);
	else
		connected(comm, peer, now_us);
}

void comm_peer_secure(struct winnow_comm *comm, struct comm_peer *peer)
{
	struct seal_key own;

	if (peer->tcp.tls == NULL || !tls_ready(peer->tcp.tls) || peer->tcp.fd < 0 ||
	    tls_seal_key(peer->tcp.tls, comm->move.job, &own) != 0)
		return;
	link_secured(session_link(comm->session, (uint32_t)(peer - comm->peers)), &own);
	explicit_bzero(&own, sizeof(own));
}

/*
 * Adds what has come, perhaps inside TLS, to the peer's lines. Where there is a key, the first byte tells whether it is
 * plain text all the same. Returns how many bytes; -EAGAIN: nothing is there; -EPIPE: the peer has closed; or another
 * -errno.
 */
static ssize_t peer_receive(struct comm_peer *peer)
{
	struct tls *tls = peer->tcp.heard == PEER_PLAIN ? NULL : peer->tcp.tls;
	char sealed[4096], *to;
	size_t room;
	ssize_t count;

	to = lines_room(&peer->tcp.lines, &room);
	count = tls != NULL ? tls_read(tls, to, room) : 0;
	while (count == 0) {
		count = recv(peer->tcp.fd, sealed, room < sizeof(sealed) ? room : sizeof(sealed),
		             0);
		if (count <= 0)
			return count == 0 ? -EPIPE : errno == EINTR ? -EAGAIN : -errno;
		if (peer->tcp.heard == PEER_SILENT && tls != NULL && *sealed != TLS_FIRST_BYTE &&
		    *sealed != TLS_ALERT_BYTE)
			peer->tcp.heard = PEER_PLAIN;
		else if (peer->tcp.heard == PEER_SILENT)
			peer->tcp.heard = PEER_SPEAKS;
		if (peer->tcp.heard == PEER_PLAIN || tls == NULL)
			memcpy(to, sealed, (size_t)count);
		else if (tls_feed(tls, sealed, (size_t)count) != 0)
			return -ENOMEM;
		else
			count = tls_read(tls, to, room);
	}
	lines_added(&peer->tcp.lines, count > 0 ? (size_t)count : 0);
	return count;
}

/* Its connection has ended with this error of peer_receive(). */
static void peer_ended(struct winnow_comm *comm, struct comm_peer *peer, int error, uint64_t now_us)
{
	char alert[256], reason[320];

	if (peer->tcp.tls != NULL) /* The other side learns why. */
		(void)!send(peer->tcp.fd, alert, tls_pull(peer->tcp.tls, alert, sizeof(alert)),
		            MSG_NOSIGNAL);
	if (peer->tcp.tls != NULL && error == EPROTO && tls_wrong_key(peer->tcp.tls)) {
		comm_peer_close(peer);
		peer->state = PEER_GONE;
		session_refused(comm->session, (uint32_t)(peer - comm->peers));
		return;
	}
	tls_end_text(peer->tcp.tls, error, reason, sizeof(reason));
	peer_gone(comm, peer, reason, now_us);
}

static void peer_read(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	const uint32_t index = (uint32_t)(peer - comm->peers);

	while (peer->state == PEER_CONNECTED) {
		const bool secured = peer->tcp.tls != NULL && tls_ready(peer->tcp.tls);
		const char *line;
		ssize_t got;
		int whole = 0;

		got = peer_receive(peer);
		if (!secured)
			comm_peer_secure(comm, peer);
		if (got == -EAGAIN)
			return;
		while (got > 0 && (whole = lines_next(&peer->tcp.lines, &line)) > 0) {
			if (peer->tcp.heard == PEER_PLAIN)
				session_plain(comm->session, index, line);
			else
				session_line(comm->session, index, line, now_us);
		}
		if (whole < 0)
			peer_gone(comm, peer, "it sent something that is not a message", now_us);
		else if (got < 0)
			peer_ended(comm, peer, (int)-got, now_us);
	}
}

/* Fetches the next bytes to send. False: there are none. */
static bool out_next(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	const uint32_t index = (uint32_t)(peer - comm->peers);
	struct tls *tls = peer->tcp.tls;
	char *out = peer->tcp.out, *line;
	size_t count = tls != NULL ? tls_pull(tls, out, sizeof(peer->tcp.out)) : 0;

	while (count == 0) {
		if (comm->fixed.tls != NULL && (tls == NULL || !tls_ready(tls)))
			return false;
		line = session_take_line(comm->session, index, now_us);
		if (line == NULL)
			return false;
		count = strlen(line);
		assert(count <= sizeof(peer->tcp.out));
		if (tls == NULL) {
			memcpy(out, line, count);
		} else {
			(void)tls_write(tls, line, count); /* Reading finds errors. */
			count = tls_pull(tls, out, sizeof(peer->tcp.out));
		}
		free(line);
	}
	peer->tcp.out_bytes = count;
	peer->tcp.out_at = 0;
	return true;
}

void comm_peer_write(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	struct comm_connection *tcp = &peer->tcp;

	while (peer->state == PEER_CONNECTED) {
		ssize_t count;

		if (tcp->out_at == tcp->out_bytes && !out_next(comm, peer, now_us))
			return;
		count = send(tcp->fd, tcp->out + tcp->out_at, tcp->out_bytes - tcp->out_at,
		             MSG_NOSIGNAL);
		if (count < 0 && errno != EINTR)
			return; /* It is full, or broken, which reading will find. */
		if (count > 0)
			tcp->out_at += (size_t)count;
	}
}

/* ---- those that are left out ---- */

void comm_peers_left_out(struct winnow_comm *comm, uint64_t before)
{
	uint64_t now_us = clock_us();

	for (uint32_t i = comm->move.peer_count; i < comm->fixed.peers_known; i++) {
		struct comm_peer *peer = &comm->peers[i];

		if (before >> peer->place & 1)
			continue;
		if (peer->tries.look_us == 0)
			peer->tries.look_us = COMM_LOOK_US;
		else if (peer->tries.look_us < COMM_LOOK_MAX_US)
			peer->tries.look_us *= 2;
		peer->tries.due_us = now_us + peer->tries.look_us;
	}
	comm->run.back = 0;
}

/* Would it take us? Then its first line is a HELLO that says so. */
static bool says_hello(struct comm_peer *peer)
{
	struct control_message message;
	const char *line;
	struct why why;

	return peer->tcp.heard != PEER_PLAIN && lines_next(&peer->tcp.lines, &line) == 1 &&
	       message_parse(line, &message, &why) == 0 && message.kind == CONTROL_HELLO &&
	       message.version == WIRE_VERSION && !message.drains;
}

/* Connects to an aggregator that is left out, and looks a few times at what it says. */
static void look(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	uint64_t bit = UINT64_C(1) << peer->place;
	union net_sockaddr address;
	struct net_addr there;
	char bytes[4096];
	socklen_t size;

	peer->tries.due_us = now_us + COMM_LOOK_ANSWER_US / COMM_LOOK_TURNS;
	if (peer->tcp.fd < 0) {
		comm_resolve_again(peer);
		peer->at.index = (peer->at.index + 1) % peer->at.count;
		size = net_sockaddr(&peer->at.list[peer->at.index], &address);
		peer->tries.look_turns = 0;
		if (comm_fork_socket(&peer->tcp.fd, address.any.sa_family) < 0)
			return;
		if (net_source_bind(peer->tcp.fd, &comm->fixed.source,
		                    &peer->at.list[peer->at.index].ip) == 0)
			(void)connect(peer->tcp.fd, &address.any, size);
		if (comm->fixed.tls != NULL &&
		    tls_connect(comm->fixed.tls, comm->move.job, comm->fixed.key.bytes,
		                &peer->tcp.tls) != 0)
			comm_peer_close(peer);
		return;
	}
	if (net_end(getpeername, peer->tcp.fd, &there) == 0) /* It is connected by now. */
		(void)peer_receive(peer);
	if (peer->tcp.tls != NULL)
		(void)!send(peer->tcp.fd, bytes, tls_pull(peer->tcp.tls, bytes, sizeof(bytes)),
		            MSG_NOSIGNAL);
	if (says_hello(peer))
		comm->run.back |= bit;
	else if (++peer->tries.look_turns < COMM_LOOK_TURNS)
		return;
	else
		comm->run.back &= ~bit;
	comm->run.news = true;
	comm_peer_close(peer);
	peer->tries.due_us = now_us + peer->tries.look_us;
}

/* ---- all ---- */

bool comm_peers_turn(struct winnow_comm *comm, uint64_t now_us)
{
	bool read = false;

	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		struct comm_peer *peer = &comm->peers[i];

		if (peer->state == PEER_WAITS && now_us >= peer->tries.due_us)
			connect_begin(comm, peer, now_us);
		else if (peer->state == PEER_CONNECTS)
			connect_check(comm, peer, now_us);
		if (peer->state != PEER_CONNECTED)
			continue;
		if (peer->tcp.ready) {
			peer->tcp.ready = false;
			peer_read(comm, peer, now_us);
			read = true;
		}
		if (comm->move.role != COMM_MEMBER && peer->state == PEER_CONNECTED &&
		    !link_stands(session_link(comm->session, i)))
			peer_gone(comm, peer, "silent", now_us);
		comm_peer_write(comm, peer, now_us);
	}
	for (uint32_t i = comm->move.peer_count;
	     i < comm->fixed.peers_known && comm->move.role == COMM_MEMBER; i++)
		if (now_us >= comm->peers[i].tries.due_us)
			look(comm, &comm->peers[i], now_us);
	return read;
}
