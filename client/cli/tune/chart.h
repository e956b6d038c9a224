/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chart.h - pictures of lines and words, as SVG or PNG
 *
 * libcairo.so.2 draws both; it is loaded when a picture is asked for, and nothing else needs it.
 */
#ifndef CLIENT_CLI_CHART_H
#define CLIENT_CLI_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "bitmap/why.h"

struct chart;

struct chart_pen {
	uint32_t colour; /* 0xrrggbb */
	double width;
	bool dashed;
};

enum chart_anchor { CHART_LEFT, CHART_MIDDLE, CHART_RIGHT };

/* Pixels, from the upper left. The format is by the name's end. -errno: see `why`, here and below. */
int chart_open(const char *path, uint32_t width, uint32_t height, struct chart **out,
               struct why *why);

void chart_line(struct chart *chart, const struct chart_pen *pen, const double x[],
                const double y[], uint32_t count);
void chart_dot(struct chart *chart, uint32_t colour, double x, double y, double radius);
void chart_text(struct chart *chart, enum chart_anchor anchor, double x, double y, double size,
                const char *text); /* y: of the base line */

/* chart_close - write it and free it. */
int chart_close(struct chart *chart, struct why *why);

#endif /* CLIENT_CLI_CHART_H */
