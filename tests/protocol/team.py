# SPDX-License-Identifier: BSD-3-Clause
"""Jobs for the tests: workers of this folder, some of libwinnow's among them, at aggregators that stand.

test_protocol.sh has started them. AGGREGATORS: three, HOST:PORT, without a key, of which the second has one thread; KEYED,
KEY: one more, and its key; DUAL: one more, without a key, at IPv6 and IPv4 addresses, or nothing.
"""

import itertools
import os

import numpy as np

import element
from cut import Cut
from endpoint import Endpoint, address, drive, now_us
from reference import OPERATIONS, differences, reduce, tensor

OPEN = [address(text) for text in os.environ["AGGREGATORS"].split()]
DUAL = address(os.environ["DUAL"]) if os.environ["DUAL"] else None
KEYED = address(os.environ["KEYED"])
KEY = os.environ["KEY"]
numbers = itertools.count()


class Team:
    """All workers of a fresh job. real: ranks that are libwinnow's; settings: a function of the rank, or for all."""

    def __init__(
        self,
        world,
        aggregators=1,
        real=(),
        weather=None,
        settings=lambda rank: {},
        at=None,
        reverse=(),
        job=None,
    ):
        self.world, job = world, job or f"protocol-{os.getpid()}-{next(numbers)}"
        at = at or OPEN[:aggregators]
        order = lambda rank: at(rank) if callable(at) else at[::-1] if rank in reverse else at
        key = {"key": KEY} if at == [KEYED] else {}
        self.real = [self.libwinnow(order(rank), rank, job, world, **key) for rank in real]
        ranks = [rank for rank in range(world) if rank not in real]
        self.workers = [
            Endpoint(order(rank), job, rank, world, weather and weather(rank), **key, **settings(rank))
            for rank in ranks
        ]
        self.tag = 1

    def libwinnow(self, *arguments, **key):
        from real import (
            Real,  # and with it the library, which sanitizers keep out of Python
        )

        return Real(*arguments, **key)

    def __enter__(self):
        self.until(lambda: all(worker.worker for worker in self.workers), 20)
        return self

    def __exit__(self, *exception):
        if exception[0] is None and not any(worker.failure for worker in self.workers):
            self.until(lambda: all(worker.worker.idle for worker in self.workers), 10)
            strange = [self.counts(worker, "strange") for worker in self.workers]
            assert not any(strange), f"packets that no aggregator should send: {strange}"
        for worker in self.workers:
            worker.leave()
        for real in self.real:
            real.go.set()
            real.thread.join(30)

    def until(self, holds, limit_s):
        """Runs until it holds; a failure of any worker, or the limit, is the test's."""
        failed = lambda: [w.failure for w in self.workers if w.failure] + [
            r.error for r in self.real if r.error
        ]
        done = drive(self.workers, lambda: holds() or failed(), limit_s)
        if failed() or not done:
            raise AssertionError(
                f"{failed() or 'not within the time'}: {[self.counts(w) for w in self.workers]}"
            )

    def counts(self, worker, name=None):
        """Summed over channels."""
        channels = worker.worker.channels if worker.worker else []
        total = {
            key: sum(c.counts[key] for c in channels) for key in (channels[0].counts if channels else ())
        }
        return total.get(name) if name else total

    def span(self, block_elems, e=4):
        """4.3: elements in a whole segment of all shards, of e bytes each."""
        worker = self.workers[0].worker
        channels = len(worker.channels)
        return Cut(1 << 40, e, block_elems, channels, worker.payload, False).L * channels * block_elems

    def operation(self, tensors, dtype="f32", reduction=1, block_elems=256, form=0, scatter=False, layout=None):
        self.tag += 1
        return dict(
            tensors=tensors,
            dtype=dtype,
            reduction=reduction,
            block_elems=block_elems,
            form=form,
            tag=self.tag,
            scatter=scatter,
            layout=layout,
        )

    def run(self, operations, limit_s=60, order=None):
        """Results, [operation][worker]: this folder's workers first. order: in which a rank submits."""
        submitted = [[None] * len(operations) for _ in self.workers]
        for worker, mine in zip(self.workers, submitted):
            for i in order(worker.rank) if order else range(len(operations)):
                what = {key: value for key, value in operations[i].items() if key != "tensors"}
                mine[i] = worker.submit(operations[i]["tensors"][worker.rank], **what)
        for real in self.real:
            real.operations = operations
            real.go.set()
        done = lambda: all(op.done for mine in submitted for op in mine) and all(
            real.results for real in self.real
        )
        self.until(done, limit_s)
        of_real = [real.results for real in self.real]
        return [
            [mine[i] for mine in submitted] + [results[i] for results in of_real]
            for i in range(len(operations))
        ]

    def check(self, operations, want=None, **options):
        """Runs them and compares with the reference; all workers must have the same bits."""
        for i, (op, results) in enumerate(zip(operations, self.run(operations, **options))):
            what = {key: value for key, value in op.items() if key != "tensors"}
            arrays = [result if isinstance(result, np.ndarray) else result.result for result in results]
            expected = want[i] if want else reduce(op["tensors"], op["dtype"], op["reduction"])
            if op["scatter"]:  # each worker has its share
                ranks = [worker.rank for worker in [*self.workers, *self.real]]
                arrays = [np.concatenate([array for _, array in sorted(zip(ranks, arrays), key=lambda pair: pair[0])])]
            bad = differences(arrays[0], expected, op["dtype"])
            assert not len(bad), (what, bad[:5], arrays[0][bad[:5]], expected[bad[:5]])
            for array in arrays[1:]:
                assert array.tobytes() == arrays[0].tobytes(), (what, np.flatnonzero(array != arrays[0])[:5])


def outcome(workers, limit_s=20):
    """How each of these ends: (code, rank, text), or None."""
    drive(workers, lambda: all(worker.failure for worker in workers), limit_s)
    return [worker.failure for worker in workers]


def rest(workers, seconds):
    """Runs them for a while."""
    end = now_us() + int(seconds * 1e6)
    drive(workers, lambda: now_us() >= end, seconds + 1)


# ---- operations ----


def all_kinds(team, rng, exact):
    """Each type with each reduction: eager, a frame or two, many; dense and sparse; NaN and infinities."""
    for dtype in sorted(element.TYPES):
        for reduction in OPERATIONS.values():
            for count, block, density in ((37, 5, 0.6), (1500, 32, 1.0), (30000, 100, 0.3)):
                yield team.operation([tensor(rng, count, dtype, block, density, exact, 0.02) for _ in range(team.world)],
                                     dtype, reduction, block)  # fmt: skip


def eager_blocks(room, w):
    """4.4"""
    return max(E for E in range(4097) if E * w + (E + 63) // 64 * 8 + 50 <= room)


def scattered(team, rng):
    """4.5: shares of no element, of one, of blocks and a rest, of several segments; eager, in one and in four segments,
    and in parts of blocks."""
    most = 4 * eager_blocks(team.workers[0].worker.payload - 32, 4 * 25) * 25 // team.world
    for count, block, dtype in ((most, 25, "f32"), (0, 8, "f32"), (1, 256, "i64"), (5, 3, "f16"), (100, 7, "bf16"), (999, 100, "f32"),
                                (30011, 64, "i32"), (9000, 1, "f64"), (7001, 5000, "f32"), (70000, 65536, "i32")):  # fmt: skip
        for reduction in OPERATIONS.values():
            for density in (1.0, 0.3) if reduction == OPERATIONS["sum"] else (0.3,):
                tensors = [tensor(rng, count * team.world, dtype, block, density, True) for _ in range(team.world)]
                yield team.operation(tensors, dtype, reduction, block, scatter=True)


def sizes(team, rng):
    """Around every edge of section 4, that of 4.4 for this payload among them, and blocks larger than a datagram."""
    room = team.workers[0].worker.payload - 32
    edges = [(eager_blocks(room, 4 * b) * b * times, b) for b in (1, 5, 24) for times in (1, 4)]
    cases = [(0, 1), (0, 256), (1, 1), (1, 65536), (255, 256), (256, 256), (257, 256), (4096, 1), (4097, 1)]
    cases += [(count + more, b) for count, b in edges for more in (-1, 0, 1)]
    cases += [(99999, 24), (65537, 65536), (200001, 65536), (20000, 3000)]
    for count, block in cases:
        for density in (1.0, 0.4, 0.0):
            tensors = [tensor(rng, count, "f32", block, density, True) for _ in range(team.world)]
            yield team.operation(tensors, block_elems=block)
