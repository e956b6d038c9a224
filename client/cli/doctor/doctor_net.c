// SPDX-License-Identifier: BSD-3-Clause
/* doctor_net.c - what sockets may do here, and the network devices; XDP without attaching anything */

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/cli/doctor/doctor.h"
#include "ebpf/xdp.h"

#define BUFFER_WANTED 16777216 /* winnowd's and the library's --buffer-bytes */
#define BUFFER_TEXT "16777216"
#define DEAD_NEIGHBOURS 64 /* so many fill no send buffer of winnowd's */
#define NATIVE_MTU_MAX 3498
#define DEVICES_MAX 16

/* ---- sockets ---- */

/* The kernel counts twice what one may ask for; returns what it counts. */
static int check_buffer(int fd, int force, int plain, const char *name, const char *fix)
{
	int wanted = BUFFER_WANTED, granted = 0, bytes;
	socklen_t size = sizeof(granted);

	if (setsockopt(fd, SOL_SOCKET, force, &wanted, sizeof(wanted)) != 0)
		setsockopt(fd, SOL_SOCKET, plain, &wanted, sizeof(wanted));
	getsockopt(fd, SOL_SOCKET, plain, &granted, &size);
	bytes = granted;
	granted /= 2;
	doctor_say(granted >= wanted ? DOCTOR_OK : DOCTOR_WARN, name, fix,
	           "%d KB granted of %d asked for%s", granted / 1024, wanted / 1024,
	           granted >= wanted ? "" : ": the window shrinks, bursts are lost");
	return bytes;
}

/*
 * What is sent to an address that answers no ARP waits for it, in the socket's buffer. So few such addresses, which
 * any member of a job may give, keep winnowd from sending to all others.
 */
static void check_neighbours(int send_bytes)
{
	char text[32] = "";
	int waiting;

	if (!doctor_read("/proc/sys/net/ipv4/neigh/default/unres_qlen_bytes", text, sizeof(text)))
		return; /* as in most containers: it is the host's */
	waiting = atoi(text);
	if (waiting <= send_bytes / DEAD_NEIGHBOURS)
		doctor_say(DOCTOR_OK, "neighbours", NULL, "%d KB wait for one that does not answer",
		           waiting / 1024);
	else
		doctor_say(
			DOCTOR_WARN, "neighbours",
			"sysctl -w net.ipv4.neigh.default.unres_qlen_bytes=8192 "
			"net.ipv6.neigh.default.unres_qlen_bytes=8192",
			"%d KB wait for one that does not answer: %d such addresses fill winnowd's "
			"send buffer",
			waiting / 1024, send_bytes / waiting + 1);
}

static void check_offload(int fd)
{
	int segment = 1400, on = 1;
	bool sends = setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)) == 0;
	bool receives = setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) == 0;

	doctor_say(sends && receives ? DOCTOR_OK : DOCTOR_WARN, "udp offload",
	           "Linux 5.0 has both: without, each datagram costs a system call",
	           "segmentation %s, GRO %s", sends ? "yes" : "no", receives ? "yes" : "no");
}

static void check_sockets(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		doctor_say(DOCTOR_FAIL, "udp",
		           "a seccomp filter or the limit of open files may forbid it",
		           "no UDP socket: %s", strerror(errno));
		return;
	}
	check_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, "receive buffer",
	             "sysctl -w net.core.rmem_max=" BUFFER_TEXT);
	check_neighbours(check_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, "send buffer",
	                              "sysctl -w net.core.wmem_max=" BUFFER_TEXT));
	check_offload(fd);
	close(fd);
}

/* ---- devices ---- */

struct device {
	const char *name;
	char driver[32];
	int mtu, mbits;
	bool up, multicast;
};

static bool device_look(const char *name, struct device *out)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char path[96], text[32] = "";
	struct ifreq request = {0};
	bool there;

	*out = (struct device){.name = name, .driver = "no driver's name"};
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	there = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0;
	out->up = there && (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING);
	out->multicast = there && (request.ifr_flags & IFF_MULTICAST);
	if (there && ioctl(fd, SIOCGIFMTU, &request) == 0)
		out->mtu = request.ifr_mtu;
	request.ifr_data = (char *)&info;
	if (there && ioctl(fd, SIOCETHTOOL, &request) == 0)
		snprintf(out->driver, sizeof(out->driver), "%.31s", info.driver);
	if (fd >= 0)
		close(fd);
	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
	if (there && doctor_read(path, text, sizeof(text)))
		out->mbits = atoi(text);
	return there;
}

static void check_device_xdp(const struct device *device)
{
	char name[40], fix[64];
	struct why why;
	uint64_t features = 0;

	snprintf(name, sizeof(name), "xdp %.20s", device->name);
	snprintf(fix, sizeof(fix), "ip link set %.20s mtu %d, on workers too", device->name,
	         NATIVE_MTU_MAX);
	if (xdp_taken(device->name, &why) == -EBUSY)
		doctor_say(DOCTOR_WARN, name, NULL, "%s", why.text);
	else if (!doctor_xdp_features(if_nametoindex(device->name), &features))
		doctor_say(DOCTOR_ABSENT, name, NULL,
		           "this kernel cannot say whether %s does native XDP; winnowd's first log "
		           "line will",
		           device->driver);
	else if (!(features & DOCTOR_XDP_BASIC))
		doctor_say(DOCTOR_ABSENT, name, NULL,
		           "generic only: %s has no XDP, or not with its present settings",
		           device->driver);
	else if (device->mtu > NATIVE_MTU_MAX)
		doctor_say(DOCTOR_WARN, name, fix,
		           "%s has native XDP, but an MTU of %d may keep it to generic",
		           device->driver, device->mtu);
	else
		doctor_say(DOCTOR_OK, name, NULL, "native, says %s", device->driver);
}

static void check_device(const char *name)
{
	char label[40], speed[32] = "", fix[80];
	struct device device;

	snprintf(label, sizeof(label), "device %.20s", name);
	if (!device_look(name, &device)) {
		doctor_say(DOCTOR_FAIL, label, "ip link shows those that there are",
		           "no network device is called so");
		return;
	}
	snprintf(fix, sizeof(fix), "ip link set %.20s %s", name,
	         device.up ? "multicast on" : "up; is the cable in?");
	if (!device.up) {
		doctor_say(DOCTOR_FAIL, label, fix, "%s: it is down", device.driver);
		return;
	}
	if (device.mbits > 0)
		snprintf(speed, sizeof(speed), ", %g Gbit/s", device.mbits / 1e3);
	doctor_say(device.multicast ? DOCTOR_OK : DOCTOR_WARN, label, fix, "%s, MTU %d%s%s",
	           device.driver, device.mtu, speed,
	           device.multicast ? "" : ", no multicast: each worker gets a copy");
	check_device_xdp(&device);
}

static void check_devices(void)
{
	struct if_nameindex *all = if_nameindex();
	uint32_t count = 0;

	for (struct if_nameindex *i = all; i != NULL && i->if_index != 0; i++) {
		struct device device;

		if (strcmp(i->if_name, "lo") == 0 || !device_look(i->if_name, &device) ||
		    !device.up)
			continue;
		if (count++ < DEVICES_MAX)
			check_device(i->if_name);
	}
	if (all != NULL)
		if_freenameindex(all);
	if (count == 0)
		doctor_say(DOCTOR_WARN, "devices", NULL, "no network but loopback is up");
	if (count > DEVICES_MAX)
		doctor_say(DOCTOR_ABSENT, "devices", NULL, "%u more; --device looks at one of them",
		           count - DEVICES_MAX);
}

/* Does the kernel accept the program? It is not attached, and closed at once. */
static void check_xdp_program(void)
{
	struct xdp_config config = {.slot_count = 1, .port = 1};
	struct why why;
	struct xdp *xdp;

	if (!xdp_capable(CAP_BPF) || !xdp_capable(CAP_NET_ADMIN) || !xdp_capable(CAP_PERFMON)) {
		doctor_say(DOCTOR_ABSENT, "xdp program", NULL,
		           "not tried: it takes root or the capabilities above");
	} else if (xdp_open(&config, &xdp, &why) == 0) {
		xdp_close(xdp);
		doctor_say(DOCTOR_OK, "xdp program", NULL, "the kernel's verifier takes it");
	} else {
		doctor_say(DOCTOR_WARN, "xdp program", NULL, "%s", why.text);
	}
}

void doctor_net(const struct doctor *doctor)
{
	check_sockets();
	check_xdp_program();
	if (doctor->device != NULL)
		check_device(doctor->device);
	else
		check_devices();
}
