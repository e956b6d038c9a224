// SPDX-License-Identifier: BSD-3-Clause
/* tune_plot.c - a picture of time against block size, with what a worker sends and receives */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/tune/chart.h"
#include "client/cli/table.h"
#include "client/cli/tune/tune.h"

#define WIDTH 640
#define HEIGHT 400
#define LEFT 70.0
#define RIGHT 20.0
#define TOP 50.0
#define BOTTOM 60.0

/* Colours of Okabe and Ito. */
#define BLUE 0x0072B2
#define ORANGE 0xD55E00
#define GREEN 0x009E73
#define PURPLE 0xCC79A7
#define GREY 0x999999

struct frame {
	struct chart *chart;
	double x_low, x_high; /* logarithms of block sizes */
	double most;          /* milliseconds at the top */
};

static double x_of(const struct frame *frame, double block)
{
	double span = frame->x_high - frame->x_low;

	if (!(span > 0))
		return LEFT + (WIDTH - LEFT - RIGHT) / 2;
	return LEFT + (log2(block) - frame->x_low) / span * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct frame *frame, double value)
{
	return HEIGHT - BOTTOM - value / frame->most * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten: about five steps to `most`. */
static double step_of(double most)
{
	double power = pow(10, floor(log10(most / 5))), rest = most / 5 / power;

	return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

static void axes(const struct frame *frame, const struct tune *tune)
{
	const struct chart_pen thin = {.colour = 0xdddddd, .width = 1};
	double ends[] = {LEFT, WIDTH - RIGHT}, before = -100, step = step_of(frame->most);
	char text[32];

	for (double value = 0; value <= frame->most * 1.0001; value += step) {
		double y[] = {y_of(frame, value), y_of(frame, value)};

		chart_line(frame->chart, &thin, ends, y, 2);
		snprintf(text, sizeof(text), "%.4g", value);
		chart_text(frame->chart, CHART_RIGHT, LEFT - 6, y[0] + 4, 11, text);
	}
	for (uint32_t i = 0; i < tune->block_count; i++) {
		double x = x_of(frame, tune->rows[i].block);

		if (x - before < 36)
			continue; /* no room for its number */
		before = x;
		snprintf(text, sizeof(text), "%u", tune->rows[i].block);
		chart_text(frame->chart, CHART_MIDDLE, x, HEIGHT - BOTTOM + 16, 11, text);
	}
	chart_text(frame->chart, CHART_MIDDLE, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, 12,
	           "block (elements)");
	chart_text(frame->chart, CHART_LEFT, 8, TOP - 12, 12, "ms an operation");
}

enum series { PREDICTED, MEASURED, SENDING, RECEIVING };

static double value_of(const struct tune *tune, const struct tune_row *row, enum series series)
{
	switch (series) {
	case PREDICTED:
		return row->time_s * 1e3;
	case MEASURED:
		return row->measured_s * 1e3;
	case SENDING:
		return row->sent_bytes / tune->net.rate * 1e3;
	case RECEIVING:
		return row->received_bytes / tune->net.rate * 1e3;
	}
	return 0;
}

static void draw(const struct frame *frame, const struct tune *tune, enum series series,
                 const struct chart_pen *pen)
{
	double x[TUNE_BLOCKS_MAX], y[TUNE_BLOCKS_MAX];

	for (uint32_t i = 0; i < tune->block_count; i++) {
		x[i] = x_of(frame, tune->rows[i].block);
		y[i] = y_of(frame, value_of(tune, &tune->rows[i], series));
		if (!pen->dashed)
			chart_dot(frame->chart, pen->colour, x[i], y[i], 3);
	}
	chart_line(frame->chart, pen, x, y, tune->block_count);
}

static void legend(const struct frame *frame, uint32_t place, const struct chart_pen *pen,
                   const char *text)
{
	double x = LEFT + place * 115.0, y = HEIGHT - 10.0;
	double xs[] = {x, x + 18}, ys[] = {y - 4, y - 4};

	chart_line(frame->chart, pen, xs, ys, 2);
	chart_text(frame->chart, CHART_LEFT, x + 22, y, 11, text);
}

static void lines(const struct frame *frame, const struct tune *tune)
{
	const struct chart_pen predicted = {BLUE, 2, false}, measured = {ORANGE, 2, false};
	const struct chart_pen sending = {GREEN, 1.5, true}, receiving = {PURPLE, 1.5, true};
	const struct chart_pen ring = {GREY, 1.5, true};
	double ends[] = {LEFT, WIDTH - RIGHT};
	double level[] = {y_of(frame, tune->ring_s * 1e3), y_of(frame, tune->ring_s * 1e3)};

	draw(frame, tune, SENDING, &sending);
	draw(frame, tune, RECEIVING, &receiving);
	draw(frame, tune, PREDICTED, &predicted);
	legend(frame, 0, &predicted, "predicted");
	legend(frame, 1, &sending, "sending");
	legend(frame, 2, &receiving, "receiving");
	if (tune->ring_s > 0 && tune->ring_s * 1e3 <= frame->most) {
		chart_line(frame->chart, &ring, ends, level, 2);
		legend(frame, 3, &ring, "a ring");
	}
	if (tune->rows[0].measured_s > 0) {
		draw(frame, tune, MEASURED, &measured);
		legend(frame, 4, &measured, "measured");
	}
}

/* The ring is shown unless all else would lie flat below it. */
static double most_of(const struct tune *tune)
{
	double most = 0;

	for (uint32_t i = 0; i < tune->block_count; i++)
		for (int series = PREDICTED; series <= RECEIVING; series++)
			most = fmax(most, value_of(tune, &tune->rows[i], (enum series)series));
	if (tune->ring_s * 1e3 > most && tune->ring_s * 1e3 < 4 * most)
		most = tune->ring_s * 1e3;
	return most > 0 ? most * 1.05 : 1;
}

int tune_plot(const struct tune *tune, const char *path)
{
	const struct tune_row *best = &tune->rows[tune->best];
	struct frame frame = {
		.x_low = log2(tune->rows[0].block),
		.x_high = log2(tune->rows[tune->block_count - 1].block),
		.most = most_of(tune),
	};
	char title[160], rate[16];
	struct why why;

	if (chart_open(path, WIDTH, HEIGHT, &frame.chart, &why) != 0)
		return cli_error(1, "cannot draw %s: %s", path, why.text);
	snprintf(title, sizeof(title), "%u workers at %sbit/s: best block %u (d %.3f, U %.3f)",
	         tune->net.world, text_si(tune->net.rate * 8, rate), best->block, best->d,
	         best->united);
	chart_text(frame.chart, CHART_MIDDLE, WIDTH / 2.0, 20, 14, title);
	axes(&frame, tune);
	lines(&frame, tune);
	chart_dot(frame.chart, BLUE, x_of(&frame, best->block), y_of(&frame, best->time_s * 1e3),
	          6);
	if (chart_close(frame.chart, &why) != 0)
		return cli_error(1, "cannot write %s: %s", path, why.text);
	return 0;
}
