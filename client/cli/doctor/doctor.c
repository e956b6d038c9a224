// SPDX-License-Identifier: BSD-3-Clause
/* doctor.c - winnow doctor: what this machine has and lacks, and how to mend it */

#include "client/cli/doctor/doctor.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/table.h"
#include "client/comm/comm_options.h"

static struct doctor doctor;
static bool json;

static const struct option list[] = {
	{"aggregator", "HOST:PORT[,..]", OPTION_TEXT, &doctor.aggregators, NULL,
         "WINNOW_AGGREGATORS", 0, 0, "try the path to these, with a job of one worker"},
	{"device", "IFACE", OPTION_TEXT, &doctor.device, NULL, NULL, 0, 0,
         "network interface to check; default: all that are up"},
	COMM_OPTIONS_KEY(doctor),
	{"python", "PROGRAM", OPTION_TEXT, &doctor.python, NULL, NULL, 0, 0,
         "that imports torch; default: VIRTUAL_ENV's, else python3; no: leave it out"},
	{"json", NULL, OPTION_FLAG, &json, "0", NULL, 0, 0, "print one JSON object"},
	{0},
};

static const struct options options = {
	.program = "winnow doctor",
	.usage = "[--aggregator HOST:PORT] [--device IFACE] [...]",
	.about = "Looks for what makes Winnow slow or stops it on this machine, and says how to "
		 "mend it. It changes\nnothing. Exit status: 0 nothing has failed, 1 something "
		 "that is needed does not work, 2 wrong usage.",
	.examples = "  winnow doctor\n"
		    "  winnow doctor --aggregator 10.0.0.1:5555 --key-file /etc/winnow.key\n",
	.list = list,
	.section = "doctor",
};

struct doctor_check *doctor_add(struct doctor *to, enum doctor_state state, const char *name,
                                const char *format, ...)
{
	struct doctor_check *check =
		&to->checks[to->count < DOCTOR_CHECKS_MAX - 1 ? to->count++ : to->count];
	char text[sizeof(check->text)];
	va_list args;

	*check = (struct doctor_check){.state = state};
	text_safe(check->name, sizeof(check->name), name);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_safe(check->text, sizeof(check->text), text);
	return check;
}

void doctor_fix(struct doctor_check *check, const char *format, ...)
{
	char text[sizeof(check->fix)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_safe(check->fix, sizeof(check->fix), text);
}

bool doctor_read(const char *path, char *text, size_t room)
{
	FILE *file = fopen(path, "re");
	bool read;

	if (file == NULL)
		return false;
	read = fgets(text, (int)room, file) != NULL;
	fclose(file);
	if (read)
		text[strcspn(text, "\n")] = '\0';
	return read;
}

static const char *state_name(enum doctor_state state)
{
	static const char *const names[] = {"ok", "-", "warn", "FAIL"};

	return names[state];
}

static uint32_t count_of(enum doctor_state state)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < doctor.count; i++)
		count += doctor.checks[i].state == state;
	return count;
}

static void print_text(void)
{
	for (uint32_t i = 0; i < doctor.count; i++) {
		const struct doctor_check *check = &doctor.checks[i];

		printf("%-5s %-16s %s\n", state_name(check->state), check->name, check->text);
		if (*check->fix != '\0')
			printf("%22s > %s\n", "", check->fix);
	}
	printf("\n%u ok, %u to look at, %u failed; '-': not here, and only some need it\n",
	       count_of(DOCTOR_OK), count_of(DOCTOR_WARN), count_of(DOCTOR_FAIL));
}

static void print_json(void)
{
	static const char *const names[] = {"ok", "absent", "warn", "fail"};
	json_t *checks = json_array(), *root;

	for (uint32_t i = 0; i < doctor.count; i++) {
		const struct doctor_check *check = &doctor.checks[i];

		json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s}", "name", check->name,
		                                        "state", names[check->state], "text",
		                                        check->text, "fix", check->fix));
	}
	root = json_pack("{s:s, s:o}", "status",
	                 count_of(DOCTOR_FAIL) > 0   ? "fail"
	                 : count_of(DOCTOR_WARN) > 0 ? "warn"
	                                             : "ok",
	                 "checks", checks);
	json_dumpf(root, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(root);
}

int cli_doctor(int argc, char **argv)
{
	int status = options_read(&options, argc, argv);

	if (status != 0)
		return status == 1 ? 0 : status;
	doctor_host(&doctor);
	doctor_net(&doctor);
	doctor_path(&doctor);
	doctor_soft(&doctor);
	if (json)
		print_json();
	else
		print_text();
	return cli_flush(1) != 0 || count_of(DOCTOR_FAIL) > 0 ? 1 : 0;
}
