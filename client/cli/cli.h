/* SPDX-License-Identifier: BSD-3-Clause */
/* cli.h - the subcommands of winnow; one file each, one table in main.c */
#ifndef CLIENT_CLI_H
#define CLIENT_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From now on cli_error() speaks for this subcommand, which ends where there is no memory for JSON. */
void cli_begin(const char *name);

/* A line on stderr, "winnow NAME: ...". Returns `status`. */
int cli_error(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct winnow_config;

/* From now on those who join with this are told on stderr why they wait; and, with --debug info, what they have joined. */
void cli_tells(struct winnow_config *config);

/* 0; or, when what was printed cannot be written, `status` and a line on stderr. */
int cli_flush(int status);

struct json_t;

/* A line of JSON on stdout; `flags`: jansson's. Frees it. */
void cli_json_print(struct json_t *json, size_t flags);

/* Zeros, more room, and pages for a tensor. Without memory the command ends, and says for what. */
void *cli_memory(size_t count, size_t bytes, const char *what);
void *cli_memory_more(void *memory, size_t bytes, const char *what);
void *cli_tensor(uint64_t bytes);

/* What is being done, on stderr if that is a terminal, in the place of what was there; "" clears it. */
void cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* How many items option_item() finds; 1 of "". */
uint32_t cli_item_count(const char *list);

/* The median of `count` values, 1 at least. Afterwards they are in ascending order. */
double median(double values[], uint64_t count);

/* The value of an option that names an element type; the first is WINNOW_F32. */
#define CLI_DTYPES                                                                                 \
	"f32,float32,float|f16,float16,half|bf16,bfloat16|f64,float64,double|i32,int32,int|i64,"   \
	"int64,long"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
	bool has_options; /* a table of them, which winnow config dump shows */
};
extern const struct command cli_commands[]; /* in main.c; ends with a NULL name */

/* Each takes its own arguments, argv[0] being its name, and returns the exit status. */
int cli_bench(int argc, char **argv);
int cli_config(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_colocate(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_tune(int argc, char **argv);

#endif /* CLIENT_CLI_H */
