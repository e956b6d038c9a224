// SPDX-License-Identifier: BSD-3-Clause
/* tls.c - see tls.h */

#include "bitmap/control/tls.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TLS_WHY_BYTES 96
#define SEAL_LABEL "EXPORTER-winnow-seal"
#define RECORD_HEAD_BYTES 5
#define MESSAGE_HEAD_BYTES 4

struct tls_context {
	SSL_CTX *ssl;
	tls_find *find; /* NULL in a client's context */
};

struct tls {
	SSL *ssl;
	BIO *in, *out; /* owned by `ssl`; hold bytes that came, and bytes to send */
	tls_find *find;
	void *context; /* passed to find() */
	bool failed, ready;
	uint8_t head[RECORD_HEAD_BYTES + MESSAGE_HEAD_BYTES]; /* of the record that arrives */
	size_t head_bytes;                                    /* bytes of `head` so far */
	size_t record_left;        /* bytes of the record that are still to come after its head */
	uint8_t key[SECRET_BYTES]; /* kept until the handshake is over */
	char identity[CONTROL_NAME_BYTES];
	char why[TLS_WHY_BYTES];
};

/* ---- keys ---- */

/* OpenSSL treats an external PSK as a session whose secret was not negotiated. Its hash is SHA-256. */
static SSL_SESSION *session_of(SSL *ssl, const uint8_t key[SECRET_BYTES])
{
	static const unsigned char suite[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session != NULL && cipher != NULL &&
	    SSL_SESSION_set1_master_key(session, key, SECRET_BYTES) == 1 &&
	    SSL_SESSION_set_cipher(session, cipher) == 1 &&
	    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

/* Reads the first identity that a client offers, behind two lengths. "": it is not a name. */
static void identity_read(SSL *ssl, char out[CONTROL_NAME_BYTES])
{
	const unsigned char *list;
	size_t bytes, length = 0;

	*out = '\0';
	if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_psk, &list, &bytes) != 1 || bytes < 4)
		return;
	length = (size_t)list[2] << 8 | list[3];
	if (length > bytes - 4 || length >= CONTROL_NAME_BYTES)
		return;
	memcpy(out, list + 4, length);
	out[length] = '\0';
	if (strlen(out) != length || !message_name_valid(out) || strchr(out, '/') != NULL)
		*out = '\0';
}

/* Handles a client's hello. The handshake pauses while its key is being made. */
static int hello_taken(SSL *ssl, int *alert, void *unused)
{
	struct tls *tls = SSL_get_app_data(ssl);
	int err;

	(void)unused;
	identity_read(ssl, tls->identity);
	if (*tls->identity == '\0') {
		snprintf(tls->why, sizeof(tls->why), "its hello names no job");
		*alert = SSL_AD_UNKNOWN_PSK_IDENTITY;
		return SSL_CLIENT_HELLO_ERROR;
	}
	err = tls->find(tls->context, tls->identity, tls->key);
	if (err == -EAGAIN)
		return SSL_CLIENT_HELLO_RETRY;
	/* 5.2: "An identity that has no key fails as one with a wrong key does, by the same alert" */
	if (err != 0)
		random_bytes(tls->key, sizeof(tls->key));
	return SSL_CLIENT_HELLO_SUCCESS;
}

/* Other identities have no session. Without one the handshake fails, as there is no certificate. */
static int key_find(SSL *ssl, const unsigned char *identity, size_t length, SSL_SESSION **out)
{
	const struct tls *tls = SSL_get_app_data(ssl);

	*out = NULL;
	if (length != strlen(tls->identity) || memcmp(identity, tls->identity, length) != 0)
		return 1;
	*out = session_of(ssl, tls->key);
	return *out != NULL;
}

static int key_offer(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *length,
                     SSL_SESSION **out)
{
	struct tls *tls = SSL_get_app_data(ssl);

	*out = NULL;
	*identity = NULL;
	*length = 0;
	if (hash != NULL && EVP_MD_get_type(hash) != NID_sha256)
		return 1;
	*out = session_of(ssl, tls->key);
	*identity = (const unsigned char *)tls->identity;
	*length = strlen(tls->identity);
	return *out != NULL;
}

/* ---- contexts ---- */

int tls_context_open(tls_find *find, struct tls_context **out)
{
	struct tls_context *context = calloc(1, sizeof(*context));

	secrets_begin();
	if (context == NULL)
		return -ENOMEM;
	context->find = find;
	context->ssl = SSL_CTX_new(find != NULL ? TLS_server_method() : TLS_client_method());
	if (context->ssl == NULL ||
	    SSL_CTX_set_min_proto_version(context->ssl, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_ciphersuites(context->ssl, "TLS_AES_128_GCM_SHA256:"
	                                           "TLS_CHACHA20_POLY1305_SHA256") != 1 ||
	    /* OpenSSL's other groups take up to 150 ms of the server's CPU time. */
	    SSL_CTX_set1_groups_list(context->ssl, "X25519:P-256") != 1 ||
	    SSL_CTX_set_num_tickets(context->ssl, 0) != 1) {
		tls_context_close(context);
		return -ENOMEM;
	}
	SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(context->ssl, SSL_MODE_RELEASE_BUFFERS);    /* most connections are idle */
	SSL_CTX_set_options(context->ssl, SSL_OP_CLEANSE_PLAINTEXT); /* a seed passes through */
	if (find != NULL) {
		SSL_CTX_set_client_hello_cb(context->ssl, hello_taken, NULL);
		SSL_CTX_set_psk_find_session_callback(context->ssl, key_find);
	} else {
		SSL_CTX_set_psk_use_session_callback(context->ssl, key_offer);
		/* No certificate is valid. A server that has the key shows none. */
		SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, NULL);
	}
	*out = context;
	return 0;
}

void tls_context_close(struct tls_context *context)
{
	if (context == NULL)
		return;
	SSL_CTX_free(context->ssl);
	free(context);
}

/* ---- connections ---- */

static int tls_open(struct tls_context *context, struct tls **out)
{
	struct tls *tls = calloc(1, sizeof(*tls));

	if (tls == NULL)
		return -ENOMEM;
	tls->find = context->find;
	tls->ssl = SSL_new(context->ssl);
	tls->in = BIO_new(BIO_s_mem());
	tls->out = BIO_new(BIO_s_mem());
	if (tls->ssl == NULL || tls->in == NULL || tls->out == NULL ||
	    SSL_set_app_data(tls->ssl, tls) != 1) {
		BIO_free(tls->in);
		BIO_free(tls->out);
		SSL_free(tls->ssl);
		free(tls);
		return -ENOMEM;
	}
	SSL_set_bio(tls->ssl, tls->in, tls->out); /* `ssl` owns them now */
	*out = tls;
	return 0;
}

int tls_accept(struct tls_context *server, void *context, struct tls **out)
{
	int err = tls_open(server, out);

	assert(server->find != NULL);
	if (err != 0)
		return err;
	(*out)->context = context;
	SSL_set_accept_state((*out)->ssl);
	return 0;
}

int tls_connect(struct tls_context *client, const char *identity, const uint8_t key[SECRET_BYTES],
                struct tls **out)
{
	int err = tls_open(client, out);

	assert(client->find == NULL && message_name_base(identity) < CONTROL_NAME_BYTES);
	if (err != 0)
		return err;
	memcpy((*out)->key, key, SECRET_BYTES);
	memcpy((*out)->identity, identity, message_name_base(identity));
	SSL_set_connect_state((*out)->ssl);
	ERR_clear_error();
	/* The first step says hello. After any result but this one OpenSSL must not be called again. */
	if (SSL_get_error((*out)->ssl, SSL_do_handshake((*out)->ssl)) != SSL_ERROR_WANT_READ) {
		tls_close(*out);
		*out = NULL;
		return -ENOMEM;
	}
	return 0;
}

void tls_close(struct tls *tls)
{
	if (tls == NULL)
		return;
	SSL_free(tls->ssl);
	OPENSSL_cleanse(tls, sizeof(*tls));
	free(tls);
}

/* ---- bytes ---- */

/* `why` NULL takes OpenSSL's own text. */
static ssize_t tls_fail(struct tls *tls, const char *why)
{
	if (why == NULL)
		why = ERR_reason_error_string(ERR_peek_last_error());
	if (*tls->why == '\0')
		snprintf(tls->why, sizeof(tls->why), "%s", why != NULL ? why : "unknown error");
	tls->failed = true;
	return -EPROTO;
}

/* Called when the record's head has come, and the message's head where there is one. */
static bool head_fits(struct tls *tls)
{
	const uint8_t *head = tls->head, *message = head + RECORD_HEAD_BYTES;
	const size_t record = (size_t)head[3] << 8 | head[4];
	const bool whole = tls->head_bytes == RECORD_HEAD_BYTES ||
	                   record == MESSAGE_HEAD_BYTES + ((size_t)message[1] << 16 |
	                                                   (size_t)message[2] << 8 | message[3]);

	tls->record_left = RECORD_HEAD_BYTES + record - tls->head_bytes;
	tls->head_bytes = 0;
	return whole;
}

/*
 * OpenSSL reserves memory for a hello as soon as it knows its length, up to 131 kB. So a hello must
 * fit in one record, as those of all clients do.
 */
static bool hello_fits(struct tls *tls, const uint8_t *bytes, size_t count)
{
	for (size_t at = 0; at < count;) {
		const size_t left = count - at,
			     skip = tls->record_left < left ? tls->record_left : left;

		tls->record_left -= skip;
		at += skip;
		if (skip > 0)
			continue;
		tls->head[tls->head_bytes++] = bytes[at++];
		if (tls->head_bytes == (tls->head[0] == TLS_FIRST_BYTE ? sizeof(tls->head)
		                                                       : RECORD_HEAD_BYTES) &&
		    !head_fits(tls))
			return false;
	}
	return true;
}

int tls_feed(struct tls *tls, const void *bytes, size_t count)
{
	size_t written;

	if (tls->find != NULL && !tls->ready && !tls->failed && !hello_fits(tls, bytes, count))
		tls_fail(tls, "its hello takes more than one record");
	if (tls->failed || count == 0 || BIO_write_ex(tls->in, bytes, count, &written) == 1)
		return 0; /* the next read returns the error */
	/* After lost bytes, those that follow would make no sense. */
	tls_fail(tls, "out of memory");
	return -ENOMEM;
}

ssize_t tls_read(struct tls *tls, void *out, size_t room)
{
	size_t count;
	int got;

	if (tls->failed)
		return -EPROTO;
	ERR_clear_error();
	got = SSL_read_ex(tls->ssl, out, room < SSIZE_MAX ? room : SSIZE_MAX, &count);
	if (!tls->ready && SSL_is_init_finished(tls->ssl)) {
		OPENSSL_cleanse(tls->key, sizeof(tls->key));
		if (!SSL_session_reused(tls->ssl))
			return tls_fail(tls, "it has not proved that it has the key");
		tls->ready = true;
	}
	if (got == 1)
		return (ssize_t)count;
	switch (SSL_get_error(tls->ssl, got)) {
	case SSL_ERROR_WANT_READ:
		return 0;
	case SSL_ERROR_WANT_CLIENT_HELLO_CB:
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return -EPIPE;
	default:
		return tls_fail(tls, NULL);
	}
}

int tls_write(struct tls *tls, const void *bytes, size_t count)
{
	size_t written;

	if (tls->failed)
		return -EPROTO;
	if (!tls_ready(tls))
		return -EAGAIN;
	ERR_clear_error();
	if (count == 0 || SSL_write_ex(tls->ssl, bytes, count, &written) == 1)
		return 0;
	return (int)tls_fail(tls, NULL);
}

size_t tls_pull(struct tls *tls, void *out, size_t room)
{
	size_t count = 0;

	return BIO_read_ex(tls->out, out, room, &count) == 1 ? count : 0;
}

/* ---- what is known of it ---- */

bool tls_ready(const struct tls *tls)
{
	return tls->ready;
}

const char *tls_identity(const struct tls *tls)
{
	return tls->identity;
}

const char *tls_why(const struct tls *tls)
{
	return tls->why;
}

bool tls_wrong_key(const struct tls *tls)
{
	return !tls_ready(tls) && (strstr(tls_why(tls), "alert") != NULL ||
	                           strstr(tls_why(tls), "has the key") != NULL);
}

void tls_end_text(const struct tls *tls, int error, char *text, size_t room)
{
	if (tls != NULL && error == EPROTO)
		snprintf(text, room, "its TLS is broken: somebody on the path has changed it (%s)",
		         tls_why(tls));
	else
		snprintf(text, room, "%s",
		         error == EPIPE    ? "connection closed"
		         : error == ENOMEM ? "out of memory"
		                           : strerror(error));
}

int tls_seal_key(struct tls *tls, const char *membership, struct seal_key *out)
{
	assert(tls_ready(tls));
	return SSL_export_keying_material(tls->ssl, (unsigned char *)out, sizeof(*out), SEAL_LABEL,
	                                  strlen(SEAL_LABEL), (const unsigned char *)membership,
	                                  strlen(membership), 1) == 1
	               ? 0
	               : -EPROTO;
}
