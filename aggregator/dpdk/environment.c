// SPDX-License-Identifier: BSD-3-Clause
/* environment.c - starts DPDK's environment (EAL) once a process, and passes its log to ours */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>

#include "aggregator/dpdk/device.h"
#include "aggregator/dpdk/kernel.h"

#define WORDS_MAX 64
#define MEMORY_MB 192         /* for frames of 2 KB */
#define PACKET_RING_BYTES 256 /* all headers in a packet socket's ring, the kernel's included */
#define TEXT_BYTES 4096
#define HUGE_PAGE_BYTES (2u << 20)
#define HUGE_FREE "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"

static struct {
	bool started;
	bool pinned; /* the operator has named CPUs */
	void (*log)(const char *level, const char *text);
	char line[WHY_BYTES]; /* the log line that is being written */
	size_t line_bytes;
} state;

struct environment environment;

/* ---- log ---- */

/* DPDK says much about itself. Lines for its developers stay out of the log. */
static void line_done(void)
{
	int level = rte_log_cur_msg_loglevel();
	bool error = level > 0 && level <= (int)RTE_LOG_ERR;

	state.line[state.line_bytes] = '\0';
	state.line_bytes = 0;
	if (state.line[0] == '\0' || (!error && level != (int)RTE_LOG_WARNING))
		return;
	if (error && environment.first_error[0] == '\0')
		memcpy(environment.first_error, state.line, sizeof(environment.first_error));
	memcpy(environment.last_line, state.line, sizeof(environment.last_line));
	if (state.log != NULL && !environment.mute)
		state.log(error ? "error" : "warn", state.line);
}

/* The stream that DPDK prints to; the caller holds its lock. */
static ssize_t log_write(void *cookie, const char *text, size_t size)
{
	(void)cookie;
	for (size_t i = 0; i < size; i++) {
		char c = text[i];

		if (c == '\n')
			line_done();
		else if (state.line_bytes + 1 < sizeof(state.line))
			state.line[state.line_bytes++] = (char)(c == '"'                    ? '\''
			                                        : isprint((unsigned char)c) ? c
			                                                                    : ' ');
	}
	return (ssize_t)size;
}

static void log_capture(void)
{
	FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = log_write});

	if (stream == NULL)
		return;
	setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	rte_openlog_stream(stream);
}

/* ---- arguments ---- */

/* Cuts `text` into words in place, like a shell, with ' and ". Returns how many, or -1 for too many. */
static int words_cut(char *text, char *words[], int max)
{
	int count = 0;
	char *in = text, *out = text;

	for (;;) {
		char quote = '\0';

		while (isspace((unsigned char)*in))
			in++;
		if (*in == '\0')
			return count;
		if (count == max)
			return -1;
		words[count++] = out;
		for (; *in != '\0' && (quote != '\0' || !isspace((unsigned char)*in)); in++) {
			if (*in == quote)
				quote = '\0';
			else if (quote == '\0' && (*in == '\'' || *in == '"'))
				quote = *in;
			else
				*out++ = *in;
		}
		in += *in != '\0';
		*out++ = '\0';
	}
}

static bool names_cpus(char *const words[], int count)
{
	static const char *const options[] = {"-l", "-c", "--lcores", "-s", "-S"};

	for (int i = 0; i < count; i++)
		for (size_t k = 0; k < sizeof(options) / sizeof(options[0]); k++)
			if (strncmp(words[i], options[k], strlen(options[k])) == 0)
				return true;
	return false;
}

static uint64_t huge_bytes_free(void)
{
	FILE *file = fopen(HUGE_FREE, "re");
	unsigned long long pages = 0;

	if (file != NULL) {
		if (fscanf(file, "%llu", &pages) != 1)
			pages = 0;
		fclose(file);
	}
	return pages * HUGE_PAGE_BYTES;
}

/*
 * The arguments if none are given: a packet socket on the interface, which only needs the right to
 * open one, and huge pages if there are some.
 */
static int arguments_for(const struct net_config *config, char *text, struct why *why)
{
	const char *name = config->port->device;
	uint32_t if_index = name != NULL ? if_nametoindex(name) : 0;
	uint32_t mtu = kernel_mtu(if_index), frame = 2048, memory_mb = MEMORY_MB;
	char memory[48];

	if (name == NULL)
		return why_set(
			why, -EINVAL,
			"the dpdk datapath needs --device IFACE, or --eal with DPDK's arguments");
	if (mtu == 0)
		return why_set(why, -ENODEV,
		               "there is no interface '%.60s'; other ports need --eal \"...\"",
		               name);
	if (mtu > config->payload_max + FRAME_UDP_BYTES_MAX)
		mtu = config->payload_max + FRAME_UDP_BYTES_MAX;
	while (frame < mtu + PACKET_RING_BYTES)
		frame *= 2;
	memory_mb *= frame / 2048;
	if (huge_bytes_free() >= (uint64_t)memory_mb << 20)
		snprintf(memory, sizeof(memory), "--in-memory");
	else
		snprintf(memory, sizeof(memory), "--no-shconf --no-huge -m %u", memory_mb);
	snprintf(text, TEXT_BYTES,
	         "%s --no-pci --no-telemetry "
	         "--vdev=net_af_packet0,iface=%s,framesz=%u,blocksz=65536,framecnt=4096",
	         memory, name, frame);
	return 0;
}

/* ---- start ---- */

/* A wrong argument makes DPDK print its usage on stdout and more on stderr, which would be noise. */
static int init_quietly(int argc, char **argv)
{
	static const int outputs[] = {STDOUT_FILENO, STDERR_FILENO};
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), saved[2], result;

	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		saved[i] = fcntl(outputs[i], F_DUPFD_CLOEXEC, 0);
		if (null >= 0 && saved[i] >= 0)
			dup2(null, outputs[i]);
	}
	result = rte_eal_init(argc, argv);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		if (saved[i] < 0)
			continue;
		dup2(saved[i], outputs[i]);
		close(saved[i]);
	}
	if (null >= 0)
		close(null);
	return result;
}

int environment_start(const struct net_config *config, struct why *why)
{
	static char text[TEXT_BYTES];
	static char *words[WORDS_MAX + 2];
	static char program[] = "winnow";
	cpu_set_t cpus;
	int count, err = 0;

	if (state.started)
		return -EALREADY;
	if (config->port->eal != NULL)
		snprintf(text, sizeof(text), "%s%s", config->port->eal,
		         strstr(config->port->eal, "telemetry") != NULL ? "" : " --no-telemetry");
	else
		err = arguments_for(config, text, why);
	if (err != 0)
		return err;
	words[0] = program;
	count = words_cut(text, words + 1, WORDS_MAX);
	if (count < 0)
		return why_set(why, -E2BIG, "--eal has more than %d arguments", WORDS_MAX);
	state.pinned = names_cpus(words + 1, count);
	state.log = config->port->log;
	log_capture();
	/* EAL pins the thread that starts it, and our new threads would inherit that. */
	pthread_getaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	environment.mute = true;
	err = init_quietly(count + 1, words);
	pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	if (err < 0)
		return why_set(why, -EINVAL, "DPDK does not start: %.180s",
		               environment.last_line[0] != '\0' ? environment.last_line
		                                                : rte_strerror(rte_errno));
	environment.mute = false;
	state.started = true;
	return 0;
}

const rte_cpuset_t *environment_cpus(uint32_t queue)
{
	static rte_cpuset_t cpus[DPDK_QUEUES_MAX];
	uint32_t lcore, at = 0;

	if (!state.pinned || queue >= DPDK_QUEUES_MAX)
		return NULL;
	RTE_LCORE_FOREACH_WORKER(lcore)
	if (at++ == queue) {
		cpus[queue] = rte_lcore_cpuset(lcore);
		return &cpus[queue];
	}
	/* If one lcore serves one queue, it is the main one. */
	if (at == 0 && queue == 0) {
		cpus[0] = rte_lcore_cpuset(rte_get_main_lcore());
		return &cpus[0];
	}
	return NULL;
}

__attribute__((destructor)) static void environment_end(void)
{
	uint16_t port;

	if (!state.started || environment.in_use)
		return;
	state.log = NULL;
	RTE_ETH_FOREACH_DEV(port)
	rte_eth_dev_close(port);
	rte_eal_cleanup();
}
