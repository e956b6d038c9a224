/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_options.h - the options that fill a struct winnow_config, for the library and for commands that join a job
 *
 * Entries of a table of struct option, with `c` a struct winnow_config: the library reads them from
 * the environment and from the file that WINNOW_CONFIG names, commands from their command line too.
 */
#ifndef CLIENT_COMM_OPTIONS_H
#define CLIENT_COMM_OPTIONS_H

#include "bitmap/control/options.h"
#include "bitmap/pool.h"
#include "client/winnow.h"
#include "ebpf/wire.h"

/* clang-format off */

/*
 * How to reduce, in the order of winnow bench's headings. winnowd knows which workers are missing and says so after
 * 60 s, so join-timeout is longer.
 */
#define COMM_OPTIONS_HOW(c) \
	{"block", "ELEMENTS", OPTION_COUNT32, &(c).block, "256", NULL, 1, WIRE_BLOCK_ELEMS_MAX, \
	 "elements of a block"}, \
	{"wire", "auto|f32,native|fixed32|fixed16|fixed8|bf16", OPTION_CHOICE, &(c).wire, "auto", NULL, WINNOW_WIRE_AUTO, \
	 WINNOW_WIRE_BF16, "how f32 travels"}, \
	{"threads", "N", OPTION_COUNT32, &(c).threads, "1", NULL, 1, BITMAP_POOL_THREADS_MAX, \
	 "threads that scan the tensor"}, \
	{"timeout", "TIME", OPTION_MS, &(c).timeout_ms, "600", NULL, 100, 864000e3, \
	 "how long an operation waits for other workers"}, \
	{"silence", "TIME", OPTION_MS, &(c).silence_ms, "10", NULL, 100, 86400e3, \
	 "how long a peer may be silent before it is lost"}, \
	{"join-timeout", "TIME", OPTION_MS, &(c).join_timeout_ms, "65", NULL, 100, 86400e3, \
	 "how long to wait for all workers to join"}, \
	{"debug", "off|warn,WARN|info,INFO", OPTION_CHOICE, &(c).debug, "off", NULL, WINNOW_QUIET, WINNOW_INFO, \
	 "on stderr: why it waits (warn), and how it has joined (info)"}, \
	{"payload", "BYTES", OPTION_SIZE32, &(c).payload, "0", NULL, WIRE_PAYLOAD_MIN, WIRE_PAYLOAD_MAX, \
	 "upper limit for datagrams; 0: what the path carries"}, \
	{"multicast", "1|0", OPTION_INT_FLAG, &(c).multicast, "1", NULL, 0, 0, \
	 "use multicast where it works; 0: results come one by one"}, \
	{"dscp", "NAME|0..63", OPTION_DSCP, &(c).dscp, "0", NULL, 0, 63, \
	 "class of sent datagrams (DSCP): cs1, af21, ef, le .."}, \
	{"network", "shared|private", OPTION_CHOICE, &(c).network, "shared", NULL, WINNOW_NETWORK_SHARED, \
	 WINNOW_NETWORK_PRIVATE, "private: no one else uses it; loss slows nothing, ends nothing"}

/* Which worker of the job this is. */
#define COMM_OPTIONS_RANK(c) \
	{"rank", "R", OPTION_COUNT32, &(c).rank, "0", "RANK", 0, WIRE_WORKERS_MAX - 1, \
	 "number of this worker, from 0"}, \
	{"world", "N", OPTION_COUNT32, &(c).world, "1", "WORLD_SIZE", 1, WIRE_WORKERS_MAX, \
	 "number of workers"}

#define COMM_OPTIONS_KEY(c) \
	{"key-file", "FILE", OPTION_TEXT, &(c).key_file, NULL, NULL, 0, 0, "file of job keys"}, \
	{"key", "KEY", OPTION_SECRET, &(c).key, NULL, NULL, 0, 0, \
	 "the job's key; better in WINNOW_KEY than on a command line"}, \
	{"insecure-no-key", NULL, OPTION_INT_FLAG, &(c).insecure_no_key, "0", NULL, 0, 0, \
	 "join without a key"}

/* How datagrams travel. In winnow bench these continue the heading of the network. */
#define COMM_OPTIONS_PORT(c) \
	{"datapath", "NAME", OPTION_TEXT, &(c).datapath, "udp", NULL, 0, 0, "udp or dpdk"}, \
	{"interface", "IFACE|ADDR", OPTION_TEXT, &(c).interface, NULL, NULL, 0, 0, \
	 "udp: this host's interface or address towards aggregators"}, \
	{"eal", "ARGS", OPTION_TEXT, &(c).eal, NULL, NULL, 0, 0, \
	 "EAL arguments; by default those that suit --device"}, \
	{"device", "IFACE", OPTION_TEXT, &(c).device, NULL, NULL, 0, 0, \
	 "network interface, or DPDK's name of the port"}, \
	{"data-address", "ADDR/BITS", OPTION_TEXT, &(c).data_address, NULL, NULL, 0, 0, \
	 "this worker's address there; by default the kernel's"}, \
	{"gateway", "ADDR", OPTION_TEXT, &(c).gateway, NULL, NULL, 0, 0, \
	 "router to aggregators outside that network"}

/* clang-format on */

#endif /* CLIENT_COMM_OPTIONS_H */
