// SPDX-License-Identifier: BSD-3-Clause
/* tune_json.c - what tune_print.c shows, as one JSON object */

#include <jansson.h>
#include <stdio.h>

#include "client/cli/tune/tune.h"

static json_t *flow_json(const struct predict_flow *flow, double ops)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "bytes", (double)predict_bytes(flow) / ops,
	                 "packets", (double)flow->packets / ops, "header_bytes",
	                 (double)flow->head_bytes / ops, "bitmap_bytes",
	                 (double)flow->map_bytes / ops, "data_bytes",
	                 (double)flow->data_bytes / ops);
}

static json_t *row_json(const struct tune *tune, const struct tune_row *row)
{
	struct predict_flow sent = predict_sent_mean(&row->predicted);
	double ops = (double)row->predicted.operations;
	json_t *object =
		json_pack("{s:i, s:f, s:f, s:o, s:o, s:f, s:f, s:b}", "block", (int)row->block,
	                  "density", row->d, "union", row->united, "sent", flow_json(&sent, ops),
	                  "received", flow_json(&row->predicted.received, ops), "sent_bytes_most",
	                  (double)predict_sent_most(&row->predicted) / ops, "predicted_us",
	                  row->time_s * 1e6, "best", row == &tune->rows[tune->best]);

	if (object != NULL && row->measured_s > 0)
		json_object_set_new(object, "measured",
		                    json_pack("{s:f, s:f, s:f, s:f, s:I}", "time_us",
		                              row->measured_s * 1e6, "sent_bytes",
		                              row->counted_sent, "received_bytes",
		                              row->counted_received, "predicted_sent_bytes",
		                              row->own_sent_bytes, "retransmits",
		                              (json_int_t)row->retransmits));
	return object;
}

static json_t *param_json(const struct tune_param *p)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:i, s:f, s:f}", "name", p->name,
	                 "offset", (json_int_t)p->offset, "elements", (json_int_t)p->elems, "row",
	                 (json_int_t)p->row, "operations", (json_int_t)p->operations, "density",
	                 p->d, "union", p->united, "sent_bytes", p->sent_bytes, "own_block",
	                 (int)p->own_block, "own_sent_bytes", p->own_sent, "own_row_sent_bytes",
	                 p->row_sent);
}

static void job_add(const struct tune *tune, json_t *object)
{
	const struct trace_file *file = tune->source.traces != NULL ? tune->source.traces[0] : NULL;

	if (file == NULL || !file->ended)
		return;
	json_object_set_new(object, "traced_job",
	                    json_pack("{s:s, s:I, s:I, s:I, s:I, s:i}", "job", file->head.job,
	                              "operations", (json_int_t)file->end.operations, "sent_bytes",
	                              (json_int_t)file->end.sent_bytes, "received_bytes",
	                              (json_int_t)file->end.received_bytes, "retransmits",
	                              (json_int_t)file->end.retransmits, "block",
	                              (int)file->entries[0].record.block));
}

int tune_json(const struct tune *tune)
{
	const struct predict_net *net = &tune->net;
	json_t *rows = json_array(), *params = json_array();
	json_t *object = json_pack(
		"{s:i, s:i, s:f, s:i, s:i, s:i, s:b, s:f, s:i, s:f, s:o}", "world", (int)net->world,
		"operations", (int)tune->source.op_count, "bytes",
		(double)tune->rows[0].predicted.bytes / tune->source.op_count, "aggregators",
		(int)net->aggregators, "channels", (int)net->channels, "payload", (int)net->payload,
		"multicast", net->multicast, "rate_bit_s", net->rate * 8, "best",
		(int)tune->rows[tune->best].block, "ring_us", tune->ring_s * 1e6, "rows", rows);

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
