// SPDX-License-Identifier: BSD-3-Clause
/*
 * test_comm_loop.c - the communicator's thread, with a session, sockets and GPUs that only take notes
 *
 * The thread and the clock are real. Nets are queues, a session is what `w` says of it.
 */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/comm/comm.h"

#define PEERS 3
#define QUEUE 16384
#define LIMIT_MS 20000

struct net {
	int fd;
	bool ready;
	uint32_t refusals; /* so often it is not, and then it is */
	uint32_t first, end;
	struct datagram {
		struct net_addr from;
		uint8_t byte;
	} queue[QUEUE];
};

static struct world {
	pthread_mutex_t lock;
	struct net shared, group;
	/* what the session says */
	enum session_state state;
	bool busy, quiet;
	uint64_t deadline_us;
	uint32_t to_send[PEERS];
	bool has_group, has_next, paused;
	int line;      /* for the second aggregator: 1: does not fit its socket, -1: has gone out */
	int submit[4]; /* results, in turn */
	/* what it was told */
	uint32_t turns, ticks, lines, opened, no_multicast, left, moved, submitted, completed,
		traced;
	uint32_t heard_count, batch_count;
	struct {
		uint32_t index;
		uint8_t byte;
	} heard[QUEUE];
	struct {
		struct net_path to;
		uint32_t count, bytes;
	} batches[64];
	char aborted[128], failed[128];
	struct net_config group_config;
	int done[4];
} w;

/* Read or written by both threads; what a macro is given is looked at under the lock. */
#define told(value)                                                                                \
	__extension__({                                                                            \
		pthread_mutex_lock(&w.lock);                                                       \
		__auto_type told_ = (value);                                                       \
		pthread_mutex_unlock(&w.lock);                                                     \
		told_;                                                                             \
	})
#define say(what)                                                                                  \
	do {                                                                                       \
		pthread_mutex_lock(&w.lock);                                                       \
		what;                                                                              \
		pthread_mutex_unlock(&w.lock);                                                     \
	} while (0)
#define await(sign)                                                                                \
	do {                                                                                       \
		uint64_t until_us_ = clock_us() + LIMIT_MS * 1000;                                 \
		while (!told(sign)) {                                                              \
			if (clock_us() > until_us_)                                                \
				fail_msg("never: %s", #sign);                                      \
			usleep(500);                                                               \
		}                                                                                  \
	} while (0)

/* ---- the session ---- */

enum session_state session_state(const struct session *session)
{
	(void)session;
	return told(w.state);
}

enum winnow_result session_result(const struct session *session)
{
	(void)session;
	return told(w.state == SESSION_FAILED ? WINNOW_ERR_LOST : WINNOW_OK);
}

const char *session_error(const struct session *session)
{
	(void)session;
	return told(w.state == SESSION_FAILED ? "it is lost" : "");
}

bool session_fast(const struct session *session)
{
	(void)session;
	return true;
}

uint32_t session_window(const struct session *session)
{
	(void)session;
	return 128;
}

uint32_t session_dscp(const struct session *session, uint32_t index)
{
	(void)session;
	return index + 1;
}

uint32_t session_op_slots(const struct session *session)
{
	(void)session;
	return 32;
}

const char *session_late(const struct session *session)
{
	(void)session;
	return "";
}

const char *session_who_left(const struct session *session)
{
	(void)session;
	return "";
}

void session_stats(const struct session *session, struct winnow_stats *out)
{
	(void)session;
	*out = (struct winnow_stats){.channels = 6, .payload = 1472};
}

const char *session_group(const struct session *session, uint32_t index)
{
	(void)session;
	return index == 1 && told(w.has_group) ? "239.77.1.1:5600" : NULL;
}

void session_no_multicast(struct session *session, uint32_t index)
{
	(void)session;
	assert_int_equal(index, 1);
	say(w.no_multicast++);
}

const char *session_data(const struct session *session, uint32_t index)
{
	(void)session;
	assert_true(index < PEERS);
	return NULL;
}

uint32_t session_features(const struct session *session)
{
	(void)session;
	return CONTROL_FEATURES;
}

void session_datagram(struct session *session, uint32_t index, const struct arrival *in,
                      uint64_t now_us)
{
	(void)session;
	assert_true(now_us > 0 && in->bytes == 1);
	say(w.heard[w.heard_count].index = index;
	    w.heard[w.heard_count++].byte = *(const uint8_t *)in->data);
}

int session_submit(struct session *session, struct allreduce *task, uint64_t now_us)
{
	(void)session;
	assert_true(now_us > 0);
	assert_int_equal(task->tag, told(w.submitted) + 1);
	return told(w.submit[w.submitted++]);
}

bool session_pull(struct session *session, uint32_t index, uint64_t now_us, struct packet_out *out)
{
	(void)session;
	assert_true(now_us > 0);
	out->bytes = index + 1;
	return told(w.to_send[index] > 0 && w.to_send[index]-- > 0);
}

bool session_work(struct session *session, uint64_t now_us)
{
	(void)session;
	(void)now_us;
	say(w.turns++);
	return false;
}

uint64_t session_deadline(const struct session *session)
{
	(void)session;
	return told(w.deadline_us);
}

void session_tick(struct session *session, uint64_t now_us)
{
	(void)session;
	say(w.ticks++; w.deadline_us = now_us >= w.deadline_us ? UINT64_MAX : w.deadline_us);
}

bool session_quiet(const struct session *session)
{
	(void)session;
	return told(w.quiet);
}

uint32_t session_waiting(const struct session *session)
{
	(void)session;
	return 3;
}

bool session_paused(const struct session *session)
{
	(void)session;
	return told(w.paused);
}

uint64_t session_drains(const struct session *session)
{
	(void)session;
	return 4;
}

enum session_next session_stay(struct session *session, const struct session_wish *wish,
                               uint64_t now_us, const struct control_message **out)
{
	static const struct control_message next = {
		.kind = CONTROL_NEXT, .next = "job/next.1", .next_rank = 1, .next_world = 3};

	(void)session;
	(void)now_us;
	assert_true(told(w.state) == SESSION_FAILED && wish->without == 2 && wish->agreed == 3 &&
	            wish->most == 0);
	*out = &next;
	return told(w.has_next) ? SESSION_NEXT : SESSION_WAIT;
}

bool session_busy(const struct session *session)
{
	(void)session;
	return told(w.busy);
}

void session_leave(struct session *session)
{
	(void)session;
	say(w.left++);
}

void session_says(struct session *session, const char *text)
{
	(void)session;
	(void)text;
}

void session_abort(struct session *session, const char *text)
{
	(void)session;
	say(snprintf(w.aborted, sizeof(w.aborted), "%s", text));
}

void session_move(struct session *session)
{
	(void)session;
	say(w.moved++);
}

void session_fail(struct session *session, enum winnow_result result, const char *text)
{
	(void)session;
	say(snprintf(w.failed, sizeof(w.failed), "%d %s", (int)result, text));
}

/* ---- what else a communicator has ---- */

void comm_peers_turn(struct winnow_comm *comm, uint64_t now_us)
{
	static char line[] = "{}\n";

	(void)now_us;
	if (told(w.line) != 0)
		comm->peers[1].pending = told(w.line) > 0 ? line : NULL;
}

void comm_resolve_drop(struct comm_peer *peer)
{
	assert_null(peer->question);
}

void comm_peer_data(struct winnow_comm *comm, struct comm_peer *peer, const struct net_addr *to)
{
	(void)comm;
	peer->data = *to;
}

void comm_peer_write(struct winnow_comm *comm, struct comm_peer *peer, uint64_t now_us)
{
	(void)comm;
	(void)peer;
	(void)now_us;
	say(w.lines++);
}

bool comm_gpu_turn(struct winnow_comm *comm, uint64_t now_us)
{
	(void)comm;
	(void)now_us;
	return false;
}

uint64_t comm_gpu_due_us(struct winnow_comm *comm)
{
	(void)comm;
	return UINT64_MAX;
}

unsigned comm_gpu_state(const struct winnow_comm *comm)
{
	(void)comm;
	return 0;
}

uint64_t comm_gpu_pinned_bytes(const struct winnow_comm *comm)
{
	(void)comm;
	return 4096;
}

bool staging_finish(struct staged *staged, bool failed)
{
	(void)staged;
	(void)failed;
	return false;
}

void comm_ask_turn(struct winnow_comm *comm, uint64_t now_us)
{
	(void)comm;
	(void)now_us;
}

void comm_trace(struct winnow_comm *comm, const struct allreduce *task)
{
	(void)comm;
	(void)task;
	say(w.traced++);
}

void comm_complete(struct winnow_request *request)
{
	say(w.done[w.completed++] = request->task.status);
}

void comm_fork_close(int *fd)
{
	close(*fd);
	*fd = -1;
}

/* ---- nets ---- */

static int fake_open(const struct net_config *config, struct net **out, struct why *why)
{
	(void)why;
	say(w.opened++; w.group_config = *config);
	*out = &w.group;
	return 0;
}

static uint32_t fake_recv(struct net *net, struct net_in in[], uint32_t max)
{
	uint32_t count = 0;
	uint64_t drained;

	pthread_mutex_lock(&w.lock);
	for (; count < max && net->first < net->end; count++, net->first++)
		in[count] = (struct net_in){.data = &net->queue[net->first].byte,
		                            .bytes = 1,
		                            .from = net->queue[net->first].from};
	if (count == 0)
		(void)!read(net->fd, &drained, sizeof(drained));
	pthread_mutex_unlock(&w.lock);
	return count;
}

static uint32_t fake_send(struct net *net, const struct net_path to[], uint32_t to_count,
                          const struct net_out out[], uint32_t count)
{
	uint32_t bytes = 0;

	assert_ptr_equal(net, &w.shared);
	assert_int_equal(to_count, 1);
	for (uint32_t i = 0; i < count; i++)
		bytes += out[i].bytes;
	say(assert_true(net->ready); w.batches[w.batch_count].to = *to;
	    w.batches[w.batch_count].count = count; w.batches[w.batch_count++].bytes = bytes);
	return 1;
}

static bool fake_ready(struct net *net)
{
	return told(net->refusals > 0 ? net->refusals-- == 0 : net->ready);
}

static uint32_t fake_rest(struct net *net)
{
	(void)net;
	return NET_REST_FD;
}

static int fake_fd(const struct net *net)
{
	return net->fd;
}

static uint32_t fake_buffer(const struct net *net)
{
	(void)net;
	return 65536;
}

static void fake_close(struct net *net)
{
	(void)net;
}

static const struct net_backend fake = {
	.name = "fake",
	.open = fake_open,
	.recv = fake_recv,
	.send = fake_send,
	.ready = fake_ready,
	.rest = fake_rest,
	.fd = fake_fd,
	.buffer = fake_buffer,
	.close = fake_close,
};

static void put(struct net *net, struct net_addr from, uint8_t byte)
{
	net->queue[net->end++] = (struct datagram){.from = from, .byte = byte};
}

static void ring(int fd)
{
	uint64_t one = 1;

	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

/* ---- a communicator ---- */

static const struct net_addr address[PEERS] = {
	{NET_IPV4(0x0a000001), 5555}, {NET_IPV4(0x0a000002), 5555}, {NET_IPV4(0x0a000001), 6666}};
static int far_ends[PEERS]; /* of control connections, which nobody reads */

static int begin(void **state)
{
	struct winnow_comm *comm = calloc(1, sizeof(*comm));

	memset(&w, 0, sizeof(w));
	pthread_mutex_init(&w.lock, NULL);
	w.state = SESSION_RUNNING;
	w.quiet = true;
	w.deadline_us = UINT64_MAX;
	w.shared.fd = eventfd(0, EFD_NONBLOCK);
	w.group.fd = eventfd(0, EFD_NONBLOCK);
	w.shared.ready = w.group.ready = true;
	assert_non_null(comm);
	comm->wake_fd = eventfd(0, EFD_NONBLOCK);
	comm->ask_fd = -1;
	comm->backend = &fake;
	comm->net = &w.shared;
	comm->config.payload = 1472;
	comm->peer_count = PEERS;
	pthread_mutex_init(&comm->lock, NULL);
	pthread_cond_init(&comm->changed, NULL);
	for (uint32_t i = 0; i < PEERS; i++) {
		int pair[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		comm->peers[i].data = address[i];
		comm->peers[i].fd = pair[0];
		comm->peers[i].connected = true;
		far_ends[i] = pair[1];
	}
	*state = comm;
	return 0;
}

static void start(struct winnow_comm *comm)
{
	assert_int_equal(pthread_create(&comm->thread, NULL, comm_run, comm), 0);
	comm->thread_started = true;
}

static void wake(struct winnow_comm *comm)
{
	if (!atomic_exchange(&comm->woken, true))
		ring(comm->wake_fd);
}

static void stop(struct winnow_comm *comm)
{
	pthread_mutex_lock(&comm->lock);
	comm->stop = true;
	pthread_mutex_unlock(&comm->lock);
	wake(comm);
}

/* It has no more to do and ends, within so many milliseconds. */
static void ends(struct winnow_comm *comm)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LIMIT_MS / 1000;
	assert_int_equal(pthread_timedjoin_np(comm->thread, NULL, &until), 0);
	comm->thread_started = false;
}

static int end(void **state)
{
	struct winnow_comm *comm = *state;

	if (comm->thread_started) {
		say(w.busy = false; w.quiet = true);
		stop(comm);
		ends(comm);
	}
	close(comm->wake_fd);
	close(w.shared.fd);
	close(w.group.fd);
	for (uint32_t i = 0; i < PEERS; i++)
		close(far_ends[i]);
	free(comm);
	return 0;
}

/* Turns in a tenth of a second in which nothing happens: one that sleeps has few. */
static uint32_t turns_at_rest(void)
{
	uint32_t before;

	usleep(20000);
	before = told(w.turns);
	usleep(100000);
	return told(w.turns) - before;
}

/* ---- datagrams ---- */

/* The address says whose a datagram is; who is not known is not heard; a group's are its own. */
static void test_whose(void **state)
{
	struct winnow_comm *comm = *state;
	static const struct {
		uint32_t index;
		uint8_t byte;
	} expected[] = {{1, 'g'}, {1, 'a'}, {2, 'b'}, {0, 'c'}, {1, 'e'}, {0, 'f'}};

	comm->peers[1].group = &w.group;
	put(&w.group, (struct net_addr){.ip = net_ipv4(1), .port = 2}, 'g');
	put(&w.shared, address[1], 'a');
	put(&w.shared, address[2], 'b');
	put(&w.shared, address[0], 'c');
	put(&w.shared, (struct net_addr){.ip = net_ipv4(0x0a000002), .port = 6666}, 'd');
	put(&w.shared, address[1], 'e');
	put(&w.shared, address[0], 'f');
	start(comm);
	await(w.heard_count == 6);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(told(w.heard[i].index), expected[i].index);
		assert_int_equal(told(w.heard[i].byte), expected[i].byte);
	}
	/* And when it sleeps, what comes wakes it. */
	say(put(&w.shared, address[2], 'h'));
	ring(w.shared.fd);
	await(w.heard_count == 7);
	say(put(&w.group, address[0], 'i'));
	ring(w.group.fd);
	await(w.heard_count == 8);
	assert_int_equal(told(w.heard[7].index), 1);
}

/* A group is emptied first, but not without end. */
static void test_groups_first(void **state)
{
	struct winnow_comm *comm = *state;
	uint32_t at = 0;

	comm->peers[1].group = &w.group;
	for (uint32_t i = 0; i < 40 * NET_BURST_MAX; i++)
		put(&w.group, address[1], 'g');
	put(&w.shared, address[0], 's');
	start(comm);
	await(w.heard_count == 40 * NET_BURST_MAX + 1);
	while (w.heard[at].byte == 'g')
		at++;
	assert_int_equal(at, 32 * NET_BURST_MAX);
}

/* Each aggregator in turn gets a batch, as large as one send() takes. */
static void batches(struct winnow_comm *comm, uint32_t payload, uint32_t most)
{
	comm->config.payload = payload;
	w.to_send[0] = 2 * most + 1;
	w.to_send[2] = 1;
	start(comm);
	await(w.batch_count == 4);
	assert_true(net_addr_same(&w.batches[0].to.to, &address[0]));
	assert_int_equal(w.batches[0].count, most);
	assert_int_equal(w.batches[0].bytes, most);
	assert_int_equal(w.batches[0].to.dscp, 1); /* as it wants */
	assert_int_equal(w.batches[1].count, 1);
	assert_int_equal(w.batches[1].bytes, 3); /* the third's */
	assert_int_equal(w.batches[1].to.dscp, 3);
	assert_int_equal(w.batches[2].count, most);
	assert_int_equal(w.batches[3].count, 1);
	assert_int_equal(w.batches[3].bytes, 1);
}

static void test_batches_of_bytes(void **state)
{
	batches(*state, 8972, NET_BATCH_BYTES_MAX / 8972);
}

static void test_batches_of_datagrams(void **state)
{
	batches(*state, 1472, NET_BURST_MAX);
}

/* A full socket: nothing is asked of the session before there is room. */
static void test_not_ready(void **state)
{
	struct winnow_comm *comm = *state;

	w.shared.ready = false;
	w.to_send[1] = 5;
	comm->config.dscp = 46;
	start(comm);
	await(w.turns >= 3); /* an eventfd has always room: it looks again and again */
	assert_int_equal(told(w.to_send[1]), 5);
	say(w.shared.ready = true);
	await(w.batch_count == 1);
	assert_int_equal(w.batches[0].count, 5);
	assert_int_equal(w.batches[0].to.dscp, 46); /* our own, whatever an aggregator wants */
	assert_in_range(turns_at_rest(), 0, 20);
}

/* There is room again when the thread is about to sleep: it does not. */
static void test_ready_meanwhile(void **state)
{
	w.shared.refusals = 1;
	w.to_send[1] = 5;
	start(*state);
	await(w.batch_count == 1);
}

static void test_groups_open(void **state)
{
	struct winnow_comm *comm = *state;

	comm->config.multicast = true;
	comm->peers[1].local = net_ipv4(0x0a0000fe);
	start(comm);
	await(w.turns > 0);
	assert_int_equal(told(w.opened), 0); /* not known yet */
	say(w.has_group = true);
	wake(comm);
	await(w.opened == 1);
	assert_int_equal(net_ip_number(&w.group_config.group), 0xef4d0101);
	assert_int_equal(w.group_config.local.port, 5600);
	assert_int_equal(net_ip_number(&w.group_config.device), 0x0a0000fe);
	assert_int_equal(w.group_config.payload_max, 1472);
	assert_int_equal(w.group_config.buffer_bytes, 65536);
	say(put(&w.group, address[0], 'x'));
	ring(w.group.fd);
	await(w.heard_count == 1);
	assert_int_equal(told(w.opened), 1);
	assert_int_equal(told(w.no_multicast), 0);
}

static void test_no_multicast(void **state)
{
	struct winnow_comm *comm = *state;

	w.has_group = true;
	start(comm);
	await(w.no_multicast == 1);
	wake(comm);
	await(!atomic_load(&comm->woken));
	assert_int_equal(told(w.no_multicast), 1);
	assert_int_equal(told(w.opened), 0);
}

/* ---- callers ---- */

static void queue(struct winnow_comm *comm, struct winnow_request *request)
{
	pthread_mutex_lock(&comm->lock);
	if (comm->submitted_last == NULL)
		comm->submitted_first = request;
	else
		comm->submitted_last->next = request;
	comm->submitted_last = request;
	pthread_mutex_unlock(&comm->lock);
}

/* In their order; one that the session does not take is done at once, and the next one goes on. */
static void test_orders(void **state)
{
	struct winnow_comm *comm = *state;
	static struct winnow_request requests[4];

	for (uint32_t i = 0; i < 4; i++)
		requests[i] = (struct winnow_request){.comm = comm, .task.tag = i + 1};
	w.submit[1] = WINNOW_ERR_BUSY;
	for (uint32_t i = 0; i < 3; i++)
		queue(comm, &requests[i]);
	start(comm);
	wake(comm);
	await(w.submitted == 3);
	await(w.completed == 1);
	assert_int_equal(w.done[0], WINNOW_ERR_BUSY);
	assert_int_equal(told(w.traced), 2);
	assert_in_range(turns_at_rest(), 0, 20);
	queue(comm, &requests[3]);
	wake(comm);
	await(w.submitted == 4);
	requests[3].task.status = WINNOW_OK;
	requests[3].task.done(&requests[3].task);
	assert_int_equal(told(w.completed), 2);
	pthread_mutex_lock(&comm->lock);
	assert_null(comm->submitted_first);
	assert_null(comm->submitted_last);
	pthread_mutex_unlock(&comm->lock);
}

/* What comes while the job is paused waits until it is resumed, or is over. */
static void test_paused(void **state)
{
	static struct winnow_request requests[2];
	struct winnow_comm *comm = *state;

	for (uint32_t i = 0; i < 2; i++)
		requests[i] = (struct winnow_request){.comm = comm, .task.tag = i + 1};
	w.paused = true;
	start(comm);
	for (uint32_t i = 0; i < 2; i++) {
		queue(comm, &requests[i]);
		wake(comm);
		assert_in_range(turns_at_rest(), 0, 20);
		assert_int_equal(told(w.submitted), i);
		say(w.paused = false);
		ring(comm->wake_fd); /* a line has come */
		await(w.submitted == i + 1);
		say(w.paused = true);
	}
}

static void order_end(struct winnow_comm *comm, enum winnow_result result, const char *text)
{
	pthread_mutex_lock(&comm->lock);
	comm->abort_wanted = true;
	comm->abort_result = result;
	snprintf(comm->abort_text, sizeof(comm->abort_text), "%s", text);
	pthread_mutex_unlock(&comm->lock);
	wake(comm);
}

static void test_abort(void **state)
{
	start(*state);
	order_end(*state, WINNOW_ERR_ABORTED, "no more");
	await(w.aborted[0] != '\0');
	assert_string_equal(w.aborted, "no more");
	assert_string_equal(w.failed, "");
	/* Once. */
	say(w.aborted[0] = '\0');
	wake(*state);
	assert_in_range(turns_at_rest(), 0, 20);
	assert_string_equal(w.aborted, "");
}

static void test_fail(void **state)
{
	char expected[64];

	start(*state);
	order_end(*state, WINNOW_ERR_GPU, "a GPU is lost");
	await(w.failed[0] != '\0');
	snprintf(expected, sizeof(expected), "%d a GPU is lost", (int)WINNOW_ERR_GPU);
	assert_string_equal(w.failed, expected);
	assert_string_equal(w.aborted, "");
}

/* What callers see: the job's shape once it runs, then its end; and statistics when they ask. */
static void test_published(void **state)
{
	struct winnow_comm *comm = *state;

	w.state = SESSION_JOINING;
	comm->state = SESSION_JOINING;
	start(comm);
	say(w.state = SESSION_RUNNING);
	wake(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->state == SESSION_JOINING)
		pthread_cond_wait(&comm->changed, &comm->lock);
	assert_int_equal(comm->state, SESSION_RUNNING);
	assert_int_equal(comm->channels, 6);
	assert_int_equal(comm->payload, 1472);
	assert_int_equal(comm->window, 128);
	assert_int_equal(comm->op_slots, 32);
	assert_true(comm->fast);
	comm->stats_wanted = true;
	pthread_mutex_unlock(&comm->lock);
	wake(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->stats_wanted)
		pthread_cond_wait(&comm->changed, &comm->lock);
	assert_int_equal(comm->stats.channels, 6);
	assert_int_equal(comm->stats.pinned_bytes, 4096);
	pthread_mutex_unlock(&comm->lock);
	say(w.state = SESSION_FAILED);
	wake(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->state == SESSION_RUNNING)
		pthread_cond_wait(&comm->changed, &comm->lock);
	assert_int_equal(comm->result, WINNOW_ERR_LOST);
	assert_string_equal(comm->error.text, "it is lost");
	pthread_mutex_unlock(&comm->lock);
	/* Nobody asks how those who are left continue before the caller wants to; the answer may take time. */
	say(w.has_next = true);
	wake(comm);
	say(w.has_next = false);
	assert_int_equal(told(comm->next_how), SESSION_WAIT);
	comm->peers_known = comm->peer_count + 1; /* the last one has been left out before */
	comm->peers[comm->peer_count].place = 1;
	comm->peers[comm->peer_count].fd = -1;
	comm->peers[comm->peer_count].connect_due_us = UINT64_MAX;
	comm->agreed = 3;
	comm->stays = true;
	wake(comm);
	assert_int_equal(told(comm->next_how), SESSION_WAIT);
	say(w.has_next = true);
	wake(comm);
	pthread_mutex_lock(&comm->lock);
	while (comm->next_how == SESSION_WAIT)
		pthread_cond_wait(&comm->changed, &comm->lock);
	assert_int_equal(comm->next_how, SESSION_NEXT);
	assert_string_equal(comm->next.next, "job/next.1");
	assert_int_equal(comm->next.next_rank, 1);
	assert_int_equal(comm->next.next_world, 3);
	pthread_mutex_unlock(&comm->lock);
}

/* ---- sleeping ---- */

/* It sleeps until something comes, or its session is due; a line that waits for room wakes it when there is some. */
static void test_sleeps(void **state)
{
	struct winnow_comm *comm = *state;
	uint64_t from_us = clock_us();

	w.deadline_us = from_us + 60000;
	start(comm);
	await(w.deadline_us == UINT64_MAX);
	assert_true(clock_us() >= from_us + 60000);
	assert_in_range(turns_at_rest(), 0, 20);
	wake(comm);
	await(!atomic_load(&comm->woken));
	assert_in_range(turns_at_rest(), 0, 20);
	/* A socket has room, so with a line to write it does not sleep. */
	say(w.line = 1);
	wake(comm);
	await(w.turns > 1000);
	say(w.line = -1);
	assert_in_range(turns_at_rest(), 0, 20);
	/* The far end speaks. */
	assert_int_equal(write(far_ends[2], "x", 1), 1);
	await(w.turns > 2000);
}

/* ---- leaving ---- */

static void test_leaves_busy(void **state)
{
	w.busy = true;
	start(*state);
	stop(*state);
	ends(*state);
	assert_string_equal(w.aborted, "it was destroyed with operations under way");
	assert_int_equal(w.left, 0);
}

/* To another membership: this one is over, and so is what was submitted too late for it. */
static void test_moves(void **state)
{
	struct winnow_comm *comm = *state;

	w.busy = true;
	start(comm);
	comm->moves = true;
	stop(comm);
	ends(comm);
	assert_int_equal(w.moved, 1);
	assert_int_equal(w.left, 0);
	assert_string_equal(w.aborted, "");
}

/* Others may still need what it has to send again. */
static void test_leaves_quiet(void **state)
{
	struct winnow_comm *comm = *state;

	w.quiet = false;
	start(comm);
	stop(comm);
	await(!atomic_load(&comm->woken));
	usleep(50000);
	assert_int_equal(told(w.left), 0);
	say(w.quiet = true);
	ring(comm->wake_fd);
	ends(comm);
	assert_int_equal(w.left, 1);
	assert_string_equal(w.aborted, "");
	assert_true(w.lines >= PEERS);
}

static void test_leaves_unheard(void **state)
{
	uint64_t from_us = clock_us();

	w.quiet = false;
	start(*state);
	stop(*state);
	ends(*state);
	assert_int_equal(w.left, 1);
	assert_true(clock_us() >= from_us + COMM_LEAVE_US);
}

static void test_gives_up(void **state)
{
	struct winnow_comm *comm = *state;

	w.state = comm->state = SESSION_JOINING;
	start(comm);
	stop(comm);
	ends(comm);
	assert_string_equal(w.aborted, "it gave up");
}

/* Its last words go out, if they can. */
static void test_last_line(void **state)
{
	struct winnow_comm *comm = *state;
	uint64_t from_us = clock_us();
	char line[] = "{}\n";

	comm->peers[0].pending = line;
	start(comm);
	stop(comm);
	ends(comm);
	assert_int_equal(w.left, 1);
	assert_true(clock_us() >= from_us + COMM_FLUSH_US);
	comm->peers[0].pending = NULL;
}

#define test(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_whose),
		test(test_groups_first),
		test(test_batches_of_bytes),
		test(test_batches_of_datagrams),
		test(test_not_ready),
		test(test_ready_meanwhile),
		test(test_groups_open),
		test(test_no_multicast),
		test(test_orders),
		test(test_paused),
		test(test_abort),
		test(test_fail),
		test(test_published),
		test(test_sleeps),
		test(test_leaves_busy),
		test(test_moves),
		test(test_leaves_quiet),
		test(test_leaves_unheard),
		test(test_gives_up),
		test(test_last_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
