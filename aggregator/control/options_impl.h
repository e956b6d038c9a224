/* SPDX-License-Identifier: BSD-3-Clause */
/* options_impl.h - what options.c (reading) and options_print.c (help, dump) share; private to them */
#ifndef AGGREGATOR_CONTROL_OPTIONS_IMPL_H
#define AGGREGATOR_CONTROL_OPTIONS_IMPL_H

#include "aggregator/control/options.h"

#define OPTION_NAME_BYTES 64
#define OPTIONS_MAX 64
#define ORIGIN_BYTES 96

/* Where an option's value comes from; `text` as the user wrote it, NULL: it has none. */
struct origin {
	const char *text;
	char *owned; /* memory of `text` that ends with the reading, or NULL */
	char where[ORIGIN_BYTES];
};

void options_dump(const struct options *options, const struct origin origins[]);

#endif /* AGGREGATOR_CONTROL_OPTIONS_IMPL_H */
