// SPDX-License-Identifier: BSD-3-Clause
/* fake_faults.c - FAKE_NCCL_FAIL: which call fails, and that there is such a call */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/fake_nccl.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Names that can fail, one after the other in a section of their own: FAULT() puts them there. */
extern const char __start_fake_nccl_names[], __stop_fake_nccl_names[];

static bool is_known(const char *name, size_t length)
{
	const size_t bytes = (uintptr_t)__stop_fake_nccl_names - (uintptr_t)__start_fake_nccl_names;
	const char *known = __start_fake_nccl_names;

	for (size_t i = 0; i < bytes; i += strlen(known + i) + 1)
		if (strlen(known + i) == length && strncmp(known + i, name, length) == 0)
			return true;
	return false;
}

struct fault {
	const char *name;
	size_t length;
	unsigned long call;
	ncclResult_t result;
};

/* "name:3=1", with commas between. False: there is no more. */
static bool fault_next(const char **text, struct fault *out)
{
	const char *all = *text, *colon = all != NULL ? strchr(all, ':') : NULL;
	char *end = NULL;
	bool well;

	if (all == NULL || *all == '\0')
		return false;
	out->name = all;
	out->length = colon != NULL ? (size_t)(colon - all) : 0;
	out->call = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
	well = out->call > 0 && *end == '=' && is_known(all, out->length);
	if (well)
		out->result = (ncclResult_t)strtol(end + 1, &end, 10);
	if (!well || out->result == ncclSuccess || (*end != '\0' && *end != ',')) {
		fprintf(stderr, "fake NCCL: no fault, want CALL:NUMBER=RESULT: %s\n", all);
		abort();
	}
	*text = *end == ',' ? end + 1 : end;
	return true;
}

/* What the environment says of this name: its calls are counted here. */
ncclResult_t fake_fault(const char *name)
{
	static struct {
		char name[32];
		unsigned calls;
	} seen[32];
	const char *text = getenv("FAKE_NCCL_FAIL");
	bool on = strcmp(name, "async") == 0;
	ncclResult_t result = ncclSuccess;
	struct fault each;
	size_t i = 0;

	pthread_mutex_lock(&lock);
	while (seen[i].name[0] != '\0' && strcmp(seen[i].name, name) != 0)
		i++;
	snprintf(seen[i].name, sizeof(seen[i].name), "%s", name);
	seen[i].calls++;
	while (fault_next(&text, &each))
		if (each.length == strlen(name) && strncmp(each.name, name, each.length) == 0 &&
		    (on ? seen[i].calls >= each.call : seen[i].calls == each.call))
			result = each.result;
	pthread_mutex_unlock(&lock);
	return result;
}
