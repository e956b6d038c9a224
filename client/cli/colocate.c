// SPDX-License-Identifier: BSD-3-Clause
/*
 * colocate.c - winnow colocate: the same command on each host starts its aggregator and its workers
 *
 * In the colocated mode each host runs an aggregator, and there are no other servers. Workers know
 * all aggregators from the list of hosts, and retry until these have started.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bitmap/control/options.h"
#include "bitmap/net/net.h"
#include "bitmap/net/sockaddr.h"
#include "client/cli/children.h"
#include "client/cli/cli.h"

#define HOSTS_MAX 256
#define PER_HOST_MAX 64
#define HOST_BYTES 256
#define NOT_GIVEN UINT32_MAX

static struct {
	const char *hosts;
	uint64_t index, per_host, port;
} settings = {.index = NOT_GIVEN};

static const struct option list[] = {
	{"hosts", "HOST,HOST,..", OPTION_TEXT, &settings.hosts, NULL, NULL, 0, 0,
         "all hosts of the job, in the same order on each host"},
	{"index", "N", OPTION_COUNT, &settings.index, NULL, NULL, 0, HOSTS_MAX - 1,
         "place of this host in the list, from 0; by default found by address"},
	{"per-host", "N", OPTION_COUNT, &settings.per_host, "1", NULL, 1, PER_HOST_MAX,
         "workers on each host"},
	{"port", "N", OPTION_COUNT, &settings.port, "5555", NULL, 1, 65535,
         "port of the aggregators, TCP and UDP"},
	{0},
};

static int command_at;

static const struct options options = {
	.program = "winnow colocate",
	.usage = "--hosts HOST,HOST,.. [...] [--] COMMAND [ARGUMENT..]",
	.about =
		"Run this on every host of a job. It starts an aggregator on this host and COMMAND "
		"beside it.\n"
		"COMMAND finds WINNOW_AGGREGATORS, RANK, LOCAL_RANK, GROUP_RANK (the host), "
		"WORLD_SIZE,\n"
		"LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT (29500 if not set) in its "
		"environment.\n"
		"The aggregator ends when COMMAND has ended and no other host needs it any more.\n"
		"WINNOW_KEY_FILE, WINNOW_KEY and WINNOW_INSECURE_NO_KEY=1 apply to both, and "
		"WINNOW_CONFIG to the\n"
		"aggregator. The exit status is that of COMMAND.",
	.examples = "  winnow colocate --hosts node0,node1,node2,node3 -- python3 train.py\n"
		    "  srun -N 4 winnow colocate --hosts node0,node1,node2,node3 --per-host 8 -- "
		    "python3 train.py\n",
	.list = list,
	.section = "colocate",
	.command_at = &command_at,
};

struct run {
	char hosts[HOSTS_MAX][HOST_BYTES];
	struct net_addr addresses[HOSTS_MAX];
	uint32_t host_count;
	struct children children;
};

static struct run run;

#define SEE "; see winnow colocate --help"
/* An IPv6 address needs brackets. */
#define HOST_PORT "%s%s%s:%u"
#define HOST_PORT_OF(host)                                                                         \
	strchr(host, ':') != NULL ? "[" : "", host, strchr(host, ':') != NULL ? "]" : "",          \
		(unsigned)settings.port

/* ---- which hosts, and which of them is this ---- */

static int hosts_read(void)
{
	const char *at = settings.hosts;
	char text[HOST_BYTES + 8];
	struct why why;
	int err;

	if (at == NULL || *at == '\0')
		return cli_error(2, "--hosts is missing: name the hosts of the job, such as "
		                    "--hosts node0,node1" SEE);
	if (cli_item_count(at) > HOSTS_MAX)
		at = ",";
	for (; at != NULL; run.host_count++) {
		char *host = run.hosts[run.host_count];

		at = option_item(at, host, HOST_BYTES);
		if (*host == '\0')
			return cli_error(2,
			                 "--hosts is '%s': want at most 256 names, "
			                 "separated by commas" SEE,
			                 settings.hosts);
		snprintf(text, sizeof(text), HOST_PORT, HOST_PORT_OF(host));
		err = net_resolve(text, &run.addresses[run.host_count], &why);
		if (err != 0)
			return cli_error(err == -EAGAIN ? 1 : 2, "--hosts: %s" SEE, why.text);
	}
	return 0;
}

/* An address is ours if we can bind a socket to it. */
static bool is_ours(const struct net_addr *address)
{
	const struct net_addr any_port = {.ip = address->ip};
	union net_sockaddr at;
	socklen_t size = net_sockaddr(&any_port, &at);
	int fd = socket(at.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ours = fd >= 0 && bind(fd, &at.any, size) == 0;

	if (fd >= 0)
		close(fd);
	return ours;
}

static int index_find(void)
{
	uint32_t found = 0;

	if (settings.index != NOT_GIVEN)
		return settings.index < run.host_count
		               ? 0
		               : cli_error(2,
		                           "--index is not below the number of hosts in --hosts "
		                           "%s" SEE,
		                           settings.hosts);
	for (uint32_t i = 0; i < run.host_count; i++)
		if (is_ours(&run.addresses[i]) && ++found > 0)
			settings.index = i;
	if (found == 1)
		return 0;
	return cli_error(2, "%s of --hosts %s %s this host's: give --index" SEE,
	                 found == 0 ? "no address" : "several addresses", settings.hosts,
	                 found == 0 ? "is" : "are");
}

/* ---- starting ---- */

static void environment_set(void)
{
	static char all[HOSTS_MAX * (HOST_BYTES + 8)];

	for (uint32_t i = 0; i < run.host_count; i++)
		text_add(all, sizeof(all), "%s" HOST_PORT, i > 0 ? "," : "",
		         HOST_PORT_OF(run.hosts[i]));
	setenv("WINNOW_AGGREGATORS", all, 1);
	setenv("MASTER_ADDR", run.hosts[0], 1);
	setenv("MASTER_PORT", "29500", 0);
}

static bool start_all(void *command)
{
	static const int ours[] = {CHILD_OURS, CHILD_OURS, CHILD_OURS};
	char listen_option[] = "--listen", address[NET_TEXT_BYTES], threads[] = "--threads=1";
	char *winnowd[] = {NULL, listen_option, address, threads, NULL};
	uint32_t each = (uint32_t)settings.per_host;
	bool started;

	net_format(&run.addresses[settings.index], address);
	setenv("WINNOW_LOG", "warn", 0);
	started = children_winnowd(&run.children, winnowd, ours);
	environment_set();
	for (uint32_t i = 0; i < each && started; i++) {
		children_environment(run.host_count, (uint32_t)settings.index, each, i);
		started = children_worker(&run.children, command, ours);
	}
	return started;
}

int cli_colocate(int argc, char **argv)
{
	int status = options_read(&options, argc, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	if (command_at >= argc)
		return cli_error(2, "the command to run is missing" SEE);
	status = hosts_read();
	if (status == 0)
		status = index_find();
	return status != 0 ? status : children_run(&run.children, start_all, argv + command_at);
}
