/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * winnow.h - allreduce that sends only the non-zero blocks of a tensor
 *
 * The workers of a job open a communicator to the same aggregators (winnowd) and call the same operations, as with
 * NCCL or MPI. Winnow cuts each worker's tensor into blocks, and the worker sends those that hold a non-zero value. The
 * aggregators add them up and send the sums back. Dense tensors need no special call.
 *
 *     struct winnow_config config;
 *     struct winnow_comm *comm;
 *
 *     winnow_config_init(&config);           defaults, then the environment
 *     config.aggregators = "10.0.0.1:5555";
 *     config.job = "train1"; config.rank = 0; config.world = 4;
 *     err = winnow_comm_create(&config, &comm);
 *     err = winnow_allreduce(grad, grad, count, WINNOW_F32, WINNOW_SUM, comm);
 *     winnow_comm_destroy(comm);
 *
 * Threads: any thread may call any function. Calls on one communicator may run at the same time, but not beside
 * winnow_comm_destroy(). Operations without a tag match by order, so they should come from one thread. The library
 * starts one thread for each communicator.
 * Blocking: a function never waits for other workers or aggregators unless its comment says "Blocks".
 * Output: the library never exits or aborts. It prints only these lines, to stderr: those that WINNOW_DEBUG asks for;
 * why a trace (WINNOW_TRACE=FOLDER, for winnow tune) cannot begin or has ended early; and, once, that every user of the
 * machine may read the key file.
 * Ownership: a buffer or text belongs to the caller, and the library does not keep it after the call, unless a
 * comment says otherwise.
 * Forks: a forked child must not use a communicator of its parent. Its calls return INVALID or do nothing.
 *
 * Errors: a function that returns int returns an enum winnow_result. winnow_last_error() has a line that explains the
 * error. If it concerns other workers or aggregators, winnow_comm_error() has a line with what happened, to whom, and
 * what to do.
 * After most errors the membership has ended, on all workers. Four errors do not end it: INVALID, BUSY, a
 * winnow_wait() that timed out, and MEMORY from a call that begins an operation (the operation has not begun then,
 * and the other workers wait for it). After any other error, call winnow_comm_reconfigure() to continue in another
 * membership without the workers that are lost, or destroy the communicator. MEMBERS is the error after which the
 * others can continue. Operations that begin while a communicator moves to another membership end with MEMBERS.
 */
#ifndef WINNOW_H
#define WINNOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WINNOW_API __attribute__((visibility("default")))
#define WINNOW_CHECK __attribute__((warn_unused_result))
#else
#define WINNOW_API
#define WINNOW_CHECK
#endif

/* The interface's version, a part of the library's name. Programs built for another version do not work with it. */
#define WINNOW_ABI_VERSION 10

/* The result of a call. Comments below leave out the prefix WINNOW_ERR_. */
enum winnow_result {
	WINNOW_OK = 0,
	WINNOW_ERR_INVALID = 1,     /* An argument is impossible. The call did nothing. */
	WINNOW_ERR_MEMORY = 2,      /* The memory is used up, or memory_mb does not suffice. */
	WINNOW_ERR_SYSTEM = 3,      /* The system refused a socket or a thread. */
	WINNOW_ERR_UNREACHABLE = 4, /* No aggregator answers at the address. */
	WINNOW_ERR_REFUSED = 5,     /* An aggregator refused the key, rank, world or limits. */
	WINNOW_ERR_MISMATCH = 6,    /* Workers differ in call, count, type, layout or operation. */
	WINNOW_ERR_LOST = 7,        /* An aggregator is gone, or the job continues without us. */
	WINNOW_ERR_ABORTED = 8,     /* A worker called winnow_comm_abort(), or loss is heavy. */
	WINNOW_ERR_TIMEOUT = 9,     /* The call waited as long as the configuration allows. */
	WINNOW_ERR_BUSY = 10,       /* An operation with this tag has not ended yet. */
	WINNOW_ERR_PROTOCOL = 11,   /* Something that is not a Winnow aggregator answered. */
	WINNOW_ERR_GPU = 12,        /* A GPU or its driver failed. The line names call and GPU. */
	WINNOW_ERR_MEMBERS = 13,    /* A worker is gone, silent or cut off. The line names it. */
};

/* Element types. The numbers never change. */
enum winnow_dtype {
	WINNOW_F32 = 1,
	WINNOW_F16 = 2,  /* Sums are computed in f32 and rounded once. */
	WINNOW_BF16 = 3, /* Sums are computed in f32 and rounded once. */
	WINNOW_F64 = 4,
	WINNOW_I32 = 5, /* Integers wrap around. */
	WINNOW_I64 = 6, /* Integers wrap around. */
};

/*
 * Reductions. A block that a worker does not send counts as zeros. The sign of a zero is not kept. The minimum or
 * maximum of a NaN and anything else is NaN. Averages of integers are truncated towards zero.
 */
enum winnow_op {
	WINNOW_SUM = 1,
	WINNOW_AVG = 2, /* The sum divided by the number of workers. */
	WINNOW_MIN = 3,
	WINNOW_MAX = 4,
	WINNOW_PROD = 5,
};

/*
 * How f32 travels. A "stretch" is up to 16,384 blocks for each of winnow_stats.channels, which share one scale. The
 * narrow forms (FIXED16, FIXED8, BF16) are for links that are too thin. With N workers and M the largest magnitude in
 * a stretch, a sum is off by at most
 *   FIXED16: N * 2^-13 * M
 *   FIXED8:  N * 2^-5 * M
 *   BF16:    2^-8 of the sum of magnitudes, and 2^-8 of itself.
 * A NaN or an infinity of any worker makes all sums of its stretch NaN with FIXED16 and FIXED8. With BF16 it adds up
 * as in f32. Tensors of about a datagram or less travel as f32. Operations on a GPU's memory refuse the narrow forms
 * with INVALID.
 */
enum winnow_wire {
	/*
	 * FIXED32 if all aggregators add it in the kernel and the tensor is larger than about four datagrams. NATIVE
	 * otherwise.
	 */
	WINNOW_WIRE_AUTO = 0,
	/* As f32. */
	WINNOW_WIRE_NATIVE = 1,
	/*
	 * As int32, scaled by the largest exponent of each segment. Sums are exact in integers, and the same bit for
	 * bit in whatever order data arrives. It applies to f32 with SUM or AVG; other types travel as they are.
	 * PROTOCOL.md, section 9, states the error.
	 */
	WINNOW_WIRE_FIXED32 = 2,
	/* As int16, scaled. Sums have 32 bits and are rounded once more to 16. */
	WINNOW_WIRE_FIXED16 = 3,
	/* As int8, scaled, for at most 256 workers. Sums have 16 bits and are rounded once more to 8. */
	WINNOW_WIRE_FIXED8 = 4,
	/* As bf16. Sums are computed in f32. */
	WINNOW_WIRE_BF16 = 5,
};

/* Whether others use the network; see docs/network.md, "Share a network". */
enum winnow_network {
	/*
	 * Others use the network. A worker slows down when it loses more than its path does at its best. Heavy loss
	 * for ten seconds ends the job (ABORTED), with a line that says so.
	 */
	WINNOW_NETWORK_SHARED = 0,
	/*
	 * Winnow alone uses the network. Queues may take milliseconds, so that links stay busy while hosts wait for a
	 * CPU, and a worker lets datagrams gather before it reads them, which saves CPU time. Loss slows a worker
	 * down only where something queues, and ends nothing.
	 */
	WINNOW_NETWORK_PRIVATE = 1,
};

/* How much the library tells a program; see `debug` in struct winnow_config. */
enum winnow_level {
	WINNOW_QUIET = 0, /* Nothing. */
	WINNOW_WARN = 1,  /* Why a call still waits, and probable mistakes. */
	WINNOW_INFO = 2,  /* Also how the worker has joined the job. */
};

struct winnow_comm;    /* A communicator: this worker's place in a job. */
struct winnow_request; /* An operation that has begun, and its result. */
struct winnow_rows;    /* A result in the form of a list of blocks. */

/*
 * The settings of a communicator. winnow_config_init() fills them in from three sources; later ones override earlier
 * ones:
 *   1. the defaults below;
 *   2. the file that WINNOW_CONFIG names (INI, "block = 128" under [winnow]), except for aggregators, job, rank, keys
 *      and the data path;
 *   3. the environment. The variable's name is in brackets, with the default. winnow bench has options of the same
 *      names.
 * Times are written as 10s, 500ms or 2m. Under a name that ends in _MS, or -ms in the file, a time is a plain number
 * of milliseconds. winnow_comm_create() copies the struct and its texts.
 */
struct winnow_config {
	/*
	 * The aggregators, "HOST:PORT[,HOST:PORT..]", the same on all workers. An IPv6 address is written
	 * "[fd00::1]:5555". If a name has several addresses, the first that answers is used. [WINNOW_AGGREGATORS]
	 */
	const char *aggregators;
	/*
	 * The job's name, "NAME", or "NAME/ID" for one membership of it. NAME and ID have 1 to 64 letters, digits,
	 * ".", "-" or "_" each. [WINNOW_JOB; "default"]
	 */
	const char *job;
	/* This worker's number, 0 to world - 1. [RANK; 0] */
	uint32_t rank;
	/* The number of workers in the job. [WORLD_SIZE; 1] */
	uint32_t world;
	/* The file of job keys: lines of "JOB KEY", or one KEY for all jobs. [WINNOW_KEY_FILE; NULL] */
	const char *key_file;
	/* The key itself. At least one of key and key_file is NULL. [WINNOW_KEY; NULL] */
	const char *key;
	/* 1 joins without a key. [WINNOW_INSECURE_NO_KEY; 0] */
	int insecure_no_key;
	/* The number of elements in a block, 1 to 65536. [WINNOW_BLOCK; 256] */
	uint32_t block;
	/*
	 * The form in which f32 travels: auto, f32, fixed32, fixed16, fixed8 or bf16. The last three are for thin links
	 * and round what they carry. [WINNOW_WIRE; auto]
	 */
	enum winnow_wire wire;
	/* The number of threads that scan tensors, the library's own included. [WINNOW_THREADS; 1] */
	uint32_t threads;
	/*
	 * A peer that is silent for this long is lost. The shortest time that any worker gives holds for all.
	 * [WINNOW_SILENCE; 10s]
	 */
	uint32_t silence_ms;
	/* The longest time that an operation waits for other workers. [WINNOW_TIMEOUT; 600s] */
	uint32_t timeout_ms;
	/*
	 * The longest time to wait for all workers to join. The default is longer than winnowd's own, because
	 * winnowd names the missing workers. [WINNOW_JOIN_TIMEOUT; 65s]
	 */
	uint32_t join_timeout_ms;
	/* Whether to use multicast where it works: 1 or 0. [WINNOW_MULTICAST; 1] */
	int multicast;
	/* The upper limit for datagrams, in bytes. 0 is what the path carries. [WINNOW_PAYLOAD; 0] */
	uint32_t payload;
	/*
	 * How datagrams travel: "udp" uses sockets, "dpdk" a port of DPDK. "dpdk" starts DPDK's environment once in this
	 * process. It allows one communicator at a time, and no forks. [WINNOW_DATAPATH; udp]
	 */
	const char *datapath;
	/* dpdk: the EAL arguments. By default they suit `device`. [WINNOW_EAL; NULL] */
	const char *eal;
	/* dpdk: the kernel's interface, or DPDK's name of the port. [WINNOW_DEVICE; NULL] */
	const char *device;
	/*
	 * dpdk: this worker's address on the port, "ADDR/BITS", of IPv4 or IPv6. By default it is the kernel's
	 * address on that interface. [WINNOW_DATA_ADDRESS; NULL]
	 */
	const char *data_address;
	/* dpdk: the router to addresses outside that network. By default there is none. [WINNOW_GATEWAY; NULL] */
	const char *gateway;
	/*
	 * A flag with which a signal handler or another thread ends a wait. If the pointer is not NULL,
	 * winnow_comm_create() reads the flag twenty times a second and gives up (ABORTED) when it is not 0. The flag
	 * belongs to the caller and must outlive the call. [NULL]
	 */
	const volatile int *give_up;
	/*
	 * The approximate pinned memory for tensors on GPUs, in MB for each GPU. The library takes at least as much as
	 * the job's windows need; winnow_stats.pinned_bytes shows it. [WINNOW_STAGING_MB; 64]
	 */
	uint32_t staging_mb;
	/*
	 * The class of this worker's datagrams, as switches know it (DSCP; RFC 2474): 0 to 63, or in the environment
	 * a name such as cs1, af21, ef or le. winnowd has an option for its own datagrams. [WINNOW_DSCP; 0]
	 */
	uint32_t dscp;
	/*
	 * Whether others use the network (shared), or Winnow alone does (private). With private, queues
	 * may grow and loss ends nothing. [WINNOW_NETWORK; shared]
	 */
	enum winnow_network network;
	/*
	 * The limit, in MB, of the memory that this worker reserves for the aggregators' op-slots, segments-ahead,
	 * threads and windows. It also limits the pinned memory for each GPU, unless staging_mb is larger. A job that
	 * needs more ends with MEMORY. [WINNOW_MEMORY_MB; 2048]
	 */
	uint32_t memory_mb;
	/*
	 * udp: this host's interface that leads to the aggregators, "eth1", or one of this host's addresses,
	 * "10.0.0.7". By default the system chooses. [WINNOW_INTERFACE; NULL]
	 */
	const char *interface;
	/*
	 * The highest level of the lines that go to stderr while `log` is NULL: off, warn or info.
	 * [WINNOW_DEBUG; off]
	 */
	enum winnow_level debug;
	/*
	 * The program's own function for lines of all levels: why a call still waits, and how the worker has joined.
	 * A line begins with the rank, "rank 1: ..", and has no line end. The text is only valid during
	 * the call. `log` runs in the thread that called winnow_comm_create(), winnow_comm_enter(),
	 * winnow_comm_reconfigure() or winnow_node_create(). Lines of winnow_comm_admit() only go to stderr. `log`
	 * must not call the library. [NULL]
	 */
	void (*log)(void *context, enum winnow_level level, const char *text);
	/* The first argument of `log`. [NULL] */
	void *log_context;
};

/* Where an operation's buffers are. */
enum winnow_memory {
	/* Both are in the memory of this process. */
	WINNOW_MEMORY_HOST = 0,
	/*
	 * Both are in the memory of one NVIDIA GPU. The order is:
	 *   The operation reads the tensor after the work that is now in options.stream. No stream waits.
	 *   The result is in the tensor when the request is done, and not before.
	 *   Work that is put into any stream after that finds it; winnow_stream_wait() tells CUDA so.
	 * This needs winnow-cuda.so beside the library, and a driver for the CUDA with which that was built. Streams
	 * that are being captured into a graph are refused (INVALID). The first operation on a GPU reserves pinned
	 * memory (staging_mb) and may wait for the GPU. Later ones reserve nothing and wait for nothing, however many
	 * are under way.
	 */
	WINNOW_MEMORY_CUDA = 1,
};

/* Details of one operation. All zero means the communicator's defaults. */
struct winnow_options {
	/*
	 * The tag matches this operation with those of the other workers, whatever their order. It is 1 to 2^63 - 1,
	 * and no operation that has not ended may have the same. 0 means that the operation matches by order with the
	 * other operations without a tag.
	 *
	 * Workers may run ahead by winnow_stats.op_slots operations (32, or winnowd's --op-slots) of the oldest that
	 * another worker waits for. More operations wait for a place, the oldest first.
	 */
	uint64_t tag;
	uint32_t block;            /* The number of elements in a block; 0: the communicator's. */
	enum winnow_wire wire;     /* The form in which f32 travels; AUTO: the communicator's. */
	enum winnow_memory memory; /* Where the buffers are. */
	void *stream;              /* With CUDA: a cudaStream_t; NULL: the GPU's default stream. */
	/*
	 * Operations with a higher number go first, and among equals the oldest. The others get a turn now and then.
	 * Workers need not give the same number, but it is best if they do.
	 */
	uint32_t priority;
	/*
	 * Error memory for f32 in main memory, or NULL: an array as long as `send`. If `wire` is narrower, the
	 * library adds the rounding errors of this worker's elements to it. It does not contain the rounding errors of
	 * the sums. The array belongs to the caller, and the library writes to it until the request is done.
	 */
	float *lost;
};

/*
 * Statistics of an operation. Block counts are exact for every type. The bytes on a GPU's bus are those that the
 * library moves; a list of rows is in this process's memory, so it has none.
 */
struct winnow_op_stats {
	uint64_t blocks;           /* Blocks in the tensor. */
	uint64_t blocks_nonzero;   /* Blocks that this worker sent. */
	uint64_t blocks_union;     /* Blocks that any worker sent, and that this one received. */
	uint64_t time_us;          /* Time from submission to completion. */
	uint64_t staged_out_bytes; /* Bytes of bitmaps and packed blocks that the GPU sent. */
	uint64_t staged_in_bytes;  /* Bytes of plans and sums that the GPU received. */
};

/* Totals of a communicator. Bytes are those of Ethernet frames: the UDP payload, and 42 of headers, or 62 with IPv6. */
struct winnow_stats {
	uint64_t sent_packets, sent_bytes;         /* What this worker sent. */
	uint64_t received_packets, received_bytes; /* What this worker received. */
	uint64_t retransmits;                      /* Packets that were sent again. */
	uint64_t nacks;        /* Times that this worker asked for something again. */
	uint64_t dropped;      /* Received packets of no use: duplicates and strays. */
	uint32_t payload;      /* UDP payload in use, in bytes. */
	uint32_t window;       /* The most frames in flight on one channel. */
	uint32_t channels;     /* The number of channels: data threads of all aggregators. */
	uint32_t multicast;    /* The number of aggregators whose results come by multicast. */
	uint32_t wire;         /* The enum winnow_wire that AUTO stands for. */
	uint32_t window_now;   /* Frames that may be in flight now, on all channels together. */
	uint64_t pinned_bytes; /* Pinned memory of the host for tensors on GPUs, in bytes. */

	/*
	 * The paths to the aggregators; see docs/network.md, "Share a network". Round trips are 0 until the first has
	 * been measured. retransmits / sent_packets estimates the loss of what is sent.
	 */
	uint32_t rtt_us;          /* The smoothed round trip of the slowest channel. */
	uint32_t rtt_least_us;    /* The shortest of the last 10 to 20 s, in the network alone. */
	uint64_t sent_marked;     /* Sent packets that a queue has marked (ECN). */
	uint64_t received_marked; /* Received packets that a queue has marked (ECN). */
	uint64_t received_lost;   /* Packets that did not come and were asked for. */
	uint64_t held_window_us;  /* How long window_now kept a channel from sending, on average. */
	uint64_t held_credit_us;  /* How long others' missing acknowledgements did so. */
	uint32_t op_slots; /* Operations that run at a time; more wait: winnow_options.tag. */
};

/*
 * winnow_config_init() fills *config with the defaults, the file of WINNOW_CONFIG and the environment.
 * Texts in *config point into the environment or into memory that the library keeps for the life of the process. A
 * wrong value in the file or the environment shows at winnow_comm_create(), unless the caller has replaced it.
 */
WINNOW_API void winnow_config_init(struct winnow_config *config);

/*
 * winnow_comm_create() joins the job on all aggregators.
 *   config: the settings. The library copies them, with their texts.
 *   comm: receives the communicator, which the caller destroys. NULL on failure; the aggregators then forget it too.
 * Blocks until every worker has joined, or for join_timeout_ms. It waits for aggregators that do not answer yet, or
 * whose names are not known yet: for three quarters of that time, at most 30 s.
 * Returns INVALID: *config, the key file or the file of WINNOW_CONFIG is wrong; MEMORY: memory_mb, or this host's
 * memory, does not suffice; SYSTEM: no socket or thread; UNREACHABLE: no aggregator answers there, or no route leads
 * to it; REFUSED: an aggregator does not take the key, rank, world or limits; PROTOCOL: no aggregator answers, but
 * something else; TIMEOUT: a worker has not joined; LOST, MEMBERS: an aggregator or a worker was lost meanwhile;
 * ABORTED: give_up is set, or a worker ended the job.
 */
WINNOW_API WINNOW_CHECK int winnow_comm_create(const struct winnow_config *config,
                                               struct winnow_comm **comm);

/*
 * winnow_comm_destroy() leaves the job and frees the communicator, with all its requests.
 *   comm: the communicator, or NULL. No other call on it may be running.
 * Operations that have not ended are aborted on all workers. Blocks for up to two seconds, until the aggregators
 * acknowledge.
 */
WINNOW_API void winnow_comm_destroy(struct winnow_comm *comm);

/* The workers that continue together; see winnow_comm_reconfigure(). A field that is zero means its default. */
struct winnow_membership {
	/*
	 * The membership's name: 1 to 64 letters, digits, ".", "-" or "_". All of its workers pass the same name.
	 * Each membership of a job needs a new name, even after a failure.
	 * NULL: the workers that are left after a failure continue, as the first aggregator decides, and `rank` is
	 * ignored.
	 */
	const char *id;
	uint32_t rank;  /* This worker's number in it, 0 to world - 1. */
	uint32_t world; /* The number of its workers; with id NULL, the least that may be left. */
	uint32_t join_timeout_ms; /* The longest time to wait for all, from now on; 0: as before. */
	const volatile int *give_up; /* A flag that ends the wait, as in struct winnow_config. */
};

/*
 * winnow_comm_reconfigure() leaves the present membership and forms another one.
 * The present membership may have ended or not. Operations that have not ended end with MEMBERS, here and on the
 * other workers. What one worker has completed is completed on all within two seconds, or fails there. Addresses, the
 * key and what the paths carry are kept. Operations without a tag are counted anew.
 *   membership: the workers of the next membership. The caller keeps it.
 *     With an id, the caller decides who they are: all that pass the same id, fewer or more workers or others, in any
 *     order. A newcomer creates its communicator with the job "NAME/ID".
 *     With id NULL, the first aggregator of the list decides: the workers that are left, in the order of their ranks.
 *     This needs a MEMBERS, a LOST or a TIMEOUT of joining before. winnow_comm_rank() and winnow_comm_world() have
 *     changed on return. The list of aggregators must be in the same order on all workers. If
 *     more workers or another aggregator are lost meanwhile, the rest continues. If the first aggregator is lost, all
 *     workers wait until it is back; it has stored nothing.
 * Blocks until every worker has come, or for join_timeout_ms. With id NULL it first waits for all workers that live
 * and have not called it, as long as an operation would. However many are lost meanwhile, it ends within timeout_ms +
 * 2 * silence_ms + 2 s until it is known who is left, and join_timeout_ms for these to come. A second call at the
 * same time waits for the first one.
 * Returns INVALID: *membership is impossible, the communicator has used its id before, or its id is NULL while the
 * membership has not ended; nothing was done. After any other error there is no membership, and the caller may call
 * again with another id. ABORTED: winnow_comm_abort() or give_up ended the call. (An abort before the call has ended
 * the previous membership instead.) Otherwise as winnow_comm_create(). With id NULL also:
 *   MEMBERS: fewer than `world` workers are left, or no aggregator can decide.
 *   LOST: the others continue without this worker. Or an operation's TIMEOUT has ended the job, because a worker
 *       lives and does not call this function.
 *   REFUSED: no worker is left that has the state of the job; see winnow_comm_hold().
 *   TIMEOUT: no membership has begun in time.
 */
WINNOW_API WINNOW_CHECK int winnow_comm_reconfigure(struct winnow_comm *comm,
                                                    const struct winnow_membership *membership);

/*
 * winnow_comm_enter() is winnow_comm_create() for a newcomer: a worker that is not yet a member of a job that runs, or
 * that will run.
 *   config: as for winnow_comm_create(). `job` is the job's name alone, and `world` is ignored. `rank` is the rank that
 *       the worker had, if it comes back, or else 0.
 *   comm: as for winnow_comm_create().
 * Blocks until the members call winnow_comm_admit(), or for join_timeout_ms. A newcomer that is let in has
 * join_timeout_ms once more to join. It then has the rank it named, if that is below the number of workers and no
 * other newcomer has it, or else a rank after those of the members. When it has received the state of the job, it
 * calls winnow_comm_hold().
 * Members of which none has the state do not continue.
 * Returns LOST: the members have gone on without it, and it may call again. TIMEOUT: nobody let it in. Otherwise as
 * winnow_comm_create().
 *
 * Workers that know no rank and no world: if this ends with TIMEOUT, winnow_comm_create() with rank 0 and world 1
 * founds the job. If that returns REFUSED, the job exists, or another worker was faster: call winnow_comm_enter()
 * again.
 */
WINNOW_API WINNOW_CHECK int winnow_comm_enter(const struct winnow_config *config,
                                              struct winnow_comm **comm);

/*
 * winnow_comm_hold() declares that this worker has the state of the job from now on. Workers that were members from
 * the beginning have it anyway. If all others are lost, this worker may then continue.
 */
WINNOW_API void winnow_comm_hold(struct winnow_comm *comm);

/*
 * winnow_comm_admit() lets newcomers in. It is a collective: all members call it at the same point of their order,
 * with no operation under way.
 *   most: the most newcomers to let in; 0 lets none in.
 *   came: receives the number of newcomers that have joined.
 * If no newcomer waits, it costs as much as an allreduce of one element. Otherwise all continue in another membership,
 * as after winnow_comm_reconfigure(). Newcomers have ranks after the members, or among them if they come back. Rank 0
 * was a member before.
 *
 * All also continue in another membership, with *came 0, in two cases. An aggregator drains (winnowd got SIGTERM): it
 * is left out, or, if it is the first, awaited until it has been restarted. Or an aggregator that was left out is
 * back. All members keep their ranks.
 *
 * Blocks as winnow_allreduce(), and then as winnow_comm_reconfigure(). Returns the errors of both. They leave no
 * membership; after MEMBERS and LOST, winnow_comm_reconfigure() continues.
 */
WINNOW_API WINNOW_CHECK int winnow_comm_admit(struct winnow_comm *comm, uint32_t most,
                                              uint32_t *came);

/*
 * winnow_comm_exit() calls winnow_comm_abort(), if status is not 0, and then winnow_comm_destroy().
 * It has the form that on_exit(3) takes. After on_exit(winnow_comm_exit, comm), exit(3) in a worker is a failure that
 * all others see at once, and exit(0) leaves the job. Blocks as winnow_comm_destroy().
 */
WINNOW_API void winnow_comm_exit(int status, void *comm);

/*
 * winnow_allreduce() reduces the tensors of all workers and gives the result to each: recv[i] is send[i] (op) the
 * other workers' send[i].
 *   send, recv: [count] elements, aligned for their type. They are equal (in place) or apart. The library only reads
 *       `send`.
 *   count, dtype, op: the number of elements, at most 2^48, their type and the reduction. All workers pass the same.
 * Blocks until the result is there. Returns, as every operation does:
 *   INVALID: an argument is impossible; nothing has begun.
 *   MEMORY: the memory is used up.
 *   MISMATCH: workers have called different operations, or with different arguments.
 *   TIMEOUT: another worker did not call it, or its data did not come, for timeout_ms.
 *   MEMBERS: a worker is lost, or the communicator moves to another membership.
 *   LOST, ABORTED, SYSTEM, PROTOCOL, GPU: see enum winnow_result. They have ended the membership.
 */
WINNOW_API WINNOW_CHECK int winnow_allreduce(const void *send, void *recv, uint64_t count,
                                             enum winnow_dtype dtype, enum winnow_op op,
                                             struct winnow_comm *comm);

/*
 * winnow_allreduce_async() begins a winnow_allreduce() and returns once it is queued.
 *   send, recv: both buffers belong to the library until the request is done, as winnow_wait() and winnow_test() say.
 *   options: details, or NULL. The library copies them.
 *   request: receives the request, which the caller passes to winnow_request_free(), before or after it is done. The
 *       library writes it before the operation begins: if it is not written, nothing has begun.
 * Returns INVALID or MEMORY if nothing has begun. On GPUs also MEMBERS or TIMEOUT, if the membership ends while the
 * first operation prepares the GPU, and GPU. All other results come from the request; BUSY there means that an
 * operation with this tag has not ended.
 */
WINNOW_API WINNOW_CHECK int winnow_allreduce_async(const void *send, void *recv, uint64_t count,
                                                   enum winnow_dtype dtype, enum winnow_op op,
                                                   const struct winnow_options *options,
                                                   struct winnow_comm *comm,
                                                   struct winnow_request **request);

/*
 * winnow_reduce_scatter() reduces the tensors of all workers and gives each worker its share: recv[i] is send[rank *
 * recv_count + i] (op) the other workers' send[rank * recv_count + i].
 *   send: [world * recv_count] elements, at most 2^48. The library only reads it.
 *   recv: [recv_count] elements. It is send + rank * recv_count (in place), or apart from `send`.
 *   recv_count, dtype, op: all workers pass the same. A worker that calls winnow_allreduce() meanwhile is a MISMATCH.
 * A worker receives no more than its share, except that small operations (up to about four datagrams in all) come as
 * a whole to all. Blocks until the result is there. Returns as winnow_allreduce().
 */
WINNOW_API WINNOW_CHECK int winnow_reduce_scatter(const void *send, void *recv, uint64_t recv_count,
                                                  enum winnow_dtype dtype, enum winnow_op op,
                                                  struct winnow_comm *comm);

/*
 * winnow_reduce_scatter_async() begins a winnow_reduce_scatter(). Buffers, request and results are as for
 * winnow_allreduce_async(). INVALID also means that options->memory is a GPU's.
 */
WINNOW_API WINNOW_CHECK int winnow_reduce_scatter_async(const void *send, void *recv,
                                                        uint64_t recv_count,
                                                        enum winnow_dtype dtype, enum winnow_op op,
                                                        const struct winnow_options *options,
                                                        struct winnow_comm *comm,
                                                        struct winnow_request **request);

/*
 * winnow_broadcast() copies the data of worker `root` to all workers, with every bit as it is.
 *   data: `bytes` bytes, aligned for 4. The library reads it on `root` and writes it on the others.
 *   bytes, root: a multiple of 4, and a rank. All workers pass the same, or get MISMATCH.
 * Blocks of zeros do not travel. Blocks until the data is there. Returns as winnow_allreduce().
 */
WINNOW_API WINNOW_CHECK int winnow_broadcast(void *data, uint64_t bytes, uint32_t root,
                                             struct winnow_comm *comm);

/*
 * winnow_broadcast_async() begins a winnow_broadcast(). Buffer, request and results are as for
 * winnow_allreduce_async(). options->wire does not matter. INVALID also means that options->memory is a GPU's.
 */
WINNOW_API WINNOW_CHECK int winnow_broadcast_async(void *data, uint64_t bytes, uint32_t root,
                                                   const struct winnow_options *options,
                                                   struct winnow_comm *comm,
                                                   struct winnow_request **request);

/*
 * winnow_allreduce_cuda() is an allreduce of buffers in a GPU's memory.
 *   stream: a cudaStream_t. The operation comes after the work that is in it now.
 *   request: NULL blocks until the result is there. Otherwise it is as for winnow_allreduce_async().
 * The other arguments and the results are as for winnow_allreduce().
 */
WINNOW_API WINNOW_CHECK int winnow_allreduce_cuda(const void *send, void *recv, uint64_t count,
                                                  enum winnow_dtype dtype, enum winnow_op op,
                                                  struct winnow_comm *comm, void *stream,
                                                  struct winnow_request **request);

/*
 * winnow_stream_wait() makes the work that is put into `stream` (a cudaStream_t) from now on come after the result of
 * `request`, which is done. It is an event of CUDA's, for programs and tools that look for one.
 * Returns OK, also for an empty tensor. INVALID: the request is not done, or was on no GPU. GPU: the driver failed.
 * If the request has failed, it returns the request's error.
 */
WINNOW_API WINNOW_CHECK int winnow_stream_wait(struct winnow_request *request, void *stream);

/* Selects the part of a gradient that winnow_topk() keeps. */
struct winnow_choice {
	uint64_t chunk; /* Elements to choose among, a multiple of block; fewer at the end. */
	uint64_t k;     /* The largest blocks of each chunk to send: 1 to chunk / block. */
	uint32_t block; /* Elements that are chosen together, by their largest: 1 to 1024; 0: 1. */
	float decay;    /* The share of the memory that is left after a step, 0 to 1. */
};

/*
 * winnow_topk() reduces a gradient to its largest elements: top-k with error feedback (Stich, Cordonnier and Jaggi
 * 2018). It sends nothing. To send the result, call winnow_allreduce_async() with options->block = choice->block, or
 * use a segment of tiles of 1 x block.
 *
 * It computes memory = decay * memory + gradient. The blocks that it chooses from the sum replace the gradient, which
 * is zero elsewhere. The memory keeps the rest for the next step, and also the errors of rounding to the gradient's
 * type. A shorter last chunk has a proportional k. Of equal blocks the first are chosen. Blocks with elements that are
 * not finite are sent in addition and not remembered, so that all workers see them.
 *   gradient: [count] elements of F32, F16 or BF16, in host memory.
 *   memory: [count] floats of the caller, zeros at first. Each tensor needs its own.
 *   choice: which part to send.
 *   taken: receives the number of elements that are chosen, or is NULL.
 * It needs no communicator. Returns INVALID: *choice is outside its limits, a buffer is NULL, or the dtype is
 * another one; nothing was done.
 */
WINNOW_API WINNOW_CHECK int winnow_topk(void *gradient, float *memory, uint64_t count,
                                        enum winnow_dtype dtype, const struct winnow_choice *choice,
                                        uint64_t *taken);

/* A part of a tensor that is made of rows. All fields count elements. */
struct winnow_segment {
	uint64_t offset, count; /* Where the segment begins in the tensor, and its length. */
	uint64_t row;           /* The length of a row; 0: no rows are known. */
	/*
	 * The height and width of a tile, at most 65536 elements in all. If they are not 0, the segment is a matrix
	 * of count / row rows, and a block is a tile of it. Then a matrix in which whole columns are zero costs only
	 * the other columns. Tiles at the lower and right edges may be smaller. A tile larger than the matrix is as
	 * high, or as wide, as the matrix. If both are 0, blocks are rows.
	 */
	uint32_t tile_rows, tile_columns;
};

/*
 * winnow_allreduce_segments_async() is winnow_allreduce_async() of a tensor that is made of several tensors, one
 * after the other, as in a bucket of gradients. Blocks begin where a segment's rows begin. A block is a row, or a
 * divisor or multiple of it, so that one row costs one row on the wire.
 *   segments: [segment_count] segments in ascending order, which do not overlap. Elements between them are reduced in
 *       blocks of the usual size. The caller may free the array on return. All workers pass the same segments, or get
 *       MISMATCH, unless the tensor is so small (about a datagram) that it travels without them.
 * Returns as winnow_allreduce_async(). INVALID also means: segments overlap or end outside the tensor; tiles are
 * too large or in a GPU's memory (rows are fine there), or count is not a multiple of row.
 */
WINNOW_API WINNOW_CHECK int
winnow_allreduce_segments_async(const void *send, void *recv, uint64_t count,
                                enum winnow_dtype dtype, enum winnow_op op,
                                const struct winnow_segment *segments, uint32_t segment_count,
                                const struct winnow_options *options, struct winnow_comm *comm,
                                struct winnow_request **request);

/*
 * winnow_allreduce_sparse_block() is an allreduce to which this worker gives a list of blocks. Block i is the
 * block_length elements from send[i * block_length] on. It lies at element recv_index[i] of a tensor that is zero
 * elsewhere. No tensor is scanned. All listed blocks travel, with their zeros, and no others. (The announcement covers
 * the whole tensor: some 130 bytes for each 16,384 blocks that nobody has.)
 *   send: [block_count * block_length] elements. It is apart from `recv`, and the library only reads it.
 *   recv_index: [block_count] different multiples of block_length. Ascending order saves a copy.
 *   block_count: this worker's own; 0 is fine.
 *   block_length: 1 to 65536. A worker that calls winnow_allreduce() with block = block_length also takes part.
 *   recv: [recv_count] elements, which receive the whole result.
 * Everything is in this process's memory, not in a GPU's. All workers pass the same block_length, recv_count, dtype
 * and op. Blocks until the result is there. Returns as winnow_allreduce().
 */
WINNOW_API WINNOW_CHECK int
winnow_allreduce_sparse_block(const void *send, const int64_t *recv_index, uint64_t block_count,
                              uint64_t block_length, void *recv, uint64_t recv_count,
                              enum winnow_dtype dtype, enum winnow_op op, struct winnow_comm *comm);

/*
 * winnow_allreduce_sparse_block_async() begins a winnow_allreduce_sparse_block(). The caller may free recv_index on
 * return. send, recv, request and results are as for winnow_allreduce_async().
 */
WINNOW_API WINNOW_CHECK int
winnow_allreduce_sparse_block_async(const void *send, const int64_t *recv_index,
                                    uint64_t block_count, uint64_t block_length, void *recv,
                                    uint64_t recv_count, enum winnow_dtype dtype, enum winnow_op op,
                                    const struct winnow_options *options, struct winnow_comm *comm,
                                    struct winnow_request **request);

/*
 * winnow_allreduce_rows_async() is winnow_allreduce_sparse_block_async() with a list as result, so that no worker ever
 * holds the whole tensor.
 *   recv_count: the elements of the whole tensor, a multiple of block_length.
 *   options: as for winnow_allreduce_async(), but `block` is ignored.
 *   rows: receives the list. The caller may read it when the request has ended with OK, and passes it to
 *       winnow_rows_free() at any time. NULL on failure.
 */
WINNOW_API WINNOW_CHECK int
winnow_allreduce_rows_async(const void *send, const int64_t *recv_index, uint64_t block_count,
                            uint64_t block_length, uint64_t recv_count, enum winnow_dtype dtype,
                            enum winnow_op op, const struct winnow_options *options,
                            struct winnow_comm *comm, struct winnow_rows **rows,
                            struct winnow_request **request);

/* winnow_rows_count() returns the number of blocks in the result: those that any worker gave. */
WINNOW_API uint64_t winnow_rows_count(const struct winnow_rows *rows);

/*
 * winnow_rows_read() copies the result, block by block in ascending order.
 *   index: [winnow_rows_count()] numbers, which receive each block's number in the tensor, not its first element.
 *   values: [winnow_rows_count() * block_length] elements.
 */
WINNOW_API void winnow_rows_read(const struct winnow_rows *rows, int64_t *index, void *values);

/*
 * winnow_rows_free() frees the list and sets *rows to NULL. *rows may be NULL. The library keeps what an operation
 * that has not ended still needs.
 */
WINNOW_API void winnow_rows_free(struct winnow_rows **rows);

/*
 * winnow_wait() waits until the request is done.
 *   timeout_ms: the longest wait; negative: as long as it takes. The communicator's own time limits hold.
 *   stats: receives statistics of the operation, or is NULL. A call that times out does not touch it.
 * Blocks until the request is done, or for timeout_ms. Returns the operation's result, the same each time and to any
 * number of threads. TIMEOUT: the operation is not done yet, and continues. INVALID: the request is NULL.
 */
WINNOW_API WINNOW_CHECK int winnow_wait(struct winnow_request *request, int64_t timeout_ms,
                                        struct winnow_op_stats *stats);

/*
 * winnow_test() tells whether the request is done, without waiting.
 *   done: receives 1 or 0. stats: as for winnow_wait().
 * Returns OK while the request is not done, and then what winnow_wait() returns.
 */
WINNOW_API WINNOW_CHECK int winnow_test(struct winnow_request *request, int *done,
                                        struct winnow_op_stats *stats);

/*
 * winnow_request_free() frees the request and sets *request to NULL. *request may be NULL. No other call on the
 * request may be running.
 * If the operation has not ended, the library keeps the request and the buffers until it has. The result is then
 * dropped: a failure does not end the communicator. winnow_comm_destroy() frees all requests that are left.
 */
WINNOW_API void winnow_request_free(struct winnow_request **request);

/* winnow_comm_check() returns OK, or the error that has ended the communicator. winnow_last_error() has the line. */
WINNOW_API WINNOW_CHECK int winnow_comm_check(struct winnow_comm *comm);

/*
 * winnow_comm_abort() ends every operation on every worker, or a winnow_comm_reconfigure() that runs. `text` is the
 * reason for the workers, or NULL. It does not wait for them.
 */
WINNOW_API void winnow_comm_abort(struct winnow_comm *comm, const char *text);

/* winnow_strerror() returns a result in words, such as "workers do not agree ...", and never NULL. */
WINNOW_API const char *winnow_strerror(int result);

/*
 * winnow_comm_error() returns a line about this communicator's last failure, or "". The text belongs to the library
 * and is valid until the same thread calls the function again.
 */
WINNOW_API const char *winnow_comm_error(struct winnow_comm *comm);

/*
 * winnow_last_error() returns a line about the last failure of any call in the calling thread. The text belongs to the
 * library and is valid until the thread's next failure.
 */
WINNOW_API const char *winnow_last_error(void);

/*
 * winnow_comm_stats() copies the totals to *stats. They are those of the moment when no operation was left under way,
 * or at most about 10 ms old. It never waits.
 */
WINNOW_API void winnow_comm_stats(struct winnow_comm *comm, struct winnow_stats *stats);

/*
 * winnow_comm_late() names the worker that this worker's operation has been waiting for, for some seconds: "waiting in
 * operation #7 for rank 3 (host): in no operation for 8 s".
 * It returns "" if there is none, or on workers other than the first that waits. The text belongs to the library and
 * is valid until the same thread calls the function again. It never waits.
 */
WINNOW_API const char *winnow_comm_late(struct winnow_comm *comm);

/*
 * winnow_comm_say() sets a text for people, which `winnow status --workers` shows beside this worker: up to 63
 * characters, or "". It appears with the next ping, within a quarter of the silence time.
 */
WINNOW_API void winnow_comm_say(struct winnow_comm *comm, const char *text);

/* These return this worker's rank and the number of workers, in the present membership. */
WINNOW_API uint32_t winnow_comm_rank(const struct winnow_comm *comm);
WINNOW_API uint32_t winnow_comm_world(const struct winnow_comm *comm);

/*
 * ---- Several GPUs in a node ----
 *
 * A node's GPUs are one worker. NCCL adds up their tensors inside the node, each GPU sends its share of the sum
 * through Winnow, and NCCL gives all shares to all GPUs. So the network sees one worker for each node, which needs
 * fewer bytes than one for each GPU.
 *
 * One process has all GPUs of its node, or one of them. All nodes are alike in this and have the same number of GPUs.
 * The library opens NCCL 2.18 or newer at run time: libnccl.so.2, or what WINNOW_NCCL names.
 *
 *     one process of the node: winnow_node_id_make(&id), and give it to the node's other processes
 *     config.rank = node; config.world = nodes;
 *     struct winnow_node_config node_config = {&config, id, gpus_of_the_node, local_rank, 1, &gpu};
 *     err = winnow_node_create(&node_config, &node);
 *     err = winnow_node_allreduce(&grad, &grad, count, WINNOW_F32, WINNOW_SUM, &stream, node);
 *     winnow_node_destroy(node);
 *
 * Threads: any thread may call any function. As with NCCL, all processes of all nodes make the same calls in the same
 * order. The library starts one more thread for each node, which makes all calls of NCCL.
 *
 * Errors: a failure on one GPU ends all nodes. NCCL's work is aborted, requests fail, and every later call returns the
 * error, on every process.
 */
struct winnow_node;

/* An id that connects the processes of one node. */
struct winnow_node_id {
	char bytes[128];
};

/* The settings of a node. */
struct winnow_node_config {
	/*
	 * As for winnow_comm_create(), but rank and world count nodes. The jobs' names begin with `job`, at most 57
	 * characters: "NAME.gG-g" is that of GPU g in nodes of G, and "NAME.gG" has all processes.
	 */
	const struct winnow_config *config;
	struct winnow_node_id id; /* The same in all processes of a node; new for each. */
	uint32_t local_world; /* The number of GPUs of the node, 1 to 64; the same on all nodes. */
	uint32_t local_rank;  /* This process's GPU in the node, from 0; of several, the first. */
	uint32_t gpu_count;   /* The number of this process's GPUs: 1, or local_world. */
	const int *gpus;      /* [gpu_count] CUDA's device numbers. */
};

/*
 * winnow_node_id_make() draws an id into *out. One process of each node calls it, before all of them call
 * winnow_node_create(). Returns INVALID: there is no NCCL or no winnow-cuda.so; GPU: NCCL failed.
 */
WINNOW_API WINNOW_CHECK int winnow_node_id_make(struct winnow_node_id *out);

/*
 * winnow_node_create() joins the jobs of a node.
 *   config: the settings. The library copies them.
 *   node: receives the node, which the caller destroys. NULL on failure.
 * Blocks until all GPUs of all nodes have joined, or for join_timeout_ms. Returns as winnow_comm_create(). INVALID also
 * means that there is no NCCL or no winnow-cuda.so. GPU: a GPU or NCCL failed.
 */
WINNOW_API WINNOW_CHECK int winnow_node_create(const struct winnow_node_config *config,
                                               struct winnow_node **node);

/*
 * winnow_node_destroy() frees the node, with all its requests.
 *   node: the node, or NULL. No other call on it may be running.
 * Blocks for up to two seconds for operations that have not ended, and then aborts them on all nodes.
 */
WINNOW_API void winnow_node_destroy(struct winnow_node *node);

/* winnow_node_exit() is winnow_comm_exit() of a node. Blocks as winnow_node_destroy(). */
WINNOW_API void winnow_node_exit(int status, void *node);

/*
 * winnow_node_allreduce() reduces the tensors of all GPUs of all nodes: recv[g][i] is the (op) of all their send[i],
 * for each GPU g of this process.
 *   send, recv: [gpu_count] pointers to [count] elements in the memory of gpus[g]. send[g] and recv[g] are equal or
 *       apart. The library only reads `send`.
 *   count, dtype, op: as for winnow_allreduce(). AVG divides by all GPUs of all nodes.
 *   streams: [gpu_count] cudaStream_t. The operation comes after the work that is now in streams[g].
 * Inside a node NCCL reduces, in the type itself. It rounds 16-bit floats at each step, and MIN and MAX of a NaN may
 * be either. Blocks until the result is there. Returns as winnow_allreduce(). INVALID also means an AVG of integers.
 */
WINNOW_API WINNOW_CHECK int winnow_node_allreduce(const void *const send[], void *const recv[],
                                                  uint64_t count, enum winnow_dtype dtype,
                                                  enum winnow_op op, void *const streams[],
                                                  struct winnow_node *node);

/*
 * winnow_node_allreduce_async() begins a winnow_node_allreduce(). Operations happen one after the other, and no call
 * waits for those before it.
 *   segments: [segment_count] as for winnow_allreduce_segments_async(), in elements of the whole tensor and the same on
 *       all GPUs of all nodes. NULL and 0: none. A row that lies in the shares of two GPUs is cut there.
 *   options: as for winnow_allreduce_async(), but `memory` and `stream` are ignored.
 *   request: is done when all GPUs of this process have the result. Any stream then finds it, so winnow_stream_wait()
 *       is not needed. Its statistics add up this process's GPUs. winnow_node_destroy() frees all requests that are
 *       left.
 * Buffers and results are as for winnow_allreduce_async(). The caller may free the arrays on return.
 */
WINNOW_API WINNOW_CHECK int
winnow_node_allreduce_async(const void *const send[], void *const recv[], uint64_t count,
                            enum winnow_dtype dtype, enum winnow_op op,
                            const struct winnow_segment *segments, uint32_t segment_count,
                            void *const streams[], const struct winnow_options *options,
                            struct winnow_node *node, struct winnow_request **request);

/* winnow_node_check() returns OK, or the error that has ended the node. winnow_last_error() has the line. */
WINNOW_API WINNOW_CHECK int winnow_node_check(struct winnow_node *node);

/* winnow_node_abort() ends every operation on every node. `text` is the reason for them, or NULL. */
WINNOW_API void winnow_node_abort(struct winnow_node *node, const char *text);

/* winnow_node_stats() copies the totals of this process's communicators, added up, to *stats. */
WINNOW_API void winnow_node_stats(struct winnow_node *node, struct winnow_stats *stats);

/* These return the library's version, such as "0.1.0", and its WINNOW_ABI_VERSION. */
WINNOW_API const char *winnow_version(void);
WINNOW_API int winnow_abi_version(void);

#ifdef __cplusplus
}
#endif

#endif /* WINNOW_H */
