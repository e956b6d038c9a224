// SPDX-License-Identifier: BSD-3-Clause
/* sum_avx2.c - for CPUs with AVX2: the compiler makes eight words at a time of it */

#include "aggregator/net/dpdk/sum_loop.h"

const struct sum_engine sum_avx2 = {"avx2", sum_cpu_avx2, sum_loop};
