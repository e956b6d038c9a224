# SPDX-License-Identifier: BSD-3-Clause
"""The emulated CUDA for tests: streams and arrays on its GPUs; tensors of torch that pass for such.

test_cuda_arrays.py and test_node*.py need it, and tests/gpu/ddp_on_gpu.py on a machine without a GPU.
"""

import collections
import contextlib
import ctypes
import os
import threading
import unittest
from unittest import mock

import harness
import numpy

import winnow

PLUGIN = harness.BUILD / "winnow-cuda-emulated.so"
RUNTIME = harness.BUILD / "tests" / "gpu" / "libemulated-cuda.so"
TO_DEVICE, TO_HOST = 1, 2
LOCAL = 2  # GPUs of a node, in tests of nodes
HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

class Runtime(ctypes.CDLL):
    """All integers that its functions take may be handles or addresses, which ctypes would cut."""

    def __getitem__(self, name):
        function = super().__getitem__(name)
        return lambda *given: function(*(ctypes.c_size_t(one) if isinstance(one, int) else one for one in given))


cuda = None


def load():
    """For setUpModule() and processes of a test: sets `cuda`, and the library's environment."""
    global cuda
    if not (PLUGIN.exists() and RUNTIME.exists()):
        raise unittest.SkipTest("there is no emulated CUDA in this build: make tests")
    # A torch with CUDA brings it, and it would be taken.
    if hasattr(ctypes.CDLL(None), "cudaMalloc"):
        raise unittest.SkipTest("CUDA's own runtime is in this process: run this file by itself")
    os.environ.update(WINNOW_CUDA_PLUGIN=str(PLUGIN), WINNOW_NCCL=str(RUNTIME))
    cuda = Runtime(str(RUNTIME))


def unload():
    os.environ.pop("WINNOW_CUDA_PLUGIN", None)
    os.environ.pop("WINNOW_NCCL", None)


def torchrun(rank, world, job="default"):
    """The environment of a process of nodes with LOCAL GPUs, as torchrun has it; which node, and which GPU."""
    load()
    node, local = divmod(rank, LOCAL)
    values = {"GROUP_RANK": node, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": LOCAL, "WORLD_SIZE": world, "RANK": rank}
    os.environ.update({name: str(value) for name, value in values.items()})
    os.environ["WINNOW_JOB"] = job
    return node, local


class Stream:
    """On this thread's GPU. One that is not `blocking` has nothing to do with the default stream."""

    def __init__(self, blocking=False):
        handle = ctypes.c_void_p()
        assert cuda.cudaStreamCreateWithFlags(ctypes.byref(handle), not blocking) == 0
        self.handle = handle.value
        self._held = []

    def hold(self, seconds=20):
        """What is put into it after this waits until let_go(), or for so long."""
        gate = threading.Event()
        self._held.append((gate, HostFunction(lambda _: gate.wait(seconds))))
        assert cuda.cudaLaunchHostFunc(self.handle, self._held[-1][1], None) == 0
        return self

    def let_go(self):
        for gate, _ in self._held:
            gate.set()

    def captured(self, mode, function):
        """Calls it while the stream is being captured; what the end of the capture says."""
        graph = ctypes.c_void_p()
        assert cuda.cudaStreamBeginCapture(self.handle, mode) == 0
        try:
            function()
        finally:
            code = cuda.cudaStreamEndCapture(self.handle, ctypes.byref(graph))
        return code

    def __del__(self):
        cuda.cudaStreamSynchronize(self.handle)
        cuda.cudaStreamDestroy(self.handle)


class Array:
    """A numpy array's copy on this thread's GPU, written late in the stream `late`."""

    def __init__(self, values, late=None, **interface):
        self.values, self.late = numpy.ascontiguousarray(values), late
        memory = ctypes.c_void_p()
        assert cuda.cudaMalloc(ctypes.byref(memory), max(self.values.nbytes, 1)) == 0
        self.memory = memory.value
        given = self.memory, self.values.ctypes.data, self.values.nbytes, TO_DEVICE
        code = cuda.cudaMemcpyAsync(*given, late.handle) if late else cuda.cudaMemcpy(*given)
        assert code == 0, code
        self.__cuda_array_interface__ = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (self.memory, False),
            "version": 3,
            "strides": None,
            "stream": late.handle if late else None,
            **interface,
        }

    def read(self):
        found = numpy.empty_like(self.values)
        assert cuda.cudaMemcpy(found.ctypes.data, self.memory, found.nbytes, TO_HOST) == 0
        return found

    def __del__(self):
        if self.late is not None:
            cuda.cudaStreamSynchronize(self.late.handle)
        cuda.cudaFree(self.memory)


def values_of(rank, dtype, count=20_000, seed=0):
    """Whole numbers in some blocks, each worker's own and common ones."""
    draw = numpy.random.default_rng(1000 * seed + rank)
    values = draw.integers(-8, 9, count).astype(dtype)
    values[numpy.repeat(draw.random(-(-count // 256)) < 0.9, 256)[:count]] = 0
    return values


COUNT = 20_000
CASES = (
    ("float32", "sum", COUNT), ("float16", "max", 1), ("float64", "prod", 0), ("int32", "min", 511),
    ("int64", "sum", 4097), ("float32", "avg", COUNT), ("float16", "sum", COUNT),
)  # fmt: skip
UFUNCS = {"max": numpy.maximum, "min": numpy.minimum, "prod": numpy.multiply}


def many_under_way(member, rank, world):
    """Of all kinds and shapes, in place and apart; written late, by the caller's word or the array's, and taken in another
    order. `member` is a Comm or a Node; the first operation's statistics."""
    streams = [Stream().hold(0.05) for _ in range(4)]
    started = []
    for number, (dtype, op, count) in enumerate(2 * CASES):
        shape = (-1, 4) if count % 4 == 0 else count
        given = [values_of(other, dtype, count, number).reshape(shape) for other in range(world)]
        want = UFUNCS.get(op, numpy.add).reduce(given) / (world if op == "avg" else 1)
        late = streams[number % 4]
        interface = {"data": (0, False)} if count == 0 else {"stream": None} if number % 3 else {}
        data = Array(given[rank], late, **interface)
        out = Array(numpy.full_like(given[rank], 7)) if number % 2 and count else data
        options = {"tag": number % 3 and number, "priority": number, "op": op, "block": (0, 32)[number % 2]}
        if number % 3:
            options["stream"] = late.handle
        started.append((member.allreduce_async(data, out=out, **options), data, out, want))
    for number, (request, data, out, want) in reversed(list(enumerate(started))):
        assert request.wait(30) is out
        if want.size:
            assert (out.read() == want).all(), number
            assert out is data or (data.read() == data.values).all(), number
    assert all(request.test() for request, *_ in started)
    return started[0][0].stats


# ---- tensors that pass for ones on a GPU ----

Gpu = collections.namedtuple("Gpu", "index")


class Carried:
    """A Node's request for a tensor that is on the CPU in truth."""

    def __init__(self, request, array, tensor):
        self._request, self._array, self._tensor = request, array, tensor

    @property
    def stats(self):
        return self._request.stats

    def wait(self, timeout=None):
        self._request.wait(timeout)
        self._tensor.detach().numpy()[...] = self._array.read()
        return self._tensor


class CarryingNode(winnow.Node):
    """One that carries tensors to its emulated GPU and back."""

    operations = 0  # of all
    tables = []  # the segments of each that had some

    def allreduce_async(self, data, *arguments, **options):
        CarryingNode.operations += 1
        if options.get("segments"):
            CarryingNode.tables.append(options["segments"])
        cuda.cudaSetDevice(self.gpus[0])
        array = Array(data.detach().numpy())
        return Carried(super().allreduce_async(array, *arguments, **options), array, data)


@contextlib.contextmanager
def passing_for(gpu):
    """Within, winnow's hook and group take tensors on the CPU for ones on GPU `gpu`, an emulated one."""
    import torch

    import winnow.torch
    from winnow import _cuda, _group

    replaced = {
        "device_of": lambda tensor: Gpu(gpu),
        "current": lambda: gpu,
        "future": lambda device: torch.futures.Future(),
        "mark": lambda device: None,
        "side": lambda device, role, after=None: contextlib.nullcontext(),
        "to_host": lambda tensors: [tensor.clone() for tensor in tensors],
        "to_device": lambda tensors, device: [tensor.clone() for tensor in tensors],
        "used_here": lambda *tensors: None,
    }
    with mock.patch.multiple(_cuda, **replaced), mock.patch.object(winnow.torch, "Node", CarryingNode):
        with mock.patch.object(_group, "Node", CarryingNode):
            yield
