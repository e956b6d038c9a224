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

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/table.h"
#include "client/cli/tune/tune.h"
#include "ebpf/wire.h"

#define COUNT_MAX (INT64_C(1) << 48)
#define LAYOUTS_MAX 4096
#define PARTS_MAX (1u << 20) /* of all layouts */
#define TAGS_MAX (1u << 24)

/* A parameter in a layout. */
struct part {
	uint32_t layout, param;
	uint64_t offset;
};

struct tagged {
	uint64_t tag;
	uint32_t layout;
};

struct names {
	struct tune *tune;
	const char *path;
	uint32_t layout_count, part_count, tag_count;
	uint64_t counts[LAYOUTS_MAX];
	struct part *parts;
	bool by_count; /* or by their tags */
	struct tagged *tags;
	char wrong[256];
};

static bool wrong(struct names *names, const char *what)
{
	snprintf(names->wrong, sizeof(names->wrong), "%s", what);
	return false;
}

/* Room for one more in a list whose room is a power of two less one. */
static bool room(void **list, uint32_t count, size_t each)
{
	void *longer;

	if ((count & (count + 1)) != 0)
		return true;
	longer = realloc(*list, ((size_t)count * 2 + 1) * each);
	if (longer == NULL)
		return false;
	*list = longer;
	return true;
}

/* ---- what both files have ---- */

static bool number(const json_t *object, const char *name, uint64_t most, uint64_t *out)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    (uint64_t)json_integer_value(value) > most)
		return false;
	*out = (uint64_t)json_integer_value(value);
	return true;
}

/* The elements, the last dimension as a row, and a text for people. */
static bool shape_read(const json_t *shape, struct tune_param *param)
{
	size_t used = 0, index;
	const json_t *value;

	if (!json_is_array(shape))
		return false;
	param->elems = 1;
	json_array_foreach(shape, index, value)
	{
		json_int_t size = json_is_integer(value) ? json_integer_value(value) : -1;

		if (size < 1 || size > COUNT_MAX ||
		    param->elems > (uint64_t)COUNT_MAX / (uint64_t)size)
			return false;
		param->elems *= (uint64_t)size;
		param->row = index > 0 ? (uint64_t)size : 0;
		if (used + 24 < sizeof(param->shape))
			used += (size_t)snprintf(param->shape + used, sizeof(param->shape) - used,
			                         "%s%lld", index > 0 ? "x" : "", (long long)size);
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

static bool part_read(struct names *names, const json_t *object)
{
	const char *name = json_string_value(json_object_get(object, "name"));
	uint64_t count = names->counts[names->layout_count];
	struct tune_param param = {0};
	struct part part = {.layout = names->layout_count};

	if (name == NULL || !number(object, "offset", COUNT_MAX, &param.offset) ||
	    !shape_read(json_object_get(object, "shape"), &param))
		return wrong(names, "a parameter lacks name, offset or shape");
	if (param.elems > count || param.offset > count - param.elems)
		return wrong(names, "a parameter ends behind its tensor");
	text_safe(param.name, sizeof(param.name), name);
	part.offset = param.offset;
	part.param = param_number(names->tune, &param);
	if (part.param == TUNE_PARAMS_MAX)
		return wrong(names, "it has more than 4096 parameters");
	if (names->part_count == PARTS_MAX ||
	    !room((void **)&names->parts, names->part_count, sizeof(*names->parts)))
		return wrong(names, "it has too many parameters");
	names->parts[names->part_count++] = part;
	return true;
}

static bool layout_read(struct names *names, const json_t *object)
{
	const json_t *list = json_object_get(object, "parameters"), *value;
	size_t index;

	if (names->layout_count == LAYOUTS_MAX)
		return wrong(names, "it has more than 4096 tensors");
	if (!json_is_array(list) ||
	    !number(object, "count", COUNT_MAX, &names->counts[names->layout_count]))
		return wrong(names, "a tensor lacks count or parameters");
	json_array_foreach(list, index, value)
	{
		if (!part_read(names, value))
			return false;
	}
	names->layout_count++;
	return true;
}

/* ---- --names ---- */

static bool file_read(struct names *names)
{
	json_error_t error;
	json_t *root = json_load_file(names->path, 0, &error), *value;
	const json_t *list = json_object_get(root, "tensors");
	bool good = true;
	size_t index;

	if (root == NULL)
		return wrong(names, error.text);
	if (!json_is_array(list))
		good = wrong(names, "it has no list of tensors");
	json_array_foreach(list, index, value)
	{
		good = good && layout_read(names, value);
	}
	json_decref(root);
	return good;
}

/* ---- beside a trace ---- */

static bool line_read(struct names *names, const json_t *line)
{
	struct tagged tagged;
	uint64_t layout;

	if (!number(line, "layout", LAYOUTS_MAX, &layout))
		return wrong(names, "a line has no layout");
	if (!number(line, "tag", INT64_MAX, &tagged.tag)) {
		if (layout != names->layout_count)
			return wrong(names, "layouts are not in their order");
		return layout_read(names, line);
	}
	if (layout >= names->layout_count)
		return wrong(names, "a line has a layout that is not there");
	tagged.layout = (uint32_t)layout;
	if (names->tag_count == TAGS_MAX ||
	    !room((void **)&names->tags, names->tag_count, sizeof(*names->tags)))
		return wrong(names, "it has too many lines");
	names->tags[names->tag_count++] = tagged;
	return true;
}

static int by_tag(const void *a, const void *b)
{
	const struct tagged *x = a, *y = b;

	return x->tag < y->tag ? -1 : x->tag > y->tag;
}

/* A killed process leaves a last line without its end. */
static bool lines_read(struct names *names, FILE *file)
{
	size_t room_bytes = 0;
	char *line = NULL;
	ssize_t bytes;
	bool good = true;

	while (good && (bytes = getline(&line, &room_bytes, file)) > 0 && line[bytes - 1] == '\n') {
		json_t *object = json_loads(line, 0, NULL);

		good = object != NULL ? line_read(names, object)
		                      : wrong(names, "a line is no JSON");
		json_decref(object);
	}
	free(line);
	if (names->tag_count > 0)
		qsort(names->tags, names->tag_count, sizeof(*names->tags), by_tag);
	return good;
}

/* ---- which operation holds what ---- */

/* LAYOUTS_MAX: none. */
static uint32_t layout_tagged(const struct names *names, const struct source_op *op)
{
	struct tagged key = {.tag = op->whole};
	const struct tagged *found = NULL;

	if (names->tag_count > 0)
		found = bsearch(&key, names->tags, names->tag_count, sizeof(key), by_tag);
	/* The guard of an operation on segments has its tag, and no data. */
	if (found == NULL || (op->whole == op->tag && op->count != names->counts[found->layout]))
		return LAYOUTS_MAX;
	return found->layout;
}

static bool place_add(struct names *names, uint32_t index, const struct part *part)
{
	struct tune *tune = names->tune;
	const struct source_op *op = &tune->source.ops[index];
	struct tune_param *param = &tune->params[part->param];

	if (part->offset < op->first || param->elems > op->count ||
	    part->offset - op->first > op->count - param->elems)
		return true; /* another part of its tensor holds it */
	if (!room((void **)&tune->places, tune->place_count, sizeof(*tune->places)))
		return wrong(names, "out of memory");
	param->offset = part->offset - op->first;
	tune->places[tune->place_count++] = (struct tune_place){index, part->param, param->offset};
	return true;
}

static bool places_make(struct names *names)
{
	const struct source *source = &names->tune->source;
	bool good = true;

	for (uint32_t i = 0; i < source->op_count; i++) {
		uint32_t tagged = names->by_count ? 0 : layout_tagged(names, &source->ops[i]);

		for (uint32_t p = 0; p < names->part_count && good && tagged != LAYOUTS_MAX; p++) {
			uint32_t layout = names->parts[p].layout;

			if (names->by_count ? names->counts[layout] == source->ops[i].count
			                    : layout == tagged)
				good = place_add(names, i, &names->parts[p]);
		}
	}
	return good;
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
	struct names *names = calloc(1, sizeof(*names));
	char beside[4300];
	FILE *file = NULL;
	int status = 0;
	bool good;

	tune->params = calloc(TUNE_PARAMS_MAX, sizeof(*tune->params));
	if (names == NULL || tune->params == NULL) {
		free(names);
		return cli_error(1, "out of memory");
	}
	names->tune = tune;
	names->path = tune->settings->names;
	if (names->path != NULL) {
		names->by_count = true;
		good = file_read(names);
	} else if (path_beside(tune, beside, sizeof(beside)) &&
	           (file = fopen(beside, "re")) != NULL) {
		names->path = beside;
		good = lines_read(names, file);
	} else {
		good = true; /* nobody has written any */
	}
	good = good && places_make(names);
	if (!good && file != NULL)
		status = cli_error(1, "%s: %s; move it away, or say --names FILE", names->path,
		                   names->wrong);
	else if (!good)
		status = cli_error(1, "cannot use --names %s: %s; see docs/TUNING.md", names->path,
		                   names->wrong);
	if (file != NULL)
		fclose(file);
	free(names->parts);
	free(names->tags);
	free(names);
	return status;
}
