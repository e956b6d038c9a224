# SPDX-License-Identifier: BSD-3-Clause
"""torch's own tests of process groups over "winnow": torch_suite.py WORLD [TEST..]

They come in torch's wheel, in one module; what else it ships of that kind tests RPC. Those that torch
runs over Gloo or MPI only are for us also, so the module is loaded as for Gloo, and "winnow" is what
each test then gets. torch_suite.txt says which are not for us. They run as well, and one that passes
is reported; so is one that torch leaves out for a reason that is not in the list.
"""

import collections
import concurrent.futures
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

import harness  # noqa: F401 the package under test

LIST = pathlib.Path(__file__).with_suffix(".txt")
AT_ONCE = 3  # they wait more than they compute
TEST_S = 90  # for one test
PASS_MIN = 80  # torch 2.15: 95 with 2 ranks, 120 with 4
world = int(sys.argv[1])
os.environ.update(
    BACKEND="gloo", WORLD_SIZE=str(world), INIT_METHOD="file://", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"
)

from torch.testing._internal import common_distributed, common_utils  # noqa: E402

common_distributed.TIMEOUT_DEFAULT = TEST_S
if world > 2:
    # They need groups of ranks 1 and 2. torch leaves them out below 8 ranks, and calls that temporary.
    common_distributed.skip_if_small_worldsize = lambda test: test
_skip_if = common_utils.skip_but_pass_in_sandcastle_if
common_utils.skip_but_pass_in_sandcastle_if = lambda condition, reason: _skip_if(
    condition and not reason.startswith("Only MPI supports"), reason
)

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402

import winnow.torch  # noqa: E402,F401 registers the backend

suite.BACKEND = "winnow"


class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        suite.INIT_METHOD = os.environ["INIT_METHOD"]
        # Not spawned: the import of torch is most of what a fresh process does.
        self._start_processes(multiprocessing.get_context("fork").Process)

    def run_test(self, name, pipe):
        assert dist.get_backend() == "winnow"
        if name.startswith("test_accumulate_gradients_no_sync"):
            suite.BACKEND = "gloo"  # by this name they put the model on the CPU
        super().run_test(name, pipe)


def run(name):
    """(outcome, what torch or the test said)"""
    result = unittest.TestResult()
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        for stream in (1, 2):
            os.dup2(printed.fileno(), stream)
        Suite(name).run(result)
        sys.stdout.flush()
        printed.seek(0)
        said = printed.read()
    for _, reason in result.skipped:
        return "skipped", reason
    for _, trace in result.failures + result.errors:
        return "failed", said + trace
    return "ok", ""


def listed():
    """{test: why}, and patterns of what torch says."""
    lines = [re.split("  +", line, maxsplit=1) for line in LIST.read_text().splitlines() if line[:1] not in ("", "#")]
    assert all(len(line) == 2 for line in lines), f"{LIST.name}: a name or a pattern, two spaces, and why"
    tests = {name: why for name, why in lines if name.startswith("test_")}
    return tests, [pattern for pattern, why in lines if pattern not in tests]


def complaint(name, outcome, said, tests, patterns):
    """What is wrong with this outcome; None: nothing."""
    if outcome == "skipped":
        known = any(re.search(pattern, said) for pattern in patterns)
        return None if known else f'torch leaves it out, and {LIST.name} does not say why that is right: "{said}"'
    if outcome == "ok":
        return f"it passes: take it out of {LIST.name}" if name in tests else None
    return None if name in tests else said


def main():
    names = unittest.TestLoader().getTestCaseNames(Suite)
    tests, patterns = listed()
    wrong = {name: f"{LIST.name} has it, and torch no longer does" for name in tests if name not in names}
    names = sys.argv[2:] or names
    counts = collections.Counter()
    begun = time.monotonic()
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(AT_ONCE, context) as pool:
        for name, (outcome, said) in zip(names, pool.map(run, names)):
            counts[outcome] += 1
            found = complaint(name, outcome, said, tests, patterns)
            if found:
                wrong[name] = found
                print(f"{name}: {found}", flush=True)
    seconds = time.monotonic() - begun
    print(
        f"{world} ranks: {counts['ok']} passed, {counts['failed']} failed, {counts['skipped']} left out, "
        f"{len(wrong)} of them not as {LIST.name} says; {seconds:.0f} s: {' '.join(wrong)}"
    )
    if not sys.argv[2:] and counts["ok"] < PASS_MIN:
        sys.exit(f"only {counts['ok']} tests ran and passed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
