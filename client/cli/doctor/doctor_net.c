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

#define BUFFER_WANTED (16 << 20) /* winnowd's and the library's --buffer-bytes */
#define NATIVE_MTU_MAX 3498
#define DEVICES_MAX 16

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

/* ---- sockets ---- */

/* The kernel counts twice what one may ask for. */
static void check_buffer(struct doctor *doctor, int fd, int force, int plain, const char *name,
                         const char *key)
{
	int wanted = BUFFER_WANTED, granted = 0;
	socklen_t size = sizeof(granted);
	struct doctor_check *check;

	if (setsockopt(fd, SOL_SOCKET, force, &wanted, sizeof(wanted)) != 0)
		setsockopt(fd, SOL_SOCKET, plain, &wanted, sizeof(wanted));
	getsockopt(fd, SOL_SOCKET, plain, &granted, &size);
	granted /= 2;
	if (granted >= wanted) {
		doctor_add(doctor, DOCTOR_OK, name, "%d KB granted", granted / 1024);
		return;
	}
	check = doctor_add(doctor, DOCTOR_WARN, name,
	                   "%d KB granted of %d asked for: the window shrinks, bursts are lost",
	                   granted / 1024, wanted / 1024);
	doctor_fix(check, "sysctl -w %s=%d", key, wanted);
}

static void check_offload(struct doctor *doctor, int fd)
{
	int segment = 1400, on = 1;
	bool sends = setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)) == 0;
	bool receives = setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) == 0;
	struct doctor_check *check;

	check = doctor_add(doctor, sends && receives ? DOCTOR_OK : DOCTOR_WARN, "udp offload",
	                   "segmentation %s, GRO %s", sends ? "yes" : "no",
	                   receives ? "yes" : "no");
	if (!sends || !receives)
		doctor_fix(check, "Linux 5.0 has both: without, each datagram costs a system call");
}

static void check_sockets(struct doctor *doctor)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct doctor_check *check;

	if (fd < 0) {
		check = doctor_add(doctor, DOCTOR_FAIL, "udp", "no UDP socket: %s",
		                   strerror(errno));
		doctor_fix(check, "a seccomp filter or the limit of open files may forbid it");
		return;
	}
	check_buffer(doctor, fd, SO_RCVBUFFORCE, SO_RCVBUF, "receive buffer", "net.core.rmem_max");
	check_buffer(doctor, fd, SO_SNDBUFFORCE, SO_SNDBUF, "send buffer", "net.core.wmem_max");
	check_offload(doctor, fd);
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

static void check_device_xdp(struct doctor *doctor, const struct device *device)
{
	char name[40];
	struct why why;
	struct doctor_check *check;
	uint64_t features = 0;

	snprintf(name, sizeof(name), "xdp %.20s", device->name);
	if (xdp_taken(device->name, &why) == -EBUSY) {
		doctor_add(doctor, DOCTOR_WARN, name, "%s", why.text);
		return;
	}
	if (!doctor_xdp_features(if_nametoindex(device->name), &features)) {
		doctor_add(doctor, DOCTOR_ABSENT, name,
		           "this kernel cannot say whether %s does native XDP; winnowd's first log "
		           "line will",
		           device->driver);
	} else if (!(features & DOCTOR_XDP_BASIC)) {
		doctor_add(doctor, DOCTOR_ABSENT, name,
		           "generic only: %s has no XDP, or not with its present settings",
		           device->driver);
	} else if (device->mtu > NATIVE_MTU_MAX) {
		check = doctor_add(doctor, DOCTOR_WARN, name,
		                   "%s has native XDP, but an MTU of %d may keep it to generic",
		                   device->driver, device->mtu);
		doctor_fix(check, "ip link set %s mtu %d, on workers too", device->name,
		           NATIVE_MTU_MAX);
	} else {
		doctor_add(doctor, DOCTOR_OK, name, "native, says %s", device->driver);
	}
}

static void check_device(struct doctor *doctor, const char *name)
{
	char label[40], speed[32] = "";
	struct doctor_check *check;
	struct device device;

	snprintf(label, sizeof(label), "device %.20s", name);
	if (!device_look(name, &device)) {
		check = doctor_add(doctor, DOCTOR_FAIL, label, "no network device is called so");
		doctor_fix(check, "ip link shows those that there are");
		return;
	}
	if (!device.up) {
		check = doctor_add(doctor, DOCTOR_FAIL, label, "%s: it is down", device.driver);
		doctor_fix(check, "ip link set %s up; is the cable in?", name);
		return;
	}
	if (device.mbits > 0)
		snprintf(speed, sizeof(speed), ", %g Gbit/s", device.mbits / 1e3);
	check = doctor_add(doctor, device.multicast ? DOCTOR_OK : DOCTOR_WARN, label,
	                   "%s, MTU %d%s%s", device.driver, device.mtu, speed,
	                   device.multicast ? "" : ", no multicast: each worker gets a copy");
	if (!device.multicast)
		doctor_fix(check, "ip link set %s multicast on", name);
	check_device_xdp(doctor, &device);
}

static void check_devices(struct doctor *doctor)
{
	struct if_nameindex *all = if_nameindex();
	uint32_t count = 0;

	for (struct if_nameindex *i = all; i != NULL && i->if_index != 0; i++) {
		struct device device;

		if (strcmp(i->if_name, "lo") == 0 || !device_look(i->if_name, &device) ||
		    !device.up)
			continue;
		if (count++ < DEVICES_MAX)
			check_device(doctor, i->if_name);
	}
	if (all != NULL)
		if_freenameindex(all);
	if (count == 0)
		doctor_add(doctor, DOCTOR_WARN, "devices", "no network but loopback is up");
	if (count > DEVICES_MAX)
		doctor_add(doctor, DOCTOR_ABSENT, "devices",
		           "%u more; --device looks at one of them", count - DEVICES_MAX);
}

/* Does the kernel accept the program? It is not attached, and closed at once. */
static void check_xdp_program(struct doctor *doctor)
{
	struct xdp_config config = {.slot_count = 1, .port = 1};
	struct why why;
	struct xdp *xdp;

	if (!doctor_capable(CAP_BPF) || !doctor_capable(CAP_NET_ADMIN) ||
	    !doctor_capable(CAP_PERFMON)) {
		doctor_add(doctor, DOCTOR_ABSENT, "xdp program",
		           "not tried: it takes root or the capabilities above");
	} else if (xdp_open(&config, &xdp, &why) == 0) {
		xdp_close(xdp);
		doctor_add(doctor, DOCTOR_OK, "xdp program", "the kernel's verifier takes it");
	} else {
		doctor_add(doctor, DOCTOR_WARN, "xdp program", "%s", why.text);
	}
}

void doctor_net(struct doctor *doctor)
{
	check_sockets(doctor);
	check_xdp_program(doctor);
	if (doctor->device != NULL)
		check_device(doctor, doctor->device);
	else
		check_devices(doctor);
}
