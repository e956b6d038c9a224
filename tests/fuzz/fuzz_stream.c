// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_stream.c - a worker's engine and streams against an aggregator that sends anything
 *
 * The input is a script: submit, let time pass, pull, and packets from the aggregator. These are
 * built from what the worker announced, so that most are taken, then one field may be replaced.
 * Tensors have exactly their size, so that whatever is written beyond them is seen.
 */

#include "bitmap/coded.h"
#include "client/worker/array.h"
#include "client/worker/pace.h"
#include "client/worker/engine.h"
#include "tests/check/check.h"
#include "tests/flatten.h"
#include "tests/fuzz/fuzz.h"

#define STREAMS_MAX 3
#define TASKS_MAX 6
#define PARTS_MAX 3
#define KNOWN_MAX 16
#define GROUP_TOKEN 77
#define PULLS_MAX 20000 /* far above what windows and segments allow at one time */

/* An announcement that came from the worker, and the frames that we gave it. */
struct known {
	bool used, planned;
	struct announce announce;
	struct geometry_frames frames;
	uint16_t receiver;
	uint64_t bits[WIRE_SEGMENT_BLOCKS_MAX / 64];
	uint32_t block_count, union_count;
	uint32_t first, frame_count;
};

/* The aggregator's end of one stream. */
struct peer {
	uint32_t planned, ack; /* what the worker was told, what it told us */
	uint16_t sequence;
	uint32_t known_count;
	struct known known[KNOWN_MAX];
};

struct machine {
	struct script script;
	struct engine *engine;
	struct stream_config configs[STREAMS_MAX];
	uint32_t stream_count;
	struct peer peers[STREAMS_MAX];
	struct allreduce tasks[TASKS_MAX];
	struct geometry_part parts[TASKS_MAX][PARTS_MAX];
	bool in_place[TASKS_MAX];
	bool running[TASKS_MAX];
	uint64_t now_us, next_tag;
	struct wire_header head;
	uint8_t body[16384], scratch[4096];
	uint32_t body_bytes;
};

static struct machine m;
static struct bitmap_pool *pool;

static void machine_open(void)
{
	static const uint32_t payloads[] = {WIRE_PAYLOAD_MIN, 1472, 600, 3470};
	struct script *s = &m.script;
	uint16_t world = (uint16_t)(1 + script_u8(s) % 8);
	uint16_t rank = (uint16_t)(script_u8(s) % world);
	uint32_t payload = payloads[script_u8(s) % 4];
	uint8_t size = script_u8(s);

	m.stream_count = 1 + script_u8(s) % STREAMS_MAX;
	for (uint32_t i = 0; i < m.stream_count; i++) {
		m.configs[i] = (struct stream_config){
			.channel = (uint16_t)i,
			.shard = (uint16_t)i,
			.shard_count = (uint16_t)m.stream_count,
			.rank = rank,
			.world = world,
			.payload = payload,
			.window = 4u << size % 4,
			.window_start = 1u + script_u8(s),
			.op_slots = 1 + size / 4 % 4,
			.segments_ahead = 1 + size / 16 % 4,
			.first_frame = UINT32_MAX - script_u8(s),
			.token = 1000 + i,
			.group_token = GROUP_TOKEN,
			.engine = bitmap_engines[0],
		};
		m.peers[i].planned = m.peers[i].ack = m.configs[i].first_frame;
	}
	assert(pool != NULL || bitmap_pool_open(bitmap_engines[0], 1, &pool) == 0);
	assert(engine_open(m.configs, m.stream_count, pool, &m.engine) == 0);
}

/* ---- operations ---- */

static void task_done(struct allreduce *task)
{
	uint32_t index = (uint32_t)(task - m.tasks);

	assert(m.running[index]);
	m.running[index] = false;
	if (!m.in_place[index])
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

/* A tensor of several parts, which may be matrices in tiles. */
static void parts_make(uint32_t index)
{
	struct allreduce *task = &m.tasks[index];
	struct script *s = &m.script;
	uint64_t left = task->count;

	task->parts = m.parts[index];
	while (left > 0) {
		struct geometry_part *part = &task->parts[task->part_count++];
		uint64_t columns = script_u8(s);

		*part = (struct geometry_part){.count = left,
		                               .tile_rows = 1 + script_u8(s) % 64,
		                               .tile_columns = 1 + script_u8(s),
		                               .copies = 1};
		if (task->part_count < PARTS_MAX)
			part->count = 1 + script_u16(s) % left;
		if (columns > 0 && part->count % columns == 0)
			part->columns = columns;
		left -= part->count;
	}
}

static void submit(void)
{
	static const uint8_t forms[] = {WIRE_FIXED32, WIRE_FIXED16, WIRE_FIXED8, WIRE_BF16};
	static const uint64_t counts[] = {0, 1, 40, 300, 1000, 5000, 9000, 20000};
	static const uint32_t block_lengths[] = {1, 16, 64, 100, 256, 1000, 4096, 65536};
	struct script *s = &m.script;
	uint32_t index = script_u8(s) % TASKS_MAX;
	uint8_t size = script_u8(s), kind = script_u8(s);
	struct allreduce *task = &m.tasks[index];
	size_t bytes, share;

	if (m.running[index])
		return;
	*task = (struct allreduce){
		.count = counts[size % 8],
		.tag = m.next_tag++ % 64,
		.block_elems = block_lengths[size / 8 % 8],
		.dtype = (uint8_t)(1 + kind % DTYPE_COUNT),
		.reduction = (uint8_t)(1 + kind / 8 % REDUCE_COUNT),
		.access = &array_access,
		.done = task_done,
	};
	if (kind >= 192) {
		task->dtype = DTYPE_F32;
		task->reduction = (uint8_t)(1 + kind % 2);
		task->form = forms[kind % 4];
	}
	task->scatter = kind & 64;
	if (task->scatter)
		task->count -= task->count % m.configs[0].world;
	else if (script_u8(s) % 2 == 0)
		parts_make(index);
	bytes = task->count * dtype_bytes(task->dtype);
	share = task->scatter ? bytes / m.configs[0].world : bytes;
	task->send = new_tensor(bytes);
	m.in_place[index] = size < 64;
	if (m.in_place[index])
		task->recv = (uint8_t *)(uintptr_t)task->send +
		             (task->scatter ? share * m.configs[0].rank : 0);
	else
		task->recv = exact_copy(task->send, share);
	m.running[index] = true;
	if (engine_submit(m.engine, task, m.now_us) != 0)
		task_done(task);
}

/* ---- what the worker sends ---- */

static void announce_keep(struct peer *peer, const struct packet *packet, uint32_t stream)
{
	struct known *known = &peer->known[peer->known_count % KNOWN_MAX];
	const struct announce *a = &known->announce;
	uint32_t words, shares;

	peer->known_count++;
	*known = (struct known){.used = true};
	assert(announce_parse(packet, &known->announce) == WIRE_DROP_NONE);
	assert(a->segment < a->segment_count && a->block_count <= WIRE_SEGMENT_BLOCKS_MAX);
	known->block_count = a->block_count;
	known->frames =
		geometry_frames(a->block_elems * dtype_bytes(dtype_in_form(a->form, a->dtype)),
	                        m.configs[stream].payload);
	shares = (a->flags & (WIRE_SCATTER | WIRE_EAGER)) == WIRE_SCATTER && a->count > 0
	                 ? m.configs[stream].world
	                 : 1;
	assert(a->segment_count % shares == 0);
	known->receiver =
		shares > 1 ? (uint16_t)(a->segment / (a->segment_count / shares)) : WIRE_EVERYONE;
	words = (known->block_count + 63) / 64;
	if (known->announce.flags & WIRE_ALL)
		memset(known->bits, 0xff, words * 8);
	else if (!(known->announce.flags & WIRE_NONE))
		assert(bits_read(known->announce.set.data, known->announce.set.bytes, known->bits,
		                 known->block_count) == 0);
	if (known->block_count % 64 != 0)
		known->bits[words - 1] &= (UINT64_C(1) << known->block_count % 64) - 1;
}

static void worker_packet(const struct packet_out *out)
{
	uint8_t *data = malloc(out->bytes);
	struct packet packet;
	struct peer *peer;

	assert(data != NULL);
	packet_flatten(out, data);
	assert(packet_parse(data, out->bytes, false, &packet) == WIRE_DROP_NONE);
	assert(packet.channel < m.stream_count);
	assert(out->bytes <= m.configs[packet.channel].payload);
	assert(packet.token == m.configs[packet.channel].token);
	assert(packet.worker == m.configs[packet.channel].rank);
	peer = &m.peers[packet.channel];
	assert(!frame_before(packet.edge, peer->ack));
	peer->ack = packet.edge;
	/* base + window is at most ack + window. */
	if (packet.kind == WIRE_PUSH)
		assert(packet.frame - packet.edge < m.configs[packet.channel].window &&
		       packet.body_bytes != 0);
	if (packet.kind == WIRE_ANNOUNCE)
		announce_keep(peer, &packet, packet.channel);
	free(data);
}

static void pull_all(uint32_t at_most)
{
	struct packet_out out = {.scratch = m.scratch};
	uint32_t limit = PULLS_MAX;

	while (at_most > 0 && engine_pull(m.engine, 0, m.stream_count, m.now_us, &out)) {
		assert(limit > 0);
		limit--;
		worker_packet(&out);
		at_most--;
	}
	/* Who has nothing to send now may sleep. */
	assert(at_most == 0 || engine_deadline(m.engine) > m.now_us);
}

/* ---- what the aggregator sends ---- */

static void deliver(uint32_t stream)
{
	struct packet_out out = {0};
	const struct allreduce *failed = NULL;
	struct packet packet;
	uint8_t *data;

	packet_begin(&out, &m.head);
	packet_point(&out, m.body, m.body_bytes);
	data = malloc(out.bytes);
	assert(data != NULL);
	packet_flatten(&out, data);
	if (packet_parse(data, out.bytes, true, &packet) == WIRE_DROP_NONE)
		failed = engine_receive(m.engine, stream, &packet, m.now_us);
	if (failed != NULL)
		engine_fail(m.engine, failed->status);
	free(data);
}

static struct known *some_known(struct peer *peer)
{
	uint8_t byte = script_u8(&m.script);
	uint32_t count = peer->known_count < KNOWN_MAX ? peer->known_count : KNOWN_MAX;

	/* The latest, mostly. */
	if (count == 0)
		return NULL;
	return &peer->known[(peer->known_count - 1 - (byte < 128 ? 0 : byte % count)) % KNOWN_MAX];
}

static void union_build(struct known *known, struct plan *plan)
{
	uint32_t words = (known->block_count + 63) / 64;
	uint64_t others[WIRE_SEGMENT_BLOCKS_MAX / 64];

	known->union_count = 0;
	script_fill(&m.script, others, words * 8);
	for (uint32_t i = 0; i < words; i++)
		known->bits[i] |= others[i];
	if (known->block_count % 64 != 0)
		known->bits[words - 1] &= (UINT64_C(1) << known->block_count % 64) - 1;
	for (uint32_t i = 0; i < words; i++)
		known->union_count += (uint32_t)__builtin_popcountll(known->bits[i]);
	if (known->union_count == 0)
		plan->flags |= WIRE_NONE;
	else if (known->union_count == known->block_count)
		plan->flags |= WIRE_ALL;
	memcpy(m.body + WIRE_PLAN_BYTES, known->bits, words * 8);
	m.body_bytes = WIRE_PLAN_BYTES + (plan->flags & (WIRE_ALL | WIRE_NONE) ? 0 : words * 8);
	plan->frame_count = 1;
	if (known->announce.flags & WIRE_EAGER) {
		plan->flags |= WIRE_EAGER;
		script_fill(&m.script, m.body + m.body_bytes,
		            known->union_count * known->frames.block_bytes);
		m.body_bytes += known->union_count * known->frames.block_bytes;
	} else if (known->union_count > 0) {
		plan->frame_count = geometry_frame_count(&known->frames, known->union_count);
	}
}

static void plan_twist(struct plan *plan)
{
	struct script *s = &m.script;

	switch (script_u8(s)) {
	case 1:
		plan->tag = script_u8(s);
		break;
	case 2:
		plan->segment = script_u32(s);
		break;
	case 3:
		plan->frame_count = script_u32(s);
		break;
	case 4:
		plan->exponent = (int16_t)script_u16(s);
		break;
	case 5:
		plan->flags = script_u8(s);
		break;
	case 6:
	case 7:
		plan->status = WIRE_MISMATCH;
		plan->frame_count = 1 + script_u8(s) % 2;
		m.body_bytes = WIRE_PLAN_BYTES + WIRE_MISMATCH_BYTES;
		break;
	default:
		break;
	}
}

static void build_plan(struct peer *peer)
{
	struct known *known = some_known(peer);
	struct packet_out out = {0};
	struct plan plan = {0};

	if (known == NULL)
		return;
	plan.tag = known->announce.tag;
	plan.segment = known->announce.segment;
	plan.exponent = known->announce.exponent;
	plan.flags = known->announce.flags & WIRE_NONFINITE;
	union_build(known, &plan);
	known->planned = true;
	known->first = peer->planned;
	known->frame_count = plan.frame_count;
	plan_twist(&plan);
	m.head.frame = peer->planned;
	peer->planned += known->frame_count;
	m.head.planned = peer->planned;
	packet_begin(&out, &m.head);
	packet_put_plan(&out, &plan);
	memcpy(m.body, out.head + WIRE_HEADER_BYTES, out.bytes - WIRE_HEADER_BYTES);
}

static void build_result(struct peer *peer)
{
	struct known *known = some_known(peer);
	uint32_t number, left, receiver;

	if (known == NULL || !known->planned || known->union_count == 0)
		return;
	number = script_u8(&m.script) % known->frame_count;
	m.head.frame = known->first + number;
	m.head.sequence = ++peer->sequence;
	receiver = known->receiver;
	if (receiver != WIRE_EVERYONE && receiver != m.configs[0].rank)
		return; /* its head is all */
	left = known->union_count - number / known->frames.block_parts * known->frames.frame_blocks;
	if (left > known->frames.frame_blocks)
		left = known->frames.frame_blocks;
	m.body_bytes =
		left * geometry_part_bytes(&known->frames, number % known->frames.block_parts);
	if (m.body_bytes > sizeof(m.body))
		m.body_bytes = sizeof(m.body);
	script_fill(&m.script, m.body, m.body_bytes);
}

static void twist(void)
{
	struct script *s = &m.script;

	switch (script_u8(s)) {
	case 1:
		m.head.worker = script_u16(s);
		break;
	case 2:
		m.head.seal = script_u64(s);
		break;
	case 3:
		m.head.frame += (uint32_t)(int8_t)script_u8(s);
		break;
	case 4:
		m.head.edge = script_u32(s);
		break;
	case 5:
		m.head.planned = script_u32(s);
		break;
	case 6:
		m.body_bytes -= script_u8(s) % (m.body_bytes + 1);
		break;
	case 10:
		m.body_bytes = script_below(s, sizeof(m.body));
		break;
	case 11:
		m.body[script_below(s, m.body_bytes < 600 ? m.body_bytes + 1 : 600)] = script_u8(s);
		break;
	case 7:
		m.head.window = script_u16(s);
		break;
	case 8:
		m.head.kind = (uint8_t)(script_u8(s) | WIRE_TO_WORKER);
		break;
	case 9:
		m.head.sequence = script_u16(s);
		break;
	default:
		break;
	}
}

static void send_one(void)
{
	static const uint8_t kinds[8] = {WIRE_PLAN,        WIRE_RESULT, WIRE_RESULT,
	                                 WIRE_STATUS_BACK, WIRE_RESULT, WIRE_STATUS_BACK,
	                                 WIRE_PLAN,        WIRE_RESULT};
	uint8_t byte = script_u8(&m.script);
	uint32_t stream = byte / 8 % m.stream_count;
	struct peer *peer = &m.peers[stream];

	m.body_bytes = 0;
	m.head = (struct wire_header){
		.kind = kinds[byte % 8],
		.worker = byte & 64 ? WIRE_EVERYONE : m.configs[stream].rank,
		.seal = GROUP_TOKEN,
		.edge = byte & 128 ? peer->ack : m.configs[stream].first_frame,
		.window = (uint16_t)m.configs[stream].window,
		.sequence = peer->sequence,
		.planned = peer->planned,
	};
	if (m.head.kind == WIRE_PLAN)
		build_plan(peer);
	if (m.head.kind == WIRE_RESULT)
		build_result(peer);
	if (m.head.kind == WIRE_STATUS_BACK) {
		uint32_t stamp = (uint32_t)m.now_us - script_u8(&m.script);

		m.head.frame = peer->ack;
		m.body_bytes = WIRE_STATUS_BYTES +
		               8u * (script_u8(&m.script) % (WIRE_STATUS_WORDS_MAX + 1));
		script_fill(&m.script, m.body, m.body_bytes);
		memcpy(m.body, &stamp, byte & 32 ? 4 : 0);
		m.body[4] = 0;
	}
	twist();
	deliver(stream);
}

static void step(void)
{
	switch (script_u8(&m.script) % 16) {
	case 0:
		submit();
		while (engine_work(m.engine, m.now_us))
			;
		break;
	case 1:
		submit();
		engine_work(m.engine, m.now_us);
		break;
	case 2:
		m.now_us += script_u16(&m.script);
		break;
	case 3:
		if (engine_deadline(m.engine) != UINT64_MAX && engine_deadline(m.engine) > m.now_us)
			m.now_us = engine_deadline(m.engine);
		pull_all(UINT32_MAX);
		break;
	case 4:
		pull_all(script_u8(&m.script));
		break;
	case 5:
		pull_all(UINT32_MAX);
		engine_quiet(m.engine);
		break;
	default:
		send_one();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	m = (struct machine){.script = {.at = data, .left = bytes}, .now_us = 1000000};
	machine_open();
	while (m.script.left > 0) {
		step();
		engine_check(m.engine);
	}
	engine_fail(m.engine, -1);
	for (uint32_t i = 0; i < TASKS_MAX; i++)
		assert(!m.running[i]); /* done() is called for each, once */
	engine_close(m.engine);
	return 0;
}
