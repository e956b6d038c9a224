# SPDX-License-Identifier: BSD-3-Clause
"""Gradients on a GPU, as far as that can be seen without one: who waits for what, in which thread.

winnow._cuda is replaced: tensors stay on the CPU, streams are names, and a copy to the host takes
as long as the test says.
"""

import contextlib
import copy
import threading
import time
import types
import unittest
from unittest import mock

import harness
import torch

import winnow.torch
from winnow import _cuda, _futures

WORLD = 2
GPU = "gpu0"
NARROW = "fixed16", "fixed8", "bf16"  # not of a GPU's memory, says winnow.h


class FakeGpu:
    """In place of winnow._cuda's functions."""

    def __init__(self):
        self.local = threading.local()
        self.copies = []  # (stream, thread) of each copy to the host
        self.marks = 0
        self.open = threading.Event()  # copies of slow threads wait for it
        self.slow = set()  # names of threads
        self.broken = None  # what the next copy raises
        self.completed_in = []
        self.out_bytes = self.in_bytes = 0  # that copies have moved
        self.on_host = []

    def device_of(self, tensor):
        return None if any(tensor is one or tensor._base is one for one in self.on_host) else GPU

    def future(self, device):
        return torch.futures.Future()

    def mark(self, device):
        self.marks += 1
        return f"mark {self.marks}"

    @contextlib.contextmanager
    def side(self, device, role, after=None):
        self.local.stream, before = (role, after), getattr(self.local, "stream", None)
        if role == "complete":
            self.completed_in.append(threading.current_thread().name)
        try:
            yield
        finally:
            self.local.stream = before

    def to_host(self, tensors):
        self.copies.append((self.local.stream, threading.current_thread().name))
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        if threading.current_thread().name in self.slow:
            assert self.open.wait(20)
        self.out_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        copies = [tensor.clone() for tensor in tensors]
        self.on_host += [copy for copy in copies if copy.dtype.is_floating_point]
        return copies

    def to_device(self, tensors, device):
        assert self.local.stream[0] == "complete", self.local.stream
        self.in_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return [tensor.clone() for tensor in tensors]

    def used_here(self, *tensors):
        assert self.local.stream[0] == "complete", self.local.stream


def rows_of(rank, height=50, width=3):
    """A COO tensor with some rows of its own and one of everybody's, and the dense one."""
    index = torch.tensor([[rank + 1, 7 * rank + 10, 40]])
    values = torch.arange(9, dtype=torch.float32).view(3, width) + rank
    tensor = torch.sparse_coo_tensor(index, values, (height, width))
    return tensor, tensor.to_dense()


class Staged(unittest.TestCase):
    def setUp(self):
        self.gpu = FakeGpu()
        names = ("device_of", "future", "mark", "side", "to_host", "to_device", "used_here")
        patch = mock.patch.multiple(_cuda, **{name: getattr(self.gpu, name) for name in names})
        patch.start()
        self.addCleanup(patch.stop)
        self.comms = harness.join(WORLD)
        for comm in self.comms:
            self.refuse_narrow(comm)
        self.states = [winnow.torch.HookState(comm) for comm in self.comms]
        for rank, state in enumerate(self.states):
            state._completer._name = f"rank {rank}"  # of the stager's thread, which is not there yet
        self.addCleanup(self.end)

    def refuse_narrow(self, comm):
        """As the library does, which takes these tensors for what they are."""
        begin = comm.allreduce_async

        def allreduce_async(data, *arguments, wire=None, **options):
            assert wire not in NARROW or _cuda.device_of(data) is None
            return begin(data, *arguments, wire=wire, **options)

        comm.allreduce_async = allreduce_async

    def end(self):
        self.gpu.open.set()
        for state, comm in zip(self.states, self.comms):
            state.close()
            comm.close()

    def until(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def reduce_all(self, make):
        return [state.reduce(make(rank)) for rank, state in enumerate(self.states)]

    def test_sparse_is_taken_to_the_host_elsewhere(self):
        sparse = self.reduce_all(lambda rank: rows_of(rank)[0])
        mean = sum(rows_of(rank)[1] for rank in range(WORLD)) / WORLD
        for future in sparse:
            result = future.wait()
            self.assertTrue(result.is_coalesced())
            self.assertTrue(torch.equal(result.to_dense(), mean))
        # After what the caller's stream held, in a thread and a stream of their own.
        self.assertEqual(sorted(thread for _, thread in self.gpu.copies), ["rank 0-stage", "rank 1-stage"])
        self.assertEqual({stream for stream, _ in self.gpu.copies}, {("stage", "mark 1"), ("stage", "mark 2")})
        self.assertEqual(set(self.gpu.completed_in), {"winnow-hook"})

    def test_copies_are_counted(self):
        """Out go this worker's rows, in comes the union: three rows each, one of them common."""
        for future in self.reduce_all(lambda rank: rows_of(rank)[0]):
            future.wait()
        out, received = 3 * (8 + 3 * 4), 5 * (8 + 3 * 4)  # an index, three values
        for state in self.states:
            stats = state.stats()
            self.assertEqual((stats.staged_out_bytes, stats.staged_in_bytes), (out, received))
        self.assertEqual((self.gpu.out_bytes, self.gpu.in_bytes), (WORLD * out, WORLD * received))
        # Dense ones are the library's to count, and here they are on the CPU.
        for future in self.reduce_all(lambda rank: torch.ones(1000)):
            future.wait()
        self.assertEqual([state.stats().staged_out_bytes for state in self.states], [out] * WORLD)

    def test_chosen_elements(self):
        """Something was chosen of a bucket: the host has it, all is as on the CPU, memories too, and the bucket comes back."""
        for kind, wire in (
            (winnow.torch.TopK(0.05, warm_up=1, momentum=0.5), None),
            (winnow.torch.TopK(0.05, block=2), "fixed8"),
            (winnow.torch.TopK(0.05, warm_up=2), "bf16"),
            (winnow.torch.TopK(0.03, block=4), "native"),
            (winnow.torch.TopK(0.05, chunk=64, decay=0.5), "fixed16"),
        ):
            with self.subTest(kind=kind, wire=wire):
                self.chosen(kind, wire)

    def chosen(self, kind, wire):
        models = [torch.nn.Linear(40, 30) for _ in range(WORLD)]
        with mock.patch.object(_cuda, "device_of", lambda tensor: None):
            others = [winnow.torch.HookState(comm, wire=wire, compress=copy.deepcopy(kind)) for comm in self.comms]
        states = [winnow.torch.HookState(comm, wire=wire, compress=copy.deepcopy(kind)) for comm in self.comms]
        for state in (*others, *states):
            self.addCleanup(state.close)
        for group in (others, states):
            for state, model in zip(group, models):
                state.name(model)
        draw = torch.Generator().manual_seed(7)
        for step in range(4):
            gradients = [torch.randn(1230, generator=draw) for _ in models]
            with mock.patch.object(_cuda, "device_of", lambda tensor: None):
                wanted = [each.clone() for each in self.reduced(others, models, gradients)]
            before = [state.stats() for state in states]
            found = self.reduced(states, models, gradients)
            for mine, result, other, reference, was in zip(states, found, others, wanted, before):
                self.assertTrue(torch.equal(result, reference), step)
                stats, size = mine.stats(), 0 if step < kind.warm_up and wire not in NARROW else 4 * 1230
                self.assertEqual(stats.staged_out_bytes - was.staged_out_bytes, size)
                self.assertEqual(stats.staged_in_bytes - was.staged_in_bytes, size)
                kept, theirs = mine.compress.state_dict(), other.compress.state_dict()
                for what in ("memory", "velocity"):
                    self.assertEqual(kept[what].keys(), theirs[what].keys())
                    for name, value in theirs[what].items():
                        self.assertTrue(torch.equal(kept[what][name], value), (step, what))
            if kind.momentum == 0:
                self.assertTrue(all(kept.any() for kept in theirs["memory"].values()))

    def test_ways(self):
        """Averages of a GPU are looked at, too. A bucket with tiles crosses the bus, which has to be worth it."""
        models = [torch.nn.Linear(1024, 32) for _ in range(WORLD)]
        with mock.patch.object(_cuda, "device_of", lambda tensor: None):
            others = [winnow.torch.HookState(comm, way="auto") for comm in self.comms]
        states = [winnow.torch.HookState(comm, way="auto") for comm in self.comms]
        for state in (*others, *states):
            self.addCleanup(state.close)
        for step, share in enumerate((0.1, 0.1, 0.1, 0.8, 0.8), 1):
            there = torch.arange(1024).remainder(10) < 10 * share
            gradients = [torch.cat([(torch.randn(32, 1024) * there).flatten(), torch.ones(32)]) for _ in models]
            with mock.patch.object(_cuda, "device_of", lambda tensor: None):
                wanted = [each.clone() for each in self.reduced(others, models, gradients)]
            before = [state.stats() for state in states]
            for mine, result, other, reference, was, model in zip(
                states, self.reduced(states, models, gradients), others, wanted, before, models
            ):
                self.assertTrue(torch.equal(result, reference), step)
                now, size = mine.stats(), 4 * (32 * 1024 + 32) if step in (2, 3, 4) else 0
                self.assertEqual(now.staged_out_bytes - was.staged_out_bytes, size)
                self.assertEqual(now.staged_in_bytes - was.staged_in_bytes, size)
                with mock.patch.object(_cuda, "device_of", lambda tensor: None):
                    way, costs = other.ways(model)["weight"], other.costs(model)["weight"]
                self.assertEqual(way, "columns")
                self.assertEqual(mine.ways(model)["weight"], "columns" if step < 4 else "blocks")
                dear = {"columns": 32 * 1024, "elements": 32 * 1024, "blocks": 0, "rows": 0}
                looked = {name: each + dear[name] for name, each in costs.items()}
                self.assertEqual(mine.costs(model)["weight"], looked)

    def reduced(self, states, models, gradients):
        futures = []
        for state, model, gradient in zip(states, models, gradients):
            parameters = list(model.parameters())
            tensor = gradient.clone()
            futures.append(state.reduce(tensor, state.segments(parameters, tensor), 0, parameters))
        return [future.wait() for future in futures]

    def test_nothing_is_chosen(self):
        """What travels may be empty."""
        model = torch.nn.Linear(40, 30, bias=False)
        for state in self.states:
            state.compress = winnow.torch.TopK(0.1)
            state.compress._learn(model)
        futures = [state.reduce(torch.zeros(1200), None, 0, [model.weight]) for state in self.states]
        for future in futures:
            self.assertFalse(future.wait().any())

    def test_nobody_waits_for_a_slow_copy(self):
        """Not the hook, not the buckets after it; and these do not take its tag."""
        self.gpu.slow = {"rank 0-stage"}
        sparse = self.reduce_all(lambda rank: rows_of(rank)[0])
        self.until(lambda: self.comms[1]._pending)  # rank 1's is submitted
        dense = self.reduce_all(lambda rank: torch.full((1000,), float(rank + 1)))
        again = self.reduce_all(lambda rank: rows_of(rank)[0])
        # Rank 1's is complete, too, but futures are completed in order.
        self.assertTrue(torch.equal(dense[0].wait(), torch.full((1000,), 1.5)))
        self.assertFalse(any(future.done() for future in sparse + again))
        self.gpu.open.set()
        mean = sum(rows_of(rank)[1] for rank in range(WORLD)) / WORLD
        for future in sparse + again:
            self.assertTrue(torch.equal(future.wait().to_dense(), mean))

    def test_a_failing_copy(self):
        state = self.states[0]
        self.gpu.broken = RuntimeError("an illegal memory access was encountered")
        with self.assertRaisesRegex(RuntimeError, "illegal memory access"):
            state.reduce(rows_of(0)[0]).wait()
        self.assertIn("illegal memory access", str(state.error))

    def test_a_stream_that_cannot_be_made(self):
        def side(device, role, after=None):
            raise RuntimeError("no stream")

        with mock.patch.object(_cuda, "side", side):
            for future in self.reduce_all(lambda rank: torch.ones(10)):
                with self.assertRaisesRegex(RuntimeError, "no stream"):
                    future.wait()

    def test_threads_end(self):
        def threads():
            return {thread.name for thread in threading.enumerate()} & {"rank 0-stage", "rank 1-stage"}

        self.gpu.slow = {"rank 0-stage"}
        futures = self.reduce_all(lambda rank: rows_of(rank)[0])
        self.assertEqual(len(threads()), 2)
        for state in self.states:
            state.close()  # what is under way is completed
        self.gpu.open.set()
        for future in futures:
            future.wait()
        self.until(lambda: not threads())


class Values(unittest.TestCase):
    def test_a_failure_travels_through_a_future_with_devices(self):
        """Such a future pickles its value to find tensors, whatever the exception holds."""
        failure = _futures._Failure(RuntimeError(threading.Lock()))
        self.assertEqual(torch._jit_internal._extract_tensors(failure), [])


class CountingCuda:
    """In place of torch.cuda, it counts contexts as CUDA 12 and newer make them: which GPUs threads have gone to from the first one, where each begins; streams that were current; their events."""

    def __init__(self):
        self.local = threading.local()
        self.contexts, self.streams, self.events = set(), [], []

    def set_device(self, device):
        if device != getattr(self.local, "device", 0):
            self.contexts.add(device)
        self.local.device = device

    def Stream(self, device):
        return types.SimpleNamespace(device=device, wait_event=self.events.append)

    @contextlib.contextmanager
    def stream(self, stream):
        """As torch.cuda.StreamContext: at the end back to the device of before."""
        before = getattr(self.local, "device", 0)
        self.set_device(stream.device)
        self.streams.append(stream)
        yield
        self.set_device(before)


class TestSide(unittest.TestCase):
    def setUp(self):
        self.cuda = CountingCuda()
        for patch in (
            mock.patch.object(_cuda, "torch", types.SimpleNamespace(cuda=self.cuda)),
            mock.patch.dict(_cuda._streams, clear=True),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_thread_makes_no_context_but_on_its_gpu(self):
        def work(thread):
            for turn in range(3):
                with _cuda.side(3, "complete", f"mark {turn}"):
                    pass

        harness.on_threads(1, work)
        self.assertEqual(self.cuda.contexts, {3})
        self.assertEqual(self.cuda.streams, 3 * self.cuda.streams[:1])  # one stream for the role
        self.assertEqual(self.cuda.events, ["mark 0", "mark 1", "mark 2"])

    def test_of_the_cpu_nothing_is_asked(self):
        with _cuda.side(None, "complete"):
            pass
        self.assertEqual((self.cuda.contexts, self.cuda.streams, _cuda._streams), (set(), [], {}))
