/* SPDX-License-Identifier: BSD-3-Clause */
/* test_jobs_members.h - jobs whose workers want to continue without those that are lost, or with others */
#ifndef TESTS_UNIT_TEST_JOBS_MEMBERS_H
#define TESTS_UNIT_TEST_JOBS_MEMBERS_H

#include "tests/check/check.h"
#include "tests/unit/test_jobs.h"

static inline struct bench *members_open(void)
{
	join_features = CONTROL_FEATURES;
	return usual_open();
}

static inline void tick(struct bench *b, uint64_t us)
{
	b->now_us += us;
	jobs_tick(b->jobs, b->now_us);
	jobs_check(b->jobs);
}

/* For so many seconds; these are alive, as bits. */
static inline void wait(struct bench *b, uint32_t seconds, uint32_t alive)
{
	for (; seconds > 0; seconds--) {
		tick(b, 1000000);
		for (uint32_t i = 0; alive >> i != 0; i++) {
			struct worker *w = &b->workers[i];

			while (w->read != w->written &&
			       w->inbox[w->read % INBOX_MAX].kind == CONTROL_PING)
				w->read++;
			if (alive >> i & 1 && !w->closed)
				say_kind(b, i, CONTROL_PING);
		}
	}
}

/* The job has ended for this worker, and its connection stands. */
static inline void expect_told(struct bench *b, uint32_t i, const char *code)
{
	const struct control_message *m = expect_line(b, i, CONTROL_FAILED);

	assert_string_equal(m->code, code);
	assert_false(b->workers[i].closed);
}

static uint32_t members = 4; /* of the membership that these workers come from */
static bool by_majority;     /* is the next one named by a majority of them? */

static inline void stay(struct bench *b, uint32_t i, uint64_t without)
{
	struct control_message message = {.kind = CONTROL_STAY,
	                                  .without = without,
	                                  .fewer = without != 0,
	                                  .of = members,
	                                  .first = i == 0};

	say(b, i, &message);
}

/* Out: the name of the membership, "" for none. */
static inline void expect_next(struct bench *b, uint32_t i, uint32_t rank, uint32_t world,
                               uint64_t without, char name[CONTROL_JOB_BYTES])
{
	const struct control_message *m = expect_line(b, i, CONTROL_NEXT);

	assert_int_equal(m->next_rank, rank);
	assert_int_equal(m->next_world, world);
	assert_true(m->without == without);
	assert_int_equal(m->majority, by_majority);
	assert_true(b->workers[i].closed);
	if (name[0] != '\0')
		assert_string_equal(m->next, name);
	strcpy(name, m->next);
}

/* Worker `i` joins, and says from where it comes. */
static inline void come(struct bench *b, uint32_t i, const char *job, uint32_t rank, uint32_t world,
                        uint64_t after)
{
	struct control_message message = join_of(job, rank, world);

	message.after = after;
	connect_worker(b, i);
	say(b, i, &message);
}

#endif /* TESTS_UNIT_TEST_JOBS_MEMBERS_H */
