/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu_plugin.h - opens winnow-cuda.so, the separate object that needs CUDA's driver */
#ifndef CLIENT_GPU_PLUGIN_H
#define CLIENT_GPU_PLUGIN_H

#include "kernels/gpu.h"

/*
 * gpu_plugin_open - the functions of winnow-cuda.so, which is opened at the first call and never
 * closed. WINNOW_CUDA_PLUGIN=PATH names another, for tests. -ENOENT: there is none; -ELIBACC: it
 * cannot be opened; one line in `why`. Any thread.
 */
int gpu_plugin_open(const struct gpu_calls **out, struct why *why);

#endif /* CLIENT_GPU_PLUGIN_H */
