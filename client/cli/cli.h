/* SPDX-License-Identifier: BSD-3-Clause */
/* cli.h - the subcommands of winnow; one file each, one table in main.c */
#ifndef CLIENT_CLI_H
#define CLIENT_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names the subcommand for cli_error(). Also makes the process exit when JSON finds no memory. */
void cli_begin(const char *name);

/* Prints "winnow NAME: ..." on stderr and returns `status`. */
int cli_error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct winnow_config;

/* Makes the library report on stderr why a join waits and, with --debug info, how it has joined. */
void cli_tells(struct winnow_config *config);

/* Flushes stdout. Returns 0, or prints a line on stderr and returns `status` if that fails. */
int cli_flush(int status);

struct json_t;

/* Prints a line of JSON on stdout and frees it. `flags` are jansson's. */
void cli_json_print(struct json_t *json, size_t flags);

/* Allocate zeros, more room, and pages for a tensor. Without memory they end the process and name `what`. */
void *cli_memory(size_t count, size_t bytes, const char *what);
void *cli_memory_more(void *memory, size_t bytes, const char *what);
void *cli_tensor(uint64_t bytes);

/* Replaces the progress line on stderr if that is a terminal; "" clears the line. */
void cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns how many items option_item() finds in a list. An empty list has one item. */
uint32_t cli_item_count(const char *list);

/* Sorts `count` values in ascending order and returns their median; `count` is at least 1. */
double median(double values[], uint64_t count);

/* The choices of an option that names an element type, in the order of enum winnow_dtype. */
#define CLI_DTYPES                                                                                 \
	"f32,float32,float|f16,float16,half|bf16,bfloat16|f64,float64,double|i32,int32,int|i64,"   \
	"int64,long"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
	bool has_options; /* It has options, which winnow config dump shows. */
};
extern const struct command cli_commands[]; /* In main.c. The last has a NULL name. */

/* Each takes its own arguments, with its name in argv[0], and returns the exit status. */
int cli_bench(int argc, char **argv);
int cli_config(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_colocate(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_tune(int argc, char **argv);

#endif /* CLIENT_CLI_H */
