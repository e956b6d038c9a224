// SPDX-License-Identifier: BSD-3-Clause
/* tune_print.c - the table, the curve and the reasons, for people */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/cli/table.h"
#include "client/cli/tune/tune.h"

#define BAR_MAX 100

static double share(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

/* "12.3us", "4.56ms", "7.89s" */
static char *time_text(double seconds, char text[16])
{
	const char *unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
	double value = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;

	snprintf(text, 16, "%.*f%s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, unit);
	return text;
}

static void head(const struct tune *tune)
{
	const struct source *source = &tune->source;
	const struct predict_net *net = &tune->net;
	uint64_t bytes = tune->rows[0].predicted.bytes / source->op_count;

	printf("# winnow tune %s: %u operation%s of %sB each\n", winnow_version(), source->op_count,
	       source->op_count == 1 ? "" : "s", text_si((double)bytes, CELL));
	printf("# %u workers, %u aggregator%s with %u channel%s, links of %sbit/s\n", net->world,
	       net->aggregators, net->aggregators == 1 ? "" : "s", net->channels,
	       net->channels == 1 ? "" : "s", text_si(net->rate * 8, CELL));
	printf("# datagrams of %u bytes, results %s; bytes of a worker an operation\n",
	       net->payload, net->multicast ? "by multicast" : "one by one");
	if (source->note[0] != '\0')
		printf("# note: %s\n", source->note);
	if (tune->note[0] != '\0')
		printf("# note: %s\n", tune->note);
	if (source->traces != NULL && source->traces[0]->cut)
		printf("# note: the trace ends within a record: its process was killed, or its "
		       "disk was full\n");
}

static void row_print(const struct tune *tune, const struct tune_row *row, struct table *table)
{
	struct predict_flow sent = predict_sent_mean(&row->predicted);
	const struct predict_flow *received = &row->predicted.received;
	double ops = (double)row->predicted.operations;
	double both = (double)(predict_bytes(&sent) + predict_bytes(received));
	char measured[80] = "";

	if (row->measured_s > 0)
		snprintf(measured, sizeof(measured), "%s\t%.4f\t%.4f\t",
		         time_text(row->measured_s, CELL), row->counted_sent / row->own_sent_bytes,
		         row->counted_received / row->received_bytes);
	table_row(table, "%s\t%u\t%.4f\t%.4f\t%s\t%s\t%s\t%s%s\t%s\t%.1f%%\t%.1f%%",
	          row == &tune->rows[tune->best] ? "*" : "", row->block, row->d, row->united,
	          text_si(row->sent_bytes, CELL), text_si(row->received_bytes, CELL),
	          time_text(row->time_s, CELL), measured, text_si((double)sent.packets / ops, CELL),
	          text_si((double)received->packets / ops, CELL),
	          share((double)(sent.head_bytes + received->head_bytes), both),
	          share((double)(sent.map_bytes + received->map_bytes), both));
}

/* Lines of words, folded between them where they are wider than the window. */
static void fold(const char *text, uint32_t width)
{
	uint32_t used = 0;

	while (*text != '\0') {
		size_t space = strspn(text, " "), word = strcspn(text + space, " \n");

		if (width != 0 && used > 4 && used + space + word > width) {
			used = (uint32_t)printf("\n    ") - 1;
			space -= space > 0;
			text++;
		}
		used += (uint32_t)printf("%.*s", (int)(space + word), text);
		text += space + word;
		if (*text == '\n') {
			printf("\n");
			used = 0;
			text++;
		}
	}
}

/* What print() says, behind an empty line. */
static void folded(const struct tune *tune, void (*print)(const struct tune *tune, FILE *out),
                   uint32_t width)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return;
	print(tune, out);
	fclose(out);
	printf("\n");
	fold(text, width);
	free(text);
}

/* ---- the curve ---- */

static void bar(double value, double most, uint32_t room, char *text)
{
	uint32_t length = most > 0 ? (uint32_t)(value / most * room + 0.5) : 0;

	length = length < BAR_MAX ? length : BAR_MAX;
	memset(text, '#', length);
	text[length] = '\0';
}

static void curve(const struct tune *tune, uint32_t width)
{
	uint32_t room = width == 0 || width > 100 ? 60 : width > 44 ? width - 28 : 16;
	double most = tune->ring_s;
	char text[BAR_MAX + 1];

	for (uint32_t i = 0; i < tune->block_count; i++)
		most = tune->rows[i].time_s > most ? tune->rows[i].time_s : most;
	printf("\n");
	for (uint32_t i = 0; i < tune->block_count; i++) {
		bar(tune->rows[i].time_s, most, room, text);
		printf("%c %6u |%s %s\n", i == tune->best ? '*' : ' ', tune->rows[i].block, text,
		       time_text(tune->rows[i].time_s, CELL));
	}
	bar(tune->ring_s, most, room, text);
	if (tune->ring_s > 0)
		printf("    ring |%s %s (all bytes, 2(N-1)/N times)\n", text,
		       time_text(tune->ring_s, CELL));
}

/* ---- parameters ---- */

static void param_row(const struct tune_param *p, double all, struct table *table)
{
	char inside[80] = "-\t-\t-\t-", own[40] = "-\t-", row[40] = "-\t-";
	char tile[48] = "-\t-";

	if (p->operations > 0)
		snprintf(inside, sizeof(inside), "%.4f\t%.4f\t%s\t%.1f%%", p->d, p->united,
		         text_si(p->sent_bytes, CELL), share(p->sent_bytes, all));
	if (p->own_block > 0)
		snprintf(own, sizeof(own), "%u\t%s", p->own_block, text_si(p->own_sent, CELL));
	if (p->row_sent > 0)
		snprintf(row, sizeof(row), "%llu\t%s", (unsigned long long)p->row,
		         text_si(p->row_sent, CELL));
	if (p->tile_sent > 0)
		snprintf(tile, sizeof(tile), "%ux%u\t%s", p->tile_rows, p->tile_columns,
		         text_si(p->tile_sent, CELL));
	table_row(table, "%s\t%s\t%s\t%s\t%s\t%llu\t%s", p->name, inside, own, row, tile,
	          (unsigned long long)p->offset, p->shape);
}

static void params_print(const struct tune *tune, uint32_t width)
{
	struct table table = {0};
	double all = 0;

	if (tune->param_count == 0)
		return;
	printf("\n# parameters at block %u; OWN: each as a tensor of its own\n",
	       tune->rows[tune->best].block);
	table_columns(&table, "<PARAMETER\tD\tU\tSENT\tSHARE\tOWN BEST\tSENT\tOWN ROW\tSENT\tOWN "
	                      "TILE\tSENT\tOFFSET\t<SHAPE");
	for (uint32_t i = 0; i < tune->param_count; i++)
		all += tune->params[i].sent_bytes;
	for (uint32_t i = 0; i < tune->param_count; i++)
		param_row(&tune->params[i], all, &table);
	table_print(&table, true, width, stdout);
	table_clear(&table);
}

/* "block 128"; "blocks 128, 256 and 2 more": those with most bytes first. */
static void blocks_print(const struct tune_used *used, FILE *out)
{
	uint32_t named = used->share_count < 4 ? used->share_count : 3;

	fprintf(out, used->share_count == 1 ? "block" : "blocks");
	for (uint32_t i = 0; i < named; i++) {
		const struct tune_share *share = &used->shares[i];

		fprintf(out, "%s %u",
		        i == 0                       ? ""
		        : i + 1 == used->share_count ? " and"
		                                     : ",",
		        share->tile_rows > 0 ? share->tile_rows : share->block);
		if (share->tile_rows > 0)
			fprintf(out, "x%u", share->block / share->tile_rows);
	}
	if (used->share_count > named)
		fprintf(out, " and %u more", used->share_count - named);
}

/* What the traced job itself did, and whether there is anything to gain. */
static void job_print(const struct tune *tune, FILE *out)
{
	const struct trace_file *file = tune->source.traces[0];
	const struct tune_row *best = &tune->rows[tune->best];
	bool has_best = !tune->used.unknown && tune->used.share_count == 1 &&
	                tune->used.shares[0].block == best->block &&
	                tune->used.shares[0].tile_rows == 0;

	if (file->ended)
		fprintf(out,
		        "Job %s itself: worker 0 sent %sB and received %sB in %llu operations.\n",
		        file->head.job, text_si((double)file->end.sent_bytes, CELL),
		        text_si((double)file->end.received_bytes, CELL),
		        (unsigned long long)file->end.operations);
	fprintf(out, "The operations looked at have ");
	blocks_print(&tune->used, out);
	if (tune->used.parts)
		fprintf(out, ", cut at the rows of tables");
	if (has_best || tune_used_enough(tune))
		fprintf(out, ". Nothing to do");
	if (has_best)
		fprintf(out, ": that is the best");
	else if (tune_used_s(tune) > 0)
		fprintf(out, ": one takes %s with that, and %s with block %u for all",
		        time_text(tune_used_s(tune), CELL), time_text(best->time_s, CELL),
		        best->block);
	fprintf(out, ".\n");
}

void tune_print(const struct tune *tune)
{
	struct table table = {0};
	struct winsize window = {0}; /* stays so if stdout is no terminal */
	uint32_t width = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0)
		width = window.ws_col;
	head(tune);
	table_columns(&table, "<\tBLOCK\tD\tU\tSENT\tRECEIVED\tTIME");
	if (tune->rows[0].measured_s > 0)
		table_columns(&table, "MEASURED\tSENT/PRED\tRECV/PRED");
	table_columns(&table, "PKTS OUT\tPKTS IN\tHEADERS\tBITMAPS");
	for (uint32_t i = 0; i < tune->block_count; i++)
		row_print(tune, &tune->rows[i], &table);
	table_print(&table, true, width, stdout);
	table_clear(&table);
	curve(tune, width);
	folded(tune, tune_reasons, width);
	params_print(tune, width);
	if (tune->source.traces != NULL && tune->used.share_count > 0)
		folded(tune, job_print, width);
}
