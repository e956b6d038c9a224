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
#ifndef BITMAP_NET_H
#define BITMAP_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "bitmap/why.h"

#define NET_BURST_MAX 256                 /* datagrams in one call */
#define NET_BATCH_BYTES_MAX (512u * 1024) /* of one send() */
#define NET_REST_FD UINT32_MAX            /* rest(): as long as its fd has nothing */
#define NET_TROUBLES_MAX 64               /* peers that one troubles() names */
#define NET_STEERING_BYTE 4               /* of a datagram; its receiver may have several nets */

/* 2.1: "They carry ECT(0) (RFC 3168) where the sender's system can do so": two bits of the TOS byte, or traffic class. */
#define NET_ECN_CAPABLE 2 /* ECT(0), on all that is sent: queues may mark it, */
#define NET_ECN_MARKED 3  /* CE, and one has */
#define NET_TOS(dscp) ((uint8_t)((dscp) << 2 | NET_ECN_CAPABLE))

struct net;

/*
 * An address of either family: in network byte order, one of IPv4 as IPv6 maps it
 * (::ffff:10.0.0.1). All zeros are IPv6's ::, which stands for both families.
 */
struct net_ip {
	uint8_t bytes[16];
	uint32_t scope; /* of a link's own, fe80::1%eth0: the interface's index; else 0 */
};

struct net_addr {
	struct net_ip ip;
	uint16_t port; /* host byte order */
};

/*
 * Where datagrams go, and from which of our addresses; net_ip_none(local): from the system's choice.
 * To an IPv6 group they leave by the interface local.scope, if that is not 0.
 */
struct net_path {
	struct net_addr to;
	struct net_ip local;
	uint32_t mark; /* The caller's: troubles() repeats it for this path. */
};

struct net_in {
	const uint8_t *data; /* UDP payload, at any address */
	uint32_t bytes;
	struct net_addr from;
	struct net_ip local; /* of ours: it was sent to this one */
	uint64_t came_us;    /* by clock_us(), when the system received it; 0: not known */
	bool marked;         /* ECN: a queue on its way was long */
};

struct net_out {
	const struct iovec *pieces; /* [piece_count], in all `bytes` bytes */
	uint32_t piece_count;
	uint32_t bytes;
};

/* For a road that takes a port of its own, past the kernel's sockets: dpdk. Texts are copied. */
struct net_port {
	const char *eal;    /* DPDK's EAL arguments; NULL: what suits `device` */
	const char *device; /* DPDK's name of the port, or the kernel's; NULL: all ports */
	/* None: the kernel's, where the address is the kernel's; else there is none. */
	struct net_ip gateway;
	uint32_t prefix_bits; /* of local.ip's network; 0: the kernel's, or 24, of IPv6 64 */
	uint32_t idle_us;     /* the longest sleep of an idle queue; 0: poll without end */
	/* What happens to the port, a line each; level is "info", "warn" or "error". Any thread. */
	void (*log)(const char *level, const char *text);
};

/*
 * Where a host of several interfaces sends from: by one of them, or from one address. "" and none: the system chooses.
 */
struct net_source {
	char interface[16];
	struct net_ip ip;
};

struct net_config {
	struct net_addr local; /* The address to receive at; port 0: any. */
	const char *interface; /* UDP sends by this one; NULL: the system chooses. */
	struct net_ip group;   /* A multicast group to receive instead, on local.port; or none. */
	struct net_ip device;  /* Our address on the group's network. */
	uint32_t payload_max;  /* largest datagram sent or received */
	uint32_t buffer_bytes; /* of the kernel, each way; what the system grants is used */
	uint32_t dscp;         /* 0 .. 63: the class of what is sent, as RFC 2474 */
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

/* Of a net, as long as it is open. */
struct net_facts {
	int fd;                /* readable when something was received; -1: has none */
	uint32_t buffer_bytes; /* the receive buffer granted, as the kernel counts */
	uint32_t send_bytes;   /* the send buffer granted; 0: has none */
	uint32_t payload_max;  /* largest datagram that it carries */
	uint32_t burst; /* recv() gives all that wait if they are fewer; 0: not known, look again */
	struct net_addr address; /* the address that it receives at */
};

/*
 * A peer that datagrams do not reach, because the system refuses to send them; or one whose
 * datagrams arrive several in one, because no network card has cut them apart, and are lost.
 */
struct net_trouble {
	struct net_addr peer;
	int error;      /* errno: EMSGSIZE, EPERM, ENETUNREACH and the like; or NET_MERGED */
	uint64_t count; /* of datagrams */
	uint32_t mark;  /* of the path by which they were sent; 0: they were received */
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

	/* limit - room for about so many bytes that have not left the host; NULL: not known here. */
	void (*limit)(struct net *net, uint32_t bytes);

	/*
	 * rest - recv() returned nothing, and the caller wants to sleep: for how many microseconds
	 * may it, before it must look again? 0: not at all. NET_REST_FD, or rest is NULL: until its fd is readable.
	 */
	uint32_t (*rest)(struct net *net);

	/*
	 * troubles - peers that there has been trouble with since the last call; returns how many.
	 */
	uint32_t (*troubles)(struct net *net, struct net_trouble out[NET_TROUBLES_MAX]);

	/*
	 * health - 0; or -errno and one line in `why` when nothing will arrive or leave here again. NULL: always 0.
	 */
	int (*health)(struct net *net, struct why *why);
	void (*stats)(const struct net *net, struct net_stats *out);
	const struct net_facts *(*facts)(const struct net *net);
	void (*close)(struct net *net); /* NULL is fine */
};

extern const struct net_backend net_udp;

/* What an object with a back end exports, under this name. */
#define NET_PLUGIN_SYMBOL "winnow_net_plugin"
struct net_plugin {
	const char *version; /* WINNOW_VERSION of the build */
	const char *about;   /* of the library that it needs: "DPDK 22.11.11" */
	const struct net_backend *backend;
};

/*
 * net_plugin_open - the table `symbol` of winnow-NAME.so, or of the object at `path` if not NULL. The
 * table's first member is the version that it was built with. The object is never closed. -ENOENT:
 * there is none; -ELIBACC: it cannot be opened; -EPERM: this program has rights that its caller lacks; one
 * line in `why`.
 */
int net_plugin_open(const char *name, const char *path, const char *symbol, const void **out,
                    struct why *why);

/*
 * net_backend_named - the back end called `name`. One that needs a library that few machines have
 * (dpdk) is an object of its own (winnow-NAME.so), opened at the first call and never closed.
 * -ENOENT: there is none of that name, or not in this build; -ELIBACC: it cannot be opened; one line in `why`.
 */
int net_backend_named(const char *name, const struct net_backend **out, struct why *why);

/* net_backend_about - the library of an object that is there and can be opened; NULL: it is not. */
const char *net_backend_about(const char *name);

/* ---- addresses ---- */

/* One of IPv4 from a number, 10.0.0.1 from 0x0a000001. */
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

/* And back; 0: it is not of IPv4, or is 0.0.0.0. */
static inline uint32_t net_ip_number(const struct net_ip *ip)
{
	const uint8_t *b = ip->bytes + 12;

	return net_ip_is_v4(ip)
	               ? (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]
	               : 0;
}

/* :: and 0.0.0.0: no address, or any. */
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

/* Of the IP and UDP headers to this address, which an MTU counts. */
static inline uint32_t net_headers(const struct net_ip *ip)
{
	return net_ip_is_v4(ip) ? 28 : 48;
}

/* One that only a link knows: fe80::/10. */
static inline bool net_ip_link_local(const struct net_ip *ip)
{
	return ip->bytes[0] == 0xfe && (ip->bytes[1] & 0xc0) == 0x80;
}

/*
 * net_ip_owner - whom an address belongs to, as far as it shows: hosts choose the lower half of an
 * IPv6 address as they like, so it is the network that counts.
 */
uint64_t net_ip_owner(const struct net_ip *ip);

/* net_ip_device - the index of the interface that has this address of ours; 0: none has. */
uint32_t net_ip_device(const struct net_ip *ip);

#define NET_HOST_BYTES 256
#define NET_NAME_ADDRESSES_MAX 8

/*
 * net_split - "HOST:PORT" into its parts. An IPv6 address stands in brackets, which `host` is
 * without: "[fd00::1]:5555", "[fe80::1%eth0]:5555". -EINVAL when the text does not have that form; one
 * line in `why`.
 */
int net_split(const char *text, char host[NET_HOST_BYTES], uint16_t *port, struct why *why);

/*
 * net_resolve_all - turns "HOST:PORT" into the addresses of the host, each once, in the name
 * service's order, into out[NET_NAME_ADDRESSES_MAX]; more than that are left out. *count: at least 1.
 * Blocks for the name service. -EINVAL as of net_split(), -EHOSTUNREACH when the name is unknown,
 * -EAGAIN when that cannot be told now, as at boot; one line in `why`.
 */
int net_resolve_all(const char *text, struct net_addr *out, uint32_t *count, struct why *why);

/* net_resolve - the same for one address: the first of IPv4; of a host that has none, its first. */
int net_resolve(const char *text, struct net_addr *out, struct why *why);

/*
 * net_network - "ADDR" or "ADDR/BITS" to an address and the length of its network's prefix (0 when not
 * given). -EINVAL, with one line in `why`.
 */
int net_network(const char *text, struct net_ip *ip, uint32_t *prefix_bits, struct why *why);

/* net_source_of - "eth1", or an address that this host has. -EINVAL with one line in `why`: it has neither. */
int net_source_of(const char *text, struct net_source *out, struct why *why);

/* net_source_bind - of a socket that has no address yet, before its connect() to there. 0, or -errno. */
int net_source_bind(int fd, const struct net_source *source, const struct net_ip *to);

/*
 * net_route_mtu - the MTU of the route from there to this address, as the kernel knows it; 0, and errno:
 * there is no route.
 */
uint32_t net_route_mtu(const struct net_addr *to, const struct net_source *from);

#define NET_TEXT_BYTES 72

/* Into `text` (at least NET_TEXT_BYTES), and return it: "10.0.0.1:5555", "[fd00::1]:5555"; and without port. */
char *net_format(const struct net_addr *address, char *text);
char *net_ip_format(const struct net_ip *ip, char *text);

#endif /* BITMAP_NET_H */
