// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_tls.c - what comes where TLS is spoken: of strangers, and of somebody on the path of a handshake
 *
 * Byte 0 says which: even, a stranger's bytes at an aggregator; odd, a handshake with bytes that are changed.
 */

#include <errno.h>

#include "bitmap/control/tls.h"
#include "tests/fuzz/fuzz.h"

static const uint8_t key_bytes[SECRET_BYTES] = {7};
static struct tls_context *contexts[2]; /* of the server, of the client */
static bool making;                     /* the key is not there yet, once */

static int find(void *context, const char *identity, uint8_t key[SECRET_BYTES])
{
	bool waits = making;

	(void)context;
	assert(message_name_valid(identity) && strchr(identity, '/') == NULL);
	making = false;
	memcpy(key, key_bytes, SECRET_BYTES);
	return waits ? -EAGAIN : strcmp(identity, "job") == 0 ? 0 : -ENOENT;
}

static void contexts_open(void)
{
	if (contexts[0] == NULL && (tls_context_open(find, &contexts[0]) != 0 ||
	                            tls_context_open(NULL, &contexts[1]) != 0))
		abort();
}

/* All that it says now, and what TLS makes of it. False: it has failed. */
static bool taken(struct tls *tls, const void *bytes, size_t count)
{
	char *copy = exact_copy(bytes, count), said[64];
	ssize_t got;

	assert(tls_feed(tls, copy, count) == 0);
	free(copy);
	do
		got = tls_read(tls, said, sizeof(said));
	while (got > 0 || got == -EAGAIN);
	assert(got != -EPROTO || strlen(tls_why(tls)) > 0);
	return got == 0;
}

static void stranger(struct script *s)
{
	size_t piece = 1 + script_u8(s);
	struct tls *tls;

	making = piece % 2 == 0;
	assert(tls_accept(contexts[0], NULL, &tls) == 0);
	while (s->left > 0 && taken(tls, s->at, s->left < piece ? s->left : piece)) {
		s->left -= s->left < piece ? s->left : piece;
		s->at += piece;
	}
	assert(!tls_ready(tls)); /* nobody guesses a key */
	tls_close(tls);
}

static void handshake(struct script *s)
{
	struct tls *ends[2];
	struct seal_key keys[2];
	uint8_t bytes[8192];
	bool goes_on = true;

	assert(tls_accept(contexts[0], NULL, &ends[0]) == 0);
	assert(tls_connect(contexts[1], "job/1", key_bytes, &ends[1]) == 0);
	for (int turn = 1; turn < 8 && goes_on; turn++) {
		size_t count = tls_pull(ends[turn % 2], bytes, sizeof(bytes));

		for (uint8_t changes = script_u8(s) % 4; changes > 0 && count > 0; changes--)
			bytes[script_u16(s) % count] ^= script_u8(s);
		goes_on = taken(ends[(turn + 1) % 2], bytes, count);
	}
	if (tls_ready(ends[0]) && tls_ready(ends[1])) {
		for (int i = 0; i < 2; i++)
			assert(tls_seal_key(ends[i], "job/1", &keys[i]) == 0);
		assert(memcmp(&keys[0], &keys[1], sizeof(keys[0])) == 0);
	}
	tls_close(ends[0]);
	tls_close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct script script = {.at = data, .left = bytes};

	contexts_open();
	if (script_u8(&script) % 2 == 0)
		stranger(&script);
	else
		handshake(&script);
	return 0;
}
