/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda.h - the few types of CUDA's driver interface that Winnow uses
 *
 * cudaGetDriverEntryPointByVersion() returns its calls by name, as with CUDA.
 */
#ifndef WINNOW_EMULATED_CUDA_H
#define WINNOW_EMULATED_CUDA_H

typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult;
typedef struct CUctx_st *CUcontext;

#endif
