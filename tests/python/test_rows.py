# SPDX-License-Identifier: BSD-3-Clause
"""Lists of rows and segments of rows, against sums that numpy makes of whole tables."""

import ctypes

import harness
import numpy
import torch

import winnow
from winnow import _native

WORLD = 3
ROWS = 5000
WIDTH = 64


def tables(seed, rows, width, touched, dtype=numpy.float32):
    """[WORLD] pairs of ascending row numbers and their values, small integers: sums are exact."""
    draw = numpy.random.default_rng(seed)
    result = []
    for rank in range(WORLD):
        index = numpy.sort(draw.choice(rows, touched[rank], replace=False)).astype(numpy.int64)
        values = draw.integers(-8, 9, (len(index), width)).astype(dtype)
        result.append((index, values))
    return result


def whole(parts, rows, width):
    table = numpy.zeros((rows, width))
    for index, values in parts:
        table[index] += values
    return table


def union(parts):
    return numpy.unique(numpy.concatenate([index for index, _ in parts]))


class Rows(harness.CommCase):
    world = WORLD

    def reduce(self, parts, rows, **options):
        return harness.on_threads(
            WORLD, lambda rank: self.comms[rank].allreduce_rows(*parts[rank], rows, **options)
        )

    def check(self, parts, rows, **options):
        wanted = whole(parts, rows, parts[0][1].shape[1])
        for index, values in self.reduce(parts, rows, **options):
            numpy.testing.assert_array_equal(index, union(parts))
            numpy.testing.assert_array_equal(values, wanted[index])

    def test_shapes(self):
        for rows, width, touched in (
            (ROWS, WIDTH, (250, 250, 250)),
            (ROWS, WIDTH, (0, 100, 1)),
            (ROWS, WIDTH, (0, 0, 0)),
            (ROWS, WIDTH, (ROWS, ROWS, 7)),
            (30_000, 1, (900, 20, 30_000)),
            (70_000, 17, (6000, 6000, 0)),
            (40, 3000, (10, 0, 20)),  # a row is more than a datagram
            (6, 4, (1, 2, 0)),  # all of it fits the announcement
            (1, 65536, (1, 0, 1)),
        ):
            with self.subTest(rows=rows, width=width, touched=touched):
                self.check(tables(1, rows, width, touched), rows)

    def test_fixed_point(self):
        self.check(tables(2, ROWS, WIDTH, (300, 0, 800)), ROWS, wire="fixed32")

    def test_types(self):
        for dtype in (numpy.float16, numpy.float64, numpy.int32, numpy.int64):
            with self.subTest(dtype=dtype):
                self.check(tables(3, 700, 16, (70, 0, 20), dtype), 700)

    def test_torch_bfloat16_in_any_order(self):
        parts = tables(4, ROWS, WIDTH, (250, 400, 3))
        wanted = whole(parts, ROWS, WIDTH)
        order = numpy.random.default_rng(5).permutation
        shuffled = []
        for index, values in parts:
            turn = order(len(index))
            shuffled.append(
                (torch.from_numpy(index[turn]), torch.from_numpy(values[turn]).to(torch.bfloat16))
            )
        for index, values in self.reduce(shuffled, ROWS):
            numpy.testing.assert_array_equal(index.numpy(), union(parts))
            numpy.testing.assert_array_equal(values.float().numpy(), wanted[index.numpy()])

    def test_average(self):
        parts = tables(6, ROWS, WIDTH, (250, 0, 250))
        wanted = whole(parts, ROWS, WIDTH) / WORLD
        for index, values in self.reduce(parts, ROWS, op="avg"):
            numpy.testing.assert_allclose(values, wanted[index], rtol=1e-6)

    def test_only_rows_travel(self):
        """A table of 512 MB, of which each worker has 250 rows: 64,000 bytes."""
        rows = 2_000_000
        parts = tables(7, rows, WIDTH, (250, 250, 250))
        before = [comm.stats().sent_bytes for comm in self.comms]
        results = self.reduce(parts, rows)
        sent = [comm.stats().sent_bytes - was for comm, was in zip(self.comms, before)]
        for index, _ in results:
            numpy.testing.assert_array_equal(index, union(parts))
        # Announcing takes a bit a block, where a segment of 4096 has any; the rest is values.
        self.assertLess(max(sent), 1_000_000)

    def test_with_whole_tensor(self):
        """A worker with the whole table, one with a list that wants the whole, one with a list."""
        parts = tables(8, ROWS, WIDTH, (250, 300, 20))
        wanted = whole(parts, ROWS, WIDTH)
        first = numpy.zeros((ROWS, WIDTH), numpy.float32)
        first[parts[0][0]] = parts[0][1]
        second = numpy.full((ROWS, WIDTH), 7, numpy.float32)

        def call(rank):
            comm = self.comms[rank]
            if rank == 0:
                return comm.allreduce(first, block=WIDTH)
            if rank == 2:
                return comm.allreduce_rows(*parts[2], ROWS)
            starts = parts[1][0] * WIDTH
            code = winnow._comm.lib.winnow_allreduce_sparse_block(
                parts[1][1].ctypes.data, starts.ctypes.data, len(starts), WIDTH, second.ctypes.data,
                second.size, _native.DTYPES["float32"], _native.OPS["sum"], comm._handle,
            )  # fmt: skip
            self.assertEqual(code, _native.OK)
            return second

        one, two, (index, values) = harness.on_threads(WORLD, call)
        numpy.testing.assert_array_equal(one, wanted)
        numpy.testing.assert_array_equal(two, wanted)
        numpy.testing.assert_array_equal(values, wanted[index])

    def test_disagreement(self):
        parts = tables(9, ROWS, WIDTH, (5, 5, 5))
        call = lambda comm, rank: comm.allreduce_rows(*parts[rank], ROWS + (rank == 1))
        harness.mismatches(WORLD, call, ".*320064")

    def test_refused(self):
        comm = self.comms[0]
        values = numpy.zeros((2, 4), numpy.float32)
        for index, text in (
            ([0, 0], "twice"),
            ([3, 1, 1], "2 rows"),
            ([0, 9], "outside"),
            ([-1, 2], "outside"),
        ):
            with self.assertRaisesRegex((winnow.WinnowError, ValueError), text):
                comm.allreduce_rows(numpy.array(index, numpy.int64), values, 9)
        with self.assertRaisesRegex(TypeError, "int64"):
            comm.allreduce_rows(numpy.array([0, 1], numpy.int32), values, 9)
        with self.assertRaisesRegex(ValueError, "65537"):
            comm.allreduce_rows(numpy.array([0]), numpy.zeros((1, 65537), numpy.float32), 9)
        code = winnow._comm.lib.winnow_allreduce_sparse_block(
            values.ctypes.data, (ctypes.c_int64 * 2)(0, 2), 2, 4, values.ctypes.data, 8, 1, 1, comm._handle
        )
        self.assertEqual(code, winnow.WinnowError.INVALID)


class Tensors(harness.CommCase):
    """`data`: by rank."""

    world = WORLD

    def reduce(self, make=lambda data: data.copy(), **options):
        """[(result, statistics, bytes sent)]."""

        def call(rank):
            comm = self.comms[rank]
            before = comm.stats().sent_bytes
            request = comm.allreduce_async(make(self.data[rank]), **options)
            return request.wait(), request.stats, comm.stats().sent_bytes - before

        return harness.on_threads(WORLD, call)

    def check(self, **options):
        """The same."""
        found = self.reduce(**options)
        for result, _, _ in found:
            numpy.testing.assert_array_equal(result, self.data.sum(axis=0))
        return found


class Segments(Tensors):
    """A bucket: 68 loose elements, a table of 64 wide rows, and one of 17 wide rows."""

    ROWS, OTHER = 20_000, 900
    OFFSET = 68

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.count = cls.OFFSET + cls.ROWS * 64 + 5 + cls.OTHER * 17
        cls.segments = [
            (cls.OFFSET, cls.ROWS * 64, 64),
            (cls.OFFSET + cls.ROWS * 64 + 5, cls.OTHER * 17, 17),
        ]
        draw = numpy.random.default_rng(10)
        cls.data = numpy.zeros((WORLD, cls.count), numpy.float32)
        for rank in range(WORLD):
            cls.data[rank, : cls.OFFSET] = 1
            for offset, count, row in cls.segments:
                table = cls.data[rank, offset : offset + count].reshape(-1, row)
                table[draw.choice(len(table), len(table) // 20, replace=False)] = rank + 1

    def test_result_and_bytes(self):
        aligned, plain, usual = self.check(segments=self.segments), self.check(block=64), self.check()
        for (_, few, sent), (_, more, sent_plain), (_, _, sent_usual) in zip(aligned, plain, usual):
            # 1000 rows of 64, 45 rows of 17, and 73 loose elements.
            self.assertEqual(few.blocks_nonzero, 1000 + 45 + 1)
            self.assertGreater(more.blocks_nonzero, 1900)
            self.assertLess(sent, 0.6 * sent_plain)
            self.assertLess(sent, 0.4 * sent_usual)

    def test_with_a_tag_and_fixed_point(self):
        self.check(segments=self.segments, tag=77, wire="fixed32")

    def test_short_rows_and_nothing(self):
        data = numpy.ones((WORLD, 1000), numpy.float32)
        for segments in ([], [(0, 1000, 3)], [(0, 999, 3), (999, 1, 0)], [(0, 1000, 257)], [(10, 0, 5)]):
            results = harness.on_threads(
                WORLD, lambda rank: self.comms[rank].allreduce(data[rank].copy(), segments=segments)
            )
            for result in results:
                numpy.testing.assert_array_equal(result, data.sum(axis=0))
        for result in harness.on_threads(
            WORLD, lambda rank: self.comms[rank].allreduce(numpy.zeros(0, numpy.float32), segments=[])
        ):
            self.assertEqual(len(result), 0)

    def test_disagreement(self):
        """Even the number of parts differs."""
        others = [(0, 64 * 64, 64), *self.segments[1:]]
        segments = lambda rank: others if rank == 1 else self.segments
        call = lambda comm, rank: comm.allreduce(self.data[rank].copy(), segments=segments(rank))
        harness.mismatches(WORLD, call, "(its layout .* differs on rank|block is) .*rank 1")

    def test_refused(self):
        data = numpy.zeros(100, numpy.float32)
        for segments in ([(50, 51, 5)], [(0, 20, 5), (10, 20, 5)], [(101, 0, 5)]):
            self.fails("INVALID", "", self.comms[0].allreduce, data, segments=segments)


class Tiles(Tensors):
    """A matrix with columns of zeros: 5 % are there, of which each rank has its own half."""

    ROWS, COLUMNS = 1024, 1024

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = numpy.zeros((WORLD, cls.ROWS, cls.COLUMNS), numpy.float32)
        cls.columns = numpy.random.default_rng(11).choice(cls.COLUMNS, cls.COLUMNS // 20, replace=False)
        for rank in range(WORLD):
            cls.data[rank][:, cls.columns[rank::WORLD]] = rank + 1 + numpy.arange(cls.ROWS)[:, None]

    def test_result_and_bytes(self):
        least = len(self.columns[::WORLD]) * self.ROWS * 4
        for tile, wire in (((64, 1), "native"), ((1000, 1), "fixed32"), ((5000, 1), None)):
            for _, stats, sent in self.check(tile=tile, wire=wire):
                self.assertEqual(stats.blocks, -(-self.ROWS // tile[0]) * self.COLUMNS)
                self.assertEqual(stats.blocks_union, -(-self.ROWS // tile[0]) * len(self.columns))
                self.assertLess(sent, 1.2 * least + 4 * tile[0] * 52)
        for _, _, sent in self.check():
            self.assertGreater(sent, self.data[0].nbytes)

    def test_torch(self):
        for result, _, _ in self.reduce(lambda data: torch.from_numpy(data.copy()), tile=(128, 2), op="max"):
            numpy.testing.assert_array_equal(result.numpy(), self.data.max(axis=0))

    def test_among_segments(self):
        half = self.ROWS // 2 * self.COLUMNS
        segments = [(0, half, self.COLUMNS, 32, 2), (half, half, self.COLUMNS)]
        for _, stats, _ in self.check(segments=segments):
            self.assertEqual(stats.blocks, self.ROWS // 64 * self.COLUMNS // 2 + self.ROWS // 2 * 4)

    def test_disagreement(self):
        tiles = lambda rank: (64, 2) if rank == 1 else (32, 4)
        call = lambda comm, rank: comm.allreduce(self.data[rank].copy(), tile=tiles(rank))
        harness.mismatches(WORLD, call, "its layout .* differs on rank (0|1|2) and rank (0|1|2)$")

    def test_refused(self):
        data = numpy.zeros((10, 20), numpy.float32)
        comm = self.comms[0]
        for why, error, options in (
            ("2 dimensions|has 1 dimensions", ValueError, {"data": data.reshape(-1), "tile": (2, 2)}),
            ("each at least 1", ValueError, {"tile": (0, 2)}),
            ("want 0 to", ValueError, {"tile": (-1, 2)}),
            ("exclude each other", ValueError, {"tile": (2, 2), "segments": []}),
            ("no matrix", winnow.WinnowError, {"segments": [(0, 199, 20, 2, 2)]}),
            ("one of the two is 0", winnow.WinnowError, {"segments": [(0, 200, 20, 2, 0)]}),
            ("want 0 to", ValueError, {"segments": [(0, 200, 20, 2, 2**32)]}),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(error, why):
                comm.allreduce(**({"data": data} | options))
