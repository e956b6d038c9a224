// SPDX-License-Identifier: BSD-3-Clause
/* gpu_plugin.c - see gpu_plugin.h */

#include "client/gpu/gpu_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/net/net.h"

static int open_once(const struct gpu_calls **out, struct why *why)
{
	const char *named = getenv("WINNOW_CUDA_PLUGIN");
	const struct gpu_calls *calls;
	char path[PATH_MAX];
	void *object;

	if (named == NULL && !net_plugin_path("cuda", path))
		return why_set(why, -ENOENT,
		               "winnow-cuda.so is missing: this build has no support for GPUs");
	if (named != NULL)
		snprintf(path, sizeof(path), "%s", named);
	object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (object == NULL)
		return why_set(why, -ELIBACC, "cannot open winnow-cuda.so: %.180s", dlerror());
	calls = dlsym(object, GPU_PLUGIN_SYMBOL);
	if (calls == NULL || strcmp(calls->version, WINNOW_VERSION) != 0) {
		dlclose(object);
		return why_set(why, -ELIBACC, "%s belongs to another version, not to %s", path,
		               WINNOW_VERSION);
	}
	*out = calls;
	return 0;
}

int gpu_plugin_open(const struct gpu_calls **out, struct why *why)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static const struct gpu_calls *opened;
	int err = 0;

	pthread_mutex_lock(&lock);
	if (opened == NULL)
		err = open_once(&opened, why);
	*out = opened;
	pthread_mutex_unlock(&lock);
	return err;
}
