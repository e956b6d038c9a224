# SPDX-License-Identifier: BSD-3-Clause
"""Arrays on a GPU, here an emulated one, by __cuda_array_interface__."""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

import emulated_gpu
import harness
import numpy
from emulated_gpu import Array, Stream, values_of

import winnow

WORLD = 2


setUpModule, tearDownModule = emulated_gpu.load, emulated_gpu.unload


class Arrays(harness.CommCase):
    world = WORLD

    def test_many_under_way(self):
        harness.on_threads(WORLD, lambda rank: emulated_gpu.many_under_way(self.comms[rank], rank, WORLD))

    def test_segments(self):
        def one(rank):
            array = Array(values_of(rank, "float32"), Stream())
            request = self.comms[rank].allreduce_async(array, segments=[(0, 10_000, 100), (10_000, 10_000, 0)])
            self.assertIs(request.wait(20), array)
            self.assertGreater(request.stats.blocks, request.stats.blocks_union)
            return array.read()

        want = sum(values_of(rank, "float32") for rank in range(WORLD))
        for found in harness.on_threads(WORLD, one):
            self.assertTrue((found == want).all())


class Traces(unittest.TestCase):
    """WINNOW_TRACE: the GPU finds what the CPU finds, for tensors that are the same."""

    HEAD, RECORD = 128, 64  # bytes; the last record is the job's totals

    def recorded(self, make, fine):
        """[what each rank's trace holds between head and end], and each rank's results."""
        with tempfile.TemporaryDirectory() as folder:
            # So little pinned memory that the large one below has to be scanned in two pieces.
            settings = {"WINNOW_TRACE": folder, "WINNOW_TRACE_BLOCK": str(fine), "WINNOW_STAGING_MB": "32"}
            with mock.patch.dict(os.environ, settings):
                comms = harness.join(WORLD)
            results = harness.on_threads(WORLD, lambda rank: self.work(comms[rank], make))
            for comm in comms:
                comm.close()
            paths = sorted(pathlib.Path(folder).glob("*.trace"))  # JOB.RUN.RANK.trace
            return [path.read_bytes()[self.HEAD : -self.RECORD] for path in paths], results

    def work(self, comm, make):
        """The results, as bytes."""
        arrays = []
        for number, count in enumerate((20_000, 1, 70_001, 3, 0, 40, 5000)):
            for dtype in ("float32", "float16", "float64", "int32"):
                values = values_of(comm.rank + 10 * number, dtype, count)
                values[count // 2 : count // 2 + 40 : 3] = -0.0 if dtype[0] == "f" else 0
                values[count // 3 : count // 3 + 1] = comm.rank + 1
                # In place: what is recorded is what was there before the result.
                arrays.append(comm.allreduce(make(values), block=17))
        arrays.append(comm.allreduce(make(values_of(comm.rank, "float32", 1_000_000)), block=17))
        values = values_of(comm.rank, "float32")
        arrays.append(comm.allreduce(make(values), out=make(numpy.empty_like(values)), op="max"))
        arrays.append(comm.allreduce(make(values), segments=[(0, 10_000, 100), (10_000, 10_000, 0)]))
        return [(array.read() if make is Array else array).tobytes() for array in arrays]

    def test_the_same_as_on_the_cpu(self):
        for fine in (1, 4, 100):
            with self.subTest(fine=fine):
                on_gpu, results = self.recorded(Array, fine)
                on_cpu, wanted = self.recorded(numpy.ascontiguousarray, fine)
                self.assertEqual(len(on_cpu), WORLD)
                self.assertGreater(min(map(len, on_cpu)), 27 * self.RECORD)
                self.assertNotEqual(on_cpu[0], on_cpu[1])
                self.assertTrue(on_gpu == on_cpu, "the traces differ")  # assertEqual() takes minutes to show where
                self.assertTrue(results == wanted, "the results differ")


class Refusals(harness.Refuses, unittest.TestCase):
    def test_tiles(self):
        with self.assertRaisesRegex(winnow.WinnowError, "has no tiles"):
            self.comm.allreduce(Array(numpy.zeros((40, 40), numpy.float32)), segments=[(0, 1600, 40, 8, 8)])

    def test_arrays(self):
        ones = numpy.ones((4, 4), numpy.float32)
        self.refused(Array(ones, typestr="|u1"), "data has dtype '|u1'")
        self.refused(Array(ones, typestr=">f4"), "data has dtype '>f4'")
        self.refused(Array(ones, mask=Array(ones)), "masked")
        self.refused(Array(ones, strides=(4, 16)), "not contiguous")
        self.refused(Array(ones, data=(0x1000, True)), "read-only")
        self.refused(Array(ones), "data is on a GPU and out is on the CPU", out=ones.copy())
        self.refused(ones.copy(), "data is on the CPU and out is on a GPU", out=Array(ones))
        self.refused(ones.copy(), "stream is only for data on a GPU", stream=5)
        self.refused(Array(ones), "stream is -1", stream=-1)

    def test_strides_that_say_nothing_new(self):
        for shape, strides in (((4, 4), (16, 4)), ((4, 1, 4), (16, 999, 4)), ((0, 4), (1, 1))):
            array = Array(numpy.ones(shape, numpy.float32), strides=strides)
            self.assertIs(self.comm.allreduce(array), array)

    def test_rows(self):
        values, index = numpy.ones((2, 4), numpy.float32), numpy.arange(2)
        for arguments in ((index, Array(values)), (Array(index), values)):
            with self.assertRaisesRegex(TypeError, "lists of rows are on the CPU"):
                self.comm.allreduce_rows(*arguments, 10)
