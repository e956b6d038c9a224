// SPDX-License-Identifier: BSD-3-Clause
/* sum_any.c - for any CPU */

#include "aggregator/net/dpdk/sum_loop.h"

const struct sum_engine sum_any = {"any", sum_cpu_any, sum_loop};
