// SPDX-License-Identifier: BSD-3-Clause
/*
 * tune_names.c - what lies where in tensors
 *
 * --names FILE: {"tensors": [{"count": N, "parameters": [{"name": "..", "offset": 0, "shape": [R, C]}]}]}
 * with offsets in elements. A list is of all operations of `count` elements.
 *
 * JOB.RUN.RANK.names, beside a trace: JSON lines, of two kinds. {"layout": 0, "count": N, "parameters": [..]}
 * says how such a tensor is made up, {"tag": T, "layout": 0} that operation T is one. DistributedDataParallel
 * makes its buckets anew after the first step: so a count does not say which tensor it is.
 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/table.h"
#include "client/cli/tune/tune.h"
#include "ebpf/wire.h"

#define COUNT_MAX (INT64_C(1) << 48)
#define LAYOUTS_MAX 4096

struct names {
	struct tune *tune;
	const char *path;
	json_t *layouts; /* as they are in the file; a parameter's "number" is its place in tune->params */
	json_t *tags;   /* "TAG": the number of its layout; NULL: layouts are found by count */
	struct why why; /* they are no use */
};

/* ---- what both files have ---- */

/* A whole number from 0 to `most`; -1: there is none. */
static json_int_t number(const json_t *object, const char *name, json_int_t most)
{
	const json_t *value = json_object_get(object, name);
	json_int_t whole = json_is_integer(value) ? json_integer_value(value) : -1;

	return whole <= most ? whole : -1;
}

/* The elements, the last dimension as a row, and a text for people. */
static bool shape_read(const json_t *shape, struct tune_param *param)
{
	size_t index;
	const json_t *value;

	if (!json_is_array(shape))
		return false;
	param->elems = 1;
	param->shape[0] = '\0';
	json_array_foreach(shape, index, value)
	{
		json_int_t size = json_is_integer(value) ? json_integer_value(value) : -1;

		if (size < 1 || size > COUNT_MAX ||
		    param->elems > (uint64_t)COUNT_MAX / (uint64_t)size)
			return false;
		param->elems *= (uint64_t)size;
		param->row = index > 0 ? (uint64_t)size : 0;
		if (strlen(param->shape) + 24 < sizeof(param->shape))
			text_add(param->shape, sizeof(param->shape), "%s%lld", index > 0 ? "x" : "",
			         (long long)size);
	}
	if (param->row > WIRE_BLOCK_ELEMS_MAX)
		param->row = 0;
	return true;
}

/* The same name and shape is the same parameter. TUNE_PARAMS_MAX: there is no room. */
static uint32_t param_number(struct tune *tune, const struct tune_param *param)
{
	uint32_t i = 0;

	while (i < tune->param_count && (strcmp(tune->params[i].name, param->name) != 0 ||
	                                 strcmp(tune->params[i].shape, param->shape) != 0))
		i++;
	if (i == tune->param_count && i < TUNE_PARAMS_MAX)
		tune->params[tune->param_count++] = *param;
	return i;
}

static bool part_read(struct names *names, json_t *object, json_int_t count)
{
	const char *name = json_string_value(json_object_get(object, "name"));
	json_int_t offset = number(object, "offset", COUNT_MAX);
	struct tune_param param = {.offset = (uint64_t)offset};
	uint32_t index;

	if (name == NULL || offset < 0 || !shape_read(json_object_get(object, "shape"), &param))
		return why_set(&names->why, false, "a parameter lacks name, offset or shape");
	if ((json_int_t)param.elems > count - offset)
		return why_set(&names->why, false, "a parameter ends behind its tensor");
	text_safe(param.name, sizeof(param.name), name);
	index = param_number(names->tune, &param);
	if (index == TUNE_PARAMS_MAX)
		return why_set(&names->why, false, "it has more than 4096 parameters");
	return json_object_set_new(object, "number", json_integer(index)) == 0;
}

static bool layout_read(struct names *names, json_t *object)
{
	json_t *list = json_object_get(object, "parameters"), *value;
	json_int_t count = number(object, "count", COUNT_MAX);
	size_t index;

	if (json_array_size(names->layouts) == LAYOUTS_MAX)
		return why_set(&names->why, false, "it has more than 4096 tensors");
	if (!json_is_array(list) || count < 0)
		return why_set(&names->why, false, "a tensor lacks count or parameters");
	json_array_foreach(list, index, value)
	{
		if (!part_read(names, value, count))
			return false;
	}
	return json_array_append(names->layouts, object) == 0;
}

/* ---- --names ---- */

static bool file_read(struct names *names)
{
	json_error_t error;
	json_t *root = json_load_file(names->path, 0, &error), *value;
	json_t *list = json_object_get(root, "tensors");
	bool good = true;
	size_t index;

	if (root == NULL)
		return why_set(&names->why, false, "%s", error.text);
	if (!json_is_array(list))
		good = why_set(&names->why, false, "it has no list of tensors");
	json_array_foreach(list, index, value)
	{
		good = good && layout_read(names, value);
	}
	json_decref(root);
	return good;
}

/* ---- beside a trace ---- */

static bool line_read(struct names *names, json_t *line)
{
	json_int_t known = (json_int_t)json_array_size(names->layouts);
	json_int_t layout = number(line, "layout", LAYOUTS_MAX);
	json_int_t tag = number(line, "tag", INT64_MAX);
	char key[32];

	if (layout < 0)
		return why_set(&names->why, false, "a line has no layout");
	if (tag < 0)
		return layout == known
		               ? layout_read(names, line)
		               : why_set(&names->why, false, "layouts are not in their order");
	if (layout >= known)
		return why_set(&names->why, false, "a line has a layout that is not there");
	snprintf(key, sizeof(key), "%lld", (long long)tag);
	return json_object_set_new(names->tags, key, json_integer(layout)) == 0;
}

/* A killed process leaves a last line without its end. */
static bool lines_read(struct names *names, FILE *file)
{
	size_t room = 0;
	char *line = NULL;
	ssize_t bytes;
	bool good = true;

	names->tags = json_object();
	while (good && (bytes = getline(&line, &room, file)) > 0 && line[bytes - 1] == '\n') {
		json_t *object = json_loads(line, 0, NULL);

		good = object != NULL ? line_read(names, object)
		                      : why_set(&names->why, false, "a line is no JSON");
		json_decref(object);
	}
	free(line);
	return good;
}

/* ---- which operation holds what ---- */

/* Is operation `op` a tensor of this layout? */
static bool holds(const struct names *names, const struct source_op *op, size_t layout)
{
	uint64_t count =
		(uint64_t)number(json_array_get(names->layouts, layout), "count", COUNT_MAX);
	const json_t *tagged;
	char key[32];

	if (names->tags == NULL)
		return count == op->count;
	snprintf(key, sizeof(key), "%llu", (unsigned long long)op->tag);
	tagged = json_object_get(names->tags, key);
	return tagged != NULL && json_integer_value(tagged) == (json_int_t)layout &&
	       (op->parts > 1 || op->count == count);
}

static void place_add(struct names *names, uint32_t index, const json_t *part)
{
	struct tune *tune = names->tune;
	const struct source_op *op = &tune->source.ops[index];
	uint32_t number_of_it = (uint32_t)number(part, "number", TUNE_PARAMS_MAX);
	uint64_t offset = (uint64_t)number(part, "offset", COUNT_MAX);
	struct tune_param *param = &tune->params[number_of_it];

	if (offset < op->first || param->elems > op->count ||
	    offset - op->first > op->count - param->elems)
		return; /* another part of its tensor holds it */
	tune->places = cli_memory_more(tune->places,
	                               (tune->place_count + 1ul) * sizeof(*tune->places), "places");
	param->offset = offset - op->first;
	tune->places[tune->place_count++] = (struct tune_place){index, number_of_it, param->offset};
}

static void places_make(struct names *names)
{
	const struct source *source = &names->tune->source;
	json_t *layout, *part;
	size_t l, p;

	for (uint32_t i = 0; i < source->op_count; i++)
		json_array_foreach(names->layouts, l, layout)
		{
			if (!holds(names, &source->ops[i], l))
				continue;
			json_array_foreach(json_object_get(layout, "parameters"), p, part)
			{
				place_add(names, i, part);
			}
		}
}

/* "JOB.RUN.0.names" for "JOB.RUN.0.trace" */
static bool path_beside(const struct tune *tune, char *path, size_t bytes)
{
	const char *trace = tune->source.traces != NULL ? tune->source.traces[0]->path : "";
	const char *dot = strrchr(trace, '.');

	return dot != NULL &&
	       (size_t)snprintf(path, bytes, "%.*s.names", (int)(dot - trace), trace) < bytes;
}

int tune_names_read(struct tune *tune)
{
	struct names names = {.tune = tune, .path = tune->settings->names, .layouts = json_array()};
	char beside[4300];
	FILE *file = NULL;
	int status = 0;
	bool good = true; /* perhaps nobody has written any */

	if (names.path != NULL)
		good = file_read(&names);
	else if (path_beside(tune, beside, sizeof(beside)))
		file = fopen(beside, "re");
	if (file != NULL) {
		names.path = beside;
		good = lines_read(&names, file);
		fclose(file);
	}
	if (good)
		places_make(&names);
	else if (names.path == beside)
		status = cli_error(1, "%s: %s; move it away, or say --names FILE", names.path,
		                   names.why.text);
	else
		status = cli_error(1, "cannot use --names %s: %s; see docs/TUNING.md", names.path,
		                   names.why.text);
	json_decref(names.layouts);
	json_decref(names.tags);
	return status;
}
