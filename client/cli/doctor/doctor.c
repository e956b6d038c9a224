// SPDX-License-Identifier: BSD-3-Clause
/* doctor.c - winnow doctor: its options, and the order of its checks */

#include "client/cli/doctor/doctor_state.h"

#include <string.h>

#include "bitmap/control/message.h"
#include "client/cli/cli.h"
#include "client/comm/comm_options.h"

static struct doctor doctor;
static bool json;

static const struct option list[] = {
	{"aggregators", "HOST:PORT[,..]", OPTION_TEXT, &doctor.aggregators, NULL, NULL, 0, 0,
         "try the path to these, with a job of one worker"},
	{"job", "NAME", OPTION_TEXT, &doctor.job, NULL, OPTION_ARGUMENT, 0, 0,
         "with the key of this job, as one of its memberships"},
	{"device", "IFACE", OPTION_TEXT, &doctor.device, NULL, NULL, 0, 0,
         "network interface to check; default: all that are up"},
	COMM_OPTIONS_KEY(doctor),
	{"json", NULL, OPTION_FLAG, &json, "0", NULL, 0, 0, "print one JSON object"},
	{0},
};

static const struct options options = {
	.program = "winnow doctor",
	.usage = "[--aggregators HOST:PORT] [--device IFACE] [...]",
	.about = "Looks for what makes Winnow slow or stops it on this machine, and says how to "
		 "mend it. It changes\nnothing. Exit status: 0 nothing has failed, 1 something "
		 "that is needed does not work, 2 wrong usage.",
	.examples = "  winnow doctor\n"
		    "  winnow doctor --aggregators 10.0.0.1:5555 --key-file /etc/winnow.key\n"
		    "  winnow doctor --aggregators 10.0.0.1:5555 --key-file keys --job train\n",
	.list = list,
	.section = "doctor",
};

int cli_doctor(int argc, char **argv)
{
	int status = options_read(&options, argc, argv);
	bool failed;

	if (status != 0)
		return status == 1 ? 0 : status;
	if (doctor.job != NULL &&
	    (!message_name_valid(doctor.job) || strchr(doctor.job, '/') != NULL))
		return cli_error(2, "'%.80s' is no job's name", doctor.job);
	doctor_begin(json);
	doctor_host(&doctor);
	doctor_path(&doctor);
	failed = doctor_end();
	return cli_flush(1) != 0 || failed ? 1 : 0;
}
