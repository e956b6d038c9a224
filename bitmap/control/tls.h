/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tls.h - TLS 1.3 with a pre-shared key, for the control connection (PROTOCOL.md, section 5.2)
 *
 * RFC 8446 with an external PSK and ECDHE (psk_dhe_ke), by OpenSSL, without certificates, tickets
 * or other versions. This file knows neither sockets nor time; the caller carries the bytes. The
 * PSK's identity is the name of a job, without its membership.
 *
 * One thread at a time may use a `struct tls`; several may share a `struct tls_context`.
 */
#ifndef BITMAP_CONTROL_TLS_H
#define BITMAP_CONTROL_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bitmap/control/message.h"

#define TLS_FIRST_BYTE 0x16 /* of a client, and of a server that understands it */
#define TLS_ALERT_BYTE 0x15 /* of a side that does not understand the other */

struct tls_context; /* shared by many connections */
struct tls;         /* one connection */

/*
 * tls_find - looks up the key for the identity that a client offers. `context` is that of
 * tls_accept(). Returns 0 with `key`, -ENOENT to fail the handshake, or -EAGAIN (see tls_read()).
 */
typedef int tls_find(void *context, const char *identity, uint8_t key[SECRET_BYTES]);

/*
 * tls_context_open - opens the context of a server, or of a client if `find` is NULL. Returns 0, or
 * -ENOMEM. The caller closes the context after the last connection that uses it.
 */
int tls_context_open(tls_find *find, struct tls_context **out);
void tls_context_close(struct tls_context *context); /* NULL is fine */

/*
 * tls_accept - begins a connection whose client speaks first. `context` is for tls_find().
 * tls_connect - begins one to a server that knows `key` by `identity`, which ends at a '/'. Both
 * are copied. tls_pull() has its hello at once. Both return 0, or -ENOMEM. tls_close() wipes the
 * keys.
 */
int tls_accept(struct tls_context *server, void *context, struct tls **out);
int tls_connect(struct tls_context *client, const char *identity, const uint8_t key[SECRET_BYTES],
                struct tls **out);
void tls_close(struct tls *tls); /* NULL is fine */

/* tls_feed - takes bytes from the other side. Returns 0, or -ENOMEM. */
int tls_feed(struct tls *tls, const void *bytes, size_t count);

/*
 * tls_read - returns how many bytes of what the other side has said it stored, up to `room`, after
 * continuing the handshake. Returns 0 if no record is complete yet; -EAGAIN if tls_find() did, and
 * asks again at the next call; -EPIPE when the other side has closed; -EPROTO when the handshake
 * has failed or a record is forged (see tls_why()). After -EPROTO the connection is dead, but
 * tls_pull() may still have an alert for the other side.
 */
ssize_t tls_read(struct tls *tls, void *out, size_t room);

/* tls_write - sends bytes. Returns 0, -EAGAIN before the handshake is over, -ENOMEM or -EPROTO. */
int tls_write(struct tls *tls, const void *bytes, size_t count);

/* tls_pull - moves up to `room` bytes for the other side to `out`. Returns how many. */
size_t tls_pull(struct tls *tls, void *out, size_t room);

bool tls_ready(const struct tls *tls);           /* the handshake has succeeded */
const char *tls_identity(const struct tls *tls); /* the client's; "" before its hello */
/* At a client, after -EPROTO: the other side has another key. It has sent an alert, or not shown that it has ours. */
bool tls_wrong_key(const struct tls *tls);
const char *tls_why(const struct tls *tls); /* the reason for -EPROTO, in one line */

/* Writes why a connection has ended: `error` is of tls_read() or of a socket, and positive. `tls` may be NULL. */
void tls_end_text(const struct tls *tls, int error, char *text, size_t room);

/*
 * tls_seal_key - the key of the datagrams that this connection's worker sends in a membership. 5.2:
 * "the exporter (RFC 8446, 7.5) of this worker's connection". Only after tls_ready(). Returns 0, or
 * -EPROTO.
 */
int tls_seal_key(struct tls *tls, const char *membership, struct seal_key *out);

#endif /* BITMAP_CONTROL_TLS_H */
