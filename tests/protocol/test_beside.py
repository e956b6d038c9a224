# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that workers of this folder share with libwinnow's: results, and who is told what."""

import unittest

import numpy as np

import element
from endpoint import Weather
from reference import fixed, fixed_want, tensor
from team import DUAL, KEYED, Team, all_kinds, outcome, scattered, sizes


class Beside(unittest.TestCase):
    def test_all_kinds(self):
        rng = np.random.default_rng(11)
        with Team(3, real=[1]) as team:
            team.check(list(all_kinds(team, rng, exact=True)))

    def test_sizes(self):
        rng = np.random.default_rng(12)
        with Team(2, aggregators=2, real=[0]) as team:
            team.check(list(sizes(team, rng)))

    def test_large(self):
        rng = np.random.default_rng(13)
        with Team(3, aggregators=2, real=[0, 2]) as team:
            team.check([team.operation([tensor(rng, 500000, "f32", 256, density, True) for _ in range(3)])
                        for density in (1.0, 0.1, 0.01)])  # fmt: skip

    def test_fixed(self):
        rng = np.random.default_rng(14)
        for world, real in ((2, 1), (3, 0)):  # the largest values are of this folder's, and of libwinnow's
            with Team(world, real=[real]) as team:
                span = team.span(256)
                tensors = [
                    [fixed(rng, 100000, scale) for scale in (1.0, 1e-7, 1e-40)[:world]] for _ in range(2)
                ]
                operations = [
                    team.operation(t, "f32", reduction, 256, element.FIXED32)
                    for t, reduction in zip(tensors, (1, 2))
                ]
                team.check(
                    operations, [fixed_want(t, span, average) for t, average in zip(tensors, (False, True))]
                )

    def test_loss(self):
        rng = np.random.default_rng(15)
        with Team(3, real=[2], weather=lambda rank: Weather(0.05, 0.05, 0.1, seed=rank)) as team:
            team.check([team.operation([tensor(rng, n, "f32", 64, 0.4, True) for _ in range(3)], block_elems=64)
                        for n in (10, 100000, 3000, 0, 40000)])  # fmt: skip

    def test_scatter(self):
        rng = np.random.default_rng(18)
        with Team(4, 2, real=[0, 2]) as team:
            team.check(list(scattered(team, rng)))
        with Team(3, real=[2], weather=lambda rank: Weather(0.05, 0.05, 0.1, seed=rank)) as team:
            team.check([team.operation([tensor(rng, n, "f32", 64, 0.4, True) for _ in range(3)], block_elems=64,
                                       scatter=True) for n in (12, 99999, 3000, 0, 60000)])  # fmt: skip

    def test_minimal(self):
        """A worker that heeds no advice, and does not listen to the group."""
        rng = np.random.default_rng(16)
        with Team(2, real=[0], settings=lambda rank: {"advice": False, "multicast": False}) as team:
            team.check([team.operation([tensor(rng, n, "f32", 64, 0.4, True) for _ in range(2)], block_elems=64)
                        for n in (10, 100000, 3000, 0)])  # fmt: skip

    def test_key(self):
        rng = np.random.default_rng(17)
        with Team(2, real=[1], at=[KEYED]) as team:
            team.check([team.operation([tensor(rng, 5000, "f64") for _ in range(2)], "f64")])

    @unittest.skipUnless(DUAL, "no IPv6 here")
    def test_families(self):
        """2.1: workers by IPv6, and by either beside each other."""
        rng = np.random.default_rng(19)
        four = ("127.0.0.1", DUAL[1]) if DUAL else None
        for at in (DUAL, DUAL, DUAL), (DUAL, four, DUAL), (four, DUAL, four):
            with self.subTest(at=at), Team(3, real=[2], at=lambda rank: [at[rank]]) as team:
                team.check([team.operation([tensor(rng, n, "f32", 64, 0.4, True) for _ in range(3)], block_elems=64)
                            for n in (10, 100000, 3000, 0)])  # fmt: skip

    def test_disagreement(self):
        """11.1"""
        with Team(2, 2, real=[1]) as team:
            wrong = team.operation([np.ones(50000, dtype="<f4")] * 2)
            team.real[0].operations = [wrong | {"reduction": 4}]
            team.workers[0].submit(wrong["tensors"][0], tag=wrong["tag"])
            team.real[0].go.set()
            self.assertEqual(outcome(team.workers)[0][0], "mismatch")
            team.real[0].thread.join(20)
            self.assertRegex(str(team.real[0].results[0]), "do not agree|field 4 of ranks")


if __name__ == "__main__":
    unittest.main()
