# SPDX-License-Identifier: BSD-3-Clause
"""What the tests share: the aggregator that test_python.sh started, fresh jobs, teams of ranks.

WINNOW_AGGREGATORS names the aggregator; WINNOW_LIBRARY the library under test.
"""

import atexit
import itertools
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()
PACKAGE = ROOT / "client" / "python"
sys.path.insert(0, str(PACKAGE))
os.environ["PYTHONPATH"] = str(PACKAGE)  # for children
os.environ.setdefault("WINNOW_LIBRARY", str(BUILD / "libwinnow.so"))
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ["WINNOW_INSECURE_NO_KEY"] = "1"

import numpy  # noqa: E402
import winnow  # noqa: E402
from ports import free_port  # noqa: E402

_job_numbers = itertools.count()

# Ranks are forked from a process that has imported PyTorch, and nothing more: the import is most of what a fresh one does.
# On a GPU they are fresh ones.
start_method = "forkserver"
multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo"])


def fresh_job():
    """A job name that no other test has used on this aggregator."""
    return f"test-{os.getpid()}-{next(_job_numbers)}"


def join(world, **settings):
    """`world` communicators of one fresh job, all in this process."""
    settings = {"job": fresh_job(), **settings}
    return on_threads(world, lambda rank: winnow.Comm(rank=rank, world=world, **settings))


class Case(unittest.TestCase):
    def fails(self, code, text, call, *arguments, **options):
        """With a WinnowError of this code, as "LOST", and a text like that."""
        with self.assertRaisesRegex(winnow.WinnowError, text) as caught:
            call(*arguments, **options)
        self.assertEqual(caught.exception.code, getattr(winnow.WinnowError, code))


class CommCase(Case):
    """`comms`, the communicators of one job of `world` workers, for all tests of the class."""

    world = 3

    @classmethod
    def setUpClass(cls):
        cls.comms = join(cls.world)

    @classmethod
    def tearDownClass(cls):
        on_threads(cls.world, lambda rank: cls.comms[rank].close())


def on_threads(count, function):
    """[function(0), .. function(count - 1)], at the same time; the first exception is raised."""
    results = outcomes(count, function)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def mismatches(world, call, text):
    """call(comm, rank) is not the same on all ranks of a fresh job: that ends it, and each hears of the difference, now
    and later."""
    comms = join(world)
    told = outcomes(world, lambda rank: call(comms[rank], rank))
    later = outcomes(world, lambda rank: comms[rank].allreduce(numpy.ones(3)))
    for error, again in zip(told, later):
        assert isinstance(error, winnow.WinnowError) and error.code == winnow.WinnowError.MISMATCH, told
        assert re.search(f"workers do not agree on the operation: {text}", str(error)), (text, error)
        assert str(again) == str(error), (error, again)
    on_threads(world, lambda rank: comms[rank].close())


def outcomes(count, function):
    """The same, with exceptions among the results."""
    results = [None] * count

    def call(index):
        try:
            results[index] = function(index)
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=call, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def error_of(call, *arguments, **options):
    """The text of what it raises; "": nothing."""
    try:
        call(*arguments, **options)
    except Exception as error:
        return str(error)
    return ""


class Aggregator:
    """A winnowd of one test's own, for tests that end it."""

    def __init__(self, *options, metrics="no"):
        self.metrics, self.options = metrics, options

    def __enter__(self):
        self.address = f"127.0.0.1:{free_port()}"
        options = ["--listen", self.address, "--metrics", self.metrics, "--insecure-no-key", "--log", "error", *self.options]
        self.process = subprocess.Popen([str(BUILD / "winnowd"), *options])
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __exit__(self, *exception):
        self.kill()


class Failure:
    """What a rank raised, as text: exceptions of all kinds travel so."""

    def __init__(self, kind, text, trace):
        self.kind, self.text, self.trace = kind, text, trace

    def __repr__(self):
        return f"{self.kind}: {self.text}"


class Team:
    """`world` processes with a Gloo process group, each running one function after the other.

    Functions are module-level and take (rank, world, *arguments).
    """

    def __init__(self, world):
        self.world = world
        self._directory = tempfile.TemporaryDirectory(prefix="winnow-test-")
        self._pipes, self.processes = _with_pipes(world, _member, f"file://{self._directory.name}/store")

    def start(self, function, *arguments, **options):
        for pipe in self._pipes:
            pipe.send((function, arguments, options))

    def collect(self, seconds=90):
        """Each rank's value or Failure; "died -9" for one that is gone, "hangs" for one that is late."""
        until = time.monotonic() + seconds
        return [self._collect(rank, until) for rank in range(self.world)]

    def _collect(self, rank, until):
        pipe = self._pipes[rank]
        try:
            if pipe.poll(max(until - time.monotonic(), 0)):
                return pipe.recv()
        except (EOFError, ConnectionError):
            self.processes[rank].join(30)  # a driver may take its time for what a GPU still does
            return f"died {self.processes[rank].exitcode}"
        return "hangs"

    def run(self, function, *arguments, **options):
        """The values of all ranks; AssertionError with the trace of the first that failed."""
        self.start(function, *arguments, **options)
        results = self.collect()
        for rank, result in enumerate(results):  # others may have waited in vain for this one
            if isinstance(result, Failure):
                raise AssertionError(f"rank {rank}: {result.trace}")
        for rank, result in enumerate(results):
            if isinstance(result, str):
                raise AssertionError(f"rank {rank} {result}")
        return results

    def kill(self, rank):
        os.kill(self.processes[rank].pid, signal.SIGKILL)

    def close(self):
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self._directory.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def chosen(state, rank, world, steps, block, warm_up=0, device="cpu"):
    """Reduces gradients of which state.compress chooses a fiftieth; each step's number when its average is that of plain
    ones, and at the end the memory is. All numbers are integers, so sums are exact."""
    import torch

    model = torch.nn.Linear(100, 50).to(device)
    state.name(model)
    parameters, draw = list(model.parameters()), torch.Generator().manual_seed(1)
    memories = [torch.zeros(5000) for _ in range(world)]
    for step in range(steps):
        gradients = [torch.randint(-999, 1000, (5050,), generator=draw).float() for _ in range(world)]
        mine = gradients[rank].to(device, copy=True)
        future = state.reduce(mine, state.segments(parameters, mine), 0, parameters)
        for gradient, memory in zip(gradients, memories):
            if step >= warm_up:
                winnow.topk(gradient[:5000], memory, -(-4096 // block // 50), chunk=4096, block=block)
        assert torch.equal(future.wait().cpu(), sum(gradients) / world), step
        yield step
    assert torch.equal(state.compress.state_dict()["memory"]["weight"].cpu(), memories[rank])


class TeamCase(unittest.TestCase):
    """One Team of `world` for all tests of the class."""

    world = 2

    @classmethod
    def setUpClass(cls):
        cls.team = Team(cls.world)

    @classmethod
    def tearDownClass(cls):
        cls.team.close()


def spawned(function, world, *arguments):
    """What `world` fresh processes send, or "died"; function takes (rank, world, store, *arguments, pipe)."""
    with tempfile.TemporaryDirectory(prefix="winnow-test-") as directory:
        pipes, processes = _with_pipes(world, function, f"file://{directory}/store", *arguments)
        results = [_sent(pipe) for pipe in pipes]
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
    return results


def program(function, *arguments):
    """A process that runs a function and ends as a program does, forked like a Team's; a multiprocessing.Process."""
    return _started(_run_program, function, arguments)


def _with_pipes(world, function, *arguments):
    """Our ends, and processes that run function(rank, world, *arguments, their end)."""
    ours, theirs = zip(*(multiprocessing.get_context(start_method).Pipe() for _ in range(world)))
    processes = [_started(function, rank, world, *arguments, theirs[rank]) for rank in range(world)]
    for pipe in theirs:
        pipe.close()
    return ours, processes


def _started(*call):
    process = multiprocessing.get_context(start_method).Process(target=_here, args=(dict(os.environ), *call), daemon=True)
    process.start()
    return process


def _run_program(function, arguments):
    try:
        function(*arguments)
    finally:
        atexit._run_exitfuncs()  # a forked process leaves these out


def _sent(pipe):
    try:
        return pipe.recv() if pipe.poll(60) else "hangs"
    except EOFError:
        return "died"


class Refuses:
    """For a TestCase: what a worker's allreduce() refuses, in one line."""

    @classmethod
    def setUpClass(cls):
        (cls.comm,) = join(1)

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()

    def refused(self, data, fix, **options):
        with self.assertRaises((TypeError, ValueError)) as caught:
            self.comm.allreduce(data, **options)
        self.assertIn(fix, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))


def _here(environment, function, *arguments):
    """function(*arguments) in our own environment of now, which is not the one that this process was forked with."""
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)


def _member(rank, world, store, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    while True:
        order = pipe.recv()
        if order is None:
            return
        function, arguments, options = order
        try:
            result = function(rank, world, *arguments, **options)
        except Exception as error:
            result = Failure(type(error).__name__, str(error), traceback.format_exc())
        pipe.send(result)
