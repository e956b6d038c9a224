// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_report.c - /status from strangers: answers of two addresses, parsed, judged and shown
 *
 * A zero byte parts the first answer from the second.
 */

#include "client/cli/status/status.h"
#include "tests/fuzz/fuzz.h"

static json_t *parse(const uint8_t *data, size_t bytes)
{
	char *text = malloc(bytes + 1);
	struct why why;
	json_t *report;

	assert(text != NULL);
	memcpy(text, data, bytes);
	text[bytes] = '\0';
	report = report_parse(text, bytes, &why);
	assert(report != NULL || strlen(why.text) > 0);
	free(text);
	return report;
}

/* Whatever a stranger says, a terminal obeys none of it. */
static void show(const struct status_targets *targets)
{
	const struct status_view view = {.workers = true};
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert(out != NULL);
	status_show(targets, &view, out);
	fclose(out);
	for (size_t i = 0; i < bytes; i++)
		assert(text[i] == '\n' || (text[i] >= ' ' && text[i] <= '~'));
	free(text);
}

static void answer(struct status_target *target, const uint8_t *data, size_t bytes)
{
	*target = (struct status_target){.address = "a:1", .health = STATUS_UNREACHABLE};
	target->report = parse(data, bytes);
	if (target->report == NULL)
		return;
	target->problems = json_array();
	report_judge(target->report, 5, target->problems);
	assert(json_array_size(target->problems) <= REPORT_PROBLEMS_MAX);
	target->health = json_array_size(target->problems) > 0 ? STATUS_DEGRADED : STATUS_HEALTHY;
}

/* What one aggregator says or, behind a zero byte, another one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct status_targets targets;
	const uint8_t *end = bytes > 0 ? memchr(data, '\0', bytes) : NULL;
	size_t first = end != NULL ? (size_t)(end - data) : bytes;

	targets.count = end != NULL ? 2 : 1;
	answer(&targets.list[0], data, first);
	if (end != NULL)
		answer(&targets.list[1], end + 1, bytes - first - 1);
	show(&targets);
	status_targets_free(&targets);
	return 0;
}
