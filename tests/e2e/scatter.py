# SPDX-License-Identifier: BSD-3-Clause
"""One worker of test_xdp.sh's reduce_scatter: RANK WORLD ROUNDS. Prints what it has received, in bytes."""

import sys

import numpy

import winnow

rank, world, rounds = map(int, sys.argv[1:])
COUNT = 200_000


def tensor(owner, turn):
    draw = numpy.random.default_rng(100 * turn + owner)
    data = draw.integers(-(2**31), 2**31, COUNT * world, dtype=numpy.int32)
    data[draw.random(COUNT * world // 32).repeat(32) > (1.0, 0.3)[turn % 2]] = 0
    return data


with winnow.Comm(rank=rank, world=world, job="scatter") as comm:
    for turn in range(rounds):
        mine = slice(rank * COUNT, (rank + 1) * COUNT)
        out = comm.reduce_scatter(tensor(rank, turn), numpy.full(COUNT, 7, numpy.int32))
        want = sum(tensor(owner, turn)[mine].astype(numpy.int64) for owner in range(world)).astype(numpy.int32)
        if not (out == want).all():
            sys.exit(f"rank {rank}: {(out != want).sum()} elements are wrong in round {turn}")
    print(comm.stats().received_bytes)
