// SPDX-License-Identifier: BSD-3-Clause
/* members_daemons.c - see members.h: aggregators on ports of 127.0.0.1, which the trainer starts, kills and drains */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/members.h"

struct winnowd daemons[DAEMONS_MAX];
uint32_t daemon_count;
static char **winnowd_command;

static bool listens(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(port),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	bool yes = connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0;

	close(fd);
	return yes;
}

void winnowd_start(struct winnowd *d)
{
	char listen[32], option[] = "--listen", *command[32] = {winnowd_command[0], option, listen};
	double until_ms = now_ms() + LIMIT_MS;

	snprintf(listen, sizeof(listen), "127.0.0.1:%u", d->port);
	for (uint32_t i = 3; i < 31 && winnowd_command[i - 2] != NULL; i++)
		command[i] = winnowd_command[i - 2];
	d->pid = fork();
	if (d->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(command[0], command);
		die("%s: %s", command[0], strerror(errno));
	}
	while (!listens(d->port)) {
		if (now_ms() > until_ms)
			die("winnowd does not listen on port %u", d->port);
		usleep(2000);
	}
}

void winnowd_kill(struct winnowd *d)
{
	kill(d->pid, SIGKILL);
	waitpid(d->pid, NULL, 0);
	d->pid = 0;
}

void winnowd_drain(struct winnowd *d)
{
	int status;

	kill(d->pid, SIGTERM);
	waitpid(d->pid, &status, 0);
	if (status != 0)
		die("winnowd on port %u ended with status %d", d->port, status);
	d->pid = 0;
}

void daemons_start(char *ports, char **command)
{
	winnowd_command = command;
	for (char *port = strtok(ports, ","); port != NULL && daemon_count < DAEMONS_MAX;
	     port = strtok(NULL, ",")) {
		daemons[daemon_count].port = (uint16_t)atoi(port);
		winnowd_start(&daemons[daemon_count++]);
	}
}

uint32_t daemons_running(void)
{
	uint32_t running = 0;

	for (uint32_t i = 0; i < daemon_count; i++)
		running += daemons[i].pid != 0;
	return running;
}

void daemons_end(void)
{
	for (uint32_t i = 0; i < daemon_count; i++)
		if (daemons[i].pid != 0)
			winnowd_kill(&daemons[i]);
}
