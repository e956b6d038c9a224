// SPDX-License-Identifier: BSD-3-Clause
/* status_ask.c - which aggregators to look at, and asking them all at once */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/control/options.h"
#include "client/cli/cli.h"
#include "client/cli/status/fetch.h"
#include "client/cli/status/status.h"

/* "a:1,b:2" */
static int list_read(const char *list, struct status_targets *out)
{
	for (const char *at = list; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		size_t length = strcspn(at, ",");
		const char *colon = memchr(at, ':', length);
		struct status_target *target = &out->list[out->count];
		unsigned long port = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;

		if (colon == NULL || colon == at || port == 0 || port > 65535 ||
		    strspn(colon + 1, "0123456789") != (size_t)(at + length - colon - 1) ||
		    length >= sizeof(target->address))
			return cli_error(2,
			                 "'%.*s' is not HOST:PORT: give the address of winnowd's "
			                 "--metrics, such as " METRICS_DEFAULT,
			                 length < 100 ? (int)length : 100, at);
		if (out->count == STATUS_TARGETS_MAX)
			return cli_error(2, "more than %d aggregators", STATUS_TARGETS_MAX);
		memcpy(target->address, at, length);
		target->address[length] = '\0';
		out->count++;
	}
	return 0;
}

int status_targets_read(const char *const operands[], uint32_t count, const char *fallback,
                        struct status_targets *out)
{
	int status = 0;

	if (fallback != NULL && strcmp(fallback, "auto") == 0) /* as winnowd's variable may say */
		fallback = METRICS_DEFAULT;
	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < count && status == 0; i++)
		status = list_read(operands[i], out);
	if (count == 0)
		status = list_read(fallback, out);
	return status;
}

static void take_answer(struct status_target *target, const struct fetch *fetch, double late_s)
{
	report_free(target->earlier);
	target->earlier = target->report;
	target->report = NULL;
	target->problem_count = 0;
	target->health = STATUS_UNREACHABLE;
	target->owner = fetch->owner;
	if (fetch->body == NULL) {
		text_safe(target->why.text, sizeof(target->why.text), fetch->why.text);
		return;
	}
	if (report_parse(fetch->body, fetch->bytes, &target->report, &target->why) != 0)
		return;
	target->problem_count = report_judge(target->report, late_s, target->problems);
	target->health = target->problem_count > 0 ? STATUS_DEGRADED : STATUS_HEALTHY;
}

enum status_health status_ask(struct status_targets *targets, uint64_t timeout_us, double late_s,
                              bool (*stop)(void))
{
	enum status_health worst = STATUS_HEALTHY;
	struct fetch fetches[STATUS_TARGETS_MAX];

	for (uint32_t i = 0; i < targets->count; i++)
		fetches[i].address = targets->list[i].address;
	fetch_all(fetches, targets->count, "/status", timeout_us, stop);
	for (uint32_t i = 0; i < targets->count; i++) {
		take_answer(&targets->list[i], &fetches[i], late_s);
		free(fetches[i].body);
		if (targets->list[i].health > worst)
			worst = targets->list[i].health;
	}
	return worst;
}

void status_targets_free(struct status_targets *targets)
{
	for (uint32_t i = 0; i < targets->count; i++) {
		report_free(targets->list[i].report);
		report_free(targets->list[i].earlier);
	}
}

const char *status_health_name(enum status_health health)
{
	static const char *const names[] = {"healthy", "degraded", "unreachable"};

	return names[health];
}
