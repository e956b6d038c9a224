// SPDX-License-Identifier: BSD-3-Clause
/* xdp_sweep.c - takes a program off a device that a winnowd before us has left there */

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "ebpf/xdp.h"

#define LEFT_BEHIND                                                                                \
	"redirect" /* of redirect.bpf.c: DPDK attaches it, and may not live to detach it */

static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

/* Is the program of that number ours, by its name? */
static bool ours(uint32_t id)
{
	struct bpf_prog_info info = {0};
	uint32_t size = sizeof(info);
	int fd = bpf_prog_get_fd_by_id(id);
	bool same = fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &size) == 0 &&
	            strcmp(info.name, LEFT_BEHIND) == 0;

	if (fd >= 0)
		close(fd);
	return same;
}

int xdp_sweep(const char *device, struct why *why)
{
	int index = (int)if_nametoindex(device);
	uint32_t id = 0;
	int err;

	libbpf_set_print(silent);
	if (index == 0 || bpf_xdp_query_id(index, 0, &id) != 0 || id == 0 || !ours(id))
		return 0;
	err = bpf_xdp_detach(index, 0, NULL);
	if (err == 0)
		return 1;
	return why_set(why, err,
	               "%s still has the XDP program of a winnowd before this one, and it cannot "
	               "be taken off: %s: ip link set dev %s xdp off",
	               device, strerror(-err), device);
}
