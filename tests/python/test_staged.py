# SPDX-License-Identifier: BSD-3-Clause
"""Gradients on a GPU, as far as that can be seen without one: who waits for what, in which thread.

winnow._cuda is replaced: tensors stay on the CPU, streams are names, and a copy to the host takes
as long as the test says.
"""

import contextlib
import copy
import threading
import time
import unittest
from unittest import mock

import harness
import torch

import winnow
import winnow.torch
from winnow import _cuda, _futures

WORLD = 2
GPU = "gpu0"


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

    def device_of(self, tensor):
        return GPU

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
        return [tensor.clone() for tensor in tensors]

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
        self.states = [winnow.torch.HookState(comm) for comm in self.comms]
        for rank, state in enumerate(self.states):
            state._completer._name = f"rank {rank}"  # of the stager's thread, which is not there yet
        self.addCleanup(self.end)

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

    def test_chosen_elements_are_a_list(self):
        """Of a gradient that is compressed the host sees what was chosen, and biases; the same as on the CPU."""
        for kind in (winnow.torch.TopK(0.05, warm_up=1, momentum=0.5), winnow.torch.RandomK(0.02), winnow.torch.Threshold(2.0, block=4)):
            with self.subTest(kind=kind):
                self.chosen(kind)

    def chosen(self, kind):
        models = [torch.nn.Linear(40, 30) for _ in range(WORLD)]
        theirs, onces = [copy.deepcopy(kind) for _ in models], [copy.deepcopy(kind) for _ in models]
        draw = torch.Generator().manual_seed(7)
        for state, model, mine, once in zip(self.states, models, theirs, onces):
            state.compress = mine
            mine.learn(model)
            once.learn(model)
        for step in range(4):
            gradients = [torch.randn(1230, generator=draw) for _ in models]
            sent, before = [], [state.stats().staged_out_bytes for state in self.states]
            for once, model, gradient in zip(onces, models, gradients):
                sent.append(gradient.clone())
                with mock.patch.object(_cuda, "device_of", lambda tensor: None):
                    once.take(sent[-1][:1200], model.weight)
            futures = []
            for state, model, gradient in zip(self.states, models, gradients):
                parameters = list(model.parameters())
                self.assertIsNone(state.segments(parameters, gradient))
                futures.append(state.reduce(gradient, None, 0, parameters))
            for future in futures:
                self.assertTrue(torch.equal(future.wait(), sum(sent) / WORLD))
            for state, mine, once, part, was in zip(self.states, theirs, onces, sent, before):
                warm = step < kind.warm_up
                self.assertEqual(state.stats().staged_out_bytes - was, 0 if warm else 12 * int(part.count_nonzero()))
                for what in ("memory", "velocity"):
                    for name, value in once.state_dict()[what].items():
                        self.assertTrue(torch.equal(mine.state_dict()[what][name], value), (step, what))

    def test_nothing_is_chosen(self):
        """A list may be empty."""
        model = torch.nn.Linear(40, 30, bias=False)
        for state in self.states:
            state.compress = winnow.torch.Threshold(2.0)
            state.compress.learn(model)
        futures = [state.reduce(torch.ones(1200), None, 0, [model.weight]) for state in self.states]
        for future in futures:
            self.assertFalse(future.wait().any())

    def test_what_is_not_compressed_on_a_gpu(self):
        ddp = mock.Mock(module=torch.nn.Linear(40, 30))
        for text, kind, options in (
            ("LargestSums is of", winnow.torch.LargestSums(0.1), {}),
            ("elastic=True is of", winnow.torch.TopK(0.1), {"elastic": True}),
            ("wire='bf16' is of", winnow.torch.TopK(0.1), {"wire": "bf16"}),
        ):
            with self.assertRaisesRegex(ValueError, f"parameter weight is on .*{text} gradients on the CPU"):
                winnow.torch._refuse_compress(ddp, kind, **{"wire": None, **options})
        winnow.torch._refuse_compress(ddp, winnow.torch.TopK(0.1), "fixed32")

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

    def test_a_worker_that_ends(self):
        """The copy of one is slow, the other's program ends: the first hears of it."""
        self.gpu.slow = {"rank 0-stage"}
        futures = self.reduce_all(lambda rank: rows_of(rank)[0])
        self.comms[1].abort("it had enough")
        self.gpu.open.set()
        for future in futures:
            with self.assertRaisesRegex(RuntimeError, "it had enough"):
                future.wait()
        self.assertIsInstance(self.states[0].error, winnow.WinnowError)

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


if __name__ == "__main__":
    unittest.main()
