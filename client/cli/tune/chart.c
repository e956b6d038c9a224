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
	int (*surface_write_to_png)(void *surface, const char *path);
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
	FILE *svg; /* NULL: a PNG */
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
		{"cairo_surface_write_to_png", &c->surface_write_to_png},
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

static int png_open(struct chart *chart, uint32_t width, uint32_t height, struct why *why)
{
	struct cairo *c = &chart->cairo;

	if (!cairo_load(c))
		return why_set(
			why, -ENOENT,
			"PNG needs libcairo.so.2 (apt-get install libcairo2); .svg needs nothing");
	chart->surface = c->image_surface_create(CAIRO_FORMAT_RGB24, (int)width, (int)height);
	chart->cr = c->create(chart->surface);
	c->set_source_rgb(chart->cr, 1, 1, 1);
	c->paint(chart->cr);
	c->select_font_face(chart->cr, "sans-serif", 0, 0);
	return 0;
}

static int svg_open(struct chart *chart, uint32_t width, uint32_t height, struct why *why)
{
	chart->svg = fopen(chart->path, "we");
	if (chart->svg == NULL)
		return why_set(why, -errno, "%s", strerror(errno));
	fprintf(chart->svg,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
	        "viewBox=\"0 0 %u %u\" font-family=\"sans-serif\">\n"
	        "<rect width=\"%u\" height=\"%u\" fill=\"#ffffff\"/>\n",
	        width, height, width, height, width, height);
	return 0;
}

int chart_open(const char *path, uint32_t width, uint32_t height, struct chart **out,
               struct why *why)
{
	struct chart *chart = calloc(1, sizeof(*chart));
	const char *dot = strrchr(path, '.');
	int err;

	if (chart == NULL)
		return why_set(why, -ENOMEM, "out of memory");
	snprintf(chart->path, sizeof(chart->path), "%s", path);
	if (dot != NULL && strcmp(dot, ".png") == 0)
		err = png_open(chart, width, height, why);
	else
		err = svg_open(chart, width, height, why);
	if (err == 0)
		*out = chart;
	else
		free(chart); /* a library that has been loaded stays */
	return err;
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

	if (chart->svg != NULL) {
		fprintf(chart->svg,
		        "<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"%g\"%s points=\"",
		        pen->colour, pen->width, pen->dashed ? " stroke-dasharray=\"6,4\"" : "");
		for (uint32_t i = 0; i < count; i++)
			fprintf(chart->svg, "%s%.1f,%.1f", i > 0 ? " " : "", x[i], y[i]);
		fprintf(chart->svg, "\"/>\n");
		return;
	}
	colour_set(chart, pen->colour);
	c->set_line_width(chart->cr, pen->width);
	c->set_dash(chart->cr, dashes, pen->dashed ? 2 : 0, 0);
	for (uint32_t i = 0; i < count; i++)
		(i == 0 ? c->move_to : c->line_to)(chart->cr, x[i], y[i]);
	c->stroke(chart->cr);
}

void chart_dot(struct chart *chart, uint32_t colour, double x, double y, double radius)
{
	if (chart->svg != NULL) {
		fprintf(chart->svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"#%06x\"/>\n",
		        x, y, radius, colour);
		return;
	}
	colour_set(chart, colour);
	chart->cairo.arc(chart->cr, x, y, radius, 0, 6.2831853071795865);
	chart->cairo.fill(chart->cr);
}

static void svg_text(FILE *out, const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text == '&')
			fputs("&amp;", out);
		else if (*text == '<')
			fputs("&lt;", out);
		else
			fputc(*text, out);
	}
}

void chart_text(struct chart *chart, enum chart_anchor anchor, double x, double y, double size,
                const char *text)
{
	static const char *const names[] = {"start", "middle", "end"};
	double extents[6]; /* the fifth is how far the text goes */

	if (chart->svg != NULL) {
		fprintf(chart->svg,
		        "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" text-anchor=\"%s\">", x, y,
		        size, names[anchor]);
		svg_text(chart->svg, text);
		fprintf(chart->svg, "</text>\n");
		return;
	}
	colour_set(chart, 0);
	chart->cairo.set_font_size(chart->cr, size);
	chart->cairo.text_extents(chart->cr, text, extents);
	chart->cairo.move_to(chart->cr, x - extents[4] * (int)anchor / 2, y);
	chart->cairo.show_text(chart->cr, text);
}

int chart_close(struct chart *chart, struct why *why)
{
	bool good = true;

	errno = EIO;
	if (chart->svg != NULL) {
		fprintf(chart->svg, "</svg>\n");
		good = !ferror(chart->svg);
		good = fclose(chart->svg) == 0 && good;
	} else {
		good = chart->cairo.surface_write_to_png(chart->surface, chart->path) ==
		       CAIRO_STATUS_SUCCESS;
		chart->cairo.destroy(chart->cr);
		chart->cairo.surface_destroy(chart->surface);
	}
	free(chart);
	return good ? 0 : why_set(why, -errno, "%s", strerror(errno));
}
