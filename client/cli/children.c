// SPDX-License-Identifier: BSD-3-Clause
/* children.c - see children.h */

#include "client/cli/children.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "bitmap/control/job_keys.h"
#include "client/cli/cli.h"
#include "client/winnow.h"

#define PORT_FIRST 10000
#define PORT_TRIES 100

/*
 * The signals that we watch. Batch systems announce a preemption with the last two. These do not end the job: a worker
 * that handles the signal saves its state, and then ends or continues.
 */
static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
#define SIGNALS (sizeof(numbers) / sizeof(numbers[0]))

/* ---- starting ---- */

static void files_set(const int files[3])
{
	for (int i = 0; i < 3; i++) {
		int file = files[i] == CHILD_NOTHING ? open("/dev/null", O_RDWR | O_CLOEXEC)
		                                     : files[i];

		if (files[i] != CHILD_OURS && dup2(file, i) < 0)
			_exit(1);
	}
}

static pid_t child_start(const struct children *c, char *const argv[], const int files[3])
{
	pid_t parent = getpid(), child;
	sigset_t all, before;
	bool missing;

	fflush(stdout);
	/* Our signal handlers must not run in the child before it starts its own program. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	child = fork();
	if (child != 0)
		sigprocmask(SIG_SETMASK, &before, NULL);
	if (child > 0 && c->grouped)
		setpgid(child, child); /* Both set it, so that neither waits. */
	if (child != 0)
		return child;
	if (c->grouped)
		setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	files_set(files);
	for (size_t i = 0; i < SIGNALS; i++)
		signal(numbers[i], SIG_DFL);
	sigemptyset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	execvp(argv[0], argv);
	missing = errno == ENOENT;
	cli_error(1, "cannot run %s: %s", argv[0], strerror(errno));
	_exit(missing ? 127 : 126);
}

bool children_worker(struct children *c, char *const argv[], const int files[3])
{
	pid_t child = child_start(c, argv, files);

	if (child < 0)
		return false;
	c->pids[c->count++] = child;
	c->running++;
	return true;
}

bool children_winnowd(struct children *c, char *argv[], const int files[3])
{
	char path[4096];
	pid_t child;

	children_winnowd_path(path, sizeof(path));
	argv[0] = path;
	child = child_start(c, argv, files);
	if (child < 0)
		return false;
	c->winnowds[c->winnowd_count++] = child;
	c->winnowds_running++;
	return true;
}

static bool variable_set(const char *name, const char *value)
{
	return (value != NULL ? setenv(name, value, 1) : unsetenv(name)) == 0;
}

int children_key(struct winnow_config *config)
{
	static char drawn[JOB_KEY_TEXT_BYTES];

	if (config->insecure_no_key && (config->key_file != NULL || config->key != NULL))
		return cli_error(2, "--insecure-no-key (WINNOW_INSECURE_NO_KEY) contradicts a key: "
		                    "give one of them");
	if (config->key_file != NULL && config->key != NULL)
		return cli_error(2, "there is a key, and a key file (%.100s): give one of them",
		                 config->key_file);
	if (!config->insecure_no_key && config->key_file == NULL && config->key == NULL) {
		job_key_draw(drawn);
		config->key = drawn;
	}
	if (variable_set("WINNOW_KEY", config->key) &&
	    variable_set("WINNOW_KEY_FILE", config->key_file) &&
	    variable_set("WINNOW_INSECURE_NO_KEY", config->insecure_no_key ? "1" : NULL))
		return 0;
	return cli_error(1, "out of memory");
}

bool children_winnowd_local(struct children *c, char *const more[], char address[32])
{
	char listen[] = "--listen", metrics[] = "--metrics=no", log[] = "--log=error";
	/* A file of options (WINNOW_CONFIG) that winnowd reads must not let anyone join. */
	char keyed[] = "--insecure-no-key=no", keyless[] = "--insecure-no-key";
	char *key = secure_getenv("WINNOW_INSECURE_NO_KEY") != NULL ? keyless : keyed;
	char *argv[6 + CHILDREN_OPTIONS_MAX + 1] = {NULL, listen, address, key, metrics, log};

	if (!children_free_address(address))
		return false;
	for (uint32_t i = 0; i < CHILDREN_OPTIONS_MAX && more[i] != NULL; i++)
		argv[6 + i] = more[i];
	return children_winnowd(c, argv, (const int[]){CHILD_OURS, CHILD_NOTHING, CHILD_OURS});
}

static void set_number(const char *name, uint32_t value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	setenv(name, text, 1);
}

void children_environment(uint32_t hosts, uint32_t host, uint32_t each, uint32_t place)
{
	set_number("WORLD_SIZE", hosts * each);
	set_number("LOCAL_WORLD_SIZE", each);
	set_number("GROUP_RANK", host);
	set_number("RANK", host * each + place);
	set_number("LOCAL_RANK", place);
}

void children_winnowd_path(char *path, size_t room)
{
	ssize_t length = readlink("/proc/self/exe", path, room - 16);
	char *slash;

	path[length > 0 ? length : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash != NULL) {
		strcpy(slash + 1, "winnowd");
		if (access(path, X_OK) == 0)
			return;
	}
	strcpy(path, "winnowd");
}

/* Tries to bind `port`, or any port if it is 0, and writes "127.0.0.1:PORT". */
static bool port_is_free(uint16_t port, char address[32])
{
	struct sockaddr_in at = {.sin_family = AF_INET,
	                         .sin_port = htons(port),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool found = fd >= 0 && bind(fd, (const struct sockaddr *)&at, size) == 0 &&
	             getsockname(fd, (struct sockaddr *)&at, &size) == 0;

	if (fd >= 0)
		close(fd);
	snprintf(address, 32, "127.0.0.1:%u", ntohs(at.sin_port));
	return found;
}

/*
 * Workers bind the port seconds later, after they have imported PyTorch. By then the kernel may have given a port of
 * its ephemeral range to some connection, so ports below that range are tried first.
 */
bool children_free_address(char address[32])
{
	FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
	unsigned end = 32768;
	static uint16_t
		drawn; /* Counts up, because a child may take its port only after the next call. */

	if (file != NULL) {
		(void)!fscanf(file, "%u", &end);
		fclose(file);
	}
	if (drawn == 0)
		(void)!getrandom(&drawn, sizeof(drawn), 0);
	for (uint32_t tries = 0; tries < PORT_TRIES && end > PORT_FIRST; tries++)
		if (port_is_free((uint16_t)(PORT_FIRST + drawn++ % (end - PORT_FIRST)), address))
			return true;
	return port_is_free(0, address);
}

/* ---- ending ---- */

/* SIGTERM makes a winnowd drain: workers on other hosts may still fetch results that they missed. */
static void winnowds_end(const struct children *c)
{
	for (uint32_t i = 0; i < c->winnowd_count; i++)
		if (c->winnowds[i] > 0)
			kill(c->winnowds[i], SIGTERM);
}

/* Signals all running workers and, if they are grouped, also their children. */
static void children_signal(const struct children *c, int number)
{
	for (uint32_t i = 0; i < c->count; i++)
		if (c->pids[i] > 0)
			kill(c->grouped ? -c->pids[i] : c->pids[i], number);
}

static uv_signal_t signals[SIGNALS];
static uv_timer_t patience;

static void on_patience(uv_timer_t *timer)
{
	children_signal(timer->data, SIGKILL);
}

/* Workers get the signal that we got: Python turns SIGINT into KeyboardInterrupt, but dies of SIGTERM. */
static void end_by(struct children *c, int status, int number)
{
	if (c->status == 0)
		c->status = status;
	children_signal(c, number);
	if (!c->ending && c->patience_ms != 0)
		uv_timer_start(&patience, on_patience, c->patience_ms, 0);
	c->ending = true;
}

static void children_end(struct children *c, int status)
{
	if (!c->ending)
		end_by(c, status, SIGTERM);
}

static void on_linger(uv_timer_t *timer)
{
	children_end(timer->data, 1);
}

static void worker_ended(struct children *c, uint32_t number, int how)
{
	int status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
	bool lingers = c->linger_ms > 0 && !WIFSIGNALED(how);

	if (c->grouped)
		kill(-c->pids[number], SIGKILL); /* End the processes that it has left behind. */
	c->pids[number] = 0;
	c->running--;
	if (how == 0 || c->ending)
		return;
	if (lingers) {
		c->status = c->status == 0 ? status : c->status;
		uv_timer_start(&patience, on_linger, c->linger_ms, 0);
		return;
	}
	cli_error(1, "worker %u %s %d; the other workers are being ended", number,
	          WIFSIGNALED(how) ? "was killed by signal" : "failed with exit status",
	          WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
	children_end(c, status);
}

static void winnowd_ended(struct children *c, uint32_t number, int how)
{
	c->winnowds[number] = 0;
	c->winnowds_running--;
	if (c->running == 0 || c->ending)
		return;
	cli_error(1, "this host's winnowd ended with status %d, so the workers are being ended",
	          WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how));
	children_end(c, 1);
}

/* We may have children that we did not start: those of a shell that replaced itself with us. */
static void children_reap(struct children *c)
{
	uint32_t before = c->running;
	pid_t pid;
	int how;

	while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
		for (uint32_t i = 0; i < c->winnowd_count; i++)
			if (c->winnowds[i] == pid)
				winnowd_ended(c, i, how);
		for (uint32_t i = 0; i < c->count; i++)
			if (c->pids[i] == pid)
				worker_ended(c, i, how);
	}
	if (before > 0 && c->running == 0)
		winnowds_end(c);
	if (c->running == 0 && c->winnowds_running == 0)
		uv_stop(uv_default_loop());
}

static void on_signal(uv_signal_t *signal, int number)
{
	struct children *c = signal->data;

	if (number == SIGCHLD) {
		children_reap(c);
		return;
	}
	if (number == SIGUSR1 || number == SIGUSR2) {
		children_signal(c, number);
		return;
	}
	if (c->grouped)
		end_by(c, 128 + number, number);
	else /* A terminal has signalled them itself. */
		children_end(c, 128 + number);
	if (c->running == 0)
		winnowds_end(c); /* A second SIGTERM ends a winnowd that is draining. */
}

/* Tells whether there are enough descriptors for libuv's default loop. */
static bool loop_fits(void)
{
	int ends[3][2], count = 0;

	/* libuv opens as many, and aborts the process if it cannot. */
	while (count < 3 && pipe2(ends[count], O_CLOEXEC) == 0)
		count++;
	for (int i = 0; i < count; i++) {
		close(ends[i][0]);
		close(ends[i][1]);
	}
	return count == 3;
}

/* Called before the first child starts. Returns false if descriptors are short. */
static bool signals_watch(struct children *c)
{
	if (!loop_fits())
		return false;
	for (size_t i = 0; i < SIGNALS; i++) {
		if (uv_signal_init(uv_default_loop(), &signals[i]) != 0)
			return false;
		signals[i].data = c;
		uv_signal_start(&signals[i], on_signal, numbers[i]);
	}
	uv_timer_init(uv_default_loop(), &patience);
	patience.data = c;
	return true;
}

int children_run(struct children *c, bool (*start)(void *context), void *context)
{
	if (!signals_watch(c))
		return cli_error(
			1,
			"cannot start processes: the limit of open files is too low (ulimit -n)");
	if (!start(context)) {
		cli_error(1, "cannot start processes: %s", strerror(errno));
		children_end(c, 1);
	}
	if (c->running == 0)
		winnowds_end(c);
	if (c->running > 0 || c->winnowds_running > 0)
		uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	uv_timer_stop(&patience);
	for (size_t i = 0; i < SIGNALS; i++)
		uv_signal_stop(&signals[i]);
	/* These signals are meant for workers, which have all ended. */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	return c->status;
}
