// SPDX-License-Identifier: BSD-3-Clause
/*
 * tune_params.c - which part of a tensor costs what
 *
 * --names FILE: {"tensors": [{"count": N, "parameters": [{"name": "..", "offset": 0, "shape": [R, C]}]}]}
 * with offsets in elements. A list is of all operations of `count` elements.
 */

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/table.h"
#include "client/cli/tune.h"
#include "ebpf/wire.h"

#define COUNT_MAX (INT64_C(1) << 48)

/* ---- the file ---- */

static int wrong(const struct tune *tune, const char *what)
{
	return tune_error(1, "%s: %s; see docs/TUNING.md", tune->settings->names, what);
}

static bool number(const json_t *object, const char *name, uint64_t *out)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    json_integer_value(value) > COUNT_MAX)
		return false;
	*out = (uint64_t)json_integer_value(value);
	return true;
}

/* The elements, the last dimension as a row, and a text for people. */
static bool shape_read(const json_t *shape, struct tune_param *param)
{
	size_t used = 0, index;
	const json_t *value;

	if (!json_is_array(shape))
		return false;
	param->elems = 1;
	json_array_foreach(shape, index, value)
	{
		json_int_t size = json_is_integer(value) ? json_integer_value(value) : -1;

		if (size < 1 || size > COUNT_MAX ||
		    param->elems > (uint64_t)COUNT_MAX / (uint64_t)size)
			return false;
		param->elems *= (uint64_t)size;
		param->row = index > 0 ? (uint64_t)size : 0;
		if (used + 24 < sizeof(param->shape))
			used += (size_t)snprintf(param->shape + used, sizeof(param->shape) - used,
			                         "%s%lld", index > 0 ? "x" : "", (long long)size);
	}
	return true;
}

static int param_read(struct tune *tune, const json_t *object, uint64_t count)
{
	struct tune_param *param = &tune->params[tune->param_count];
	const char *name = json_string_value(json_object_get(object, "name"));

	if (name == NULL || !number(object, "offset", &param->offset) ||
	    !shape_read(json_object_get(object, "shape"), param))
		return wrong(tune, "a parameter lacks name, offset or shape");
	if (param->elems > count || param->offset > count - param->elems)
		return wrong(tune, "a parameter ends behind its tensor");
	text_safe(param->name, sizeof(param->name), name);
	param->count = count;
	if (param->row > WIRE_BLOCK_ELEMS_MAX)
		param->row = 0;
	tune->param_count++;
	return 0;
}

static int tensor_read(struct tune *tune, const json_t *object)
{
	const json_t *list = json_object_get(object, "parameters"), *value;
	uint64_t count;
	size_t index;
	int status = 0;

	if (!json_is_array(list) || !number(object, "count", &count))
		return wrong(tune, "a tensor lacks count or parameters");
	json_array_foreach(list, index, value)
	{
		if (tune->param_count == TUNE_PARAMS_MAX)
			return wrong(tune, "it has more than 4096 parameters");
		if (status == 0)
			status = param_read(tune, value, count);
	}
	return status;
}

int tune_params_read(struct tune *tune)
{
	const json_t *list, *value;
	json_error_t error;
	json_t *root;
	size_t index;
	int status = 0;

	if (tune->settings->names == NULL)
		return 0;
	tune->params = calloc(TUNE_PARAMS_MAX, sizeof(*tune->params));
	root = json_load_file(tune->settings->names, 0, &error);
	if (root == NULL || tune->params == NULL) {
		status = tune_error(1, "cannot read --names %s: %s", tune->settings->names,
		                    root == NULL ? error.text : "out of memory");
		json_decref(root);
		return status;
	}
	list = json_object_get(root, "tensors");
	if (!json_is_array(list))
		status = wrong(tune, "it has no list of tensors");
	json_array_foreach(list, index, value)
	{
		if (status == 0)
			status = tensor_read(tune, value);
	}
	json_decref(root);
	return status;
}

/* ---- what they cost within the tensor ---- */

static bool test(const uint64_t *bits, uint64_t bit)
{
	return bits[bit / 64] >> (bit % 64) & 1;
}

/*
 * Elements of the parameter that travel, of all workers and of their union: blocks that reach over
 * its edges count as far as they are its own.
 */
static void span(const struct tune_param *p, uint32_t block, uint32_t world,
                 const uint64_t *const *blocks, double *own, double *united)
{
	uint64_t end = p->offset + p->elems;

	for (uint64_t b = p->offset / block; b * block < end; b++) {
		uint64_t from = b * block > p->offset ? b * block : p->offset;
		uint64_t to = (b + 1) * block < end ? (b + 1) * block : end;
		uint32_t owners = 0;

		for (uint32_t rank = 0; rank < world; rank++)
			owners += test(blocks[rank], b);
		*own += owners * (double)(to - from);
		*united += owners > 0 ? (double)(to - from) : 0;
	}
}

/* One operation at the best block size; the blocks' bytes with their share of all the rest. */
static int inside_add(struct tune *tune, uint32_t op, uint64_t *const *bits)
{
	const struct tune_row *best = &tune->rows[tune->best];
	const struct source_op *o = &tune->source.ops[op];
	uint32_t world = tune->net.world, block = best->block;
	uint64_t words = (o->count / block + 64) / 64 + 1;
	const uint64_t **blocks = calloc(world, sizeof(*blocks));
	uint64_t *memory = calloc((size_t)world * words, sizeof(*memory));
	struct predict_flow sent = predict_sent_mean(&best->predicted);
	double factor =
		sent.data_bytes > 0 ? (double)predict_bytes(&sent) / (double)sent.data_bytes : 0;

	if (blocks == NULL || memory == NULL) {
		free((void *)blocks);
		free(memory);
		return tune_error(1, "out of memory");
	}
	for (uint32_t rank = 0; rank < world; rank++) {
		blocks[rank] = memory + rank * words;
		predict_coarsen(bits[rank], source_bit_count(&tune->source, op),
		                block / tune->source.fine, memory + rank * words);
	}
	for (uint32_t i = 0; i < tune->param_count; i++) {
		struct tune_param *p = &tune->params[i];
		double own = 0, united = 0;

		if (p->count != o->count)
			continue;
		span(p, block, world, blocks, &own, &united);
		p->operations++;
		p->d += own / world / (double)p->elems;
		p->united += united / (double)p->elems;
		p->sent_bytes += own / world * dtype_bytes(o->dtype) * factor;
	}
	free((void *)blocks);
	free(memory);
	return 0;
}

/* ---- what they would cost by themselves ---- */

/* Bits from `first` on, moved to the beginning. */
static void bits_move(const uint64_t *from, uint64_t first, uint64_t count, uint64_t *to)
{
	for (uint64_t i = 0; i < count; i++)
		if (test(from, first + i))
			to[i / 64] |= UINT64_C(1) << (i % 64);
}

static int own_add(struct tune *tune, const struct tune_param *p, const struct source_op *o,
                   uint64_t *const *bits, struct predict *costs, uint32_t cost_count)
{
	uint32_t world = tune->net.world, fine = tune->source.fine;
	uint64_t count = (p->elems + fine - 1) / fine, words = count / 64 + 1;
	uint64_t *memory = calloc((size_t)world * words, sizeof(*memory));
	const uint64_t **own = calloc(world, sizeof(*own));
	struct predict_op op = {.count = p->elems,
	                        .tag = o->tag,
	                        .dtype = o->dtype,
	                        .fixed32 = o->fixed32,
	                        .fine = fine,
	                        .bits = own};
	bool good = memory != NULL && own != NULL;

	for (uint32_t rank = 0; rank < world && good; rank++) {
		own[rank] = memory + rank * words;
		bits_move(bits[rank], p->offset / fine, count, memory + rank * words);
	}
	for (uint32_t i = 0; i < cost_count && good; i++)
		good = predict_add(&costs[i], &tune->net, &op);
	free(memory);
	free((void *)own);
	return good ? 0 : tune_error(1, "out of memory");
}

static double sent_mean(const struct predict *cost)
{
	struct predict_flow sent = predict_sent_mean(cost);

	return (double)predict_bytes(&sent) / (double)cost->operations;
}

/* The best of the looked-at sizes, and a row. */
static void own_judge(struct tune_param *p, const struct predict *costs, uint32_t count)
{
	double least = INFINITY;

	for (uint32_t i = 0; i < count; i++)
		least = costs[i].time_s < least ? costs[i].time_s : least;
	for (uint32_t i = 0; i < count; i++) {
		if (costs[i].time_s <= least * TUNE_NEAR && costs[i].block >= p->own_block) {
			p->own_block = costs[i].block;
			p->own_sent = sent_mean(&costs[i]);
		}
		if (costs[i].block == p->row) {
			p->row_sent = sent_mean(&costs[i]);
		}
	}
}

/* Operations that hold the parameter, one after the other, as if it came alone. */
static int own_cost(struct tune *tune, struct tune_param *p, uint64_t ***bits)
{
	struct predict costs[TUNE_BLOCKS_MAX];
	uint32_t count = 0;
	int status = 0;

	if (p->operations == 0 || p->offset % tune->source.fine != 0)
		return 0;
	for (uint32_t i = 0; i < tune->block_count && status == 0; i++) {
		if (i > 0 && tune->rows[i].block > p->elems)
			continue;
		if (!predict_open(&costs[count++], tune->rows[i].block, tune->net.world))
			status = tune_error(1, "out of memory");
	}
	for (uint32_t op = 0; op < tune->source.op_count && status == 0; op++)
		if (tune->source.ops[op].count == p->count)
			status = own_add(tune, p, &tune->source.ops[op], bits[op], costs, count);
	if (status == 0)
		own_judge(p, costs, count);
	for (uint32_t i = 0; i < count; i++)
		predict_close(&costs[i]);
	return status;
}

static bool concerned(const struct tune *tune, uint32_t op)
{
	for (uint32_t i = 0; i < tune->param_count; i++)
		if (tune->params[i].count == tune->source.ops[op].count)
			return true;
	return false;
}

int tune_params_cost(struct tune *tune)
{
	uint32_t ops = tune->source.op_count;
	uint64_t ***bits;
	int status = 0;

	if (tune->param_count == 0)
		return 0;
	bits = calloc(ops, sizeof(*bits));
	if (bits == NULL)
		return tune_error(1, "out of memory");
	for (uint32_t op = 0; op < ops && status == 0; op++) {
		if (!concerned(tune, op))
			continue;
		bits[op] = tune_bits(&tune->source, op);
		status = bits[op] != NULL ? inside_add(tune, op, bits[op]) : 1;
	}
	for (uint32_t i = 0; i < tune->param_count && status == 0; i++) {
		struct tune_param *p = &tune->params[i];
		double n = p->operations > 0 ? (double)p->operations : 1;

		p->d /= n;
		p->united /= n;
		p->sent_bytes /= n;
		status = own_cost(tune, p, bits);
	}
	for (uint32_t op = 0; op < ops; op++) {
		if (bits[op] == NULL)
			continue;
		free(bits[op][0]);
		free((void *)bits[op]);
	}
	free((void *)bits);
	return status;
}
