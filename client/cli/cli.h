/* SPDX-License-Identifier: BSD-3-Clause */
/* cli.h - the subcommands of winnow; one file each, one table in winnow.c */
#ifndef CLIENT_CLI_H
#define CLIENT_CLI_H

/* Each takes its own arguments, argv[0] being its name, and returns the exit status. */
int cli_bench(int argc, char **argv);
int cli_config(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_colocate(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_tune(int argc, char **argv);

#endif /* CLIENT_CLI_H */
