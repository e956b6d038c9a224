# SPDX-License-Identifier: BSD-3-Clause
"""In which blocks parameters travel: by their shape, and by what averages were like."""

import math
import subprocess
import time
import types
import unittest

import harness
import numpy
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow import _way


class Tables(unittest.TestCase):
    """Which parameters of a bucket count as tables, so that blocks begin where their rows do."""

    def segments(self, *shapes, dtype=torch.float32, more=0):
        parameters = [torch.empty(shape, dtype=dtype) for shape in shapes]
        total = sum(p.numel() for p in parameters) + more
        buffer = torch.empty(total, dtype=dtype)
        return _way.segments(parameters, buffer)

    def test_limits(self):
        ratio, size = _way.TABLE_RATIO, _way.TABLE_BYTES
        width = 64
        rows = max(ratio * width, -(-size // (4 * width)))
        table = (rows, width)
        self.assertEqual(self.segments(table), [(0, rows * width, width)])
        self.assertEqual(self.segments((100,), table, (3, 5)), [(100, rows * width, width)])
        self.assertEqual(len(self.segments(table, table)), 2)
        self.assertIsNone(self.segments((rows, width, 1)))  # not of two dimensions
        self.assertIsNone(self.segments(table, more=1))  # the bucket holds something else
        self.assertIsNone(self.segments((width, rows)))
        # As many rows as it takes, and one fewer.
        wide = 256
        self.assertIsNotNone(self.segments((ratio * wide, wide), dtype=torch.float16))
        self.assertIsNone(self.segments((ratio * wide - 1, wide), dtype=torch.float16))
        # As many bytes as it takes, of each type, and one row fewer.
        for dtype, bytes_each in ((torch.float32, 4), (torch.float16, 2)):
            narrow = size // (8 * bytes_each)
            self.assertIsNotNone(self.segments((narrow, 8), dtype=dtype))
            self.assertIsNone(self.segments((narrow - 1, 8), dtype=dtype))


class Segments(unittest.TestCase):
    def test_of_each_way(self):
        shapes = {
            (7,): "blocks",
            (200, 50): "rows",
            (0, 4): "rows",
            (50, 200): "columns",
            (201, 50): "columns",
            (60, 10): "elements",
        }
        self.way = lambda parameter, element_bytes: shapes[tuple(parameter.shape)]
        found = _way.segments([torch.empty(shape) for shape in shapes], torch.empty(7 + 20000 + 10050 + 600), seen=self)
        rows, low, high, elements = found
        self.assertEqual(rows, (7, 10000, 50))
        self.assertEqual(low, (10007, 10000, 200, 50, 1))
        self.assertEqual(high, (20007, 10050, 50, 128, 1))  # 512 bytes
        self.assertEqual(elements, (30057, 600, 1, 1, 1))
        halves = _way.segments([torch.empty(201, 50)], torch.empty(10050, dtype=torch.float16), seen=self)
        self.assertEqual(halves, [(0, 10050, 50, 201, 1)])


def sparse_matrix(rows, columns, pick):
    """Ones where pick(row, column)."""
    return torch.tensor([[float(pick(row, column)) for column in range(columns)] for row in range(rows)])


class Costs(unittest.TestCase):
    def test_by_hand(self):
        """A matrix of 4 x 600 with one column, against sums made by hand."""
        costs = _way.bytes_of(sparse_matrix(4, 600, lambda row, column: column == 7))

        def cost(there, count, size):
            share = there / count
            entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share) if 0 < share < 1 else 0
            return there * (size + 8) + count * entropy / 8

        # Blocks of 256 begin at 0, 256 ..: the ones are at 7, 607, 1207, 1807, in blocks 0, 2, 4, 7 of 10.
        self.assertAlmostEqual(costs["blocks"], cost(4, 10, 1024))
        # A row of 600 is cut into three of 200, of which the first has the one.
        self.assertAlmostEqual(costs["rows"], cost(4, 12, 800))
        self.assertAlmostEqual(costs["columns"], cost(1, 600, 16))
        self.assertAlmostEqual(costs["elements"], cost(4, 2400, 4))

    def test_narrow_rows_are_together(self):
        """Rows of 12 bytes: six are 72 bytes, the first number of them that is not below 64."""
        costs = _way.bytes_of(sparse_matrix(60, 3, lambda row, column: row < 6))
        self.assertAlmostEqual(costs["rows"], 72 + 8 - 10 * (0.1 * math.log2(0.1) + 0.9 * math.log2(0.9)) / 8)

    def test_high_columns_are_cut(self):
        """200 rows of f32: tiles of 128 rows and of the 72 below them."""
        costs = _way.bytes_of(sparse_matrix(200, 8, lambda row, column: column == 2 and row == 150))
        entropy = -math.log2(1 / 16) / 16 - 15 / 16 * math.log2(15 / 16)
        self.assertAlmostEqual(costs["columns"], 520 + 16 * entropy / 8)

    def test_each_way_is_the_best_of_something(self):
        def best(matrix):
            costs = _way.bytes_of(matrix)
            return min(costs, key=costs.get)

        torch.manual_seed(1)
        self.assertEqual(best(torch.ones(128, 1024)), "blocks")
        self.assertEqual(best(sparse_matrix(512, 96, lambda row, column: row % 40 == 3)), "rows")
        self.assertEqual(best(sparse_matrix(128, 1024, lambda row, column: column % 40 == 3)), "columns")
        self.assertEqual(best((torch.rand(128, 1024) < 0.01).float()), "elements")


class Sight(unittest.TestCase):
    wide = nn.Parameter(torch.empty(128, 1024))

    def columns(self):
        average = torch.zeros(128, 1024)
        average[:, ::50] = 1
        return average.flatten()

    def test_steps_at_which_it_looks(self):
        looked = []
        seen = _way.Seen()
        for step in range(1, 400):
            before = _way.bytes_of
            _way.bytes_of = lambda matrix, block: looked.append(step) or before(matrix, block)
            try:
                seen.look(self.wide, self.columns())
            finally:
                _way.bytes_of = before
        self.assertEqual(looked, [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384])

    def test_changes_and_forgets(self):
        seen, table = _way.Seen(), nn.Parameter(torch.empty(1024, 128))
        self.assertEqual(seen.way(self.wide, 4), "blocks")
        seen.look(self.wide, self.columns())
        self.assertEqual(seen.way(self.wide, 4), "columns")
        seen.look(self.wide, torch.ones(128 * 1024))
        self.assertEqual(seen.way(self.wide, 4), "blocks")  # columns would be as many bytes, and more work
        self.assertEqual(seen.way(table, 4), "rows")
        row = torch.zeros(1024, 128)
        row[3] = 1
        seen.look(table, row.flatten())
        self.assertEqual(seen.way(table, 4), "rows")
        seen.look(table, torch.rand(1024 * 128).lt(0.001).float())
        self.assertEqual(seen.way(table, 4), "elements")
        seen.forget()
        self.assertEqual(seen.way(table, 4), "rows")

    def test_a_little_better_is_not_enough(self):
        for share, way in ((0.9, "blocks"), (0.7, "columns")):
            seen, average = _way.Seen(), torch.zeros(128, 1024)
            average[:, : int(1024 * share)] = 1
            seen.look(self.wide, average[:, torch.randperm(1024)].flatten())
            self.assertEqual(seen.way(self.wide, 4), way)

    def test_small_ones_and_vectors_are_left_alone(self):
        seen = _way.Seen()
        for shape in ((70000,), (16, 64), (64, 16, 64)):
            parameter = nn.Parameter(torch.empty(shape))
            seen.look(parameter, torch.zeros(parameter.numel()))
            self.assertEqual(seen.way(parameter, 4), "blocks")


WORDS, WIDTH, STEPS = 4000, 32, 6


class Bag(nn.Module):
    """A bag of words by a matrix product: of the first weight's gradient, columns are zero."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WORDS, WIDTH)
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def train(rank, comm, way):
    torch.manual_seed(3)
    ddp = DistributedDataParallel(Bag())
    state = winnow.torch.attach(ddp, comm, way=way)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(10 + rank)
    sent = []
    for _ in range(STEPS):
        x = torch.zeros(4, WORDS)
        x[:, torch.randint(WORDS, (60,), generator=generator)] = 1
        before = state.stats().sent_bytes
        optimizer.zero_grad()
        ddp(x).square().sum().backward()
        optimizer.step()
        sent.append(state.stats().sent_bytes - before)
    ways = state.ways(ddp.module)
    state.close()
    return [parameter.detach().clone() for parameter in ddp.parameters()], sent, ways


def compare(rank, world, job):
    """The same training, cut by shape and by what was seen: sent bytes of each step, ways, and are parameters equal?"""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        by_shape, before, _ = train(rank, comm, None)
        seen, after, ways = train(rank, comm, "auto")
    return before, after, ways, all(torch.equal(a, b) for a, b in zip(by_shape, seen))


def reconfigured(rank, world, job):
    """Between two memberships rank 0 is one operation ahead, and has not learned what rank 1 has. Ways and costs before and after."""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        ddp = DistributedDataParallel(Bag())
        state = winnow.torch.attach(ddp, comm, way="auto")
        found = []
        for id in (None, "more"):
            if id is not None:
                if rank == 0:
                    next(state._tags)
                    state._seen.forget()
                comm.reconfigure(id, rank, world)
            for step in range(2):
                x = torch.zeros(4, WORDS)
                x[:, ::50] = 1 + step
                ddp(x).square().sum().backward()
                found.append((state.ways(ddp.module)["first.weight"], state.costs(ddp.module)["first.weight"]))
        state.close()
        return found


def tells(rank, world, job, address, metrics):
    """What status says of this rank, once it says what the hook has chosen."""
    with winnow.Comm(aggregators=address, job=job, rank=rank, world=world, silence_ms=1000) as comm:
        ddp = DistributedDataParallel(Bag())
        state = winnow.torch.attach(ddp, comm, way="auto")
        for _ in range(3):
            x = torch.zeros(4, WORDS)
            x[:, ::50] = 1
            ddp(x).square().sum().backward()
        said = types.SimpleNamespace()
        state._seen._told, said.say = None, lambda text: setattr(said, "text", text)
        state._seen.tell(said, lambda: state.ways(ddp.module))
        want = said.text
        command, texts = [harness.BUILD / "winnow", "status", metrics, "--workers"], []
        for membership in (None, "next"):
            if membership is not None:
                comm.reconfigure(membership, rank, world)
            until, text = time.monotonic() + 20, ""
            while text.count(want) < world and time.monotonic() < until:
                text = subprocess.run(command, capture_output=True, text=True).stdout
            comm.allreduce(numpy.zeros(1))  # the other one looks, too
            texts.append(text)
        return want, texts


class Hook(harness.TeamCase):
    def test_status(self):
        with harness.Aggregator(metrics=f"127.0.0.1:{harness.free_port()}") as winnowd:
            for want, texts in self.team.run(tells, harness.fresh_job(), winnowd.address, winnowd.metrics):
                self.assertRegex(want, r"^[1-9]?[0-9]% of bytes: 1 columns, [1-9] blocks$")
                self.assertEqual([text.count(want) for text in texts], [2, 2], texts)

    def test_columns_of_a_bag_of_words(self):
        for before, after, ways, equal in self.team.run(compare, harness.fresh_job()):
            self.assertTrue(equal)
            self.assertEqual(ways["first.weight"], "columns")
            self.assertEqual(ways["last.weight"], "blocks")
            # 60 of 4,000 columns of 128 bytes; hardly a block of 256 elements has none of them.
            self.assertGreater(min(before), 0.9 * WIDTH * WORDS * 4)
            self.assertLess(max(after[1:]), min(before) / 20)

    def test_reconfigured(self):
        first, second = self.team.run(reconfigured, harness.fresh_job())
        self.assertEqual(first, second)
        for way, costs in first:
            self.assertEqual(way, "columns")
            self.assertAlmostEqual(costs["columns"], 80 * (WIDTH * 4 + 8) + 4000 * 0.1414 / 8, delta=1)
            self.assertGreater(costs["blocks"], 5 * costs["columns"])
