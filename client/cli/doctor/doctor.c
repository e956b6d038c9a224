// SPDX-License-Identifier: BSD-3-Clause
/* doctor.c - winnow doctor: its options, the order of its checks, and its findings as text and JSON */

#include "client/cli/doctor/doctor_state.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bitmap/control/message.h"
#include "client/cli/cli.h"
#include "client/cli/table.h"
#include "client/comm/comm_options.h"

static struct doctor doctor;
static bool json;

static const struct option list[] = {
	{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &doctor.aggregators, NULL, NULL, 0, 0,
         "aggregators to test, with a job of one worker"},
	{"job", "NAME", OPTION_TEXT, &doctor.job, NULL, OPTION_ARGUMENT, 0, 0,
         "use the key of this job, and do not disturb the job"},
	{"device", "IFACE", OPTION_TEXT, &doctor.device, NULL, NULL, 0, 0,
         "network interface to check; by default each that is up"},
	{"json", NULL, OPTION_FLAG, &json, "0", NULL, 0, 0, "print one JSON object"},
	COMM_OPTIONS_KEY(doctor),
	{0},
};

static const struct option_group groups[] = {{"keys", "key-file", false}, {0}};

static const struct options options = {
	.program = "winnow doctor",
	.usage = "[--aggregators HOST:PORT] [--device IFACE] [...]",
	.about = "Checks this machine for causes of failures and low speed, and says how to remove "
		 "them. It changes\nnothing. Exit status: 0 if no check failed, 1 if one failed, "
		 "2 for wrong usage.",
	.examples = "  winnow doctor\n"
		    "  winnow doctor --aggregators 10.0.0.1:5555 --key-file keys --job train\n",
	.list = list,
	.groups = groups,
	.section = "doctor",
};

/* ---- findings ---- */

static json_t *checks; /* NULL if findings are printed at once. */
static uint32_t counts[DOCTOR_STATES];

/* In JSON, and in text. */
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

int cli_doctor(int argc, char **argv)
{
	int status = options_read(&options, argc, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	if (doctor.job != NULL &&
	    (!message_name_valid(doctor.job) || strchr(doctor.job, '/') != NULL))
		return cli_error(2, "--job is '%.80s': this cannot be the name of a job",
		                 doctor.job);
	checks = json ? json_array() : NULL;
	doctor_host(&doctor);
	doctor_path(&doctor);
	if (checks != NULL)
		cli_json_print(json_pack("{s:s, s:o}", "status",
		                         counts[DOCTOR_FAIL] > 0   ? "fail"
		                         : counts[DOCTOR_WARN] > 0 ? "warn"
		                                                   : "ok",
		                         "checks", checks),
		               JSON_INDENT(2));
	else
		printf("\n%u ok, %u to look at, %u failed; '-': absent, and needed only for some "
		       "uses\n",
		       counts[DOCTOR_OK], counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
	return cli_flush(1) != 0 || counts[DOCTOR_FAIL] > 0 ? 1 : 0;
}
