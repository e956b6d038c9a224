/* SPDX-License-Identifier: BSD-3-Clause */
/* test_jobs_members.h - jobs whose workers want to continue without those that are lost, or with others */
#ifndef TESTS_UNIT_TEST_JOBS_MEMBERS_H
#define TESTS_UNIT_TEST_JOBS_MEMBERS_H

#include "tests/check/check.h"
#include "tests/unit/test_jobs.h"

/* The job has ended for this worker, and its connection stands. */
static inline void expect_told(struct bench *b, uint32_t i, const char *code)
{
	const struct control_message *m = expect_line(b, i, CONTROL_FAILED);

	assert_string_equal(m->code, code);
	assert_false(b->workers[i].closed);
}

/* Worker `i` wants to continue: it was rank `rank` of `of` in `job`, which it has begun. */
static inline struct control_message stay_of(const char *job, uint32_t rank, uint32_t of)
{
	struct control_message message = {
		.kind = CONTROL_STAY, .rank = rank, .of = of, .holds = true};

	snprintf(message.job, sizeof(message.job), "%s", job);
	snprintf(message.begun, sizeof(message.begun), "%s", job);
	return message;
}

static inline void stay(struct bench *b, uint32_t i, const char *job, uint32_t rank, uint32_t of)
{
	const struct control_message message = stay_of(job, rank, of);

	say(b, i, &message);
}

/* A worker at the door of `job`: a newcomer that asks for this rank. */
static inline void knock(struct bench *b, uint32_t i, const char *job, uint32_t rank)
{
	const struct control_message message = join_of(job, rank, 0);

	join_by(b, i, &message);
}

/* The connection stands. Out: the name of the membership; in: "", or what it must be. */
static inline void expect_next(struct bench *b, uint32_t i, uint32_t rank, uint32_t world,
                               uint64_t without, char name[CONTROL_JOB_BYTES])
{
	const struct control_message *m = expect_line(b, i, CONTROL_NEXT);

	assert_int_equal(m->next_rank, rank);
	assert_int_equal(m->next_world, world);
	assert_true(m->without == without);
	assert_false(b->workers[i].closed);
	if (name[0] != '\0')
		assert_string_equal(m->next, name);
	strcpy(name, m->next);
}

/* By its connection, as NEXT has said. */
static inline void come(struct bench *b, uint32_t i, const char *job, uint32_t rank, uint32_t world)
{
	const struct control_message message = join_of(job, rank, world);

	say(b, i, &message);
}

/* Workers `who` join as ranks 0, 1 .., and it runs. */
static inline void all_come(struct bench *b, const char *job, const uint32_t who[], uint32_t world)
{
	for (uint32_t rank = 0; rank < world; rank++)
		come(b, who[rank], job, rank, world);
	for (uint32_t rank = 0; rank < world; rank++) {
		expect_line(b, who[rank], CONTROL_WELCOME);
		say_kind(b, who[rank], CONTROL_READY);
	}
	for (uint32_t rank = 0; rank < world; rank++)
		expect_line(b, who[rank], CONTROL_START);
}

#endif /* TESTS_UNIT_TEST_JOBS_MEMBERS_H */
