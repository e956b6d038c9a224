/* SPDX-License-Identifier: BSD-3-Clause */
/* nic.h - what nic.c tells nic.bpf.c */
#ifndef TESTS_BENCH_NIC_H
#define TESTS_BENCH_NIC_H

#include <linux/types.h>

#define NIC_WORKERS 4
#define NIC_SKEW 8        /* frames that each worker is behind the one before it */
#define NIC_HEAD_BYTES 74 /* Ethernet, IP, UDP and our header */
#define NIC_DATA_BYTES 1024
#define NIC_BATCH 256 /* frames that the kernel makes before it hands them over */

struct nic_stream {
	__u8 heads[NIC_WORKERS][NIC_HEAD_BYTES + 6]; /* of each worker's PUSHes */
	__u16 check[NIC_WORKERS]; /* the sum that is still without frame and ack; */
	__u32 checked;            /* 0: send a UDP checksum of 0, none */
	__u32 out;                /* the device to send by */
	__u32 first, total;       /* frames */
	__u32 ack;                /* user space goes on writing these two: all workers' ack, */
	__u64 turns_max;          /* and how many turns the stream may take */
	__u8 data[NIC_DATA_BYTES];
	__u64 idle; /* turns waited, the program's own */
	__u64 turn; /* the program's own: NIC_WORKERS turns a frame */
};

#endif /* TESTS_BENCH_NIC_H */
