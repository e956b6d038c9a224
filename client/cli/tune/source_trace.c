// SPDX-License-Identifier: BSD-3-Clause
/* source_trace.c - a folder of traces: which files belong together, and which of their operations */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/tune/source.h"

/* What lies in a folder. */
struct folder {
	struct trace_file **files;
	uint32_t count;
};

static void folder_close(struct folder *folder)
{
	for (uint32_t i = 0; i < folder->count; i++)
		trace_file_close(folder->files[i]);
	free((void *)folder->files);
}

static int folder_add(struct folder *folder, const char *path, struct why *why)
{
	void *longer = realloc((void *)folder->files,
	                       ((size_t)folder->count + 1) * sizeof(struct trace_file *));

	if (longer == NULL)
		return why_set(why, 1, "out of memory");
	folder->files = longer;
	if (trace_file_open(path, &folder->files[folder->count], why) != 0)
		return why_set(why, 1, "cannot use %s: %s", path, why->text);
	folder->count++;
	return 0;
}

static int folder_open(struct folder *folder, const char *path, struct why *why)
{
	DIR *list = opendir(path);
	const struct dirent *entry;
	int status = 0;

	if (list == NULL)
		return why_set(why, 1, "cannot read %s: %s", path, strerror(errno));
	while (status == 0 && (entry = readdir(list)) != NULL) {
		const char *dot = strrchr(entry->d_name, '.');
		char file[4200];

		if (dot == NULL || strcmp(dot, ".trace") != 0)
			continue;
		if (folder->count == SOURCE_FILES_MAX)
			status = why_set(why, 1, "%s holds more than %d traces", path,
			                 SOURCE_FILES_MAX);
		snprintf(file, sizeof(file), "%.3900s/%s", path, entry->d_name);
		if (status == 0)
			status = folder_add(folder, file, why);
	}
	closedir(list);
	if (status == 0 && folder->count == 0)
		status = why_set(why, 1, "%s holds no trace: run the job with WINNOW_TRACE=%s",
		                 path, path);
	return status;
}

/* The job that is meant: its latest run. */
static int run_choose(struct source *s, const struct folder *folder, const char *job,
                      const struct trace_head **out, struct why *why)
{
	const struct trace_head *best = NULL, *other = NULL;
	uint32_t older = 0;

	for (uint32_t i = 0; i < folder->count; i++) {
		const struct trace_head *head = &folder->files[i]->head;

		if (job != NULL && strcmp(head->job, job) != 0) {
			other = head;
			continue;
		}
		if (best != NULL && strcmp(best->job, head->job) != 0)
			return why_set(
				why, 2,
				"there are traces of the jobs %s and %s: say --job %s or --job %s",
				best->job, head->job, best->job, head->job);
		older += best != NULL && head->run != best->run;
		if (best == NULL || head->started_s > best->started_s)
			best = head;
	}
	if (best == NULL)
		return why_set(why, 1, "there is no trace of job %s, but of %s", job,
		               other != NULL ? other->job : "none");
	if (older > 0)
		snprintf(s->note, sizeof(s->note), "several runs of job %s: the latest is used",
		         best->job);
	*out = best;
	return 0;
}

static int files_take(struct source *s, struct folder *folder, const struct trace_head *run,
                      struct why *why)
{
	for (uint32_t i = 0; i < folder->count; i++) {
		struct trace_file *file = folder->files[i];

		if (file->head.run != run->run || file->head.rank >= s->world ||
		    strcmp(file->head.job, run->job) != 0)
			continue;
		if (file->head.world != run->world || file->head.payload != run->payload ||
		    file->head.channels != run->channels || s->traces[file->head.rank] != NULL)
			return why_set(why, 1, "%s does not fit the other workers' traces",
			               file->path);
		s->traces[file->head.rank] = file;
		folder->files[i--] = folder->files[--folder->count];
	}
	for (uint32_t rank = 0; rank < s->world; rank++)
		if (s->traces[rank] == NULL)
			return why_set(why, 1, "the trace of worker %u of job %s is missing", rank,
			               run->job);
	return 0;
}

/* ---- which operations belong together: by tag, and by order where a tag comes again ---- */

struct tagged {
	uint64_t tag;
	uint32_t entry;
};

static int by_tag(const void *a, const void *b)
{
	const struct tagged *x = a, *y = b;

	if (x->tag != y->tag)
		return x->tag < y->tag ? -1 : 1;
	return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static struct tagged *sorted(const struct trace_file *file)
{
	struct tagged *list = calloc((size_t)file->count + 1, sizeof(*list));

	for (uint32_t i = 0; list != NULL && i < file->count; i++)
		list[i] = (struct tagged){file->entries[i].record.tag, i};
	if (list != NULL)
		qsort(list, file->count, sizeof(*list), by_tag);
	return list;
}

static bool alike(const struct trace_record *a, const struct trace_record *b)
{
	return a->count == b->count && a->dtype == b->dtype && a->block == b->block &&
	       a->form == b->form && a->fine == b->fine;
}

/* match[entry of rank 0] = entry of `rank`, UINT32_MAX: none. Both lists are sorted by tag. */
static void match(const struct source *s, uint32_t rank, const struct tagged *first,
                  const struct tagged *list, uint32_t *out)
{
	const struct trace_file *a = s->traces[0], *b = s->traces[rank];
	uint32_t i = 0, j = 0;

	while (i < a->count && j < b->count) {
		if (first[i].tag < list[j].tag) {
			i++;
		} else if (first[i].tag > list[j].tag) {
			j++;
		} else {
			if (alike(&a->entries[first[i].entry].record,
			          &b->entries[list[j].entry].record))
				out[(uint64_t)first[i].entry * s->world + rank] = list[j].entry;
			i++;
			j++;
		}
	}
}

static int match_all(struct source *s, struct why *why)
{
	const struct trace_file *file = s->traces[0];
	uint64_t places = (uint64_t)file->count * s->world;
	struct tagged *first = sorted(file);
	int status = 0;

	s->entries = malloc((places + 1) * sizeof(*s->entries));
	s->ops = calloc((size_t)file->count + 1, sizeof(*s->ops));
	if (first == NULL || s->entries == NULL || s->ops == NULL) {
		free(first);
		return why_set(why, 1, "out of memory");
	}
	memset(s->entries, 0xff, places * sizeof(*s->entries));
	for (uint32_t i = 0; i < file->count; i++)
		s->entries[(uint64_t)i * s->world] = i;
	for (uint32_t rank = 1; rank < s->world && status == 0; rank++) {
		struct tagged *list = sorted(s->traces[rank]);

		if (list == NULL)
			status = why_set(why, 1, "out of memory");
		else
			match(s, rank, first, list, s->entries);
		free(list);
	}
	free(first);
	return status;
}

/* Keeps the operations that all workers have recorded, in rank 0's order. */
static void ops_fill(struct source *s)
{
	const struct trace_file *file = s->traces[0];

	for (uint32_t i = 0; i < file->count; i++) {
		const struct trace_record *record = &file->entries[i].record;
		uint32_t *to = s->entries + (uint64_t)s->op_count * s->world;
		bool whole = record->fine == s->fine;

		for (uint32_t rank = 0; rank < s->world; rank++) {
			to[rank] = s->entries[(uint64_t)i * s->world + rank];
			whole = whole && to[rank] != UINT32_MAX;
		}
		if (!whole)
			continue;
		s->ops[s->op_count++] = (struct source_op){
			.count = record->count,
			.tag = record->tag,
			.whole = record->whole != 0 ? record->whole : record->tag,
			.first = record->first,
			.dtype = (enum dtype)record->dtype,
			.fixed32 = record->form != 0,
			.block = record->block,
		};
	}
	if (s->op_count < file->count && s->note[0] == '\0')
		snprintf(s->note, sizeof(s->note),
		         "%u of worker 0's %u operations are not in all workers' traces and are "
		         "left out",
		         file->count - s->op_count, file->count);
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Of an operation in several parts the first has no data, and a hash for a block (client/comm/comm_parts.c). */
static int guards_mark(struct source *s, struct why *why)
{
	uint64_t *wholes = calloc((size_t)s->op_count + 1, sizeof(*wholes));
	uint32_t count = 0;

	if (wholes == NULL)
		return why_set(why, 1, "out of memory");
	for (uint32_t i = 0; i < s->op_count; i++)
		if (s->ops[i].whole != s->ops[i].tag)
			wholes[count++] = s->ops[i].whole;
	qsort(wholes, count, sizeof(*wholes), ascending);
	for (uint32_t i = 0; i < s->op_count; i++)
		if (bsearch(&s->ops[i].tag, wholes, count, sizeof(*wholes), ascending) != NULL)
			s->ops[i].block = 0;
	free(wholes);
	return 0;
}

int source_trace(struct source *s, const char *folder_path, const char *job, uint32_t world,
                 struct why *why)
{
	const struct trace_head *run = NULL;
	struct folder folder = {0};
	int status = folder_open(&folder, folder_path, why);

	*s = (struct source){0};
	if (status == 0)
		status = run_choose(s, &folder, job, &run, why);
	if (status == 0 && world > run->world)
		status = why_set(why, 2, "--world is %u, but the traced job had %u workers", world,
		                 run->world);
	if (status == 0) {
		struct trace_head head = *run;

		s->world = world != 0 ? world : head.world;
		s->traces = calloc(s->world, sizeof(struct trace_file *));
		s->trace_count = s->traces != NULL ? s->world : 0;
		status = s->traces == NULL ? why_set(why, 1, "out of memory")
		                           : files_take(s, &folder, &head, why);
	}
	folder_close(&folder);
	if (status == 0 && s->traces[0]->count == 0)
		status = why_set(why, 1, "%s holds no operation", s->traces[0]->path);
	if (status != 0)
		return status;
	s->fine = s->traces[0]->entries[0].record.fine;
	status = match_all(s, why);
	if (status == 0)
		ops_fill(s);
	if (status == 0)
		status = guards_mark(s, why);
	if (status == 0 && s->op_count == 0)
		status = why_set(why, 1, "no operation is in all workers' traces");
	return status;
}
