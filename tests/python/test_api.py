# SPDX-License-Identifier: BSD-3-Clause
"""allreduce on numpy arrays and torch tensors: every type and operation against numpy."""


import harness
import numpy
import torch

import winnow

WORLD = 3
COUNT = 10_000
BLOCK = 256
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64")
OPS = ("sum", "avg", "min", "max", "prod")
DIGITS = {"float32": 24, "float16": 11, "bfloat16": 8, "float64": 53}


def inputs(dtype, op):
    """[WORLD, COUNT] of the values that each rank passes, in float64 or int64; most blocks are zero."""
    draw = numpy.random.default_rng(7)
    if dtype.startswith("int"):
        top = 2 ** (int(dtype[3:]) - 1)
        values = draw.integers(-top, top - 1, (WORLD, COUNT), dtype=numpy.int64)
    else:
        values = draw.normal(size=(WORLD, COUNT))
    for rank in range(WORLD):
        for block in range(0, COUNT, BLOCK):
            if draw.random() < 0.7:
                values[rank, block : block + BLOCK] = 0
    if op == "avg" and dtype == "int64":
        values //= WORLD  # their sum must fit
    return values


def tensors(values, dtype):
    return [torch.from_numpy(row.copy()).to(getattr(torch, dtype)) for row in values]


def reference(parts, dtype, op):
    """`op` over tensors of one type, in float64 or in integers that wrap."""
    wide = [part.double().numpy() if part.is_floating_point() else part.numpy() for part in parts]
    combine = {"sum": numpy.add, "avg": numpy.add, "min": numpy.minimum, "max": numpy.maximum}
    with numpy.errstate(over="ignore"):
        result = wide[0]
        for part in wide[1:]:
            result = combine.get(op, numpy.multiply)(result, part)
    if op != "avg":
        return result
    if not dtype.startswith("int"):
        return result / WORLD
    return numpy.where(result < 0, -(-result // WORLD), result // WORLD).astype(result.dtype)


class Api(harness.CommCase):
    world = WORLD

    def reduce(self, parts, **options):
        """Each rank's part, reduced in place."""
        return harness.on_threads(WORLD, lambda rank: self.comms[rank].allreduce(parts[rank], **options))

    def compare(self, result, want, dtype, op, parts):
        got = torch.as_tensor(result)
        if dtype.startswith("int"):
            numpy.testing.assert_array_equal(got.numpy(), want)
            return
        # Two roundings in the type or in f32, relative to what was added up.
        scale = sum(part.double().abs() for part in parts).numpy() if op in ("sum", "avg") else abs(want)
        error = abs(got.double().numpy() - want)
        tiny = torch.finfo(getattr(torch, dtype)).tiny
        self.assertTrue((error <= scale * 2.0 ** (2 - DIGITS[dtype]) + tiny).all(), error.max())

    def test_types_and_operations(self):
        for dtype in DTYPES:
            for op in OPS:
                with self.subTest(dtype=dtype, op=op):
                    parts = tensors(inputs(dtype, op), dtype)
                    want = reference(parts, dtype, op)
                    results = self.reduce([part.clone() for part in parts], op=op)
                    self.compare(results[0], want, dtype, op, parts)
                    for other in results[1:]:
                        self.assertTrue(torch.equal(other, results[0]))
                    if dtype == "bfloat16":
                        continue  # numpy has none
                    arrays = self.reduce([part.numpy().copy() for part in parts], op=op)
                    self.compare(arrays[0], want, dtype, op, parts)

    def test_in_place_and_apart(self):
        arrays = [numpy.full((4, 5), rank + 1, numpy.float32) for rank in range(WORLD)]
        outs = [numpy.empty(20, numpy.float32) for _ in range(WORLD)]
        got = harness.on_threads(WORLD, lambda r: self.comms[r].allreduce(arrays[r], out=outs[r]))
        for rank in range(WORLD):
            self.assertIs(got[rank], outs[rank])
            self.assertTrue((outs[rank] == 6).all())
            self.assertTrue((arrays[rank] == rank + 1).all())
        for rank, result in enumerate(self.reduce(arrays)):
            self.assertIs(result, arrays[rank])
            self.assertTrue((arrays[rank] == 6).all())

    def test_torch_into_numpy(self):
        outs = [numpy.empty(3, numpy.int64) for _ in range(WORLD)]
        harness.on_threads(WORLD, lambda r: self.comms[r].allreduce(torch.tensor([1, 2, 3]), outs[r]))
        self.assertEqual(outs[0].tolist(), [3, 6, 9])

    def test_empty_and_scalar(self):
        for result in self.reduce([numpy.empty(0, numpy.float32) for _ in range(WORLD)]):
            self.assertEqual(result.size, 0)
        for result in self.reduce([torch.tensor(2.5) for _ in range(WORLD)]):
            self.assertEqual(result.item(), 7.5)

    def test_read_only_input(self):
        fixed = numpy.ones(10)
        fixed.flags.writeable = False
        got = harness.on_threads(WORLD, lambda r: self.comms[r].allreduce(fixed, out=numpy.empty(10)))
        self.assertEqual(got[0].tolist(), [WORLD] * 10)

    def test_blocks_and_statistics(self):
        before = self.comms[0].stats()
        parts = [numpy.zeros(64 * 1000, numpy.float32) for _ in range(WORLD)]
        for rank, part in enumerate(parts):
            part[64 * rank : 64 * (rank + 2)] = 1  # two blocks each, four in all
        start = lambda rank: self.comms[rank].allreduce_async(parts[rank], block=64)
        requests = harness.on_threads(WORLD, start)
        self.assertEqual(requests[0].wait()[:64 * 5 : 64].tolist(), [1, 2, 2, 1, 0])
        for request in requests:
            request.wait()
            self.assertEqual(request.stats[:3], (1000, 2, 4))
            self.assertEqual((request.stats.density, request.stats.union), (0.002, 0.004))
        after = self.comms[0].stats()
        self.assertGreater(after.sent_bytes - before.sent_bytes, 2 * 256)
        self.assertLess(after.sent_bytes - before.sent_bytes, 5000)
        self.assertEqual(after.payload, before.payload)

    def test_fixed_point_is_reproducible(self):
        parts = [numpy.random.default_rng(rank).normal(size=5000).astype(numpy.float32) for rank in range(WORLD)]
        results = [self.reduce([part.copy() for part in parts], wire="fixed32")[0] for _ in range(4)]
        numpy.testing.assert_allclose(results[0], numpy.sum(parts, 0, float), rtol=2**-23, atol=2**-26)
        for other in results[1:]:
            self.assertEqual(other.tobytes(), results[0].tobytes())

    def test_narrow_numbers(self):
        parts = [numpy.random.default_rng(rank).normal(size=50000).astype(numpy.float32) for rank in range(WORLD)]
        want, largest = numpy.sum(parts, 0, float), max(numpy.abs(part).max() for part in parts)
        bounds = {"fixed16": WORLD * largest * 2**-13, "fixed8": WORLD * largest * 2**-5,
                  "bf16": numpy.sum(numpy.abs(parts), 0) * 2**-8 + numpy.abs(want) * 2**-8 * (1 + 2**-8)}  # fmt: skip
        for wire, bound in bounds.items():
            before = self.comms[0].stats().sent_bytes
            result = self.reduce([part.copy() for part in parts], wire=wire)[0]
            self.assertTrue((numpy.abs(result - want) <= bound).all(), wire)
            self.assertGreater(numpy.abs(result - want).max(), 0)  # it was not sent as f32
            sent = self.comms[0].stats().sent_bytes - before
            self.assertLess(sent, 1.2 * 50000 * (1 if wire == "fixed8" else 2), wire)

    def test_attributes(self):
        self.assertEqual([(comm.rank, comm.world) for comm in self.comms], [(r, WORLD) for r in range(WORLD)])
        self.assertRegex(winnow.library_version, r"^\d+\.\d+\.\d+$")
        self.assertIn("rank 1 of 3", repr(self.comms[1]))
