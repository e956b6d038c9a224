// SPDX-License-Identifier: BSD-3-Clause
/* test_net.c - addresses as text, and opening sockets where one may not */

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bitmap/net/net.h"
#include "tests/unit/unit.h"

#define LOOPBACK 0x7f000001u

static int lookup; /* what the name service says of a name; 0: whatever it does */

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
	int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

	*(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
	return lookup != 0 ? lookup : next(name, service, hints, out);
}

/* The kernel doubles what it is asked for, each way. */
TEST(buffers)
{
	const struct net_config config = {
		.local = {.ip = NET_IPV4(LOOPBACK)}, .buffer_bytes = 16384, .queue_count = 1};
	struct why why;
	socklen_t size = sizeof(int);
	struct net *net;
	int bytes = 0;

	assert_int_equal(net_udp.open(&config, &net, &why), 0);
	assert_int_equal(net_udp.facts(net)->buffer_bytes, 32768);
	assert_int_equal(net_udp.facts(net)->send_bytes, 32768);
	getsockopt(net_udp.facts(net)->fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
	assert_int_equal(bytes, 32768);
	net_udp.close(net);
}

TEST(address_in_use)
{
	struct net *second = NULL;
	struct net_config config = {.local = {.ip = NET_IPV4(LOOPBACK)},
	                            .payload_max = 1472,
	                            .buffer_bytes = 65536,
	                            .queue_count = 1};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOOPBACK)};
	socklen_t size = sizeof(address);
	char text[NET_TEXT_BYTES];
	struct why why = {""};

	/* Another program's socket, without SO_REUSEADDR. */
	assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
	config.local.port = ntohs(address.sin_port);
	assert_int_equal(net_udp.open(&config, &second, &why), -EADDRINUSE);
	assert_null(second);
	assert_non_null(strstr(why.text, net_format(&config.local, text)));
	assert_non_null(strstr(why.text, "in use"));
	config.local = (struct net_addr){.ip = net_ipv4(0x01020304), .port = 0}; /* not ours */
	assert_int_equal(net_udp.open(&config, &second, &why), -EADDRNOTAVAIL);
	assert_non_null(strstr(why.text, "1.2.3.4:0"));
	close(fd);
	net_udp.close(NULL);
}

/* A port is one net's, so that no two workers of a machine are given the same; a group's is for all of them. */
TEST(port_shared)
{
	struct net_config config = {.local = {.ip = NET_IPV4(LOOPBACK)},
	                            .payload_max = 1472,
	                            .buffer_bytes = 65536,
	                            .queue_count = 1};
	struct net *first, *second = NULL;
	struct why why = {""};

	assert_int_equal(net_udp.open(&config, &first, &why), 0);
	config.local.port = net_udp.facts(first)->address.port;
	assert_int_equal(net_udp.open(&config, &second, &why), -EADDRINUSE);
	assert_null(second);
	net_udp.close(first);
	config.group = net_ipv4(0xefff0001); /* 239.255.0.1 */
	config.device = net_ipv4(LOOPBACK);
	assert_int_equal(net_udp.open(&config, &first, &why), 0);
	assert_int_equal(net_udp.open(&config, &second, &why), 0);
	net_udp.close(first);
	net_udp.close(second);
}

TEST(names)
{
	static const char *const wrong[] = {
		"",           ":",           ":5555",           "127.0.0.1",
		"127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:5555x",
		"127.0.0.1:x"};
	static const struct {
		int says, err;
	} lookups[] = {{EAI_NONAME, -EHOSTUNREACH}, {EAI_NODATA, -EHOSTUNREACH},
	               {EAI_FAIL, -EHOSTUNREACH},   {EAI_AGAIN, -EAGAIN},
	               {EAI_SYSTEM, -EAGAIN},       {EAI_MEMORY, -EAGAIN}};
	const struct net_backend *backend;
	struct net_addr address = {0};
	char text[NET_TEXT_BYTES], long_name[400];
	struct why why;

	assert_int_equal(net_backend_named("udp", &backend, &why), 0);
	assert_ptr_equal(backend, &net_udp);
	assert_int_equal(net_backend_named("tcp", &backend, &why), -ENOENT);
	assert_non_null(strstr(why.text, "'tcp'"));
	assert_int_equal(net_backend_named("../tcp", &backend, &why), -ENOENT);
	assert_int_equal(net_resolve("127.0.0.1:65535", &address, &why), 0);
	assert_string_equal(net_format(&address, text), "127.0.0.1:65535");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(net_resolve(wrong[i], &address, &why), -EINVAL);
		assert_non_null(strstr(why.text, "HOST:PORT"));
	}
	memset(long_name, 'x', sizeof(long_name));
	strcpy(long_name + 300, ":1");
	assert_int_equal(net_resolve(long_name, &address, &why), -EINVAL);
	for (size_t i = 0; i < sizeof(lookups) / sizeof(lookups[0]); i++) {
		lookup = lookups[i].says;
		assert_int_equal(net_resolve("no-such-host.invalid:80", &address, &why),
		                 lookups[i].err);
		assert_non_null(strstr(why.text, "cannot find host 'no-such-host.invalid'"));
	}
	lookup = 0;
	assert_int_equal(address.port, 65535);
}

/* A text, and what is wrong with it; or how it comes back. */
static const struct {
	const char *text, *wrong, *back;
} ipv6[] = {
	{"::1:80", "stands in brackets", NULL},
	{"::1", "stands in brackets", NULL},
	{"fe80::1:2:5555", "stands in brackets", NULL},
	{"::", "stands in brackets", NULL},
	{"[::1]", "is not HOST:PORT", NULL},
	{"[::1]:", "is not HOST:PORT", NULL},
	{"[::1]:0", "is not HOST:PORT", NULL},
	{"[::1]:65536", "is not HOST:PORT", NULL},
	{"[::1]:-1", "is not HOST:PORT", NULL},
	{"[::1:80", "is not HOST:PORT", NULL},
	{"[::1]80", "is not HOST:PORT", NULL},
	{"[]:80", "is not HOST:PORT", NULL},
	{"[::g]:80", "is not HOST:PORT", NULL},
	{"[10.0.0.1]:80", "is not HOST:PORT", NULL},
	{"[localhost]:80", "is not HOST:PORT", NULL},
	{"[fe80::1]:80", "add the interface", NULL},
	{"[fe80::1%no-such-interface]:80", "cannot find host", NULL},
	{"[::1]:80", NULL, "[::1]:80"},
	{"[::]:5555", NULL, "[::]:5555"},
	{"[2001:0db8:0:0::7]:5555", NULL, "[2001:db8::7]:5555"},
	{"[fe80::1%lo]:5555", NULL, "[fe80::1%lo]:5555"},
	{"[::ffff:10.0.0.1]:5555", NULL, "10.0.0.1:5555"},
};

TEST(ipv6)
{
	char text[NET_TEXT_BYTES];

	for (size_t i = 0; i < sizeof(ipv6) / sizeof(ipv6[0]); i++) {
		struct net_addr address = {.port = 7};
		struct why why = {""};
		int err = net_resolve(ipv6[i].text, &address, &why);

		assert_int_equal(err == 0, ipv6[i].wrong == NULL);
		if (err == 0)
			assert_string_equal(net_format(&address, text), ipv6[i].back);
		else if (strstr(why.text, ipv6[i].wrong) == NULL || strchr(why.text, '\n') != NULL)
			fail_msg("%s: %s", ipv6[i].text, why.text);
		if (err != 0)
			assert_int_equal(address.port, 7);
	}
}

/* ADDR/BITS, and what comes of it; NULL: it is refused. */
static const struct {
	const char *text, *ip;
	uint32_t bits;
} networks[] = {
	{"10.0.0.1/24", "10.0.0.1", 24},
	{"10.0.0.1", "10.0.0.1", 0},
	{"10.0.0.1/32", "10.0.0.1", 32},
	{"fd77::1/64", "fd77::1", 64},
	{"fd77::1", "fd77::1", 0},
	{"fd77:0:0:0:0:0:0:1/128", "fd77::1", 128},
	{"fe80::1", "fe80::1", 0},
	{"10.0.0.1/33", NULL, 0},
	{"10.0.0.1/0", NULL, 0},
	{"10.0.0.1/", NULL, 0},
	{"10.0.0.1/-1", NULL, 0},
	{"10.0.0.1/24x", NULL, 0},
	{"10.0.0/24", NULL, 0},
	{"fd77::1/129", NULL, 0},
	{"fd77::1/0", NULL, 0},
	{"[fd77::1]/64", NULL, 0},
	{"fe80::1%lo/64", NULL, 0},
	{"::ffff:10.0.0.1/120", NULL, 0},
	{"fd77:0000:0000:0000:0000:0000:0000:0000:0000:0001/64", NULL, 0},
	{"here", NULL, 0},
	{"", NULL, 0},
	{"/24", NULL, 0},
};

TEST(networks)
{
	char text[NET_TEXT_BYTES];

	for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
		struct net_ip ip = net_ipv4(7);
		uint32_t bits = 99;
		struct why why = {""};
		int err = net_network(networks[i].text, &ip, &bits, &why);

		assert_int_equal(err, networks[i].ip == NULL ? -EINVAL : 0);
		if (err == 0) {
			assert_string_equal(net_ip_format(&ip, text), networks[i].ip);
			assert_int_equal(bits, networks[i].bits);
		} else {
			assert_non_null(strstr(why.text, "is not ADDR or ADDR/BITS"));
			assert_true(net_ip_number(&ip) == 7 && bits == 99);
		}
	}
}

/* The family, none, a group, whose an address is. */
TEST(kinds)
{
	const struct net_ip four = net_ipv4(0x0a000001), any = net_ipv4(0), none = {.scope = 0};
	struct net_ip six = {.bytes = {0xfd, 0x77, [15] = 1}}, link = {.bytes = {0xfe, 0x80}};
	struct net_ip other = six, group = net_ipv4(0xef4d0000);

	assert_true(net_ip_is_v4(&four) && net_ip_is_v4(&any));
	assert_false(net_ip_is_v4(&six) || net_ip_is_v4(&none));
	assert_int_equal(net_ip_number(&four), 0x0a000001);
	assert_int_equal(net_ip_number(&six), 0);
	assert_true(net_ip_none(&any) && net_ip_none(&none));
	assert_false(net_ip_none(&four) || net_ip_none(&six));
	assert_true(net_ip_multicast(&group));
	for (uint32_t first = 0; first < 256; first++) {
		group = net_ipv4(first << 24 | 0xffffff);
		assert_int_equal(net_ip_multicast(&group), first >> 4 == 0xe);
	}
	assert_true(net_ip_link_local(&link));
	assert_false(net_ip_link_local(&six) || net_ip_link_local(&any));
	group = (struct net_ip){.bytes = {0xff, 0x15}};
	assert_true(net_ip_multicast(&group));
	assert_false(net_ip_multicast(&four) || net_ip_multicast(&six));
	assert_int_equal(net_headers(&four), 28);
	assert_int_equal(net_headers(&six), 48);
	/* A network's hosts are one owner, those of IPv4 and of a link one each. */
	other.bytes[8] = 1;
	assert_int_equal(net_ip_owner(&six), net_ip_owner(&other));
	other.bytes[7] = 1;
	assert_int_not_equal(net_ip_owner(&six), net_ip_owner(&other));
	other = net_ipv4(0x0a000002);
	assert_int_not_equal(net_ip_owner(&four), net_ip_owner(&other));
	other = link;
	other.bytes[15] = 1;
	assert_int_not_equal(net_ip_owner(&link), net_ip_owner(&other));
	assert_true(net_ip_same(&link, &link));
	other = link;
	other.scope = 2;
	assert_false(net_ip_same(&link, &other));
}

TEST(all_addresses)
{
	struct net_addr all[NET_NAME_ADDRESSES_MAX];
	uint32_t count = 0;
	struct why why;

	assert_int_equal(net_resolve_all("10.0.0.1:5555", all, &count, &why), 0);
	assert_int_equal(count, 1);
	assert_int_equal(net_ip_number(&all[0].ip), 0x0a000001);
	assert_int_equal(all[0].port, 5555);
	assert_int_equal(net_resolve_all(":1", all, &count, &why), -EINVAL);
}
