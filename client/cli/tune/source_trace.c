// SPDX-License-Identifier: BSD-3-Clause
/* source_trace.c - finds the files of a run in a folder of traces, and the operations that they share */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/tune/source.h"

static int is_trace(const struct dirent *entry)
{
	const char *dot = strrchr(entry->d_name, '.');

	return dot != NULL && strcmp(dot, ".trace") == 0;
}

/* Opens all traces in a folder. */
static int folder_open(struct source *s, const char *path, struct why *why)
{
	struct dirent **names = NULL;
	int count = scandir(path, &names, is_trace, alphasort), status = 0;

	if (count < 0)
		return why_set(why, 1, "cannot read %s: %s", path, strerror(errno));
	s->traces = cli_memory((size_t)count + 1, sizeof(struct trace_file *), "traces");
	if (count == 0)
		status = why_set(why, 1, "%s holds no trace: run the job with WINNOW_TRACE=%s",
		                 path, path);
	else if (count > SOURCE_FILES_MAX)
		status = why_set(why, 1, "%s holds more than %d traces", path, SOURCE_FILES_MAX);
	for (int i = 0; i < count; i++) {
		char file[4200];

		snprintf(file, sizeof(file), "%.3900s/%s", path, names[i]->d_name);
		free(names[i]);
		if (status != 0)
			continue;
		if (trace_file_open(file, &s->traces[i], why) != 0)
			status = why_set(why, 1, "cannot use %s: %s", file, why->text);
		else
			s->trace_count++;
	}
	free((void *)names);
	return status;
}

/* Chooses the job and its latest run. */
static int run_choose(struct source *s, const char *job, const struct trace_head **out,
                      struct why *why)
{
	const struct trace_head *best = NULL, *other = NULL;
	uint32_t older = 0;

	for (uint32_t i = 0; i < s->trace_count; i++) {
		const struct trace_head *head = &s->traces[i]->head;

		if (job != NULL && strcmp(head->job, job) != 0) {
			other = head;
			continue;
		}
		if (best != NULL && strcmp(best->job, head->job) != 0)
			return why_set(
				why, 2,
				"there are traces of the jobs %s and %s: give --job %s or --job %s",
				best->job, head->job, best->job, head->job);
		older += best != NULL && head->run != best->run;
		if (best == NULL || head->started_s > best->started_s)
			best = head;
	}
	if (best == NULL)
		return why_set(why, 1, "there is no trace of job %s; found: %s", job,
		               other != NULL ? other->job : "none");
	if (older > 0)
		snprintf(s->note, sizeof(s->note), "several runs of job %s: the latest is used",
		         best->job);
	*out = best;
	return 0;
}

/* Moves the run's traces to the front, in the order of ranks. */
static int files_order(struct source *s, const struct trace_head *run, struct why *why)
{
	for (uint32_t rank = 0; rank < s->world; rank++) {
		struct trace_file *file = NULL;

		for (uint32_t i = rank; i < s->trace_count; i++) {
			const struct trace_head *head = &s->traces[i]->head;

			if (head->run != run->run || head->rank != rank ||
			    strcmp(head->job, run->job) != 0)
				continue;
			if (head->world != run->world || head->payload != run->payload ||
			    head->channels != run->channels || file != NULL)
				return why_set(why, 1,
				               "%s does not match the other workers' traces",
				               s->traces[i]->path);
			file = s->traces[i];
			s->traces[i] = s->traces[rank];
			s->traces[rank] = file;
		}
		if (file == NULL)
			return why_set(why, 1, "the trace of worker %u of job %s is missing", rank,
			               run->job);
	}
	return 0;
}

/* ---- matching operations: by tag, and by order if a tag repeats ---- */

/* Sets s->entries[entry of rank 0][rank] to the matching entry of `rank`; UINT32_MAX stays where there is none. */
static void entries_match(struct source *s, uint32_t rank)
{
	const struct trace_file *a = s->traces[0], *b = s->traces[rank];

	for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
		const struct trace_record *x = &a->entries[i].record, *y = &b->entries[j].record;

		if (x->tag == y->tag && x->count == y->count && x->dtype == y->dtype &&
		    x->block == y->block && x->form == y->form && x->fine == y->fine &&
		    x->columns == y->columns && x->tile_rows == y->tile_rows)
			s->entries[(uint64_t)i * s->world + rank] = j;
		i += x->tag <= y->tag;
		j += y->tag <= x->tag;
	}
}

static void match_all(struct source *s)
{
	uint64_t count = s->traces[0]->count;

	s->entries = cli_memory(count * s->world, sizeof(*s->entries), "operations of all workers");
	s->ops = cli_memory(count, sizeof(*s->ops), "operations");
	memset(s->entries, 0xff, count * s->world * sizeof(*s->entries));
	for (uint32_t rank = 0; rank < s->world; rank++)
		entries_match(s, rank);
}

/* Keeps the operations that all workers have recorded. */
static void ops_fill(struct source *s)
{
	const struct trace_file *file = s->traces[0];

	if (file->cut && s->note[0] == '\0')
		snprintf(s->note, sizeof(s->note),
		         "the trace ends within a record: its process was killed, or its disk was "
		         "full");
	for (uint32_t i = 0; i < file->count; i++) {
		const struct trace_record *record = &file->entries[i].record;
		const uint32_t *entries = s->entries + (uint64_t)i * s->world;
		bool whole = record->fine == s->fine;

		for (uint32_t rank = 0; rank < s->world; rank++)
			whole = whole && entries[rank] != UINT32_MAX;
		if (!whole)
			continue;
		s->ops[s->op_count++] = (struct source_op){
			.count = record->count,
			.tag = record->tag,
			.dtype = (enum dtype)record->dtype,
			.form = record->form,
			.block = record->columns == 0 ? record->block : 0,
			.entries = entries,
		};
	}
	if (s->op_count < file->count && s->note[0] == '\0')
		snprintf(s->note, sizeof(s->note),
		         "%u of worker 0's %u operations are not in all workers' traces and are "
		         "left out",
		         file->count - s->op_count, file->count);
}

static void job_sum(struct source *s)
{
	for (uint32_t rank = 0; rank < s->world; rank++) {
		if (!s->traces[rank]->ended)
			return;
		s->job_sent += s->traces[rank]->end.sent_bytes;
		s->job_received += s->traces[rank]->end.received_bytes;
	}
	s->job = s->traces[0]->head.job;
	s->job_operations = s->traces[0]->end.operations;
	s->job_sent /= s->world;
	s->job_received /= s->world;
}

int source_trace(struct source *s, const char *folder, const char *job, uint32_t world,
                 struct why *why)
{
	const struct trace_head *run = NULL;
	int status;

	*s = (struct source){0};
	status = folder_open(s, folder, why);
	if (status == 0)
		status = run_choose(s, job, &run, why);
	if (status == 0 && world > run->world)
		status = why_set(why, 2, "--world is %u, but the traced job had %u workers", world,
		                 run->world);
	if (status == 0) {
		s->world = world != 0 ? world : run->world;
		status = files_order(s, run, why);
	}
	if (status == 0 && s->traces[0]->count == 0)
		status = why_set(why, 1, "%s holds no operation", s->traces[0]->path);
	if (status != 0)
		return status;
	s->fine = s->traces[0]->entries[0].record.fine;
	match_all(s);
	ops_fill(s);
	job_sum(s);
	return s->op_count > 0 ? 0 : why_set(why, 1, "no operation is in all workers' traces");
}
