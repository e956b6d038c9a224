# SPDX-License-Identifier: BSD-3-Clause
"""winnow._cuda.side() on a torch.cuda that counts contexts, as CUDA 12 and newer make them."""

import contextlib
import threading
import types
import unittest
from unittest import mock

import harness

import winnow.torch  # noqa: F401
from winnow import _cuda


class FakeCuda:
    """Which GPUs threads have gone to from the first one, where each begins; streams that were current; their events."""

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
        self.cuda = FakeCuda()
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
