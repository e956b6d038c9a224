// SPDX-License-Identifier: BSD-3-Clause
/* data_thread.c - see data.h; the threads, and the orders they take; their packets are in data_packets.c */

#include "aggregator/data.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/data_state.h"
#include "aggregator/privileges.h"

#define STALL_CHECK_MS 250

/* What the control thread wants done on a data thread; act() uses what it needs of the rest. */
struct order {
	void (*act)(struct data_thread *t, struct order *order);
	uint16_t id;
	struct channel *channel;
	const bool *multicast;
	uint32_t rank;
	struct jobs_heard *heard;
	struct outlet *outlet; /* to attach; that was detached */
	struct data_stats *stats;
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

static void order_attach(struct data_thread *t, struct order *order)
{
	t->outlets[t->outlet_count++] = order->outlet;
}

static void order_start(struct data_thread *t, struct order *order)
{
	struct outlet *outlet = outlet_named(t, order->id);

	outlet->channel = order->channel;
	outlet->all_multicast = true;
	for (uint32_t rank = 0; rank < outlet->info.worker_count; rank++) {
		outlet->workers[rank].multicast = order->multicast[rank];
		outlet->some_multicast = outlet->some_multicast || order->multicast[rank];
		outlet->all_multicast = outlet->all_multicast && order->multicast[rank];
		outlet_address_tell(outlet, rank);
	}
}

static void order_heard(struct data_thread *t, struct order *order)
{
	knock_ages(&outlet_named(t, order->id)->workers[order->rank].knocker, clock_us(),
	           order->heard);
}

static void stats_copy(const struct data_thread *t, struct data_stats *out)
{
	*out = t->stats;
	t->data->config.backend->stats(t->net, &out->net);
}

static void order_stats(struct data_thread *t, struct order *order)
{
	stats_copy(t, order->stats);
}

static void order_detach(struct data_thread *t, struct order *order)
{
	struct outlet **place = outlet_place(t, order->id);
	struct channel *channel = (*place)->channel;

	/* A counter does not go back because a job has ended. */
	for (uint32_t i = 0; i < WIRE_DROP_COUNT && channel != NULL; i++)
		t->stats.drops[i] += channel_stats(channel)->drops[i];
	order->outlet = *place;
	*place = t->outlets[--t->outlet_count];
	t->last = NULL;
}

static void order_stop(struct data_thread *t, struct order *order)
{
	(void)order;
	t->stopped = true;
}

/* Carries out what the control thread waits for. */
static void take_order(struct data_thread *t)
{
	if (!atomic_exchange(&t->asks.ordered, false))
		return;
	pthread_mutex_lock(&t->asks.lock);
	t->asks.order->act(t, t->asks.order);
	t->asks.order = NULL;
	pthread_cond_signal(&t->asks.carried_out);
	pthread_mutex_unlock(&t->asks.lock);
}

static void give_order(struct data_thread *t, struct order *order)
{
	pthread_mutex_lock(&t->asks.lock);
	t->asks.order = order;
	atomic_store(&t->asks.ordered, true);
	data_wake(t);
	while (t->asks.order == order)
		pthread_cond_wait(&t->asks.carried_out, &t->asks.lock);
	pthread_mutex_unlock(&t->asks.lock);
}

/* ---- looks ---- */

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

/* At most one channel; packets come first. True: there is more to look at. */
static bool take_look(struct data_thread *t)
{
	struct looks *looks;

	if (!atomic_load(&t->asks.asked))
		return false;
	looks = t->asks.looks;
	while (looks->next < looks->count) {
		struct data_look *look = &looks->list[looks->next++];

		if (data_owner(t->data, look->id) != t)
			continue;
		look_take(t, look);
		return true;
	}
	stats_copy(t, &looks->stats);
	pthread_mutex_lock(&t->asks.lock);
	atomic_store(&t->asks.asked, false);
	t->asks.looks = NULL;
	pthread_cond_signal(&t->asks.looked);
	pthread_mutex_unlock(&t->asks.lock);
	return false;
}

static void look_ask(struct data_thread *t, struct looks *looks)
{
	pthread_mutex_lock(&t->asks.lock);
	t->asks.looks = looks;
	atomic_store(&t->asks.asked, true);
	data_wake(t);
	while (t->asks.looks != NULL)
		pthread_cond_wait(&t->asks.looked, &t->asks.lock);
	pthread_mutex_unlock(&t->asks.lock);
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
	struct timespec nap = {.tv_nsec = (long)rest_us * 1000};
	uint64_t count;

	if (rest_us == 0)
		return;
	fds[0].events = (short)(full ? POLLIN | POLLOUT : POLLIN);
	if (rest_us == NET_REST_FD)
		poll(fds, 2, busy ? STALL_CHECK_MS : -1);
	else
		ppoll(fds, 2, &nap, NULL);
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

	(void)privileges_drop(); /* winnowd.c reports it if this cannot be done */
	/* From here on the thread allocates nothing: tests count by this name. */
	pthread_setname_np(pthread_self(), "winnow-data");
	while (!t->stopped) {
		bool received = data_turn(t) > 0, looking = take_look(t);
		uint64_t now_us;

		busy = busy || received;
		if (!received && !looking)
			thread_rest(t, fds, busy);
		take_order(t);
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

static void thread_close(struct data_thread *t)
{
	if (t->net != NULL)
		t->data->config.backend->close(t->net);
	if (t->wake_fd >= 0)
		close(t->wake_fd);
	pthread_mutex_destroy(&t->asks.lock);
	pthread_mutex_destroy(&t->strays.lock);
	pthread_cond_destroy(&t->asks.carried_out);
	pthread_cond_destroy(&t->asks.looked);
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
	pthread_mutex_init(&t->asks.lock, NULL);
	pthread_mutex_init(&t->strays.lock, NULL);
	pthread_cond_init(&t->asks.carried_out, NULL);
	pthread_cond_init(&t->asks.looked, NULL);
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

		give_order(data->threads[i], &order);
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

int data_attach(void *context, const struct jobs_channel *channel)
{
	struct data *data = context;
	struct outlet *outlet =
		calloc(1, sizeof(*outlet) + channel->worker_count * sizeof(outlet->workers[0]));
	struct order order = {.act = order_attach, .outlet = outlet};

	if (outlet == NULL)
		return -ENOMEM;
	outlet->info = *channel;
	if (!net_ip_none(&channel->group) && !net_ip_is_v4(&channel->group))
		outlet->info.group_from.scope = net_ip_device(&channel->group_from);
	data->attached[channel->id] = outlet;
	give_order(data_owner(data, channel->id), &order);
	return 0;
}

void data_start(void *context, uint16_t id, struct channel *channel, const bool multicast[])
{
	struct order order = {
		.act = order_start, .id = id, .channel = channel, .multicast = multicast};

	give_order(data_owner(context, id), &order);
}

void data_heard(void *context, uint16_t id, uint32_t rank, struct jobs_heard *out)
{
	struct order order = {.act = order_heard, .id = id, .rank = rank, .heard = out};

	give_order(data_owner(context, id), &order);
}

void data_detach(void *context, uint16_t id)
{
	struct data *data = context;
	struct order order = {.act = order_detach, .id = id};

	give_order(data_owner(data, id), &order);
	data->attached[id] = NULL;
	if (order.outlet != NULL)
		explicit_bzero(&order.outlet->info, sizeof(order.outlet->info)); /* a secret */
	free(order.outlet);
}

void data_stats(struct data *data, struct data_stats *out)
{
	*out = (struct data_stats){0};
	for (uint32_t i = 0; i < data->thread_count; i++) {
		struct data_stats one = {0};
		struct order order = {.act = order_stats, .stats = &one};

		give_order(data->threads[i], &order);
		counters_add(out, &one, sizeof(one));
	}
}

void data_look(struct data *data, struct data_look looks[], uint32_t count, struct data_stats *out)
{
	*out = (struct data_stats){0};
	for (uint32_t i = 0; i < data->thread_count; i++) {
		struct looks of_thread = {.list = looks, .count = count};

		look_ask(data->threads[i], &of_thread);
		counters_add(out, &of_thread.stats, sizeof(of_thread.stats));
	}
}
