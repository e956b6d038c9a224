// SPDX-License-Identifier: BSD-3-Clause
/*
 * doctor_path.c - the path to aggregators, tried as workers use it: a job of one worker joins,
 * finds the largest datagram and whether multicast arrives, and sums something
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

/* The library's line begins with "aggregator HOST:PORT: ", which we print ourselves. */
static const char *path_reason(const char *address)
{
	const char *line = winnow_last_error();
	char head[320];
	size_t length = (size_t)snprintf(head, sizeof(head), "aggregator %s: ", address);

	return strncmp(line, head, length) == 0 ? line + length : line;
}

/* Sums a megabyte of non-zero numbers. NULL, or what is wrong. */
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
	uint32_t mtu, headers; /* mtu: at our end of the route */
	struct why why;
	uint16_t port;

	if (net_resolve(address, &at, &why) != 0 || net_split(address, host, &port, &why) != 0)
		return;
	mtu = net_route_mtu(&at, &(struct net_source){.interface = ""});
	headers = net_headers(&at.ip);
	snprintf(fix, sizeof(fix), "tracepath %s finds the hop; give the whole way one MTU", host);
	/* winnowd's own limit is 8972; below that the network is what does not let them pass. */
	if (stats->payload + headers >= mtu || stats->payload + headers >= 9000)
		doctor_say(DOCTOR_OK, "mtu", NULL, "%s: %u bytes a datagram pass; our MTU is %u",
		           address, stats->payload, mtu);
	else
		doctor_say(DOCTOR_WARN, "mtu", fix,
		           "%s: only %u bytes a datagram pass, though our MTU of %u has room for "
		           "%u: the other end, or something between, has a smaller one",
		           address, stats->payload, mtu, mtu - headers);
}

static void report_multicast(const char *address, const struct winnow_stats *stats)
{
	bool arrives = stats->multicast > 0;

	doctor_say(arrives ? DOCTOR_OK : DOCTOR_WARN, "multicast",
	           "the VLAN needs IGMP (IPv6: MLD) snooping with a querier, or flooding; is "
	           "--multicast off on winnowd, or 239.77.0.0/16 (ff15::8077:0/112) filtered?",
	           arrives ? "%s: its probe arrives: results are sent once"
	                   : "%s: no probe arrived: every worker gets its own copy of each result",
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
	doctor_say(
		lossy ? DOCTOR_WARN : DOCTOR_OK, "aggregator",
		"packets are lost: ethtool -S, nstat -az UdpRcvbufErrors, and the buffers above, "
		"on both hosts",
		"%s: joined%s%s; 1 MB summed, %llu of %llu packets sent again%s", address,
		*as != '\0' ? " as " : "", as, (unsigned long long)stats.retransmits,
		(unsigned long long)stats.sent_packets,
		stats.wire == WINNOW_WIRE_FIXED32 ? "; adds int32 in the kernel" : "");
	report_size(address, &stats);
	report_multicast(address, &stats);
}

/* TCP came first, so a time-out after it concerns UDP. */
static const char *join_fix(int result)
{
	switch (result) {
	case WINNOW_ERR_TIMEOUT:
		return "TCP passes; open the same port for UDP, both ways";
	case WINNOW_ERR_UNREACHABLE:
		return "start winnowd there, open its port for TCP and UDP";
	case WINNOW_ERR_REFUSED:
	case WINNOW_ERR_INVALID:
		return "both sides need the same key: --key-file, or WINNOW_KEY_FILE; where jobs "
		       "have their own, --job NAME";
	}
	return NULL;
}

static void check_aggregator(const struct doctor *doctor, const char *address)
{
	struct winnow_config config;
	struct winnow_comm *comm;
	char job[CONTROL_JOB_BYTES];
	const char *of = doctor->job != NULL ? doctor->job : "";
	int result;

	winnow_config_init(&config);
	/*
	 * Memberships of a job have its key, and those whom nobody has named no other bond (MEMBERS.md):
	 * a job of that name goes on, and those that begin do not find its place taken.
	 */
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
		doctor_say(DOCTOR_FAIL, "aggregator", join_fix(result), "%s: %s", address,
		           path_reason(address));
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
		           "none given: the network was not tried");
	for (const char *at = doctor->aggregators; at != NULL;) {
		at = option_item(at, address, sizeof(address));
		check_aggregator(doctor, address);
	}
}
