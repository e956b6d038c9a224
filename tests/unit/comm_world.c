// SPDX-License-Identifier: BSD-3-Clause
/* comm_world.c - see comm_world.h */

#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "tests/unit/comm_world.h"

struct world w;

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

uint32_t session_own_queue(const struct session *session)
{
	(void)session;
	return told(w.own_queue);
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

struct session_shape session_shape(const struct session *session)
{
	(void)session;
	return (struct session_shape){.fast = true,
	                              .features = CONTROL_FEATURES,
	                              .channels = 6,
	                              .payload = 1472,
	                              .window = 128,
	                              .op_slots = 32,
	                              .segments_ahead = 8};
}

void session_stats(const struct session *session, struct winnow_stats *out)
{
	(void)session;
	*out = (struct winnow_stats){.channels = 6, .payload = 1472};
}

void session_datagram(struct session *session, uint32_t index, const struct arrival *in,
                      uint64_t now_us)
{
	(void)session;
	assert_true(now_us > 0 && in->bytes == 1);
	say(w.heard[w.heard_count].index = index;
	    w.heard[w.heard_count++].byte = *(const uint8_t *)in->data;
	    w.quiet = w.quiet || w.hears_quiet);
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

bool session_paused(const struct session *session)
{
	(void)session;
	return told(w.paused);
}

bool session_goes_on(const struct session *session)
{
	(void)session;
	return false;
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

/* ---- its links ---- */

struct link {
	struct link_view view;
};

static struct link links[PEERS] = {
	{.view = {.waiting = 3, .start.dscp = 1}}, {.view.start.dscp = 2}, {.view.start.dscp = 3}};

struct link *session_link(const struct session *session, uint32_t index)
{
	(void)session;
	assert_true(index < PEERS);
	return &links[index];
}

const struct link_view *link_look(const struct link *link)
{
	return &link->view;
}

const char *link_awaits(const struct link *link)
{
	(void)link;
	return "waiting for rank 1 of 2 to join";
}

const struct control_message *link_welcome(const struct link *link)
{
	static const struct control_message welcome = {.group = "239.77.1.1:5600"};

	return link == &links[1] && told(w.has_group) ? &welcome : NULL;
}

void link_no_multicast(struct link *link)
{
	assert_ptr_equal(link, &links[1]);
	say(w.no_multicast++);
}

/* ---- what else a communicator has ---- */

bool comm_peers_turn(struct winnow_comm *comm, uint64_t now_us)
{
	static char line[] = "{}\n";

	(void)now_us;
	if (told(w.line) != 0)
		comm->peers[1].pending = told(w.line) > 0 ? line : NULL;
	return true;
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
	assert_int_equal(max, NET_BURST_MAX);
	for (; count < net->facts.burst && net->first < net->end; count++, net->first++)
		in[count] = (struct net_in){.data = &net->queue[net->first].byte,
		                            .bytes = 1,
		                            .from = net->queue[net->first].from};
	/* What one call leaves is no longer in the socket. */
	(void)!read(net->facts.fd, &drained, sizeof(drained));
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

static void fake_limit(struct net *net, uint32_t bytes)
{
	(void)net;
	say(w.limits[w.limit_count++ % 4] = bytes);
}

static const struct net_facts *fake_facts(const struct net *net)
{
	return &net->facts;
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
	.limit = fake_limit,
	.facts = fake_facts,
	.close = fake_close,
};

void world_put(struct net *net, struct net_addr from, uint8_t byte)
{
	net->queue[net->end++] = (struct datagram){.from = from, .byte = byte};
}

void world_ring(int fd)
{
	uint64_t one = 1;

	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

/* ---- a communicator ---- */

const struct net_addr address[PEERS] = {
	{NET_IPV4(0x0a000001), 5555}, {NET_IPV4(0x0a000002), 5555}, {NET_IPV4(0x0a000001), 6666}};
int far_ends[PEERS];

int world_begin(void **state)
{
	struct winnow_comm *comm = calloc(1, sizeof(*comm));

	memset(&w, 0, sizeof(w));
	pthread_mutex_init(&w.lock, NULL);
	w.state = SESSION_RUNNING;
	w.quiet = true;
	w.deadline_us = UINT64_MAX;
	w.own_queue = UINT32_MAX;
	w.shared.facts = (struct net_facts){
		.fd = eventfd(0, EFD_NONBLOCK), .buffer_bytes = 65536, .burst = NET_BURST_MAX};
	w.group.facts = (struct net_facts){.fd = eventfd(0, EFD_NONBLOCK), .burst = 16};
	w.shared.ready = w.group.ready = true;
	assert_non_null(comm);
	comm->wake_fd = eventfd(0, EFD_NONBLOCK);
	comm->ask_fd = -1;
	comm->backend = &fake;
	comm->net = &w.shared;
	comm->config.payload = 1472;
	comm->peer_count = PEERS;
	STAILQ_INIT(&comm->submitted);
	STAILQ_INIT(&comm->unused);
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

void world_start(struct winnow_comm *comm)
{
	struct why why;

	assert_int_equal(comm_start_thread(comm, &why), WINNOW_OK);
}

void world_wake(struct winnow_comm *comm)
{
	if (!atomic_exchange(&comm->woken, true))
		world_ring(comm->wake_fd);
}

void world_stop(struct winnow_comm *comm)
{
	pthread_mutex_lock(&comm->lock);
	comm->stop = true;
	pthread_mutex_unlock(&comm->lock);
	world_wake(comm);
}

void world_ends(struct winnow_comm *comm)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LIMIT_MS / 1000;
	assert_int_equal(pthread_timedjoin_np(comm->thread, NULL, &until), 0);
	comm->thread_started = false;
}

int world_end(void **state)
{
	struct winnow_comm *comm = *state;

	if (comm->thread_started) {
		say(w.busy = false; w.quiet = true);
		world_stop(comm);
		world_ends(comm);
	}
	close(comm->wake_fd);
	close(w.shared.facts.fd);
	close(w.group.facts.fd);
	for (uint32_t i = 0; i < PEERS; i++)
		close(far_ends[i]);
	free(comm);
	return 0;
}

uint32_t world_turns_at_rest(void)
{
	uint32_t before;

	usleep(20000);
	before = told(w.turns);
	usleep(100000);
	return told(w.turns) - before;
}
