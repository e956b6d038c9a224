// SPDX-License-Identifier: BSD-3-Clause
/*
 * winnowd.c - main: options, then data threads, then the control loop
 *
 * Continue with data_open() for packets and control_open() for connections.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "aggregator/control.h"
#include "bitmap/control/secrets.h"
#include "bitmap/control/options.h"
#include "bitmap/net/clock.h"
#include "aggregator/http/http.h"
#include "aggregator/limits.h"
#include "aggregator/listener.h"
#include "aggregator/log.h"
#include "aggregator/privileges.h"
#include "aggregator/service.h"

#define JOIN_DEFAULT_S "60"
#define BYTES_MAX_DEFAULT (4ull << 30)
#define DESCRIPTORS_OWN 32 /* for the loop, ports, and files that are read again */
#define HELLO_US 5000000
#define GROUPS_DEFAULT "239.77.0.0,ff15::8077:0"

/* Options that are not in struct control_config. */
static struct {
	const char *config, *listen, *datapath, *device, *metrics, *key_file, *key, *multicast,
		*user, *parent, *site;
	bool insecure_no_key, check;
	enum xdp_mode xdp_mode;
	int log_level; /* 0 is info */
	enum log_format log_format;
	uint32_t buffer_bytes, xdp_slots, dscp;
	struct {
		const char *eal, *data_address, *gateway;
		uint64_t idle_us;
	} dpdk;
} settings;

static struct control_config config;

static const struct option list[] = {
	{"config", "FILE", OPTION_TEXT, &settings.config, NULL, NULL, 0, 0,
         "read options from this INI file, section [winnowd]"},
	{"check", NULL, OPTION_FLAG, &settings.check, NULL, OPTION_ARGUMENT, 0, 0,
         "check options, addresses and keys, then exit"},
	{"threads", "N", OPTION_COUNT32, &config.jobs.threads, "0", NULL, 0, JOBS_THREADS_MAX,
         "data threads; 0: half the CPUs, at most 8"},
	{"user", "NAME|UID:GID", OPTION_TEXT, &settings.user, NULL, NULL, 0, 0,
         "become this user once the ports are open, if started as root"},

	{"listen", "ADDR:PORT", OPTION_TEXT, &settings.listen, "0.0.0.0:5555", NULL, 0, 0,
         "TCP and UDP for workers; [::]:5555 is IPv6 and IPv4"},
	{"datapath", "NAME", OPTION_TEXT, &settings.datapath, "auto", NULL, 0, 0,
         "auto, udp, xdp or dpdk; auto is xdp if --device supports it"},
	{"device", "IFACE", OPTION_TEXT, &settings.device, NULL, NULL, 0, 0,
         "interface whose packets the kernel adds (xdp), or port (dpdk)"},
	{"multicast", "NET[,NET]", OPTION_TEXT, &settings.multicast, GROUPS_DEFAULT, NULL, 0, 0,
         "networks for multicast groups; no: unicast"},
	{"payload-max", "BYTES", OPTION_SIZE32, &config.jobs.payload_max, "8972", NULL,
         WIRE_PAYLOAD_MIN, WIRE_PAYLOAD_MAX,
         "upper limit for datagrams; workers find out what passes"},
	{"buffer-bytes", "SIZE", OPTION_SIZE32, &settings.buffer_bytes, "16M", NULL, 65536, 1 << 30,
         "size of socket buffers to ask the kernel for"},
	{"dscp", "NAME|0..63", OPTION_DSCP, &settings.dscp, "0", NULL, 0, 63,
         "class of sent datagrams (DSCP): cs1, af21, ef, le .."},
	{"parent", "HOST:PORT", OPTION_TEXT, &settings.parent, NULL, NULL, 0, 0,
         "aggregator that adds up what this one, as a site, has added up"},
	{"site", "NAME", OPTION_TEXT, &settings.site, NULL, NULL, 0, 0,
         "name of this site; by default the host's"},

	{"key-file", "FILE", OPTION_TEXT, &settings.key_file, NULL, NULL, 0, 0,
         "job keys: lines of \"JOB KEY\", \"* KEY\" for all other jobs"},
	{"key", "KEY", OPTION_SECRET, &settings.key, NULL, NULL, 0, 0,
         "one key for all jobs; better in WINNOW_KEY than on a command line"},
	{"insecure-no-key", NULL, OPTION_FLAG, &settings.insecure_no_key, NULL, NULL, 0, 0,
         "let anyone join, to try things out"},

	{"jobs-max", "N", OPTION_COUNT32, &config.jobs.jobs_max, "64", NULL, 1, JOBS_MAX,
         "jobs at the same time"},
	{"workers-max", "N", OPTION_COUNT32, &config.jobs.workers_max, "1024", NULL, 1,
         WIRE_WORKERS_MAX, "workers of one job"},
	{"connections-max", "N", OPTION_COUNT32, &config.jobs.peers_max, "4096", NULL, 1, 65536,
         "control connections at the same time"},
	{"job-bytes-max", "SIZE", OPTION_SIZE, &config.jobs.job_bytes_max, "1G", NULL, 65536, 0,
         "memory of one job"},
	{"bytes-max", "SIZE", OPTION_SIZE, &config.jobs.bytes_max, "0", NULL, 0, 0,
         "memory of all jobs; 0: 4G, or less on a small host or container"},
	{"window-bytes", "SIZE", OPTION_SIZE32, &config.jobs.window_bytes, "2M", NULL, 16384,
         1 << 30, "data of one job in flight on one thread"},
	{"op-slots", "N", OPTION_COUNT32, &config.jobs.op_slots, "32", NULL, 1, 1024,
         "operations of a worker in flight"},
	{"segments-ahead", "N", OPTION_COUNT32, &config.jobs.segments_ahead, "8", NULL, 1, 64,
         "segments of an operation in flight"},
	{"join-timeout", "TIME", OPTION_TIME, &config.jobs.join_us, JOIN_DEFAULT_S, NULL, 100000,
         86400e6, "how long a job's first worker waits for its last"},
	{"drain-timeout", "TIME", OPTION_TIME, &config.drain_us, "30", NULL, 0, 86400e6,
         "how long jobs may continue after SIGTERM"},

	{"metrics", "ADDR:PORT", OPTION_TEXT, &settings.metrics, "auto", NULL, 0, 0,
         "HTTP metrics and health; auto: " METRICS_DEFAULT " if free; no: off"},
	{"log", "info|warn|error", OPTION_CHOICE, &settings.log_level, "info", NULL, 0, 2,
         "lowest level that is logged, on stderr"},
	{"log-format", "logfmt|json", OPTION_CHOICE, &settings.log_format, "logfmt", NULL,
         LOG_LOGFMT, LOG_JSON, "format of the log"},

	{"xdp-mode", "auto|native|generic", OPTION_CHOICE, &settings.xdp_mode, "auto", NULL,
         XDP_MODE_AUTO, XDP_MODE_GENERIC,
         "native runs in the driver; auto is native where it works"},
	{"xdp-slots", "N", OPTION_COUNT32, &settings.xdp_slots, "8192", NULL, 64, XDP_SLOTS_MAX,
         "frames of all jobs in flight in the kernel, 4 KB each"},

	{"eal", "ARGS", OPTION_TEXT, &settings.dpdk.eal, NULL, NULL, 0, 0,
         "EAL arguments; by default those that suit --device"},
	{"data-address", "ADDR/BITS", OPTION_TEXT, &settings.dpdk.data_address, NULL, NULL, 0, 0,
         "address for datagrams; by default that of --listen"},
	{"gateway", "ADDR", OPTION_TEXT, &settings.dpdk.gateway, NULL, NULL, 0, 0,
         "router to workers outside that network"},
	{"idle", "TIME", OPTION_TIME, &settings.dpdk.idle_us, "50us", NULL, 0, 10000,
         "longest sleep of an idle thread; 0: it never sleeps"},
	{0},
};

static const struct option_group groups[] = {
	{"network", "listen", false},
	{"keys", "key-file", false},
	{"limits", "jobs-max", false},
	{"monitoring", "metrics", false},
	{"xdp", "xdp-mode", true},
	{"dpdk", "eal", true},
	{0},
};

static const char *built_with(void)
{
	static char text[128];
	const char *dpdk = net_backend_about("dpdk");

	snprintf(text, sizeof(text), " (datapaths: udp, xdp%s%s)",
	         dpdk != NULL ? ", dpdk with " : "; built without dpdk", dpdk != NULL ? dpdk : "");
	return text;
}

static const struct options options = {
	.program = "winnowd",
	.usage = "[--config FILE] [--listen ADDR:PORT] (--key-file FILE | --insecure-no-key) [...]",
	.about = "The aggregator: adds the non-zero blocks that workers send, and streams the sums "
		 "back.",
	.examples = "  winnowd --insecure-no-key\n"
		    "  winnowd --listen 10.0.0.1:5555 --key-file /etc/winnow/keys --metrics "
		    "127.0.0.1:9555\n",
	.list = list,
	.groups = groups,
	.section = "winnowd",
	.file_option = "config",
	.built_with = built_with,
};

/* `status` is 2 for wrong usage and 1 for a failure. */
__attribute__((format(printf, 2, 3))) static int give_up(int status, const char *format, ...)
{
	char text[2 * WHY_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_show(text);
	fprintf(stderr, "winnowd: %s\n", text);
	return status;
}

static struct job_keys *the_keys; /* NULL if anyone may join */

static int keys_load(void)
{
	struct why why;

	if (settings.insecure_no_key && (settings.key_file != NULL || settings.key != NULL))
		return give_up(
			2,
			"--insecure-no-key (WINNOW_INSECURE_NO_KEY) contradicts %s: give one of "
			"them",
			settings.key_file != NULL ? "--key-file (WINNOW_KEY_FILE)"
						  : "--key (WINNOW_KEY)");
	if (settings.insecure_no_key)
		return 0;
	if (settings.key_file == NULL && settings.key == NULL)
		return give_up(2,
		               "no job key: give --key-file FILE or, to try things out, "
		               "--insecure-no-key%s",
		               getauxval(AT_SECURE) == 0
		                       ? ""
		                       : "; a program with file capabilities reads no environment");
	if (job_keys_load(settings.key_file, settings.key, &the_keys, &why) == 0)
		return 0;
	return give_up(2, "%s", why.text);
}

/* Keys on the command line and in the environment would stay in memory, as would copies of a file's. */
static void key_texts_wipe(void)
{
	const char *texts[] = {settings.key, secure_getenv("WINNOW_KEY")};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i] != NULL)
			explicit_bzero((char *)(uintptr_t)texts[i], strlen(texts[i]));
	secrets_clear();
}

/* Takes at most one of each family, with 16 bits to fill in. Returns false for anything else. */
static bool multicast_net(const char *text, struct net_ip nets[2])
{
	struct net_ip ip, *net;
	struct why unused;
	uint32_t bits;

	if (net_network(text, &ip, &bits, &unused) != 0 || bits != 0)
		return false;
	net = &nets[!net_ip_is_v4(&ip)];
	/* Workers must not join groups of the network's own protocols. */
	if (net_ip_is_v4(&ip) ? ip.bytes[12] == 224 && ip.bytes[13] == 0 : ip.bytes[1] >> 4 == 0)
		return false;
	if (!net_ip_multicast(&ip) || ip.bytes[14] != 0 || ip.bytes[15] != 0 || !net_ip_none(net))
		return false;
	*net = ip;
	return true;
}

static int multicast_nets(struct net_ip nets[2])
{
	/* Workers read a variable of this name as yes or no; winnowd must also start with it. */
	const char *at = option_is_on(settings.multicast) ? GROUPS_DEFAULT : settings.multicast;
	char text[INET6_ADDRSTRLEN + 1]; /* a text that is too long stays too long */
	bool good = true;

	while (good && at != NULL && !option_is_off(settings.multicast)) {
		at = option_item(at, text, sizeof(text));
		good = multicast_net(text, nets);
	}
	if (good)
		return 0;
	return give_up(2,
	               "--multicast is '%s': want a multicast /16 such as 239.77.0.0, an IPv6 /112 "
	               "such as ff15::8077:0, one of each with a comma, or no; 224.0.0.0 and "
	               "addresses that begin with ff0 are reserved",
	               settings.multicast);
}

/* A name that cannot be looked up now may be right, so the service manager has to try again. */
static int address(const char *option, const char *text, struct net_addr *out)
{
	struct why why;
	int err = net_resolve(text, out, &why);

	return err == 0 ? 0 : give_up(err == -EAGAIN ? 1 : 2, "%s: %s", option, why.text);
}

static int parent_address(void)
{
	static char host[CONTROL_NAME_BYTES];

	if (settings.site == NULL && gethostname(host, sizeof(host) - 1) == 0)
		settings.site = host;
	if (settings.site == NULL || *settings.site == '\0' ||
	    strlen(settings.site) >= CONTROL_NAME_BYTES)
		return give_up(2, "--site is '%s': want a name of 1 to %d characters",
		               settings.site != NULL ? settings.site : "", CONTROL_NAME_BYTES - 1);
	if (strcmp(settings.datapath, "udp") != 0 && strcmp(settings.datapath, "auto") != 0)
		return give_up(2, "--parent works with --datapath udp alone");
	config.parent_text = settings.parent;
	config.site = settings.site;
	return address("--parent", settings.parent, &config.parent);
}

static int addresses(void)
{
	int status = address("--listen", settings.listen, &config.listen);

	if (status != 0)
		return status;
	config.metrics_auto = strcmp(settings.metrics, "auto") == 0;
	if (config.metrics_auto)
		settings.metrics = METRICS_DEFAULT;
	if (!option_is_off(settings.metrics))
		status = address("--metrics", settings.metrics, &config.metrics);
	if (status == 0 && settings.parent != NULL)
		status = parent_address();
	if (status != 0)
		return status;
	if (strcmp(settings.datapath, "xdp") == 0 && settings.device == NULL)
		return give_up(
			2,
			"--datapath xdp needs --device IFACE, the interface where packets arrive");
	config.jobs.group_port = config.listen.port;
	return multicast_nets(config.jobs.group_nets);
}

static void config_fill(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (config.jobs.threads == 0)
		config.jobs.threads = cpus < 2 ? 1 : cpus > 16 ? 8 : (uint32_t)(cpus / 2);
	config.jobs.software = "winnowd " WINNOW_VERSION;
	config.jobs.hello_us = HELLO_US;
	config.jobs.epoch_us = clock_epoch_us();
	config.jobs.engine = bitmap_best();
	config.keys = the_keys;
	config.key_file = settings.key_file;
}

static int offload(void)
{
	struct xdp_config xdp = {
		.device = settings.device,
		.mode = settings.xdp_mode,
		.families = net_ip_is_v4(&config.listen.ip)  ? XDP_FOUR
	                    : net_ip_none(&config.listen.ip) ? XDP_BOTH
	                                                     : XDP_SIX,
		.ip = net_ip_number(&config.listen.ip),
		.port = config.listen.port,
		.slot_count = settings.xdp_slots,
	};
	struct why why;

	if (xdp.families == XDP_SIX)
		memcpy(xdp.six, config.listen.ip.bytes, sizeof(xdp.six));
	if (settings.device == NULL ||
	    (strcmp(settings.datapath, "xdp") != 0 && strcmp(settings.datapath, "auto") != 0))
		return 0;
	config.device = settings.device;
	if (offload_open(&xdp, settings.dscp, &config.offload, &why) == 0)
		return 0;
	if (strcmp(settings.datapath, "xdp") == 0)
		return give_up(1, "cannot use xdp on %s: %s", settings.device, why.text);
	log_event("warn", "no_xdp", LOG_FIELDS(LOG_WORD("device", settings.device)),
	          "%s; continuing without XDP", why.text);
	return 0;
}

/* ---- the data path ---- */

static void port_log(const char *level, const char *text)
{
	log_fields(NULL, level, "port", NULL, text);
}

/* DPDK's AF_XDP driver needs its interfaces alone, so an earlier winnowd's programs are removed. */
static int interfaces_sweep(struct why *why)
{
	const char *at = settings.dpdk.eal != NULL ? strstr(settings.dpdk.eal, "net_af_xdp") : NULL;
	char name[IF_NAMESIZE];

	for (; at != NULL; at = strstr(at, "iface=")) {
		int swept;

		if (strncmp(at, "iface=", strlen("iface=")) != 0)
			continue;
		at += strlen("iface=");
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ", '\""), at);
		swept = xdp_sweep(name, why);
		if (swept < 0)
			return swept;
		if (swept > 0)
			log_event("info", "swept", LOG_FIELDS(LOG_WORD("device", name)),
			          "removed the XDP program that an earlier winnowd had left");
	}
	return 0;
}

/* Finds the back end that --datapath names, and its port if it needs one. */
static int data_path(struct data_config *data, struct net_port *port)
{
	bool kernel = strcmp(settings.datapath, "auto") == 0 ||
	              strcmp(settings.datapath, "xdp") == 0 ||
	              strcmp(settings.datapath, "udp") == 0;
	struct why why;
	uint32_t bits;

	if (!kernel && strcmp(settings.datapath, "dpdk") != 0)
		return give_up(2, "--datapath is '%s': want auto, udp, xdp or dpdk",
		               settings.datapath);
	if (net_backend_named(kernel ? "udp" : settings.datapath, &data->backend, &why) != 0)
		return give_up(2, "--datapath: %s", why.text);
	if (kernel)
		return 0;
	if (settings.device == NULL && settings.dpdk.eal == NULL)
		return give_up(2,
		               "--datapath %s needs --device IFACE, or --eal with DPDK's arguments",
		               settings.datapath);
	*port = (struct net_port){.eal = settings.dpdk.eal,
	                          .device = settings.device,
	                          .idle_us = (uint32_t)settings.dpdk.idle_us,
	                          .log = port_log};
	data->net.port = port;
	/* A port has one address: if none is given, an IPv4 one where there is one. */
	if (net_ip_none(&data->net.local.ip))
		data->net.local.ip = net_ipv4(0);
	if (settings.dpdk.data_address != NULL &&
	    net_network(settings.dpdk.data_address, &data->net.local.ip, &port->prefix_bits,
	                &why) != 0)
		return give_up(2, "--data-address: %s", why.text);
	if (settings.dpdk.gateway != NULL &&
	    net_network(settings.dpdk.gateway, &port->gateway, &bits, &why) != 0)
		return give_up(2, "--gateway: %s", why.text);
	return 0;
}

/*
 * The kernel reports twice the size that it grants, because it also counts its own memory for a
 * datagram; it stops at the largest int. Messages for people have the size that was granted.
 */
static bool buffer_is_small(uint32_t said)
{
	return said / 2 < settings.buffer_bytes && said < INT_MAX - 1;
}

static void buffers_warn(uint32_t rcvbuf, uint32_t sndbuf)
{
	if (!buffer_is_small(rcvbuf) && !buffer_is_small(sndbuf))
		return;
	log_event("warn", "small_buffers",
	          LOG_FIELDS(LOG_NUMBER("rcvbuf", rcvbuf / 2), LOG_NUMBER("sndbuf", sndbuf / 2),
	                     LOG_NUMBER("wanted", settings.buffer_bytes)),
	          "the kernel grants smaller buffers: sysctl -w net.core.rmem_max=%" PRIu32
	          " net.core.wmem_max=%" PRIu32,
	          settings.buffer_bytes, settings.buffer_bytes);
}

/* Logs what was asked for and what there is. */
static void say_ready(const struct data_config *data, const struct net_addr *metrics)
{
	char text[NET_TEXT_BYTES], at[NET_TEXT_BYTES];

	log_event("info", "ready",
	          LOG_FIELDS(LOG_WORD("version", WINNOW_VERSION),
	                     LOG_WORD("listen", net_format(&config.listen, text)),
	                     LOG_WORD("metrics", metrics != NULL ? net_format(metrics, at) : "no"),
	                     LOG_WORD("datapath",
	                              config.offload != NULL ? "xdp" : data->backend->name),
	                     LOG_TEXT("xdp", offload_describe(config.offload)),
	                     LOG_NUMBER("threads", config.jobs.threads),
	                     LOG_WORD("isa", bitmap_best()->name),
	                     LOG_WORD("keys", config.keys != NULL ? "yes" : "no"),
	                     LOG_NUMBER("rcvbuf", config.jobs.rcvbuf_bytes / 2)),
	          NULL);
	if (data->net.port == NULL)
		buffers_warn(config.jobs.rcvbuf_bytes, data_facts(config.data)->send_bytes);
	service_tell("READY=1\nSTATUS=listening on %s", net_format(&config.listen, text));
}

/* Fills in what the options leave open, as the system's limits allow. */
static int limits_fit(void)
{
	uint64_t kernel_bytes =
		config.offload != NULL ? settings.xdp_slots * sizeof(struct fast_slot) : 0;
	uint32_t others = DESCRIPTORS_OWN + (config.metrics.port != 0 ? HTTP_CONNECTIONS_MAX : 0);
	struct why why;

	if (limits_connections(config.jobs.peers_max, others, &config.jobs.peers_max, &why) != 0)
		return give_up(1, "%s", why.text);
	config.bytes_from = "option";
	if (config.jobs.bytes_max != 0)
		return 0;
	config.jobs.bytes_max = limits_bytes(BYTES_MAX_DEFAULT, kernel_bytes);
	config.bytes_from = config.jobs.bytes_max < BYTES_MAX_DEFAULT ? "memory" : "default";
	return 0;
}

/* Called when everything is open. */
static int rights_give_up(void)
{
	struct why why;
	int err = privileges_become(&why);

	if (err != 0 && settings.user != NULL)
		return give_up(1, "%s", why.text);
	if (err != 0)
		log_event("warn", "privileges_kept", NULL, "%s", why.text);
	if (geteuid() == 0)
		log_event("warn", "root", NULL,
		          "winnowd runs as root, without capabilities, but root's files are open "
		          "to it: give --user NAME");
	if (settings.user != NULL && settings.key_file != NULL &&
	    faccessat(AT_FDCWD, settings.key_file, R_OK, AT_EACCESS) != 0)
		log_event("warn", "keys_unreadable",
		          LOG_FIELDS(LOG_WORD("key_file", settings.key_file)),
		          "user %s cannot read the key file (%s), so SIGHUP will change nothing",
		          settings.user, strerror(errno));
	return 0;
}

/* Called when the data threads run. */
static int control(const struct data_config *data)
{
	const struct net_facts *facts = data_facts(config.data);
	struct control *control;
	struct why why;
	int err;

	if (limits_fit() != 0)
		return 1;
	config.jobs.rcvbuf_bytes = facts->buffer_bytes;
	if (facts->payload_max < config.jobs.payload_max)
		config.jobs.payload_max = facts->payload_max;
	/*
	 * Workers are only told an address that differs from the one that they connect to, which
	 * may be a proxy's, or be translated.
	 */
	if (data->net.port != NULL && !net_addr_same(&facts->address, &config.listen))
		config.jobs.data = facts->address;
	the_keys = NULL; /* control_open() takes them, and the socket */
	privileges_own();
	err = control_open(&config, &control, &why);
	config.listen_fd = -1;
	if (err != 0)
		return give_up(1, "%s", why.text);
	if (rights_give_up() != 0) {
		control_close(control);
		return 1;
	}
	say_ready(data, control_metrics(control));
	err = control_run(control);
	control_close(control);
	log_event("info", "stopped", NULL, NULL);
	return err != 0 ? 1 : 0;
}

/*
 * The TCP port belongs to one winnowd. A second one of the same user could share the UDP port and
 * take datagrams of the first. So this comes before anything that others might notice.
 */
static int port_take(void)
{
	struct why why;

	config.listen_fd = listener_bind(&config.listen, "cannot listen on TCP", &why);
	return config.listen_fd >= 0 ? 0 : give_up(1, "%s", why.text);
}

static int jobs_serve(void)
{
	static struct reports reports; /* the data threads' */
	struct data_config data = {
		.net = {.local = config.listen,
	                .payload_max = config.jobs.payload_max,
	                .buffer_bytes = settings.buffer_bytes,
	                .dscp = settings.dscp,
	                .queue_count = config.jobs.threads},
		.report = reports_put,
		.context = &reports,
		.parent = config.parent.port != 0 ? &config.parent : NULL,
	};
	struct net_port port;
	struct why why;
	int status = data_path(&data, &port);

	if (status != 0)
		return status;
	if (data.net.port != NULL && interfaces_sweep(&why) != 0)
		return give_up(2, "%s", why.text);
	if (reports_open(&reports) != 0)
		return give_up(1, "cannot make a pipe: %s", strerror(errno));
	config.reports = &reports;
	if (data_open(&data, &config.data, &why) == 0) {
		status = control(&data);
		data_close(config.data);
	} else {
		status = give_up(1, "%s", why.text);
	}
	reports_close(&reports);
	return status;
}

/* Checks what a start checks before it opens anything. */
static int options_check(void)
{
	struct data_config data = {.net = {.local = config.listen}};
	struct net_port port;
	int status = data_path(&data, &port);

	if (status != 0)
		return status;
	printf("winnowd: these options are fine\n");
	return fflush(stdout) == 0 ? 0 : give_up(2, "cannot write: %s", strerror(errno));
}

/* libuv aborts without a word if it has no memory to watch one more descriptor. */
static void *loop_realloc(void *memory, size_t bytes)
{
	static const char text[] = "winnowd: out of memory for another descriptor\n";
	void *grown = realloc(memory, bytes);

	if (grown == NULL) {
		(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
		_exit(1);
	}
	return grown;
}

int main(int argc, char **argv)
{
	int status, log_fd, begin_err, err;
	struct why why;

	signal(SIGPIPE, SIG_IGN); /* a closed connection shows as an error of the write */
	/* Batch systems send these to all processes of a job, for the workers beside winnowd. */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	signal(SIGALRM, SIG_IGN);
	/* Options name files, and error texts quote them to a caller who may not read them. */
	if (getuid() != geteuid() || getgid() != getegid())
		return give_up(1, "the program is set-user-ID or set-group-ID: remove that, and "
		                  "start it as the user that it is to run as");
	begin_err = privileges_begin();
	status = options_read(&options, argc, argv);
	if (status != 0)
		return status == 1 ? 0 : status;
	log_set(settings.log_level, settings.log_format);
	/* Without this glibc keeps memory of ended jobs, once it has freed some. */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	setenv("UV_THREADPOOL_SIZE", "1", 0); /* one thing at a time: see keyring.h */
	uv_replace_allocator(malloc, loop_realloc, calloc, free);
	status = bitmap_isa_check(&why) == 0 ? addresses() : give_up(2, "%s", why.text);
	if (status == 0)
		status = keys_load();
	if (status == 0 && settings.user != NULL && privileges_user(settings.user, &why) != 0)
		status = give_up(2, "%s", why.text);
	key_texts_wipe();
	if (status != 0 || settings.check)
		return status != 0 ? status : options_check();
	config_fill();
	/*
	 * The log has its own descriptor, because stderr is redirected while DPDK starts, to hide
	 * its output.
	 */
	log_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	err = log_open(log_fd >= 0 ? log_fd : STDERR_FILENO);
	if (err != 0)
		return give_up(1, "cannot start to write the log: %s", strerror(-err));
	if (begin_err != 0)
		log_event("warn", "not_hidden", NULL,
		          "other processes of this user can read keys: %s", strerror(-begin_err));
	status = port_take();
	if (status == 0)
		status = offload();
	if (status == 0)
		status = jobs_serve();
	offload_close(config.offload);
	close(config.listen_fd);
	job_keys_free(the_keys);
	log_close();
	return status;
}
