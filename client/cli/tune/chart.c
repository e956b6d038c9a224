// SPDX-License-Identifier: BSD-3-Clause
/* chart.c - see chart.h */

#include "client/cli/tune/chart.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What we use of cairo (its ABI has been the same since 1.0). */
#define CAIRO_FORMAT_RGB24 1
#define CAIRO_STATUS_SUCCESS 0

struct cairo {
	void *library;
	void *(*image_surface_create)(int format, int width, int height);
	void *(*svg_surface_create)(const char *path, double width, double height);
	int (*surface_write_to_png)(void *surface, const char *path);
	void (*surface_finish)(void *surface);
	int (*surface_status)(void *surface);
	void (*surface_destroy)(void *surface);
	void *(*create)(void *surface);
	void (*destroy)(void *cr);
	void (*set_source_rgb)(void *cr, double red, double green, double blue);
	void (*set_line_width)(void *cr, double width);
	void (*set_dash)(void *cr, const double *dashes, int count, double offset);
	void (*move_to)(void *cr, double x, double y);
	void (*line_to)(void *cr, double x, double y);
	void (*arc)(void *cr, double x, double y, double radius, double from, double to);
	void (*stroke)(void *cr);
	void (*fill)(void *cr);
	void (*paint)(void *cr);
	void (*select_font_face)(void *cr, const char *family, int slant, int weight);
	void (*set_font_size)(void *cr, double size);
	void (*text_extents)(void *cr, const char *text, double extents[6]);
	void (*show_text)(void *cr, const char *text);
};

struct chart {
	char path[4200];
	bool png; /* or SVG */
	struct cairo cairo;
	void *surface, *cr;
};

static bool cairo_load(struct cairo *c)
{
	const struct {
		const char *name;
		void *to;
	} symbols[] = {
		{"cairo_image_surface_create", &c->image_surface_create},
		{"cairo_svg_surface_create", &c->svg_surface_create},
		{"cairo_surface_write_to_png", &c->surface_write_to_png},
		{"cairo_surface_finish", &c->surface_finish},
		{"cairo_surface_status", &c->surface_status},
		{"cairo_surface_destroy", &c->surface_destroy},
		{"cairo_create", &c->create},
		{"cairo_destroy", &c->destroy},
		{"cairo_set_source_rgb", &c->set_source_rgb},
		{"cairo_set_line_width", &c->set_line_width},
		{"cairo_set_dash", &c->set_dash},
		{"cairo_move_to", &c->move_to},
		{"cairo_line_to", &c->line_to},
		{"cairo_arc", &c->arc},
		{"cairo_stroke", &c->stroke},
		{"cairo_fill", &c->fill},
		{"cairo_paint", &c->paint},
		{"cairo_select_font_face", &c->select_font_face},
		{"cairo_set_font_size", &c->set_font_size},
		{"cairo_text_extents", &c->text_extents},
		{"cairo_show_text", &c->show_text},
	};

	c->library = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
	if (c->library == NULL)
		return false;
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *symbol = dlsym(c->library, symbols[i].name);

		if (symbol == NULL)
			return false;
		memcpy(symbols[i].to, &symbol, sizeof(symbol));
	}
	return true;
}

int chart_open(const char *path, uint32_t width, uint32_t height, struct chart **out,
               struct why *why)
{
	struct chart *chart = calloc(1, sizeof(*chart));
	const char *dot = strrchr(path, '.');
	struct cairo *c;

	if (chart == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	c = &chart->cairo;
	if (!cairo_load(c)) {
		free(chart);
		return why_set(why, -ENOENT, "it needs libcairo.so.2: apt-get install libcairo2");
	}
	snprintf(chart->path, sizeof(chart->path), "%s", path);
	chart->png = dot != NULL && strcmp(dot, ".png") == 0;
	errno = EIO;
	chart->surface =
		chart->png ? c->image_surface_create(CAIRO_FORMAT_RGB24, (int)width, (int)height)
			   : c->svg_surface_create(path, width, height);
	if (c->surface_status(chart->surface) !=
	    CAIRO_STATUS_SUCCESS) { /* it opens an SVG at once */
		c->surface_destroy(chart->surface);
		free(chart);
		return why_set(why, -errno, "%s", strerror(errno));
	}
	chart->cr = c->create(chart->surface);
	c->set_source_rgb(chart->cr, 1, 1, 1);
	c->paint(chart->cr);
	c->select_font_face(chart->cr, "sans-serif", 0, 0);
	*out = chart;
	return 0;
}

static void colour_set(const struct chart *chart, uint32_t colour)
{
	chart->cairo.set_source_rgb(chart->cr, (colour >> 16) / 255.0, (colour >> 8 & 255) / 255.0,
	                            (colour & 255) / 255.0);
}

void chart_line(struct chart *chart, const struct chart_pen *pen, const double x[],
                const double y[], uint32_t count)
{
	const struct cairo *c = &chart->cairo;
	const double dashes[] = {6, 4};

	colour_set(chart, pen->colour);
	c->set_line_width(chart->cr, pen->width);
	c->set_dash(chart->cr, dashes, pen->dashed ? 2 : 0, 0);
	for (uint32_t i = 0; i < count; i++)
		(i == 0 ? c->move_to : c->line_to)(chart->cr, x[i], y[i]);
	c->stroke(chart->cr);
}

void chart_dot(struct chart *chart, uint32_t colour, double x, double y, double radius)
{
	colour_set(chart, colour);
	chart->cairo.arc(chart->cr, x, y, radius, 0, 6.2831853071795865);
	chart->cairo.fill(chart->cr);
}

void chart_text(struct chart *chart, enum chart_anchor anchor, double x, double y, double size,
                const char *text)
{
	double extents[6]; /* the fifth is how far the text goes */

	colour_set(chart, 0);
	chart->cairo.set_font_size(chart->cr, size);
	chart->cairo.text_extents(chart->cr, text, extents);
	chart->cairo.move_to(chart->cr, x - extents[4] * (int)anchor / 2, y);
	chart->cairo.show_text(chart->cr, text);
}

int chart_close(struct chart *chart, struct why *why)
{
	const struct cairo *c = &chart->cairo;
	int status = CAIRO_STATUS_SUCCESS;

	errno = EIO;
	if (chart->png)
		status = c->surface_write_to_png(chart->surface, chart->path);
	c->destroy(chart->cr);
	c->surface_finish(chart->surface); /* which writes an SVG */
	if (status == CAIRO_STATUS_SUCCESS)
		status = c->surface_status(chart->surface);
	c->surface_destroy(chart->surface);
	free(chart);
	return status == CAIRO_STATUS_SUCCESS ? 0 : why_set(why, -errno, "%s", strerror(errno));
}
