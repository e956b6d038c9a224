/* SPDX-License-Identifier: BSD-3-Clause */
/* cli_json.h - numbers in JSON: whole numbers are printed as such */
#ifndef CLIENT_CLI_JSON_H
#define CLIENT_CLI_JSON_H

#include <jansson.h>
#include <math.h>

/* Of what comes in whole numbers, such as bytes, also where it is a mean. */
static inline json_t *cli_json_whole(double value)
{
	return json_integer((json_int_t)llround(value));
}

#endif /* CLIENT_CLI_JSON_H */
