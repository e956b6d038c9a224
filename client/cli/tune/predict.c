// SPDX-License-Identifier: BSD-3-Clause
/* predict.c - see predict.h */

#include "client/cli/tune/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bitmap/bitmap.h"
#include "bitmap/coded.h"
#include "client/cli/cli.h"
#include "ebpf/geometry.h"

#define EMPTY_BYTES (WIRE_ETHERNET_BYTES + WIRE_HEADER_BYTES) /* An empty packet. */
#define ACK_DELAY_S 1e-3                                      /* PROTOCOL.md section 8.3 */
#define PROBE_S 1e-3 /* Section 10.1: the probe time if a round trip takes half of it. */

/* The working memory of predict_add(). */
struct work {
	const struct predict_net *net;
	const struct predict_op *op;
	struct geometry cut;
	struct predict *p;
	uint64_t words;               /* Words of one worker's bitmap of blocks. */
	uint64_t *bits;               /* [world][words]; owns the memory of the next three. */
	uint64_t *own;                /* [world][SEGMENT_WORDS] of one segment. */
	uint64_t *collected, *spread; /* [channels] bytes from all workers, and to each. */
	struct predict_flow *sent;    /* [world] of this operation. */
	struct predict_flow received;
	uint64_t frames;
};

uint64_t predict_bytes(const struct predict_flow *flow)
{
	return flow->head_bytes + flow->map_bytes + flow->data_bytes;
}

static void flow_add(struct predict_flow *to, const struct predict_flow *from)
{
	to->packets += from->packets;
	to->head_bytes += from->head_bytes;
	to->map_bytes += from->map_bytes;
	to->data_bytes += from->data_bytes;
}

struct predict_flow predict_mean(const struct predict_flow *sum, double among)
{
	return (struct predict_flow){
		.packets = (uint64_t)llround((double)sum->packets / among),
		.head_bytes = (uint64_t)llround((double)sum->head_bytes / among),
		.map_bytes = (uint64_t)llround((double)sum->map_bytes / among),
		.data_bytes = (uint64_t)llround((double)sum->data_bytes / among),
	};
}

/* ---- bitmaps ---- */

void predict_coarsen(const uint64_t *fine, uint64_t fine_bits, uint64_t ratio, uint64_t *bits)
{
	uint64_t blocks = (fine_bits + ratio - 1) / ratio;

	memset(bits, 0, (blocks + 63) / 64 * 8);
	for (uint64_t word = 0; word < (fine_bits + 63) / 64; word++) {
		uint64_t left = fine[word];

		while (left != 0) {
			uint64_t bit = word * 64 + (uint64_t)__builtin_ctzll(left);
			uint64_t block = bit / ratio, next = (block + 1) * ratio;

			if (bit >= fine_bits)
				return;
			bit_set(bits, block);
			if (next / 64 > word)
				break; /* The rest of the word belongs to the same block. */
			left &= UINT64_MAX << (next % 64);
		}
	}
}

/* ---- packets ---- */

static void packet_add(struct predict_flow *flow, uint32_t head, uint64_t map, uint64_t data)
{
	flow->packets++;
	flow->head_bytes += EMPTY_BYTES + head;
	flow->map_bytes += map;
	flow->data_bytes += data;
}

/* The bytes of a set of `set` blocks out of `blocks`: section 6.1. */
static uint64_t map_bytes(const struct work *w, const uint64_t *bits, uint32_t blocks, uint32_t set)
{
	uint8_t written[WIRE_SEGMENT_BLOCKS_MAX / 8];

	if (set == 0 || set == blocks)
		return 0;
	return bits_write(bits, blocks, written) + (w->cut.eager ? WIRE_SET_BYTES : 0);
}

/* Counts the frames of a segment in which a worker has a block, and the bytes that it sends in them. */
static void pushes_add(struct work *w, const uint64_t *own, const uint64_t *united, uint32_t words,
                       struct predict_flow *flow)
{
	uint32_t place = 0, frame = UINT32_MAX, k = w->cut.one.frames.frame_blocks;
	uint64_t blocks = 0, frames = 0;

	for (uint32_t word = 0; word < words; word++) {
		for (uint64_t left = united[word]; left != 0; left &= left - 1, place++) {
			if (!(own[word] & left & -left))
				continue;
			blocks++;
			frames += place / k != frame;
			frame = place / k;
		}
	}
	frames *= w->cut.one.frames.block_parts;
	flow->packets += frames;
	flow->head_bytes += frames * EMPTY_BYTES;
	flow->data_bytes += blocks * w->cut.one.frames.block_bytes;
}

/* Counts a segment of a shard (sections 6 to 8), for the workers and for the channel. */
static void segment_add(struct work *w, uint32_t shard, uint32_t number)
{
	const struct geometry_segment segment = geometry_segment(&w->cut, number);
	const uint32_t block_bytes = segment.frames.block_bytes;
	uint64_t united[SEGMENT_WORDS] = {0};
	uint32_t blocks = segment.block_count, words = (blocks + 63) / 64;
	uint32_t world = w->net->world, union_count;
	uint32_t channel =
		w->cut.eager
			? geometry_eager_channel(w->op->tag, w->net->channels / w->net->aggregators)
			: shard;
	struct predict_flow results = {0};

	memset(w->own, 0, (size_t)world * SEGMENT_WORDS * 8);
	for (uint32_t i = 0; i < blocks; i++) {
		uint64_t block = geometry_block(&w->cut, &segment, shard, i);

		for (uint32_t rank = 0; rank < world && block < w->cut.block_count; rank++)
			if (bit_test(w->bits + rank * w->words, block))
				bit_set(w->own + rank * SEGMENT_WORDS, i);
	}
	for (uint32_t rank = 0; rank < world; rank++)
		for (uint32_t i = 0; i < words; i++)
			united[i] |= w->own[rank * SEGMENT_WORDS + i];
	union_count = (uint32_t)bitmap_set_count(united, words);
	for (uint32_t rank = 0; rank < world; rank++) {
		const uint64_t *own = w->own + (size_t)rank * SEGMENT_WORDS;
		uint32_t set = (uint32_t)bitmap_set_count(own, words);
		struct predict_flow flow = {0};

		packet_add(&flow, WIRE_ANNOUNCE_BYTES, map_bytes(w, own, blocks, set),
		           w->cut.eager ? (uint64_t)set * block_bytes : 0);
		if (!w->cut.eager)
			pushes_add(w, own, united, words, &flow);
		w->p->own += set;
		w->collected[channel] += predict_bytes(&flow);
		flow_add(&w->sent[rank], &flow);
	}
	packet_add(&results, WIRE_PLAN_BYTES, map_bytes(w, united, blocks, union_count),
	           w->cut.eager ? (uint64_t)union_count * block_bytes : 0);
	if (!w->cut.eager && union_count > 0) {
		uint64_t frames = geometry_frame_count(&segment.frames, union_count);

		results.packets += frames;
		results.head_bytes += frames * EMPTY_BYTES;
		results.data_bytes += (uint64_t)union_count * block_bytes;
		w->frames += frames;
	}
	w->p->united += union_count;
	w->spread[channel] += predict_bytes(&results);
	flow_add(&w->received, &results);
}

/* ---- time ---- */

/* The seconds that the busiest port needs: a worker's or an aggregator's, in either direction. */
static double op_time(const struct work *w)
{
	const struct predict_net *net = w->net;
	double copies = net->multicast ? 1 : net->world, in = 0, out = 0;
	double most = (double)predict_bytes(&w->received), aggregator_most = 0;

	for (uint32_t rank = 0; rank < net->world; rank++)
		most = fmax(most, (double)predict_bytes(&w->sent[rank]));
	for (uint32_t channel = 0; channel < net->channels; channel++) {
		in += (double)w->collected[channel];
		out += (double)w->spread[channel] * copies;
		if (channel + 1 < net->channels &&
		    (uint64_t)channel * net->aggregators / net->channels ==
		            (uint64_t)(channel + 1) * net->aggregators / net->channels)
			continue; /* The next channel belongs to the same aggregator. */
		aggregator_most = fmax(aggregator_most, fmax(in, out));
		in = out = 0;
	}
	return fmax(most / net->rate, aggregator_most / net->aggregator_rate);
}

/*
 * Estimates the STATUS packets. A worker asks once per probe time on each channel, and gets an answer. It acknowledges
 * each quarter of a window, and at least once per millisecond, with these, with PUSHes, or with more STATUS packets. A
 * credit answers each quarter of a window.
 */
static void acks_add(struct work *w, double time_s)
{
	double channels = w->cut.eager ? 1 : w->net->channels;
	double quarters = (double)w->frames / ((double)w->net->window / 4);
	double asks = time_s / PROBE_S * channels;

	for (uint32_t rank = 0; rank < w->net->world; rank++) {
		double moves = fmax(quarters, time_s / ACK_DELAY_S * channels);
		double carried = (double)w->sent[rank].packets + asks;
		double alone = channels + asks + fmax(0, moves - carried);

		w->sent[rank].packets += (uint64_t)(alone + 0.5);
		w->sent[rank].head_bytes += (uint64_t)(alone + 0.5) * EMPTY_BYTES;
	}
	w->received.packets += (uint64_t)(quarters + asks + channels + 0.5);
	w->received.head_bytes += (uint64_t)(quarters + asks + channels + 0.5) * EMPTY_BYTES;
}

/* ---- an operation ---- */

static void op_add(struct work *w)
{
	uint64_t fine_bits = (w->op->count + w->op->fine - 1) / w->op->fine;
	double time_s;

	for (uint32_t rank = 0; rank < w->net->world; rank++)
		predict_coarsen(w->op->bits[rank], fine_bits, w->p->block / w->op->fine,
		                w->bits + rank * w->words);
	for (uint32_t shard = 0; shard < w->cut.shard_count; shard++)
		for (uint32_t number = 0; number < w->cut.segment_count; number++)
			segment_add(w, shard, number);
	time_s = op_time(w);
	acks_add(w, time_s);
	w->p->blocks += w->cut.block_count;
	for (uint32_t rank = 0; rank < w->net->world; rank++)
		flow_add(&w->p->sent, &w->sent[rank]);
	flow_add(&w->p->received, &w->received);
	w->p->time_s += time_s;
}

bool predict_add(struct predict *p, const struct predict_net *net, const struct predict_op *op)
{
	struct geometry_input input = {
		.count = op->count,
		.block_elems = p->block,
		.elem_bytes = dtype_bytes(dtype_in_form(op->form, op->dtype)),
		.shard_count = net->channels,
		.payload = net->payload,
		.converted = op->form != 0,
	};
	struct work w = {.net = net, .op = op, .p = p};
	size_t world = net->world;

	if (!geometry_compute(&input, &w.cut))
		return false;
	w.words = (w.cut.block_count + 63) / 64 + 1;
	w.bits = cli_memory(world * (w.words + SEGMENT_WORDS) + 2u * net->channels, 8,
	                    "bitmaps of all workers; give larger --blocks");
	w.sent = cli_memory(world, sizeof(*w.sent), "sums");
	w.own = w.bits + world * w.words;
	w.collected = w.own + world * SEGMENT_WORDS;
	w.spread = w.collected + net->channels;
	op_add(&w);
	free(w.bits);
	free(w.sent);
	return true;
}
