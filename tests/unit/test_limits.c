// SPDX-License-Identifier: BSD-3-Clause
/* test_limits.c - memory limits of cgroups, in trees of files as kernels of both versions show them */

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aggregator/limits.h"
#include "tests/unit/unit.h"

static char root[] = "/tmp/winnow-limits-XXXXXX";

static int forget(const char *path, const struct stat *what, int kind, struct FTW *place)
{
	return remove(path);
}

static int begin(void **state)
{
	memcpy(strrchr(root, '-'), "-XXXXXX", 7);
	return mkdtemp(root) != NULL ? 0 : -1;
}

static int end(void **state)
{
	return nftw(root, forget, 16, FTW_DEPTH | FTW_PHYS);
}

/* A file below the root, and the folders to it. */
static void put(const char *path, const char *text)
{
	char whole[512];
	FILE *file;

	snprintf(whole, sizeof(whole), "%s/%s", root, path);
	for (char *at = strchr(whole + strlen(root) + 1, '/'); at != NULL;
	     at = strchr(at + 1, '/')) {
		*at = '\0';
		(void)mkdir(whole, 0700);
		*at = '/';
	}
	file = fopen(whole, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* Of a machine without cgroups. */
static uint64_t machine(void)
{
	return limits_memory("/nowhere/at/all");
}

TEST(machine)
{
	assert_in_range(machine(), 64u << 20, UINT64_MAX - 1);
	/* This process is some MB, and a quarter of the rest is not for jobs. */
	assert_int_equal(limits_bytes(1 << 20, 0), 1 << 20);
	if (limits_memory("") == machine()) {
		uint64_t all = machine() / 4 * 3, kernel = 64u << 20;

		assert_in_range(limits_bytes(UINT64_MAX, 0), all - (256u << 20),
		                all - (100u << 10));
		assert_in_range(limits_bytes(UINT64_MAX, 0) - limits_bytes(UINT64_MAX, kernel),
		                kernel / 2, kernel);
	}
	assert_int_equal(limits_bytes(UINT64_MAX, machine()), 0);
}

TEST_BETWEEN(v2, begin, end)
{
	put("proc/self/cgroup", "0::/kubepods/pod7/one\n");
	assert_true(limits_memory(root) == machine());
	put("sys/fs/cgroup/kubepods/pod7/one/memory.max", "max\n");
	assert_true(limits_memory(root) == machine());
	put("sys/fs/cgroup/kubepods/pod7/one/memory.max", "25165824\n");
	assert_int_equal(limits_memory(root), 25165824);
	/* The group above is smaller, or one above that. */
	put("sys/fs/cgroup/kubepods/pod7/memory.max", "20000000\n");
	assert_int_equal(limits_memory(root), 20000000);
	put("sys/fs/cgroup/kubepods/memory.max", "max\n");
	put("sys/fs/cgroup/memory.max", "19000000\n");
	assert_int_equal(limits_memory(root), 19000000);
	/* A neighbour's is not ours. */
	put("sys/fs/cgroup/kubepods/pod8/memory.max", "1000000\n");
	assert_int_equal(limits_memory(root), 19000000);
}

/* A container that sees its own group as the top of the tree, by whatever name it goes outside. */
TEST_BETWEEN(v2_inside, begin, end)
{
	const char *const lines[] = {"0::/\n", "0::/system.slice/docker-7.scope\n", "0::/../..\n"};

	put("sys/fs/cgroup/memory.max", "25165824\n");
	for (size_t i = 0; i < 3; i++) {
		put("proc/self/cgroup", lines[i]);
		assert_int_equal(limits_memory(root), 25165824);
	}
}

TEST_BETWEEN(v1, begin, end)
{
	put("proc/self/cgroup",
	    "12:pids:/a\n5:cpu,memory,io:/docker/7\n1:name=systemd:/b\n0::/c\n");
	put("sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/fs/cgroup/memory/b/memory.limit_in_bytes", "1\n"); /* not of this controller */
	assert_true(limits_memory(root) == machine());
	put("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "50331648\n");
	assert_int_equal(limits_memory(root), 50331648);
	put("sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "25165824\n");
	assert_int_equal(limits_memory(root), 25165824);
	/* Without a namespace, a container has the host's path and its own tree. */
	put("proc/self/cgroup", "5:memory:/docker/8\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n");
	assert_int_equal(limits_memory(root), 33554432);
}

TEST_BETWEEN(garbage, begin, end)
{
	const char *const lines[] = {
		"", "\n", "memory", "5:memory", ":::::", "5:memoryx:/\n5:xmemory:/\n", "0:memory"};

	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "7\n");
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		put("proc/self/cgroup", lines[i]);
		assert_true(limits_memory(root) == machine());
	}
	put("proc/self/cgroup", "5:memory:/\n");
	assert_int_equal(limits_memory(root), 7);
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "much\n");
	assert_true(limits_memory(root) == machine());
}

/* ---- descriptors ---- */

static rlim_t soft_limit(void)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	return limit.rlim_cur;
}

/* As many as are wanted, never fewer than there were, never more than the hard limit. */
TEST(descriptors)
{
	struct rlimit before, low;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = (struct rlimit){.rlim_cur = 60, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(limits_descriptors(50), 50);
	assert_int_equal(soft_limit(), 60);
	assert_int_equal(limits_descriptors(100), 100);
	assert_int_equal(soft_limit(), 100);
	assert_int_equal(limits_descriptors((uint32_t)before.rlim_max + 1), before.rlim_max);
	assert_int_equal(soft_limit(), before.rlim_max);
	setrlimit(RLIMIT_NOFILE, &before);
}

/* Connections get what is left; descriptors that are open count. */
TEST(connections)
{
	uint32_t out = 0, more;
	struct why why;
	pid_t child = fork();
	int status;

	if (child == 0) { /* a hard limit does not rise again */
		const struct rlimit limit = {.rlim_cur = 100, .rlim_max = 100};

		if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
			_exit(1);
		if (limits_connections(10, 20, &out, &why) != 0 || out != 10)
			_exit(2);
		if (limits_connections(1000, 20, &out, &why) != 0 || out > 80 - 3 || out < 40)
			_exit(3);
		if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0 ||
		    limits_connections(1000, 20, &more, &why) != 0 || more != out - 1)
			_exit(4);
		if (limits_connections(1000, 95, &more, &why) != -EMFILE ||
		    strstr(why.text, "100 descriptors may be open, but at least 1") == NULL)
			_exit(5);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}
