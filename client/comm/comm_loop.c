// SPDX-License-Identifier: BSD-3-Clause
/*
 * comm_loop.c - the communicator's thread
 *
 * Each turn reads the sockets that have something, takes orders from callers, sends what the session
 * wants to send, and scans one segment. It ends with one ppoll() of all sockets, which waits only if
 * nothing is left to do.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/comm/comm_state.h"

#define GROUP_BURSTS_MAX 32 /* that are read from one group in a turn */

/* ---- datagrams ---- */

/* Takes each data address and group from WELCOME, and joins the group if possible. */
static void groups_open(struct winnow_comm *comm)
{
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		struct comm_peer *peer = &comm->peers[i];
		struct net_config config = {
			.device = peer->udp.local,
			.port = &comm->fixed.port,
			.payload_max = comm->move.config.payload,
			.buffer_bytes = comm->fixed.backend->facts(comm->fixed.net)->buffer_bytes,
		};
		struct link *link = session_link(comm->session, i);
		const struct control_message *welcome = link_welcome(link);
		struct net_addr to;
		struct why why;

		if (welcome == NULL)
			continue;
		if (*welcome->data_address != '\0' &&
		    net_resolve(welcome->data_address, &to, &why) == 0)
			comm_peer_data(comm, peer, &to);
		if (peer->udp.group_tried || *welcome->group == '\0' ||
		    net_resolve(welcome->group, &to, &why) != 0)
			continue;
		peer->udp.group_tried = true;
		config.group = to.ip;
		config.local.port = to.port;
		if (!comm->move.config.multicast ||
		    comm->fixed.backend->open(&config, &peer->udp.group, &why) != 0)
			link_no_multicast(link);
	}
}

/* Reads a burst. `index`: the sender, or where to look for it first. True: more may wait. */
static bool receive_from(struct winnow_comm *comm, struct net *net, uint32_t index)
{
	uint32_t count = comm->fixed.backend->recv(net, comm->run.in, NET_BURST_MAX);
	uint64_t now_us = count > 0 ? clock_us() : 0;

	comm->run.news |= count > 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct net_in *in = &comm->run.in[i];

		/* All aggregators send to the shared socket: find the sender. */
		while (net == comm->fixed.net && index < comm->move.peer_count &&
		       !net_addr_same(&comm->peers[index].udp.to, &in->from))
			index++;
		if (index < comm->move.peer_count)
			session_datagram(
				comm->session, index,
				&(struct arrival){in->data, in->bytes, in->came_us, in->marked},
				now_us);
		index = net == comm->fixed.net ? 0 : index;
	}
	return count > 0 && count >= comm->fixed.backend->facts(net)->burst;
}

/*
 * Empties the groups first. A packet to us alone tells of results that were sent before it, and a result that is still in
 * the group's socket would count as lost (PROTOCOL.md, 10.2). So would one that waits behind the bursts that are read,
 * because the same turn asks for what is late.
 */
static void receive(struct winnow_comm *comm)
{
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		struct comm_peer *peer = &comm->peers[i];

		peer->udp.group_ready =
			peer->udp.group != NULL && (peer->udp.group_ready || comm->run.net_ready);
		for (uint32_t bursts = 0; bursts < GROUP_BURSTS_MAX && peer->udp.group_ready;
		     bursts++)
			peer->udp.group_ready = receive_from(comm, peer->udp.group, i);
	}
	if (comm->run.net_ready)
		comm->run.net_ready = receive_from(comm, comm->fixed.net, 0);
}

/* Sends one batch to each aggregator. True: there may be more. */
static bool transmit(struct winnow_comm *comm, uint64_t now_us)
{
	uint32_t batch_max = NET_BATCH_BYTES_MAX / comm->move.config.payload;
	bool more = false;

	batch_max = batch_max < NET_BURST_MAX ? batch_max : NET_BURST_MAX;
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		uint32_t count = 0;

		comm->run.full = !comm->fixed.backend->ready(comm->fixed.net);
		if (comm->run.full)
			break;
		while (count < batch_max &&
		       session_pull(comm->session, i, now_us, &comm->run.packets[count])) {
			const struct packet_out *packet = &comm->run.packets[count];

			comm->run.out[count++] =
				(struct net_out){.pieces = packet->pieces,
			                         .piece_count = packet->piece_count,
			                         .bytes = packet->bytes};
		}
		comm->run.news |= count > 0;
		if (count > 0)
			comm->fixed.backend->send(comm->fixed.net,
			                          &(struct net_path){.to = comm->peers[i].udp.to},
			                          1, comm->run.out, count);
		more = more || count == batch_max;
	}
	return more;
}

/* ---- callers ---- */

static void task_done(struct allreduce *task)
{
	struct winnow_request *request = task->context;
	char text[128];

	/* Other workers wait for this one's part of the operation, so it cannot fail here alone. */
	if (task->status == WINNOW_ERR_MEMORY || task->status == WINNOW_ERR_INVALID) {
		snprintf(text, sizeof(text), "rank %u cannot take part in an operation: %s",
		         request->comm->move.config.rank, winnow_strerror(task->status));
		comm_end(request->comm, (enum winnow_result)task->status, text);
	}
	if (!staging_finish(&request->staged, task->status != WINNOW_OK))
		comm_complete(request);
}

static void submit_all(struct winnow_comm *comm, struct request_list *list, uint64_t now_us)
{
	struct winnow_request *request;

	while ((request = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, next);
		request->task.done = task_done;
		request->task.context = request;
		request->task.status = session_submit(comm->session, &request->task, now_us);
		if (request->task.status == WINNOW_OK)
			comm_trace(comm, &request->task);
		else
			task_done(&request->task);
	}
}

static void take_orders(struct winnow_comm *comm, uint64_t now_us)
{
	struct request_list list = STAILQ_HEAD_INITIALIZER(list);
	char why[CONTROL_TEXT_BYTES];
	enum winnow_result end;

	if (!atomic_load_explicit(&comm->any.woken, memory_order_acquire))
		return;
	pthread_mutex_lock(&comm->shared.lock);
	atomic_store_explicit(&comm->any.woken, false, memory_order_relaxed);
	STAILQ_CONCAT(&list, &comm->shared.submitted);
	end = comm->shared.end.result;
	snprintf(why, sizeof(why), "%s", comm->shared.end.text);
	if (comm->shared.says_new)
		session_says(comm->session, comm->shared.says);
	comm->shared.says_new = false;
	if (comm->shared.phase == COMM_STOPPING) {
		comm_phase_set(comm, COMM_LEAVING);
		comm->run.leave_until_us = now_us + COMM_LEAVE_US;
	}
	pthread_mutex_unlock(&comm->shared.lock);
	submit_all(comm, &list, now_us);
	if (end == WINNOW_ERR_ABORTED)
		session_abort(comm->session, why);
	else if (end != WINNOW_OK)
		session_fail(comm->session, end, why);
}

static void publish_if_changed(struct winnow_comm *comm, uint64_t now_us)
{
	if (!comm_unpublished(comm) && (!comm->run.news || now_us < comm->run.news_due_us))
		return;
	pthread_mutex_lock(&comm->shared.lock);
	comm_publish(comm);
	comm_publish_news(comm);
	if (comm->shared.phase == COMM_JOINING)
		comm_awaits(comm);
	pthread_mutex_unlock(&comm->shared.lock);
}

/* ---- leaving ---- */

static void phase_go(struct winnow_comm *comm, enum comm_phase phase)
{
	pthread_mutex_lock(&comm->shared.lock);
	comm_phase_set(comm, phase);
	pthread_mutex_unlock(&comm->shared.lock);
}

static bool lines_flushed(const struct winnow_comm *comm)
{
	for (uint32_t i = 0; i < comm->move.peer_count; i++)
		if (comm->peers[i].state == PEER_CONNECTED &&
		    comm->peers[i].tcp.out_at < comm->peers[i].tcp.out_bytes)
			return false;
	return true;
}

/* The session ends as the course says. False: it must wait for acknowledgements first. */
static bool session_left(struct winnow_comm *comm, uint64_t now_us)
{
	const enum comm_course course = comm->shared.course;
	bool running = session_state(comm->session) == SESSION_RUNNING;
	bool busy = session_busy(comm->session);

	if (running && busy && course == COMM_ENDS)
		session_abort(comm->session, "it was destroyed with operations under way");
	else if (running && (!busy || course == COMM_KEEPS) && !session_quiet(comm->session) &&
	         now_us < comm->run.leave_until_us)
		return false;
	else if (running && course != COMM_ENDS)
		session_move(comm->session, course == COMM_KEEPS);
	else if (running)
		session_leave(comm->session);
	else if (session_state(comm->session) == SESSION_JOINING && course != COMM_KEEPS)
		session_abort(comm->session, "it gave up");
	return true;
}

/* True when there is nothing left to do. */
static bool leave(struct winnow_comm *comm, uint64_t now_us)
{
	if (comm->shared.phase == COMM_LEAVING) {
		if (!session_left(comm, now_us))
			return false;
		phase_go(comm, COMM_LEFT);
		comm->run.leave_until_us = now_us + COMM_FLUSH_US;
	}
	for (uint32_t i = 0; i < comm->move.peer_count; i++)
		comm_peer_write(comm, &comm->peers[i], now_us);
	return (comm_gpu_state(comm) & STAGING_BUSY) == 0 &&
	       (lines_flushed(comm) || now_us >= comm->run.leave_until_us);
}

/* ---- sleeping ---- */

static void watch(struct pollfd *fds, nfds_t *count, int fd, short events)
{
	fds[(*count)++] = (struct pollfd){.fd = fd, .events = events};
}

/* May datagrams wait? Connections are always read to the end. */
static bool has_unread(const struct winnow_comm *comm)
{
	bool unread = comm->run.net_ready;

	for (uint32_t i = 0; i < comm->move.peer_count; i++)
		unread = unread || comm->peers[i].udp.group_ready;
	return unread;
}

/*
 * A net that says itself how long to rest has no descriptor to poll, so everything may have something to read. Each
 * connection takes a system call, so they count only if there is time or something is due.
 */
static void expect_all(struct winnow_comm *comm, bool lines)
{
	comm->run.net_ready = true;
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		comm->peers[i].udp.group_ready = true;
		comm->peers[i].tcp.ready |= lines;
	}
}

/* Fills in the descriptors, in the order in which note_ready() reads them. `datagrams`: they end the wait, too. */
static nfds_t watch_all(const struct winnow_comm *comm, bool datagrams, bool ready,
                        struct pollfd *fds)
{
	short in = datagrams ? POLLIN : 0;
	nfds_t count = 0;

	watch(fds, &count, comm->fixed.wake_fd, POLLIN);
	watch(fds, &count, comm->fixed.backend->facts(comm->fixed.net)->fd,
	      (short)(ready ? in : in | POLLOUT));
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		const struct comm_peer *peer = &comm->peers[i];

		watch(fds, &count,
		      peer->udp.group != NULL ? comm->fixed.backend->facts(peer->udp.group)->fd
		                              : -1,
		      in);
		watch(fds, &count, peer->tcp.fd,
		      (short)(peer->state != PEER_CONNECTED            ? POLLOUT
		              : peer->tcp.out_at < peer->tcp.out_bytes ? POLLIN | POLLOUT
		                                                       : POLLIN));
	}
	return count;
}

/* Adds to what was ready before, which has not been read. */
static void note_ready(struct winnow_comm *comm, const struct pollfd *fds)
{
	uint64_t drained;

	if (fds[0].revents & POLLIN)
		(void)!read(comm->fixed.wake_fd, &drained, sizeof(drained));
	comm->run.net_ready |= (fds[1].revents & ~POLLOUT) != 0;
	for (uint32_t i = 0; i < comm->move.peer_count; i++) {
		comm->peers[i].udp.group_ready |= fds[2 + 2 * i].revents != 0;
		comm->peers[i].tcp.ready |= (fds[3 + 2 * i].revents & ~POLLOUT) != 0;
	}
}

/* Looks at all sockets, and waits for them until due_us. While datagrams gather, only other things end the wait. */
static void look_until(struct winnow_comm *comm, uint64_t due_us)
{
	struct pollfd fds[2 * SESSION_LINKS_MAX + 2] = {0};
	uint64_t now_us = clock_us(), wait_us = due_us > now_us ? due_us - now_us : 0;
	uint64_t gather_for_us = 0;
	bool full = (comm_gpu_state(comm) & STAGING_FULL) != 0, idle = wait_us > 0;
	uint32_t rest_us = comm->fixed.backend->rest == NULL ? NET_REST_FD
	                   : idle ? comm->fixed.backend->rest(comm->fixed.net)
	                          : 0;
	bool polled = rest_us != NET_REST_FD, ready = comm->fixed.backend->ready(comm->fixed.net);
	struct timespec wait;

	if (polled && rest_us < wait_us)
		wait_us = rest_us;
	if (!polled && !full && has_unread(comm))
		wait_us = 0;
	if (comm->run.full && ready)
		wait_us = 0; /* There is room again, for which packets may wait. */
	if (!polled && !full && wait_us > 0)
		gather_for_us = session_gather_us(comm->session, now_us);
	if (gather_for_us > 0 && gather_for_us < wait_us)
		wait_us = gather_for_us;
	wait = clock_timespec(wait_us);
	if (!polled || wait_us > 0) {
		nfds_t count = watch_all(comm, !full && gather_for_us == 0, ready, fds);
		bool endless = wait_us == UINT64_MAX - now_us && !polled;

		if (ppoll(fds, count, endless ? NULL : &wait, NULL) < 0)
			polled = true; /* Nothing is known of the descriptors. */
	}
	note_ready(comm, fds);
	if (polled || gather_for_us > 0)
		expect_all(comm, polled && (idle || now_us >= session_deadline(comm->session)));
}

static uint64_t next_due_us(struct winnow_comm *comm)
{
	uint64_t due_us = session_deadline(comm->session);

	sooner(&due_us, comm_gpu_due_us(comm));
	if (comm->run.news)
		sooner(&due_us, comm->run.news_due_us);
	for (uint32_t i = 0; i < comm->fixed.peers_known; i++) {
		const struct comm_peer *peer = &comm->peers[i];
		bool left_out = i >= comm->move.peer_count;

		if (left_out ? comm->move.role != COMM_MEMBER : peer->state >= PEER_CONNECTED)
			continue;
		sooner(&due_us, left_out || peer->tcp.fd < 0 ? peer->tries.due_us
		                                             : peer->tries.attempt_until_us);
	}
	if (comm->shared.phase >= COMM_LEAVING)
		sooner(&due_us, comm->run.leave_until_us);
	return due_us;
}

/* ---- the thread ---- */

/* False: there is nothing left to do. */
static bool turn(struct winnow_comm *comm)
{
	bool more;
	uint64_t now_us;

	/* Sums that a GPU has no room for stay in the sockets, so that windows do not move. */
	if ((comm_gpu_state(comm) & STAGING_FULL) == 0)
		receive(comm);
	now_us = clock_us();
	if (comm_peers_turn(comm, now_us)) {
		groups_open(comm);
		comm->run.news = true;
		comm->run.news_due_us = now_us; /* Lines are few, and callers may wait for one. */
	}
	take_orders(comm, now_us);
	session_tick(comm->session, now_us);
	comm_net_turn(comm, now_us);
	more = transmit(comm, now_us);
	more = comm_gpu_turn(comm, now_us) || more;
	more = session_work(comm->session, now_us) || more;
	publish_if_changed(comm, now_us);
	if (comm->shared.phase >= COMM_LEAVING && leave(comm, now_us))
		return false;
	more = more || atomic_load_explicit(&comm->any.woken, memory_order_acquire);
	look_until(comm, more ? now_us : next_due_us(comm));
	return true;
}

static void *comm_run(void *context)
{
	struct winnow_comm *comm = context;
	struct turn got;

	pthread_setname_np(pthread_self(), "winnow");
	turn_ask(&got);
	pthread_mutex_lock(&comm->shared.lock);
	comm->shared.turn = got;
	pthread_mutex_unlock(&comm->shared.lock);
	while (turn(comm))
		;
	for (uint32_t i = 0; i < comm->fixed.peers_known; i++) {
		struct comm_peer *peer = &comm->peers[i];

		comm_resolve_drop(peer);
		comm->fixed.backend->close(peer->udp.group);
		peer->udp.group = NULL;
		if (i == 0 && comm->shared.course == COMM_KEEPS &&
		    link_stands(session_link(comm->session, 0)))
			continue;
		comm_peer_close(peer);
	}
	return NULL;
}

/* ---- for the caller ---- */

int comm_start_thread(struct winnow_comm *comm, struct why *why)
{
	int result;

	phase_go(comm, COMM_JOINING);
	result = comm_thread_start(&comm->move.thread, comm_run, comm, why);
	if (result != WINNOW_OK)
		phase_go(comm, COMM_FORMING);
	return result;
}

void comm_stop_thread(struct winnow_comm *comm, enum comm_course course)
{
	if (comm->shared.phase == COMM_FORMING)
		return;
	if (comm->shared.phase != COMM_STRANDED) {
		pthread_mutex_lock(&comm->shared.lock);
		comm->shared.course = course;
		comm_phase_set(comm, COMM_STOPPING);
		pthread_mutex_unlock(&comm->shared.lock);
		comm_wake(comm);
		pthread_join(comm->move.thread, NULL);
	}
	phase_go(comm, COMM_FORMING);
}

int comm_await_all(struct winnow_comm *comm, const volatile int *give_up, struct why *why)
{
	const struct comm_shared *shared = &comm->shared;
	struct comm_wait wait = {.began_us = clock_us()};
	int result = WINNOW_OK;

	pthread_mutex_lock(&comm->shared.lock);
	while (shared->phase == COMM_JOINING && !comm_given_up(give_up))
		comm_wait_turn(comm, &wait);
	if (shared->phase == COMM_JOINING) {
		result = why_set(why, WINNOW_ERR_ABORTED, "given up before all workers had joined");
	} else if (shared->phase == COMM_FAILED) {
		result = (int)shared->result;
		*why = shared->error;
	}
	pthread_mutex_unlock(&comm->shared.lock);
	if (result == WINNOW_OK)
		comm_tell_joined(comm);
	return result;
}
