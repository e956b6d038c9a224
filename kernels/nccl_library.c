// SPDX-License-Identifier: BSD-3-Clause
/* nccl_library.c - see nccl_library.h */

#if __has_include(<nccl.h>)

#include "kernels/nccl_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NCCL_OLDEST 21800 /* ncclCommSplit */

struct nccl_functions nccl;

static struct why nccl_why; /* why it is not open; "": it is */
static pthread_once_t nccl_once = PTHREAD_ONCE_INIT;

/* NCCL says no more than that CUDA failed; after most failures every call of CUDA's says how. */
int nccl_failed(struct why *why, const char *call, int device, ncclResult_t result)
{
	cudaError_t err = cudaSuccess;

	if (result == ncclUnhandledCudaError && cudaSetDevice(device) == cudaSuccess)
		err = cudaFree(NULL);
	else if (result == ncclUnhandledCudaError)
		err = cudaPeekAtLastError();
	if (err != cudaSuccess)
		return cuda_failed(why, call, device, err);
	(void)cudaGetLastError();
	return why_set(why, -EIO, "%s on GPU %d: %s", call, device, nccl.GetErrorString(result));
}

static void find_library(void)
{
	const char *name = getenv("WINNOW_NCCL");
	void *library, *symbol = NULL;
	int version = 0;

	if (name == NULL || name[0] == '\0')
		name = "libnccl.so.2";
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		why_set(&nccl_why, -ENOENT,
		        "cannot open NCCL: %.160s; WINNOW_NCCL says where it is", dlerror());
		return;
	}
#define NCCL_FIND(name)                                                                            \
	symbol = dlsym(library, "nccl" #name);                                                     \
	memcpy(&nccl.name, &symbol, sizeof(symbol));                                               \
	if (symbol == NULL)                                                                        \
		why_set(&nccl_why, -ENOENT, "NCCL lacks %s", "nccl" #name);
	NCCL_CALLS(NCCL_FIND)
	if (nccl.GetVersion != NULL && nccl.GetVersion(&version) == ncclSuccess &&
	    version < NCCL_OLDEST)
		why_set(&nccl_why, -ENOENT, "NCCL is of version %d.%d: 2.18 is the oldest",
		        version / 10000, version / 100 % 100);
}

int nccl_open(struct why *why)
{
	pthread_once(&nccl_once, find_library);
	*why = nccl_why;
	return why->text[0] == '\0' ? 0 : -ENOENT;
}

#else
typedef int nccl_library_is_empty;
#endif
