/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net.h - datagrams in and out, by whatever road this machine has
 *
 * A struct net is one queue of one back end and belongs to one thread; nothing here takes
 * a lock. It moves UDP payloads and knows nothing of what they mean. Only files named
 * net_*.c know which road is in use.
 *
 * Received datagrams are lent until the next recv() on the same net. What is sent is
 * gathered from the caller's memory; when send() returns the memory is the caller's again.
 * No call blocks but net_wait(), and none allocates after open().
 */
#ifndef AGGREGATOR_NET_H
#define AGGREGATOR_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define NET_BURST_MAX 256                 /* datagrams in one call */
#define NET_BATCH_BYTES_MAX (512u * 1024) /* of one send() */
#define NET_WHY_BYTES 256

struct net;

/* IPv4 only. Both fields in host byte order. */
struct net_addr {
	uint32_t ip;
	uint16_t port;
};

struct net_in {
	const uint8_t *data; /* UDP payload, at any address */
	uint32_t bytes;
	struct net_addr from;
};

struct net_out {
	const struct iovec *pieces; /* [piece_count], in all `bytes` bytes */
	uint32_t piece_count;
	uint32_t bytes;
};

struct net_config {
	struct net_addr local; /* where to receive; port 0: any */
	uint32_t group_ip;     /* 0; or a multicast group to receive instead, on local.port */
	uint32_t device_ip;    /* with group_ip: our address on the network that it comes by */
	uint32_t payload_max;  /* largest datagram sent or received */
	uint32_t buffer_bytes; /* of the kernel, each way; what the system grants is used */
	uint32_t queue;        /* 0-based place among queue_count nets on one port */
	uint32_t queue_count;  /* > 1: byte 4 of a datagram, modulo it, chooses the net */
};

/* All count up from open(). */
struct net_stats {
	uint64_t received, received_bytes, sent, sent_bytes; /* datagrams, UDP payload */
	uint64_t rx_calls, tx_calls;                         /* system calls, or bursts */
	uint64_t tx_errors; /* datagrams that the system would not take */
	uint64_t tx_waits;  /* times that the kernel's buffer was full */
};

struct net_backend {
	const char *name; /* "udp" */

	/*
	 * open - bind to config's address and reserve all memory this queue will use. On
	 * success stores the queue in *out; the caller closes it. On failure returns -errno
	 * with one line in `why` [NET_WHY_BYTES]: -EADDRINUSE, -EACCES, -ENOMEM and the like.
	 */
	int (*open)(const struct net_config *config, struct net **out, char *why);

	/* recv - up to `max` (<= NET_BURST_MAX) datagrams; returns how many, 0 if none wait. */
	uint32_t (*recv)(struct net *net, struct net_in in[], uint32_t max);

	/*
	 * send - datagrams out[0 .. count) to one receiver, count <= NET_BURST_MAX, in all at
	 * most NET_BATCH_BYTES_MAX bytes, from our address local_ip (0: the system's choice).
	 * They may overtake each other. Takes them all, and keeps a copy of what the kernel
	 * has no room for: then ready() is false, and until it is true again send() may not
	 * be called.
	 */
	void (*send)(struct net *net, const struct net_addr *to, uint32_t local_ip,
	             const struct net_out out[], uint32_t count);

	/* ready - try to get rid of what is kept; true when nothing is. */
	bool (*ready)(struct net *net);

	int (*fd)(const struct net *net); /* readable when something was received */
	void (*stats)(const struct net *net, struct net_stats *out);
	uint32_t (*buffer)(
		const struct net *net); /* receive buffer granted, as the kernel counts */
	struct net_addr (*address)(const struct net *net); /* where it receives */
	void (*close)(struct net *net);                    /* NULL is fine */
};

extern const struct net_backend net_udp;

/* The back ends in this binary, preferred first; ends with NULL. */
extern const struct net_backend *const net_backends[];

/* net_backend_named - NULL when `name` is unknown or was not built in. */
const struct net_backend *net_backend_named(const char *name);

/*
 * net_resolve - "HOST:PORT" to an address (blocks for the name service). -EINVAL when it has
 * not that form, -EHOSTUNREACH when the name is not known; one line in `why`.
 */
int net_resolve(const char *text, struct net_addr *out, char *why);

/* net_format - "10.0.0.1:5555" into `text` (at least 24 bytes); returns it. */
char *net_format(const struct net_addr *address, char *text);

#endif /* AGGREGATOR_NET_H */
