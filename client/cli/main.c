// SPDX-License-Identifier: BSD-3-Clause
/* main.c - the command: picks a subcommand */

#include <stdio.h>
#include <string.h>

#include "bitmap/control/options.h"
#include "client/cli/cli.h"
#include "client/winnow.h"

const struct command cli_commands[] = {
	{"bench", cli_bench, "measure allreduce, with --local on this machine alone", true},
	{"colocate", cli_colocate, "run a job with an aggregator on each of its hosts", true},
	{"tune", cli_tune, "find the best block size for gradients", true},
	{"status", cli_status, "show the state of aggregators and their jobs", true},
	{"doctor", cli_doctor, "check this machine and the path to aggregators", true},
	{"config", cli_config, "print options, their values and their sources", false},
	{"run", cli_run, "run a job's workers on this machine", true},
	{"key", cli_key, "print a new job key", false},
	{NULL, NULL, NULL, false},
};

static void help(FILE *out)
{
	fprintf(out, "usage: winnow COMMAND [options]; winnow COMMAND --help\n\ncommands:\n");
	for (const struct command *c = cli_commands; c->name != NULL; c++)
		fprintf(out, "  %-8s %s\n", c->name, c->help);
	fprintf(out, "\nexamples:\n"
	             "  winnow bench --local 4 --size 100M --density 0.1\n"
	             "  winnow run -n 4 python3 train.py\n");
}

int main(int argc, char **argv)
{
	const char *hint = NULL;

	if (argc < 2) {
		help(stderr);
		return 2;
	}
	if (option_is_help(argv[1]) || strcmp(argv[1], "help") == 0) {
		help(stdout);
		return cli_flush(2);
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("winnow %s\n", winnow_version());
		return cli_flush(2);
	}
	for (const struct command *c = cli_commands; c->name != NULL; c++)
		if (strcmp(c->name, argv[1]) == 0) {
			cli_begin(c->name);
			return c->run(argc - 1, argv + 1);
		}
	for (const struct command *c = cli_commands; c->name != NULL; c++)
		hint = option_nearer(argv[1], hint, c->name);
	return cli_error(2,
	                 hint != NULL ? "no command '%s'; did you mean winnow %s?"
	                              : "no command '%s'; see winnow --help",
	                 argv[1], hint);
}
