// SPDX-License-Identifier: BSD-3-Clause
/* test_turn.c - a thread asks for short slices and priority, which those that it starts do not inherit */

#include "bitmap/turn.h"

#include <linux/sched.h>
#define sched_param kernel_sched_param /* Before Linux 6.6 its header also defines it. */
#include <linux/sched/types.h>
#undef sched_param
#include <pthread.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/unit.h"

#define SLICE_US 100

/* What a thread had before it asked, what it was told, and what it and one that it started have since. */
struct asked {
	struct sched_attr first; /* Set before, if its size is not 0. */
	struct sched_attr before, after, child;
	struct turn told;
};

static struct sched_attr attr_now(void)
{
	struct sched_attr attr = {0};

	(void)syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0);
	return attr;
}

static void *child_run(void *context)
{
	struct asked *asked = context;

	asked->child = attr_now();
	return NULL;
}

static void *asking_run(void *context)
{
	struct asked *asked = context;
	pthread_t child;

	if (asked->first.size != 0 && syscall(SYS_sched_setattr, 0, &asked->first, 0) != 0)
		asked->first.size = 0; /* It may not have that. */
	asked->before = attr_now();
	turn_ask(&asked->told);
	asked->after = attr_now();
	if (pthread_create(&child, NULL, child_run, asked) == 0)
		pthread_join(child, NULL);
	return NULL;
}

/* In a thread of its own: what one has asked for it keeps. */
static struct asked ask(struct sched_attr first)
{
	struct asked asked = {.first = first};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, asking_run, &asked), 0);
	pthread_join(thread, NULL);
	assert_true(asked.before.size != 0 && asked.after.size != 0 && asked.child.size != 0);
	assert_int_equal(asked.told.nice, asked.after.sched_nice);
	return asked;
}

/* Before Linux 6.12 no thread has a slice of its own. */
static bool has_slices(void)
{
	return attr_now().sched_runtime != 0;
}

TEST(slice)
{
	struct asked asked = ask((struct sched_attr){0});

	assert_int_equal(asked.told.slice_us, has_slices() ? SLICE_US : 0);
	assert_int_equal(asked.after.sched_runtime, has_slices() ? 1000 * SLICE_US : 0);
	assert_int_equal(asked.child.sched_runtime, asked.before.sched_runtime);
}

/* Ten steps, as far as there are as many; a thread that it starts has none of them below 0. */
TEST(nice)
{
	static const int32_t cases[][3] = {{-20, -20, 0}, {-15, -20, 0}, {0, -10, 0}, {15, 5, 5}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct asked asked = ask((struct sched_attr){.size = sizeof(struct sched_attr),
		                                             .sched_nice = cases[i][0]});

		if (asked.first.size == 0)
			skip(); /* without CAP_SYS_NICE */
		assert_int_equal(asked.told.nice, cases[i][1]);
		assert_int_equal(asked.child.sched_nice, cases[i][2]);
	}
}

/* A thread that may not have the priority has the slice all the same. */
TEST(no_rights)
{
	const struct rlimit none = {0};
	const bool root = geteuid() == 0;
	struct asked asked;

	if (root && syscall(SYS_setresuid, -1, 65534, -1) != 0)
		skip();
	setrlimit(RLIMIT_NICE, &none);
	asked = ask((struct sched_attr){0});
	if (root)
		assert_int_equal(syscall(SYS_setresuid, -1, 0, -1), 0);
	assert_int_equal(asked.told.nice, asked.before.sched_nice);
	assert_int_equal(asked.told.slice_us, has_slices() ? SLICE_US : 0);
}

/* These keep what they have. */
TEST(other_policies)
{
	static const struct sched_attr cases[] = {
		{.size = sizeof(cases[0]), .sched_policy = SCHED_IDLE},
		{.size = sizeof(cases[0]), .sched_policy = SCHED_FIFO, .sched_priority = 1},
		{.size = sizeof(cases[0]), .sched_policy = SCHED_RR, .sched_priority = 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct asked asked = ask(cases[i]);

		if (asked.first.size == 0)
			continue;
		assert_int_equal(asked.after.sched_policy, cases[i].sched_policy);
		assert_memory_equal(&asked.after, &asked.before, sizeof(asked.after));
		assert_int_equal(asked.told.slice_us, 0);
	}
}

/* SCHED_BATCH is a usual policy: it keeps it, and has the rest. */
TEST(batch)
{
	struct asked asked = ask((struct sched_attr){.size = sizeof(struct sched_attr),
	                                             .sched_policy = SCHED_BATCH,
	                                             .sched_nice = attr_now().sched_nice});

	assert_int_equal(asked.after.sched_policy, SCHED_BATCH);
	assert_int_equal(asked.told.slice_us, has_slices() ? SLICE_US : 0);
}
