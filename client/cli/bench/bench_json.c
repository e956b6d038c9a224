// SPDX-License-Identifier: BSD-3-Clause
/* bench_json.c - the tables of bench_print.c as one JSON object */

#include <jansson.h>
#include <math.h>

#include "bitmap/dtype.h"
#include "client/cli/bench/bench_state.h"
#include "client/cli/cli.h"
#include "ebpf/geometry.h"

/* Means of whole quantities, such as bytes, are printed as whole numbers too. */
static json_t *whole_json(double value)
{
	return json_integer((json_int_t)llround(value));
}

/* A tensor that fits into its announcement is not converted. engine.c does the same arithmetic. */
static const char *wire_used(const struct bench_settings *settings, const struct bench_row *row)
{
	struct geometry_input input = {
		.count = row->count,
		.block_elems = settings->comm.block,
		.elem_bytes = 4,
		.shard_count = row->stats.channels,
		.payload = row->stats.payload,
	};
	struct geometry cut;

	bool eager = geometry_compute(&input, &cut) && cut.eager;

	if (settings->comm.wire == WINNOW_WIRE_FIXED32 || (settings->auto_fixed32 && !eager))
		return "fixed32";
	if (settings->comm.wire > WINNOW_WIRE_FIXED32 && !(eager && cut.segment_count == 1))
		return bench_wires[settings->comm.wire];
	return dtype_name((enum dtype)settings->dtype);
}

/* Observations of the path during these operations: docs/network.md, "Share a network". */
static json_t *seen_json(const struct bench_sums *sums)
{
	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "sent_packets",
		(json_int_t)sums->sent_packets, "sent_marked", (json_int_t)sums->sent_marked,
		"received_packets", (json_int_t)sums->received_packets, "received_marked",
		(json_int_t)sums->received_marked, "received_lost", (json_int_t)sums->received_lost,
		"held_window_us", (json_int_t)sums->held_window_us, "held_credit_us",
		(json_int_t)sums->held_credit_us);
}

static json_t *times_json(const struct bench_settings *settings, const struct bench_row *row,
                          const struct bench_times *times)
{
	json_t *time = json_pack("{s:f, s:f, s:f, s:f}", "min", times->time_us_min, "median",
	                         times->time_us_median, "p99", times->time_us_p99, "max",
	                         times->time_us_max);

	return json_pack(
		"{s:o, s:f, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:I}", "time_us", time, "cpu_us",
		times->sums.cpu_us, "path", seen_json(&times->sums), "sent_bytes",
		whole_json(times->sums.sent_bytes), "received_bytes",
		whole_json(times->sums.received_bytes), "retransmits",
		(json_int_t)times->sums.retransmits, "nacks", (json_int_t)times->sums.nacks,
		"algbw_bytes_s", whole_json(bench_algbw(row, times)), "busbw_bytes_s",
		whole_json(bench_busbw(settings, row, times)), "errors", (json_int_t)times->wrong);
}

static json_t *row_json(const struct bench_settings *settings, const struct bench_row *row)
{
	const struct winnow_stats *stats = &row->stats;
	json_t *times = times_json(settings, row, row->times);
	json_t *object = json_pack(
		"{s:I, s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s, s:s, s:I, s:b, s:i, s:i, s:i, "
		"s:i, s:I, s:I, s:I, s:I, s:o*}",
		"world", (json_int_t)settings->comm.world, "sites", (int)settings->sites, "rank",
		(json_int_t)settings->comm.rank, "bytes", (json_int_t)row->bytes, "count",
		(json_int_t)row->count, "block", (json_int_t)settings->comm.block, "density",
		row->density, "union", row->union_density, "dtype",
		dtype_name((enum dtype)settings->dtype), "op",
		reduction_name((enum reduction)settings->op), "wire", wire_used(settings, row),
		"iters", (json_int_t)settings->iters, "checked", settings->check, "payload",
		(int)stats->payload, "window", (int)stats->window, "channels", (int)stats->channels,
		"multicast", (int)stats->multicast, "seed", (json_int_t)settings->seed, "rtt_us",
		(json_int_t)stats->rtt_us, "rtt_least_us", (json_int_t)stats->rtt_least_us,
		"window_now", (json_int_t)stats->window_now, "bound_us",
		settings->rate != 0 ? json_real(row->bound_us) : NULL);

	json_object_update_new(object, times);
	if (!bench_sweeps(settings))
		return object;
	json_object_set_new(object, "errors", json_integer((json_int_t)bench_wrong(row)));
	json_object_set_new(object, "out_of_place", times_json(settings, row, &row->times[0]));
	json_object_set_new(object, "in_place", times_json(settings, row, &row->times[1]));
	return object;
}

/* A single row is the object itself. Several rows are in "rows", beside the last row's fields. */
void bench_json(const struct bench_settings *settings, const struct bench_row rows[],
                uint32_t count)
{
	json_t *object, *list;

	object = row_json(settings, &rows[count - 1]);
	if (count > 1 || bench_sweeps(settings)) {
		list = json_array();
		for (uint32_t i = 0; i < count; i++)
			json_array_append_new(list, row_json(settings, &rows[i]));
		json_object_set_new(object, "rows", list);
	}
	cli_json_print(object, JSON_COMPACT | JSON_REAL_PRECISION(12));
}
