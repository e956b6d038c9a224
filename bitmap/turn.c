// SPDX-License-Identifier: BSD-3-Clause
/* turn.c - see turn.h */

#include "bitmap/turn.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 100000
#define NICE_STEPS 10
#define NICE_LEAST (-20)

/* The C library has no functions for these calls before glibc 2.41. */
static struct sched_attr attr_get(void)
{
	struct sched_attr attr = {.size = sizeof(attr)};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) != 0)
		attr.sched_policy = SCHED_FIFO; /* Nothing is known, and nothing is asked. */
	return attr;
}

static void attr_set(struct sched_attr *attr)
{
	(void)syscall(SYS_sched_setattr, 0, attr, 0);
}

void turn_ask(struct turn *out)
{
	struct sched_attr attr = attr_get();

	*out = (struct turn){.nice = attr.sched_nice};
	if (attr.sched_policy != SCHED_NORMAL && attr.sched_policy != SCHED_BATCH)
		return;
	attr.sched_runtime = SLICE_NS;
	attr.sched_flags |= SCHED_FLAG_RESET_ON_FORK;
	attr_set(&attr);
	/* A second call, because one that asks for what may not be had changes nothing. */
	attr.sched_nice = attr.sched_nice - NICE_STEPS > NICE_LEAST ? attr.sched_nice - NICE_STEPS
	                                                            : NICE_LEAST;
	attr_set(&attr);
	attr = attr_get();
	*out = (struct turn){(uint32_t)(attr.sched_runtime / 1000), attr.sched_nice};
}
