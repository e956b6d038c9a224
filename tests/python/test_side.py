# SPDX-License-Identifier: BSD-3-Clause
"""winnow._cuda.side() on a torch.cuda that counts contexts, as CUDA 12 and newer make them."""

import threading
import types
import unittest
from unittest import mock

import harness  # noqa: F401

import winnow.torch  # noqa: F401
from winnow import _cuda


class FakeStream:
    def __init__(self, device):
        self.device = device
        self.after = []

    def wait_event(self, event):
        self.after.append(event)


class FakeCuda(types.ModuleType):
    """Current device and stream of each thread; `contexts`: devices that somebody has gone to."""

    def __init__(self):
        super().__init__("torch.cuda")
        self.local = threading.local()
        self.contexts = set()
        self.Stream = FakeStream

    def current_device(self):
        return getattr(self.local, "device", 0)

    def set_device(self, device):
        if device != self.current_device():
            self.contexts.add(device)
        self.local.device = device

    def current_stream(self):
        return getattr(self.local, "stream", None) or FakeStream(self.current_device())

    def set_stream(self, stream):
        self.set_device(stream.device)
        self.local.stream = stream

    def stream(self, stream):
        """As torch.cuda.StreamContext: at the end back to the stream, and device, of before."""
        cuda = self

        class Context:
            def __enter__(self):
                self.before = cuda.current_stream()
                cuda.set_stream(stream)

            def __exit__(self, *exception):
                cuda.set_stream(self.before)

        return Context()


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
        seen = []

        def work():
            for turn in range(3):
                with _cuda.side(3, "complete", f"mark {turn}"):
                    seen.append(self.cuda.current_stream())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(self.cuda.contexts, {3})
        self.assertEqual(len(set(seen)), 1)  # one stream for the role
        self.assertEqual(seen[0].device, 3)
        self.assertEqual(seen[0].after, ["mark 0", "mark 1", "mark 2"])

    def test_of_the_cpu_nothing_is_asked(self):
        with _cuda.side(None, "complete"):
            pass
        self.assertEqual(self.cuda.contexts, set())
        self.assertEqual(_cuda._streams, {})
