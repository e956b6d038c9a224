/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* order.bpf.h - orders memory accesses between user space and the XDP program */
#ifndef EBPF_ORDER_BPF_H
#define EBPF_ORDER_BPF_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* x86 keeps the order of writes, and of reads. The loader sets this on other CPUs; 0 costs nothing. */
const volatile __u32 order_weak;

/* All accesses before it come before those after it. In BPF an exchange is a full barrier. */
static __always_inline void order_keep(void)
{
	__u64 place = 0;

	asm volatile("" : : "r"(&place) : "memory");
	if (order_weak)
		__sync_lock_test_and_set(&place, 1);
	asm volatile("" : : : "memory");
}

#endif /* EBPF_ORDER_BPF_H */
