#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs on emulated GPUs with random faults: a call of CUDA or NCCL fails, or a process is killed.

    chaos.py BUILD HOST:PORT FIRST [LAST]

One job for each seed from FIRST to LAST, against the winnowd at HOST:PORT. The seed also decides pauses of streams
and whether much or the least possible memory is reserved for staging. Each process must end in time, with right
results or with a one-line error.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
import time

CALLS = (
    "cudaEventCreateWithFlags cudaEventRecord cudaFuncGetAttributes cudaHostAlloc cudaLaunchHostFunc cudaLaunchKernel"
    " cudaMalloc cudaMemcpyAsync cudaMemsetAsync cudaPointerGetAttributes cudaSetDevice cudaStreamCreateWithPriority"
    " cudaEventQuery cudaStreamIsCapturing cudaStreamQuery cudaStreamSynchronize cudaStreamWaitEvent kernel kernel"
).split()
NCCL = "ncclAllGather ncclBroadcast ncclReduce ncclReduceScatter async".split()
WELL, FAILED, CUDA_FAILED = 0, 1, 3  # exit statuses of the programs; the last: their own call of CUDA's


def draw_fault(draw, gpus):
    if gpus and draw.random() < 0.4:
        return f"{draw.choice(NCCL)}:{draw.randint(1, 40)}={draw.choice([1, 2, 3, 6])}"
    call = draw.choice(CALLS)
    return f"{call}:{draw.randint(1, draw.choice([10, 100, 600]))}" + ("=700" if call == "kernel" else "")


def run(build, aggregator, seed, folder):
    """What is wrong with the seed's job: lines."""
    draw = random.Random(seed)
    nodes, gpus = draw.choice([(1, 2), (2, 2), (2, 1), (1, 3), (1, 0), (2, 0), (3, 0), (2, 0)])  # no GPUs: workers with one
    parts = range(gpus) if gpus and draw.random() < 0.5 else ["all"]  # what GPUs of its node a process has
    members = [(node, part) for node in range(nodes) for part in parts]
    victim = draw.randrange(len(members))
    kill_after = draw.random() if draw.random() < 0.2 else None
    fault = draw_fault(draw, gpus) if kill_after is None else ""
    operations = draw.choice([20, 60])
    team = []
    for number, (node, part) in enumerate(members):
        environment = {
            "EMULATED_CUDA_DEVICES": str((gpus or 2) if part == "all" else 1),
            "EMULATED_CUDA_FAIL": fault if number == victim else "",
            "EMULATED_CUDA_PAUSE_US": draw.choice(["0", "50", "500"]),
            "EMULATED_CUDA_SEED": str(seed * 10 + number),
            "WINNOW_JOIN_TIMEOUT_MS": "15000",
            "WINNOW_STAGING_MB": draw.choice(["0", "1", "64"]),
        }
        if "thread" in build:  # see tests/e2e/gpu.sh
            environment["LD_PRELOAD"] = os.environ["WINNOW_CUDA_PLUGIN"]
        arguments = [f"aggregators={aggregator}", f"job=chaos.{seed}", f"seed={seed}", f"ops={operations}"]
        arguments += [f"rank={node}", f"world={nodes}", f"gpus={gpus}", f"local={part}", f"id={folder}/id.{seed}.{node}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [f"{build}/tests/gpu/device_worker", *arguments]
        team.append(subprocess.Popen(command, env={**os.environ, **environment}, **pipes))
    until = time.monotonic() + (300 if "san-" in build else 90)
    try:
        if kill_after is not None:
            time.sleep(kill_after)
            team[victim].kill()
        found = [look(process, until, number == victim, kill_after is not None) for number, process in enumerate(team)]
    finally:
        for process in team:
            process.kill()
            process.wait()
    what = fault or f"killed after {kill_after:.2f} s"
    return [f"seed {seed}: {nodes} x {gpus}, {members}, {victim}: {what}: {line}" for line in found if line]


def look(process, until, is_victim, killed):
    """What is wrong with a member's end, or nothing."""
    try:
        text, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"{process.args} still runs"
    status = process.returncode
    right = (
        (is_victim and killed)
        or status == WELL
        or (status == CUDA_FAILED and is_victim)
        or (status == FAILED and re.search(r"^device_\w+: .{20,}", text, re.M))
    )
    return "" if right and not re.search("Sanitizer|runtime error", text) else f"{process.args} ends with {status}: {text}"


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    build, aggregator, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[-1])
    os.environ.setdefault("WINNOW_CUDA_PLUGIN", os.path.abspath(f"{build}/winnow-cuda-emulated.so"))
    os.environ.setdefault("WINNOW_NCCL", os.path.abspath(f"{build}/tests/gpu/libemulated-cuda.so"))
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last + 1):
            wrong = run(build, aggregator, seed, folder)
            bad += bool(wrong)
            print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
    print(f"{last + 1 - first} jobs, {bad} of them wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
