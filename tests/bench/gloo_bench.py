"""gloo_bench.py - Gloo's ring, through torch: RANK WORLD_SIZE MASTER_ADDR MASTER_PORT in the environment

gloo_bench.py BYTES ITERS, and GLOO_SITE, of so many ranks each, to sum up by sites: rank 0 prints one JSON object with the median over iterations of the slowest worker's
time, which starts at a barrier, and the mean of its own CPU time, in user space and in the kernel for it.
"""
import json
import os
import resource
import statistics
import sys
import time

import torch
import torch.distributed as dist

count, iters = int(sys.argv[1]) // 4, int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
tensor = torch.ones(count)
times, cpu = [], []
site = int(os.environ.get("GLOO_SITE") or 0)
if site > 0:
    firsts = dist.new_group(range(0, dist.get_world_size(), site))
    groups = [dist.new_group(range(first, first + site)) for first in range(0, dist.get_world_size(), site)]
    first, own = dist.get_rank() // site * site, groups[dist.get_rank() // site]


def sum_up():
    if site == 0:
        dist.all_reduce(tensor)
        return
    dist.reduce(tensor, first, group=own)
    if dist.get_rank() == first:
        dist.all_reduce(tensor, group=firsts)
    dist.broadcast(tensor, first, group=own)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


for i in range(-1, iters):
    tensor.fill_(1)
    dist.barrier()
    start, start_cpu = time.perf_counter(), cpu_seconds()
    sum_up()
    taken_cpu = cpu_seconds() - start_cpu
    slowest = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if i >= 0:
        times.append(slowest.item())
        cpu.append(taken_cpu)
errors = int((tensor != dist.get_world_size()).sum())
if dist.get_rank() == 0:
    print(json.dumps({"system": "gloo", "time_us": round(statistics.median(times) * 1e6, 1), "cpu_us": round(statistics.mean(cpu) * 1e6, 1), "errors": errors}))
dist.barrier()
