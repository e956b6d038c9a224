/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fetch.h - GET a page from several servers at once, within a time
 *
 * Plain HTTP inside a cluster: one request, one answer of a known length or until its end. libcurl
 * would bring 27 packages along. The answers are bytes from a stranger: bounded, and not
 * interpreted here.
 */
#ifndef CLIENT_CLI_FETCH_H
#define CLIENT_CLI_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bitmap/why.h"

#define FETCH_BODY_MAX (16u << 20)
#define FETCH_HEAD_MAX 16384

struct fetch {
	const char *address; /* "HOST:PORT" */
	char *body;          /* malloc'ed, with a 0 behind it; NULL: there is none, */
	size_t bytes;
	struct why why; /* because of this */
	int64_t owner; /* the user that the server runs as, if it is of this machine; -1: not known */
};

/*
 * fetch_all - fills in body, bytes, why and owner of each of `fetches`. Returns when all have answered
 * or failed, after timeout_us, or when stop() (asked ten times a second; may be NULL) says so.
 */
void fetch_all(struct fetch fetches[], uint32_t count, const char *path, uint64_t timeout_us,
               bool (*stop)(void));

#endif /* CLIENT_CLI_FETCH_H */
