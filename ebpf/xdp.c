// SPDX-License-Identifier: BSD-3-Clause
/* xdp.c - see xdp.h; the only user of libbpf, through bpftool's skeleton */

#include "ebpf/xdp.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "ebpf/packet.h"
#include "ebpf/winnow.skel.h" /* made by bpftool from winnow.bpf.c */

_Static_assert(sizeof(struct fast_slot) % 8 == 0, "values of a mapped array lie 8-byte aligned");
_Static_assert(sizeof(struct fast_channel) % 8 == 0, "values of a mapped array lie 8-byte aligned");
_Static_assert(FAST_CHANNELS_MAX + FAST_KNOWN_FIRST <= 256, "an index fits fast_settings.known");

#define SAID_BYTES 160
#define LEFT_BEHIND "redirect" /* redirect.bpf.c's name; DPDK may die before it detaches it */

struct xdp {
	struct xdp_view view;
	struct winnow_bpf *skeleton;
	int link; /* file descriptor, or -1 if not attached */
	uint32_t slot_count;
	uint32_t count[FAST_CHANNELS_MAX]; /* slots of each channel; 0: no such channel */
	int cpu_count;
	uint64_t *cpu_values; /* [cpu_count] values of a counter */
};

/* ---- messages of libbpf and the kernel ---- */

/* libbpf complains to a callback without context. The first complaint names the cause. */
static _Thread_local char said[SAID_BYTES];

__attribute__((format(printf, 2, 0))) static int listen_in(enum libbpf_print_level level,
                                                           const char *format, va_list list)
{
	if (level != LIBBPF_WARN || said[0] != '\0')
		return 0;
	vsnprintf(said, sizeof(said), format, list);
	said[strcspn(said, "\n")] = '\0';
	return 0;
}

bool xdp_capable(int capability)
{
	cap_flag_value_t value = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (caps != NULL)
		cap_get_flag(caps, capability, CAP_EFFECTIVE, &value);
	cap_free(caps);
	return value == CAP_SET;
}

/*
 * Without CAP_PERFMON the verifier refuses (EACCES) every variable offset into a packet. A
 * container's seccomp profile that forbids bpf() returns EPERM or, with podman, ENOSYS.
 */
static int explain_load(struct why *why, int status)
{
	if (status == -EPERM || status == -ENOSYS ||
	    (status == -EACCES && !xdp_capable(CAP_PERFMON)))
		return why_set(why, -EPERM,
		               "the kernel does not let winnowd load an XDP program: that takes "
		               "root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN%s",
		               status == -EACCES ? "" : ", and seccomp must let bpf() through");
	if (status == -ENOMEM)
		return why_set(why, status, "not enough memory for the XDP program's slots");
	return why_set(why, -EOPNOTSUPP,
	               "this kernel refuses the XDP program, which needs Linux 5.18: %s%s%s",
	               strerror(-status), said[0] != '\0' ? "; " : "", said);
}

/* ---- attaching ---- */

/* The kernel's entry for a program. Its name is "" if the program has gone or we may not see it. */
static struct bpf_prog_info program_look(uint32_t id)
{
	struct bpf_prog_info info = {0};
	uint32_t info_bytes = sizeof(info);
	int fd = bpf_prog_get_fd_by_id(id);

	if (fd >= 0) {
		if (bpf_obj_get_info_by_fd(fd, &info, &info_bytes) != 0)
			info.name[0] = '\0';
		close(fd);
	}
	return info;
}

static int device_mtu(const char *device)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device);
	if (fd < 0 || ioctl(fd, SIOCGIFMTU, &request) != 0)
		request.ifr_mtu = 0;
	if (fd >= 0)
		close(fd);
	return request.ifr_mtu;
}

/* Adds the device's addresses: the first IPv4 one if `ip` is 0, and IPv6 ones that fit. */
static void device_addresses(const char *device, bool six, struct fast_settings *settings)
{
	struct ifaddrs *all = NULL;
	uint32_t count = 0;

	(void)!getifaddrs(&all);
	for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
		const struct sockaddr_in6 *in6 = (const void *)at->ifa_addr;
		const struct sockaddr_in *in = (const void *)at->ifa_addr;

		if (in == NULL || strcmp(at->ifa_name, device) != 0)
			continue;
		if (in->sin_family == AF_INET && settings->ip == 0)
			settings->ip = in->sin_addr.s_addr;
		if (in->sin_family == AF_INET6 && six && count < FAST_ADDRESSES_MAX)
			memcpy(settings->six[count++], &in6->sin6_addr, sizeof(in6->sin6_addr));
	}
	freeifaddrs(all);
}

/* Sets which addresses the program takes. It leaves the others to user space. */
static void addresses_set(struct fast_settings *settings, const struct xdp_config *config)
{
	settings->ip = htonl(config->ip);
	if (config->families == XDP_SIX)
		settings->ip = INADDR_NONE; /* no datagram is sent to this one */
	memcpy(settings->six[0], config->six, sizeof(config->six));
	if (config->device != NULL)
		device_addresses(config->device, config->families == XDP_BOTH, settings);
}

int xdp_taken(const char *device, struct why *why)
{
	struct bpf_xdp_query_opts query = {.sz = sizeof(query)};
	int index = (int)if_nametoindex(device), status;
	struct bpf_prog_info info;
	uint32_t id;

	if (index == 0)
		return why_set(why, -ENODEV, "no network device is called \"%s\"", device);
	status = bpf_xdp_query(index, 0, &query);
	if (status != 0)
		return why_set(why, status, "cannot ask about %s: %s", device, strerror(-status));
	if (query.attach_mode == XDP_ATTACHED_NONE)
		return 0;
	id = query.prog_id != 0       ? query.prog_id
	     : query.drv_prog_id != 0 ? query.drv_prog_id
	                              : query.skb_prog_id;
	info = program_look(id);
	return why_set(why, -EBUSY,
	               "%s has another XDP program, \"%s\" (id %u); end its owner, or remove it "
	               "with: ip link set dev %s xdp off",
	               device, info.name[0] != '\0' ? info.name : "?", id, device);
}

static int explain_attach(struct why *why, const char *device, const char *mode, int status)
{
	if (status == -EPERM)
		return why_set(why, status,
		               "attaching an XDP program to %s takes root or CAP_NET_ADMIN",
		               device);
	if (xdp_taken(device, why) == -EBUSY)
		return -EBUSY;
	return why_set(
		why, -EOPNOTSUPP,
		"%s refuses XDP in %s mode (%s): its driver does not support it, or not with "
		"an MTU of %d (try 3498), or the kernel is older than 5.18",
		device, mode, strerror(-status), device_mtu(device));
}

/* The link is not pinned, so the program leaves with its last descriptor when this process ends. */
static int attach_as(struct xdp *xdp, const char *device, enum xdp_mode mode, struct why *why)
{
	bool native = mode == XDP_MODE_NATIVE;
	struct bpf_link_create_opts options = {
		.sz = sizeof(options),
		.flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE,
	};
	int link =
		bpf_link_create(xdp_program(xdp), (int)if_nametoindex(device), BPF_XDP, &options);

	if (link < 0)
		return explain_attach(why, device, native ? "native" : "generic", link);
	xdp->link = link;
	xdp->view.mode = mode;
	return 0;
}

static int xdp_attach(struct xdp *xdp, const struct xdp_config *config, struct why *why)
{
	int status;

	if (if_nametoindex(config->device) == 0)
		return why_set(why, -ENODEV, "no network device is called \"%s\"", config->device);
	if (config->mode != XDP_MODE_AUTO)
		return attach_as(xdp, config->device, config->mode, why);
	status = attach_as(xdp, config->device, XDP_MODE_NATIVE, why);
	if (status != -EOPNOTSUPP)
		return status;
	/* Generic mode may work where native mode does not. */
	xdp->view.note = *why;
	return attach_as(xdp, config->device, XDP_MODE_GENERIC, why);
}

/* ---- opening and closing ---- */

static size_t map_bytes(const struct bpf_map *map)
{
	return (size_t)bpf_map__value_size(map) * bpf_map__max_entries(map);
}

/* map_memory - maps the values of an array, which lie as in an array of C. */
static void *map_memory(const struct bpf_map *map)
{
	void *memory =
		mmap(NULL, map_bytes(map), PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void unmap_memory(const struct bpf_map *map, void *memory)
{
	if (memory != NULL)
		munmap(memory, map_bytes(map));
}

static int xdp_load(struct xdp *xdp, struct why *why)
{
	int status;

	said[0] = '\0';
	libbpf_set_print(listen_in);
	xdp->cpu_count = libbpf_num_possible_cpus();
	xdp->skeleton = winnow_bpf__open();
	if (xdp->skeleton == NULL || xdp->cpu_count < 1)
		return explain_load(why, errno != 0 ? -errno : -EINVAL);
	xdp->cpu_values = calloc((size_t)xdp->cpu_count, sizeof(*xdp->cpu_values));
	if (xdp->cpu_values == NULL)
		return explain_load(why, -ENOMEM);
#ifndef __x86_64__
	xdp->skeleton->rodata->order_weak = 1;
#endif
	status = bpf_map__set_max_entries(xdp->skeleton->maps.slots, xdp->slot_count);
	if (status == 0)
		status = winnow_bpf__load(xdp->skeleton);
	if (status != 0)
		return explain_load(why, status);
	xdp->view.settings = map_memory(xdp->skeleton->maps.settings);
	xdp->view.channels = map_memory(xdp->skeleton->maps.channels);
	xdp->view.slots = map_memory(xdp->skeleton->maps.slots);
	if (xdp->view.settings == NULL || xdp->view.channels == NULL || xdp->view.slots == NULL)
		return explain_load(why, -errno);
	return 0;
}

int xdp_open(const struct xdp_config *config, struct xdp **out, struct why *why)
{
	struct xdp *xdp;
	int status;

	if (config->slot_count < 1 || config->slot_count > XDP_SLOTS_MAX)
		return why_set(why, -EINVAL, "%u slots are out of range: want 1 to %u",
		               config->slot_count, XDP_SLOTS_MAX);
	xdp = calloc(1, sizeof(*xdp));
	if (xdp == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	xdp->link = -1;
	xdp->slot_count = config->slot_count;
	status = xdp_load(xdp, why);
	if (status == 0) {
		addresses_set(xdp->view.settings, config);
		xdp->view.settings->port = htons(config->port);
		if (config->device != NULL)
			status = xdp_attach(xdp, config, why);
	}
	if (status != 0) {
		xdp_close(xdp);
		return status;
	}
	*out = xdp;
	return 0;
}

void xdp_close(struct xdp *xdp)
{
	if (xdp == NULL)
		return;
	if (xdp->link >= 0)
		close(xdp->link);
	if (xdp->skeleton != NULL) {
		unmap_memory(xdp->skeleton->maps.slots, xdp->view.slots);
		unmap_memory(xdp->skeleton->maps.channels, xdp->view.channels);
		unmap_memory(xdp->skeleton->maps.settings, xdp->view.settings);
		winnow_bpf__destroy(xdp->skeleton);
	}
	free(xdp->cpu_values);
	free(xdp);
}

int xdp_sweep(const char *device, struct why *why)
{
	int index = (int)if_nametoindex(device);
	uint32_t id = 0;
	int err;

	libbpf_set_print(listen_in);
	if (index == 0 || bpf_xdp_query_id(index, 0, &id) != 0 || id == 0 ||
	    strcmp(program_look(id).name, LEFT_BEHIND) != 0)
		return 0;
	err = bpf_xdp_detach(index, 0, NULL);
	if (err == 0)
		return 1;
	return why_set(why, err,
	               "%s still has the XDP program of an earlier winnowd, which cannot be "
	               "removed (%s); remove it with: ip link set dev %s xdp off",
	               device, strerror(-err), device);
}

/* ---- queries ---- */

const struct xdp_view *xdp_look(const struct xdp *xdp)
{
	return &xdp->view;
}

/* When a device goes away the kernel removes it from the link. */
bool xdp_attached(const struct xdp *xdp)
{
	struct bpf_link_info info = {0};
	uint32_t bytes = sizeof(info);

	return xdp->link < 0 || bpf_obj_get_info_by_fd(xdp->link, &info, &bytes) != 0 ||
	       info.xdp.ifindex != 0;
}

int xdp_program(const struct xdp *xdp)
{
	return bpf_program__fd(xdp->skeleton->progs.winnow);
}

void xdp_counters(const struct xdp *xdp, uint64_t out[FAST_COUNTER_COUNT])
{
	int map = bpf_map__fd(xdp->skeleton->maps.counters);
	uint64_t *values = xdp->cpu_values;

	for (uint32_t i = 0; i < FAST_COUNTER_COUNT; i++) {
		out[i] = 0;
		if (bpf_map_lookup_elem(map, &i, values) != 0)
			continue;
		for (int cpu = 0; cpu < xdp->cpu_count; cpu++)
			out[i] += values[cpu];
	}
}

/* ---- channels ---- */

/* Tells whether slots [first, first + count) are free. If not, *next is the end of those in the way. */
static bool range_free(const struct xdp *xdp, uint32_t first, uint32_t count, uint32_t *next)
{
	for (int i = 0; i < FAST_CHANNELS_MAX; i++) {
		uint32_t start = xdp->view.channels[i].first_slot, end = start + xdp->count[i];

		if (start != end && start < first + count && first < end) {
			*next = end;
			return false;
		}
	}
	return true;
}

int xdp_channel_open(struct xdp *xdp, uint16_t id, uint32_t window)
{
	uint32_t first = 0;
	int index = 0;

	if (window == 0 || (window & (window - 1)) != 0 || window > WIRE_WINDOW_MAX)
		return -EINVAL;
	while (index < FAST_CHANNELS_MAX && xdp->count[index] != 0)
		index++;
	if (index == FAST_CHANNELS_MAX)
		return -ENOSPC;
	do
		if (window > xdp->slot_count || first > xdp->slot_count - window)
			return -ENOSPC;
	while (!range_free(xdp, first, window, &first));

	xdp->count[index] = window;
	for (uint32_t i = 0; i < window; i++)
		memset(&xdp->view.slots[first + i], 0, offsetof(struct fast_slot, data));
	xdp->view.channels[index] =
		(struct fast_channel){.id = id, .first_slot = first, .window_mask = window - 1};
	__atomic_store_n(&xdp->view.settings->known[id], (uint8_t)(FAST_KNOWN_FIRST + index),
	                 __ATOMIC_RELEASE);
	return index;
}

/* Programs run as RCU readers, and a global barrier waits for all readers. */
static void wait_for_programs(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0)
		usleep(20000); /* without membarrier: no program runs for nearly as long */
}

void xdp_known(struct xdp *xdp, uint16_t id, bool known)
{
	struct fast_settings *settings = xdp->view.settings;
	int index = settings->known[id] - FAST_KNOWN_FIRST;

	__atomic_store_n(&settings->known[id], known ? FAST_KNOWN_USER : 0, __ATOMIC_RELEASE);
	if (index < 0)
		return;
	__atomic_store_n(&xdp->view.channels[index].active, 0, __ATOMIC_RELEASE);
	wait_for_programs();
	explicit_bzero(xdp->view.channels[index].keys, sizeof(xdp->view.channels[index].keys));
	explicit_bzero(&xdp->view.channels[index].stretch, sizeof(struct seal_stretch));
	xdp->count[index] = 0;
}

const char *fast_counter_name(uint32_t counter)
{
	static const char *const names[] = {
		[FAST_COUNT_PASSED] = "passed", [FAST_COUNT_ADDED] = "added",
		[FAST_COUNT_BUSY] = "busy",     [FAST_COUNT_NO_ROOM] = "no_room",
		[FAST_COUNT_MERGED] = "merged",
	};

	assert(counter < FAST_COUNTER_COUNT);
	return counter < FAST_COUNT_PASSED ? drop_name((enum wire_drop)counter) : names[counter];
}
