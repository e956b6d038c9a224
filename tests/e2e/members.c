// SPDX-License-Identifier: BSD-3-Clause
/*
 * members.c - workers that die, freeze, come and go, and a trainer that tells the others how to continue
 *
 *     members SEED ROUNDS WORKERS BYTES [self|drains [PORT,PORT.. WINNOWD ARG..]]
 *                                                   WINNOW_AGGREGATORS, WINNOW_JOB, WINNOW_SILENCE and a key or none
 *
 * The parent is the trainer, its children are workers. They sum without end, and check every element. In
 * each round the trainer kills one or two, freezes one, lets one come, or leaves all as they are; workers
 * that lose others must say so, in time, and then continue in the membership that the trainer tells.
 * self: it tells nothing but the first one, and kills one or two at a time until two are left. With a winnowd
 * it starts one on each of these ports of 127.0.0.1, and also kills these: all but the first for good, which
 * decides who is a member and is restarted. Some workers and winnowd freeze for longer than the silence time, and those that are dead come back.
 * drains: nobody is killed; each winnowd gets SIGTERM in turn, and comes back. No worker may notice.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/winnow.h"

#define WORKERS_MAX 64
#define LIMIT_MS 20000
#define BLOCK 64

struct order {
	uint32_t id, rank, world; /* world 0: leave */
};

#define NEWCOMER UINT32_MAX /* for a world: that of the members, when they admit it */
#define ADMIT_TURNS 8       /* they look so often */

struct report {
	enum { FAILED, FIRST, EXPELLED } kind;
	uint32_t id, world;
	int result;
	double at_ms;
	char text[256];
};

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* ---- a worker ---- */

/* What a worker gives: other numbers in each membership and turn, so that nothing mixed goes unseen. */
static float given(uint64_t block, const struct order *in, uint32_t rank, uint64_t turn)
{
	uint64_t mixed = (block * 31 + rank * 7 + turn * 131 + in->id * 1009) *
	                         UINT64_C(0x9e3779b97f4a7c15) >>
	                 40;

	return mixed % 4 == 0 ? (float)(mixed % 1024) : 0;
}

static int sum(struct winnow_comm *comm, const struct order *in, float *data, uint64_t blocks,
               uint64_t turn)
{
	int err;

	for (uint64_t i = 0; i < blocks * BLOCK; i++)
		data[i] = given(i / BLOCK, in, in->rank, turn);
	err = winnow_allreduce(data, data, blocks * BLOCK, WINNOW_F32, WINNOW_SUM, comm);
	for (uint64_t block = 0; block < blocks && err == WINNOW_OK; block++) {
		float want = 0;

		for (uint32_t rank = 0; rank < in->world; rank++)
			want += given(block, in, rank, turn);
		for (uint64_t i = 0; i < BLOCK; i++)
			if (data[block * BLOCK + i] != want)
				die("rank %u of %u, membership %u: a wrong sum", in->rank,
				    in->world, in->id);
	}
	return err;
}

static void say(int to, int kind, const struct order *in, int result)
{
	struct report report = {.kind = kind,
	                        .id = in->id,
	                        .world = in->world,
	                        .result = result,
	                        .at_ms = now_ms()};

	snprintf(report.text, sizeof(report.text), "%s", winnow_last_error());
	if (write(to, &report, sizeof(report)) != sizeof(report))
		exit(1);
}

static bool ordered(int from)
{
	struct pollfd fd = {.fd = from, .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

static bool alone; /* nobody tells them */

/* What each worker does, for the trainer to see. */
static struct shown {
	_Atomic uint64_t turns, longest_us; /* the longest has taken so long */
	_Atomic uint32_t channels;
} * shown;

static void show(struct winnow_comm *comm, struct shown *mine, double *before_ms)
{
	double at_ms = now_ms();
	uint64_t us = (uint64_t)((at_ms - *before_ms) * 1e3);
	struct winnow_stats stats;

	winnow_comm_stats(comm, &stats);
	atomic_store(&mine->channels, stats.channels);
	if (us > atomic_load(&mine->longest_us))
		atomic_store(&mine->longest_us, us);
	atomic_fetch_add(&mine->turns, 1);
	*before_ms = at_ms;
}

static int form(struct winnow_comm **comm, const struct order *in)
{
	struct winnow_config config;
	struct winnow_membership membership = {.rank = in->rank, .world = in->world};
	char id[16], job[80];

	snprintf(id, sizeof(id), "%u", in->id);
	membership.id = id;
	if (*comm != NULL)
		return winnow_comm_reconfigure(*comm, &membership);
	winnow_config_init(&config);
	config.block = BLOCK;
	if (in->world == NEWCOMER)
		return winnow_comm_enter(&config, comm);
	snprintf(job, sizeof(job), "%s/%s", config.job, id);
	config.job = job;
	config.rank = in->rank;
	config.world = in->world;
	config.block = BLOCK;
	return winnow_comm_create(&config, comm);
}

/* They number their memberships so that each has a higher one. */
static int number(struct winnow_comm *comm, struct order *in)
{
	int64_t id = in->id + 1;
	int err = winnow_allreduce(&id, &id, 1, WINNOW_I64, WINNOW_MAX, comm);

	in->rank = winnow_comm_rank(comm);
	in->world = winnow_comm_world(comm);
	in->id = (uint32_t)id;
	if (err == WINNOW_OK)
		winnow_comm_hold(comm);
	return err;
}

/* As the first aggregator says. */
static int go_on(struct winnow_comm **comm, struct order *in, int to)
{
	int err = WINNOW_ERR_LOST;

	if (*comm != NULL)
		err = winnow_comm_reconfigure(*comm, &(struct winnow_membership){.world = 2});
	if (err == WINNOW_ERR_LOST) { /* it is counted among the lost: it comes back */
		if (*comm != NULL)
			say(to, EXPELLED, in, err);
		winnow_comm_destroy(*comm);
		*comm = NULL;
		in->world = NEWCOMER;
		err = form(comm, in);
	}
	return err == WINNOW_OK ? number(*comm, in) : err;
}

/* Out: in another membership, with newcomers? */
static int admit(struct winnow_comm *comm, struct order *in, bool *grown)
{
	uint32_t came;
	int err = winnow_comm_admit(comm, 3, &came);

	*grown = came > 0;
	return err == WINNOW_OK && came > 0 ? number(comm, in) : err;
}

static bool may_go_on(int err)
{
	return alone && (err == WINNOW_ERR_MEMBERS || err == WINNOW_ERR_LOST);
}

static void work(int from, int to, uint64_t blocks, struct shown *mine)
{
	double before_ms = now_ms();
	float *data = malloc(blocks * BLOCK * sizeof(*data));
	struct winnow_comm *comm = NULL;
	struct order in;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (data != NULL && read(from, &in, sizeof(in)) == sizeof(in) && in.world > 0) {
		int err = form(&comm, &in);

		if (err == WINNOW_OK && in.world == NEWCOMER)
			err = number(comm, &in);
		for (uint64_t turn = 0; err == WINNOW_OK && !ordered(from); turn++) {
			bool grown = false;

			err = sum(comm, &in, data, blocks, turn);
			if (turn == 0 && err == WINNOW_OK)
				say(to, FIRST, &in, err);
			if (alone && err == WINNOW_OK && turn % ADMIT_TURNS == ADMIT_TURNS - 1)
				err = admit(comm, &in, &grown);
			if (err == WINNOW_OK)
				show(comm, mine, &before_ms);
			if (grown)
				turn = UINT64_MAX;
			while (may_go_on(err) && !ordered(from)) {
				err = go_on(&comm, &in, to);
				turn = UINT64_MAX;
			}
		}
		if (err != WINNOW_OK)
			say(to, FAILED, &in, err);
	}
	winnow_comm_destroy(comm);
	exit(0);
}

/* ---- the trainer ---- */

static struct child {
	pid_t pid; /* 0: none */
	int to, from;
	bool member, frozen, expelled; /* expelled: as it was frozen */
} children[WORKERS_MAX];
static uint32_t workers, last_id;
static uint64_t dice, blocks;
static double noticed_ms[4096], resumed_ms[4096];
static uint32_t losses, memberships;

static uint32_t throw_dice(uint32_t below)
{
	dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(dice >> 33) % below;
}

static void child_start(struct child *c)
{
	int down[2], up[2];

	if (pipe(down) != 0 || pipe(up) != 0)
		die("pipe: %s", strerror(errno));
	c->pid = fork();
	if (c->pid == 0) {
		for (uint32_t i = 0; i < workers; i++)
			if (&children[i] != c && children[i].pid != 0)
				close(children[i].to);
		close(down[1]);
		work(down[0], up[1], blocks, &shown[c - children]);
	}
	close(down[0]);
	close(up[1]);
	c->to = down[1];
	c->from = up[0];
	c->member = c->frozen = c->expelled = false;
}

static void child_kill(struct child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->to);
	close(c->from);
	c->pid = 0;
	c->member = false;
}

/* The next report of this kind, which is about the present membership. */
static double await(struct child *c, int kind)
{
	struct pollfd fd = {.fd = c->from, .events = POLLIN};
	struct report report;

	for (;;) {
		if (poll(&fd, 1, LIMIT_MS) != 1)
			die("worker %u says nothing in membership %u", (unsigned)(c - children),
			    last_id);
		if (read(c->from, &report, sizeof(report)) != sizeof(report))
			die("worker %u has ended", (unsigned)(c - children));
		if (report.kind == FAILED && report.result != WINNOW_ERR_MEMBERS)
			die("worker %u, membership %u: %d: %s", (unsigned)(c - children), report.id,
			    report.result, report.text);
		if (report.kind == FAILED && strstr(report.text, "rank ") == NULL)
			die("worker %u is not told who: %s", (unsigned)(c - children), report.text);
		if ((int)report.kind == kind && report.id == last_id)
			return report.at_ms;
	}
}

/* All who live form the next membership, in an order of its own. */
static double regroup(void)
{
	struct order order = {.id = ++last_id};
	uint32_t turn = throw_dice(workers);
	double until_ms = 0;

	for (uint32_t i = 0; i < workers; i++)
		order.world += children[i].pid != 0 && !children[i].frozen;
	for (uint32_t i = 0; i < workers; i++) {
		struct child *c = &children[(i + turn) % workers];

		if (c->pid == 0 || c->frozen)
			continue;
		if (write(c->to, &order, sizeof(order)) != sizeof(order))
			die("worker %u has ended", (unsigned)(c - children));
		c->member = true;
		order.rank++;
	}
	for (uint32_t i = 0; i < workers; i++) {
		double at_ms = children[i].member ? await(&children[i], FIRST) : 0;

		until_ms = at_ms > until_ms ? at_ms : until_ms;
	}
	memberships++;
	return until_ms;
}

/* Those who are left must notice. */
static void lost(double began_ms)
{
	double noticed = 0;

	for (uint32_t i = 0; i < workers; i++) {
		double at_ms = children[i].member ? await(&children[i], FAILED) : 0;

		noticed = at_ms > noticed ? at_ms : noticed;
	}
	noticed_ms[losses] = noticed - began_ms;
	resumed_ms[losses++] = regroup() - began_ms;
}

static struct child *any(bool living)
{
	struct child *c;

	do
		c = &children[throw_dice(workers)];
	while ((c->pid != 0) != living);
	return c;
}

static void round_go(void)
{
	uint32_t living = 0, what = throw_dice(10);
	struct child *c;
	double began_ms;

	for (uint32_t i = 0; i < workers; i++)
		living += children[i].pid != 0;
	usleep(throw_dice(30000));
	if (living < workers && (what < 5 || living < 3)) {
		child_start(any(false));
		regroup();
	} else if (what == 5) {
		c = any(true);
		kill(c->pid, SIGSTOP);
		c->frozen = true;
		c->member = false;
		lost(now_ms());
		losses--; /* the silence time is not what is measured */
		kill(c->pid, SIGCONT);
		c->frozen = false;
		regroup();
	} else if (what == 6) {
		regroup();
	} else {
		began_ms = now_ms();
		child_kill(any(true));
		if (what == 7 && living > 3)
			child_kill(any(true));
		lost(began_ms);
	}
}

/* It waits in vain: perhaps since another one has given up. */
static void others_say(void)
{
	struct report report;

	for (uint32_t i = 0; i < workers; i++) {
		struct pollfd fd = {.fd = children[i].from, .events = POLLIN};

		while (children[i].pid != 0 && poll(&fd, 1, 0) == 1 &&
		       read(fd.fd, &report, sizeof(report)) == sizeof(report))
			if (report.kind == FAILED)
				fprintf(stderr, "worker %u, membership %u: %d: %s\n", i, report.id,
				        report.result, report.text);
	}
}

/* The first result of a membership of so many that has begun after that. */
static double await_members(struct child *c, uint32_t world, double after_ms)
{
	struct pollfd fd = {.fd = c->from, .events = POLLIN};
	struct report report;

	do {
		if (poll(&fd, 1, LIMIT_MS) != 1) {
			others_say();
			die("worker %u says nothing of a membership of %u",
			    (unsigned)(c - children), world);
		}
		if (read(c->from, &report, sizeof(report)) != sizeof(report))
			die("worker %u has ended", (unsigned)(c - children));
		if (report.kind == FAILED)
			die("worker %u, membership %u: %d: %s", (unsigned)(c - children), report.id,
			    report.result, report.text);
		if (report.kind == EXPELLED &&
		    (!c->expelled || strstr(report.text, "silent for 2") == NULL))
			die("worker %u is expelled: %s", (unsigned)(c - children), report.text);
		c->expelled = c->expelled && report.kind != EXPELLED;
	} while (report.kind != FIRST || report.world != world || report.at_ms < after_ms);
	return report.at_ms;
}

static void all_continue(double began_ms, double last_ms)
{
	uint32_t living = 0;
	double resumed = 0;

	for (uint32_t i = 0; i < workers; i++)
		living += children[i].pid != 0 && !children[i].frozen;
	for (uint32_t i = 0; i < workers; i++) {
		double at_ms = children[i].pid != 0 && !children[i].frozen
		                       ? await_members(&children[i], living, last_ms)
		                       : 0;

		resumed = at_ms > resumed ? at_ms : resumed;
	}
	resumed_ms[losses++] = resumed - began_ms;
	memberships++;
}

/* They help themselves, whoever is killed whenever. */
static void kill_until_two(void)
{
	uint32_t living = workers;

	while (living > 2) {
		double began_ms;

		usleep(throw_dice(20000));
		began_ms = now_ms();
		child_kill(any(true));
		living--;
		while (living > 2 && throw_dice(2) == 0) { /* perhaps while they continue */
			usleep(throw_dice(3) * throw_dice(20000));
			child_kill(any(true));
			living--;
		}
		all_continue(began_ms, began_ms);
	}
}

/* ---- aggregators ---- */

static struct winnowd {
	uint16_t port;
	pid_t pid;
} daemons[8];
static uint32_t daemon_count, daemons_left;
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

static void winnowd_start(struct winnowd *d)
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

static void winnowd_kill(struct winnowd *d)
{
	kill(d->pid, SIGKILL);
	waitpid(d->pid, NULL, 0);
	d->pid = 0;
}

static void daemons_start(char *ports, char **command)
{
	winnowd_command = command;
	for (char *port = strtok(ports, ","); port != NULL && daemon_count < 8;
	     port = strtok(NULL, ",")) {
		daemons[daemon_count].port = (uint16_t)atoi(port);
		winnowd_start(&daemons[daemon_count++]);
	}
	daemons_left = daemon_count;
}

/* All members use all that run: one that is back may be needed next. */
static void all_have(uint32_t channels)
{
	double until_ms = now_ms() + LIMIT_MS;

	for (uint32_t i = 0; i < workers; i++)
		while (children[i].pid != 0 && atomic_load(&shown[i].channels) != channels) {
			if (now_ms() > until_ms)
				die("worker %u has %u aggregators instead of %u", i,
				    atomic_load(&shown[i].channels), channels);
			usleep(1000);
		}
}

/* One of them; the first comes back at once. Perhaps a worker dies with another one. */
static void winnowd_round(uint32_t living)
{
	struct winnowd *d = &daemons[throw_dice(daemon_count)];
	bool also;
	double began_ms, last_ms;

	while (d->pid == 0)
		d = &daemons[throw_dice(daemon_count)];
	also = d != daemons && living > 3 && throw_dice(2) == 0;
	all_have(daemons_left);
	began_ms = last_ms = now_ms();
	if (also && throw_dice(2) == 0) {
		child_kill(any(true));
		usleep(throw_dice(3) * throw_dice(20000));
		also = false;
	}
	winnowd_kill(d);
	last_ms = now_ms();
	if (also) {
		usleep(throw_dice(3) * throw_dice(20000));
		child_kill(any(true));
	}
	if (d != daemons) {
		daemons_left--;
	} else {
		usleep(throw_dice(3) * throw_dice(100000));
		winnowd_start(d);
		began_ms = now_ms();
	}
	all_continue(began_ms, last_ms);
}

/* ---- aggregators that drain ---- */

static double ended_ms[4096], returned_ms[4096], paused_ms[4096];
static uint32_t drains, returns;

/* Nobody has noticed anything; all work on, with so many aggregators of one channel each. */
static void all_work(uint32_t channels)
{
	uint64_t from[WORKERS_MAX];
	double until_ms = now_ms() + LIMIT_MS;

	for (uint32_t i = 0; i < workers; i++)
		from[i] = atomic_load(&shown[i].turns);
	for (uint32_t i = 0; i < workers; i++) {
		while (atomic_load(&shown[i].turns) < from[i] + 2 * ADMIT_TURNS ||
		       atomic_load(&shown[i].channels) != channels) {
			struct pollfd fd = {.fd = children[i].from, .events = POLLIN};
			struct report report;

			if (poll(&fd, 1, 1) == 1 &&
			    (read(fd.fd, &report, sizeof(report)) != sizeof(report) ||
			     report.kind == FAILED))
				die("worker %u has noticed: %s", i, report.text);
			if (now_ms() > until_ms)
				die("worker %u has %u channels instead of %u, or is stuck", i,
				    atomic_load(&shown[i].channels), channels);
		}
	}
}

/* It ends by itself, and in good order. */
static void winnowd_drain(struct winnowd *d)
{
	double began_ms = now_ms();
	int status;

	kill(d->pid, SIGTERM);
	waitpid(d->pid, &status, 0);
	if (status != 0)
		die("winnowd on port %u ended with status %d", d->port, status);
	d->pid = 0;
	ended_ms[drains] = now_ms() - began_ms;
}

static void drain_round(void)
{
	struct winnowd *d = &daemons[throw_dice(daemon_count)];
	uint32_t left = 0;
	double began_ms;

	for (uint32_t i = 0; i < workers; i++)
		atomic_store(&shown[i].longest_us, 0);
	usleep(throw_dice(30000));
	if (d->pid != 0) {
		winnowd_drain(d);
		if (d == daemons)
			winnowd_start(d);
		for (uint32_t i = 0; i < daemon_count; i++)
			left += daemons[i].pid != 0;
		all_work(left);
		for (uint32_t i = 0; i < workers; i++) {
			double ms = (double)atomic_load(&shown[i].longest_us) / 1e3;

			paused_ms[drains] = ms > paused_ms[drains] ? ms : paused_ms[drains];
		}
		drains++;
		return;
	}
	began_ms = now_ms();
	winnowd_start(d);
	for (uint32_t i = 0; i < daemon_count; i++)
		left += daemons[i].pid != 0;
	all_work(left);
	returned_ms[returns++] = now_ms() - began_ms;
}

/* A worker that nobody has told of any membership. */
static void come(void)
{
	struct order order = {.world = NEWCOMER};
	struct child *c = any(false);

	child_start(c);
	if (write(c->to, &order, sizeof(order)) != sizeof(order))
		die("worker %u has ended", (unsigned)(c - children));
}

/* A worker stands still for too long, and finds out when it can. */
static void freeze_round(void)
{
	struct child *c = any(true);
	double began_ms = now_ms();

	kill(c->pid, SIGSTOP);
	c->frozen = c->expelled = true;
	all_continue(began_ms, began_ms);
	losses--; /* the silence time is not what is measured */
	began_ms = now_ms();
	kill(c->pid, SIGCONT);
	c->frozen = false;
	all_continue(began_ms, began_ms);
	if (c->expelled)
		die("worker %u was not told that it is expelled", (unsigned)(c - children));
	losses--;
}

/* One that was killed is there again; nobody waits for it. */
static void winnowd_return(void)
{
	for (uint32_t i = 0; i < daemon_count; i++) {
		if (daemons[i].pid != 0)
			continue;
		winnowd_start(&daemons[i]);
		daemons_left++;
		return;
	}
}

static void chaos_round(void)
{
	uint32_t living = 0;
	double began_ms;

	for (uint32_t i = 0; i < workers; i++)
		living += children[i].pid != 0;
	usleep(throw_dice(30000));
	if (throw_dice(4) == 0)
		winnowd_return();
	if (living > 3 && throw_dice(12) == 0) {
		freeze_round();
		return;
	}
	if (living < workers && throw_dice(3) == 0) {
		began_ms = now_ms();
		come();
	} else if (living < 3 || throw_dice(2) == 0) {
		winnowd_round(living);
		return;
	} else {
		began_ms = now_ms();
		child_kill(any(true));
	}
	all_continue(began_ms, began_ms);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void workers_end(void)
{
	for (uint32_t i = 0; i < workers; i++) {
		struct order end = {.id = 0};
		int status = 0;

		if (children[i].pid == 0)
			continue;
		if (write(children[i].to, &end, sizeof(end)) != sizeof(end))
			die("worker %u has ended", i);
		waitpid(children[i].pid, &status, 0);
		if (status != 0)
			die("worker %u ended with status %d", i, status);
	}
}

static void figures_say(void)
{
	qsort(noticed_ms, losses, sizeof(double), by_size);
	qsort(resumed_ms, losses, sizeof(double), by_size);
	qsort(ended_ms, drains, sizeof(double), by_size);
	qsort(paused_ms, drains, sizeof(double), by_size);
	qsort(returned_ms, returns, sizeof(double), by_size);
	if (drains > 0)
		printf("%u drained: ended after %.0f ms (worst %.0f), the longest sum took %.0f ms "
		       "(worst %.0f); ",
		       drains, ended_ms[drains / 2], ended_ms[drains - 1], paused_ms[drains / 2],
		       paused_ms[drains - 1]);
	if (returns > 0)
		printf("%u back after %.0f ms (worst %.0f); ", returns, returned_ms[returns / 2],
		       returned_ms[returns - 1]);
	printf("%u memberships, %u losses", memberships, losses);
	if (losses > 0)
		printf(": noticed after %.1f ms (worst %.1f), next result after %.1f ms (worst "
		       "%.1f)",
		       noticed_ms[losses / 2], noticed_ms[losses - 1], resumed_ms[losses / 2],
		       resumed_ms[losses - 1]);
	printf("\n");
}

int main(int argc, char **argv)
{
	uint32_t rounds;

	if (argc < 5 || argc == 7 ||
	    (argc > 5 && strcmp(argv[5], "self") != 0 && strcmp(argv[5], "drains") != 0)) {
		fprintf(stderr, "usage: members SEED ROUNDS WORKERS BYTES [self|drains [PORT,.. "
		                "WINNOWD ARG..]]\n");
		return 2;
	}
	alone = argc > 5;
	dice = strtoull(argv[1], NULL, 10) * 2 + 1;
	rounds = (uint32_t)strtoul(argv[2], NULL, 10);
	workers = (uint32_t)strtoul(argv[3], NULL, 10);
	blocks = strtoull(argv[4], NULL, 10) / (BLOCK * sizeof(float)) + 1;
	if (workers < 3 || workers > WORKERS_MAX || rounds > 4096)
		die("3 to %d workers, at most 4096 rounds", WORKERS_MAX);
	shown = mmap(NULL, sizeof(*shown) * WORKERS_MAX, PROT_READ | PROT_WRITE,
	             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shown == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	if (argc > 7)
		daemons_start(argv[6], argv + 7);
	for (uint32_t i = 0; i < workers; i++)
		child_start(&children[i]);
	regroup();
	if (alone && daemon_count == 0)
		kill_until_two();
	for (uint32_t i = 0; i < rounds && (!alone || daemon_count > 0); i++) {
		if (alone && strcmp(argv[5], "drains") == 0)
			drain_round();
		else if (alone)
			chaos_round();
		else
			round_go();
	}
	workers_end();
	for (uint32_t i = 0; i < daemon_count; i++)
		if (daemons[i].pid != 0)
			winnowd_kill(&daemons[i]);
	figures_say();
	return 0;
}
