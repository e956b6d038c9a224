// SPDX-License-Identifier: BSD-3-Clause
/* doctor_soft.c - what training brings along: GPU driver, NCCL, PyTorch, and our package in its Python */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/doctor/doctor.h"
#include "aggregator/control/options.h"
#include "aggregator/net/clock.h"
#include "client/winnow.h"

#define PYTHON_LIMIT_MS 30000 /* torch from a cold disk */

extern char **environ;

static void check_library(struct doctor *doctor)
{
	struct doctor_check *check;

	if (strcmp(winnow_version(), WINNOW_VERSION) == 0) {
		doctor_add(doctor, DOCTOR_OK, "libwinnow", "%s, ABI %d", winnow_version(),
		           winnow_abi_version());
		return;
	}
	check = doctor_add(doctor, DOCTOR_WARN, "libwinnow",
	                   "this command is %s, the library it finds is %s", WINNOW_VERSION,
	                   winnow_version());
	doctor_fix(check, "install both from one build; ldd shows which library is found");
}

static void check_gpu(struct doctor *doctor)
{
	char text[160];
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
	struct doctor_check *check;

	if (doctor_read("/proc/driver/nvidia/version", text, sizeof(text))) {
		check = doctor_add(doctor, driver != NULL ? DOCTOR_OK : DOCTOR_WARN, "gpu", "%s%s",
		                   text, driver != NULL ? "" : "; but libcuda.so.1 is not found");
		if (driver == NULL)
			doctor_fix(check, "in a container, run it with the NVIDIA runtime; else "
			                  "install the driver's libraries");
	} else {
		doctor_add(doctor, DOCTOR_ABSENT, "gpu", "no NVIDIA driver is loaded");
	}
	if (driver != NULL)
		dlclose(driver);
}

static void check_nccl(struct doctor *doctor)
{
	void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
	int (*get_version)(int *) = NULL;
	int version = 0;

	if (library == NULL) {
		doctor_add(doctor, DOCTOR_ABSENT, "nccl",
		           "no libnccl.so.2 on the library path (PyTorch may bring its own)");
		return;
	}
	*(void **)&get_version = dlsym(library, "ncclGetVersion");
	if (get_version == NULL || get_version(&version) != 0)
		doctor_add(doctor, DOCTOR_WARN, "nccl", "libnccl.so.2 does not tell its version");
	else
		doctor_add(doctor, DOCTOR_OK, "nccl", "%d.%d.%d", version / 10000,
		           version / 100 % 100, version % 100);
	dlclose(library);
}

/* ---- Python ---- */

/* Read what the child prints, until it ends or the time is over. */
static size_t read_until(int fd, char *text, size_t room)
{
	struct pollfd in = {.fd = fd, .events = POLLIN};
	uint64_t start_us = clock_us();
	size_t used = 0;
	ssize_t count = 1;
	int left_ms = PYTHON_LIMIT_MS;

	while (used + 1 < room && left_ms > 0 && count > 0 && poll(&in, 1, left_ms) > 0) {
		count = read(fd, text + used, room - 1 - used);
		used += count > 0 ? (size_t)count : 0;
		left_ms = PYTHON_LIMIT_MS - (int)((clock_us() - start_us) / 1000);
	}
	text[used] = '\0';
	return used;
}

/* Its stdout into `text`; false when the program is not there or says nothing in time. */
static bool python_says(const char *python, const char *code, char *text, size_t room)
{
	const char *const argv[] = {python, "-c", code, NULL};
	posix_spawn_file_actions_t actions;
	int ends[2], err;
	size_t used = 0;
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return false;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	err = posix_spawnp(&child, python, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (err == 0) {
		used = read_until(ends[0], text, room);
		kill(child, SIGKILL); /* we have read all that we want */
		waitpid(child, NULL, 0);
	}
	close(ends[0]);
	return used > 0;
}

/* The one that a training script would run with: of the environment that is active, or the first of the PATH. */
static const char *python_active(char path[PATH_MAX])
{
	const char *environment = getenv("VIRTUAL_ENV");

	if (environment != NULL && *environment != '\0' &&
	    snprintf(path, PATH_MAX, "%s/bin/python", environment) < PATH_MAX &&
	    access(path, X_OK) == 0)
		return path;
	return "python3";
}

/* One line of its answer: "- why" is not there, "! why" is there and broken. */
static void add_line(struct doctor *doctor, const char *python, const char *name, const char *line)
{
	bool absent = *line == '-', broken = *line == '!';
	struct doctor_check *check = doctor_add(doctor,
	                                        absent   ? DOCTOR_ABSENT
	                                        : broken ? DOCTOR_WARN
	                                                 : DOCTOR_OK,
	                                        name, "%s", absent || broken ? line + 2 : line);

	if (absent && strcmp(name, "torch") == 0)
		doctor_fix(check, "only workers that train with PyTorch need it");
	else if (absent)
		doctor_fix(check,
		           "%s -m pip install winnow-*.whl (make wheel), or client/python on "
		           "PYTHONPATH",
		           python);
	else if (broken)
		doctor_fix(check, "%s -c 'import winnow' shows all of it; install it again",
		           python);
}

static void check_python(struct doctor *doctor)
{
	static const char code[] =
		"import sys\n"
		"print('python', sys.version.split()[0] + ',', sys.executable)\n"
		"try:\n"
		"  import torch\n"
		"  print('torch', torch.__version__, 'cuda', torch.version.cuda, 'gpus', "
		"torch.cuda.device_count(), 'distributed', torch.distributed.is_available())\n"
		"except Exception as e: print('-', type(e).__name__, str(e)[:80])\n"
		"try:\n"
		"  import winnow\n"
		"  print('winnow', winnow.__version__ + ',', winnow.__file__)\n"
		"except Exception as e: print('-' if getattr(e, 'name', 0) == 'winnow' else '!', "
		"type(e).__name__, str(e)[:200])\n";
	static const char *const names[] = {"python", "torch", "winnow package"};
	char text[1024], path[PATH_MAX], *line = text;
	const char *python = doctor->python != NULL ? doctor->python : python_active(path);
	struct doctor_check *check;

	if (option_is_off(python))
		return;
	if (!python_says(python, code, text, sizeof(text))) {
		check = doctor_add(doctor, DOCTOR_ABSENT, "python", "cannot run %s", python);
		doctor_fix(check, "--python PROGRAM names the one that training uses");
		return;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && *line != '\0'; i++) {
		char *end = line + strcspn(line, "\n"), *next = *end != '\0' ? end + 1 : end;

		*end = '\0';
		add_line(doctor, python, names[i], line);
		line = next;
	}
}

void doctor_soft(struct doctor *doctor)
{
	check_library(doctor);
	check_gpu(doctor);
	check_nccl(doctor);
	check_python(doctor);
}
