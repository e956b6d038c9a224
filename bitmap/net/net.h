/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net.h - the interface of a data path: sends and receives datagrams
 *
 * A struct net is one queue of one back end. It belongs to one thread, and no function takes a
 * lock. It moves UDP payloads and knows nothing about their meaning. Only files named net_*.c know
 * which back end is in use.
 *
 * Received datagrams are lent until the next recv() on the same net. send() gathers from the
 * caller's memory, which the caller may reuse when send() returns. No call blocks, and none
 * allocates after open().
 */
#ifndef BITMAP_NET_H
#define BITMAP_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "bitmap/why.h"

#define NET_BURST_MAX 256                 /* datagrams in one call */
#define NET_BATCH_BYTES_MAX (512u * 1024) /* in one send() */
#define NET_REST_FD UINT32_MAX            /* from rest(): sleep until the fd is readable */
#define NET_TROUBLES_MAX 64               /* peers in one result of troubles() */
#define NET_STEERING_BYTE 4               /* its receiver's nets share datagrams by this byte */

/* 2.1: "They carry ECT(0) (RFC 3168) where the sender's system can do so", in the TOS byte. */
#define NET_ECN_CAPABLE 2 /* ECT(0), on all datagrams that are sent: queues may mark them */
#define NET_ECN_MARKED 3  /* CE: a queue has marked the datagram */
#define NET_TOS(dscp) ((uint8_t)((dscp) << 2 | NET_ECN_CAPABLE))

struct net;

/*
 * An address of either family in network byte order. IPv4 is mapped into IPv6 (::ffff:10.0.0.1).
 * All zeros are IPv6's ::, which stands for both families.
 */
struct net_ip {
	uint8_t bytes[16];
	uint32_t scope; /* interface index of a link-local address (fe80::1%eth0); else 0 */
};

struct net_addr {
	struct net_ip ip;
	uint16_t port; /* host byte order */
};

/*
 * The receiver of datagrams, and the local address that they leave from. With net_ip_none(local)
 * the system chooses. Datagrams to an IPv6 group leave by interface local.scope, if that is not 0.
 */
struct net_path {
	struct net_addr to;
	struct net_ip local;
	uint32_t mark; /* The caller's; troubles() repeats it for this path. */
};

struct net_in {
	const uint8_t *data; /* UDP payload, at any address */
	uint32_t bytes;
	struct net_addr from;
	struct net_ip local; /* the local address that it was sent to */
	uint64_t came_us;    /* by clock_us(), when the system received it; 0: unknown */
	bool marked;         /* by ECN: a queue on its way was long */
};

struct net_out {
	const struct iovec *pieces; /* [piece_count], in all `bytes` bytes */
	uint32_t piece_count;
	uint32_t bytes;
};

/* For a back end that takes a whole port, past the kernel's sockets (dpdk). Texts are copied. */
struct net_port {
	const char *eal;    /* DPDK's EAL arguments; NULL: derived from `device` */
	const char *device; /* DPDK's name of the port, or the kernel's; NULL: all ports */
	/* If none, the kernel's gateway where the kernel has the address; else there is no gateway. */
	struct net_ip gateway;
	uint32_t prefix_bits; /* of local.ip's network; 0: the kernel's, or else 24 (IPv6: 64) */
	uint32_t idle_us;     /* the longest sleep of an idle queue; 0: always poll */
	/* Reports what happens to the port; level is "info", "warn" or "error". Any thread. */
	void (*log)(const char *level, const char *text);
};

/* The interface or address that this host sends from. If neither is given the system chooses. */
struct net_source {
	char interface[16];
	struct net_ip ip;
};

struct net_config {
	struct net_addr local; /* The address to receive at; port 0: any. */
	const char *interface; /* UDP sends through it; NULL: the system chooses. */
	struct net_ip group;   /* Multicast group to receive on local.port, or none. */
	struct net_ip device;  /* Our address on the group's network. */
	uint32_t payload_max;  /* largest datagram sent or received */
	uint32_t buffer_bytes; /* kernel buffer in each direction; less may be granted */
	uint32_t dscp;         /* 0 .. 63, the traffic class of RFC 2474 for sent datagrams */
	uint32_t queue;        /* 0-based place among queue_count nets on one port */
	uint32_t queue_count;  /* if > 1, datagram[NET_STEERING_BYTE] modulo it chooses the net */
	const struct net_port *port; /* NULL for the kernel's sockets */
};

/* All counts begin at open(). */
struct net_stats {
	uint64_t received, received_bytes, sent, sent_bytes; /* datagrams, UDP payload */
	uint64_t rx_calls, tx_calls;                         /* system calls, or bursts */
	uint64_t tx_errors;                                  /* datagrams that the system refused */
	uint64_t tx_waits;                                   /* how often there was no room */
	uint64_t rx_errors; /* damaged frames, and frames that the port could not take */
	uint64_t rx_others; /* frames for other ports, addresses or protocols */
};

/* Facts about a net, valid while it is open. */
struct net_facts {
	int fd;                  /* readable when something was received; -1: none */
	uint32_t buffer_bytes;   /* the receive buffer granted, as the kernel counts */
	uint32_t send_bytes;     /* the send buffer granted; 0: none */
	uint32_t payload_max;    /* largest datagram that it carries */
	uint32_t burst;          /* recv() gives all that wait if fewer than this; 0: look again */
	struct net_addr address; /* the address that it receives at */
};

/*
 * A peer that datagrams do not reach because the system refuses to send them. Or a peer whose
 * datagrams arrive merged and are lost, because no network card has cut them apart.
 */
struct net_trouble {
	struct net_addr peer;
	int error;      /* errno such as EMSGSIZE, EPERM or ENETUNREACH; or NET_MERGED */
	uint64_t count; /* datagrams */
	uint32_t mark;  /* of the path that they were sent by; 0 for received ones */
};

#define NET_MERGED (-1)

struct net_backend {
	const char *name; /* "udp" */

	/*
	 * open - binds to config's address and reserves all memory that this queue will use.
	 * Returns 0 with the queue in *out, which the caller closes, or -errno with one line in
	 * `why`: -EADDRINUSE, -EACCES, -ENOMEM and others.
	 */
	int (*open)(const struct net_config *config, struct net **out, struct why *why);

	/* recv - receives up to `max` (<= NET_BURST_MAX) datagrams. Returns how many. */
	uint32_t (*recv)(struct net *net, struct net_in in[], uint32_t max);

	/*
	 * send - sends datagrams out[0 .. count) to each of to[0 .. to_count). count <=
	 * NET_BURST_MAX, and all have at most NET_BATCH_BYTES_MAX bytes. They may overtake each
	 * other. Returns how many receivers are served, at least one. Datagrams that find no room
	 * are copied; then ready() is false, and the caller must not call send() until it is true.
	 */
	uint32_t (*send)(struct net *net, const struct net_path to[], uint32_t to_count,
	                 const struct net_out out[], uint32_t count);

	/* ready - tries to send the kept datagrams. Returns true when none is left. */
	bool (*ready)(struct net *net);

	/* limit - allows about this many bytes that have not left the host. NULL if not supported. */
	void (*limit)(struct net *net, uint32_t bytes);

	/*
	 * rest - after recv() has returned nothing: how many microseconds the caller may sleep
	 * before it must look again; NET_REST_FD, or a NULL `rest`, means until the fd is readable.
	 */
	uint32_t (*rest)(struct net *net);

	/* troubles - reports the peers with trouble since the last call. Returns how many. */
	uint32_t (*troubles)(struct net *net, struct net_trouble out[NET_TROUBLES_MAX]);

	/* health - 0, or -errno with one line in `why` when the net is dead. NULL: always 0. */
	int (*health)(struct net *net, struct why *why);
	void (*stats)(const struct net *net, struct net_stats *out);
	const struct net_facts *(*facts)(const struct net *net);
	void (*close)(struct net *net); /* NULL is fine */
};

extern const struct net_backend net_udp;

/* What the object of a back end exports under this name. */
#define NET_PLUGIN_SYMBOL "winnow_net_plugin"
struct net_plugin {
	const char *version; /* WINNOW_VERSION of the build */
	const char *about;   /* its library's name and version: "DPDK 22.11.11" */
	const struct net_backend *backend;
};

/*
 * net_plugin_open - finds the table `symbol` of winnow-NAME.so, or of the object at `path` if that
 * is not NULL. The table's first member is the version that it was built with. The object is never
 * closed. Returns 0, or with one line in `why`: -ENOENT if there is none, -ELIBACC if it cannot be
 * opened, -EPERM if this program has rights that its caller lacks.
 */
int net_plugin_open(const char *name, const char *path, const char *symbol, const void **out,
                    struct why *why);

/*
 * net_backend_named - finds a back end. One that needs a library that few machines have (dpdk) is
 * an object, winnow-NAME.so, opened at the first call and never closed. Returns 0, or with one line
 * in `why`: -ENOENT if this build has none of that name, -ELIBACC if it cannot be opened.
 */
int net_backend_named(const char *name, const struct net_backend **out, struct why *why);

/* net_backend_about - returns the `about` of a back end's object, or NULL if it cannot be opened. */
const char *net_backend_about(const char *name);

/* ---- addresses ---- */

/* An IPv4 address from a number: 10.0.0.1 from 0x0a000001. */
#define NET_IPV4(number)                                                                           \
	{                                                                                          \
		.bytes = {                                                                         \
			[10] = 0xff,                                                               \
			0xff,                                                                      \
			(uint8_t)((number) >> 24),                                                 \
			(uint8_t)((number) >> 16),                                                 \
			(uint8_t)((number) >> 8),                                                  \
			(uint8_t)(number),                                                         \
		}                                                                                  \
	}

static inline struct net_ip net_ipv4(uint32_t number)
{
	return (struct net_ip)NET_IPV4(number);
}

static inline bool net_ip_is_v4(const struct net_ip *ip)
{
	return memcmp(ip->bytes, (const uint8_t[12]){[10] = 0xff, 0xff}, 12) == 0;
}

/* Returns an IPv4 address as a number; 0 for IPv6 and for 0.0.0.0. */
static inline uint32_t net_ip_number(const struct net_ip *ip)
{
	const uint8_t *b = ip->bytes + 12;

	return net_ip_is_v4(ip)
	               ? (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]
	               : 0;
}

/* Tells whether it is :: or 0.0.0.0, which mean no address, or any. */
static inline bool net_ip_none(const struct net_ip *ip)
{
	return memcmp(ip->bytes, (const uint8_t[16]){0}, 16) == 0 ||
	       (net_ip_is_v4(ip) && net_ip_number(ip) == 0);
}

static inline bool net_ip_multicast(const struct net_ip *ip)
{
	return net_ip_is_v4(ip) ? ip->bytes[12] >> 4 == 0xe : ip->bytes[0] == 0xff;
}

static inline bool net_ip_same(const struct net_ip *a, const struct net_ip *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0 && a->scope == b->scope;
}

static inline bool net_addr_same(const struct net_addr *a, const struct net_addr *b)
{
	return a->port == b->port && net_ip_same(&a->ip, &b->ip);
}

static inline bool net_ecn_marked(uint32_t tos)
{
	return (tos & NET_ECN_MARKED) == NET_ECN_MARKED;
}

/* Returns the bytes of the IP and UDP headers to this address, which an MTU includes. */
static inline uint32_t net_headers(const struct net_ip *ip)
{
	return net_ip_is_v4(ip) ? 28 : 48;
}

/* Tells whether the address is valid on one link only: fe80::/10. */
static inline bool net_ip_link_local(const struct net_ip *ip)
{
	return ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80;
}

/*
 * net_ip_owner - returns a number for the owner of an address, as far as it shows. Of an IPv6
 * address only the network counts, because hosts choose the lower half freely.
 */
uint64_t net_ip_owner(const struct net_ip *ip);

/* net_ip_device - returns the index of the interface that has this local address, or 0. */
uint32_t net_ip_device(const struct net_ip *ip);

#define NET_HOST_BYTES 256
#define NET_NAME_ADDRESSES_MAX 8

/*
 * net_split - splits "HOST:PORT". An IPv6 address stands in brackets, which `host` is without:
 * "[fd00::1]:5555", "[fe80::1%eth0]:5555". Returns 0, or -EINVAL for any other form, with one line
 * in `why`.
 */
int net_split(const char *text, char host[NET_HOST_BYTES], uint16_t *port, struct why *why);

/*
 * net_resolve_all - turns "HOST:PORT" into the host's addresses, each once, in the name service's
 * order; out[NET_NAME_ADDRESSES_MAX] receives the first of them. *count is at least 1. Blocks for
 * the name service. Returns 0, or with one line in `why`: -EINVAL as net_split() does,
 * -EHOSTUNREACH when the name is unknown, -EAGAIN when the name service does not work now, as at
 * boot.
 */
int net_resolve_all(const char *text, struct net_addr *out, uint32_t *count, struct why *why);

/* net_resolve - the same for one address: the first IPv4 address or, if there is none, the first. */
int net_resolve(const char *text, struct net_addr *out, struct why *why);

/*
 * net_network - reads "ADDR" or "ADDR/BITS". *prefix_bits is 0 when not given. Returns 0, or
 * -EINVAL with one line in `why`.
 */
int net_network(const char *text, struct net_ip *ip, uint32_t *prefix_bits, struct why *why);

/* net_source_of - reads an interface or address of this host. Else -EINVAL with one line in `why`. */
int net_source_of(const char *text, struct net_source *out, struct why *why);

/* net_source_bind - binds a socket without an address, before connect(). Returns 0, or -errno. */
int net_source_bind(int fd, const struct net_source *source, const struct net_ip *to);

/*
 * net_route_mtu - returns the MTU of the route to an address, as the kernel knows it; 0 with errno
 * if there is no route.
 */
uint32_t net_route_mtu(const struct net_addr *to, const struct net_source *from);

#define NET_TEXT_BYTES 72

/* Write "10.0.0.1:5555" or "[fd00::1]:5555" to `text` (NET_TEXT_BYTES), or no port; return it. */
char *net_format(const struct net_addr *address, char *text);
char *net_ip_format(const struct net_ip *ip, char *text);

#endif /* BITMAP_NET_H */
