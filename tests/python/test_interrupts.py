# SPDX-License-Identifier: BSD-3-Clause
# long: it computes
"""Ctrl-C in programs that do not think of it: KeyboardInterrupt, no crash, no hang, and peers are told at once.

Each run is two processes, of which the first gets SIGINT at a random moment of its loop. The last line of a
failure names the seed; INTERRUPTS=200 makes so many runs of each kind. test_torch.sh makes six.
"""

import concurrent.futures
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness

RUNS = int(os.environ.get("INTERRUPTS", "1"))
SEED = int(os.environ.get("WINNOW_SEED", "1"))
SOON_SECONDS = 15  # with what Python takes to end; silence would take a minute

HEAD = """
import sys, time, numpy, winnow
comm = winnow.Comm(job=sys.argv[1], rank=int(sys.argv[2]), world=2, silence_ms=60000)
x = numpy.ones(300_000, numpy.float32)
index, rows = numpy.arange(500) * 3, numpy.ones((500, 64), numpy.float32)
print("loops", flush=True)
"""

LOOPS = {
    "allreduce": "comm.allreduce(x)",
    "allreduce_async": """
    requests = [comm.allreduce_async(numpy.ones(300_000, numpy.float32)) for _ in range(4)]
    for request in requests:
        request.wait()
""",
    # Nobody waits for most of them, nor keeps them.
    "forgotten": """
    for _ in range(3):
        comm.allreduce_async(numpy.ones(100_000, numpy.float32))
    comm.allreduce(x)
""",
    "rows": "comm.allreduce_rows(index, rows, 2000)",
    "segments": "comm.allreduce(x, segments=[(0, 64_000, 100), (64_000, 64_000, 64)])",
}
LOOPS = {name: f"{HEAD}while True:\n    {text}" for name, text in LOOPS.items()}
LOOPS["with"] = f"{HEAD}with comm:\n    while True:\n        comm.allreduce(x)"

# A process group, its futures, and the hook of DDP.
GROUP = """
import os, sys, torch, torch.distributed as dist, winnow.torch
os.environ.update(WINNOW_JOB=sys.argv[1], WINNOW_SILENCE_MS="60000")
rank = int(sys.argv[2])
dist.init_process_group("winnow", init_method="file://" + sys.argv[3], rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 1000))
print("loops", flush=True)
while True:
    model(torch.ones(2, 300)).sum().backward()
    dist.all_reduce(torch.ones(1000, 300))
    work = dist.all_reduce(torch.ones(1000, 300), async_op=True)
    work.get_future().then(lambda future: future.value()).wait()
"""


# The first Comm() waits for a worker that is not there yet; what is interrupted must not be in the second one's way.
JOIN = """
import sys, numpy, winnow
join = lambda: winnow.Comm(job=sys.argv[1], rank=int(sys.argv[2]), world=2)
print("joins", flush=True)
if sys.argv[2] == "0":
    try:
        join()
    except KeyboardInterrupt:
        print("joins again", flush=True)
        comm = join()
else:
    comm = join()
print(int(comm.allreduce(numpy.ones(10))[0]), flush=True)
"""

# Alone, in and out.
OPEN = """
import sys, numpy, winnow
print("loops", flush=True)
while True:
    with winnow.Comm(job=sys.argv[1], rank=0, world=1) as comm:
        comm.allreduce(numpy.ones(10))
"""


def worker(code, *arguments):
    """A process that has said its first line."""
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    return process


class Pair:
    """Rank 0, which will be interrupted, and rank 1."""

    def __init__(self, code, *arguments):
        job = harness.fresh_job()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            self.workers = list(pool.map(lambda rank: worker(code, job, str(rank), *arguments), range(2)))

    def interrupt(self, seconds):
        time.sleep(seconds)
        self.workers[0].send_signal(signal.SIGINT)
        self.at = time.monotonic()

    def end(self):
        """[(exit status, seconds after the signal, the last line it said)] of both."""
        ends = []
        for worker in self.workers:
            try:
                said = worker.communicate(timeout=40)[1]
                ends.append((worker.returncode, time.monotonic() - self.at, said))
            except subprocess.TimeoutExpired:
                worker.kill()
                ends.append(("hangs", 0, worker.communicate()[1]))
        return ends


class Interrupts(unittest.TestCase):
    def check(self, code, *arguments, runs=RUNS, seed=SEED, by_torch=False):
        """by_torch: which may make a RuntimeError of it, where its C++ calls Python."""
        seconds = random.Random(seed)
        for run in range(runs):
            pair = Pair(code, *arguments)
            pair.interrupt(seconds.uniform(0.1, 0.3))
            (status, took, said), (other_status, other_took, other) = pair.end()
            with self.subTest(seed=seed, run=run):
                if not (by_torch and status == 1 and "RuntimeError" in said):
                    self.assertEqual(status, -signal.SIGINT, said)
                self.assertRegex(said, r"KeyboardInterrupt(: <EMPTY MESSAGE>)?\n")
                self.assertNotIn("Exception ignored", said)
                self.assertEqual(other_status, 1, other)
                self.assertRegex(other, "rank 0 .*aborted the job: .*KeyboardInterrupt")
                self.assertLess(max(took, other_took), SOON_SECONDS)

    def test_loops(self):
        for name, code in LOOPS.items():
            with self.subTest(loop=name):
                self.check(code)

    def test_joining(self):
        seconds = random.Random(SEED)
        for run in range(RUNS):
            job = harness.fresh_job()
            first = worker(JOIN, job, "0")
            time.sleep(seconds.uniform(0.02, 0.3))
            first.send_signal(signal.SIGINT)
            begun = time.monotonic()
            self.assertEqual(first.stdout.readline(), "joins again\n")
            self.assertLess(time.monotonic() - begun, SOON_SECONDS)
            second = worker(JOIN, job, "1")
            for process in (first, second):
                # communicate() would lose what came together with the first line.
                process.wait(timeout=30)
                said, failed = process.stdout.read(), process.stderr.read()
                with self.subTest(seed=SEED, run=run):
                    self.assertEqual((said, process.returncode), ("2\n", 0), failed)

    def test_opening(self):
        seconds = random.Random(SEED)
        for run in range(RUNS):
            process = worker(OPEN, harness.fresh_job())
            time.sleep(seconds.uniform(0.05, 0.3))
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=20)[1]
            with self.subTest(seed=SEED, run=run):
                self.assertEqual(process.returncode, -signal.SIGINT, said)
                self.assertRegex(said, r"KeyboardInterrupt\n\Z")

    def test_group(self):
        for run in range(max(RUNS // 3, 1)):
            with tempfile.TemporaryDirectory() as directory:
                self.check(GROUP, directory + "/store", runs=1, seed=SEED + run, by_torch=True)
