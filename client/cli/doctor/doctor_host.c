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

#define CLOCK_READS 10000
#define CLOCK_SLOW_NS 300 /* a clock that takes a system call; others take 20 to 70 */

static void check_kernel(struct doctor *doctor)
{
	unsigned major = 0, minor = 0;
	struct doctor_check *check;
	struct utsname name;

	if (uname(&name) != 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2) {
		doctor_add(doctor, DOCTOR_WARN, "kernel", "cannot tell its version");
		return;
	}
	if (major > 5 || (major == 5 && minor >= 18)) {
		doctor_add(doctor, DOCTOR_OK, "kernel", "%s %s %s", name.sysname, name.release,
		           name.machine);
		return;
	}
	check = doctor_add(doctor, DOCTOR_WARN, "kernel", "%s %s %s is older than 5.18: no XDP",
	                   name.sysname, name.release, name.machine);
	doctor_fix(check, "install a newer kernel on aggregators that are to use --device");
}

static void check_cpu(struct doctor *doctor)
{
	const char *isa = bitmap_best()->name;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct doctor_check *check;

	if (strcmp(isa, "scalar") != 0) {
		doctor_add(doctor, DOCTOR_OK, "cpu", "%ld CPUs, uses %s", cpus, isa);
	} else {
		check = doctor_add(
			doctor, DOCTOR_WARN, "cpu",
			"%ld CPUs; no AVX2 and F16C in use: scanning and adding are slower", cpus);
		doctor_fix(check,
		           "in a virtual machine choose the host's CPU model; look at WINNOW_ISA");
	}
}

static void check_clock(struct doctor *doctor)
{
	char source[64] = "?";
	uint64_t start_ns, end_ns = 0;
	struct doctor_check *check;
	double ns;

	(void)doctor_read("/sys/devices/system/clocksource/clocksource0/current_clocksource",
	                  source, sizeof(source));
	start_ns = clock_ns();
	for (int i = 0; i < CLOCK_READS; i++)
		end_ns = clock_ns();
	ns = (double)(end_ns - start_ns) / CLOCK_READS;
	check = doctor_add(doctor, ns < CLOCK_SLOW_NS ? DOCTOR_OK : DOCTOR_WARN, "clock",
	                   "%s, read in %.0f ns%s", source, ns,
	                   ns < CLOCK_SLOW_NS ? "" : ": slow, and each burst of packets reads it");
	if (ns >= CLOCK_SLOW_NS)
		doctor_fix(check, "see available_clocksource beside it; tsc or kvm-clock are fast");
}

static void check_huge_pages(struct doctor *doctor)
{
	char text[32] = "0", free_text[32] = "0";
	struct doctor_check *check;
	bool known = doctor_read("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", text,
	                         sizeof(text));

	(void)doctor_read("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", free_text,
	                  sizeof(free_text));
	if (atoi(text) > 0) {
		doctor_add(doctor, DOCTOR_OK, "huge pages", "%s of 2 MB, %s free", text, free_text);
		return;
	}
	check = doctor_add(doctor, DOCTOR_ABSENT, "huge pages",
	                   "%s; only a DPDK data path wants them",
	                   known ? "none reserved" : "this kernel has none of 2 MB");
	if (known)
		doctor_fix(check, "sysctl -w vm.nr_hugepages=512");
}

bool doctor_capable(int capability)
{
	cap_flag_value_t value = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (caps != NULL)
		cap_get_flag(caps, capability, CAP_EFFECTIVE, &value);
	cap_free(caps);
	return value == CAP_SET;
}

static void check_capabilities(struct doctor *doctor)
{
	static const struct {
		int number;
		const char *name;
	} wanted[] = {{CAP_BPF, "CAP_BPF"},
	              {CAP_PERFMON, "CAP_PERFMON"},
	              {CAP_NET_ADMIN, "CAP_NET_ADMIN"}};
	char missing[64] = "";
	struct doctor_check *check;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (doctor_capable(wanted[i].number))
			continue;
		strcat(missing, missing[0] != '\0' ? ", " : "");
		strcat(missing, wanted[i].name);
	}
	if (missing[0] == '\0') {
		doctor_add(doctor, DOCTOR_OK, "capabilities",
		           "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN: enough for XDP and large buffers");
		return;
	}
	check = doctor_add(doctor, DOCTOR_ABSENT, "capabilities",
	                   "without %s; only XDP needs them, and buffers beyond the limits",
	                   missing);
	doctor_fix(check, "run winnowd as root, or setcap cap_bpf,cap_perfmon,cap_net_admin=ep on "
	                  "it; it gives them up once it has started");
}

void doctor_host(struct doctor *doctor)
{
	check_kernel(doctor);
	check_cpu(doctor);
	check_clock(doctor);
	check_huge_pages(doctor);
	check_capabilities(doctor);
}
