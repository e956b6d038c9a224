// SPDX-License-Identifier: BSD-3-Clause
/* tune_json.c - what tune_print.c shows, as one JSON object */

#include <stdio.h>

#include "client/cli/cli_json.h"
#include "client/cli/tune/tune.h"

static json_t *flow_json(const struct predict_flow *flow, double ops)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "bytes",
	                 cli_json_whole((double)predict_bytes(flow) / ops), "packets",
	                 cli_json_number((double)flow->packets / ops), "header_bytes",
	                 cli_json_whole((double)flow->head_bytes / ops), "bitmap_bytes",
	                 cli_json_whole((double)flow->map_bytes / ops), "data_bytes",
	                 cli_json_whole((double)flow->data_bytes / ops));
}

static json_t *row_json(const struct tune *tune, const struct tune_row *row)
{
	struct predict_flow sent = predict_sent_mean(&row->predicted);
	double ops = (double)row->predicted.operations;
	json_t *object = json_pack(
		"{s:i, s:f, s:f, s:o, s:o, s:o, s:f, s:b}", "block", (int)row->block, "density",
		row->d, "union", row->united, "sent", flow_json(&sent, ops), "received",
		flow_json(&row->predicted.received, ops), "sent_bytes_most",
		cli_json_whole((double)predict_sent_most(&row->predicted) / ops), "predicted_us",
		row->time_s * 1e6, "best", row == &tune->rows[tune->best]);

	if (object != NULL && row->measured_s > 0)
		json_object_set_new(
			object, "measured",
			json_pack("{s:f, s:o, s:o, s:o, s:I}", "time_us", row->measured_s * 1e6,
		                  "sent_bytes", cli_json_whole(row->counted_sent), "received_bytes",
		                  cli_json_whole(row->counted_received), "predicted_sent_bytes",
		                  cli_json_whole(row->own_sent_bytes), "retransmits",
		                  (json_int_t)row->retransmits));
	return object;
}

static json_t *param_json(const struct tune_param *p)
{
	return json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:i, s:o, s:o, s:[i, i], s:o}", "name",
		p->name, "offset", (json_int_t)p->offset, "elements", (json_int_t)p->elems, "row",
		(json_int_t)p->row, "operations", (json_int_t)p->operations, "density", p->d,
		"union", p->united, "sent_bytes", cli_json_whole(p->sent_bytes), "own_block",
		(int)p->own_block, "own_sent_bytes", cli_json_whole(p->own_sent),
		"own_row_sent_bytes", cli_json_whole(p->row_sent), "own_tile", (int)p->tile_rows,
		(int)p->tile_columns, "own_tile_sent_bytes", cli_json_whole(p->tile_sent));
}

static json_t *share_json(const struct tune_share *share)
{
	json_t *object = json_pack("{s:i, s:i, s:I}", "block", (int)share->block, "operations",
	                           (int)share->operations, "bytes", (json_int_t)share->bytes);

	if (share->tile_rows > 0)
		json_object_set_new(object, "tile_rows", json_integer(share->tile_rows));
	return object;
}

/* Of a trace: what the operations looked at were reduced with, and the job's own totals. */
static void job_add(const struct tune *tune, json_t *object)
{
	const struct trace_file *file = tune->source.traces != NULL ? tune->source.traces[0] : NULL;
	const struct tune_used *used = &tune->used;
	json_t *job, *blocks = json_array();

	if (file == NULL) {
		json_decref(blocks);
		return;
	}
	for (uint32_t i = 0; i < used->share_count; i++)
		json_array_append_new(blocks, share_json(&used->shares[i]));
	job = json_pack("{s:s, s:o, s:b}", "job", file->head.job, "blocks", blocks, "nothing_to_do",
	                tune_used_enough(tune));
	if (used->share_count > 0)
		json_object_set_new(job, "block", json_integer(used->shares[0].block));
	if (tune_used_s(tune) > 0)
		json_object_set_new(job, "predicted_us", json_real(tune_used_s(tune) * 1e6));
	if (file->ended)
		json_object_update_new(job,
		                       json_pack("{s:I, s:I, s:I, s:I}", "operations",
		                                 (json_int_t)file->end.operations, "sent_bytes",
		                                 (json_int_t)file->end.sent_bytes, "received_bytes",
		                                 (json_int_t)file->end.received_bytes,
		                                 "retransmits", (json_int_t)file->end.retransmits));
	json_object_set_new(object, "traced_job", job);
}

int tune_json(const struct tune *tune)
{
	const struct predict_net *net = &tune->net;
	json_t *rows = json_array(), *params = json_array();
	json_t *object = json_pack(
		"{s:i, s:i, s:o, s:i, s:i, s:i, s:b, s:o, s:i, s:f, s:s, s:o}", "world",
		(int)net->world, "operations", (int)tune->source.op_count, "bytes",
		cli_json_whole((double)tune->rows[0].predicted.bytes / tune->source.op_count),
		"aggregators", (int)net->aggregators, "channels", (int)net->channels, "payload",
		(int)net->payload, "multicast", net->multicast, "rate_bit_s",
		cli_json_whole(net->rate * 8), "best", (int)tune->rows[tune->best].block, "ring_us",
		tune->ring_s * 1e6, "way", tune_way(tune), "rows", rows);

	if (object == NULL)
		return cli_error(1, "out of memory");
	for (uint32_t i = 0; i < tune->block_count; i++)
		json_array_append_new(rows, row_json(tune, &tune->rows[i]));
	for (uint32_t i = 0; i < tune->param_count; i++)
		json_array_append_new(params, param_json(&tune->params[i]));
	json_object_set_new(object, "parameters", params);
	job_add(tune, object);
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
	printf("\n");
	json_decref(object);
	return 0;
}
