// SPDX-License-Identifier: BSD-3-Clause
/* doctor_host.c - checks the kernel, the CPU, capabilities, socket buffers and network devices */

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bitmap/bitmap.h"
#include "client/cli/doctor/doctor_state.h"
#include "ebpf/xdp.h"

#define BUFFER_WANTED 16777216 /* winnowd's and the library's --buffer-bytes */
#define BUFFER_TEXT "16777216"
#define DEAD_NEIGHBOURS 64 /* This many dead addresses must not fill winnowd's buffer. */
#define WAITING "/proc/sys/net/ipv4/neigh/default/unres_qlen_bytes"

static void check_kernel(void)
{
	unsigned major = 0, minor = 0;
	struct utsname name = {.release = ""};
	bool old = uname(&name) != 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2 ||
	           major < 5 || (major == 5 && minor < 18);

	doctor_say(old ? DOCTOR_WARN : DOCTOR_OK, "kernel",
	           "install a newer kernel if winnowd is to use --device here", "%s %s %s%s",
	           name.sysname, name.release, name.machine,
	           old ? " is older than 5.18: no XDP" : "");
}

static void check_cpu(void)
{
	const char *isa = bitmap_best()->name;
	bool slow = strcmp(isa, "scalar") == 0;

	doctor_say(slow ? DOCTOR_WARN : DOCTOR_OK, "cpu",
	           "give a virtual machine the host's CPU model; unset WINNOW_ISA if it is set",
	           "%ld CPUs, uses %s%s", sysconf(_SC_NPROCESSORS_ONLN), isa,
	           slow ? ": without AVX2 and F16C, scanning and adding are slower" : "");
}

static void check_capabilities(void)
{
	bool all = xdp_capable(CAP_BPF) && xdp_capable(CAP_PERFMON) && xdp_capable(CAP_NET_ADMIN);

	doctor_say(all ? DOCTOR_OK : DOCTOR_ABSENT, "capabilities",
	           "run winnowd as root, or by its unit with the drop-in winnowd-xdp.conf "
	           "(AmbientCapabilities=); it drops them after its start",
	           all ? "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN: enough for XDP and large buffers"
	               : "not all of CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN; only XDP and buffers "
	                 "beyond the limits need them");
}

/* ---- sockets ---- */

/* The kernel doubles the size that a program asks for. Returns the doubled size. */
static int check_buffer(int fd, int force, int plain, const char *name, const char *fix)
{
	int wanted = BUFFER_WANTED, granted = 0;
	socklen_t size = sizeof(granted);

	if (setsockopt(fd, SOL_SOCKET, force, &wanted, sizeof(wanted)) != 0)
		setsockopt(fd, SOL_SOCKET, plain, &wanted, sizeof(wanted));
	getsockopt(fd, SOL_SOCKET, plain, &granted, &size);
	doctor_say(granted / 2 >= wanted ? DOCTOR_OK : DOCTOR_WARN, name, fix,
	           "%d KB granted of %d asked for%s", granted / 2048, wanted / 1024,
	           granted / 2 >= wanted ? "" : ": the window is smaller, and bursts are lost");
	return granted;
}

/*
 * Datagrams to an address that answers no ARP wait in the socket's send buffer. Any member of a job can name such
 * addresses, and enough of them keep winnowd from sending to all others.
 */
static void check_neighbours(int send_bytes)
{
	FILE *file = fopen(WAITING, "re");
	int waiting;
	bool large;

	if (file == NULL)
		return; /* Most containers do not have it, because it belongs to the host. */
	if (fscanf(file, "%d", &waiting) == 1 && waiting > 0) {
		large = waiting > send_bytes / DEAD_NEIGHBOURS;
		doctor_say(large ? DOCTOR_WARN : DOCTOR_OK, "neighbours",
		           "sysctl -w net.ipv4.neigh.default.unres_qlen_bytes=8192 "
		           "net.ipv6.neigh.default.unres_qlen_bytes=8192",
		           "%d KB wait for an address that does not answer: %d such addresses fill "
		           "winnowd's send buffer",
		           waiting / 1024, send_bytes / waiting + 1);
	}
	fclose(file);
}

/* ---- devices ---- */

/* `fd` is any socket. */
static void check_device(int fd, const char *device)
{
	struct ifreq request = {0}, mtu = {0};
	char name[40], fix[80];
	unsigned flags;
	struct why why;

	snprintf(name, sizeof(name), "device %.20s", device);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device);
	mtu = request;
	if (strlen(device) >= sizeof(request.ifr_name) || ioctl(fd, SIOCGIFFLAGS, &request) != 0 ||
	    ioctl(fd, SIOCGIFMTU, &mtu) != 0) {
		doctor_say(DOCTOR_FAIL, name, "list the devices with: ip link",
		           "there is no such network device");
		return;
	}
	flags = (unsigned)request.ifr_flags;
	if ((flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING)) {
		snprintf(fix, sizeof(fix), "ip link set %.20s up; is the cable in?", device);
		doctor_say(DOCTOR_FAIL, name, fix, "it is down");
		return;
	}
	snprintf(fix, sizeof(fix), "ip link set %.20s multicast on", device);
	doctor_say(flags & IFF_MULTICAST ? DOCTOR_OK : DOCTOR_WARN, name, fix, "MTU %d%s",
	           mtu.ifr_mtu,
	           flags & IFF_MULTICAST ? "" : ", no multicast: each worker gets a copy");
	if (xdp_taken(device, &why) == -EBUSY) /* The line itself says how to mend this. */
		doctor_say(DOCTOR_WARN, "xdp", NULL, "%s", why.text);
}

static void check_devices(int fd)
{
	struct if_nameindex *all = if_nameindex();
	bool any = false;

	for (struct if_nameindex *i = all; i != NULL && i->if_index != 0; i++) {
		struct ifreq request = {0};

		snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", i->if_name);
		if (ioctl(fd, SIOCGIFFLAGS, &request) != 0 || request.ifr_flags & IFF_LOOPBACK ||
		    !(request.ifr_flags & IFF_RUNNING))
			continue;
		check_device(fd, i->if_name);
		any = true;
	}
	if (all != NULL)
		if_freenameindex(all);
	if (!any)
		doctor_say(DOCTOR_WARN, "devices", "ip link set DEVICE up",
		           "no network device other than loopback is up");
}

void doctor_host(const struct doctor *doctor)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	check_kernel();
	check_cpu();
	check_capabilities();
	if (fd < 0) {
		doctor_say(DOCTOR_FAIL, "udp",
		           "look for a seccomp filter, and at the limit of open files",
		           "cannot open a UDP socket: %s", strerror(errno));
		return;
	}
	check_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, "receive buffer",
	             "sysctl -w net.core.rmem_max=" BUFFER_TEXT);
	check_neighbours(check_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, "send buffer",
	                              "sysctl -w net.core.wmem_max=" BUFFER_TEXT));
	if (doctor->device != NULL)
		check_device(fd, doctor->device);
	else
		check_devices(fd);
	close(fd);
}
