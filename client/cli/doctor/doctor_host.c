// SPDX-License-Identifier: BSD-3-Clause
/* doctor_host.c - kernel, CPU, clock, huge pages, capabilities */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bitmap/bitmap.h"
#include "aggregator/net/clock.h"
#include "client/cli/doctor/doctor.h"
#include "ebpf/xdp.h"

#define CLOCK_READS 10000
#define CLOCK_SLOW_NS 300 /* a clock that takes a system call; others take 20 to 70 */

static void check_kernel(void)
{
	unsigned major = 0, minor = 0;
	struct utsname name;
	bool known = uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2;
	bool old = major < 5 || (major == 5 && minor < 18);

	if (!known)
		doctor_say(DOCTOR_WARN, "kernel", NULL, "cannot tell its version");
	else
		doctor_say(old ? DOCTOR_WARN : DOCTOR_OK, "kernel",
		           "install a newer kernel on aggregators that are to use --device",
		           "%s %s %s%s", name.sysname, name.release, name.machine,
		           old ? " is older than 5.18: no XDP" : "");
}

static void check_cpu(void)
{
	const char *isa = bitmap_best()->name;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (strcmp(isa, "scalar") != 0)
		doctor_say(DOCTOR_OK, "cpu", NULL, "%ld CPUs, uses %s", cpus, isa);
	else
		doctor_say(DOCTOR_WARN, "cpu",
		           "in a virtual machine choose the host's CPU model; look at WINNOW_ISA",
		           "%ld CPUs; no AVX2 and F16C in use: scanning and adding are slower",
		           cpus);
}

static void check_clock(void)
{
	char source[64] = "?";
	uint64_t start_ns, end_ns = 0;
	double ns;

	(void)doctor_read("/sys/devices/system/clocksource/clocksource0/current_clocksource",
	                  source, sizeof(source));
	start_ns = clock_ns();
	for (int i = 0; i < CLOCK_READS; i++)
		end_ns = clock_ns();
	ns = (double)(end_ns - start_ns) / CLOCK_READS;
	doctor_say(ns < CLOCK_SLOW_NS ? DOCTOR_OK : DOCTOR_WARN, "clock",
	           "see available_clocksource beside it; tsc or kvm-clock are fast",
	           "%s, read in %.0f ns%s", source, ns,
	           ns < CLOCK_SLOW_NS ? "" : ": slow, and each burst of packets reads it");
}

static void check_huge_pages(void)
{
	char text[32] = "0", free_text[32] = "0";
	bool known = doctor_read("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", text,
	                         sizeof(text));

	(void)doctor_read("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", free_text,
	                  sizeof(free_text));
	if (atoi(text) > 0)
		doctor_say(DOCTOR_OK, "huge pages", NULL, "%s of 2 MB, %s free", text, free_text);
	else
		doctor_say(DOCTOR_ABSENT, "huge pages",
		           known ? "sysctl -w vm.nr_hugepages=512" : NULL,
		           "%s; only a DPDK data path wants them",
		           known ? "none reserved" : "this kernel has none of 2 MB");
}

static void check_capabilities(void)
{
	char missing[64] = "";

	if (!xdp_capable(CAP_BPF))
		strcat(missing, ", CAP_BPF");
	if (!xdp_capable(CAP_PERFMON))
		strcat(missing, ", CAP_PERFMON");
	if (!xdp_capable(CAP_NET_ADMIN))
		strcat(missing, ", CAP_NET_ADMIN");
	if (missing[0] == '\0')
		doctor_say(DOCTOR_OK, "capabilities", NULL,
		           "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN: enough for XDP and large buffers");
	else
		doctor_say(DOCTOR_ABSENT, "capabilities",
		           "run winnowd as root, or by its unit with the drop-in winnowd-xdp.conf "
		           "(AmbientCapabilities=); it gives them up once it has started",
		           "without %s; only XDP needs them, and buffers beyond the limits",
		           missing + 2);
}

void doctor_host(void)
{
	check_kernel();
	check_cpu();
	check_clock();
	check_huge_pages();
	check_capabilities();
}
