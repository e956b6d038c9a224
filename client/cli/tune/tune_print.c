// SPDX-License-Identifier: BSD-3-Clause
/* tune_print.c - prints the table and the best block size, as text or as one JSON object */

#include <jansson.h>
#include <stdio.h>

#include "client/cli/table.h"
#include "client/cli/tune/tune.h"
#include "client/winnow.h"

/* Writes a time such as "45.6ms" or "7.89s". */
static char *time_text(double seconds, char text[16])
{
	snprintf(text, 16, seconds < 1 ? "%.3gms" : "%.3gs", seconds < 1 ? seconds * 1e3 : seconds);
	return text;
}

static void tune_head_print(const struct tune *tune)
{
	const struct source *source = &tune->source;
	const struct predict_net *net = &tune->net;

	printf("# winnow tune %s: %u operation%s of %sB each\n", winnow_version(), source->op_count,
	       source->op_count == 1 ? "" : "s", text_si((double)tune->op_bytes, CELL));
	printf("# %u workers, %u aggregator%s with %u channel%s, links of %sbit/s\n", net->world,
	       net->aggregators, net->aggregators == 1 ? "" : "s", net->channels,
	       net->channels == 1 ? "" : "s", text_si(net->rate * 8, CELL));
	printf("# datagrams of %u bytes, results %s; bytes are per worker and operation\n",
	       net->payload, net->multicast ? "by multicast" : "copied to each worker");
	if (source->note[0] != '\0')
		printf("# note: %s\n", source->note);
	if (tune->note[0] != '\0')
		printf("# note: %s\n", tune->note);
}

static void row_print(const struct tune *tune, const struct tune_row *row, struct table *table)
{
	const struct predict_flow *sent = &row->sent, *received = &row->received;
	double both = (double)(predict_bytes(sent) + predict_bytes(received)) / 100;

	table_row(table, "%s\t%u\t%.4f\t%.4f\t%s\t%s\t%s\t%s\t%s\t%.1f%%\t%.1f%%",
	          row == &tune->rows[tune->best] ? "*" : "", row->block, row->d, row->united,
	          text_si((double)predict_bytes(sent), CELL),
	          text_si((double)predict_bytes(received), CELL), time_text(row->time_s, CELL),
	          text_si((double)sent->packets, CELL), text_si((double)received->packets, CELL),
	          (double)(sent->head_bytes + received->head_bytes) / both,
	          (double)(sent->map_bytes + received->map_bytes) / both);
}

void tune_print(const struct tune *tune)
{
	const struct tune_row *best = &tune->rows[tune->best];
	const struct source *source = &tune->source;
	struct table table = {0};

	tune_head_print(tune);
	table_columns(&table,
	              "<\tBLOCK\tD\tU\tSENT\tRECEIVED\tTIME\tPKTS OUT\tPKTS IN\tHEADERS\tBITMAPS");
	for (uint32_t i = 0; i < tune->block_count; i++)
		row_print(tune, &tune->rows[i], &table);
	table_print(&table, stdout);
	table_clear(&table);
	printf("\nBest: block %u, %s per operation. A ring allreduce would take %s.\n", best->block,
	       time_text(best->time_s, CELL), time_text(tune->ring_s, CELL));
	if (source->job != NULL)
		printf("In job %s itself, a worker sent %sB and received %sB in %llu operations.\n",
		       source->job, text_si((double)source->job_sent, CELL),
		       text_si((double)source->job_received, CELL),
		       (unsigned long long)source->job_operations);
}

/* ---- JSON ---- */

static json_t *flow_json(const struct predict_flow *flow)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)predict_bytes(flow),
	                 "packets", (json_int_t)flow->packets, "header_bytes",
	                 (json_int_t)flow->head_bytes, "bitmap_bytes", (json_int_t)flow->map_bytes,
	                 "data_bytes", (json_int_t)flow->data_bytes);
}

static json_t *row_json(const struct tune *tune, const struct tune_row *row)
{
	return json_pack("{s:i, s:f, s:f, s:o, s:o, s:f, s:b}", "block", (int)row->block, "density",
	                 row->d, "union", row->united, "sent", flow_json(&row->sent), "received",
	                 flow_json(&row->received), "predicted_us", row->time_s * 1e6, "best",
	                 row == &tune->rows[tune->best]);
}

void tune_json(const struct tune *tune)
{
	const struct predict_net *net = &tune->net;
	json_t *rows = json_array(), *job = NULL, *object;

	if (tune->source.job != NULL)
		job = json_pack("{s:s, s:I, s:I, s:I}", "job", tune->source.job, "operations",
		                (json_int_t)tune->source.job_operations, "sent_bytes",
		                (json_int_t)tune->source.job_sent, "received_bytes",
		                (json_int_t)tune->source.job_received);
	for (uint32_t i = 0; i < tune->block_count; i++)
		json_array_append_new(rows, row_json(tune, &tune->rows[i]));
	object = json_pack("{s:i, s:i, s:I, s:i, s:i, s:i, s:b, s:I, s:i, s:f, s:o, s:o*}", "world",
	                   (int)net->world, "operations", (int)tune->source.op_count, "bytes",
	                   (json_int_t)tune->op_bytes, "aggregators", (int)net->aggregators,
	                   "channels", (int)net->channels, "payload", (int)net->payload,
	                   "multicast", net->multicast, "rate_bit_s", (json_int_t)(net->rate * 8),
	                   "best", (int)tune->rows[tune->best].block, "ring_us", tune->ring_s * 1e6,
	                   "rows", rows, "traced_job", job);
	cli_json_print(object, JSON_COMPACT | JSON_REAL_PRECISION(12));
}
