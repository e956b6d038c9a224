// SPDX-License-Identifier: BSD-3-Clause
/* members_worker.c - see members.h: a worker sums without end, checks every element, and reports what happens to it */

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "client/winnow.h"
#include "tests/e2e/members.h"

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
	return err == WINNOW_ERR_MEMBERS || err == WINNOW_ERR_LOST;
}

void work(int from, int to, uint64_t blocks, bool alone, struct shown *mine)
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
			while (alone && may_go_on(err) && !ordered(from)) {
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
