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
 * decides who is a member and is restarted. Some workers and winnowd freeze for longer than the silence time, and those
 * that are dead come back.
 * drains: nobody is killed; each winnowd gets SIGTERM in turn, and comes back. No worker may notice.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/winnow.h"
#include "tests/e2e/members.h"

#define WORKERS_MAX 64

static struct child {
	pid_t pid; /* 0: none */
	int to, from;
	bool member, frozen, expelled; /* expelled: as it was frozen */
} children[WORKERS_MAX];
static struct shown *shown; /* [WORKERS_MAX] */
static bool alone;          /* The trainer does not tell workers how to continue. */
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
		work(down[0], up[1], blocks, alone, &shown[c - children]);
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

/* ---- aggregators that are killed ---- */

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
	all_have(daemons_running());
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
	if (d == daemons) {
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

static void drain_round(void)
{
	struct winnowd *d = &daemons[throw_dice(daemon_count)];
	double began_ms;

	for (uint32_t i = 0; i < workers; i++)
		atomic_store(&shown[i].longest_us, 0);
	usleep(throw_dice(30000));
	began_ms = now_ms();
	if (d->pid != 0) {
		winnowd_drain(d);
		ended_ms[drains] = now_ms() - began_ms;
		if (d == daemons)
			winnowd_start(d);
		all_work(daemons_running());
		for (uint32_t i = 0; i < workers; i++) {
			double ms = (double)atomic_load(&shown[i].longest_us) / 1e3;

			paused_ms[drains] = ms > paused_ms[drains] ? ms : paused_ms[drains];
		}
		drains++;
		return;
	}
	winnowd_start(d);
	all_work(daemons_running());
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
	daemons_end();
	figures_say();
	return 0;
}
