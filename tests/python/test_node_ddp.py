# SPDX-License-Identifier: BSD-3-Clause
# long: it computes
"""Nodes in PyTorch: who has which GPU, the DDP hook and the process group, on emulated GPUs.

Tensors are on the CPU and pass for ones on a GPU; what adds them up is a winnow.Node all the same.
"""

import contextlib
import os
import pickle
import unittest
from unittest import mock

import emulated_gpu
import harness
import test_failures
import test_sparse_ddp
import torch
import torch.distributed as dist
from emulated_gpu import LOCAL, passing_for, torchrun
from test_ddp import ROWS, WIDTH, furthest, plain, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow import _places

WORLD, STEPS = 4, 3  # an emulated GPU is slow
BOUND = 1e-5
NAMES = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "WORLD_SIZE", "RANK")


team = None  # of tests that end well


def setUpModule():
    global team
    emulated_gpu.load()
    team = harness.Team(WORLD)


def tearDownModule():
    team.close()
    emulated_gpu.unload()


# ---- who is where ----


def place(rank, world, environments):
    """What agree() gives a process with the environment of its rank, or what it raises."""
    emulated_gpu.load()
    for name in NAMES:
        os.environ.pop(name, None)
    os.environ.update(environments[rank])
    try:
        return _places.agree(lambda value: winnow.torch._exchange(value, None), rank)
    except (ValueError, winnow.WinnowError) as error:
        return [f"{type(error).__name__}: {error}"]


def environments(*places, **others):
    return [{"GROUP_RANK": str(node), "LOCAL_RANK": str(local), **others} for node, local in places]


class Places(unittest.TestCase):
    def test_nodes(self):
        """As torchrun has it; in any order; on one host. Who is node, of how many, and in it which process, of how many."""
        names = ("node", "nodes", "local_rank", "local_world")
        for given, want in (
            (environments((0, 0), (0, 1), (1, 0), (1, 1)), [(0, 2, 0, 2), (0, 2, 1, 2), (1, 2, 0, 2), (1, 2, 1, 2)]),
            (environments((7, 5), (3, 1), (3, 0), (7, 2)), [(1, 2, 1, 2), (0, 2, 1, 2), (0, 2, 0, 2), (1, 2, 0, 2)]),
            ([{"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}] * WORLD, [(0, 1, rank, 4) for rank in range(WORLD)]),
        ):
            found = team.run(place, given)
            ids = [(one["node"], one.pop("id")) for one in found]
            self.assertEqual(found, [dict(zip(names, each)) for each in want])
            nodes = len({each[0] for each in want})  # each has an id, which is no other's
            self.assertEqual((len(set(ids)), len({id for _, id in ids})), (nodes, nodes))
            self.assertEqual({len(id) for _, id in ids}, {128})

    def test_what_is_wrong_with_one_is_told_to_all(self):
        nobody = environments((0, 0), (0, 1), (1, 0), (1, 1), WORLD_SIZE="4", LOCAL_WORLD_SIZE="2")
        del nobody[2]["GROUP_RANK"]
        bad = environments((0, 0), (0, 1), (1, 0), (1, "x"))
        for given, text in (
            (environments((0, 0), (0, 1), (0, 2), (1, 0)),
             "ValueError: node 0 has 3 of the 4 processes and node 1 has 1: all must have the same number"),
            (environments((0, 0), (0, 1), (0, 0), (1, 0)),
             "ValueError: ranks 0 and 2 are both process 0 of node 0"),
            (nobody,
             "ValueError: rank 2: the number of this node is unknown: set GROUP_RANK, as torchrun does, or pass node"),
            (bad, "ValueError: rank 3: LOCAL_RANK is 'x': want a number from 0 on"),
        ):  # fmt: skip
            self.assertEqual(team.run(place, given), [[text]] * WORLD)

    def test_no_nccl(self):
        given = environments((0, 0), (0, 1), (1, 0), (1, 1))
        given[2]["WINNOW_NCCL"] = "/nowhere.so"
        with harness.Team(WORLD) as fresh:  # NCCL is opened once
            for (text,) in fresh.run(place, given):
                self.assertRegex(text, "^WinnowError: rank 2: cannot open NCCL: /nowhere.so")


# ---- the hook ----


def compare(rank, world, job, sparse):
    """Trains over Gloo and over nodes; what comes out, and what the hook's state knows."""
    _, gpu = torchrun(rank, world, job)

    def trained(over):
        """Parameters, and the hook's state."""
        return (test_sparse_ddp.train(rank, "sparse", over, steps=STEPS) if sparse else train(rank, over, steps=STEPS))[-2:]

    want, _ = trained(plain)
    emulated_gpu.CarryingNode.tables.clear()
    with passing_for(gpu):
        got, state = trained(lambda ddp: winnow.torch.attach(ddp, node=True))
        stats = state.stats()
        node = state.comm
        state.close()
    later = state.stats()  # of what is closed: heartbeats may have been counted meanwhile
    assert later[:8] == stats[:8] and later.sent_bytes >= stats.sent_bytes, (stats, later)
    assert furthest(want, got) < BOUND
    assert (node.nodes, node.local_world, node.gpus) == (2, LOCAL, [rank % LOCAL])
    tables = [segment[1:] for segments in emulated_gpu.CarryingNode.tables for segment in segments]
    if sparse:
        assert tables == [] and stats.buckets >= 2 * STEPS, stats
        return
    # Both in each step's buckets, wherever DDP has put them there.
    assert tables == 2 * STEPS * [(ROWS * WIDTH, WIDTH)]
    assert stats.buckets >= 2 * STEPS and stats.staged_out_bytes > 0 and stats.sent_bytes > 0, stats
    # Half of each bucket is this GPU's, and of the tables' blocks each is a row.
    assert 0.4 < stats.blocks / (2 * STEPS * ROWS) < 0.6, stats


def chosen(rank, world, job, block):
    """Of each GPU's gradient, before the node adds up."""
    _, gpu = torchrun(rank, world, job)
    with passing_for(gpu), winnow.torch.make_node() as node:
        state = winnow.torch.HookState(node, compress=winnow.torch.TopK(0.02, block=block, warm_up=1))
        before = state.stats()
        for step in harness.chosen(state, rank, world, 3, block, warm_up=1):
            now = state.stats()
            sent = (now.blocks_union - before.blocks_union) / (now.blocks - before.blocks)
            assert sent == 1 if step == 0 else sent < 0.15, (step, sent)
            before = now
        state.close()


def chosen_in_training(rank, world, job):
    _, gpu = torchrun(rank, world, job)
    with passing_for(gpu):
        parameters, state = train(rank, lambda ddp: winnow.torch.attach(ddp, node=True, compress=winnow.torch.TopK(0.05)), steps=STEPS)
        stats = state.stats()
        state.close()
    assert stats.union < 0.6, stats
    return [float(parameter.double().sum()) for parameter in parameters]


def by_other_ways(rank, world, job):
    """A node of the caller's own, and a pickled state, which joins when it is first used."""
    _, gpu = torchrun(rank, world, job)
    want, _ = train(rank, plain, steps=1)
    with passing_for(gpu):
        with winnow.torch.make_node() as node:
            got, state = train(rank, lambda ddp: winnow.torch.attach(ddp, node), steps=1)
            text = pickle.dumps(state)
            state.close()
            node.check()  # it is the caller's
        os.environ["WINNOW_JOB"] = job + "-copy"
        copy = pickle.loads(text)
        same, _ = train(rank, lambda ddp: ddp.register_comm_hook(copy, winnow.torch.hook), steps=1)
        assert copy.comm.nodes == 2
        copy.close()
    assert furthest(want, got) < BOUND and furthest(want, same) < BOUND


def refused(rank, world, job):
    """What attach() and the hook say, to a process alone."""
    _, gpu = torchrun(rank, world, job)

    def attach(text, *arguments, **options):
        with unittest.TestCase().assertRaisesRegex(ValueError, f"^.*{text}.*$"):
            winnow.torch.attach(ddp, *arguments, **options)

    def reduce(text, tensor):
        """torch wraps what backward() raises; the state has it as it was."""
        state.error = None
        with contextlib.suppress(RuntimeError):
            state.reduce(tensor).wait()
        assert text in str(state.error) and "\n" not in str(state.error), state.error

    parts = {"module": nn.Linear(2, 2), "process_group": dist.group.WORLD, "parameters_to_ignore": []}
    ddp = mock.Mock(spec=DistributedDataParallel, **parts)
    attach("parameter weight is on cpu: with nodes, the whole model must be on the process's GPU", node=True)
    with passing_for(gpu):
        node = winnow.torch.make_node()
        attach("node=True creates a winnow.Node: leave comm out", node, node=True)
        state = winnow.torch.HookState(node)
        reduce("averages need a floating-point type", torch.ones(4, dtype=torch.int64))
        with passing_for(1 - gpu):
            attach(f"the whole model must be on the process's GPU, which is {rank % LOCAL}", node)
    reduce("a gradient is on the CPU: with nodes, the whole model must be on the process's GPU", torch.ones(4))
    state.close()
    node.close()


def until_it_fails(rank, world, job, victim):
    _, gpu = torchrun(rank, world, job)
    with passing_for(gpu), winnow.torch.make_node() as node:
        return test_failures.train_over(node, rank, (victim, test_failures.die, None), False, test_failures.Sparse)


class Hook(unittest.TestCase):
    def test_dense(self):
        team.run(compare, harness.fresh_job(), False)

    def test_sparse(self):
        team.run(compare, harness.fresh_job(), True)

    def test_chosen(self):
        for block in (1, 4):
            with self.subTest(block=block):
                team.run(chosen, harness.fresh_job(), block)
        sums = team.run(chosen_in_training, harness.fresh_job())
        self.assertEqual(sums, WORLD * sums[:1])

    def test_other_ways(self):
        team.run(by_other_ways, harness.fresh_job())

    def test_refused(self):
        team.run(refused, harness.fresh_job())


class Deaths(unittest.TestCase):
    def test_a_process_dies(self):
        with harness.Team(WORLD) as mortal:
            mortal.start(until_it_fails, harness.fresh_job(), 3)
            results = mortal.collect(60)  # "hangs" for who is not told
        self.assertEqual(results.pop(), "died -9")
        for step, _, text, code in results:
            self.assertEqual(step, test_failures.SAFE_STEPS)
            self.assertRegex(text, "rank [13] ")
            self.assertIn(code, (winnow.WinnowError.MEMBERS, winnow.WinnowError.ABORTED))


# ---- the process group ----


def through_a_group(rank, world, job):
    """What all_reduce gives, and what it goes through."""
    _, gpu = torchrun(rank, world, job)
    os.environ["WINNOW_NODE"] = "1"
    group = dist.new_group(backend="winnow")
    before = emulated_gpu.CarryingNode.operations
    with passing_for(gpu):
        for dtype in (torch.float32, torch.float64, torch.int64):
            tensor = torch.arange(3000).to(dtype).view(30, 100) * (rank + 1)
            dist.all_reduce(tensor, group=group)
            assert (tensor == torch.arange(3000).view(30, 100) * 10).all()
        assert emulated_gpu.CarryingNode.operations == before + 3
        whole = torch.full((5,), rank + 2)
        dist.all_reduce(whole, op=dist.ReduceOp.AVG, group=group)  # nodes do not average integers
        assert whole.tolist() == [3] * 5
        coo = torch.sparse_coo_tensor(torch.tensor([[rank, 7]]), torch.ones(2, 4), (9, 4))
        dist.all_reduce(coo, group=group)
        assert float(coo.to_dense().sum()) == 8 * world
    dist.barrier(group=group)
    assert emulated_gpu.CarryingNode.operations == before + 3


class Group(unittest.TestCase):
    def test_all_reduce(self):
        team.run(through_a_group, harness.fresh_job())
