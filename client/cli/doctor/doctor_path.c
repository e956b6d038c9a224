// SPDX-License-Identifier: BSD-3-Clause
/*
 * doctor_path.c - tries the path to aggregators with a job of one worker, which joins, finds the
 * largest datagram, sees whether multicast arrives, and sums a tensor
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bitmap/control/message.h"
#include "bitmap/control/options.h"
#include "bitmap/net/net.h"
#include "client/cli/doctor/doctor_state.h"
#include "client/winnow.h"

#define JOIN_MS 5000
#define TEST_COUNT (256u * 1024) /* elements: 1 MB */

/* Removes "aggregator HOST:PORT: " from the library's line, because we print the address ourselves. */
static const char *path_reason(const char *address)
{
	const char *line = winnow_last_error();
	char head[320];
	size_t length = (size_t)snprintf(head, sizeof(head), "aggregator %s: ", address);

	return strncmp(line, head, length) == 0 ? line + length : line;
}

/* Sums a megabyte of non-zero numbers. Returns NULL, or the text of an error. */
static const char *sum_up(struct winnow_comm *comm, const char *address)
{
	static int32_t send[TEST_COUNT], got[TEST_COUNT];

	for (uint32_t i = 0; i < TEST_COUNT; i++)
		send[i] = (int32_t)(i + 1);
	if (winnow_allreduce(send, got, TEST_COUNT, WINNOW_I32, WINNOW_SUM, comm) != WINNOW_OK)
		return path_reason(address);
	return memcmp(send, got, sizeof(send)) == 0 ? NULL : "its sums are wrong";
}

static void report_size(const char *address, const struct winnow_stats *stats)
{
	char fix[400], host[NET_HOST_BYTES] = "";
	struct net_addr at = {.ip = net_ipv4(0)};
	uint32_t mtu, headers; /* The MTU at our end of the route, and the bytes of headers. */
	struct why why;
	uint16_t port;

	if (net_resolve(address, &at, &why) != 0 || net_split(address, host, &port, &why) != 0)
		return;
	mtu = net_route_mtu(&at, &(struct net_source){.interface = ""});
	headers = net_headers(&at.ip);
	snprintf(fix, sizeof(fix),
	         "find the hop with: tracepath %s; then set the same MTU on the whole path", host);
	/* winnowd itself stops at 8972 bytes. Below that, the network limits the size. */
	if (stats->payload + headers >= mtu || stats->payload + headers >= 9000)
		doctor_say(DOCTOR_OK, "mtu", NULL, "%s: datagrams of %u bytes pass; our MTU is %u",
		           address, stats->payload, mtu);
	else
		doctor_say(DOCTOR_WARN, "mtu", fix,
		           "%s: only datagrams of %u bytes pass, though our MTU of %u has room for "
		           "%u: the other end, or a hop between, has a smaller MTU",
		           address, stats->payload, mtu, mtu - headers);
}

static void report_multicast(const char *address, const struct winnow_stats *stats)
{
	bool arrives = stats->multicast > 0;

	doctor_say(
		arrives ? DOCTOR_OK : DOCTOR_WARN, "multicast",
		"give the VLAN IGMP (IPv6: MLD) snooping with a querier, or flooding; check "
		"winnowd's --multicast, and filters of 239.77.0.0/16 (ff15::8077:0/112)",
		arrives ? "%s: its probe arrived, so each result is sent once"
			: "%s: no probe arrived, so each worker gets its own copy of each result",
		address);
}

static void try_job(const char *address, const char *as, struct winnow_comm *comm)
{
	const char *wrong = sum_up(comm, address);
	struct winnow_stats stats;
	bool lossy;

	if (wrong != NULL) {
		doctor_say(DOCTOR_FAIL, "aggregator", NULL, "%s: joined, but %s", address, wrong);
		return;
	}
	winnow_comm_stats(comm, &stats);
	lossy = stats.retransmits * 100 > stats.sent_packets;
	doctor_say(lossy ? DOCTOR_WARN : DOCTOR_OK, "aggregator",
	           "find where packets are lost: ethtool -S, nstat -az UdpRcvbufErrors and the "
	           "buffers above, on both hosts",
	           "%s: joined%s%s; 1 MB summed, %llu of %llu packets sent again%s", address,
	           *as != '\0' ? " as " : "", as, (unsigned long long)stats.retransmits,
	           (unsigned long long)stats.sent_packets,
	           stats.wire == WINNOW_WIRE_FIXED32 ? "; adds int32 in the kernel" : "");
	report_size(address, &stats);
	report_multicast(address, &stats);
}

/* A time-out concerns UDP, because TCP has connected before; or the parent of a site, which says so. */
static const char *join_fix(int result, const char *reason)
{
	switch (result) {
	case WINNOW_ERR_TIMEOUT:
		if (strstr(reason, "waiting for the parent ") != NULL)
			return "this is a site: start its parent, and open the parent's port to it "
			       "for TCP and UDP";
		return "TCP passes; open the same port for UDP in both directions";
	case WINNOW_ERR_UNREACHABLE:
		return "start winnowd there, and open its port for TCP and UDP";
	case WINNOW_ERR_REFUSED:
	case WINNOW_ERR_INVALID:
		return "give both sides the same key, with --key-file or WINNOW_KEY_FILE; if jobs "
		       "have their own keys, also give --job NAME";
	}
	return NULL;
}

static void check_aggregator(const struct doctor *doctor, const char *address)
{
	struct winnow_config config;
	struct winnow_comm *comm;
	char job[CONTROL_JOB_BYTES];
	const char *of = doctor->job != NULL ? doctor->job : "", *reason;
	int result;

	winnow_config_init(&config);
	/* "JOB/.." has the key of JOB, but is a job of its own: the real JOB is not disturbed, and can still start. */
	snprintf(job, sizeof(job), "%s%sdoctor-%ld", of, *of != '\0' ? "/" : "", (long)getpid());
	config.aggregators = address;
	config.job = job;
	config.rank = 0;
	config.world = 1;
	config.key_file = doctor->key_file;
	config.key = doctor->key;
	config.insecure_no_key = doctor->insecure_no_key;
	config.join_timeout_ms = JOIN_MS;
	config.timeout_ms = JOIN_MS;
	result = winnow_comm_create(&config, &comm);
	if (result != WINNOW_OK) {
		reason = path_reason(address);
		doctor_say(DOCTOR_FAIL, "aggregator", join_fix(result, reason), "%s: %s", address,
		           reason);
		return;
	}
	try_job(address, *of != '\0' ? job : "", comm);
	winnow_comm_destroy(comm);
}

void doctor_path(const struct doctor *doctor)
{
	char address[300];

	if (doctor->aggregators == NULL)
		doctor_say(DOCTOR_ABSENT, "aggregator",
		           "winnow doctor --aggregators HOST:PORT --key-file FILE",
		           "no --aggregators: the network was not tested");
	for (const char *at = doctor->aggregators; at != NULL;) {
		at = option_item(at, address, sizeof(address));
		check_aggregator(doctor, address);
	}
}
