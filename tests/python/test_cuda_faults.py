# SPDX-License-Identifier: BSD-3-Clause
# long: it computes
"""Tensors on an emulated GPU: refusals, what must not wait, what crosses the bus, every call of CUDA failing once."""

import ctypes
import itertools
import os
import time
import types
import unittest
from unittest import mock

import emulated_gpu
import harness
import numpy
from emulated_gpu import Array, Stream

import winnow
from winnow import _native
from winnow._member import failure
from winnow._native import lib

BLOCK = 32
COUNT = 300_000  # three segments
FEW = 9000
AHEAD = 100  # operations, and parts of one: more than a job may have under way
GLOBAL, THREAD_LOCAL, RELAXED = range(3)  # modes of a capture
MIB = 2**20


setUpModule, tearDownModule = emulated_gpu.load, emulated_gpu.unload


def values_of(stride, count=COUNT):
    """Every `stride`-th block is full, the others are zero."""
    index = numpy.arange(count)
    return numpy.where(index // BLOCK % stride == 0, index % 1000 + 1, 0).astype(numpy.float32)


def comm_of_one(staging_mb=64):
    with mock.patch.dict(os.environ, WINNOW_STAGING_MB=str(staging_mb)):
        (comm,) = harness.join(1, block=BLOCK)
    return comm


def begin(comm, address, kind="cuda", stream=None, request=None, count=COUNT):
    """As C has it: a code, of an operation on so many floats."""
    options = _native.Options(memory=_native.MEMORIES[kind], stream=stream)
    given = (address, address, count, _native.DTYPES["float32"], _native.OPS["sum"])
    return lib.winnow_allreduce_async(*given, options, comm._handle, request)


class OneWorker(unittest.TestCase):
    """In a job of one worker, whose sum is what it gives."""

    def setUp(self):
        self.comm = comm_of_one()
        self.addCleanup(self.comm.close)

    def expect(self, array, stride):
        self.assertTrue((array.read() == values_of(stride, array.values.size)).all())


class Refusals(OneWorker):
    def refused(self, text, data, **options):
        with self.assertRaisesRegex(winnow.WinnowError, text) as caught:
            self.comm.allreduce(data, **options)
        self.assertEqual(caught.exception.code, winnow.WinnowError.INVALID)

    def test_memory(self):
        ones = numpy.ones(5, numpy.float32)
        here = Array(ones)
        emulated_gpu.cuda.cudaSetDevice(1)
        there, stream = Array(ones), Stream()
        emulated_gpu.cuda.cudaSetDevice(0)
        self.refused("two GPUs, 0 and 1", here, out=there)
        self.refused("on GPU 0, and the stream is on another", here, stream=stream.handle)
        self.refused("not in the memory of a GPU", Array(ones, data=(ones.ctypes.data, False)))
        self.refused("not aligned", Array(ones, data=(here.memory + 2, False)))
        self.assertTrue((self.comm.allreduce(here).read() == ones).all())

    def test_captured_streams(self):
        """The legacy stream waits for all that are blocking, so it cannot be asked, either."""
        array, stream, blocking = Array(numpy.ones(5, numpy.float32)), Stream(), Stream(blocking=True)
        for segments in (None, [(0, 5, 1)]):
            options = {"stream": stream.handle, "segments": segments}
            code = stream.captured(THREAD_LOCAL, lambda: self.refused("being captured", array, **options))
            self.assertEqual(code, 0)
        self.assertEqual(blocking.captured(RELAXED, lambda: self.refused("being captured", array)), 0)

    def test_streams_that_wait(self):
        """For an operation that is done on a GPU, and no other."""
        stream, request = Stream().hold(), ctypes.c_void_p()

        def said(code):
            return code, lib.winnow_last_error().decode()

        def wait():
            return said(lib.winnow_stream_wait(request, stream.handle))

        array, host = Array(values_of(2), stream), values_of(2)
        self.assertRegex(said(begin(self.comm, array.memory))[1], "request is NULL")
        self.assertRegex(wait()[1], "request is NULL")
        self.assertEqual(begin(self.comm, array.memory, "cuda", stream.handle, request), _native.OK)
        self.assertRegex(wait()[1], "not done")
        stream.let_go()
        self.assertEqual(lib.winnow_wait(request, -1, None), _native.OK)
        self.assertEqual(wait()[0], _native.OK)
        self.expect(array, 2)
        said_of = []
        stream.captured(RELAXED, lambda: said_of.append(wait()[1]))
        self.assertRegex(said_of[0], "being captured")
        self.assertEqual(lib.winnow_comm_check(self.comm._handle), _native.OK)
        lib.winnow_request_free(request)
        self.assertEqual(begin(self.comm, host.ctypes.data, "host", None, request), _native.OK)
        self.assertRegex(wait()[1], "no GPU")
        lib.winnow_wait(request, -1, None)
        lib.winnow_request_free(request)

    def test_no_gpu(self):
        """The communicator goes on."""
        for text, environment in (
            ("cannot open winnow-cuda.so: .*no-such-file", {"WINNOW_CUDA_PLUGIN": "/no-such-file.so"}),
            ("belongs to another version", {"WINNOW_CUDA_PLUGIN": str(harness.BUILD / "libwinnow.so")}),
            ("there is no GPU here", {"EMULATED_CUDA_DEVICES": "0"}),
            ("is for CUDA 13.0, winnow-cuda.so was", {"EMULATED_CUDA_FAIL": "cudaGetDeviceCount:1+=35"}),
        ):
            with harness.Team(1) as team:
                self.assertRegex(team.run(without_gpu, environment)[0][0], text)


def without_gpu(rank, world, environment):
    os.environ.update(environment)
    interface = {"shape": (5,), "typestr": "<f4", "data": (4096, False), "version": 3}
    with comm_of_one() as comm:
        try:
            comm.allreduce(types.SimpleNamespace(__cuda_array_interface__=interface))
        except winnow.WinnowError as error:
            comm.allreduce(numpy.ones(5))
            return [str(error)]


class Bytes(OneWorker):
    def test_what_is_reserved(self):
        pinned = {}
        for staging_mb in (64, 1):
            with comm_of_one(staging_mb=staging_mb) as comm:
                self.assertEqual(comm.stats().pinned_bytes, 0)  # before there is a tensor
                comm.allreduce(Array(values_of(1)))
                pinned[staging_mb] = comm.stats().pinned_bytes
        self.assertTrue(pinned[1] < pinned[64] <= 64 * MIB, pinned)

    def test_what_aggregators_grant(self):
        """Rings for windows that are larger than this worker's limit are not reserved."""
        with mock.patch.dict(os.environ, WINNOW_MEMORY_MB="5"), comm_of_one(staging_mb=1) as comm:
            stats = comm.stats()
            rings = stats.channels * stats.window * 2 * stats.payload
            self.assertGreater(rings, 5 * MIB, "the test's winnowd grants too little")
            with self.assertRaisesRegex(winnow.WinnowError, r"MB of pinned memory on this worker, but only 5 are allowed \(memory_mb"):
                comm.allreduce(Array(values_of(1)))
            self.assertEqual(comm.stats().pinned_bytes, 0)

    def test_what_crosses_the_bus(self):
        """Bitmaps and blocks go out, plans and sums come in; no later operation allocates."""
        words = 64 + 64 + 19  # of segments of 4096, 4096 and 1183 blocks
        self.comm.allreduce(Array(values_of(1)))
        pinned = self.comm.stats().pinned_bytes
        for stride in (1, 10, 100, 1000):
            own = -(-(COUNT // BLOCK) // stride) * BLOCK * 4
            given, out = Array(values_of(stride)), Array(values_of(1))
            before = emulated_gpu.cuda.emulated_cuda_allocations()
            request = self.comm.allreduce_async(given, out=out)
            request.wait()
            self.assertEqual(emulated_gpu.cuda.emulated_cuda_allocations(), before)
            self.assertEqual(request.stats.blocks_nonzero * BLOCK * 4, own)
            self.assertEqual(request.stats.staged_out_bytes, own + words * 8)
            self.assertEqual(request.stats.staged_in_bytes, own + words * 24)
            self.expect(out, stride)
        self.assertEqual(self.comm.stats().pinned_bytes, pinned)


class Late(OneWorker):
    def test_a_late_tensor(self):
        """Neither the call nor another operation waits for it."""
        stream = Stream().hold()
        slow, quick = Array(values_of(5), stream), Array(values_of(3))
        request = self.comm.allreduce_async(slow)
        self.comm.allreduce(quick)
        self.expect(quick, 3)
        self.assertFalse(request.test())
        stream.let_go()
        self.expect(request.wait(), 5)

    def test_far_ahead(self):
        """Calls do not wait where more operations are begun than a job may have under way; nor parts of one."""
        stream = Stream().hold()
        small, large = Array(values_of(3, 1000), stream), Array(values_of(3), stream)
        outs = [Array(numpy.empty(1000, numpy.float32)) for _ in range(AHEAD)]
        segments = [(number * 3000, 3000, (30, 50)[number % 2]) for number in range(AHEAD)]
        requests = [self.comm.allreduce_async(small, out=out) for out in outs]
        requests.append(self.comm.allreduce_async(large, segments=segments))
        stream.let_go()
        for request in requests:
            self.expect(request.wait(), 3)

    def test_leaving(self):
        stream = Stream().hold(0.3)
        arrays = [Array(values_of(2), stream) for _ in range(5)]
        begun = time.monotonic()
        for array in arrays:
            self.comm.allreduce_async(array)
        self.comm.close()
        self.assertEqual(emulated_gpu.cuda.cudaStreamSynchronize(stream.handle), 0)
        self.assertLess(time.monotonic() - begun, 20)

    def test_a_capture_of_another_thread(self):
        """It does not forbid a first operation, which reserves memory, and is not spoilt by it."""
        mode, found = ctypes.c_int(RELAXED), []

        def exchange():
            emulated_gpu.cuda.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))

        def operate(rank):
            exchange()
            array = Array(values_of(6))
            exchange()
            self.comm.allreduce(array)
            exchange()
            found.append(mode.value)  # the thread's own
            self.expect(array, 6)

        code = Stream().captured(GLOBAL, lambda: harness.on_threads(1, operate))
        self.assertEqual((code, found), (0, [GLOBAL]))

    def test_fork(self):
        """The communicator is the parent's: in a child nothing happens to it."""
        self.comm.allreduce(Array(values_of(4)))
        child = os.fork()
        if child == 0:
            lib.winnow_comm_destroy(self.comm._handle)
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0), (child, 0))
        self.expect(self.comm.allreduce(Array(values_of(4))), 4)


def on_the_second_gpu(rank, world):
    """Which GPUs have a context of this process, after operations on the second one, between which it moves."""
    emulated_gpu.load()
    emulated_gpu.cuda.cudaSetDevice(1)
    with comm_of_one() as comm:
        for membership in ("two", "three"):
            array = comm.allreduce(Array(values_of(3)))
            assert (array.read() == values_of(3)).all()
            comm.reconfigure(membership, 0, 1)
    return [emulated_gpu.cuda.emulated_cuda_has_context(gpu) for gpu in range(2)]


def meet_faults(rank, world, call):
    """In the first job the library's first call fails, in the next its second, until a job gets by. How many fail."""
    emulated_gpu.load()
    array = Array(values_of(1, FEW))
    for number in itertools.count(1):
        comm = comm_of_one(staging_mb=1)
        emulated_gpu.cuda.emulated_cuda_fail(f"{call}:{number}".encode())
        faults = emulated_gpu.cuda.emulated_cuda_faults()
        error = None
        try:
            comm.allreduce(array)
            comm.allreduce(array, wire="fixed32")
            request = ctypes.c_void_p()
            code = begin(comm, array.memory, request=request, count=FEW) or lib.winnow_wait(request, -1, None)
            code = code or lib.winnow_stream_wait(request, None)
            lib.winnow_request_free(request)
            if code:
                raise failure(code)
        except winnow.WinnowError as met:
            error = met
        emulated_gpu.cuda.emulated_cuda_fail(None)
        if error is None:
            assert emulated_gpu.cuda.emulated_cuda_faults() == faults, "a failure passes for a result"
            return number - 1
        assert error.code == winnow.WinnowError.GPU and " on GPU 0: " in str(error), error
        # A kernel's error sticks, so another call of another thread may have it first.
        assert call in str(error) or call in ("kernel", "cudaLaunchKernel"), error
        assert lib.winnow_comm_check(comm._handle) == winnow.WinnowError.GPU, "the job goes on"
        comm.close()
        if call == "kernel":  # nor is it anybody's argument in the next job
            with comm_of_one() as comm:
                code = lib.winnow_allreduce_cuda(array.memory, array.memory, 5, 1, 1, comm._handle, None, None)
            assert code == winnow.WinnowError.GPU, "a GPU that has failed passes for something else"
        emulated_gpu.cuda.emulated_cuda_reset()


CALLS = """cudaLaunchKernel kernel cudaMemsetAsync cudaEventRecord cudaStreamWaitEvent cudaPointerGetAttributes
    cudaStreamIsCapturing cudaEventQuery cudaHostAlloc cudaMalloc cudaStreamCreateWithPriority cudaEventCreateWithFlags
    cudaFuncGetAttributes cudaStreamSynchronize cudaDeviceGetAttribute""".split()


class Processes(unittest.TestCase):
    """That no other test has touched a GPU in, or does afterwards."""

    def test_the_second_gpu(self):
        """All threads begin on the first one: none makes a context there."""
        with harness.Team(1) as team:
            self.assertEqual(team.run(on_the_second_gpu), [[0, 1]])

    def test_every_call_fails(self):
        """A failure ends the job with a line that names call and GPU, and every request."""
        for call in CALLS:  # what jobs that fail leave behind on their GPU stays: one process each
            with self.subTest(call=call), harness.Team(1) as team:
                self.assertGreater(team.run(meet_faults, call)[0], 0)
