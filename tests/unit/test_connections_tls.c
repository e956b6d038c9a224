// SPDX-License-Identifier: BSD-3-Clause
/* test_connections_tls.c - control connections with the job's key */

#include "tests/unit/test_connections.h"

#include "bitmap/control/tls.h"

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct tls_context *clients;
static struct job_keys *keys;

static int begin_with(const char *text)
{
	struct why why;

	assert_int_equal(job_keys_load(NULL, text, &keys, &why), 0);
	assert_int_equal(tls_context_open(NULL, &clients), 0);
	first_keys = keys;
	return begin(NULL);
}

static int begin_keyed(void **state)
{
	return begin_with(KEY);
}

static int end_keyed(void **state)
{
	end(state);
	tls_context_close(clients);
	job_keys_free(keys);
	first_keys = NULL;
	return 0;
}

struct client {
	int fd;
	struct tls *tls;
	char said[512]; /* by the aggregator */
	ssize_t result; /* of the last tls_read() */
};

static struct client client_dial(const char *job, const char *key_text)
{
	struct client client = {.fd = dial_peer(1)};
	struct job_key key;

	assert_int_equal(job_key_from_text(key_text, &key), 0);
	assert_int_equal(tls_connect(clients, job, key.bytes, &client.tls), 0);
	return client;
}

/* Carries `piece` bytes at most each way. */
static void client_turn(struct client *client, size_t piece)
{
	char bytes[4096];
	size_t used = strlen(client->said), count = tls_pull(client->tls, bytes, piece);
	ssize_t got;

	assert_true(count == 0 || send(client->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
	got = recv(client->fd, bytes, piece, MSG_DONTWAIT);
	if (got > 0)
		assert_int_equal(tls_feed(client->tls, bytes, (size_t)got), 0);
	client->result =
		tls_read(client->tls, client->said + used, sizeof(client->said) - 1 - used);
	client->said[client->result > 0 ? used + (size_t)client->result : used] = '\0';
}

static bool client_hears(struct client *client, size_t piece, const char *text)
{
	client_turn(client, piece);
	return strcmp(client->said, text) == 0;
}

static void client_say(struct client *client, const char *text)
{
	assert_int_equal(tls_write(client->tls, text, strlen(text)), 0);
}

static void client_close(struct client *client)
{
	close(client->fd);
	tls_close(client->tls);
}

/* Lines as ever, in pieces of any size; both ends have one key for a name. */
TEST_BETWEEN(secured, begin_keyed, end_keyed)
{
	for (size_t piece = 1; piece <= 4096; piece = piece * 63 + 1) {
		struct jobs_peer *peer = &peers[peer_count];
		struct client client = client_dial("job/1", KEY);
		struct seal_key ours, theirs;

		UNTIL(client_hears(&client, piece, "hello\n"));
		assert_string_equal(peer->secured, "job");
		assert_true(peer->owner != 0);
		assert_int_equal(connections_seal_key(peer, "job/1", &ours), 0);
		assert_int_equal(tls_seal_key(client.tls, "job/1", &theirs), 0);
		assert_memory_equal(&ours, &theirs, sizeof(ours));
		client_say(&client, "number 0\nnumber 1\nrefuse me\n");
		UNTIL(client_hears(&client, piece, "hello\nno\n"));
		assert_int_equal(peer->lines, 3);
		client_close(&client);
	}
	UNTIL(connections_none(&connections));
}

/* Who begins without TLS is told why, in plain text; who has no key, by an alert. */
TEST_BETWEEN(unsecured, begin_keyed, end_keyed)
{
	struct client client;
	int fd = dial_peer(1);

	say_text(fd, "{");
	expect_all(fd, "key\n");
	fd = dial_peer(1);
	say_text(fd, "GET / HTTP/1.1\r\n");
	expect_all(fd, "protocol\n");
	client = client_dial("job", KEY "e");
	UNTIL((client_turn(&client, 4096), client.result < 0));
	assert_int_equal(client.result, -EPROTO);
	assert_string_equal(peers[2].reason, "key");
	client_close(&client);
	fd = dial_peer(1); /* it is told at once, as long as it has said nothing */
	connections_send(NULL, &peers[3], "crowded\n");
	connections_shut(NULL, &peers[3]);
	expect_all(fd, "crowded\n");
	assert_int_equal(peers[0].lines + peers[1].lines + peers[2].lines + peers[3].lines, 0);
	UNTIL(connections_none(&connections));
}

/* Garbage inside TLS, a record with another bit, and the end in the midst of a handshake. */
TEST_BETWEEN(broken, begin_keyed, end_keyed)
{
	struct client client = client_dial("job", KEY);
	char bytes[256];
	size_t count;
	int fd;

	UNTIL(client_hears(&client, 4096, "hello\n"));
	client_say(&client, "abort\n");
	count = tls_pull(client.tls, bytes, sizeof(bytes));
	bytes[count - 1] ^= 1;
	assert_int_equal(send(client.fd, bytes, count, MSG_NOSIGNAL), count);
	UNTIL(peers[0].garbage);
	assert_int_equal(peers[0].lines, 0);
	client_close(&client);
	fd = dial_peer(1);
	assert_int_equal(send(fd, "\x16\x03\x01\xff\xff garbage", 14, MSG_NOSIGNAL), 14);
	UNTIL(peers[1].refused);
	assert_string_equal(peers[1].reason, "key");
	close(fd);
	client = client_dial("job", KEY);
	count = tls_pull(client.tls, bytes, 100);
	assert_int_equal(send(client.fd, bytes, count, MSG_NOSIGNAL), count);
	turns(10);
	client_close(&client);
	UNTIL(peers[2].gone);
	UNTIL(connections_none(&connections));
}

static int begin_aside(void **state)
{
	return begin_with("a-passphrase");
}

/* A handshake whose key is being made waits, and nobody else does. */
TEST_BETWEEN(awaits_key, begin_aside, end_keyed)
{
	struct client client = client_dial("job", "a-passphrase");

	UNTIL((client_turn(&client, 4096), peers[0].awaited > 0));
	connections_keys_made(&connections, keys); /* but not this one */
	for (int i = 0; i < 20; i++) {
		turns(1);
		client_turn(&client, 4096);
	}
	assert_true(peers[0].awaited == 2 && client.said[0] == '\0');
	dial_peer(1);
	peers[1].refused = true;
	connections_shut(NULL, &peers[1]);
	assert_int_equal(job_keys_stretch(keys, NULL), 1);
	connections_keys_made(&connections, keys);
	UNTIL(client_hears(&client, 4096, "hello\n"));
	assert_int_equal(peers[0].awaited, 2);
	client_close(&client);
	UNTIL(peers[0].gone);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	return unit_run(NULL, NULL);
}
