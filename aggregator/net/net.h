/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net.h - datagrams in and out, by whatever road this machine has
 *
 * A struct net is one queue of one back end and belongs to one thread; nothing here takes a lock.
 * It moves UDP payloads and knows nothing about their meaning. Only files named net_*.c know which
 * road is in use.
 *
 * Received datagrams are lent until the next recv() on the same net. send() gathers from the
 * caller's memory, which is the caller's again when send() returns. No call blocks, and none
 * allocates after open().
 */
#ifndef AGGREGATOR_NET_H
#define AGGREGATOR_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "bitmap/why.h"

#define NET_BURST_MAX 256                 /* datagrams in one call */
#define NET_BATCH_BYTES_MAX (512u * 1024) /* of one send() */
#define NET_REST_FD UINT32_MAX            /* rest(): as long as fd() has nothing */
#define NET_TROUBLES_MAX 64               /* peers that one troubles() names */
#define NET_STEERING_BYTE 4               /* of a datagram; its receiver may have several nets */

struct net;

/* IPv4 only. Both fields in host byte order. */
struct net_addr {
	uint32_t ip;
	uint16_t port;
};

/* Where datagrams go, and from which of our addresses; local_ip 0: from the system's choice. */
struct net_path {
	struct net_addr to;
	uint32_t local_ip;
};

struct net_in {
	const uint8_t *data; /* UDP payload, at any address */
	uint32_t bytes;
	struct net_addr from;
	uint32_t local_ip; /* of ours: it was sent to this one */
};

struct net_out {
	const struct iovec *pieces; /* [piece_count], in all `bytes` bytes */
	uint32_t piece_count;
	uint32_t bytes;
};

/* For a road that takes a port of its own, past the kernel's sockets: dpdk. Texts are copied. */
struct net_port {
	const char *eal;      /* DPDK's EAL arguments; NULL: what suits `device` */
	const char *device;   /* DPDK's name of the port, or the kernel's; NULL: all ports */
	uint32_t gateway_ip;  /* 0: the kernel's, where the address is the kernel's; else none */
	uint32_t prefix_bits; /* of local.ip's network; 0: the kernel's, or 24 */
	uint32_t idle_us;     /* the longest sleep of an idle queue; 0: poll without end */
	/* What happens to the port, a line each; level is "info", "warn" or "error". Any thread. */
	void (*log)(const char *level, const char *text);
};

struct net_config {
	struct net_addr local; /* where to receive; port 0: any */
	uint32_t group_ip;     /* 0; or a multicast group to receive instead, on local.port */
	uint32_t device_ip;    /* with group_ip: our address on the network that it comes by */
	uint32_t payload_max;  /* largest datagram sent or received */
	uint32_t buffer_bytes; /* of the kernel, each way; what the system grants is used */
	uint32_t queue;        /* 0-based place among queue_count nets on one port */
	uint32_t queue_count;  /* > 1: datagram[NET_STEERING_BYTE], modulo it, chooses the net */
	const struct net_port *port; /* NULL where the kernel's sockets are the road */
};

/* All count up from open(). */
struct net_stats {
	uint64_t received, received_bytes, sent, sent_bytes; /* datagrams, UDP payload */
	uint64_t rx_calls, tx_calls;                         /* system calls, or bursts */
	uint64_t tx_errors;                                  /* datagrams that the system refused */
	uint64_t tx_waits;                                   /* times that there was no room */
	uint64_t rx_errors; /* frames that were damaged, or that the port could not take */
	uint64_t rx_others; /* frames that are not for us: other ports, addresses, protocols */
};

/*
 * A peer that datagrams do not reach, because the system refuses to send them; or one whose
 * datagrams arrive several in one, because no network card has cut them apart, and are lost.
 */
struct net_trouble {
	struct net_addr peer;
	int error;      /* errno: EMSGSIZE, EPERM, ENETUNREACH and the like; or NET_MERGED */
	uint64_t count; /* of datagrams */
};

#define NET_MERGED (-1)

struct net_backend {
	const char *name; /* "udp" */

	/*
	 * open - bind to config's address and reserve all memory this queue will use. On
	 * success stores the queue in *out; the caller closes it. On failure returns -errno
	 * with one line in `why`: -EADDRINUSE, -EACCES, -ENOMEM and the like.
	 */
	int (*open)(const struct net_config *config, struct net **out, struct why *why);

	/* recv - up to `max` (<= NET_BURST_MAX) datagrams; returns how many, 0 if none wait. */
	uint32_t (*recv)(struct net *net, struct net_in in[], uint32_t max);

	/*
	 * send - sends datagrams out[0 .. count) to each of to[0 .. to_count), count <=
	 * NET_BURST_MAX, at most NET_BATCH_BYTES_MAX bytes in all. They may overtake each other.
	 * Returns how many receivers are served, at least one. What finds no room is kept as a
	 * copy; then ready() is false, and the caller must not call send() until it is true again.
	 */
	uint32_t (*send)(struct net *net, const struct net_path to[], uint32_t to_count,
	                 const struct net_out out[], uint32_t count);

	/* ready - tries to send what is kept; true when nothing is left. */
	bool (*ready)(struct net *net);

	/*
	 * rest - recv() returned nothing, and the caller wants to sleep: for how many microseconds
	 * may it, before it must look again? 0: not at all. NET_REST_FD: until fd() is readable.
	 */
	uint32_t (*rest)(struct net *net);
	int (*fd)(const struct net *net); /* readable when something was received; -1: has none */

	/*
	 * troubles - peers that there has been trouble with since the last call; returns how many.
	 */
	uint32_t (*troubles)(struct net *net, struct net_trouble out[NET_TROUBLES_MAX]);

	/*
	 * health - 0; or -errno and one line in `why` when nothing will arrive or leave here again.
	 */
	int (*health)(struct net *net, struct why *why);
	void (*stats)(const struct net *net, struct net_stats *out);
	/* The receive buffer granted, as the kernel counts. */
	uint32_t (*buffer)(const struct net *net);
	struct net_addr (*address)(const struct net *net); /* where it receives */
	uint32_t (*payload)(const struct net *net);        /* largest datagram that it carries */
	void (*close)(struct net *net);                    /* NULL is fine */
};

extern const struct net_backend net_udp;

/* What an object with a back end exports, under this name. */
#define NET_PLUGIN_SYMBOL "winnow_net_plugin"
struct net_plugin {
	const char *version; /* that it was built with: WINNOW_VERSION */
	const char *about;   /* of the library that it needs: "DPDK 22.11.11" */
	const struct net_backend *backend;
};

/*
 * net_plugin_open - the table `symbol` of winnow-NAME.so, or of the object at `path` if not NULL. The
 * table's first member is the version that it was built with. The object is never closed. -ENOENT:
 * there is none; -ELIBACC: it cannot be opened; one line in `why`.
 */
int net_plugin_open(const char *name, const char *path, const char *symbol, const void **out,
                    struct why *why);

/*
 * net_backend_named - the back end called `name`. One that needs a library that few machines have
 * (dpdk) is an object of its own (winnow-NAME.so), opened at the first call and never closed.
 * -ENOENT: there is none of that name; -ELIBACC: it cannot be opened; one line in `why`.
 */
int net_backend_named(const char *name, const struct net_backend **out, struct why *why);

/* net_backend_about - the library of an object that is there and can be opened; NULL: it is not. */
const char *net_backend_about(const char *name);

/*
 * net_resolve - turns "HOST:PORT" into an address; blocks for the name service. -EINVAL when the
 * text does not have that form or is IPv6, -EHOSTUNREACH when the name is unknown or has only IPv6
 * addresses; one line in `why`.
 */
int net_resolve(const char *text, struct net_addr *out, struct why *why);

#define NET_NAME_ADDRESSES_MAX 8

/*
 * net_resolve_all - the same for all addresses of the name, each once, in the name service's order,
 * into out[NET_NAME_ADDRESSES_MAX]; more than that are left out. *count: at least 1.
 */
int net_resolve_all(const char *text, struct net_addr *out, uint32_t *count, struct why *why);

/*
 * net_network - "ADDR" or "ADDR/BITS" to an address and the length of its network's prefix
 * (0 when not given). -EINVAL, with one line in `why`.
 */
int net_network(const char *text, uint32_t *ip, uint32_t *prefix_bits, struct why *why);

/*
 * net_route_mtu - the MTU of the route to this address, as the kernel knows it; 0, and errno: there
 * is no route.
 */
uint32_t net_route_mtu(const struct net_addr *to);

/* net_format - "10.0.0.1:5555" into `text` (at least 24 bytes); returns it. */
char *net_format(const struct net_addr *address, char *text);

#endif /* AGGREGATOR_NET_H */
