// SPDX-License-Identifier: BSD-3-Clause
/* data_thread.c - see data.h; the threads, and the orders they take; their packets are in data_packets.c */

#include "aggregator/data.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/data_state.h"
#include "aggregator/site/relay.h"
#include "aggregator/privileges.h"

#define STALL_CHECK_MS 250

/* What another thread wants done on a data thread; act() uses what it needs of the rest. */
struct order {
	bool (*act)(struct data_thread *t, struct order *order); /* False: there is more to do. */
	uint16_t id;
	struct channel *channel;
	const bool *multicast;
	uint32_t rank;
	struct jobs_heard *heard;
	struct outlet *outlet; /* to attach; that was detached */
	struct data_look *looks;
	uint32_t look_count, looked;
	struct data_stats stats;
	struct relay *relay;
	struct relay_view *view;
	const struct packet_out *packet;
};

/* Reported at every look: one report may find no room, and the job's end stops them. */
static bool check_stalls(struct data_thread *t)
{
	uint64_t now_us = clock_us();
	struct report report = {.kind = REPORT_STALL};
	bool busy = false;

	for (uint32_t i = 0; i < t->outlet_count; i++) {
		struct outlet *outlet = t->outlets[i];

		if (outlet->channel == NULL || channel_idle(outlet->channel))
			continue;
		busy = true;
		report.id = outlet->info.id;
		if (channel_stalled(outlet->channel, now_us, &report.stall))
			t->data->config.report(t->data->config.context, &report);
	}
	return busy;
}

/* ---- orders ---- */

static bool order_attach(struct data_thread *t, struct order *order)
{
	t->outlets[t->outlet_count++] = order->outlet;
	return true;
}

static bool order_start(struct data_thread *t, struct order *order)
{
	struct outlet *outlet = outlet_named(t, order->id);

	outlet->channel = order->channel;
	outlet->all_multicast = true;
	for (uint32_t rank = 0; rank < outlet->info.worker_count; rank++) {
		outlet->workers[rank].multicast = order->multicast[rank];
		outlet->workers[rank].mute = channel_is_mute(order->channel, rank);
		outlet->some_multicast = outlet->some_multicast || order->multicast[rank];
		outlet->all_multicast = outlet->all_multicast &&
		                        (order->multicast[rank] || outlet->workers[rank].mute);
		outlet_address_tell(outlet, rank);
	}
	return true;
}

static bool order_relay(struct data_thread *t, struct order *order)
{
	outlet_named(t, order->id)->relay = order->relay;
	t->relay_count++;
	return true;
}

static bool order_relay_look(struct data_thread *t, struct order *order)
{
	const struct outlet *outlet = outlet_named(t, order->id);

	if (outlet != NULL && outlet->relay != NULL)
		relay_look(outlet->relay, order->view);
	return true;
}

static bool order_send(struct data_thread *t, struct order *order)
{
	const struct net_path path = {.to = *t->data->config.parent};

	t->burst.out[0] = (struct net_out){order->packet->pieces, order->packet->piece_count,
	                                   order->packet->bytes};
	send_to(t, &path, 1);
	return true;
}

static bool order_heard(struct data_thread *t, struct order *order)
{
	knock_ages(&outlet_named(t, order->id)->workers[order->rank].knocker, clock_us(),
	           order->heard);
	return true;
}

static bool order_detach(struct data_thread *t, struct order *order)
{
	struct outlet **place = outlet_place(t, order->id);
	struct channel *channel = (*place)->channel;

	/* A counter does not go back because a job has ended. */
	for (uint32_t i = 0; i < WIRE_DROP_COUNT && channel != NULL; i++)
		t->stats.drops[i] += channel_stats(channel)->drops[i];
	order->outlet = *place;
	t->relay_count -= order->outlet->relay != NULL;
	*place = t->outlets[--t->outlet_count];
	t->last = NULL;
	return true;
}

static bool order_stop(struct data_thread *t, struct order *order)
{
	(void)order;
	t->stopped = true;
	return true;
}

/* Another job may have the number now. */
static const struct outlet *outlet_looked_at(struct data_thread *t, const struct data_look *look)
{
	const struct outlet *outlet = outlet_named(t, look->id);

	if (outlet == NULL || outlet->channel == NULL ||
	    outlet->info.group_token != look->group_token ||
	    outlet->info.worker_count != look->worker_count)
		return NULL;
	return outlet;
}

static void look_take(struct data_thread *t, struct data_look *look)
{
	const struct outlet *outlet = outlet_looked_at(t, look);

	look->found = outlet != NULL;
	if (!look->found)
		return;
	look->stats = *channel_stats(outlet->channel);
	channel_look(outlet->channel, clock_us(), &look->view);
	for (uint32_t rank = 0; rank < look->worker_count; rank++) {
		struct channel_waits here, *most = &look->waits[rank];

		channel_waits(outlet->channel, rank, &here);
		most->late_us = here.late_us > most->late_us ? here.late_us : most->late_us;
		most->last_us = here.last_us > most->last_us ? here.last_us : most->last_us;
	}
}

/* At most one channel a turn: packets come first. */
static bool order_look(struct data_thread *t, struct order *order)
{
	while (order->looked < order->look_count) {
		struct data_look *look = &order->looks[order->looked++];

		if (data_owner(t->data, look->id) != t)
			continue;
		look_take(t, look);
		return false;
	}
	order->stats = t->stats;
	t->data->config.backend->stats(t->net, &order->stats.net);
	return true;
}

/* Carries out what somebody waits for. False: not all of it. */
static bool order_take(struct data_thread *t, struct data_mailbox *box)
{
	if (!atomic_load(&box->full))
		return true;
	if (!box->order->act(t, box->order))
		return false;
	pthread_mutex_lock(&box->lock);
	atomic_store(&box->full, false);
	box->order = NULL;
	pthread_cond_signal(&box->carried_out);
	pthread_mutex_unlock(&box->lock);
	return true;
}

static void order_give(struct data_thread *t, struct data_mailbox *box, struct order *order)
{
	pthread_mutex_lock(&box->lock);
	box->order = order;
	atomic_store(&box->full, true);
	data_wake(t);
	while (box->order == order)
		pthread_cond_wait(&box->carried_out, &box->lock);
	pthread_mutex_unlock(&box->lock);
}

static void check_health(struct data_thread *t)
{
	const struct net_backend *net = t->data->config.backend;
	struct report report = {.kind = REPORT_LOST};

	if (net->health != NULL && net->health(t->net, &report.lost) != 0)
		t->data->config.report(t->data->config.context, &report);
}

/* Nothing arrived: sleep as long as the net allows, unless orders come. */
static void thread_rest(struct data_thread *t, struct pollfd fds[2], bool busy)
{
	const struct net_backend *net = t->data->config.backend;
	uint32_t rest_us = net->rest != NULL ? net->rest(t->net) : NET_REST_FD;
	bool full = !net->ready(t->net);
	uint64_t us = rest_us != NET_REST_FD ? rest_us : busy ? STALL_CHECK_MS * 1000 : UINT64_MAX;
	uint64_t due_us = above_deadline(t), now_us = due_us != UINT64_MAX ? clock_us() : 0;
	struct timespec nap;
	uint64_t count;

	if (due_us != UINT64_MAX && due_us < now_us + us)
		us = due_us > now_us ? due_us - now_us : 0;
	if (us == 0)
		return;
	nap = (struct timespec){.tv_sec = (time_t)(us / 1000000),
	                        .tv_nsec = (long)(us % 1000000 * 1000)};
	fds[0].events = (short)(full ? POLLIN | POLLOUT : POLLIN);
	ppoll(fds, 2, us != UINT64_MAX ? &nap : NULL, NULL);
	if (fds[0].revents & POLLOUT && !net->ready(t->net))
		data_nap();
	if (fds[1].revents & POLLIN)
		(void)!read(t->wake_fd, &count, sizeof(count));
}

static void *thread_run(void *context)
{
	struct data_thread *t = context;
	struct pollfd fds[2] = {
		{.fd = t->data->config.backend->facts(t->net)->fd, .events = POLLIN},
		{.fd = t->wake_fd, .events = POLLIN},
	};
	uint64_t next_check_us = 0;
	bool busy = false;

	turn_ask(&t->stats.turn);
	(void)privileges_drop(); /* winnowd.c reports it if this cannot be done */
	/* From here on the thread allocates nothing: tests count by this name. */
	pthread_setname_np(pthread_self(), "winnow-data");
	while (!t->stopped) {
		bool received = data_turn(t) > 0, looked = order_take(t, &t->looks);
		uint64_t now_us;

		busy = busy || received;
		if (!received && looked)
			thread_rest(t, fds, busy);
		order_take(t, &t->orders);
		now_us = clock_us();
		if (now_us < next_check_us)
			continue;
		busy = check_stalls(t);
		data_troubles(t, now_us);
		check_health(t);
		next_check_us = now_us + STALL_CHECK_MS * 1000;
	}
	return NULL;
}

/* ---- opening ---- */

static void mailbox_open(struct data_mailbox *box)
{
	pthread_mutex_init(&box->lock, NULL);
	pthread_cond_init(&box->carried_out, NULL);
}

static void mailbox_close(struct data_mailbox *box)
{
	pthread_mutex_destroy(&box->lock);
	pthread_cond_destroy(&box->carried_out);
}

static void thread_close(struct data_thread *t)
{
	if (t->net != NULL)
		t->data->config.backend->close(t->net);
	if (t->wake_fd >= 0)
		close(t->wake_fd);
	mailbox_close(&t->orders);
	mailbox_close(&t->looks);
	pthread_mutex_destroy(&t->strays.lock);
	free(t->scratch);
	free(t);
}

static int thread_open(struct data *data, uint32_t index, struct data_thread **out, struct why *why)
{
	const struct data_config *config = &data->config;
	struct net_config net = config->net;
	struct data_thread *t = calloc(1, sizeof(*t));
	int err;

	if (t == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	net.queue = index;
	t->data = data;
	t->wake_fd = -1;
	mailbox_open(&t->orders);
	mailbox_open(&t->looks);
	pthread_mutex_init(&t->strays.lock, NULL);
	if (config->parent != NULL) {
		t->scratch = malloc((size_t)NET_BURST_MAX * net.payload_max);
		if (t->scratch == NULL) {
			thread_close(t);
			return why_set(why, -ENOMEM, "out of memory");
		}
	}
	err = config->backend->open(&net, &t->net, why);
	if (err == 0) {
		t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (t->wake_fd < 0)
			err = why_set(why, -errno, "cannot make an eventfd: %s", strerror(errno));
	}
	if (err == 0) {
		err = -pthread_create(&t->thread, NULL, thread_run, t);
		if (err != 0)
			why_set(why, err, "cannot start a thread: %s", strerror(-err));
	}
	if (err != 0)
		thread_close(t);
	else
		*out = t;
	return err;
}

int data_open(const struct data_config *config, struct data **out, struct why *why)
{
	struct data *data = calloc(1, sizeof(*data));

	if (data == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	data->config = *config;
	for (uint32_t i = 0; i < config->net.queue_count; i++) {
		int err = thread_open(data, i, &data->threads[i], why);

		if (err != 0) {
			data_close(data);
			return err;
		}
		data->thread_count++;
	}
	*out = data;
	return 0;
}

void data_close(struct data *data)
{
	if (data == NULL)
		return;
	for (uint32_t i = 0; i < data->thread_count; i++) {
		struct order order = {.act = order_stop};

		order_give(data->threads[i], &data->threads[i]->orders, &order);
		pthread_join(data->threads[i]->thread, NULL);
	}
	for (uint32_t i = 0; i < data->thread_count; i++)
		thread_close(data->threads[i]);
	free(data);
}

const char *data_backend(const struct data *data)
{
	return data->config.backend->name;
}

const struct net_facts *data_facts(const struct data *data)
{
	return data->config.backend->facts(data->threads[0]->net);
}

/* ---- for the control thread ---- */

/* To the thread that has the channel. */
static void channel_order(struct data *data, struct order *order)
{
	struct data_thread *owner = data_owner(data, order->id);

	order_give(owner, &owner->orders, order);
}

int data_attach(void *context, const struct jobs_channel *channel)
{
	struct data *data = context;
	struct outlet *outlet =
		calloc(1, sizeof(*outlet) + channel->worker_count * sizeof(outlet->workers[0]));
	struct order order = {.act = order_attach, .id = channel->id, .outlet = outlet};

	if (outlet == NULL)
		return -ENOMEM;
	outlet->info = *channel;
	if (!net_ip_none(&channel->group) && !net_ip_is_v4(&channel->group))
		outlet->info.group_from.scope = net_ip_device(&channel->group_from);
	data->attached[channel->id] = outlet;
	channel_order(data, &order);
	return 0;
}

void data_start(void *context, uint16_t id, struct channel *channel, const bool multicast[])
{
	struct order order = {
		.act = order_start, .id = id, .channel = channel, .multicast = multicast};

	channel_order(context, &order);
}

void data_heard(void *context, uint16_t id, uint32_t rank, struct jobs_heard *out)
{
	struct order order = {.act = order_heard, .id = id, .rank = rank, .heard = out};

	channel_order(context, &order);
}

void data_detach(void *context, uint16_t id)
{
	struct data *data = context;
	struct order order = {.act = order_detach, .id = id};

	channel_order(data, &order);
	data->attached[id] = NULL;
	if (order.outlet != NULL) {
		relay_close(order.outlet->relay);
		explicit_bzero(&order.outlet->info, sizeof(order.outlet->info)); /* secrets */
	}
	free(order.outlet);
}

void data_relay(struct data *data, uint16_t id, struct relay *relay)
{
	struct order order = {.act = order_relay, .id = id, .relay = relay};

	channel_order(data, &order);
}

void data_relay_look(struct data *data, uint16_t id, struct relay_view *sum)
{
	struct order order = {.act = order_relay_look, .id = id, .view = sum};

	channel_order(data, &order);
}

void data_send(struct data *data, uint32_t thread, const struct packet_out *packet)
{
	struct data_thread *t = data->threads[thread % data->thread_count];
	struct order order = {.act = order_send, .packet = packet};

	order_give(t, &t->orders, &order);
}

void data_await(struct data *data)
{
	for (uint32_t i = 0; i < data->thread_count; i++) {
		struct order order = {.act = order_look}; /* at nothing */

		order_give(data->threads[i], &data->threads[i]->orders, &order);
	}
}

void data_look(struct data *data, struct data_look looks[], uint32_t count, struct data_stats *out)
{
	*out = (struct data_stats){0};
	for (uint32_t i = 0; i < data->thread_count; i++) {
		struct order order = {.act = order_look, .looks = looks, .look_count = count};

		order_give(data->threads[i], &data->threads[i]->looks, &order);
		counters_add(out, &order.stats, offsetof(struct data_stats, turn));
		out->turn = order.stats.turn;
	}
}
