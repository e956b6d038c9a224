// SPDX-License-Identifier: BSD-3-Clause
/* test_tls.c - a handshake in any pieces, keys that are right, wrong and unknown, forged records */

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/control/tls.h"
#include "tests/unit/unit.h"

static const uint8_t right[SECRET_BYTES] = "the key of the job that is known";
static const uint8_t wrong[SECRET_BYTES] = "another key, of the same length!";

/* OpenSSL's memory: after so many pieces one is refused. */
static size_t pieces = SIZE_MAX;

static bool piece_refused(void)
{
	return pieces != SIZE_MAX && pieces-- == 0;
}

static void *piece_get(size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	return piece_refused() ? NULL : malloc(bytes);
}

static void *piece_resize(void *piece, size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	return piece_refused() ? NULL : realloc(piece, bytes);
}

static void piece_free(void *piece, const char *file, int line)
{
	(void)file;
	(void)line;
	free(piece);
}

/* Before OpenSSL has any. */
__attribute__((constructor)) static void pieces_count(void)
{
	CRYPTO_set_mem_functions(piece_get, piece_resize, piece_free);
}

struct pair {
	struct tls_context *contexts[2];
	struct tls *ends[2];    /* server, client */
	uint32_t asked, making; /* how often the key was asked for, and is not there yet */
	size_t piece;           /* bytes that go at once */
};

static int find(void *context, const char *identity, uint8_t key[SECRET_BYTES])
{
	struct pair *pair = context;

	pair->asked++;
	if (pair->making > 0) {
		pair->making--;
		return -EAGAIN;
	}
	if (strcmp(identity, "job") != 0)
		return -ENOENT;
	memcpy(key, right, SECRET_BYTES);
	return 0;
}

static void pair_open(struct pair *pair, const char *identity, const uint8_t *key)
{
	*pair = (struct pair){.piece = 65536};
	assert_int_equal(tls_context_open(find, &pair->contexts[0]), 0);
	assert_int_equal(tls_context_open(NULL, &pair->contexts[1]), 0);
	assert_int_equal(tls_accept(pair->contexts[0], pair, &pair->ends[0]), 0);
	assert_int_equal(tls_connect(pair->contexts[1], identity, key, &pair->ends[1]), 0);
}

static void pair_close(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		tls_close(pair->ends[i]);
		tls_context_close(pair->contexts[i]);
	}
}

/* One piece from one end to the other, which reads. Returns what tls_read() does; 1 << 20 for nothing to carry. */
#define NOTHING (1 << 20)
static ssize_t carry(struct pair *pair, int from, char *said, size_t room)
{
	char bytes[65536];
	size_t count = tls_pull(pair->ends[from], bytes, pair->piece);

	if (count == 0)
		return NOTHING;
	if (tls_feed(pair->ends[!from], bytes, count) != 0)
		return -ENOMEM;
	return tls_read(pair->ends[!from], said, room);
}

/* Until neither has anything to say. Returns the first error. */
static ssize_t settle(struct pair *pair)
{
	ssize_t result, first = 0;
	char said[16];
	int idle = 0;

	for (int from = 1; idle < 2; from = !from) {
		result = carry(pair, from, said, sizeof(said));
		idle = result == NOTHING ? idle + 1 : 0;
		if (result < 0 && first == 0)
			first = result;
	}
	return first;
}

/* And each connection has keys of its own. */
TEST(tls_says)
{
	struct seal_key keys[2], before = {0};
	struct pair pair;
	char said[64];

	for (size_t piece = 1; piece < 2000; piece = piece * 3 + 1) {
		pair_open(&pair, "job", right);
		pair.piece = piece;
		assert_int_equal(tls_write(pair.ends[1], "early", 5), -EAGAIN);
		assert_int_equal(settle(&pair), 0);
		assert_true(tls_ready(pair.ends[0]) && tls_ready(pair.ends[1]));
		assert_string_equal(tls_identity(pair.ends[0]), "job");
		assert_int_equal(pair.asked, 1);
		for (int i = 0; i < 2; i++)
			assert_int_equal(tls_seal_key(pair.ends[i], "job/1", &keys[i]), 0);
		assert_memory_equal(&keys[0], &keys[1], 16);
		assert_memory_not_equal(&keys[0], &before, 16);
		before = keys[0];
		assert_int_equal(tls_seal_key(pair.ends[0], "job/2", &keys[0]), 0);
		assert_memory_not_equal(&keys[0], &keys[1], 16);
		for (int from = 0; from < 2; from++) {
			ssize_t count = 0;

			assert_int_equal(tls_write(pair.ends[from], "a line\n", 7), 0);
			while (count == 0)
				count = carry(&pair, from, said, sizeof(said));
			assert_int_equal(count, 7);
			assert_memory_equal(said, "a line\n", 7);
		}
		pair_close(&pair);
	}
}

/* A self-signed certificate and its key. */
static void certificate_use(SSL_CTX *context)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();

	assert_true(key != NULL && certificate != NULL);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_set_pubkey(certificate, key);
	assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
	assert_int_equal(SSL_CTX_use_certificate(context, certificate), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

/* Who has no key may still do a handshake, with a certificate. That is nobody. */
TEST(tls_certificate)
{
	SSL_CTX *impostor = SSL_CTX_new(TLS_server_method());
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	struct tls_context *client;
	ssize_t result = 0;
	struct tls *tls;
	char bytes[16384];
	SSL *ssl;

	certificate_use(impostor);
	ssl = SSL_new(impostor);
	SSL_set_bio(ssl, in, out);
	SSL_set_accept_state(ssl);
	assert_int_equal(tls_context_open(NULL, &client), 0);
	assert_int_equal(tls_connect(client, "job", right, &tls), 0);
	for (int turn = 0; turn < 4 && result == 0; turn++) {
		size_t count = tls_pull(tls, bytes, sizeof(bytes));

		BIO_write(in, bytes, (int)count);
		if (SSL_do_handshake(ssl) == 1)
			SSL_write(ssl, "a line\n", 7);
		count = (size_t)BIO_pending(out);
		assert_in_range(count, 0, sizeof(bytes));
		if (count > 0)
			count = (size_t)BIO_read(out, bytes, (int)count);
		assert_int_equal(tls_feed(tls, bytes, count), 0);
		result = tls_read(tls, bytes, sizeof(bytes));
	}
	assert_int_equal(result, -EPROTO);
	assert_false(tls_ready(tls));
	assert_int_equal(tls_write(tls, "secret", 6), -EPROTO);
	tls_close(tls);
	tls_context_close(client);
	SSL_free(ssl);
	SSL_CTX_free(impostor);
}

TEST(tls_refuses)
{
	static const struct {
		const char *identity;
		const uint8_t *key;
	} cases[] = {{"job", wrong}, {"nobody", right}, {"jo", right}, {"", right}};
	char alert[256] = "";
	struct pair pair;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pair_open(&pair, cases[i].identity, cases[i].key);
		assert_int_equal(settle(&pair), -EPROTO);
		assert_false(tls_ready(pair.ends[0]) || tls_ready(pair.ends[1]));
		/* Both know that it has failed: the client by an alert. */
		assert_int_equal(tls_read(pair.ends[0], NULL, 0), -EPROTO);
		assert_int_equal(tls_read(pair.ends[1], NULL, 0), -EPROTO);
		assert_int_not_equal(strlen(tls_why(pair.ends[0])), 0);
		assert_int_not_equal(strlen(tls_why(pair.ends[1])), 0);
		assert_int_equal(tls_write(pair.ends[0], "x", 1), -EPROTO);
		/* Whether a name has a key the client does not learn. */
		if (i == 0)
			snprintf(alert, sizeof(alert), "%s", tls_why(pair.ends[1]));
		else if (i < 3)
			assert_string_equal(tls_why(pair.ends[1]), alert);
		pair_close(&pair);
	}
}

/* Any changed byte ends it, in the handshake and after it. */
TEST(tls_forged)
{
	char bytes[4096], said[64];
	struct pair pair;
	size_t count;

	for (int late = 0; late < 2; late++) {
		size_t length = 1;

		for (size_t at = 0; at < length; at++) {
			pair_open(&pair, "job", right);
			(void)tls_read(pair.ends[1], NULL, 0);
			if (late) {
				assert_int_equal(settle(&pair), 0);
				assert_int_equal(tls_write(pair.ends[1], "a line\n", 7), 0);
			}
			length = count = tls_pull(pair.ends[1], bytes, sizeof(bytes));
			bytes[at] ^= 0x40;
			assert_int_equal(tls_feed(pair.ends[0], bytes, count), 0);
			if (tls_read(pair.ends[0], said, sizeof(said)) == 0)
				(void)settle(&pair); /* a length has grown: it waits for more */
			/* The version of the first record's header says nothing, and is under no hash. */
			assert_false(late ? tls_read(pair.ends[0], said, sizeof(said)) > 0
			                  : tls_ready(pair.ends[0]) && tls_ready(pair.ends[1]) &&
			                             at != 1 && at != 2);
			pair_close(&pair);
		}
	}
}

TEST(tls_strangers)
{
	static const char *const lines[] = {"{\"type\": \"join\"}\n", "GET / HTTP/1.1\r\n\r\n",
	                                    "\x16\x03\x01"};
	struct pair pair;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		pair_open(&pair, "job", right);
		assert_int_equal(tls_feed(pair.ends[0], lines[i], strlen(lines[i])), 0);
		assert_int_equal(tls_read(pair.ends[0], NULL, 0), i < 2 ? -EPROTO : 0);
		pair_close(&pair);
	}
}

/* Nobody has OpenSSL make room for 131 kB with nine bytes, nor by pieces of a hello. */
TEST(tls_hello_whole)
{
	static const struct {
		const char *bytes;
		size_t count;
	} cases[] = {{"\x16\x03\x01\0\4\x01\x02\x01\x40", 9},
	             {"\x16\x03\x01\1\0\x01\0\0\xfd", 9},
	             {"\x16\x03\x01\0\2\x01\0\x16\x03\x01\0\2\1\0", 14},
	             {"\x16\x03\x01\0\0\x16\x03\x01\0\4\x01\x02\x01\x40", 14},
	             {"\x14\x03\x03\0\1\1\x16\x03\x01\0\4\x01\x02\x01\x40", 15}};
	struct pair pair;

	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		const char *bytes = cases[i / 2].bytes;
		const size_t count = cases[i / 2].count, piece = i % 2 == 0 ? count : 1;

		pair_open(&pair, "job", right);
		for (size_t at = 0; at < count; at += piece)
			assert_int_equal(tls_feed(pair.ends[0], bytes + at, piece), 0);
		assert_int_equal(tls_read(pair.ends[0], NULL, 0), -EPROTO);
		assert_string_equal(tls_why(pair.ends[0]), "its hello takes more than one record");
		pair_close(&pair);
	}
}

static int right_offer(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *length,
                       SSL_SESSION **out)
{
	static const unsigned char suite[] = {0x13, 0x01};

	(void)hash;
	*out = SSL_SESSION_new();
	*identity = (const unsigned char *)"job";
	*length = 3;
	return SSL_SESSION_set1_master_key(*out, right, SECRET_BYTES) == 1 &&
	       SSL_SESSION_set_cipher(*out, SSL_CIPHER_find(ssl, suite)) == 1 &&
	       SSL_SESSION_set_protocol_version(*out, TLS1_3_VERSION) == 1;
}

/* OpenSSL's own client says hello to the server. Frees the context. */
static void hello_say(SSL_CTX *context, struct tls *server)
{
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	SSL *ssl = SSL_new(context);
	char bytes[4096];
	int count;

	SSL_set_bio(ssl, in, out);
	SSL_set_connect_state(ssl);
	assert_int_equal(SSL_do_handshake(ssl), -1);
	count = BIO_read(out, bytes, sizeof(bytes));
	assert_true(count > 0);
	assert_int_equal(tls_feed(server, bytes, (size_t)count), 0);
	SSL_free(ssl);
	SSL_CTX_free(context);
}

/* All that is offered is another version: the handshake fails. */
TEST(tls_versions)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	struct pair pair;

	pair_open(&pair, "job", right);
	SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
	hello_say(context, pair.ends[0]);
	assert_int_equal(tls_read(pair.ends[0], NULL, 0), -EPROTO);
	assert_string_equal(tls_why(pair.ends[0]), "its hello names no job");
	pair_close(&pair);
}

/* Who has a key does not choose how much work a handshake is: with ffdhe8192 150 ms. */
TEST(tls_groups)
{
	static const struct {
		const char *group;
		ssize_t result;
	} cases[] = {{"X25519", 0},      {"P-256", 0},           {"X448", -EPROTO},
	             {"P-521", -EPROTO}, {"ffdhe2048", -EPROTO}, {"ffdhe8192", -EPROTO}};
	struct pair pair;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		SSL_CTX *context = SSL_CTX_new(TLS_client_method());

		pair_open(&pair, "job", right);
		assert_int_equal(SSL_CTX_set1_groups_list(context, cases[i].group), 1);
		SSL_CTX_set_psk_use_session_callback(context, right_offer);
		hello_say(context, pair.ends[0]);
		assert_int_equal(tls_read(pair.ends[0], NULL, 0), cases[i].result);
		pair_close(&pair);
	}
}

/* A handshake whose key is being made stands still, and goes on when it is. */
TEST(tls_awaits)
{
	struct pair pair;
	char bytes[4096];
	size_t count;

	pair_open(&pair, "job", right);
	pair.making = 3;
	count = tls_pull(pair.ends[1], bytes, sizeof(bytes));
	assert_int_equal(tls_feed(pair.ends[0], bytes, count), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(tls_read(pair.ends[0], NULL, 0), -EAGAIN);
		assert_int_equal(tls_pull(pair.ends[0], bytes, sizeof(bytes)), 0);
		assert_string_equal(tls_identity(pair.ends[0]), "job");
	}
	assert_int_equal(tls_read(pair.ends[0], NULL, 0), 0);
	assert_int_equal(settle(&pair), 0);
	assert_true(tls_ready(pair.ends[0]) && tls_ready(pair.ends[1]));
	pair_close(&pair);
}

/* Whichever piece of memory is not there, the handshake fails, or does without it. */
TEST(tls_no_memory)
{
	bool refused = true;
	struct pair pair = {.piece = 65536};

	assert_int_equal(tls_context_open(find, &pair.contexts[0]), 0);
	assert_int_equal(tls_context_open(NULL, &pair.contexts[1]), 0);
	for (size_t first = 0; refused; first++) {
		pair.ends[0] = pair.ends[1] = NULL;
		pieces = first;
		if (tls_accept(pair.contexts[0], &pair, &pair.ends[0]) == 0 &&
		    tls_connect(pair.contexts[1], "job", right, &pair.ends[1]) == 0 &&
		    tls_read(pair.ends[1], NULL, 0) == 0 && settle(&pair) == 0)
			assert_true(tls_ready(pair.ends[0]) && tls_ready(pair.ends[1]));
		refused = pieces == SIZE_MAX;
		pieces = SIZE_MAX;
		tls_close(pair.ends[0]);
		tls_close(pair.ends[1]);
	}
	tls_context_close(pair.contexts[0]);
	tls_context_close(pair.contexts[1]);
}

/* What comes behind bytes that found no memory is not taken for what follows them. */
TEST(tls_no_gap)
{
	struct pair pair;
	char bytes[4096];
	size_t count;

	pair_open(&pair, "job", right);
	count = tls_pull(pair.ends[1], bytes, sizeof(bytes));
	pieces = 0;
	assert_int_equal(tls_feed(pair.ends[0], bytes, count), -ENOMEM);
	pieces = SIZE_MAX;
	assert_int_equal(tls_feed(pair.ends[0], bytes, count), 0);
	assert_int_equal(tls_read(pair.ends[0], bytes, sizeof(bytes)), -EPROTO);
	assert_string_equal(tls_why(pair.ends[0]), "out of memory");
	pair_close(&pair);
}

/* Whatever is cut off, nothing is there that was not said. */
TEST(tls_cut)
{
	char bytes[4096], said[64];
	struct pair pair;
	size_t count, length = 1;

	for (size_t left = 0; left < length; left++) {
		pair_open(&pair, "job", right);
		assert_int_equal(settle(&pair), 0);
		assert_int_equal(tls_write(pair.ends[1], "a line\n", 7), 0);
		length = count = tls_pull(pair.ends[1], bytes, sizeof(bytes));
		assert_int_equal(tls_feed(pair.ends[0], bytes, left), 0);
		assert_int_equal(tls_read(pair.ends[0], said, sizeof(said)), 0);
		pair_close(&pair);
	}
}
