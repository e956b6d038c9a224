/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_xdp.h - what bench_xdp.c tells bench_xdp.bpf.c */
#ifndef TESTS_BENCH_BENCH_XDP_H
#define TESTS_BENCH_BENCH_XDP_H

#include <linux/types.h>

#define BENCH_WORKERS 4
#define BENCH_WINDOW 256

struct bench_packet { /* network byte order */
	__u32 from_ip, to_ip;
	__u16 from_port, to_port;
	__u32 data_bytes; /* of this machine's */
};

#endif /* TESTS_BENCH_BENCH_XDP_H */
