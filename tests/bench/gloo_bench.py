"""gloo_bench.py - Gloo's ring, through torch: RANK WORLD_SIZE MASTER_ADDR MASTER_PORT in the environment

gloo_bench.py BYTES ITERS: rank 0 prints one JSON object with the median over iterations of the slowest worker's
time, which starts at a barrier.
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

count, iters = int(sys.argv[1]) // 4, int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
tensor = torch.ones(count)
times = []
for i in range(-1, iters):
    tensor.fill_(1)
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(tensor)
    slowest = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if i >= 0:
        times.append(slowest.item())
errors = int((tensor != dist.get_world_size()).sum())
if dist.get_rank() == 0:
    print(json.dumps({"system": "gloo", "time_us": round(statistics.median(times) * 1e6, 1), "errors": errors}))
dist.barrier()
