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
#define CHILDREN_WINNOWDS_MAX 65
#define CHILDREN_OPTIONS_MAX 4

/* These stand for a descriptor that a child gets: our own one, or /dev/null. */
#define CHILD_OURS (-1)
#define CHILD_NOTHING (-2)

struct children {
	/* Set by the caller. */
	bool grouped; /* Each worker leads a process group, so that its children end with it. */
	uint64_t linger_ms;   /* After a worker fails, the others have this long to report why. */
	uint64_t patience_ms; /* How long workers may take to end before SIGKILL; 0: forever. */
	/* Set by children_*(). */
	uint32_t count;                        /* Workers started. */
	uint32_t running;                      /* Workers still running. */
	uint32_t winnowd_count;                /* Winnowds started. */
	uint32_t winnowds_running;             /* Winnowds still running. */
	pid_t winnowds[CHILDREN_WINNOWDS_MAX]; /* Their process ids; 0 for one that has ended. */
	pid_t pids[CHILDREN_MAX]; /* The workers' process ids; 0 for one that has ended. */
	bool ending;              /* The workers have been told to end. */
	int status;               /* The exit status of the first worker that failed. */
};

/* Starts one more worker. `files` are its stdin, stdout and stderr. Returns false and sets errno if it cannot. */
bool children_worker(struct children *c, char *const argv[], const int files[3]);

/*
 * Starts one more winnowd with the arguments from argv[1] on; fills in argv[0]. Returns false and sets errno if it
 * cannot.
 */
bool children_winnowd(struct children *c, char *argv[], const int files[3]);

/*
 * Gives a job on this machine a key, because every user here can reach its loopback. The key is that of `config`, or a
 * new one that is stored there, or none with insecure_no_key. Sets it in our environment, where winnowd and workers
 * find it and other users do not. Returns 0, or an exit status after a line on stderr.
 */
int children_key(struct winnow_config *config);

/*
 * Starts winnowd for workers on this machine, with the key of children_key(). It prints nothing unless it fails, and
 * listens on `address`, a free port on loopback that this function chooses. `more` has up to
 * CHILDREN_OPTIONS_MAX further options, then NULL.
 */
bool children_winnowd_local(struct children *c, char *const more[], char address[32]);

/*
 * Lets start() start winnowd and workers, then runs libuv's default loop until all have ended. Ends the others when
 * start() fails (errno), a worker fails, a winnowd ends, or a signal comes. Grouped workers get that signal each time it
 * comes. Passes SIGUSR1 and SIGUSR2 on to the workers, which continue. Tells the winnowds to end when all workers
 * have ended. Returns the exit status of the first worker that failed, or 128 plus the signal that ended it.
 */
int children_run(struct children *c, bool (*start)(void *context), void *context);

/* Sets RANK and its companions for worker `place` of `each` on host `host` of `hosts`. */
void children_environment(uint32_t hosts, uint32_t host, uint32_t each, uint32_t place);

/* Writes the path of winnowd beside this program, or only its name to be found in the PATH. */
void children_winnowd_path(char *path, size_t room);

/* Writes "127.0.0.1:PORT" with a port that is free at the moment, another one in each call. False: there is none. */
bool children_free_address(char address[32]);

#endif /* CLIENT_CLI_CHILDREN_H */
