// SPDX-License-Identifier: BSD-3-Clause
/* doctor_soft.c - what training brings along: GPU driver, NCCL, PyTorch, and our package in its Python */

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/doctor/doctor.h"
#include "aggregator/control/options.h"
#include "client/cli/children.h"
#include "client/winnow.h"

#define PYTHON_LIMIT_S 30 /* torch from a cold disk */

static void check_library(void)
{
	if (strcmp(winnow_version(), WINNOW_VERSION) == 0)
		doctor_say(DOCTOR_OK, "libwinnow", NULL, "%s, ABI %d", winnow_version(),
		           winnow_abi_version());
	else
		doctor_say(DOCTOR_WARN, "libwinnow",
		           "install both from one build; ldd shows which library is found",
		           "this command is %s, the library it finds is %s", WINNOW_VERSION,
		           winnow_version());
}

static void check_gpu(void)
{
	char text[160];
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (!doctor_read("/proc/driver/nvidia/version", text, sizeof(text)))
		doctor_say(DOCTOR_ABSENT, "gpu", NULL, "no NVIDIA driver is loaded");
	else
		doctor_say(driver != NULL ? DOCTOR_OK : DOCTOR_WARN, "gpu",
		           "in a container, run it with the NVIDIA runtime; else install the "
		           "driver's libraries",
		           "%s%s", text, driver != NULL ? "" : "; but libcuda.so.1 is not found");
	if (driver != NULL)
		dlclose(driver);
}

static void check_nccl(void)
{
	void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
	int (*get_version)(int *) = NULL;
	int version = 0;

	if (library == NULL) {
		doctor_say(DOCTOR_ABSENT, "nccl", NULL,
		           "no libnccl.so.2 on the library path (PyTorch may bring its own)");
		return;
	}
	*(void **)&get_version = dlsym(library, "ncclGetVersion");
	if (get_version == NULL || get_version(&version) != 0)
		doctor_say(DOCTOR_WARN, "nccl", NULL, "libnccl.so.2 does not tell its version");
	else
		doctor_say(DOCTOR_OK, "nccl", NULL, "%d.%d.%d", version / 10000,
		           version / 100 % 100, version % 100);
	dlclose(library);
}

/* ---- Python ---- */

/* Its stdout into `text`; false when the program is not there or says nothing in time. */
static bool python_says(const char *python, const char *code, char *text, size_t room)
{
	const char *const argv[] = {python, "-c", code, NULL};
	const struct timeval limit = {.tv_sec = PYTHON_LIMIT_S};
	struct children children = {0};
	ssize_t count = 0;
	int ends[2];
	bool started;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return false;
	started = children_worker(&children, (char *const *)(uintptr_t)argv,
	                          (const int[]){CHILD_NOTHING, ends[1], CHILD_NOTHING});
	close(ends[1]);
	if (started) {
		/* Until it ends, all room is taken, or the time is over. */
		setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		count = recv(ends[0], text, room - 1, MSG_WAITALL);
		children_signal(&children, SIGKILL);
		waitpid(children.pids[0], NULL, 0);
	}
	close(ends[0]);
	text[count > 0 ? count : 0] = '\0';
	return count > 0;
}

/* The one that a training script would run with: of the environment that is active, or the first of the PATH. */
static const char *python_active(char path[PATH_MAX])
{
	const char *environment = secure_getenv("VIRTUAL_ENV");

	if (environment != NULL && *environment != '\0' &&
	    snprintf(path, PATH_MAX, "%s/bin/python", environment) < PATH_MAX &&
	    access(path, X_OK) == 0)
		return path;
	return "python3";
}

/* One line of its answer: "- why" is not there, "! why" is there and broken. */
static void say_line(const char *python, const char *name, const char *line)
{
	char install[400], again[400];

	snprintf(install, sizeof(install),
	         "%.200s -m pip install winnow_allreduce-*.whl (make wheel), or client/python on "
	         "PYTHONPATH",
	         python);
	snprintf(again, sizeof(again),
	         "%.200s -c 'import winnow' shows all of it; install it again", python);
	if (strncmp(line, "- ", 2) == 0)
		doctor_say(DOCTOR_ABSENT, name,
		           strcmp(name, "torch") == 0
		                   ? "only workers that train with PyTorch need it"
		                   : install,
		           "%s", line + 2);
	else if (strncmp(line, "! ", 2) == 0)
		doctor_say(DOCTOR_WARN, name, again, "%s", line + 2);
	else
		doctor_say(DOCTOR_OK, name, NULL, "%s", line);
}

static void check_python(const struct doctor *doctor)
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

	if (option_is_off(python))
		return;
	if (!python_says(python, code, text, sizeof(text))) {
		doctor_say(DOCTOR_ABSENT, "python",
		           "--python PROGRAM names the one that training uses", "cannot run %s",
		           python);
		return;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && *line != '\0'; i++) {
		char *end = line + strcspn(line, "\n"), *next = *end != '\0' ? end + 1 : end;

		*end = '\0';
		say_line(python, names[i], line);
		line = next;
	}
}

void doctor_soft(const struct doctor *doctor)
{
	check_library();
	check_gpu();
	check_nccl();
	check_python(doctor);
}
