// SPDX-License-Identifier: BSD-3-Clause
/* bench_print.c - table, progress line, JSON; docs/BENCHMARKS.md defines every column */

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "bitmap/dtype.h"
#include "client/cli/bench/bench.h"
#include "ebpf/geometry.h"

static bool prints(const struct bench_settings *settings)
{
	return settings->rank == 0 && !settings->json;
}

void bench_progress(const struct bench_settings *settings, const char *what, uint64_t done,
                    uint64_t of)
{
	if (settings->rank != 0 || !isatty(STDERR_FILENO))
		return;
	if (of > 0)
		fprintf(stderr, "\r\033[K%s %llu/%llu", what, (unsigned long long)done + 1,
		        (unsigned long long)of);
	else
		fprintf(stderr, "\r\033[K%s", what);
	fflush(stderr);
}

static void progress_clear(void)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
}

void bench_print_head(const struct bench_settings *settings)
{
	if (!prints(settings))
		return;
	progress_clear();
	printf("# winnow bench %s: %llu workers, block %llu, overlap %s, wire %s, %llu iterations "
	       "after %llu\n",
	       winnow_version(), (unsigned long long)settings->world,
	       (unsigned long long)settings->block, settings->overlap_text, settings->wire_text,
	       (unsigned long long)settings->iters, (unsigned long long)settings->warmup);
	printf("#%12s %12s %5s %5s %8s %7s %11s %8s %9s %9s %7s %6s %6s%s\n", "size", "count",
	       "type", "op", "density", "union", "time", "algbw", "sent", "received", "saving",
	       "retx", "wrong", settings->rate != 0 ? "       bound  time/" : "");
	printf("#%12s %12s %5s %5s %8s %7s %11s %8s %9s %9s %7s %6s %6s%s\n", "(B)", "(elements)",
	       "", "", "", "", "(us)", "(GB/s)", "(MB)", "(MB)", "(x)", "", "",
	       settings->rate != 0 ? "        (us)  bound" : "");
	fflush(stdout);
}

/* What a ring allreduce would send and receive, against what went over this worker's link. */
static double saving(const struct bench_settings *settings, const struct bench_row *row)
{
	double world = (double)settings->world;
	double ring = 4 * (world - 1) / world * (double)row->bytes;
	double ours = row->sent_bytes + row->received_bytes;

	return ours > 0 ? ring / ours : 0;
}

void bench_print_row(const struct bench_settings *settings, const struct bench_row *row)
{
	char wrong[24];

	if (!prints(settings))
		return;
	progress_clear();
	snprintf(wrong, sizeof(wrong), settings->check ? "%llu" : "N/A",
	         (unsigned long long)row->wrong);
	printf(" %12llu %12llu %5s %5s %8.4f %7.4f %11.1f %8.3f %9.3f %9.3f %7.2f %6.0f %6s",
	       (unsigned long long)row->bytes, (unsigned long long)row->count,
	       dtype_name((enum dtype)settings->dtype),
	       reduction_name((enum reduction)settings->op), row->density, row->union_density,
	       row->time_us_median, (double)row->bytes / row->time_us_median / 1e3,
	       row->sent_bytes / 1e6, row->received_bytes / 1e6, saving(settings, row),
	       row->retransmits, wrong);
	if (settings->rate != 0)
		printf(" %11.1f %6.2f", row->bound_us,
		       row->bound_us > 0 ? row->time_us_median / row->bound_us : 0);
	printf("\n");
	fflush(stdout);
}

void bench_print_foot(const struct bench_settings *settings, const struct bench_row rows[],
                      uint32_t count)
{
	const struct bench_row *row = &rows[count - 1];

	if (!prints(settings))
		return;
	printf("# time: median of %llu, sent and received: this worker's Ethernet bytes an "
	       "iteration; saving: against a ring's\n",
	       (unsigned long long)row->iters);
	printf("# datagrams of %u bytes, window %u frames, %u channel%s, results by %s\n",
	       row->payload, row->window, row->channels, row->channels == 1 ? "" : "s",
	       row->multicast == settings->aggregators ? "multicast"
	       : row->multicast > 0                    ? "multicast from some"
	                                               : "unicast");
}

/* AUTO makes an exception for what fits its announcement: client/worker/engine.c, the same arithmetic. */
static const char *wire_used(const struct bench_settings *settings, const struct bench_row *row)
{
	struct geometry_input input = {
		.count = row->count,
		.block_elems = (uint32_t)settings->block,
		.elem_bytes = 4,
		.shard_count = row->channels,
		.payload = row->payload,
	};
	struct geometry cut;

	if (settings->wire == WINNOW_WIRE_FIXED32 ||
	    (settings->auto_fixed32 && geometry_compute(&input, &cut) && !cut.eager))
		return "fixed32";
	return dtype_name((enum dtype)settings->dtype);
}

static json_t *row_json(const struct bench_settings *settings, const struct bench_row *row)
{
	json_t *time =
		json_pack("{s:f, s:f, s:f, s:f}", "min", row->time_us_min, "median",
	                  row->time_us_median, "p99", row->time_us_p99, "max", row->time_us_max);
	json_t *object = json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s, s:s, s:I, s:o, s:f, s:f, s:f, s:f, "
	        "s:f, s:b, s:I, s:i, s:i, s:i, s:i, s:I}",
		"world", (json_int_t)settings->world, "rank", (json_int_t)settings->rank, "bytes",
		(json_int_t)row->bytes, "count", (json_int_t)row->count, "block",
		(json_int_t)settings->block, "density", row->density, "union", row->union_density,
		"dtype", dtype_name((enum dtype)settings->dtype), "op",
		reduction_name((enum reduction)settings->op), "wire", wire_used(settings, row),
		"iters", (json_int_t)row->iters, "time_us", time, "sent_bytes", row->sent_bytes,
		"received_bytes", row->received_bytes, "retransmits", row->retransmits, "nacks",
		row->nacks, "algbw_bytes_s", (double)row->bytes / row->time_us_median * 1e6,
		"checked", settings->check, "errors", (json_int_t)row->wrong, "payload",
		(int)row->payload, "window", (int)row->window, "channels", (int)row->channels,
		"multicast", (int)row->multicast, "seed", (json_int_t)settings->seed);

	if (object != NULL && settings->rate != 0)
		json_object_set_new(object, "bound_us", json_real(row->bound_us));
	return object;
}

/* One row is the object itself; several are in "rows" beside the last one's fields. */
void bench_print_json(const struct bench_settings *settings, const struct bench_row rows[],
                      uint32_t count)
{
	json_t *object, *list;

	if (!settings->json)
		return;
	object = row_json(settings, &rows[count - 1]);
	if (count > 1) {
		list = json_array();
		for (uint32_t i = 0; i < count; i++)
			json_array_append_new(list, row_json(settings, &rows[i]));
		json_object_set_new(object, "rows", list);
	}
	progress_clear();
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(12));
	printf("\n");
	json_decref(object);
}
