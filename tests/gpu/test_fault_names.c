// SPDX-License-Identifier: BSD-3-Clause
/* test_fault_names.c - a fault that no call can meet ends the program, so no test leans on it */

#include <dlfcn.h>

#include "tests/gpu/test_nccl.h"

static const char *const cuda_names[] = {
	"cudaEventRecord", "cudaLaunchHostFunc",  "cudaSetDevice",        "cudaLaunchKernel",
	"kernel",          "cuStreamWaitValue32", "cuStreamWriteValue32", "cudaMemcpyAsync",
};
static const char *const nccl_names[] = {"ncclGetUniqueId", "ncclAllGather", "async"};
static const char *const no_cuda_faults[] = {
	"cudaEventRecor:1",
	"cudaEventRecordd:1",
	"Record:1",
	":1",
	"cudaEventRecord",
	"cudaEventRecord:0",
	"cudaEventRecord:x",
	"cudaEventRecord:1=0",
	"cudaEventRecord:1;kernel:2",
	"kernel:1,cudaStreamCreate:2",  /* an alias of another call's */
	"kernel:1,ncclGetUniqueId:1=2", /* somebody else's */
	"myKernel:1",
};
static const char *const no_nccl_faults[] = {
	"ncclGetUniqueI:1=2",    "UniqueId:1=2",       "ncclGetUniqueId:1",
	"ncclGetUniqueId:1=0",   "async:3=6,nccl:1=2", "ncclGetUniqueId:0=2",
	"ncclGetUniqueId:1=2+3", "cudaMalloc:1=2",     "=1",
};

/* The first call of CUDA's in a process looks at the environment. */
static void begin_cuda(const char *fault)
{
	int count;

	setenv("EMULATED_CUDA_FAIL", fault, 1);
	(void)cudaGetDeviceCount(&count);
}

static void fail_later(const char *fault)
{
	emulated_cuda_fail(fault);
}

static void call_nccl(const char *fault)
{
	void *nccl = dlopen(library, RTLD_NOW);
	int (*call)(void *id);
	char id[NODE_ID_BYTES];

	setenv("FAKE_NCCL_FAIL", fault, 1);
	*(void **)&call = nccl != NULL ? dlsym(nccl, "ncclGetUniqueId") : NULL;
	if (call == NULL)
		_exit(3);
	(void)call(id);
}

/* What becomes of a process that does this: its status, and what it says. */
static int run(void (*body)(const char *fault), const char *fault, char *said, size_t room)
{
	ssize_t got = 0, more;
	int ends[2], status;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		body(fault);
		_exit(0);
	}
	close(ends[1]);
	while ((more = read(ends[0], said + got, room - 1 - (size_t)got)) > 0)
		got += more;
	said[got] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void expect_none(void (*body)(const char *fault), const char *const *faults, size_t count)
{
	char said[400];

	for (size_t i = 0; i < count; i++) {
		int status = run(body, faults[i], said, sizeof(said));

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
			fail_msg("'%s' is taken for a fault", faults[i]);
		assert_non_null(strstr(said, "no fault"));
		assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1); /* one line */
	}
}

static void expect_fault(void (*body)(const char *fault), const char *name, const char *ending)
{
	char fault[100], said[400];

	snprintf(fault, sizeof(fault), "%s:1000000%s", name, ending);
	if (run(body, fault, said, sizeof(said)) != 0)
		fail_msg("'%s' is not taken: %s", fault, said);
}

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static void test_cuda(void **state)
{
	(void)state;
	expect_none(begin_cuda, no_cuda_faults, COUNT(no_cuda_faults));
	expect_none(fail_later, no_cuda_faults, COUNT(no_cuda_faults));
	for (size_t i = 0; i < COUNT(cuda_names); i++) {
		expect_fault(begin_cuda, cuda_names[i], "");
		expect_fault(fail_later, cuda_names[i], "+");
		expect_fault(fail_later, cuda_names[i], "=700");
	}
}

static void test_nccl(void **state)
{
	(void)state;
	expect_none(call_nccl, no_nccl_faults, COUNT(no_nccl_faults));
	for (size_t i = 0; i < COUNT(nccl_names); i++)
		expect_fault(call_nccl, nccl_names[i], "=1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cuda),
		cmocka_unit_test(test_nccl),
	};

	return find_library() != 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
