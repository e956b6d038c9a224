// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_exchange.c - an aggregator's channels and workers' engines, and a network that changes what they say
 *
 * The input is a script: a worker submits an operation, time passes, somebody sends. What is sent arrives, or is
 * lost, doubled, kept to come again much later; and a field of it, a few of its bytes or its length may be others.
 * After each step what always holds of both machines is asked. Tensors and datagrams have exactly their size, so
 * that whatever is read or written beyond them is seen.
 */

#include "aggregator/channel/channel_state.h"
#include "bitmap/coded.h"
#include "client/worker/array.h"
#include "client/worker/engine.h"
#include "client/worker/pace.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/fuzz/fuzz.h"

#define SHARDS_MAX 2
#define ENGINES_MAX 3
#define WORKERS_MAX                                                                                \
	70 /* more than a word of ranks; those without an engine are never heard, but by chance */
#define TASKS_MAX 4
#define PARTS_MAX 3
#define KEPT_MAX 8
#define GROUP_TOKEN 77
#define PULLS_MAX 20000 /* far above what windows and segments allow at one time */

struct datagram {
	uint8_t *data;
	uint32_t bytes, shard;
	uint16_t dest; /* of an aggregator's; of a worker's who has sent it */
	bool to_worker;
};

struct worker {
	struct engine *engine;
	struct stream_config configs[SHARDS_MAX];
	uint32_t acks[SHARDS_MAX];
	struct allreduce tasks[TASKS_MAX];
	struct geometry_part parts[TASKS_MAX][PARTS_MAX];
	bool in_place[TASKS_MAX], running[TASKS_MAX];
	uint64_t submitted;
};

/* What all workers submit, in turn. */
struct op {
	uint8_t size, kind, parts;
};

static struct machine {
	struct script script;
	uint32_t shard_count, engine_count;
	struct channel *channels[SHARDS_MAX];
	uint64_t tokens[WORKERS_MAX];
	struct worker workers[ENGINES_MAX];
	struct op ops[16];
	uint64_t now_us;
	uint32_t kept_count;
	struct datagram kept[KEPT_MAX];
	uint8_t scratch[4096];
} m;
static struct bitmap_pool *pool;

static bool machine_open(void)
{
	static const uint32_t payloads[] = {WIRE_PAYLOAD_MIN, 1472, 600, 3470};
	struct script *s = &m.script;
	uint8_t size = script_u8(s), shape = script_u8(s);
	struct channel_config config = {
		.payload = payloads[shape % 4],
		.window = 4u << size % 4,
		.op_slots = 1 + size / 4 % 4,
		.segments_ahead = 1 + size / 16 % 4,
		.first_frame = UINT32_MAX - script_u8(s),
		.group_token = GROUP_TOKEN,
		.tokens = m.tokens,
		.stall_us = 1000000,
		.engine = bitmap_engines[0],
	};

	m.shard_count = 1 + shape / 4 % SHARDS_MAX;
	m.engine_count = 1 + shape / 8 % ENGINES_MAX;
	config.worker_count = (uint16_t)(shape >= 240 ? WORKERS_MAX : m.engine_count);
	for (uint16_t i = 0; i < config.worker_count; i++)
		m.tokens[i] = 1000 + i;
	assert(channel_memory(&config) > 0);
	for (uint32_t i = 0; i < m.shard_count; i++) {
		config.id = (uint16_t)i;
		if (channel_open(&config, &m.channels[i]) != 0)
			return false;
	}
	assert(pool != NULL || bitmap_pool_open(bitmap_engines[0], 1, &pool) == 0);
	for (uint16_t rank = 0; rank < m.engine_count; rank++) {
		struct worker *w = &m.workers[rank];

		for (uint32_t i = 0; i < m.shard_count; i++) {
			w->acks[i] = config.first_frame;
			w->configs[i] = (struct stream_config){
				.channel = (uint16_t)i,
				.shard = (uint16_t)i,
				.shard_count = (uint16_t)m.shard_count,
				.rank = rank,
				.world = config.worker_count,
				.payload = config.payload,
				.window = config.window,
				.window_start = 1u + size,
				.op_slots = config.op_slots,
				.segments_ahead = config.segments_ahead,
				.first_frame = config.first_frame,
				.token = m.tokens[rank],
				.group_token = GROUP_TOKEN,
				.engine = bitmap_engines[0],
			};
		}
		assert(engine_open(w->configs, m.shard_count, pool, &w->engine) == 0);
	}
	return true;
}

/* ---- operations ---- */

static void task_done(struct allreduce *task)
{
	struct worker *w = task->context;
	uint32_t index = (uint32_t)(task - w->tasks);

	assert(w->running[index]);
	w->running[index] = false;
	if (!w->in_place[index])
		free(task->recv);
	free((void *)(uintptr_t)task->send);
}

static void *new_tensor(size_t bytes)
{
	uint8_t *data = calloc(1, bytes > 0 ? bytes : 1);
	uint32_t marks = script_u8(&m.script) % 8;

	assert(data != NULL);
	if (script_u8(&m.script) % 4 == 0)
		script_fill(&m.script, data, bytes);
	for (uint32_t i = 0; i < marks && bytes > 0; i++)
		data[(size_t)script_u16(&m.script) * 37 % bytes] = script_u8(&m.script);
	return data;
}

/* A tensor of several parts, which may be matrices in tiles; `seed` says which. */
static void parts_make(struct allreduce *task, struct geometry_part *parts, uint32_t seed)
{
	uint64_t left = task->count;

	task->parts = parts;
	for (; left > 0; seed = seed * 1664525 + 1013904223) {
		struct geometry_part *part = &task->parts[task->part_count++];
		uint64_t columns = seed >> 8 & 0xff;

		*part = (struct geometry_part){.count = left,
		                               .tile_rows = 1 + (seed >> 16) % 64,
		                               .tile_columns = 1 + (seed >> 24),
		                               .copies = 1};
		if (task->part_count < PARTS_MAX)
			part->count = 1 + seed % left;
		if (columns > 0 && part->count % columns == 0)
			part->columns = columns;
		left -= part->count;
	}
}

static struct allreduce task_of(const struct op *op, uint64_t tag)
{
	static const uint8_t forms[] = {WIRE_FIXED32, WIRE_FIXED16, WIRE_FIXED8, WIRE_BF16};
	static const uint64_t counts[] = {0, 1, 40, 300, 1000, 5000, 9000, 20000};
	static const uint32_t block_lengths[] = {1, 16, 64, 100, 256, 1000, 4096, 65536};
	struct allreduce task = {
		.count = counts[op->size % 8],
		.tag = tag,
		.block_elems = block_lengths[op->size / 8 % 8],
		.dtype = (uint8_t)(1 + op->kind % DTYPE_COUNT),
		.reduction = (uint8_t)(1 + op->kind / 8 % REDUCE_COUNT),
		.access = &array_access,
		.done = task_done,
		.scatter = op->kind & 64,
	};

	if (op->kind >= 192) {
		task.dtype = DTYPE_F32;
		task.reduction = (uint8_t)(1 + op->kind % 2);
		task.form = forms[op->kind % 4];
	}
	return task;
}

/* The next operation, mostly as the others have it. */
static void submit(struct worker *w)
{
	struct op *op = &m.ops[w->submitted % 16], own;
	uint32_t index = (uint32_t)(w->submitted % TASKS_MAX), world = w->configs[0].world;
	uint8_t differs = script_u8(&m.script);
	struct allreduce *task = &w->tasks[index];
	size_t bytes, share;

	if (w->running[index])
		return;
	if (w == &m.workers[0])
		*op = (struct op){script_u8(&m.script), script_u8(&m.script), script_u8(&m.script)};
	own = *op;
	if (differs < 16)
		own = (struct op){op->size ^ differs, op->kind ^ (differs & 5),
		                  op->parts ^ (differs & 2)};
	*task = task_of(&own, w->submitted % 64);
	task->context = w;
	w->submitted++;
	if (task->scatter)
		task->count -= task->count % world;
	else if (own.parts % 2 == 0)
		parts_make(task, w->parts[index], own.parts * 77u);
	bytes = task->count * dtype_bytes(task->dtype);
	share = task->scatter ? bytes / world : bytes;
	task->send = new_tensor(bytes);
	w->in_place[index] = differs >= 192;
	if (w->in_place[index])
		task->recv = (uint8_t *)(uintptr_t)task->send +
		             (task->scatter ? share * w->configs[0].rank : 0);
	else
		task->recv = exact_copy(task->send, share);
	w->running[index] = true;
	if (engine_submit(w->engine, task, m.now_us) != 0)
		task_done(task);
}

/* ---- the network ---- */

static struct datagram datagram_of(const struct packet_out *out, bool to_worker, uint32_t shard,
                                   uint16_t who)
{
	struct datagram datagram = {malloc(out->bytes), out->bytes, shard, who, to_worker};

	assert(datagram.data != NULL);
	packet_flatten(out, datagram.data);
	return datagram;
}

/* One thing about it is another. */
static void twist(struct datagram *datagram)
{
	static const struct {
		uint8_t at, bytes;
	} fields[] = {
		{offsetof(struct wire_header, kind), 1},
		{offsetof(struct wire_header, worker), 2},
		{offsetof(struct wire_header, seal), 8},
		{offsetof(struct wire_header, frame), 4},
		{offsetof(struct wire_header, edge), 4},
		{offsetof(struct wire_header, number), 8},
		{offsetof(struct wire_header, window), 2},
		{offsetof(struct wire_header, sequence), 2},
	};
	struct script *s = &m.script;
	uint8_t byte = script_u8(s);
	uint32_t at = 0, bytes = 0;

	if (byte < 64) {
		at = fields[byte % 8].at;
		bytes = fields[byte % 8].bytes;
	} else if (byte < 128) { /* of the body */
		at = WIRE_HEADER_BYTES + script_u8(s) % 64u;
		bytes = 1u << byte % 4;
	} else if (byte < 136) { /* shorter, or longer by what it said before */
		datagram->bytes = script_below(s, datagram->bytes + 1);
	} else if (byte < 144) {
		bytes = datagram->bytes + script_u8(s);
		datagram->data = realloc(datagram->data, bytes);
		assert(datagram->data != NULL);
		memset(datagram->data + datagram->bytes, byte, bytes - datagram->bytes);
		datagram->bytes = bytes;
		return;
	}
	for (uint32_t i = at; i < at + bytes && i < datagram->bytes; i++)
		datagram->data[i] = script_u8(s);
}

static void channel_take(struct channel *c, const struct packet *packet)
{
	uint32_t waiting = c->replies.tail - c->replies.head, items = 2;

	if (packet->kind == WIRE_KNOCK)
		return;
	if (packet->kind ==
	    WIRE_STATUS) /* a RESULT or PLAN a bit, an answer, and what is missing of this worker's */
		items += packet->body_bytes * 8;
	channel_receive(c, packet, m.now_us);
	assert(c->replies.tail - c->replies.head <= waiting + items);
}

static void engine_take(struct engine *engine, uint32_t shard, const struct packet *packet)
{
	const struct allreduce *failed = engine_receive(engine, shard, packet, m.now_us);

	if (failed != NULL)
		engine_fail(engine, failed->status);
}

static void arrive(const struct datagram *datagram)
{
	uint8_t *data = exact_copy(datagram->data, datagram->bytes);
	struct packet packet;

	if (packet_parse(data, datagram->bytes, datagram->to_worker, &packet) == WIRE_DROP_NONE) {
		if (!datagram->to_worker)
			channel_take(m.channels[datagram->shard], &packet);
		else
			for (uint32_t i = 0; i < m.engine_count; i++)
				if (datagram->dest == WIRE_EVERYONE || datagram->dest == i)
					engine_take(m.workers[i].engine, datagram->shard, &packet);
	}
	free(data);
}

static void keep(const struct datagram *datagram)
{
	struct datagram *kept = &m.kept[m.kept_count++ % KEPT_MAX];

	free(kept->data);
	*kept = *datagram;
	kept->data = exact_copy(datagram->data, datagram->bytes);
}

/* What the network does with it. `plain`: nothing. */
static void carry(struct datagram *datagram, bool plain)
{
	uint8_t byte = plain ? 255 : script_u8(&m.script);

	if (byte < 64)
		keep(datagram);
	if (byte < 96)
		twist(datagram);
	if (byte < 200 && byte >= 160) /* lost */
		datagram->bytes = 0;
	if (datagram->bytes > 0)
		arrive(datagram);
	if (byte >= 128 && byte < 160)
		arrive(datagram);
	free(datagram->data);
}

/* ---- who sends ---- */

static void check_worker(struct worker *w, const struct packet_out *out,
                         const struct datagram *datagram)
{
	const struct stream_config *config = &w->configs[datagram->shard];
	struct packet packet;

	assert(packet_parse(datagram->data, datagram->bytes, false, &packet) == WIRE_DROP_NONE);
	assert(out->bytes <= config->payload && packet.channel == datagram->shard);
	assert(packet.token == config->token && packet.worker == config->rank);
	assert(!frame_before(packet.edge, w->acks[datagram->shard]));
	w->acks[datagram->shard] = packet.edge;
	/* base + window is at most ack + window. */
	assert(packet.kind != WIRE_PUSH ||
	       (packet.frame - packet.edge < config->window && packet.body_bytes != 0));
}

static void worker_pulls(struct worker *w, uint32_t at_most, bool plain)
{
	struct packet_out out = {.scratch = m.scratch};
	uint32_t limit = PULLS_MAX;

	while (at_most > 0 && engine_pull(w->engine, 0, m.shard_count, m.now_us, &out)) {
		uint32_t shard = out.head[4] | (uint32_t)out.head[5] << 8;
		struct datagram datagram = datagram_of(&out, false, shard, w->configs[0].rank);

		assert(limit > 0 && shard < m.shard_count);
		limit--;
		check_worker(w, &out, &datagram);
		carry(&datagram, plain);
		at_most--;
	}
	/* Who has nothing to send now may sleep. */
	assert(at_most == 0 || engine_deadline(w->engine) > m.now_us);
}

static void check_channel(const struct channel *c, const struct packet_out *out,
                          const struct datagram *datagram)
{
	const struct slot *slot;
	struct packet packet;
	struct plan plan;

	assert(out->bytes <= c->config.payload);
	assert(out->dest == WIRE_EVERYONE || out->dest < c->config.worker_count);
	assert(packet_parse(datagram->data, datagram->bytes, true, &packet) == WIRE_DROP_NONE);
	assert(packet.token == GROUP_TOKEN && packet.worker == out->dest);
	assert(packet.edge == c->base && packet.edge + packet.window == c->credit &&
	       packet.planned == c->planned);
	if (packet.kind == WIRE_PLAN) {
		assert(plan_parse(&packet, &plan) == WIRE_DROP_NONE);
		assert(plan.status == WIRE_MISMATCH ||
		       frame_before(c->base, packet.frame + plan.frame_count));
	} else if (packet.kind == WIRE_RESULT) {
		slot = slot_at(c, packet.frame);
		assert(slot->frame == packet.frame && slot->state == SLOT_DONE);
		assert((packet.body_bytes > 0) ==
		       (out->dest == WIRE_EVERYONE || slot->receiver == WIRE_EVERYONE ||
		        slot->receiver == out->dest));
	}
}

/* Everything that a channel has to say now is a bounded number of packets. */
static void channel_pulls(uint32_t shard, uint32_t at_most, bool plain)
{
	struct channel *c = m.channels[shard];
	uint32_t limit = REPLIES_MAX + c->config.window + c->segment_count + 1;
	struct packet_out out;

	while (at_most-- > 0 && channel_pull(c, m.now_us, &out)) {
		struct datagram datagram = datagram_of(&out, true, shard, out.dest);

		assert(limit > 0 || !plain);
		limit--;
		check_channel(c, &out, &datagram);
		carry(&datagram, plain);
	}
}

/* Everybody says all, some times. */
static void exchange(uint32_t turns, bool plain)
{
	while (turns-- > 0) {
		for (uint32_t i = 0; i < m.engine_count; i++) {
			while (engine_work(m.workers[i].engine, m.now_us))
				;
			worker_pulls(&m.workers[i], UINT32_MAX, plain);
		}
		for (uint32_t i = 0; i < m.shard_count; i++)
			channel_pulls(i, UINT32_MAX, plain);
		m.now_us += 100;
	}
}

static void time_passes(void)
{
	struct engine *engine = m.workers[script_u8(&m.script) % m.engine_count].engine;
	struct channel_stall stall;

	if (script_u8(&m.script) % 2 == 0)
		m.now_us += script_u32(&m.script) % 2000000;
	else if (engine_deadline(engine) != UINT64_MAX && engine_deadline(engine) > m.now_us)
		m.now_us = engine_deadline(engine);
	for (uint32_t i = 0; i < m.shard_count; i++)
		if (channel_stalled(m.channels[i], m.now_us, &stall))
			assert(stall.missing <= m.channels[i]->config.worker_count &&
			       stall.rank < m.channels[i]->config.worker_count);
}

static void step(void)
{
	uint8_t byte = script_u8(&m.script);
	struct worker *w = &m.workers[byte / 16 % m.engine_count];
	struct datagram *kept = &m.kept[byte / 16 % KEPT_MAX];

	switch (byte % 16) {
	case 0:
	case 1:
		submit(w);
		break;
	case 2:
		for (uint32_t i = 0; i < m.engine_count; i++)
			submit(&m.workers[i]);
		break;
	case 3:
		time_passes();
		break;
	case 4:
		engine_work(w->engine, m.now_us);
		worker_pulls(w, script_u8(&m.script), false);
		engine_quiet(w->engine);
		break;
	case 5:
		channel_pulls(byte / 16 % m.shard_count, script_u8(&m.script), false);
		break;
	case 6:
	case 7:
		if (kept->data != NULL) {
			struct datagram again = *kept;

			again.data = exact_copy(kept->data, kept->bytes);
			carry(&again, false);
		}
		break;
	case 8:
		exchange(1 + byte / 16, true);
		break;
	default:
		exchange(1, false);
	}
}

static void machine_check(void)
{
	for (uint32_t i = 0; i < m.engine_count; i++)
		engine_check(m.workers[i].engine);
	for (uint32_t i = 0; i < m.shard_count; i++) {
		channel_check(m.channels[i]);
		assert(!channel_idle(m.channels[i]) || m.channels[i]->ops_used == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	m = (struct machine){.script = {.at = data, .left = bytes}, .now_us = 1000000};
	if (!machine_open())
		return 0;
	while (m.script.left > 0) {
		step();
		machine_check();
	}
	for (uint32_t rank = 0; rank < m.engine_count; rank++) {
		struct worker *w = &m.workers[rank];

		engine_fail(w->engine, -1);
		for (uint32_t i = 0; i < TASKS_MAX; i++)
			assert(!w->running[i]); /* done() is called for each, once */
		engine_close(w->engine);
	}
	for (uint32_t i = 0; i < m.shard_count; i++)
		channel_close(m.channels[i]);
	for (uint32_t i = 0; i < KEPT_MAX; i++)
		free(m.kept[i].data);
	return 0;
}
