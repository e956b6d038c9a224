// SPDX-License-Identifier: BSD-3-Clause
/* tune_plot.c - a picture of time against block size, with what a worker sends and receives: SVG or PNG */

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* ---- libcairo.so.2: it is loaded when a picture is asked for, and nothing else needs it ---- */

#define FORMAT_RGB24 1
#define STATUS_SUCCESS 0

/* What we use of it, without its "cairo_" (its ABI has been the same since 1.0). */
#define CAIRO_FUNCTIONS(F)                                                                         \
	F(void *, image_surface_create, (int format, int width, int height))                       \
	F(void *, svg_surface_create, (const char *path, double width, double height))             \
	F(int, surface_write_to_png, (void *surface, const char *path))                            \
	F(void, surface_finish, (void *surface))                                                   \
	F(int, surface_status, (void *surface))                                                    \
	F(void, surface_destroy, (void *surface))                                                  \
	F(void *, create, (void *surface))                                                         \
	F(void, destroy, (void *cr))                                                               \
	F(void, set_source_rgb, (void *cr, double red, double green, double blue))                 \
	F(void, set_line_width, (void *cr, double width))                                          \
	F(void, set_dash, (void *cr, const double *dashes, int count, double offset))              \
	F(void, move_to, (void *cr, double x, double y))                                           \
	F(void, line_to, (void *cr, double x, double y))                                           \
	F(void, arc, (void *cr, double x, double y, double radius, double from, double to))        \
	F(void, stroke, (void *cr))                                                                \
	F(void, fill, (void *cr))                                                                  \
	F(void, paint, (void *cr))                                                                 \
	F(void, select_font_face, (void *cr, const char *family, int slant, int weight))           \
	F(void, set_font_size, (void *cr, double size))                                            \
	F(void, text_extents, (void *cr, const char *text, double extents[6]))                     \
	F(void, show_text, (void *cr, const char *text))

#define MEMBER(type, name, arguments) type(*name) arguments;
static struct {
	CAIRO_FUNCTIONS(MEMBER)
} cairo;

static bool cairo_load(void)
{
	void *library = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL), *symbol;

	if (library == NULL)
		return false;
#define LOAD(type, name, arguments)                                                                \
	symbol = dlsym(library, "cairo_" #name);                                                   \
	memcpy(&cairo.name, &symbol, sizeof(symbol));                                              \
	if (symbol == NULL)                                                                        \
		return false;
	CAIRO_FUNCTIONS(LOAD)
	return true;
}

/* ---- lines, dots and words ---- */

struct pen {
	uint32_t colour; /* 0xrrggbb */
	double width;
	bool dashed;
};

enum anchor { START, MIDDLE, END };

static void *surface, *cr;

static void colour_set(uint32_t colour)
{
	cairo.set_source_rgb(cr, (colour >> 16) / 255.0, (colour >> 8 & 255) / 255.0,
	                     (colour & 255) / 255.0);
}

static void put_line(const struct pen *pen, const double x[], const double y[], uint32_t count)
{
	const double dashes[] = {6, 4};

	colour_set(pen->colour);
	cairo.set_line_width(cr, pen->width);
	cairo.set_dash(cr, dashes, pen->dashed ? 2 : 0, 0);
	for (uint32_t i = 0; i < count; i++)
		(i == 0 ? cairo.move_to : cairo.line_to)(cr, x[i], y[i]);
	cairo.stroke(cr);
}

/* Across the whole width. */
static void put_level(const struct pen *pen, double y)
{
	put_line(pen, (const double[]){LEFT, WIDTH - RIGHT}, (const double[]){y, y}, 2);
}

static void put_dot(uint32_t colour, double x, double y, double radius)
{
	colour_set(colour);
	cairo.arc(cr, x, y, radius, 0, 6.2831853071795865);
	cairo.fill(cr);
}

/* `y` is of the base line. */
static void put_text(enum anchor anchor, double x, double y, double size, const char *text)
{
	double extents[6]; /* the fifth is how far the text goes */

	colour_set(0);
	cairo.set_font_size(cr, size);
	cairo.text_extents(cr, text, extents);
	cairo.move_to(cr, x - extents[4] * (int)anchor / 2, y);
	cairo.show_text(cr, text);
}

/* ---- the picture ---- */

struct frame {
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
	const struct pen thin = {.colour = 0xdddddd, .width = 1};
	double before = -100, step = step_of(frame->most);
	char text[32];

	for (double value = 0; value <= frame->most * 1.0001; value += step) {
		put_level(&thin, y_of(frame, value));
		snprintf(text, sizeof(text), "%.4g", value);
		put_text(END, LEFT - 6, y_of(frame, value) + 4, 11, text);
	}
	for (uint32_t i = 0; i < tune->block_count; i++) {
		double x = x_of(frame, tune->rows[i].block);

		if (x - before < 36)
			continue; /* no room for its number */
		before = x;
		snprintf(text, sizeof(text), "%u", tune->rows[i].block);
		put_text(MIDDLE, x, HEIGHT - BOTTOM + 16, 11, text);
	}
	put_text(MIDDLE, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, 12, "block (elements)");
	put_text(START, 8, TOP - 12, 12, "ms an operation");
}

enum series { PREDICTED, MEASURED, SENDING, RECEIVING };

/* Milliseconds. */
static double value_of(const struct tune *tune, const struct tune_row *row, enum series series)
{
	const double values[] = {
		[PREDICTED] = row->time_s,
		[MEASURED] = row->measured_s,
		[SENDING] = row->sent_bytes / tune->net.rate,
		[RECEIVING] = row->received_bytes / tune->net.rate,
	};

	return values[series] * 1e3;
}

static void draw(const struct frame *frame, const struct tune *tune, enum series series,
                 const struct pen *pen)
{
	double x[TUNE_BLOCKS_MAX], y[TUNE_BLOCKS_MAX];

	for (uint32_t i = 0; i < tune->block_count; i++) {
		x[i] = x_of(frame, tune->rows[i].block);
		y[i] = y_of(frame, value_of(tune, &tune->rows[i], series));
		if (!pen->dashed)
			put_dot(pen->colour, x[i], y[i], 3);
	}
	put_line(pen, x, y, tune->block_count);
}

static void legend(uint32_t place, const struct pen *pen, const char *text)
{
	double x = LEFT + place * 115.0, y = HEIGHT - 10.0;

	put_line(pen, (const double[]){x, x + 18}, (const double[]){y - 4, y - 4}, 2);
	put_text(START, x + 22, y, 11, text);
}

static void lines(const struct frame *frame, const struct tune *tune)
{
	static const struct {
		enum series series;
		struct pen pen;
		uint32_t place;
		const char *text;
	} curves[] = {
		{SENDING, {GREEN, 1.5, true}, 1, "sending"},
		{RECEIVING, {PURPLE, 1.5, true}, 2, "receiving"},
		{PREDICTED, {BLUE, 2, false}, 0, "predicted"},
		{MEASURED, {ORANGE, 2, false}, 4, "measured"},
	};
	const struct pen ring = {GREY, 1.5, true};

	for (size_t i = 0; i < sizeof(curves) / sizeof(curves[0]); i++) {
		if (curves[i].series == MEASURED && !(tune->rows[0].measured_s > 0))
			continue;
		draw(frame, tune, curves[i].series, &curves[i].pen);
		legend(curves[i].place, &curves[i].pen, curves[i].text);
	}
	if (tune->ring_s > 0 && tune->ring_s * 1e3 <= frame->most) {
		put_level(&ring, y_of(frame, tune->ring_s * 1e3));
		legend(3, &ring, "a ring");
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

static void picture(const struct tune *tune)
{
	const struct tune_row *best = &tune->rows[tune->best];
	const struct frame frame = {
		.x_low = log2(tune->rows[0].block),
		.x_high = log2(tune->rows[tune->block_count - 1].block),
		.most = most_of(tune),
	};
	char title[160], rate[16];

	cairo.set_source_rgb(cr, 1, 1, 1);
	cairo.paint(cr);
	cairo.select_font_face(cr, "sans-serif", 0, 0);
	snprintf(title, sizeof(title), "%u workers at %sbit/s: best block %u (d %.3f, U %.3f)",
	         tune->net.world, text_si(tune->net.rate * 8, rate), best->block, best->d,
	         best->united);
	put_text(MIDDLE, WIDTH / 2.0, 20, 14, title);
	axes(&frame, tune);
	lines(&frame, tune);
	put_dot(BLUE, x_of(&frame, best->block), y_of(&frame, best->time_s * 1e3), 6);
}

int tune_plot(const struct tune *tune, const char *path)
{
	bool png = strcmp(path + strlen(path) - 4, ".png") == 0; /* or .svg */
	int status = STATUS_SUCCESS;

	if (!cairo_load())
		return cli_error(
			1, "cannot draw %s: it needs libcairo.so.2: apt-get install libcairo2",
			path);
	errno = EIO;
	surface = png ? cairo.image_surface_create(FORMAT_RGB24, WIDTH, HEIGHT)
	              : cairo.svg_surface_create(path, WIDTH, HEIGHT);
	if (cairo.surface_status(surface) != STATUS_SUCCESS) { /* it opens an SVG at once */
		cairo.surface_destroy(surface);
		return cli_error(1, "cannot draw %s: %s", path, strerror(errno));
	}
	cr = cairo.create(surface);
	picture(tune);
	errno = EIO;
	if (png)
		status = cairo.surface_write_to_png(surface, path);
	cairo.destroy(cr);
	cairo.surface_finish(surface); /* which writes an SVG */
	if (status == STATUS_SUCCESS)
		status = cairo.surface_status(surface);
	cairo.surface_destroy(surface);
	return status == STATUS_SUCCESS
	               ? 0
	               : cli_error(1, "cannot write %s: %s", path, strerror(errno));
}
