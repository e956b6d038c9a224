// SPDX-License-Identifier: BSD-3-Clause
/* bench_print.c - tables; docs/BENCHMARKS.md defines every column */

#include <stdio.h>

#include "bitmap/dtype.h"
#include "client/cli/bench/bench_state.h"

double bench_algbw(const struct bench_row *row, const struct bench_times *times)
{
	return times->time_us_median > 0 ? (double)row->bytes / times->time_us_median * 1e6 : 0;
}

double bench_busbw(const struct bench_settings *settings, const struct bench_row *row,
                   const struct bench_times *times)
{
	double world = (double)settings->comm.world;

	return bench_algbw(row, times) * 2 * (world - 1) / world;
}

/* The bytes of a ring allreduce, divided by those on this worker's link. */
static double row_saving(const struct bench_settings *settings, const struct bench_row *row)
{
	const struct bench_times *times = row->times;
	double world = (double)settings->comm.world;
	double ring = 4 * (world - 1) / world * (double)row->bytes;
	double ours = times->sums.sent_bytes + times->sums.received_bytes;

	return ours > 0 ? ring / ours : 0;
}

static const char *wrong_text(const struct bench_settings *settings,
                              const struct bench_times *times, char text[24])
{
	snprintf(text, 24, settings->check ? "%llu" : "N/A", (unsigned long long)times->wrong);
	return text;
}

/* ---- no sweep: a table with traffic ---- */

static void wire_head(const struct bench_settings *settings)
{
	printf("#%12s %12s %5s %5s %8s %7s %11s %8s %8s %9s %9s %7s %6s %6s%s\n", "size", "count",
	       "type", "op", "density", "union", "time", "algbw", "busbw", "sent", "received",
	       "saving", "retx", "wrong", settings->rate != 0 ? "       bound  time/" : "");
	printf("#%12s %12s %5s %5s %8s %7s %11s %8s %8s %9s %9s %7s %6s %6s%s\n", "(B)",
	       "(elements)", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "(MB)", "(MB)", "(x)", "",
	       "", settings->rate != 0 ? "        (us)  bound" : "");
}

static void wire_row(const struct bench_settings *settings, const struct bench_row *row)
{
	const struct bench_times *times = row->times;
	char wrong[24];

	printf(" %12llu %12llu %5s %5s %8.4f %7.4f %11.1f %8.3f %8.3f %9.3f %9.3f %7.2f %6llu %6s",
	       (unsigned long long)row->bytes, (unsigned long long)row->count,
	       dtype_name((enum dtype)settings->dtype),
	       reduction_name((enum reduction)settings->op), row->density, row->union_density,
	       times->time_us_median, bench_algbw(row, times) / 1e9,
	       bench_busbw(settings, row, times) / 1e9, times->sums.sent_bytes / 1e6,
	       times->sums.received_bytes / 1e6, row_saving(settings, row),
	       (unsigned long long)times->sums.retransmits, wrong_text(settings, times, wrong));
	if (settings->rate != 0)
		printf(" %11.1f %6.2f", row->bound_us,
		       row->bound_us > 0 ? times->time_us_median / row->bound_us : 0);
	printf("\n");
}

/* ---- a sweep: the columns of nccl-tests, followed by ours ---- */

static void sweep_head(void)
{
	printf("#\n# %53s %33s\n", "out-of-place", "in-place");
	printf("# %12s %13s %9s %7s %7s", "size", "count", "type", "redop", "root");
	for (int place = 0; place < BENCH_PLACES; place++)
		printf(" %9s %7s %7s %6s", "time", "algbw", "busbw", "#wrong");
	printf(" %8s %7s\n", "density", "union");
	printf("# %12s %13s %9s %7s %7s", "(B)", "(elements)", "", "", "");
	for (int place = 0; place < BENCH_PLACES; place++)
		printf(" %9s %7s %7s %6s", "(us)", "(GB/s)", "(GB/s)", "");
	printf("\n");
}

static void sweep_row(const struct bench_settings *settings, const struct bench_row *row)
{
	char wrong[24];

	printf("  %12llu %13llu %9s %7s %7d", (unsigned long long)row->bytes,
	       (unsigned long long)row->count, dtype_name((enum dtype)settings->dtype),
	       reduction_name((enum reduction)settings->op), -1);
	for (int place = 0; place < BENCH_PLACES; place++) {
		const struct bench_times *times = &row->times[place];

		printf(" %9.2f %7.3f %7.3f %6s", times->time_us_median,
		       bench_algbw(row, times) / 1e9, bench_busbw(settings, row, times) / 1e9,
		       wrong_text(settings, times, wrong));
	}
	printf(" %8.4f %7.4f\n", row->density, row->union_density);
}

static void sweep_foot(const struct bench_settings *settings, const struct bench_row rows[],
                       uint32_t count)
{
	unsigned long long wrong = 0;
	double sum = 0;

	for (uint32_t i = 0; i < count; i++) {
		wrong += bench_wrong(&rows[i]);
		for (int place = 0; place < BENCH_PLACES; place++)
			sum += bench_busbw(settings, &rows[i], &rows[i].times[place]);
	}
	if (settings->check)
		printf("# Out of bounds values : %llu %s\n", wrong, wrong == 0 ? "OK" : "FAILED");
	printf("# Avg bus bandwidth    : %g\n", sum / 1e9 / count / BENCH_PLACES);
}

/* ---- either ---- */

const char *const bench_wires[] = {"auto", "f32", "fixed32", "fixed16", "fixed8", "bf16"};

void bench_print_head(const struct bench_settings *settings)
{
	char sites[24] = "";

	if (settings->sites > 0)
		snprintf(sites, sizeof(sites), ", %u site%s", settings->sites,
		         settings->sites > 1 ? "s" : "");
	printf("# winnow bench %s: %u workers%s, block %u, overlap %s, wire %s, %llu iterations "
	       "after %llu\n",
	       winnow_version(), settings->comm.world, sites, settings->comm.block,
	       settings->text.overlap,
	       settings->auto_fixed32 ? "auto: fixed32" : bench_wires[settings->comm.wire],
	       (unsigned long long)settings->iters, (unsigned long long)settings->warmup);
	if (bench_sweeps(settings))
		sweep_head();
	else
		wire_head(settings);
	fflush(stdout);
}

void bench_print_row(const struct bench_settings *settings, const struct bench_row *row)
{
	if (bench_sweeps(settings))
		sweep_row(settings, row);
	else
		wire_row(settings, row);
	fflush(stdout);
}

void bench_print_foot(const struct bench_settings *settings, const struct bench_row rows[],
                      uint32_t count)
{
	const struct winnow_stats *stats = &rows[count - 1].stats;

	if (bench_sweeps(settings))
		sweep_foot(settings, rows, count);
	printf("# time: median of %llu; busbw: algbw * 2(n-1)/n, as for a ring; %s\n",
	       (unsigned long long)settings->iters,
	       bench_sweeps(settings) ? "density: of this worker's blocks, union: of all workers'"
	                              : "sent and received: this worker's\n# Ethernet bytes per "
	                                "iteration; saving: compared with a ring");
	printf("# datagrams of %u bytes, window %u frames, %u channel%s, results by %s\n",
	       stats->payload, stats->window, stats->channels, stats->channels == 1 ? "" : "s",
	       stats->multicast == settings->aggregators ? "multicast"
	       : stats->multicast > 0                    ? "multicast from some"
	                                                 : "unicast");
}
