// SPDX-License-Identifier: BSD-3-Clause
/* world_worker.c - a worker's shell in the simulation, what comm_loop.c does; and what it submits */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/sim/world_impl.h"

const struct op_spec *worker_op(const struct sim_worker *w, uint32_t op)
{
	const struct sim_fault *fault = fault_of(w->world, w, FAULT_MISMATCH);

	if (fault != NULL && fault->spec->op == op)
		return &fault->spec->other_op;
	return &job_of(w)->ops[op];
}

uint32_t worker_ops(const struct sim_worker *w)
{
	bool fewer = fault_of(w->world, w, FAULT_ABSENT) != NULL ||
	             fault_of(w->world, w, FAULT_LEAVE) != NULL;

	return rounds_of(job_of(w)) * job_of(w)->op_count - fewer;
}

/* ---- life ---- */

/* What its host's clock says. */
static uint64_t clock_of(const struct sim_worker *w)
{
	return simnet_now(w->world->net) + w->spec->clock_us;
}

#define PRIVATE_LOSS_PPM                                                                           \
	100000 /* as much would end a job on a network that others use, where much is reordered */

static void session_begin(struct sim_worker *w)
{
	const struct world_spec *spec = w->world->spec;
	struct link_config links[WORLD_AGGREGATORS_MAX];
	struct session_config config = {
		.links = links,
		.names = w->world->names + aggregator_of(w, 0),
		.link_count = links_of(w),
		.pool = w->world->pool,
		.bitmap = w->world->engine,
		/* Nothing may end there but for the reasons that the judge knows. */
		.private_network = spec->private_network ||
	                           w->spec->in.loss_ppm >= PRIVATE_LOSS_PPM ||
	                           spec->aggregators[0].in.loss_ppm >= PRIVATE_LOSS_PPM,
	};
	char job[16], host[16];

	snprintf(job, sizeof(job), "job%u", w->job);
	snprintf(host, sizeof(host), "host%u", w->node);
	for (uint32_t i = 0; i < links_of(w); i++) {
		links[i] = (struct link_config){
			.job = job,
			.host = host,
			.rank = w->rank,
			.world = job_of(w)->world,
			.payload = w->spec->payload,
			.rcvbuf = w->spec->rcvbuf,
			.silence_us = w->spec->silence_us,
			.stall_us = w->spec->stall_us,
			.join_us = 30000000,
			.multicast = true,
			.keyed = w->world->keyed,
		};
	}
	if (session_open(&config, clock_of(w), &w->session) != 0)
		abort();
}

static void connect_all(struct sim_worker *w)
{
	char job[16];

	snprintf(job, sizeof(job), "job%u", w->job);
	for (uint32_t i = 0; i < links_of(w); i++) {
		struct link *link = session_link(w->session, i);
		struct sim_aggregator *a = &w->world->aggregators[aggregator_of(w, i)];

		w->connections[i] = aggregator_connect(a, w->node, job, link);
		link_connected(link, clock_of(w));
	}
}

static void submit_later(struct sim_worker *w)
{
	struct simnet *net = w->world->net;
	uint64_t pause_us = 0;

	if (!simnet_chance(net, job_of(w)->eager_ppm))
		pause_us = simnet_between(net, 0, job_of(w)->gap_us);
	simnet_timer(net, w->node, TIMER_SUBMIT, simnet_now(net) + pause_us);
}

void op_over(struct sim_op *op)
{
	struct sim_worker *w = op->worker;

	op->dones++;
	w->finished++;
	w->world->last_us = simnet_now(w->world->net);
	measure_time(w, w->world->last_us - op->submitted_us);
	if (job_of(w)->again > 0)
		submit_later(w);
}

static void task_done(struct allreduce *task)
{
	struct sim_op *op = task->context;

	if (staging_finish(&op->staged, task->status != WINNOW_OK))
		return;
	if (op->rows != NULL && op->rows->gather && task->status == 0)
		rows_scatter(op, worker_op(op->worker, (uint32_t)(op - op->worker->ops)));
	op_over(op);
}

static void shuffle(struct sim_worker *w, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		w->order[i] = i;
	for (uint32_t i = count; job_of(w)->own_order && i > 1; i--) {
		uint32_t j = (uint32_t)simnet_between(w->world->net, 0, i - 1);
		uint32_t keep = w->order[i - 1];

		w->order[i - 1] = w->order[j];
		w->order[j] = keep;
	}
}

void worker_open(struct world *world, uint32_t index, uint32_t job, uint32_t rank)
{
	struct sim_worker *w = &world->workers[index];

	w->world = world;
	w->spec = &world->spec->workers[index];
	w->node = world->spec->aggregator_count + index;
	w->job = job;
	w->rank = rank;
	w->thread.rcvbuf = w->spec->rcvbuf;
	w->thread.cpu = w->spec->cpu;
	w->wake_us = UINT64_MAX;
	shuffle(w, job_of(w)->op_count);
	session_begin(w);
	simnet_timer(world->net, w->node, TIMER_CONNECT, w->spec->connect_us);
}

static void buffers_make(struct sim_worker *w, uint32_t number)
{
	const struct op_spec *spec = worker_op(w, number);
	struct sim_op *op = &w->ops[number];
	size_t bytes = spec->count * data_elem_bytes(spec->dtype);
	size_t share = share_of(w, spec) * data_elem_bytes(spec->dtype);

	op->send = malloc(bytes > 0 ? bytes : 1);
	op->recv = op->send + (spec->scatter ? w->rank * share : 0);
	op->on_gpu = simnet_chance(w->world->net, job_of(w)->gpu_ppm) && !spec->scatter &&
	             (spec->form == WIRE_NATIVE || spec->form == WIRE_FIXED32);
	data_fill(spec, w->rank, op->send);
	op->in_place = simnet_chance(w->world->net, job_of(w)->in_place_ppm);
	if (op->in_place)
		return;
	op->recv = malloc(share > 0 ? share : 1);
	memset(op->recv, 0xa5, share);
	if (!op->on_gpu && !spec->scatter && spec->layout == 0)
		rows_make(w, op, spec);
}

void worker_close(struct sim_worker *worker)
{
	session_close(worker->session);
	staging_close(worker->staging);
	for (uint32_t i = 0; i < WORLD_OPS_MAX; i++) {
		rows_close(worker->ops[i].rows);
		free(worker->ops[i].list);
		free(worker->ops[i].staged.mark); /* it died before the operation was done */
		if (!worker->ops[i].in_place)
			free(worker->ops[i].recv);
		free(worker->ops[i].send);
	}
}

/* ---- operations ---- */

static uint32_t priority_of(const struct sim_worker *w, const struct op_spec *spec)
{
	uint64_t most = job_of(w)->priority_max;

	return job_of(w)->own_priorities ? (uint32_t)simnet_between(w->world->net, 0, most)
	                                 : spec->priority;
}

static void submit(struct sim_worker *w)
{
	uint32_t number = w->order[w->submitted % job_of(w)->op_count];
	const struct op_spec *spec = worker_op(w, number);
	struct sim_op *op = &w->ops[number];
	int result;

	if (op->send == NULL)
		buffers_make(w, number);
	op->worker = w;
	op->submitted_us = simnet_now(w->world->net);
	op->task = (struct allreduce){
		.send = op->send,
		.recv = op->recv,
		.count = spec->count,
		.scatter = spec->scatter,
		.access = rows_access(op->rows),
		.access_state = op->rows,
		.tag = spec->tag,
		.priority = priority_of(w, spec),
		.block_elems = spec->block,
		.dtype = spec->dtype,
		.reduction = spec->reduction,
		.form = spec->form,
		.done = task_done,
		.context = op,
	};
	layout_make(op, spec);
	if (op->on_gpu)
		gpu_post(w, op);
	result = session_submit(w->session, &op->task, clock_of(w));
	op->submitted = true;
	w->submitted++;
	if (result == 0)
		return;
	op->task.status = result;
	task_done(&op->task);
	if (session_state(w->session) != SESSION_FAILED)
		world_fail(w->world, "job %u rank %u: submit gave %d", w->job, w->rank, result);
}

static void submit_next(struct sim_worker *w)
{
	struct world *world = w->world;

	if (w->submitted == worker_ops(w))
		return;
	faults_arm(world, w->job);
	if (world->first_us == 0)
		world->first_us = simnet_now(world->net);
	submit(w);
	if (job_of(w)->again == 0)
		submit_later(w);
}

static void leave_when_done(struct sim_worker *w)
{
	struct sim_fault *leaves = fault_of(w->world, w, FAULT_LEAVE);

	if (w->left || w->finished < worker_ops(w) || w->submitted < worker_ops(w))
		return;
	if (session_state(w->session) == SESSION_FAILED) {
		w->left = true;
		return;
	}
	/* One that has an operation still to submit, and does not, waits for what comes of it. */
	if (fault_of(w->world, w, FAULT_ABSENT) != NULL || !session_quiet(w->session))
		return;
	w->left = true;
	if (leaves != NULL)
		leaves->struck_us = simnet_now(w->world->net);
	session_leave(w->session);
}

/* ---- running ---- */

static void lines_out(struct sim_worker *w)
{
	for (uint32_t i = 0; i < links_of(w); i++) {
		const uint32_t to = aggregator_of(w, i);
		char *line;

		while ((line = session_take_line(w->session, i, clock_of(w))) != NULL) {
			if (!w->world->aggregators[to].dead)
				simnet_line(w->world->net, w->connections[i], w->node, to, line);
			free(line);
		}
	}
}

static void groups_join(struct sim_worker *w)
{
	for (uint32_t i = 0; i < links_of(w); i++)
		if (has_group(session_link(w->session, i)))
			w->group_known[aggregator_of(w, i)] = true;
}

/* What streams send and receive: KNOCKs and their answers are the links'. */
static void count(const uint8_t *data, uint32_t bytes, uint64_t *packets, uint64_t *all_bytes)
{
	uint8_t kind = data[offsetof(struct wire_header, kind)];

	if (kind == WIRE_KNOCK || kind == WIRE_KNOCKED || kind == WIRE_PROBE)
		return;
	(*packets)++;
	*all_bytes += bytes;
}

/* As long as the socket has room; what it has no room for stays in the machines. */
static bool datagrams_out(struct sim_worker *w)
{
	struct packet_out out = {.scratch = w->world->scratch};
	struct simnet *net = w->world->net;
	uint64_t now_us = simnet_now(net);

	for (uint32_t i = 0; i < links_of(w); i++) {
		const uint32_t to = aggregator_of(w, i);

		while (simnet_ready_us(net, w->node) <= now_us &&
		       session_pull(w->session, i, clock_of(w), &out)) {
			packet_flatten(&out, w->world->flat);
			count(w->world->flat, out.bytes, &w->sent, &w->sent_bytes);
			simnet_send(net, w->node, &to, 1, w->world->flat, out.bytes);
		}
	}
	return simnet_ready_us(net, w->node) <= now_us;
}

static void wake_at(struct sim_worker *w, uint64_t due_us)
{
	uint64_t now_us = simnet_now(w->world->net);

	if (due_us == UINT64_MAX || w->left)
		return;
	if (due_us <= now_us)
		due_us = now_us + 1;
	if (w->wake_us <= now_us || due_us < w->wake_us) {
		w->wake_us = due_us;
		simnet_timer(w->world->net, w->node, TIMER_WAKE, due_us);
	}
}

/* While datagrams gather, as comm_loop.c does. */
static void sleep_until(struct sim_worker *w, uint64_t due_us)
{
	uint64_t until_us = simnet_now(w->world->net) + session_gather_us(w->session, clock_of(w));

	w->thread.sleeps = until_us > simnet_now(w->world->net);
	until_us = until_us < due_us ? until_us : due_us;
	if (until_us > w->thread.busy_until_us)
		w->thread.busy_until_us = until_us;
}

void worker_run(struct sim_worker *w)
{
	uint64_t now_us = clock_of(w), due_us;
	bool room, worked;

	w->thread.turn_due = false;
	w->world->out->turns++;
	session_tick(w->session, now_us);
	groups_join(w);
	if (!w->begun && session_state(w->session) != SESSION_JOINING) {
		w->begun = true;
		submit_next(w);
	}
	do {
		room = datagrams_out(w);
		worked = gpu_turn(w);
		worked = session_work(w->session, now_us) || worked;
	} while (worked);
	leave_when_done(w);
	lines_out(w);
	due_us = session_deadline(w->session);
	due_us = due_us != UINT64_MAX ? due_us - w->spec->clock_us : due_us;
	wake_at(w, due_us);
	wake_at(w, gpu_due_us(w));
	if (!room)
		wake_at(w, simnet_ready_us(w->world->net, w->node));
	else if (w->staging == NULL)
		sleep_until(w, due_us);
}

static void timer(struct sim_worker *w, uint32_t channel)
{
	if (channel == TIMER_CONNECT)
		connect_all(w);
	if (channel == TIMER_SUBMIT)
		submit_next(w);
	worker_run(w);
}

static void hear(struct sim_worker *w, const struct sim_event *event)
{
	uint64_t came_us = event->came_us != 0 ? event->came_us + w->spec->clock_us : 0;

	session_datagram(w->session, link_to(w, event->from),
	                 &(struct arrival){.data = event->data,
	                                   .bytes = event->bytes,
	                                   .came_us = came_us,
	                                   .marked = event->marked},
	                 clock_of(w));
}

/* It may reach a stream, another than it was sent to, or none. */
static void changed_take(struct sim_worker *w, const struct sim_event *event)
{
	struct winnow_stats before, after;

	session_stats(w->session, &before);
	hear(w, event);
	session_stats(w->session, &after);
	w->received += after.received_packets - before.received_packets;
	w->received_bytes +=
		after.received_bytes - before.received_bytes -
		(after.received_packets - before.received_packets) * WIRE_ETHERNET_BYTES;
}

static void datagram(struct sim_worker *w, const struct sim_event *event)
{
	struct world *world = w->world;
	uint64_t now_us = simnet_now(world->net);

	if (simnet_chance(world->net, w->spec->pause_ppm))
		w->thread.busy_until_us = now_us + simnet_between(world->net, 1, w->spec->pause_us);
	if (event->changed)
		changed_take(w, event);
	else if (session_state(w->session) == SESSION_RUNNING)
		count(event->data, event->bytes, &w->received, &w->received_bytes);
	if (!event->changed)
		hear(w, event);
	if (!thread_gathers(world, &w->thread, w->node, w->spec->turn_us))
		worker_run(w);
}

/* Sums that its GPU has no room for stay in the socket, but for those that come with others. */
static bool stays_out(struct sim_worker *w, struct sim_event *event)
{
	uint64_t busy_us = w->thread.busy_until_us, due_us = 0;
	bool stays;

	if (event->kind == SIM_DATAGRAM && w->staging != NULL &&
	    (staging_state(w->staging) & STAGING_FULL) != 0 &&
	    !simnet_chance(w->world->net, 100000))
		due_us = gpu_due_us(w);
	if (due_us == UINT64_MAX || due_us <= busy_us)
		return thread_busy(w->world, &w->thread, event);
	w->thread.busy_until_us = due_us;
	stays = thread_busy(w->world, &w->thread, event);
	w->thread.busy_until_us = busy_us;
	return stays;
}

void worker_event(struct sim_worker *w, struct sim_event *event)
{
	if (w->dead || (w->left && event->kind != SIM_LINE) || stays_out(w, event))
		return;
	switch (event->kind) {
	case SIM_DATAGRAM:
		datagram(w, event);
		break;
	case SIM_LINE:
		session_line(w->session, link_to(w, event->from), (const char *)event->data,
		             clock_of(w));
		worker_run(w);
		break;
	case SIM_GONE:
		session_gone(w->session, link_to(w, event->from), "connection reset");
		worker_run(w);
		break;
	case SIM_TIMER:
		timer(w, event->channel);
		break;
	default:
		break;
	}
	session_check(w->session);
}
