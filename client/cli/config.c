// SPDX-License-Identifier: BSD-3-Clause
/* config.c - winnow config dump: prints each option's value and its source, by means of options.c */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bitmap/control/options.h"
#include "client/cli/children.h"
#include "client/cli/cli.h"

static char dump_option[] = "--dump-config";

static void config_help(FILE *out)
{
	fprintf(out, "usage: winnow config dump [COMMAND [its options]]\n\n"
	             "Prints each option with its value and the source of that value: the command "
	             "line, an environment\nvariable, a file, or the default. COMMAND is bench, "
	             "tune, run, colocate, status, doctor or\nwinnowd; without it, the options "
	             "of all commands of winnow are printed. The output for winnowd\ncan be used "
	             "as a file for its --config. Keys are not shown.\n\n"
	             "examples:\n"
	             "  winnow config dump bench --size 1M\n"
	             "  winnow config dump winnowd --config /etc/winnow.ini\n");
}

/* winnowd prints its options itself, because their table is part of it. */
static int dump_winnowd(char **argv)
{
	static char path[4096];

	children_winnowd_path(path, sizeof(path));
	argv[0] = path;
	fflush(stdout);
	execvp(path, argv);
	return cli_error(1, "cannot run %s: %s", path, strerror(errno));
}

/* argv[1] is the command, followed by its options, or NULL for all commands. Overwrites argv[0] and argv[1]. */
static int config_dump(int argc, char **argv)
{
	const char *name = argv[1];
	bool any = false;
	int status = 0;

	argv[1] = dump_option;
	for (const struct command *c = cli_commands; c->name != NULL && status == 0; c++) {
		char text[16];

		if (!c->has_options || (name != NULL && strcmp(c->name, name) != 0))
			continue;
		if (any)
			printf("\n");
		any = true;
		snprintf(text, sizeof(text), "%s", c->name);
		argv[0] = text;
		status = c->run(argc > 1 ? argc : 2, argv);
	}
	if (any)
		return status;
	return strcmp(name, "winnowd") == 0
	               ? dump_winnowd(argv)
	               : cli_error(2, "no command '%s' that has options; see winnow config --help",
	                           name);
}

int cli_config(int argc, char **argv)
{
	if (argc > 1 && option_is_help(argv[1])) {
		config_help(stdout);
		return cli_flush(2);
	}
	if (argc < 2 || strcmp(argv[1], "dump") != 0)
		return cli_error(2, "only 'winnow config dump' exists; see winnow config --help");
	return config_dump(argc - 1, argv + 1);
}
