// SPDX-License-Identifier: BSD-3-Clause
/*
 * fuzz_report.c - /status from strangers: two answers of one address, parsed, judged and shown
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

/* Whatever a stranger says, a terminal obeys none of it, and no line is wider than the window. */
static void show(const struct status_targets *targets, bool rates, uint32_t width)
{
	struct status_view view = {.rates = rates, .workers = true, .width = width};
	char *text = NULL;
	size_t bytes, line = 0;
	FILE *out = open_memstream(&text, &bytes);

	assert(out != NULL);
	status_show(targets, &view, out);
	fclose(out);
	for (size_t i = 0; i < bytes; i++) {
		assert(text[i] == '\n' || (text[i] >= ' ' && text[i] <= '~'));
		line = text[i] == '\n' ? 0 : line + 1;
		assert(width == 0 || line <= width);
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct status_targets targets;
	struct status_target *target = &targets.list[0];
	const uint8_t *end = bytes > 0 ? memchr(data, '\0', bytes) : NULL;
	size_t first = end != NULL ? (size_t)(end - data) : bytes;

	targets.count = 1;
	*target = (struct status_target){.address = "a:1", .health = STATUS_UNREACHABLE};
	target->report = parse(data, first);
	if (end != NULL)
		target->earlier = parse(end + 1, bytes - first - 1);
	if (target->report != NULL) {
		target->problems = json_array();
		report_judge(target->report, 5, target->problems);
		assert(json_array_size(target->problems) <= REPORT_PROBLEMS_MAX);
		target->health =
			json_array_size(target->problems) > 0 ? STATUS_DEGRADED : STATUS_HEALTHY;
	}
	show(&targets, false, 0);
	show(&targets, true, 20);
	status_targets_free(&targets);
	return 0;
}
