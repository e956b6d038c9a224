/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * winnow.h - allreduce of tensors of which only the non-zero blocks travel
 *
 * Workers of one job open a communicator to the same aggregators (winnowd) and call the same
 * operations, as with NCCL or MPI. Each worker's tensor is cut into blocks; those that hold a non-zero
 * value are sent, added up by the aggregators and streamed back. Dense tensors need no special call.
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
 * Threads: any thread may call any function; calls on one communicator may be made at the same time,
 * but not beside winnow_comm_destroy(). Operations that match by order (no tag) should then come from one
 * thread, and those that begin while a communicator moves to another membership end with MEMBERS. The library
 * starts one thread a communicator. It never exits or aborts, and prints nothing but what WINNOW_DEBUG asks
 * for, why a trace (WINNOW_TRACE=FOLDER, for winnow tune) cannot begin or has ended early, and, once,
 * that every user of the machine may read the key file.
 *
 * Errors are values of enum winnow_result. Where other workers or aggregators are concerned,
 * winnow_comm_error() has one line that says what happened, to whom, and what to do. After any error
 * but INVALID, BUSY, a timed-out winnow_wait(), and MEMORY from a call that begins an operation
 * (which has not begun then: the others wait for it), the membership has ended, on all workers: call
 * winnow_comm_reconfigure() to continue in another one, without those that are lost, or destroy the
 * communicator. MEMBERS is the error after which the others can continue.
 *
 * A fork's child must not use a communicator of its parent: its calls return INVALID, or do nothing.
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

/* Raised when a program built against an older header would no longer work; part of the library's name. */
#define WINNOW_ABI_VERSION 10

enum winnow_result {
	WINNOW_OK = 0,
	WINNOW_ERR_INVALID = 1,     /* an argument is impossible; nothing was done */
	WINNOW_ERR_MEMORY = 2,      /* out of memory */
	WINNOW_ERR_SYSTEM = 3,      /* the system refused a socket or a thread */
	WINNOW_ERR_UNREACHABLE = 4, /* no aggregator answers there */
	WINNOW_ERR_REFUSED = 5,     /* an aggregator refused us: key, rank, world, limits */
	WINNOW_ERR_MISMATCH = 6,    /* workers differ in call, count, type, layout or operation */
	WINNOW_ERR_LOST = 7,        /* an aggregator is gone */
	WINNOW_ERR_ABORTED = 8,     /* some worker's winnow_comm_abort(), or heavy loss */
	WINNOW_ERR_TIMEOUT = 9,     /* waited as long as the configuration allows */
	WINNOW_ERR_BUSY = 10,       /* an operation with this tag is under way */
	WINNOW_ERR_PROTOCOL = 11,   /* something that is not a Winnow aggregator answered */
	WINNOW_ERR_GPU = 12,        /* a GPU or its driver failed; the line names call and GPU */
	WINNOW_ERR_MEMBERS = 13,    /* a worker is gone, silent or cut off; the line names it */
};

/* Element types; the numbers never change. */
enum winnow_dtype {
	WINNOW_F32 = 1,
	WINNOW_F16 = 2,  /* summed in f32, rounded once */
	WINNOW_BF16 = 3, /* likewise */
	WINNOW_F64 = 4,
	WINNOW_I32 = 5, /* integers wrap */
	WINNOW_I64 = 6,
};

/*
 * Operations. A block that a worker does not send counts as zeros. The sign of a zero is not kept. Minimum
 * and maximum of a NaN and anything are NaN. Averages of integers are truncated towards zero.
 */
enum winnow_op {
	WINNOW_SUM = 1,
	WINNOW_AVG = 2, /* the sum, divided by the number of workers */
	WINNOW_MIN = 3,
	WINNOW_MAX = 4,
	WINNOW_PROD = 5,
};

/* How f32 travels. */
enum winnow_wire {
	/*
	 * FIXED32 where all aggregators add it in the kernel, but for tensors of up to about
	 * four datagrams; else NATIVE.
	 */
	WINNOW_WIRE_AUTO = 0,
	WINNOW_WIRE_NATIVE = 1,
	/*
	 * As int32, scaled by the largest exponent of each segment: sums are exact in integers
	 * and bit for bit the same whatever the order of arrival. Only f32 with SUM or AVG;
	 * other types travel as they are. Error: PROTOCOL.md section 9.
	 */
	WINNOW_WIRE_FIXED32 = 2,
	/*
	 * Narrower, for links that are too thin: as int16 or int8, scaled likewise and summed in
	 * twice as many bits, the sum rounded once more to 16 or 8; or as bf16, summed in f32.
	 * With N workers and M the largest magnitude in a stretch (up to 16,384 blocks for each of
	 * winnow_stats.channels, which share one scale), a sum is off by at most N * 2^-13 * M
	 * (FIXED16), N * 2^-5 * M (FIXED8; at most 256 workers), or 2^-8 of the sum of magnitudes
	 * and 2^-8 of itself (BF16). A NaN or an infinity of any worker makes all sums of its
	 * stretch NaN with the integers; with BF16 it adds up as in f32. Tensors of about a
	 * datagram or less travel as f32. Not of GPUs' tensors: WINNOW_ERR_INVALID.
	 */
	WINNOW_WIRE_FIXED16 = 3,
	WINNOW_WIRE_FIXED8 = 4,
	WINNOW_WIRE_BF16 = 5,
};

/* Whose network it is: docs/network.md, "Share a network". */
enum winnow_network {
	/* Others use it. Loss beyond what a path has at its best slows a worker down, and heavy loss
	   for ten seconds ends the job (ABORTED), with a line that says so. */
	WINNOW_NETWORK_SHARED = 0,
	/* Winnow's alone. Queues may take milliseconds, so that links stay busy while hosts wait for
	   a CPU; loss slows a worker down only where something queues, and ends nothing. */
	WINNOW_NETWORK_PRIVATE = 1,
};

/* How much a program is told; see struct winnow_config. */
enum winnow_level {
	WINNOW_QUIET = 0,
	WINNOW_WARN = 1, /* why a call still waits, and what looks like a mistake */
	WINNOW_INFO = 2, /* and how the job was joined */
};

struct winnow_comm;
struct winnow_request;
struct winnow_rows;

/*
 * What a communicator needs. winnow_config_init() fills in the defaults below, then the settings of the
 * file that WINNOW_CONFIG names (INI, "block = 128" under [winnow]: how to reduce, not with whom), then
 * those of the environment (name in brackets; the same names as the options of winnow bench). Times are
 * written as 10s, 500ms or 2m; under a name that ends in _MS, or -ms in the file, as a plain number.
 * winnow_comm_create() copies the texts.
 */
struct winnow_config {
	/*
	 * "HOST:PORT[,HOST:PORT..]", the same on all workers; an IPv6 address as "[fd00::1]:5555". Of a
	 * name that has several addresses the first that answers is taken. [WINNOW_AGGREGATORS]
	 */
	const char *aggregators;
	/* "NAME", or "NAME/ID" for a membership: of each 1 to 64 letters, digits, ".-_" [WINNOW_JOB; "default"] */
	const char *job;
	uint32_t rank;         /* 0 .. world - 1 [RANK; 0] */
	uint32_t world;        /* workers of the job [WORLD_SIZE; 1] */
	const char *key_file;  /* [WINNOW_KEY_FILE; NULL] */
	const char *key;       /* the key itself; one of the two is NULL [WINNOW_KEY; NULL] */
	int insecure_no_key;   /* 1: join without a key [WINNOW_INSECURE_NO_KEY; 0] */
	uint32_t block;        /* elements of a block, 1 .. 65536 [WINNOW_BLOCK; 256] */
	enum winnow_wire wire; /* [WINNOW_WIRE; auto] */
	uint32_t threads; /* that scan tensors, the library's own included [WINNOW_THREADS; 1] */
	/* a peer that is silent so long is lost; the shortest of all workers holds [WINNOW_SILENCE; 10s] */
	uint32_t silence_ms;
	uint32_t
		timeout_ms; /* an operation may wait so long for other workers [WINNOW_TIMEOUT; 600s] */
	/* for all workers to join; by default longer than winnowd's, which names who is missing
	   [WINNOW_JOIN_TIMEOUT; 65s] */
	uint32_t join_timeout_ms;
	int multicast; /* 0: do not use multicast even where it works [WINNOW_MULTICAST; 1] */
	uint32_t
		payload; /* most bytes of a datagram; 0: what the path carries [WINNOW_PAYLOAD; 0] */

	/*
	 * Which road datagrams take: "udp", sockets; or "dpdk", a port of DPDK's. The latter
	 * starts DPDK's environment in this process, once: one communicator at a time, and not
	 * in one that forks. [WINNOW_DATAPATH; udp]
	 */
	const char *datapath;
	const char *eal;    /* dpdk: EAL arguments; NULL: suits `device` [WINNOW_EAL; NULL] */
	const char *device; /* dpdk: kernel interface, or name of the port [WINNOW_DEVICE; NULL] */
	/*
	 * dpdk: our "ADDR/BITS" on it, of IPv4 or IPv6; NULL: the kernel's on that interface
	 * [WINNOW_DATA_ADDRESS]
	 */
	const char *data_address;
	const char *gateway; /* dpdk: for addresses beyond; NULL: none [WINNOW_GATEWAY; NULL] */

	/*
	 * Not NULL: winnow_comm_create() looks at it twenty times a second, and gives up (ABORTED)
	 * when it is not 0: for a signal handler, or another thread. [NULL]
	 */
	const volatile int *give_up;
	/* Pinned memory for tensors on a GPU, about, in MB for each GPU; it is at least what the job's
	   windows need: see winnow_stats.pinned_bytes [WINNOW_STAGING_MB; 64] */
	uint32_t staging_mb;
	/* Class of our datagrams, 0 .. 63, as switches know it (DSCP; RFC 2474). winnowd has an option
	   for its own. [WINNOW_DSCP; 0, also by name: cs1, af21, ef, le] */
	uint32_t dscp;
	enum winnow_network network; /* [WINNOW_NETWORK; shared] */
	/* The limit, in MB, of the memory that the aggregators' op-slots, segments-ahead, threads and
	   windows make this worker reserve; and of the pinned memory for each GPU, unless staging_mb is
	   more. A job that needs more ends with MEMORY. [WINNOW_MEMORY_MB; 2048] */
	uint32_t memory_mb;
	/* udp: the interface of this host that leads to the aggregators, "eth1", or an address of its
	   own, "10.0.0.7"; NULL: the system chooses. [WINNOW_INTERFACE; NULL] */
	const char *interface;
	/*
	 * The library tells `log` why a call still waits, and how it has joined: a line of any level, which
	 * begins with the rank, "rank 1: ..", and has no line end. If `log` is NULL, lines of levels up to
	 * `debug` go to stderr. Only winnow_comm_create(), winnow_comm_enter(), winnow_comm_reconfigure() and
	 * winnow_node_create() call it, in the thread that called them; lines of winnow_comm_admit() go to
	 * stderr alone. It must not call the library. [WINNOW_DEBUG=warn or info; quiet]
	 */
	enum winnow_level debug;
	void (*log)(void *context, enum winnow_level level, const char *text);
	void *log_context;
};

/* Where an operation's buffers are. */
enum winnow_memory {
	WINNOW_MEMORY_HOST = 0,
	/*
	 * Both in the memory of one NVIDIA GPU. The order that a caller gets:
	 *   The operation takes the tensor as what is now in options.stream leaves it; no stream waits for it.
	 *   Its result is in the tensor when the request is done, and not before.
	 *   What is put into any stream after that finds it: winnow_stream_wait() says so to CUDA.
	 * Needs winnow-cuda.so beside the library and a driver for the CUDA with which that was built.
	 * Streams that are being captured into a graph are refused (INVALID). The first operation on a GPU
	 * reserves pinned memory (staging_mb), and may wait for what the GPU does; later ones reserve and
	 * wait for nothing, however many are under way.
	 */
	WINNOW_MEMORY_CUDA = 1,
};

/* Details of one operation; all zero means the communicator's defaults. */
struct winnow_options {
	/*
	 * Matches this operation with the other workers', whatever the order of submission, as
	 * long as workers do not submit more than winnow_stats.op_slots of them (32, or winnowd's
	 * --op-slots) before the oldest that another worker waits for: more wait for a place, the
	 * oldest first. 1 .. 2^63 - 1, unique among the operations under way. 0: matched by order
	 * with the other operations that have no tag.
	 */
	uint64_t tag;
	uint32_t block;        /* elements; 0: the communicator's */
	enum winnow_wire wire; /* AUTO: the communicator's */
	enum winnow_memory memory;
	void *stream; /* CUDA: a cudaStream_t; NULL: the GPU's default stream */
	/*
	 * Of the operations under way at a time, those with higher numbers go first, and the oldest
	 * of those with the same. Others get a turn now and then. It is best if all workers say
	 * the same, but they need not.
	 */
	uint32_t priority;
	/*
	 * Of f32 in main memory: where `wire` is narrower, what rounding takes from this worker's
	 * elements before they are sent is added to these, as many as are sent: error memory. What
	 * the sums lose on their way back is in no worker's. NULL: nobody wants to know.
	 */
	float *lost;
};

/*
 * What one operation was and cost; block counts are exact, whatever the type. Of a GPU's bus the
 * library counts what it moves itself: of a list of rows, which is in this process's memory, nothing.
 */
struct winnow_op_stats {
	uint64_t blocks;         /* in the tensor */
	uint64_t blocks_nonzero; /* that this worker sent */
	uint64_t blocks_union;   /* that any worker sent, and this one received */
	uint64_t time_us;        /* from submission to completion */
	/* That a GPU sent over its bus: bitmaps and packed blocks; and received: plans and sums. */
	uint64_t staged_out_bytes;
	uint64_t staged_in_bytes;
};

/* Totals of a communicator. Bytes are of Ethernet frames: UDP payload and 42 of headers. */
struct winnow_stats {
	uint64_t sent_packets, sent_bytes;
	uint64_t received_packets, received_bytes;
	uint64_t retransmits; /* packets sent again */
	uint64_t nacks;       /* times that something was asked for again */
	uint64_t dropped;     /* received and of no use: duplicates, strays */
	uint32_t payload;     /* UDP payload bytes in use */
	uint32_t window;      /* frames, per channel */
	uint32_t channels;
	uint32_t multicast;    /* aggregators whose results come by multicast */
	uint32_t wire;         /* enum winnow_wire that AUTO stands for */
	uint32_t window_now;   /* frames that may be under way now, on all channels */
	uint64_t pinned_bytes; /* of the host's memory, for tensors on GPUs */

	/*
	 * What is seen of the paths to the aggregators; docs/network.md, "Share a network". Round trips
	 * are 0 before the first was measured; what is sent again, of what was sent, is lost.
	 */
	uint32_t rtt_us;                       /* smoothed, of the slowest channel */
	uint32_t rtt_least_us;                 /* the shortest ever, of all, in the network alone */
	uint64_t sent_marked, received_marked; /* packets that a queue has marked (ECN) */
	uint64_t received_lost;                /* packets that did not come and were asked for */
	uint64_t held_window_us; /* so long window_now kept a channel from sending, on average; */
	uint64_t held_credit_us; /* and so long some worker that has not acknowledged */
	uint32_t
		op_slots; /* operations that are under way at a time; more wait (winnow_options.tag) */
};

/* winnow_config_init - defaults and environment. Keeps pointers into the environment. */
WINNOW_API void winnow_config_init(struct winnow_config *config);

/*
 * winnow_comm_create - join the job on all aggregators. Blocks until every worker has joined or
 * join_timeout_ms has passed; aggregators that are not there yet, or whose names are not known yet, are
 * waited for, up to 30 s and three quarters of that time. On failure *comm is NULL, nothing is left of
 * it at the aggregators, and winnow_last_error() says why.
 */
WINNOW_API WINNOW_CHECK int winnow_comm_create(const struct winnow_config *config,
                                               struct winnow_comm **comm);

/*
 * winnow_comm_destroy - leave the job. Operations still under way are aborted on all workers. Waits up
 * to two seconds for acknowledgements. Its requests go with it. NULL is fine. No other call on the
 * communicator may be running.
 */
WINNOW_API void winnow_comm_destroy(struct winnow_comm *comm);

/* Who continues together: see winnow_comm_reconfigure(). All zero but these means the defaults. */
struct winnow_membership {
	/*
	 * Its name: letters, digits, ".-_", with the job's name at most 63. All its workers pass the same; each
	 * membership of a job has another, whatever has become of those before. NULL: those who are left
	 * after a failure continue, as the first aggregator says; `rank` is ignored then.
	 */
	const char *id;
	uint32_t rank;            /* in it: 0 .. world - 1 */
	uint32_t world;           /* workers in it; of those who are left, how many there must be */
	uint32_t join_timeout_ms; /* from now on; 0: as before */
	const volatile int *give_up; /* as in struct winnow_config */
};

/*
 * winnow_comm_reconfigure - leave the present membership, running or ended, and form another one with all
 * that pass the same id: fewer workers, more, or others, in any order. The caller decides who they are;
 * a newcomer creates its communicator with the job "NAME/ID". Operations still under way end with MEMBERS,
 * here and on the other workers; what has been done on one worker is done on all within two seconds, or
 * fails there. Blocks until every worker has come or join_timeout_ms has passed. INVALID: nothing was done;
 * also for an id that this communicator has used before. After another failure there is no membership: call it again, with
 * another id. Addresses, key and what the paths carry are kept from before; operations without a tag are
 * counted anew. A second call at the same time waits for the first one. winnow_comm_abort() ends this call with
 * ABORTED, unless it was called before: then it has ended the membership of before.
 *
 * With id NULL, after MEMBERS, LOST or a TIMEOUT of joining, nobody has to decide: the first aggregator of the list says
 * who is left, in the order of their ranks; winnow_comm_rank() and winnow_comm_world() have changed on return. All who
 * live and have not called it are waited for, as long as an operation would wait for them. If more are lost meanwhile,
 * or another aggregator, the rest continues. If the first aggregator is lost, all workers wait until it is back; it has
 * stored nothing. MEMBERS: fewer than `world` are left, or nobody says who is left. LOST: the others have gone on without
 * this worker, or an operation's TIMEOUT has ended the job, since a worker lives and does not call it. REFUSED: nobody is
 * left that has the state of the job, see winnow_comm_hold(). However many are lost meanwhile, all of it ends within
 * timeout_ms + 2 * silence_ms + 2 s, until it is known who is left, and join_timeout_ms for these to come; TIMEOUT: no
 * membership has begun by then. The list of aggregators must be in the same order on all workers.
 */
WINNOW_API WINNOW_CHECK int winnow_comm_reconfigure(struct winnow_comm *comm,
                                                    const struct winnow_membership *membership);

/*
 * winnow_comm_enter - winnow_comm_create() for a worker that is no member yet, of a job that runs or will: job is its
 * name alone, world is ignored, and rank is the one that it had, if it comes back; else 0. Blocks until the members
 * call winnow_comm_admit(), or until join_timeout_ms has passed. Then it is one of them: with that rank, if there are
 * so many and no other newcomer has it, and else after those of before. LOST: they have gone on without it; again.
 * Let in, it has join_timeout_ms once more to join.
 *
 * Workers that know no rank and no world: if this ends with TIMEOUT, winnow_comm_create() with rank 0 and world 1
 * founds the job; REFUSED: it is there, or somebody else was faster. Then again.
 *
 * When it has got the state of the job it says so by winnow_comm_hold(). Members of which none has it do not continue.
 */
WINNOW_API WINNOW_CHECK int winnow_comm_enter(const struct winnow_config *config,
                                              struct winnow_comm **comm);

/*
 * winnow_comm_hold - this worker has the state of the job from now on, as those have that were members from the
 * beginning: should all others be lost, it may continue. Any thread.
 */
WINNOW_API void winnow_comm_hold(struct winnow_comm *comm);

/*
 * winnow_comm_admit - let newcomers in, at most `most` of them (0: none). A collective: all members call it at the
 * same point of their order, with no operation under way. If nobody waits it costs as much as an allreduce of one
 * element. Else all continue in another membership, as after winnow_comm_reconfigure(): *came newcomers have joined,
 * after the members or, if they come back, among them; rank 0 was a member before. Errors leave no membership, as
 * there; MEMBERS, LOST: winnow_comm_reconfigure() continues.
 * The same happens, with *came 0, where an aggregator drains (winnowd got SIGTERM): it is left out, or, if it is the
 * first, awaited until it has been restarted; and where one that was left out is back. All members keep their ranks.
 */
WINNOW_API WINNOW_CHECK int winnow_comm_admit(struct winnow_comm *comm, uint32_t most,
                                              uint32_t *came);

/*
 * winnow_comm_exit - winnow_comm_destroy(), and if status is not 0, winnow_comm_abort() before it.
 * It is of the form that on_exit(3) takes: on_exit(winnow_comm_exit, comm) makes exit(3) in a worker
 * a failure that all others see at once, and exit(0) one that leaves the job.
 */
WINNOW_API void winnow_comm_exit(int status, void *comm);

/*
 * winnow_allreduce - recv[i] = send[i] (op) the other workers' send[i], for i < count. Buffers are
 * aligned for their type and equal (in place) or apart; send is only read. All workers pass the same
 * count, dtype and op. Blocks until the result is there. INVALID, MISMATCH, and what ends the communicator.
 */
WINNOW_API WINNOW_CHECK int winnow_allreduce(const void *send, void *recv, uint64_t count,
                                             enum winnow_dtype dtype, enum winnow_op op,
                                             struct winnow_comm *comm);

/*
 * winnow_allreduce_async - the same, without waiting: returns once the operation is queued. `options`
 * may be NULL. Both buffers belong to the library until the request is done, as winnow_wait() and
 * winnow_test() say; then, or before, the caller passes it to winnow_request_free(). *request is
 * written before it begins: what has not been written has not begun.
 */
WINNOW_API WINNOW_CHECK int winnow_allreduce_async(const void *send, void *recv, uint64_t count,
                                                   enum winnow_dtype dtype, enum winnow_op op,
                                                   const struct winnow_options *options,
                                                   struct winnow_comm *comm,
                                                   struct winnow_request **request);

/*
 * winnow_reduce_scatter - recv[i] = send[rank * recv_count + i] (op) the other workers' send[rank * recv_count
 * + i], for i < recv_count: each worker gets its share of the result, and receives no more than that. `send`
 * has recv_count elements for each worker and is only read; recv is send + rank * recv_count (in place) or
 * apart from send. All workers pass the same recv_count, dtype and op; a worker that calls
 * winnow_allreduce() meanwhile is a MISMATCH. Small operations (up to about four datagrams in all)
 * come as a whole to all. Blocks until the result is there. Errors as winnow_allreduce().
 */
WINNOW_API WINNOW_CHECK int winnow_reduce_scatter(const void *send, void *recv, uint64_t recv_count,
                                                  enum winnow_dtype dtype, enum winnow_op op,
                                                  struct winnow_comm *comm);

/* The same without waiting, as winnow_allreduce_async(). INVALID, too: options->memory is a GPU's. */
WINNOW_API WINNOW_CHECK int winnow_reduce_scatter_async(const void *send, void *recv,
                                                        uint64_t recv_count,
                                                        enum winnow_dtype dtype, enum winnow_op op,
                                                        const struct winnow_options *options,
                                                        struct winnow_comm *comm,
                                                        struct winnow_request **request);

/*
 * winnow_broadcast - data[0 .. bytes) of worker `root`, with every bit as it is, to all workers. Blocks of
 * zeros do not travel. `bytes` is a multiple of 4, `data` aligned for it; all workers pass the same bytes and
 * root, or MISMATCH. The others' data is written only. Blocks until it is there. Errors as winnow_allreduce().
 */
WINNOW_API WINNOW_CHECK int winnow_broadcast(void *data, uint64_t bytes, uint32_t root,
                                             struct winnow_comm *comm);

/*
 * The same without waiting, as winnow_allreduce_async(). options->wire does not matter; INVALID, too:
 * options->memory is a GPU's.
 */
WINNOW_API WINNOW_CHECK int winnow_broadcast_async(void *data, uint64_t bytes, uint32_t root,
                                                   const struct winnow_options *options,
                                                   struct winnow_comm *comm,
                                                   struct winnow_request **request);

/*
 * winnow_allreduce_cuda - winnow_allreduce() on buffers in a GPU's memory, after what is in `stream` (a
 * cudaStream_t). With `request` NULL it returns when the result is there; else it is
 * winnow_allreduce_async().
 */
WINNOW_API WINNOW_CHECK int winnow_allreduce_cuda(const void *send, void *recv, uint64_t count,
                                                  enum winnow_dtype dtype, enum winnow_op op,
                                                  struct winnow_comm *comm, void *stream,
                                                  struct winnow_request **request);

/*
 * winnow_stream_wait - what is put into `stream` (a cudaStream_t) from now on comes after the result of
 * this request, which is done: an event of CUDA's, for programs and tools that look for one.
 * INVALID: it is not done, or was on no GPU; OK: an empty tensor's. Of a request that has failed: its error.
 */
WINNOW_API WINNOW_CHECK int winnow_stream_wait(struct winnow_request *request, void *stream);

/* What of a gradient is sent: for winnow_topk(). */
struct winnow_choice {
	uint64_t
		chunk; /* elements among which is chosen, a multiple of block; the last chunk may be shorter */
	uint64_t k; /* of each chunk, the k largest blocks: 1 .. chunk / block */
	uint32_t
		block; /* elements that are chosen together, by the largest of them: 1 .. 1024; 0: 1 */
	float decay; /* 0 .. 1: what is left of the memory after a step */
};

/*
 * winnow_topk - prepares a gradient of which only the largest elements are to travel: top-k with error
 * feedback (Stich, Cordonnier and Jaggi 2018). memory = decay * memory + gradient; then what is chosen of
 * that replaces the gradient, which is zero elsewhere, and memory keeps the rest for the next step: also
 * what rounding to the gradient's type took. The last chunk has its share of k. Of equals the first are
 * taken. Elements that are not finite are taken with their blocks, beyond k, and not remembered, so all
 * workers see them. `memory` is the caller's, `count` f32, zeros at first, and each tensor has its own.
 * `taken`, which may be NULL: how many elements. It sends nothing; winnow_allreduce_async() with
 * options->block = choice->block does, or with a segment of tiles of 1 x block. Host memory only; F32, F16
 * and BF16; no communicator, any thread. INVALID: a choice that is outside of its limits, another dtype.
 */
WINNOW_API WINNOW_CHECK int winnow_topk(void *gradient, float *memory, uint64_t count,
                                        enum winnow_dtype dtype, const struct winnow_choice *choice,
                                        uint64_t *taken);

/* A part of a tensor that is made of rows; in elements. */
struct winnow_segment {
	uint64_t offset, count;
	uint64_t row; /* length of a row, 0: none is known */
	/*
	 * Not 0: the segment is a matrix of count / row rows, and a block is a tile of it, so many rows high
	 * and so many columns wide, at most 65536 elements; those at its lower and right edges may be
	 * smaller. So a matrix in which whole columns are zero costs only the others. Larger than the
	 * matrix: as high, or as wide, as that. 0, both: blocks are rows.
	 */
	uint32_t tile_rows, tile_columns;
};

/*
 * winnow_allreduce_segments_async - winnow_allreduce_async() of a tensor that is several one after the
 * other, as in a bucket of gradients: blocks begin where a segment's rows begin, and a block is a row,
 * or a divisor or multiple of it, so that one row costs one row on the wire. Segments are in ascending
 * order and do not overlap; what lies between them is reduced in blocks of the usual size. The array of
 * segments is free again on return. All workers pass the same segments: if not, the operation is a
 * MISMATCH, unless the tensor is so small (about a datagram) that it travels without them. INVALID:
 * segments that overlap or end outside of the tensor; tiles of what is no matrix (count is no multiple
 * of row), too large ones, and tiles in a GPU's memory, where rows are fine.
 */
WINNOW_API WINNOW_CHECK int
winnow_allreduce_segments_async(const void *send, void *recv, uint64_t count,
                                enum winnow_dtype dtype, enum winnow_op op,
                                const struct winnow_segment *segments, uint32_t segment_count,
                                const struct winnow_options *options, struct winnow_comm *comm,
                                struct winnow_request **request);

/*
 * winnow_allreduce_sparse_block - an allreduce to which this worker gives only the blocks that are
 * there: block i, block_length elements from send[i * block_length] on, lies at element recv_index[i]
 * of a tensor of recv_count elements that is zero elsewhere. recv gets the whole result. No tensor is
 * scanned, and only those blocks travel; zeros among them do, too. (Which blocks there are costs packets
 * for all of the tensor: some 130 bytes for each 16,384 blocks that nobody has.) Everything is in this
 * process's memory, not in a GPU's. Indices are multiples of block_length (1 .. 65536), each there once;
 * ascending order saves a copy. All workers pass the same block_length, recv_count, dtype and op, each
 * its own blocks: none is fine, and so is a worker that calls winnow_allreduce() with block =
 * block_length. send and recv are apart. INVALID, MISMATCH, and whatever ends the communicator.
 */
WINNOW_API WINNOW_CHECK int
winnow_allreduce_sparse_block(const void *send, const int64_t *recv_index, uint64_t block_count,
                              uint64_t block_length, void *recv, uint64_t recv_count,
                              enum winnow_dtype dtype, enum winnow_op op, struct winnow_comm *comm);

/* The same without waiting. recv_index is free again on return, send and recv when it is done. */
WINNOW_API WINNOW_CHECK int
winnow_allreduce_sparse_block_async(const void *send, const int64_t *recv_index,
                                    uint64_t block_count, uint64_t block_length, void *recv,
                                    uint64_t recv_count, enum winnow_dtype dtype, enum winnow_op op,
                                    const struct winnow_options *options, struct winnow_comm *comm,
                                    struct winnow_request **request);

/*
 * winnow_allreduce_rows_async - the same where the result, too, is a list: no worker ever holds the
 * whole tensor, which has recv_count elements, a multiple of block_length. *rows is the caller's to
 * read when the request has ended with OK, and to free, whenever. options->block is ignored.
 */
WINNOW_API WINNOW_CHECK int
winnow_allreduce_rows_async(const void *send, const int64_t *recv_index, uint64_t block_count,
                            uint64_t block_length, uint64_t recv_count, enum winnow_dtype dtype,
                            enum winnow_op op, const struct winnow_options *options,
                            struct winnow_comm *comm, struct winnow_rows **rows,
                            struct winnow_request **request);

/* Blocks in the result: those that any worker gave. */
WINNOW_API uint64_t winnow_rows_count(const struct winnow_rows *rows);

/*
 * winnow_rows_read - copy the result: for each block, in ascending order, its number in the tensor
 * (not its first element) to index, and block_length elements to values.
 */
WINNOW_API void winnow_rows_read(const struct winnow_rows *rows, int64_t *index, void *values);

/* winnow_rows_free - *rows becomes NULL; NULL is fine. The library keeps what its operation still needs. */
WINNOW_API void winnow_rows_free(struct winnow_rows **rows);

/*
 * winnow_wait - block until the request is done and return its result: the same each time, to
 * however many threads. timeout_ms < 0: as long as it takes (the communicator's own time-outs
 * hold). When the time is up, returns TIMEOUT and leaves `stats` alone, which may be NULL.
 */
WINNOW_API WINNOW_CHECK int winnow_wait(struct winnow_request *request, int64_t timeout_ms,
                                        struct winnow_op_stats *stats);

/* winnow_test - *done = 1, and its result as winnow_wait() returns it; or *done = 0 and OK. */
WINNOW_API WINNOW_CHECK int winnow_test(struct winnow_request *request, int *done,
                                        struct winnow_op_stats *stats);

/*
 * winnow_request_free - the caller needs the request no longer; *request becomes NULL, and NULL is fine. Of
 * an operation under way the library keeps the request, and the buffers, until it is done, and tells
 * nobody how it ended: its failure does not end the communicator. No other call on the request may be
 * running. winnow_comm_destroy() frees all requests that are left.
 */
WINNOW_API void winnow_request_free(struct winnow_request **request);

/* winnow_comm_check - OK, or what has ended the communicator: winnow_last_error() has the line. */
WINNOW_API WINNOW_CHECK int winnow_comm_check(struct winnow_comm *comm);

/* winnow_comm_abort - end every operation on every worker, or a winnow_comm_reconfigure(); `text` tells them why. */
WINNOW_API void winnow_comm_abort(struct winnow_comm *comm, const char *text);

/* The library's error in words: "workers do not agree ...". Never NULL. */
WINNOW_API const char *winnow_strerror(int result);

/* The line behind this communicator's last failure, or "": until this thread's next call of it. */
WINNOW_API const char *winnow_comm_error(struct winnow_comm *comm);

/* The line behind the last failure in the calling thread, of any call. */
WINNOW_API const char *winnow_last_error(void);

/*
 * The totals as they were when the last operation under way was done, or at most about 10 ms ago. It and
 * winnow_comm_late() never wait.
 */
WINNOW_API void winnow_comm_stats(struct winnow_comm *comm, struct winnow_stats *stats);

/*
 * winnow_comm_late - whom this worker's operation has been waiting for, for some seconds: "waiting in
 * operation #7 for rank 3 (host): in no operation for 8 s". "": nobody, or another worker is told; of
 * those that wait the first one is. Valid until the next call from the same thread.
 */
WINNOW_API const char *winnow_comm_late(struct winnow_comm *comm);

/*
 * winnow_comm_say - what `winnow status --workers` shows of this worker from its next ping on, within a quarter of the
 * silence time: up to 63 characters, for people. "": nothing more.
 */
WINNOW_API void winnow_comm_say(struct winnow_comm *comm, const char *text);
WINNOW_API uint32_t winnow_comm_rank(const struct winnow_comm *comm);
WINNOW_API uint32_t winnow_comm_world(const struct winnow_comm *comm);

/*
 * ---- Several GPUs in a node ----
 *
 * A node's GPUs are one worker: NCCL adds up their tensors inside the node, each GPU sends its share
 * of that through Winnow, and NCCL gives all shares to all GPUs. So the network sees as many workers
 * as there are nodes, and the union of what they send is smaller than that of all GPUs.
 *
 * One process has all GPUs of its node, or one of them; all nodes are alike in this and have the same
 * number of GPUs. NCCL 2.18 or newer is opened at run time: libnccl.so.2, or what WINNOW_NCCL names.
 *
 *     one process of the node: winnow_node_id_make(&id), and gives it to the node's others
 *     config.rank = node; config.world = nodes;
 *     struct winnow_node_config node_config = {&config, id, gpus_of_the_node, local_rank, 1, &gpu};
 *     err = winnow_node_create(&node_config, &node);
 *     err = winnow_node_allreduce(&grad, &grad, count, WINNOW_F32, WINNOW_SUM, &stream, node);
 *     winnow_node_destroy(node);
 *
 * Threads: any thread may call any function; as with NCCL, all processes of all nodes make the same
 * calls in the same order. The library starts one more thread a node: it makes all calls of NCCL.
 *
 * Errors: what fails on one GPU ends the node, and all nodes: NCCL's work is aborted, requests fail,
 * and every later call says why, on every process.
 */
struct winnow_node;

struct winnow_node_id {
	char bytes[128];
};

struct winnow_node_config {
	/*
	 * As for winnow_comm_create(), but rank and world count nodes. Jobs are called
	 * after `job`: "NAME.gG-g" is that of GPU g in nodes of G, "NAME.gG" has all processes.
	 */
	const struct winnow_config *config;
	struct winnow_node_id id; /* the same in all processes of the node, new for each node */
	uint32_t local_world;     /* GPUs of this node, 1 .. 64; the same on all nodes */
	uint32_t local_rank;      /* which of them this process has: the first, if several */
	uint32_t gpu_count;       /* of this process: 1, or local_world */
	const int *gpus;          /* [gpu_count] CUDA's device numbers */
};

/* winnow_node_id_make - in one process of each node, before winnow_node_create() in all. */
WINNOW_API WINNOW_CHECK int winnow_node_id_make(struct winnow_node_id *out);

/*
 * winnow_node_create - blocks until all GPUs of all nodes are there, or join_timeout_ms has passed.
 * INVALID where there is no NCCL or no winnow-cuda.so. On failure *node is NULL and
 * winnow_last_error() says why.
 */
WINNOW_API WINNOW_CHECK int winnow_node_create(const struct winnow_node_config *config,
                                               struct winnow_node **node);

/*
 * winnow_node_destroy - waits up to two seconds for operations under way, then aborts them on all
 * nodes. NULL is fine. No other call on the node may be running.
 */
WINNOW_API void winnow_node_destroy(struct winnow_node *node);

/* winnow_node_exit - as winnow_comm_exit(), of a node. */
WINNOW_API void winnow_node_exit(int status, void *node);

/*
 * winnow_node_allreduce - recv[g][i] = the (op) of send[i] of all GPUs of all nodes, for each GPU g of
 * this process and i < count, after what is now in streams[g] (a cudaStream_t); it returns when the
 * result is there. Arrays are [gpu_count]; send[g] and recv[g] are in the memory of gpus[g], equal or
 * apart. send is only read. Inside a node NCCL reduces, in the type itself, as it does (16-bit
 * floats are rounded at each step; MIN and MAX of a NaN may be either). AVG divides by all
 * GPUs of all nodes; of integers it is INVALID.
 */
WINNOW_API WINNOW_CHECK int winnow_node_allreduce(const void *const send[], void *const recv[],
                                                  uint64_t count, enum winnow_dtype dtype,
                                                  enum winnow_op op, void *const streams[],
                                                  struct winnow_node *node);

/*
 * winnow_node_allreduce_async - the same with options (their `memory` and `stream` are ignored) and a
 * request, which is done when all GPUs of this process have the result: any stream then finds it, so
 * winnow_stream_wait() is not needed. Its statistics add up this process's GPUs. Operations happen one
 * after the other; no call waits for those before it. winnow_node_destroy() frees all requests that
 * are left.
 *
 * Segments are those of winnow_allreduce_segments_async(), in elements of the whole tensor and the same
 * on all GPUs of all nodes; NULL and 0: none. A row that lies in the shares of two GPUs is cut there.
 */
WINNOW_API WINNOW_CHECK int
winnow_node_allreduce_async(const void *const send[], void *const recv[], uint64_t count,
                            enum winnow_dtype dtype, enum winnow_op op,
                            const struct winnow_segment *segments, uint32_t segment_count,
                            void *const streams[], const struct winnow_options *options,
                            struct winnow_node *node, struct winnow_request **request);

/* winnow_node_check - OK, or what has ended the node: winnow_last_error() has the line. */
WINNOW_API WINNOW_CHECK int winnow_node_check(struct winnow_node *node);

/* winnow_node_abort - end every operation on every node; `text` tells them why. */
WINNOW_API void winnow_node_abort(struct winnow_node *node, const char *text);

/* The totals of this process's communicators, added up. */
WINNOW_API void winnow_node_stats(struct winnow_node *node, struct winnow_stats *stats);

/* "0.1.0", and WINNOW_ABI_VERSION of the library. */
WINNOW_API const char *winnow_version(void);
WINNOW_API int winnow_abi_version(void);

#ifdef __cplusplus
}
#endif

#endif /* WINNOW_H */
