// SPDX-License-Identifier: BSD-3-Clause
/* connections.c - see connections.h */

#include "aggregator/connections.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bitmap/control/lines.h"
#include "bitmap/control/tls.h"
#include "bitmap/net/sockaddr.h"

#define ACCOUNTS_LOG2 11
#define ACCOUNTS (1u << ACCOUNTS_LOG2)
#define POOR_MS 5             /* until an owner whose budget is used up may have his turn */
#define COMING 0x436f6d696e67 /* owners have other accounts for connecting and disconnecting */

/* What the connections of an owner cost. */
struct account {
	struct budget budget;
	TAILQ_HEAD(connection_queue, connection) queue; /* Its waiting connections, in order. */
	TAILQ_ENTRY(account) place;                     /* in `waiting`, while any wait */
};

struct connection {
	uv_tcp_t tcp;
	struct connections *all;
	struct jobs_peer *peer; /* NULL when jobs.c has done with it */
	const char *why;        /* why we have cut it off, or NULL */
	uint64_t host;          /* the owner of its address */
	uint64_t shut_us;
	uv_shutdown_t shutdown;
	LIST_ENTRY(connection) place; /* in one of the two lists */
	struct account *waits;        /* the account in whose queue it waits, or NULL */
	TAILQ_ENTRY(connection) next; /* in that queue */
	bool full;                    /* The last read filled the buffer, so there may be more. */
	bool secured;                 /* jobs.c knows whose key it has. */
	bool replied;                 /* Something has been sent, so TLS has begun. */
	uint64_t key_owner;           /* The number of that key. */
	struct tls *tls;              /* NULL without keys, or before the first byte. */
	struct lines lines;
};

/* Bytes on their way out. */
struct written {
	uv_write_t request;
	char bytes[];
};

#define OUT_BYTES 16384 /* of TLS, written at once */

static void accounts_turn(uv_timer_t *timer);
static void connection_reads(struct connection *connection);

bool connections_none(const struct connections *connections)
{
	return LIST_EMPTY(&connections->open) && LIST_EMPTY(&connections->shut);
}

/* ---- time ---- */

/* CPU time of this thread, which does not depend on what else the machine does. */
static uint64_t worked_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static struct account *account_of(const struct connections *all, uint64_t owner)
{
	return &all->accounts[((owner ^ all->salt) * 0x9e3779b97f4a7c15) >> (64 - ACCOUNTS_LOG2)];
}

static void account_spend(struct connections *all, struct account *account, uint64_t since_us)
{
	const uint64_t us = worked_us() - since_us;

	budget_spend(&account->budget, us);
	all->turn_us += us;
}

static void reading_stop(struct connection *connection)
{
	connection->full = false;
	uv_read_stop((uv_stream_t *)&connection->tcp);
}

/* The connection is not read until it leaves the queue. */
static void queue_enter(struct connection *connection, struct account *account)
{
	reading_stop(connection);
	connection->waits = account;
	TAILQ_INSERT_TAIL(&account->queue, connection, next);
}

/* The connection waits for its turn. */
static void turn_await(struct connection *connection)
{
	struct connections *all = connection->all;
	struct account *account = account_of(all, jobs_peer_owner(connection->peer));

	if (TAILQ_EMPTY(&account->queue))
		TAILQ_INSERT_TAIL(&all->waiting, account, place);
	queue_enter(connection, account);
	if (!uv_is_active((uv_handle_t *)&all->again))
		uv_timer_start(&all->again, accounts_turn, 1, 0);
}

/* The connection no longer waits. */
static void queue_leave(struct connection *connection)
{
	struct account *account = connection->waits;

	if (account == NULL)
		return;
	TAILQ_REMOVE(&account->queue, connection, next);
	if (TAILQ_EMPTY(&account->queue) && account != connection->all->keyless)
		TAILQ_REMOVE(&connection->all->waiting, account, place);
	connection->waits = NULL;
}

/* ---- closing ---- */

static void connection_closed(uv_handle_t *handle)
{
	struct connection *connection = handle->data;

	tls_close(connection->tls);
	free(connection);
}

/* Closes the socket at once. The memory stays until the loop has finished with it. */
static void connection_end(struct connection *connection)
{
	if (uv_is_closing((uv_handle_t *)&connection->tcp))
		return;
	LIST_REMOVE(connection, place);
	queue_leave(connection);
	uv_close((uv_handle_t *)&connection->tcp, connection_closed);
}

static void shut_done(uv_shutdown_t *request, int status)
{
	(void)status;
	connection_end(request->data);
}

/*
 * Closes when all written bytes are sent; connections_tick() limits the time. Bytes that still come
 * are read, because unread ones would make the system drop those that we have written.
 */
void connections_shut(void *unused, struct jobs_peer *peer)
{
	struct connection *connection = jobs_peer_handle(peer);

	(void)unused;
	connection->peer = NULL;
	tls_close(connection->tls); /* it takes far more memory than the bytes that are left */
	connection->tls = NULL;
	connection->shut_us = uv_hrtime() / 1000;
	connection->shutdown.data = connection;
	LIST_REMOVE(connection, place);
	LIST_INSERT_HEAD(&connection->all->shut, connection, place);
	queue_leave(connection);
	connection_reads(connection);
	if (uv_shutdown(&connection->shutdown, (uv_stream_t *)&connection->tcp, shut_done) != 0)
		connection_end(connection);
}

void connections_tick(struct connections *connections, uint64_t now_us)
{
	struct connection *next;

	for (struct connection *c = LIST_FIRST(&connections->shut); c != NULL; c = next) {
		next = LIST_NEXT(c, place);
		if (now_us - c->shut_us > CONNECTIONS_LINGER_US)
			connection_end(c);
	}
}

/* jobs.c must also learn that the peer is gone, but only after its call to us has returned. */
static void cut_off(struct connection *connection, const char *why)
{
	int fd;

	connection->why = why;
	if (uv_fileno((uv_handle_t *)&connection->tcp, &fd) == 0)
		shutdown(fd, SHUT_RDWR);
}

/* ---- out ---- */

static void write_done(uv_write_t *request, int status)
{
	(void)status; /* a broken connection shows in connection_read() */
	free(request->data);
}

int connections_write(uv_tcp_t *tcp, const void *from, size_t bytes)
{
	struct written *written = malloc(sizeof(*written) + bytes);
	uv_buf_t buffer;

	if (written == NULL)
		return -ENOMEM;
	memcpy(written->bytes, from, bytes);
	written->request.data = written;
	buffer = uv_buf_init(written->bytes, (unsigned)bytes);
	if (uv_write(&written->request, (uv_stream_t *)tcp, &buffer, 1, write_done) == 0)
		return 0;
	free(written);
	return -EPIPE;
}

static void bytes_send(struct connection *connection, const void *from, size_t bytes)
{
	const uv_stream_t *stream = (uv_stream_t *)&connection->tcp;
	int err;

	connection->replied = true;
	if (uv_stream_get_write_queue_size(stream) + bytes > CONNECTIONS_QUEUE_BYTES) {
		cut_off(connection, "it does not read what it is sent");
		return;
	}
	err = connections_write(&connection->tcp, from, bytes);
	if (err != 0)
		cut_off(connection, err == -ENOMEM ? "the aggregator is out of memory"
		                                   : "it cannot be written to");
}

/* Sends TLS's bytes: its handshake, lines, or why it has failed. */
static void tls_send(struct connection *connection)
{
	char bytes[OUT_BYTES];
	size_t count;

	while (connection->why == NULL &&
	       (count = tls_pull(connection->tls, bytes, sizeof(bytes))) > 0)
		bytes_send(connection, bytes, count);
}

/* 5.2: "it may send failed as a plain line, and closes it". During a handshake nothing is sent. */
void connections_send(void *unused, struct jobs_peer *peer, const char *line)
{
	struct connection *connection = jobs_peer_handle(peer);

	(void)unused;
	if (connection->why != NULL)
		return;
	if (connection->secured) {
		if (tls_write(connection->tls, line, strlen(line)) != 0)
			cut_off(connection, "TLS cannot send a line");
		tls_send(connection);
	} else if (connection->tls == NULL || !connection->replied) {
		bytes_send(connection, line, strlen(line));
	}
}

/* For struct jobs_ports. */
int connections_seal_key(struct jobs_peer *peer, const char *membership, struct seal_key *out)
{
	const struct connection *connection = jobs_peer_handle(peer);

	return tls_seal_key(connection->tls, membership, out);
}

/* ---- in ---- */

/* Gives one buffer a turn, because the loop would read on while there is something. */
static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
	struct connection *connection = handle->data;
	size_t bytes = 0;
	char *room = connection->lines.buffer;

	(void)suggested;
	if (connection->full)
		connection->full = false;
	else if (connection->peer != NULL && connection->all->tls != NULL) {
		room = connection->all->sealed;
		bytes = sizeof(connection->all->sealed);
	} else if (connection->peer != NULL)
		room = lines_room(&connection->lines, &bytes);
	else
		bytes = sizeof(connection->lines.buffer); /* nobody wants it */
	*out = uv_buf_init(room, (unsigned)bytes);
}

/* Finds the key for the job's name that a client offers. */
static int key_find(void *context, const char *name, uint8_t key[SECRET_BYTES])
{
	struct connection *connection = context;
	struct job_key found;
	int err = job_keys_find(connection->all->keys, name, &found);

	if (err != 0)
		return err;
	connection->key_owner = job_key_owner(&found);
	memcpy(key, found.bytes, SECRET_BYTES);
	explicit_bzero(&found, sizeof(found));
	return 0;
}

/* Handles a client's first byte. Without a handshake the client has no key, or is no worker. */
static bool tls_begin(struct connection *connection, uint8_t first)
{
	struct connections *all = connection->all;

	if (first == '{')
		jobs_refuse(
			all->jobs, connection->peer, "key",
			"this aggregator needs the job's key: set WINNOW_KEY_FILE or WINNOW_KEY");
	else if (first != TLS_FIRST_BYTE)
		jobs_refuse(all->jobs, connection->peer, "protocol",
		            "this port speaks Winnow's protocol, by TLS with the job's key");
	else if (tls_accept(all->tls, connection, &connection->tls) != 0)
		cut_off(connection, "the aggregator is out of memory");
	return connection->tls != NULL;
}

/* The handshake has failed. Or 5.2: "A record that TLS refuses ends the connection, for both sides, like a cut" */
static void tls_broken(struct connection *connection)
{
	struct connections *all = connection->all;
	const char *name = tls_identity(connection->tls);
	struct why text;

	tls_send(connection);
	if (connection->secured)
		jobs_garbage(all->jobs, connection->peer,
		             "a forged TLS record: somebody on the path has made it");
	else if (*name != '\0')
		why_set(&text, 0, "wrong key for job '%s', or there is none for it here", name);
	else
		why_set(&text, 0, "no TLS handshake with a job's key: %s",
		        tls_why(connection->tls));
	if (!connection->secured)
		jobs_refuse(all->jobs, connection->peer, "key", text.text);
}

/* Reads more from the client. Returns 1 if there was some, 0, or -EAGAIN during a key's making. */
static int tls_work(struct connection *connection)
{
	struct connections *all = connection->all;
	size_t room;
	char *to = lines_room(&connection->lines, &room);
	ssize_t count = tls_read(connection->tls, to, room);

	if (count == -EAGAIN)
		jobs_awaits_key(connection->peer, uv_hrtime() / 1000);
	if (!connection->secured && tls_ready(connection->tls)) {
		connection->secured = true;
		jobs_secured(all->jobs, connection->peer, tls_identity(connection->tls),
		             connection->key_owner);
	}
	if (count > 0)
		lines_added(&connection->lines, (size_t)count);
	else if (count == -EPIPE)
		cut_off(connection, "connection closed");
	else if (count == -EPROTO)
		tls_broken(connection);
	else
		tls_send(connection);
	return count == -EAGAIN ? -EAGAIN : count > 0;
}

/* Like lines_next(), or -EAGAIN. */
static int line_next(struct connection *connection, const char **out)
{
	int got = lines_next(&connection->lines, out);

	while (got == 0 && connection->tls != NULL && connection->peer != NULL) {
		int more = tls_work(connection);

		if (more <= 0)
			return more;
		got = lines_next(&connection->lines, out);
	}
	return got;
}

/* Hands lines to jobs.c, as many as a connection may say in a turn. */
static void connection_work(struct connection *connection)
{
	struct connections *all = connection->all;
	struct account *account = account_of(all, jobs_peer_owner(connection->peer));
	const uint64_t since_us = worked_us();
	const char *line;
	int got = 1;

	for (uint32_t i = 0; i < CONNECTIONS_TURN_LINES && connection->peer != NULL; i++) {
		got = line_next(connection, &line);
		if (got <= 0)
			break;
		jobs_line(all->jobs, connection->peer, line, uv_hrtime() / 1000);
	}
	if (got == -EMSGSIZE)
		jobs_garbage(all->jobs, connection->peer, "a line is too long, or has a zero byte");
	account_spend(all, account, since_us);
	if (connection->peer == NULL)
		return;
	if (got == -EAGAIN)
		queue_enter(connection, all->keyless);
	else if (got > 0)
		turn_await(connection);
	else
		connection_reads(connection);
}

/* Accounts take turns, and so do the connections of each. */
static void accounts_turn(uv_timer_t *timer)
{
	struct connections *all = timer->data;
	const uint64_t now_us = uv_hrtime() / 1000;
	struct account *account, *poor = NULL;

	all->turn_us = 0;
	while ((account = TAILQ_FIRST(&all->waiting)) != NULL &&
	       all->turn_us < CONNECTIONS_TURN_US && account != poor) {
		TAILQ_REMOVE(&all->waiting, account, place);
		TAILQ_INSERT_TAIL(&all->waiting, account, place);
		if (budget_open(&account->budget, now_us)) {
			struct connection *connection = TAILQ_FIRST(&account->queue);

			poor = NULL;
			queue_leave(connection);
			connection_work(connection);
		} else if (poor == NULL) {
			poor = account;
		}
	}
	if (account != NULL)
		uv_timer_start(timer, accounts_turn, account == poor ? POOR_MS : 1, 0);
}

void connections_keys_made(struct connections *connections, const struct job_keys *keys)
{
	struct connection *connection;

	connections->keys = keys;
	while ((connection = TAILQ_FIRST(&connections->keyless->queue)) != NULL) {
		queue_leave(connection);
		turn_await(connection);
	}
}

/* The connection has ended by itself, or because we cut it off. */
static void connection_gone(struct connection *connection, ssize_t why)
{
	const char *reason = why == UV_EOF ? "connection closed" : uv_strerror((int)why);
	struct connections *all = connection->all;
	struct jobs_peer *peer = connection->peer;
	const uint64_t since_us = worked_us();

	connection->peer = NULL;
	if (peer != NULL)
		jobs_gone(all->jobs, peer, connection->why != NULL ? connection->why : reason);
	connection_end(connection);
	account_spend(all, account_of(all, connection->host ^ COMING), since_us);
}

static void connection_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct connection *connection = stream->data;
	struct account *account;

	if (count == UV_ENOBUFS)
		return; /* it has had its buffer for this turn */
	if (count < 0)
		connection_gone(connection, count);
	if (count <= 0)
		return;
	connection->full = (size_t)count == buffer->len;
	if (connection->peer == NULL)
		return;
	if (connection->all->tls == NULL)
		lines_added(&connection->lines, (size_t)count);
	else if (connection->tls == NULL && !tls_begin(connection, (uint8_t)buffer->base[0]))
		return;
	else if (tls_feed(connection->tls, buffer->base, (size_t)count) != 0) {
		cut_off(connection, "the aggregator is out of memory");
		return;
	}
	account = account_of(connection->all, jobs_peer_owner(connection->peer));
	if (TAILQ_EMPTY(&account->queue) && connection->all->turn_us < CONNECTIONS_TURN_US &&
	    budget_open(&account->budget, uv_hrtime() / 1000))
		connection_work(connection);
	else
		turn_await(connection);
}

static void connection_reads(struct connection *connection)
{
	if (!uv_is_closing((uv_handle_t *)&connection->tcp))
		uv_read_start((uv_stream_t *)&connection->tcp, give_buffer, connection_read);
}

/* ---- new connections ---- */

static void connection_begin(struct connections *all, int fd, const struct net_addr *from)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	struct net_addr local;
	int err;

	if (connection == NULL) {
		close(fd);
		return;
	}
	uv_tcp_init(all->loop, &connection->tcp);
	connection->tcp.data = connection;
	connection->all = all;
	connection->host = net_ip_owner(&from->ip);
	LIST_INSERT_HEAD(&all->open, connection, place);
	err = uv_tcp_open(&connection->tcp, fd);
	if (err != 0)
		close(fd);
	else
		err = uv_read_start((uv_stream_t *)&connection->tcp, give_buffer, connection_read);
	if (err != 0) {
		connection_end(connection);
		return;
	}
	uv_tcp_nodelay(&connection->tcp, 1);
	(void)net_end(getsockname, fd, &local);
	connection->peer =
		jobs_connected(all->jobs, from, &local.ip, connection, uv_hrtime() / 1000);
}

/* Tells a connection why it is refused, if that can be sent at once, and frees the text. */
static void connection_refuse(int fd, char *text)
{
	if (text != NULL)
		(void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
	message_free(text);
	close(fd);
}

static void connection_new(void *context, int fd, const struct net_addr *from)
{
	struct connections *all = context;
	struct account *account = account_of(all, net_ip_owner(&from->ip) ^ COMING);
	const uint64_t since_us = worked_us();

	if (budget_open(&account->budget, uv_hrtime() / 1000))
		connection_begin(all, fd, from);
	else
		connection_refuse(fd, jobs_turn_away(all->jobs));
	account_spend(all, account, since_us);
}

/* No descriptor is left, so a connection that is finished, or that has not joined, gives up its own. */
static bool make_room(void *context)
{
	struct connections *all = context;

	if (LIST_EMPTY(&all->shut) && !jobs_crowd_out(all->jobs))
		return false;
	if (!LIST_EMPTY(&all->shut))
		connection_end(LIST_FIRST(&all->shut));
	return true;
}

int connections_open(struct connections *connections, uv_loop_t *loop, struct jobs *jobs, int fd,
                     const struct net_addr *listen, struct why *why)
{
	const struct listener_hooks hooks = {
		.context = connections,
		.taken = connection_new,
		.make_room = make_room,
	};
	int err;

	connections->loop = loop;
	connections->jobs = jobs;
	if (connections->keys != NULL && tls_context_open(key_find, &connections->tls) != 0) {
		close(fd);
		return why_set(why, -ENOMEM, "out of memory");
	}
	connections->accounts = calloc(ACCOUNTS + 1, sizeof(*connections->accounts));
	if (connections->accounts == NULL) {
		close(fd);
		return why_set(why, -ENOMEM, "out of memory");
	}
	connections->keyless = &connections->accounts[ACCOUNTS];
	for (uint32_t i = 0; i <= ACCOUNTS; i++)
		TAILQ_INIT(&connections->accounts[i].queue);
	TAILQ_INIT(&connections->waiting);
	random_bytes(&connections->salt, sizeof(connections->salt));
	err = listener_open(&connections->listener, loop, fd, listen, &hooks, why);
	if (err != 0) {
		free(connections->accounts);
		connections->accounts = NULL;
		return err;
	}
	uv_timer_init(loop, &connections->again);
	connections->again.data = connections;
	return 0;
}

void connections_end(struct connections *connections)
{
	while (!LIST_EMPTY(&connections->open))
		connection_end(LIST_FIRST(&connections->open));
	while (!LIST_EMPTY(&connections->shut))
		connection_end(LIST_FIRST(&connections->shut));
	listener_stop(&connections->listener);
	tls_context_close(connections->tls);
	connections->tls = NULL;
	if (connections->accounts == NULL)
		return;
	uv_close((uv_handle_t *)&connections->again, NULL);
	free(connections->accounts);
	connections->accounts = NULL;
}
