# SPDX-License-Identifier: BSD-3-Clause
"""broadcast: every bit as it was, whatever the others had; what is sent; what is refused."""


import harness
import numpy

import winnow

WORLD = 3


class Broadcast(harness.CommCase):
    world = WORLD

    def given(self, count, root, seed=0):
        """Bit patterns of all kinds, NaNs and -0 among them, and stretches of zeros; the others have something else."""
        draw = numpy.random.default_rng(seed)
        words = draw.integers(-(2**31), 2**31, (WORLD, count), dtype=numpy.int64).astype(numpy.int32)
        words[:, draw.random(count) < 0.2] = -(2**31)
        words[root, count // 3 : count // 2] = 0
        return words

    def check(self, words, root, **options):
        want = words[root].copy()
        parts = [words[rank].view(numpy.float32) for rank in range(WORLD)]
        got = harness.on_threads(WORLD, lambda rank: self.comms[rank].broadcast(parts[rank], root, **options))
        for rank in range(WORLD):
            self.assertIs(got[rank], parts[rank])
            self.assertTrue((words[rank] == want).all(), (len(want), root, options, rank))

    def test_bits(self):
        for count in (0, 1, 2, 99, 1000, 40001):
            for root in range(WORLD):
                self.check(self.given(count, root, count), root)
        for block in (1, 16, 65536):
            self.check(self.given(40001, 1), 1, block=block)

    def test_bytes(self):
        """The root sends what is not zero, once; the others announce that they have nothing."""
        words = self.given(400000, 0)
        before = [comm.stats() for comm in self.comms]
        self.check(words, 0)
        sent = [comm.stats().sent_bytes - was.sent_bytes for comm, was in zip(self.comms, before)]
        self.assertLess(sent[0], 1.05 * 4 * 400000 * 5 / 6)
        self.assertLess(max(sent[1:]), 0.02 * 4 * 400000)

    def test_roots_differ(self):
        call = lambda comm, rank: comm.broadcast(numpy.ones(1000, numpy.float32), 1 if rank == 2 else 0)
        harness.mismatches(WORLD, call, "its layout .*a broadcast's root.*differs on rank")

    def test_refused(self):
        comm = self.comms[0]
        for data, root, error, text in (
            (numpy.zeros(3, numpy.float16), 0, winnow.WinnowError, "bytes is no multiple of 4"),
            (numpy.zeros(4, numpy.float32), WORLD, winnow.WinnowError, "no such root"),
            ([1.0], 0, TypeError, "want a numpy array"),
        ):
            with self.assertRaisesRegex(error, text):
                comm.broadcast(data, root)
        fixed = numpy.zeros(4, numpy.float32)
        fixed.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            comm.broadcast(fixed)
