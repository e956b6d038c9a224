// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_doctor.c - what winnow doctor says of a machine that this one is not: an old kernel, small buffers, no sockets.
 * What a network namespace can be, tests/e2e/test_status_xdp.sh shows.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include "tests/unit/unit.h"

static const char *release = "6.1.0", *waiting_text = "8192\n";
static int given_bytes = 2 * 16777216, no_socket;

static int machine_uname(struct utsname *out)
{
	*out = (struct utsname){.sysname = "Linux", .machine = "m68k"};
	strcpy(out->release, release);
	return 0;
}

static int machine_socket(int domain, int type, int protocol)
{
	errno = no_socket;
	return no_socket != 0 ? -1 : socket(domain, type, protocol);
}

static int machine_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
	memcpy(value, &given_bytes, *bytes);
	return 0;
}

/* Of the one file that is read: NULL: it is not there. */
static FILE *machine_fopen(const char *path, const char *mode)
{
	assert_string_equal(path, "/proc/sys/net/ipv4/neigh/default/unres_qlen_bytes");
	return waiting_text != NULL
	               ? fmemopen((char *)(uintptr_t)waiting_text, strlen(waiting_text), mode)
	               : NULL;
}

#define uname machine_uname
#define fopen machine_fopen
#define socket machine_socket
#define getsockopt machine_getsockopt
#include "client/cli/doctor/doctor_host.c"

static char found[8192];

void doctor_say(enum doctor_state state, const char *name, const char *fix, const char *format, ...)
{
	static const char *const states[] = {"ok", "absent", "warn", "fail"};
	size_t used = strlen(found);
	va_list args;

	used += (size_t)snprintf(found + used, sizeof(found) - used, "%s %s: ", states[state],
	                         name);
	va_start(args, format);
	used += (size_t)vsnprintf(found + used, sizeof(found) - used, format, args);
	va_end(args);
	snprintf(found + used, sizeof(found) - used, " > %s\n", fix != NULL ? fix : "");
}

static void look(void)
{
	const struct doctor asked = {.device = "lo"};

	found[0] = '\0';
	doctor_host(&asked);
}

static void expect(const char *line)
{
	if (strstr(found, line) == NULL)
		fail_msg("no '%s' in: %s", line, found);
}

TEST(kernel)
{
	look();
	expect("ok kernel: Linux 6.1.0 m68k >");
	release = "5.17.9-lts";
	look();
	expect("warn kernel: Linux 5.17.9-lts m68k is older than 5.18: no XDP > install a newer");
	release = "4.19.1";
	look();
	expect("warn kernel: Linux 4.19.1 m68k is older");
	release = "5.18.0";
	look();
	expect("ok kernel: Linux 5.18.0 m68k >");
}

TEST(buffers)
{
	look();
	expect("ok receive buffer: 16384 KB granted of 16384 asked for >");
	expect("ok send buffer: 16384 KB granted");
	given_bytes = 2 * 212992;
	look();
	expect("warn receive buffer: 208 KB granted of 16384 asked for: the window is smaller, and "
	       "bursts are lost > sysctl -w net.core.rmem_max=16777216\n");
	expect("warn send buffer: 208 KB granted of 16384 asked for: the window is smaller, and "
	       "bursts are lost > sysctl -w net.core.wmem_max=16777216\n");
	given_bytes = 2 * 16777216;
}

TEST(neighbours)
{
	look();
	expect("ok neighbours: 8 KB wait for an address that does not answer: 4097 such addresses");
	waiting_text = "4194304\n";
	look();
	expect("warn neighbours: 4096 KB wait for an address that does not answer: 9 such "
	       "addresses fill winnowd's send buffer > sysctl -w "
	       "net.ipv4.neigh.default.unres_qlen_bytes=8192");
	waiting_text = NULL;
	look();
	assert_null(strstr(found, "neighbours"));
}

TEST(no_socket)
{
	no_socket = EMFILE;
	look();
	expect("fail udp: cannot open a UDP socket: Too many open files > look for a seccomp "
	       "filter");
	no_socket = 0;
}
