# SPDX-License-Identifier: BSD-3-Clause
"""Results, bit for bit where PROTOCOL.md 3 and 9 promise it."""

import random
import unittest

import numpy as np

import element
from reference import fixed, fixed_want, tensor
from team import Team, all_kinds, scattered, sizes


class Sums(unittest.TestCase):
    def test_two(self):
        """Any float of two workers comes out the same, whoever is first."""
        rng = np.random.default_rng(1)
        with Team(2) as team:
            team.check(list(all_kinds(team, rng, exact=False)))

    def test_three(self):
        rng = np.random.default_rng(2)
        with Team(3) as team:
            team.check(list(all_kinds(team, rng, exact=True)))

    def test_sizes(self):
        rng = np.random.default_rng(3)
        for world, aggregators in ((1, 1), (2, 2)):
            with Team(world, aggregators) as team:
                team.check(list(sizes(team, rng)))

    def test_small_datagrams(self):
        """A worker whose interface carries little decides for all (5.3)."""
        rng = np.random.default_rng(4)
        for payload in (1472, 584):
            with Team(2, settings=lambda rank: {"payload": payload} if rank else {}) as team:
                self.assertEqual({worker.worker.payload for worker in team.workers}, {payload})
                team.check(list(sizes(team, rng)))

    def test_segments(self):
        """More segments than may be under way (6.2), and slots used again and again."""
        rng = np.random.default_rng(5)
        with Team(2) as team:
            for count, block, density in (
                (6 * team.span(1), 1, 0.02),
                (3000000, 1100, 0.03),
            ):
                tensors = [tensor(rng, count, "i32", block, density) for _ in range(2)]
                team.check([team.operation(tensors, "i32", block_elems=block)])
            few = [[tensor(rng, 50, "i64") for _ in range(2)] for _ in range(200)]
            team.check([team.operation(tensors, "i64") for tensors in few])

    def test_any_order(self):
        """6.3: up to op_slots operations, and more, in any order."""
        rng = np.random.default_rng(6)
        with Team(3) as team:
            slots = len(team.workers[0].worker.free)
            operations = [team.operation([tensor(rng, n, "i32", 16, 0.5) for _ in range(3)], "i32", block_elems=16)
                          for n in rng.integers(0, 20000, slots)]  # fmt: skip
            team.check(operations, order=lambda rank: random.Random(rank).sample(range(slots), slots))

    def test_fixed(self):
        rng = np.random.default_rng(7)
        for world in (1, 2, 3, 5):
            with Team(world) as team:
                for average in (False, True):
                    scales = [rng.choice([1e-38, 1e-3, 1.0, 1e30]) for _ in range(world)]
                    tensors = [fixed(rng, 300000, scale) for scale in scales]
                    operation = team.operation(tensors, "f32", 2 if average else 1, 256, element.FIXED32)
                    team.check([operation], [fixed_want(tensors, team.span(256), average)])

    def test_narrow(self):
        """9.2: integers of 16 and 8 bits, and their frames."""
        rng = np.random.default_rng(17)
        for world in (1, 2, 3, 5):
            with Team(world) as team:
                for form, bits in ((element.FIXED16, 15), (element.FIXED8, 7)):
                    span = team.span(256, element.wire_bytes(element.TYPES["f32"], form))
                    tensors = [fixed(rng, 300000, scale) for scale in (1.0, 1e-2, 3.0, 1.0, 1e-7)[:world]]
                    for average in (False, True):
                        team.check([team.operation(tensors, "f32", 2 if average else 1, 256, form)],
                                   [fixed_want(tensors, span, average, bits)])  # fmt: skip

    def test_narrow_nonfinite(self):
        """9.1: all of its segment's sums are NaN."""
        rng = np.random.default_rng(18)
        with Team(2) as team:
            for form, bits in ((element.FIXED16, 15), (element.FIXED8, 7)):
                span = team.span(1, element.wire_bytes(element.TYPES["f32"], form))
                tensors = [fixed(rng, 3 * span, 1.0) for _ in range(2)]
                tensors[1][span + 5] = -np.inf
                want = fixed_want([np.nan_to_num(x) for x in tensors], span, False, bits)
                want[span : 2 * span] = np.nan
                team.check([team.operation(tensors, "f32", 1, 1, form)], [want])

    def test_bf16(self):
        """9.4"""
        rng = np.random.default_rng(19)
        for world, aggregators in ((1, 1), (2, 1), (3, 2)):
            with Team(world, aggregators) as team:
                tensors = [tensor(rng, 200000, "f32", 64, 0.5, True) * np.float32(1.003) for _ in range(world)]
                rounded = [element.from_bf16(element.to_bf16(x)) for x in tensors]
                for average in (False, True):
                    want = np.sum(rounded, axis=0, dtype="<f4") / np.float32(world if average else 1)
                    team.check([team.operation(tensors, "f32", 2 if average else 1, 64, element.BF16)],
                               [element.from_bf16(element.to_bf16(want))])  # fmt: skip

    def test_scatter(self):
        rng = np.random.default_rng(9)
        for world, aggregators, multicast in ((1, 1, True), (2, 2, False), (3, 1, True), (5, 3, True)):
            with Team(world, aggregators, settings=lambda rank: {"multicast": multicast or rank == 0}) as team:
                team.check(list(scattered(team, rng)))

    def test_scatter_bytes(self):
        """8.2: all RESULTs come, but only a worker's own have data."""
        rng = np.random.default_rng(10)
        with Team(4) as team:
            tensors = [tensor(rng, 400000, "f32", 256, 1.0, True) for _ in range(4)]
            team.check([team.operation(tensors, "f32", scatter=True)])
            for worker in team.workers:
                # 391 blocks of 1024 bytes, of which the last is padded
                self.assertEqual(team.counts(worker, "data"), 391 * 1024)
                self.assertGreaterEqual(team.counts(worker, "results"), 4 * 391 * 1024 // worker.worker.payload)

    def test_scatter_fixed(self):
        rng = np.random.default_rng(11)
        for world in (2, 3):
            with Team(world) as team:
                tensors = [fixed(rng, 90000 * world, scale) for scale in (1.0, 1e-7, 1e30)[:world]]
                want = [fixed_want([x[r * 90000 : (r + 1) * 90000] for x in tensors],
                                   team.span(256), True)
                        for r in range(world)]  # fmt: skip
                team.check([team.operation(tensors, "f32", 2, 256, element.FIXED32, scatter=True)],
                           [np.concatenate(want)])  # fmt: skip

    def test_fixed_nonfinite(self):
        """9.1: a segment with a NaN travels as f32, the others do not."""
        rng = np.random.default_rng(8)
        with Team(2) as team:
            span = team.span(1)
            tensors = [fixed(rng, 3 * span, 1.0) for _ in range(2)]
            tensors[1][span + 5] = np.nan
            for average in (False, True):
                want = fixed_want([np.nan_to_num(x) for x in tensors], span, average)
                middle = slice(span, 2 * span)
                want[middle] = (tensors[0][middle] + tensors[1][middle]) / np.float32(2 if average else 1)
                team.check([team.operation(tensors, "f32", 2 if average else 1, 1, element.FIXED32)], [want])


if __name__ == "__main__":
    unittest.main()
