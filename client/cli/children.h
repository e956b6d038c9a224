/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * children.h - winnowd and workers as children on this machine: for winnow run, colocate and bench
 *
 * When we end, for whatever reason, the kernel ends the children. One thread.
 */
#ifndef CLIENT_CLI_CHILDREN_H
#define CLIENT_CLI_CHILDREN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct winnow_config;

#define CHILDREN_MAX 512

/* What a child gets as stdin, stdout or stderr instead of a descriptor. */
#define CHILD_OURS (-1)
#define CHILD_NOTHING (-2)

struct children {
	bool grouped;       /* each leads a process group, so that what it starts ends with it */
	uint64_t linger_ms; /* workers say why they fail, and others have this long to do so too */
	uint64_t patience_ms;    /* from when workers are told to end to SIGKILL; 0: no end to it */
	uint32_t count, running; /* workers: started, and still running */
	pid_t winnowd;           /* 0: none */
	pid_t pids[CHILDREN_MAX]; /* workers; 0: ended */
	bool ending;              /* they have been told to */
	int status;               /* of the first that failed */
};

/* Start one more worker. `files` are its stdin, stdout and stderr. False: errno. */
bool children_worker(struct children *c, char *const argv[], const int files[3]);

/* Start winnowd, with argv[1] and so on; argv[0] is filled in. False: errno. */
bool children_winnowd(struct children *c, char *argv[], const int files[3]);

/*
 * children_key - every user of this machine reaches its loopback, so a job of this machine alone has a
 * key: that of `config`, or a new one, which is then in `config`; insecure_no_key leaves it without. Our
 * environment says so from now on, where winnowd and workers find it and other users do not. 0, or an
 * exit status, said on stderr.
 */
int children_key(struct winnow_config *config);

/*
 * Starts one for workers on this machine, with the key of children_key(), and silent unless it fails. It
 * listens on `address`, a free port on loopback. `threads` NULL: its default.
 */
bool children_winnowd_local(struct children *c, const char *threads, char address[32]);

/*
 * children_run - has start() start winnowd and workers, and waits until all have ended, with libuv's default loop
 * running, which gets our signals. Where start() fails (errno), the first worker fails, winnowd ends, or a signal comes,
 * the others are ended; grouped ones get that signal, each time it comes. SIGUSR1 and SIGUSR2 are passed on and end
 * nobody. winnowd is told to end when all workers have.
 * Returns the exit status: that of the first that failed, and 128 and the signal if it was one.
 */
int children_run(struct children *c, bool (*start)(void *context), void *context);

/* RANK and the other variables of worker `place` of `each` on host `host` of `hosts`. */
void children_environment(uint32_t hosts, uint32_t host, uint32_t each, uint32_t place);

/* The path of winnowd beside this program, or else its name, for the PATH. */
void children_winnowd_path(char *path, size_t room);

/* A port that is free now, on loopback, into "127.0.0.1:PORT". False: none. */
bool children_free_address(char address[32]);

#endif /* CLIENT_CLI_CHILDREN_H */
