/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tls.h - TLS 1.3 with a pre-shared key, between the bytes of a connection and what they say
 *
 * RFC 8446 with an external PSK and ECDHE (psk_dhe_ke), by OpenSSL: no certificates, no tickets, no
 * other version. PROTOCOL.md section 5.2. It knows neither sockets nor time: the caller carries the
 * bytes. The PSK's identity is the name of a job, without its membership.
 *
 * Threads: one at a time for each `struct tls`; several may share a `struct tls_context`.
 */
#ifndef BITMAP_CONTROL_TLS_H
#define BITMAP_CONTROL_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bitmap/control/message.h"

#define TLS_FIRST_BYTE 0x16 /* of what a client says, and a server that understands it */
#define TLS_ALERT_BYTE 0x15 /* of what one says that does not */

struct tls_context; /* what many connections have in common */
struct tls;         /* one of them */

/*
 * tls_find - looks up the key for an identity that a client offers. Returns 0 with the key in `key`;
 * -ENOENT, which fails the handshake; or -EAGAIN, see tls_read(). `context` is that of tls_accept().
 */
typedef int tls_find(void *context, const char *identity, uint8_t key[SECRET_BYTES]);

/*
 * tls_context_open - the context of a server, or of a client, which finds no keys (NULL). Returns 0, or -ENOMEM. The
 * caller closes the context after the last connection that uses it.
 */
int tls_context_open(tls_find *find, struct tls_context **out);
void tls_context_close(struct tls_context *context); /* NULL: nothing */

/*
 * tls_accept - a connection whose client speaks first. `context` is handed to tls_find().
 * tls_connect - a connection to a server that knows `key` by `identity`, which ends at a '/'. Both are
 * copied; tls_pull() has its hello at once. Both functions return 0, or -ENOMEM. tls_close() wipes the keys.
 */
int tls_accept(struct tls_context *server, void *context, struct tls **out);
int tls_connect(struct tls_context *client, const char *identity, const uint8_t key[SECRET_BYTES],
                struct tls **out);
void tls_close(struct tls *tls); /* NULL: nothing */

/* tls_feed - bytes have come from the other side. Returns 0, or -ENOMEM. */
int tls_feed(struct tls *tls, const void *bytes, size_t count);

/*
 * tls_read - what the other side has said, up to `room` bytes of it. Continues the handshake first.
 * Returns how many bytes; 0 if nothing is complete yet; -EAGAIN as tls_find() does, which the next call
 * asks again; -EPIPE when the other side has closed; -EPROTO when the handshake has failed or a record is
 * forged, see tls_why(): then the connection is of no more use, but tls_pull() may still have an alert for
 * the other side.
 */
ssize_t tls_read(struct tls *tls, void *out, size_t room);

/* tls_write - say this, once the handshake is over (before: -EAGAIN). Returns 0, -ENOMEM, -EPROTO. */
int tls_write(struct tls *tls, const void *bytes, size_t count);

/* tls_pull - bytes for the other side, up to `room`. Returns how many; 0 for none. */
size_t tls_pull(struct tls *tls, void *out, size_t room);

bool tls_ready(const struct tls *tls);           /* the handshake is over, or was */
const char *tls_identity(const struct tls *tls); /* which one is offered; "": none yet */
const char *tls_why(const struct tls *tls);      /* one line, after -EPROTO */

/*
 * tls_seal_key - the key of what this connection's worker sends in a membership. 5.2: "the exporter (RFC 8446, 7.5) of
 * this worker's connection". Only after tls_ready(). Returns 0, or -EPROTO.
 */
int tls_seal_key(struct tls *tls, const char *membership, struct seal_key *out);

#endif /* BITMAP_CONTROL_TLS_H */
