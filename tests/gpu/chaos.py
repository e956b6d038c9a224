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
import signal
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


class Job:
    """What the seed makes of it."""

    def __init__(self, build, aggregator, seed, folder):
        draw = random.Random(seed)
        self.is_node = draw.random() < 0.5
        self.operations = draw.choice([20, 60])
        self.seed, self.folder, self.build, self.aggregator = seed, folder, build, aggregator
        if self.is_node:
            self.nodes, self.gpus = draw.choice([(1, 2), (2, 2), (2, 1), (1, 3)])
            locals_ = range(self.gpus) if draw.random() < 0.5 else ["all"]
            self.members = [(node, local) for node in range(self.nodes) for local in locals_]
        else:
            self.members = list(range(draw.choice([1, 2, 3])))
        self.victim = draw.randrange(len(self.members))
        self.kill_after = draw.random() if draw.random() < 0.2 else None
        self.fault = {} if self.kill_after is not None else self._fault(draw)
        self.environments = [self._environment(draw, number) for number in range(len(self.members))]

    def _fault(self, draw):
        if self.is_node and draw.random() < 0.4:
            fault = f"{draw.choice(NCCL)}:{draw.randint(1, 40)}={draw.choice([1, 2, 3, 6])}"
            return {"EMULATED_CUDA_FAIL": fault}
        call = draw.choice(CALLS)
        return {
            "EMULATED_CUDA_FAIL": f"{call}:{draw.randint(1, draw.choice([10, 100, 600]))}"
            + ("=700" if call == "kernel" else "")
        }

    def _environment(self, draw, number):
        devices = 2
        if self.is_node:
            devices = self.gpus if self.members[number][1] == "all" else 1
        own = {
            "EMULATED_CUDA_DEVICES": str(devices),
            "EMULATED_CUDA_PAUSE_US": draw.choice(["0", "50", "500"]),
            "EMULATED_CUDA_SEED": str(self.seed * 10 + number),
            "WINNOW_JOIN_TIMEOUT_MS": "15000",
            "WINNOW_STAGING_MB": draw.choice(["0", "1", "64"]),
        }
        if "thread" in self.build:  # see tests/e2e/test_gpu.sh
            own["LD_PRELOAD"] = os.environ["WINNOW_CUDA_PLUGIN"]
        return {**own, **(self.fault if number == self.victim else {})}

    def __str__(self):
        what = f"killed after {self.kill_after:.2f} s" if self.kill_after is not None else self.fault
        kind = f"node{'s' if self.nodes > 1 else ''} of {self.gpus}" if self.is_node else "workers"
        return f"seed {self.seed}: {kind} {self.members}, member {self.victim}: {what}"

    def _arguments(self, member):
        node, local = member if self.is_node else (member, None)
        arguments = [f"{self.build}/tests/gpu/device_worker", f"aggregators={self.aggregator}"]
        arguments += [f"job=chaos.{self.seed}", f"rank={node}", f"seed={self.seed}", f"ops={self.operations}"]
        if not self.is_node:
            return arguments + [f"world={len(self.members)}"]
        arguments += [f"world={self.nodes}", f"gpus={self.gpus}", f"local={local}"]
        return arguments + ([] if local == "all" else [f"id={self.folder}/id.{self.seed}.{node}"])

    def run(self, limit):
        """What is wrong with it: lines."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        team = [
            subprocess.Popen(self._arguments(member), env={**os.environ, **environment}, **pipes)
            for member, environment in zip(self.members, self.environments)
        ]
        until = time.monotonic() + limit
        try:
            if self.kill_after is not None:
                time.sleep(self.kill_after)
                team[self.victim].send_signal(signal.SIGKILL)
            return [line for number, process in enumerate(team) for line in self._look(number, process, until)]
        finally:
            for process in team:
                process.kill()
                process.wait()

    def _look(self, number, process, until):
        try:
            text, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return [f"member {number} still runs"]
        status = process.returncode
        if number == self.victim and self.kill_after is not None:
            return []
        if status not in (WELL, FAILED, CUDA_FAILED) or "Sanitizer" in text or "runtime error" in text:
            return [f"member {number} ends with {status}: {text}"]
        if status == CUDA_FAILED and number != self.victim:
            return [f"member {number} has a failure of CUDA's that is another's: {text}"]
        if status == FAILED and not re.search(r"^device_\w+: .{20,}", text, re.M):
            return [f"member {number} fails without a line: {text}"]
        return []


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    build, aggregator, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[-1])
    os.environ.setdefault("WINNOW_CUDA_PLUGIN", os.path.abspath(f"{build}/winnow-cuda-emulated.so"))
    os.environ.setdefault("WINNOW_NCCL", os.path.abspath(f"{build}/tests/gpu/libemulated-cuda.so"))
    limit = 300 if "san-" in build else 90
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last + 1):
            job = Job(build, aggregator, seed, folder)
            wrong = job.run(limit)
            bad += bool(wrong)
            if wrong:
                print(job, *wrong, sep="\n    ", flush=True)
    print(f"{last + 1 - first} jobs, {bad} of them wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
