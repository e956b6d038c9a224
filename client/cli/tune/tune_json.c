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
	json_t *measured = NULL;

	if (row->measured_s > 0)
		measured = json_pack("{s:f, s:o, s:o, s:o, s:I}", "time_us", row->measured_s * 1e6,
		                     "sent_bytes", cli_json_whole(row->counted_sent),
		                     "received_bytes", cli_json_whole(row->counted_received),
		                     "predicted_sent_bytes", cli_json_whole(row->own_sent_bytes),
		                     "retransmits", (json_int_t)row->retransmits);
	return json_pack("{s:i, s:f, s:f, s:o, s:o, s:o, s:f, s:b, s:o*}", "block", (int)row->block,
	                 "density", row->d, "union", row->united, "sent", flow_json(&sent, ops),
	                 "received", flow_json(&row->predicted.received, ops), "sent_bytes_most",
	                 cli_json_whole((double)predict_sent_most(&row->predicted) / ops),
	                 "predicted_us", row->time_s * 1e6, "best", row == &tune->rows[tune->best],
	                 "measured", measured);
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
	return json_pack("{s:i, s:i, s:I, s:o*}", "block", (int)share->block, "operations",
	                 (int)share->operations, "bytes", (json_int_t)share->bytes, "tile_rows",
	                 share->tile_rows > 0 ? json_integer(share->tile_rows) : NULL);
}

/* Of a trace: what the operations looked at were reduced with, and the job's own totals. */
static json_t *job_json(const struct tune *tune)
{
	const struct trace_file *file = tune->source.traces[0];
	const struct tune_used *used = &tune->used;
	json_t *job, *blocks = json_array();
	double used_s = tune_used_s(tune);

	for (uint32_t i = 0; i < used->share_count; i++)
		json_array_append_new(blocks, share_json(&used->shares[i]));
	job = json_pack("{s:s, s:o, s:b, s:o*, s:o*}", "job", file->head.job, "blocks", blocks,
	                "nothing_to_do", tune_used_enough(tune), "block",
	                used->share_count > 0 ? json_integer(used->shares[0].block) : NULL,
	                "predicted_us", used_s > 0 ? json_real(used_s * 1e6) : NULL);
	if (file->ended)
		json_object_update_new(job,
		                       json_pack("{s:I, s:I, s:I, s:I}", "operations",
		                                 (json_int_t)file->end.operations, "sent_bytes",
		                                 (json_int_t)file->end.sent_bytes, "received_bytes",
		                                 (json_int_t)file->end.received_bytes,
		                                 "retransmits", (json_int_t)file->end.retransmits));
	return job;
}

int tune_json(const struct tune *tune)
{
	const struct predict_net *net = &tune->net;
	json_t *rows = json_array(), *params = json_array();
	json_t *object = json_pack(
		"{s:i, s:i, s:o, s:i, s:i, s:i, s:b, s:o, s:i, s:f, s:o, s:o, s:o*}", "world",
		(int)net->world, "operations", (int)tune->source.op_count, "bytes",
		cli_json_whole((double)tune->rows[0].predicted.bytes / tune->source.op_count),
		"aggregators", (int)net->aggregators, "channels", (int)net->channels, "payload",
		(int)net->payload, "multicast", net->multicast, "rate_bit_s",
		cli_json_whole(net->rate * 8), "best", (int)tune->rows[tune->best].block, "ring_us",
		tune->ring_s * 1e6, "rows", rows, "parameters", params, "traced_job",
		tune->source.traces != NULL ? job_json(tune) : NULL);

	if (object == NULL)
		return cli_error(1, "out of memory");
	for (uint32_t i = 0; i < tune->block_count; i++)
		json_array_append_new(rows, row_json(tune, &tune->rows[i]));
	for (uint32_t i = 0; i < tune->param_count; i++)
		json_array_append_new(params, param_json(&tune->params[i]));
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
	printf("\n");
	json_decref(object);
	return 0;
}
