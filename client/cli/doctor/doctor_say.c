// SPDX-License-Identifier: BSD-3-Clause
/* doctor_say.c - what winnow doctor has found, as text and JSON */

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "client/cli/doctor/doctor_state.h"
#include "client/cli/table.h"

static json_t *checks; /* NULL: findings are printed as they come */
static uint32_t counts[DOCTOR_STATES];

/* As JSON has them, and as people see them. */
static const char *const state_names[][2] = {
	{"ok", "ok"}, {"absent", "-"}, {"warn", "warn"}, {"fail", "FAIL"}};

void doctor_say(enum doctor_state state, const char *name, const char *fix, const char *format, ...)
{
	char text[512], safe_name[40], safe_fix[320];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_safe(text, sizeof(text), text);
	text_safe(safe_name, sizeof(safe_name), name);
	text_safe(safe_fix, sizeof(safe_fix), fix != NULL && state != DOCTOR_OK ? fix : "");
	counts[state]++;
	if (checks != NULL) {
		json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s}", "name", safe_name,
		                                        "state", state_names[state][0], "text",
		                                        text, "fix", safe_fix));
		return;
	}
	printf("%-5s %-16s %s\n", state_names[state][1], safe_name, text);
	if (safe_fix[0] != '\0')
		printf("%22s > %s\n", "", safe_fix);
}

static void print_json(void)
{
	json_t *root = json_pack("{s:s, s:o}", "status",
	                         counts[DOCTOR_FAIL] > 0   ? "fail"
	                         : counts[DOCTOR_WARN] > 0 ? "warn"
	                                                   : "ok",
	                         "checks", checks);

	json_dumpf(root, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(root);
}

void doctor_begin(bool json)
{
	checks = json ? json_array() : NULL;
}

bool doctor_end(void)
{
	if (checks != NULL)
		print_json();
	else
		printf("\n%u ok, %u to look at, %u failed; '-': not here, and only some need it\n",
		       counts[DOCTOR_OK], counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
	return counts[DOCTOR_FAIL] > 0;
}
