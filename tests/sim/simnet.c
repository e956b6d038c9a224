// SPDX-License-Identifier: BSD-3-Clause
/* simnet.c - see simnet.h; a binary heap of events */

#include "tests/sim/simnet.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct node {
	struct simnet_path out, in;
	uint64_t out_free_ns, in_free_ns; /* when all that queues there has passed */
	uint32_t address;
};

struct connection {
	uint64_t last_us[2]; /* when its last line gets there: up, and down, in numbers of nodes */
};

#define BURST_PARTS 25

/* What a node has put into a queue lately, in parts of SIMNET_BURST_US. */
struct burst {
	uint64_t latest; /* the number of the latest part, from the beginning of time */
	uint64_t bytes[BURST_PARTS];
};

struct queue {
	struct simnet_queue spec;
	uint64_t free_ns;
	uint64_t first_us, last_us; /* datagrams */
	double area;                /* bytes that waited, times microseconds */
	uint64_t bytes_last, bytes_max;
	struct simnet_meter *meters; /* [nodes], as are */
	struct burst *bursts;
};

struct simnet {
	uint64_t now_us, order, random;
	struct sim_event *heap;
	uint32_t count, room;
	uint32_t node_count;
	struct node *nodes;
	uint32_t connection_count;
	struct connection *connections;
	uint32_t queue_count;
	struct queue *queues;
	struct simnet_stats stats;
};

/* What several events may point at. */
struct shared {
	uint32_t users;
	uint8_t data[];
};

static void *must(void *memory)
{
	if (memory == NULL)
		abort();
	return memory;
}

struct simnet *simnet_open(uint64_t seed, uint32_t nodes)
{
	struct simnet *net = must(calloc(1, sizeof(*net)));

	net->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	net->node_count = nodes;
	net->nodes = must(calloc(nodes, sizeof(*net->nodes)));
	for (uint32_t i = 0; i < nodes; i++)
		net->nodes[i].address = 1;
	return net;
}

void simnet_close(struct simnet *net)
{
	for (uint32_t i = 0; i < net->count; i++)
		simnet_free(&net->heap[i]);
	for (uint32_t i = 0; i < net->queue_count; i++) {
		free(net->queues[i].meters);
		free(net->queues[i].bursts);
	}
	free(net->queues);
	free(net->connections);
	free(net->heap);
	free(net->nodes);
	free(net);
}

uint64_t simnet_now(const struct simnet *net)
{
	return net->now_us;
}

struct simnet_path *simnet_out(struct simnet *net, uint32_t node)
{
	return &net->nodes[node].out;
}

struct simnet_path *simnet_in(struct simnet *net, uint32_t node)
{
	return &net->nodes[node].in;
}

void simnet_move(struct simnet *net, uint32_t node)
{
	net->nodes[node].address++;
}

uint32_t simnet_address(const struct simnet *net, uint32_t node)
{
	return net->nodes[node].address;
}

/* ---- chance ---- */

/* splitmix64 */
uint64_t simnet_random(struct simnet *net)
{
	uint64_t z = net->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t simnet_between(struct simnet *net, uint64_t low, uint64_t high)
{
	return low + simnet_random(net) % (high - low + 1);
}

bool simnet_chance(struct simnet *net, uint32_t ppm)
{
	return ppm > 0 && simnet_random(net) % 1000000 < ppm;
}

/* ---- events ---- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void put(struct simnet *net, struct sim_event *event)
{
	uint32_t at = net->count++;

	event->order = net->order++;
	if (net->count > net->room) {
		net->room = net->room > 0 ? net->room * 2 : 1024;
		net->heap = must(realloc(net->heap, net->room * sizeof(*net->heap)));
	}
	while (at > 0 && earlier(event, &net->heap[(at - 1) / 2])) {
		net->heap[at] = net->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	net->heap[at] = *event;
}

static struct sim_event take_first(struct simnet *net)
{
	struct sim_event first = net->heap[0], last = net->heap[--net->count];
	uint32_t at = 0;

	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= net->count)
			break;
		if (child + 1 < net->count && earlier(&net->heap[child + 1], &net->heap[child]))
			child++;
		if (!earlier(&net->heap[child], &last))
			break;
		net->heap[at] = net->heap[child];
		at = child;
	}
	net->heap[at] = last;
	return first;
}

void simnet_timer(struct simnet *net, uint32_t node, uint32_t channel, uint64_t at_us)
{
	struct sim_event event = {
		.kind = SIM_TIMER, .to = node, .from = node, .channel = channel, .at_us = at_us};

	if (event.at_us < net->now_us)
		event.at_us = net->now_us;
	put(net, &event);
}

void simnet_postpone(struct simnet *net, struct sim_event *event, uint64_t at_us)
{
	struct sim_event later = *event;

	if (!later.again)
		later.came_us = net->now_us;
	later.at_us = at_us;
	later.again = true;
	put(net, &later);
	event->data = NULL;
}

static struct shared *share(const void *data, uint32_t bytes)
{
	struct shared *shared = must(malloc(sizeof(*shared) + bytes));

	shared->users = 1;
	memcpy(shared->data, data, bytes);
	return shared;
}

static void release(struct shared *shared)
{
	if (--shared->users == 0)
		free(shared);
}

void simnet_free(struct sim_event *event)
{
	if (event->data != NULL)
		release((struct shared *)(void *)((uintptr_t)event->data -
		                                  offsetof(struct shared, data)));
	event->data = NULL;
}

/* ---- datagrams ---- */

static uint64_t backlog_bytes(uint64_t rate_bytes_s, uint64_t free_ns, uint64_t at_us)
{
	return free_ns > at_us * 1000
	               ? (uint64_t)((double)(free_ns - at_us * 1000) * (double)rate_bytes_s / 1e9)
	               : 0;
}

/* What has a rate takes its time. Returns when the last bit has passed. */
static uint64_t through(uint64_t rate_bytes_s, uint64_t *free_ns, uint32_t bytes, uint64_t at_us)
{
	if (rate_bytes_s == 0)
		return at_us;
	if (*free_ns < at_us * 1000)
		*free_ns = at_us * 1000;
	*free_ns += (bytes + SIMNET_HEADER_BYTES) * UINT64_C(1000000000) / rate_bytes_s;
	return (*free_ns + 999) / 1000;
}

uint64_t simnet_ready_us(const struct simnet *net, uint32_t node)
{
	const struct node *n = &net->nodes[node];
	uint64_t backlog = backlog_bytes(n->out.rate_bytes_s, n->out_free_ns, net->now_us);

	if (backlog <= n->out.queue_bytes)
		return net->now_us;
	return net->now_us + (backlog - n->out.queue_bytes) * 1000000 / n->out.rate_bytes_s + 1;
}

static bool vanishes(struct simnet *net, const struct simnet_path *path, uint32_t bytes)
{
	return path->cut || (path->mtu != 0 && bytes > path->mtu) ||
	       simnet_chance(net, path->loss_ppm);
}

static uint64_t delay(struct simnet *net, const struct simnet_path *path)
{
	uint64_t us = path->delay_us_min;

	if (path->delay_us_max > path->delay_us_min)
		us = simnet_between(net, path->delay_us_min, path->delay_us_max);
	if (simnet_chance(net, path->reorder_ppm))
		us += simnet_between(net, 0, path->reorder_us);
	return us;
}

/* ---- queues of switches ---- */

uint32_t simnet_queue_add(struct simnet *net, const struct simnet_queue *queue)
{
	net->queues = must(realloc(net->queues, (net->queue_count + 1) * sizeof(*net->queues)));
	net->queues[net->queue_count] = (struct queue){
		.spec = *queue,
		.first_us = UINT64_MAX,
		.meters = must(calloc(net->node_count, sizeof(struct simnet_meter))),
		.bursts = must(calloc(net->node_count, sizeof(struct burst))),
	};
	return ++net->queue_count;
}

const struct simnet_meter *simnet_meter(const struct simnet *net, uint32_t queue, uint32_t node)
{
	return &net->queues[queue - 1].meters[node];
}

void simnet_queue_stats(const struct simnet *net, uint32_t queue, struct simnet_queue_stats *out)
{
	const struct queue *q = &net->queues[queue - 1];
	uint64_t us = q->last_us > q->first_us ? q->last_us - q->first_us : 1;

	*out = (struct simnet_queue_stats){
		.bytes_max = q->bytes_max, .bytes_mean = q->area / (double)us, .bytes_us = q->area};
}

/* Since the last datagram the queue has drained to `bytes`, at its rate. */
static void queue_drained(struct queue *q, uint64_t bytes, uint64_t now_us)
{
	double full_us = (double)q->bytes_last * 8e6 / (double)q->spec.rate_bits_s, us;

	if (q->first_us == UINT64_MAX)
		q->first_us = q->last_us = now_us;
	us = (double)(now_us - q->last_us);
	q->area += (double)(q->bytes_last + bytes) / 2 * (us < full_us ? us : full_us);
	q->last_us = now_us;
}

static void meter(struct simnet_meter *meter, uint64_t bytes, bool marked, bool dropped)
{
	meter->dropped += dropped;
	if (dropped)
		return;
	meter->datagrams++;
	meter->bytes += bytes;
	meter->marked += marked;
}

static void burst_note(struct queue *q, uint32_t node, uint64_t bytes, uint64_t now_us)
{
	uint64_t part = now_us / (SIMNET_BURST_US / BURST_PARTS), sum = 0;
	struct burst *burst = &q->bursts[node];

	for (uint32_t i = 0; burst->latest < part && i < BURST_PARTS; i++)
		burst->bytes[++burst->latest % BURST_PARTS] = 0;
	burst->latest = part;
	burst->bytes[part % BURST_PARTS] += bytes;
	for (uint32_t i = 0; i < BURST_PARTS; i++)
		sum += burst->bytes[i];
	if (sum > q->meters[node].burst_max)
		q->meters[node].burst_max = sum;
}

/* True: there was room, and at event->at_us it has passed. */
static bool queue_pass(struct simnet *net, uint32_t number, struct sim_event *event)
{
	struct queue *q = &net->queues[number - 1];
	uint64_t rate_bytes_s = q->spec.rate_bits_s / 8;
	uint64_t waiting = backlog_bytes(rate_bytes_s, q->free_ns, net->now_us);
	uint64_t bytes = event->bytes + SIMNET_HEADER_BYTES;
	bool room = waiting + bytes <= q->spec.buffer_bytes;
	bool marked = q->spec.mark_bytes > 0 && waiting > q->spec.mark_bytes;

	queue_drained(q, waiting, net->now_us);
	meter(&q->meters[event->from], bytes, marked, !room);
	meter(&q->meters[event->to], bytes, marked, !room);
	burst_note(q, event->from, bytes, net->now_us);
	q->bytes_last = waiting;
	if (!room)
		return false;
	q->bytes_last += bytes;
	if (q->bytes_last > q->bytes_max)
		q->bytes_max = q->bytes_last;
	event->at_us = through(rate_bytes_s, &q->free_ns, event->bytes, net->now_us);
	event->marked = event->marked || marked;
	return true;
}

/* At a port with a rate: it queues, if there is room, and is there when all before it has passed. */
static void queue_in(struct simnet *net, struct sim_event *event)
{
	struct node *to = &net->nodes[event->to];
	bool room;

	if (to->in.queue != 0)
		room = queue_pass(net, to->in.queue, event);
	else
		room = backlog_bytes(to->in.rate_bytes_s, to->in_free_ns, net->now_us) <=
		       to->in.queue_bytes;
	if (!room) {
		net->stats.overflowed++;
		simnet_free(event);
		return;
	}
	if (to->in.queue == 0)
		event->at_us =
			through(to->in.rate_bytes_s, &to->in_free_ns, event->bytes, net->now_us);
	event->kind = SIM_DATAGRAM;
	put(net, event);
}

bool simnet_next(struct simnet *net, struct sim_event *out)
{
	while (net->count > 0) {
		*out = take_first(net);
		net->now_us = out->at_us;
		if (out->kind != SIM_AT_PORT)
			return true;
		queue_in(net, out);
	}
	return false;
}

static void arrive(struct simnet *net, struct sim_event event, struct shared *shared)
{
	const struct simnet_path *in = &net->nodes[event.to].in;

	event.kind = in->rate_bytes_s != 0 || in->queue != 0 ? SIM_AT_PORT : SIM_DATAGRAM;
	event.at_us += delay(net, in);
	event.data = shared->data;
	shared->users++;
	put(net, &event);
}

static void arrive_changed(struct simnet *net, const struct sim_event *event,
                           const struct shared *shared)
{
	struct shared *copy = share(shared->data, event->bytes);
	uint64_t bit = simnet_between(net, 0, (uint64_t)event->bytes * 8 - 1);
	struct sim_event changed = *event;

	copy->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	changed.changed = true;
	arrive(net, changed, copy);
	release(copy);
}

/* One that has left the sender, on its way to one receiver. */
static void deliver(struct simnet *net, const struct sim_event *event, struct shared *shared)
{
	const struct simnet_path *in = &net->nodes[event->to].in;

	if (vanishes(net, in, event->bytes)) {
		net->stats.lost++;
		return;
	}
	if (simnet_chance(net, in->flip_ppm)) {
		net->stats.lost++;
		arrive_changed(net, event, shared);
		return;
	}
	arrive(net, *event, shared);
	if (simnet_chance(net, in->duplicate_ppm)) {
		net->stats.doubled++;
		arrive(net, *event, shared);
	}
}

void simnet_send(struct simnet *net, uint32_t from, const uint32_t to[], uint32_t count,
                 const void *data, uint32_t bytes)
{
	struct node *sender = &net->nodes[from];
	struct sim_event event = {.from = from, .address = sender->address, .bytes = bytes};
	struct shared *shared;

	assert(sender->out.queue == 0 || sender->out.rate_bytes_s == 0);
	net->stats.datagrams += count;
	event.at_us = through(sender->out.rate_bytes_s, &sender->out_free_ns, bytes, net->now_us);
	if (vanishes(net, &sender->out, bytes)) {
		net->stats.lost += count;
		return;
	}
	event.to = to[0];
	if (sender->out.queue != 0 && !queue_pass(net, sender->out.queue, &event)) {
		net->stats.overflowed += count;
		return;
	}
	event.at_us += delay(net, &sender->out);
	shared = share(data, bytes);
	for (uint32_t i = 0; i < count; i++) {
		event.to = to[i];
		deliver(net, &event, shared);
	}
	release(shared);
}

void simnet_send_to(struct simnet *net, uint32_t from, uint32_t to, uint32_t address,
                    const void *data, uint32_t bytes)
{
	simnet_send(net, from, &to, net->nodes[to].address == address, data, bytes);
}

/* ---- control connections ---- */

static void put_control(struct simnet *net, struct sim_event *event)
{
	const struct node *from = &net->nodes[event->from], *to = &net->nodes[event->to];
	uint64_t *last_us =
		&net->connections[event->connection - 1].last_us[event->from > event->to];

	event->at_us = net->now_us + delay(net, &from->out) + delay(net, &to->in) +
	               from->out.line_us + to->in.line_us;
	if (event->at_us < *last_us)
		event->at_us = *last_us;
	*last_us = event->at_us;
	put(net, event);
}

uint32_t simnet_connect(struct simnet *net)
{
	net->connections = must(
		realloc(net->connections, (net->connection_count + 1) * sizeof(*net->connections)));
	net->connections[net->connection_count] = (struct connection){0};
	return ++net->connection_count;
}

void simnet_line(struct simnet *net, uint32_t connection, uint32_t from, uint32_t to,
                 const char *line)
{
	struct sim_event event = {
		.kind = SIM_LINE, .from = from, .to = to, .connection = connection};

	event.bytes = (uint32_t)strlen(line) + 1;
	event.data = share(line, event.bytes)->data;
	put_control(net, &event);
}

void simnet_gone(struct simnet *net, uint32_t connection, uint32_t from, uint32_t to)
{
	struct sim_event event = {
		.kind = SIM_GONE, .from = from, .to = to, .connection = connection};

	put_control(net, &event);
}

const struct simnet_stats *simnet_stats(const struct simnet *net)
{
	return &net->stats;
}
