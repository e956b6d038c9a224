# SPDX-License-Identifier: BSD-3-Clause
"""winnow.Node: two nodes of two GPUs, emulated ones, each with a process of its own, and an emulated NCCL.

Results of all kinds, and what ends a node: tests/e2e/test_gpu_node.sh.
"""

import os
import re
import time
import unittest
from unittest import mock

import emulated_gpu
import harness
import numpy
import torch  # noqa: F401: of a torch with CUDA, emulated_gpu has to know here
from emulated_gpu import LOCAL, Array, Stream, values_of

import winnow

WORLD = 2 * LOCAL


setUpModule, tearDownModule = emulated_gpu.load, emulated_gpu.unload


def wanted(world):
    return sum(values_of(rank, "float32") for rank in range(world))


_node = None


def enter(rank, world, job, **settings):
    """This process's winnow.Node, as torchrun's environment has it, with the id that a first one made."""
    import torch.distributed as dist

    global _node
    here, local = emulated_gpu.torchrun(rank, world, job)
    ids = [None] * world
    dist.all_gather_object(ids, winnow.node_id() if local == 0 else None)
    emulated_gpu.cuda.cudaSetDevice(local)
    _node = winnow.Node(gpus=local, id=ids[here * LOCAL], **settings)
    assert (_node.node, _node.nodes, _node.local_rank, _node.local_world) == (here, world // LOCAL, local, LOCAL)
    assert emulated_gpu.cuda.emulated_cuda_has_context(1 - local) == 0, "a context on another process's GPU"
    assert repr(_node) == f"<winnow.Node rank {rank} of {world}>"


def leave(rank, world):
    _node.close()
    _node.close()  # twice is fine
    refused("the node is closed", Array(numpy.ones(4, numpy.float32)))


def refused(text, data, **options):
    one_line = f"^.*{re.escape(text)}.*$"
    with unittest.TestCase().assertRaisesRegex((TypeError, ValueError, winnow.WinnowError), one_line):
        _node.allreduce(data, **options)


def many_under_way(rank, world):
    stats = emulated_gpu.many_under_way(_node, rank, world)
    _node.check()
    # Of a tensor of 79 blocks, this GPU's half; and of that what either of the node's GPUs has.
    assert stats.blocks in (39, 40) and stats.time_us > 0, stats
    assert 0 < stats.density < 0.7 and stats.blocks_union >= stats.blocks_nonzero, stats
    assert _node.stats().sent_bytes > 2 * stats.blocks_nonzero * 1024 / 2


def no_stream_stands_still(rank, world):
    """CUDA waits for all streams when memory is freed, and lets no thread do anything else meanwhile."""
    if _node.node == 1:
        time.sleep(1)
    array = Array(values_of(rank, "float32"))
    request = _node.allreduce_async(array)
    begun = time.monotonic()
    Array(numpy.ones(1000))  # is freed at once, while the others are late
    assert time.monotonic() - begun < 5
    request.wait()
    assert (array.read() == wanted(world)).all()


ROW, TABLE = 250, 100  # elements of a row, rows
BEFORE = 130  # elements that are no rows


def segments(rank, world):
    """A table behind something else, of which each GPU has a row: blocks of rows, and others. Shares are 12,544 and
    12,586 elements: rows 0 to 48, one that is cut, and 50 to 99."""
    given = numpy.zeros(BEFORE + ROW * TABLE, numpy.float32)
    given[5] = 1
    want = given * world
    for other in range(world):
        row = slice(BEFORE + ROW * (10 + 25 * other), BEFORE + ROW * (11 + 25 * other))
        want[row] = other + 1
        given[row] = rank + 1 if other == rank else 0
    rows, blocks = ((3, 5), (2, 4))[rank % LOCAL]  # two rows, and what comes before them; a row lies in two blocks
    for listed, union in (([(BEFORE, ROW * TABLE, ROW)], rows), ([], blocks), (None, blocks)):
        request = _node.allreduce_async(Array(given), segments=listed)
        assert (request.wait().read() == want).all() and request.stats.blocks_union == union, request.stats
    refused("segments overlap", Array(given), segments=[(0, 10, 2), (5, 10, 2)])
    refused("outside of the tensor", Array(given), segments=[(given.size, 1, 1)])


def rows(rank, world):
    """What nodes cannot do goes by a communicator of all processes."""
    with _node.comm() as comm:
        index = numpy.array([rank, 9])
        index, values = comm.allreduce_rows(index, numpy.ones((2, 4), numpy.float32), 10)
        assert (comm.rank, comm.world) == (rank, world)
        assert index.tolist() == [0, 1, 2, 3, 9] and values[:, 0].tolist() == [1.0, 1.0, 1.0, 1.0, 4.0]


def refusals(rank, world):
    """And the node goes on."""
    ones, own = numpy.ones(16, numpy.float32), _node.gpus[0]
    emulated_gpu.cuda.cudaSetDevice(1 - own)
    elsewhere = Array(ones)
    emulated_gpu.cuda.cudaSetDevice(own)
    refused("data is on the CPU, but a node reduces data on its GPUs: pass data.cuda()", ones)
    refused("data is not a list of 1 arrays", [Array(ones), Array(ones)])
    refused("out is on the CPU", Array(ones), out=ones.copy())
    refused("out differs from data in size or type", Array(ones), out=Array(ones[1:]))
    refused("stream is not a list of 1", Array(ones), stream=[0, 0])
    refused("want one of sum, avg, min, max, prod", Array(ones), op="mean")
    refused("wire fixed16, fixed8 and bf16 are for tensors in main memory", Array(ones), wire="bf16")
    refused("averages of integers", Array(numpy.ones(16, numpy.int32)), op="avg")
    refused(f"send[0] and recv[0] are on GPU {1 - own}, not on GPU {own}", elsewhere)
    assert _node.allreduce(Array(ones)).read().tolist() == [4.0] * 16


def abandon(rank, world):
    """One process of a node ends it while it has work: what the node's other one is told."""
    array, late = Array(values_of(rank, "float32", 3000)), Stream()
    try:
        for number in range(100_000):
            if (rank, number) == (1, 5):
                _node.allreduce_async(array, stream=late.hold(5).handle)
                winnow._native.lib.winnow_node_destroy(_node._handle)
                os._exit(0)
            _node.allreduce(array)
    except winnow.WinnowError as error:
        with unittest.TestCase().assertRaises(winnow.WinnowError) as later:
            _node.check()
        _node.close()
        return [error.code, later.exception.code, str(error)]


def fail_inside(rank, world, victim):
    """An exception ends one process's `with`: the others are told which."""
    with _node:
        for number in range(100_000):
            if rank == victim and number == 5:
                raise RuntimeError("a bug of mine")
            _node.allreduce(Array(values_of(rank, "float32", 3000)))


def leave_early(rank, world):
    """One process of the only node ends well while the other one goes on: nothing but the guard tells of it."""
    for _ in range(3):
        _node.allreduce(Array(values_of(rank, "float32", 3000)))
    if rank == 1:
        _node.close()
        return None
    time.sleep(0.5)
    begun = time.monotonic()
    try:
        _node.allreduce(Array(values_of(rank, "float32", 3000)))
    except winnow.WinnowError as error:
        _node.close()
        return [error.code, str(error), time.monotonic() - begun]


class Results(unittest.TestCase):
    """Each function tests in all processes of one team, whose nodes are what enter() says."""

    def test_all(self):
        with harness.Team(WORLD) as team:
            team.run(enter, harness.fresh_job())
            for function in (many_under_way, no_stream_stands_still, segments, rows, refusals, leave):
                with self.subTest(function=function.__name__):
                    team.run(function)


class OneProcess(unittest.TestCase):
    """All GPUs of a node in one process: lists."""

    def test_two_gpus(self):
        with winnow.Node(gpus=[0, 1], node=0, nodes=1, job=harness.fresh_job()) as node:
            self.assertEqual((node.world, node.rank, node.local_world), (2, 0, 2))
            data, streams = [], []
            for gpu in (0, 1):
                emulated_gpu.cuda.cudaSetDevice(gpu)
                streams.append(Stream())
                data.append(Array(values_of(gpu, "float32"), streams[-1], stream=None))
            handles = [stream.handle for stream in streams]
            self.assertIs(node.allreduce(data, stream=handles), data)
            for array in data:
                self.assertTrue((array.read() == wanted(2)).all())
            with self.assertRaisesRegex(TypeError, "data is not a list of 2 arrays"):
                node.allreduce(data[0])
            with self.assertRaisesRegex(TypeError, r"data\[1\] is on the CPU"):
                node.allreduce([data[0], numpy.ones(4)])
            with self.assertRaisesRegex(ValueError, "data differs in size or type between GPUs"):
                node.allreduce([data[0], Array(numpy.ones(3))])
            with node.comm() as comm:
                self.assertEqual(comm.world, 1)
        emulated_gpu.cuda.cudaSetDevice(0)


class Settings(unittest.TestCase):
    """What is wrong before anybody is asked."""

    def test_settings(self):
        two, id = {"local_rank": 0, "local_world": 2, "nodes": 2, "node": 0}, bytes(128)
        mine = {name: value for name, value in os.environ.items() if not re.search("RANK$|WORLD_SIZE$", name)}
        for text, settings, environment in (
            ("Node\\(\\) has no argument 'rank'", {"rank": 0}, {}),
            ("Node\\(\\) has no argument 'colour'", {"colour": 0}, {}),
            ("this process's number in the node is unknown", {}, {}),
            ("this process's number in the node", {}, {"LOCAL_RANK": "0"}),
            ("LOCAL_RANK is 'first': want a number", {}, {"LOCAL_RANK": "first"}),
            ("local_rank is 2: want 0 to 1, below local_world", {**two, "local_rank": 2}, {}),
            ("WORLD_SIZE is 5, but each node has 2", {"local_rank": 0, "local_world": 2}, {"WORLD_SIZE": "5"}),
            ("WORLD_SIZE is None, but each node has 2", {"local_rank": 0, "local_world": 2}, {}),
            ("the number of this node is unknown", {**two, "node": None}, {}),
            ("id is None, but the node has other processes", two, {}),
            ("id is not 128 bytes", {**two, "id": id[1:]}, {}),
            ("id is not 128 bytes", {**two, "id": "0" * 128}, {}),
            ("node is 2: want 0 to 1, below nodes", {**two, "node": 2, "id": id}, {}),
            ("local_rank and local_world are for processes with one GPU", {"gpus": [0, 1], "local_rank": 0}, {}),
            ("local_world must be the number of GPUs in this node, 1 to 64", {"gpus": [0] * 65, "nodes": 1}, {}),
            ("gpus is -1", {"gpus": -1, "local_rank": 0, "local_world": 1, "nodes": 1}, {}),
            ("must have at most 57 characters", {**two, "id": id, "job": "j" * 58}, {}),
            ("wire is 'f16'", {**two, "id": id, "wire": "f16"}, {}),
        ):
            with self.subTest(text), mock.patch.dict(os.environ, {**mine, **environment}, clear=True):
                with self.assertRaisesRegex((TypeError, ValueError, winnow.WinnowError), text):
                    winnow.Node(**{"gpus": 0, **settings})


class Ends(unittest.TestCase):
    """Each test ends its team's node."""

    def ended(self, world, function, *arguments, **settings):
        """What each process comes to; "hangs" if it is not told."""
        with harness.Team(world) as team:
            team.run(enter, harness.fresh_job(), **settings)
            team.start(function, *arguments)
            return team.collect(30)

    def test_work_is_abandoned(self):
        (code, later, text), gone = self.ended(LOCAL, abandon)
        self.assertEqual((code, later, gone), (winnow.WinnowError.ABORTED, winnow.WinnowError.ABORTED, "died 0"), text)
        self.assertIn("the node was destroyed while it had operations under way", text)

    def test_one_leaves(self):
        (code, text, took), _ = self.ended(LOCAL, leave_early, silence_ms=1000)
        self.assertEqual(code, winnow.WinnowError.MEMBERS, text)
        self.assertRegex(text, "rank 1 .* has left the job while an operation needed it")
        self.assertLess(took, 5)

    def test_an_exception(self):
        for rank, result in enumerate(self.ended(WORLD, fail_inside, 1)):
            self.assertIsInstance(result, harness.Failure)
            self.assertIn("a bug of mine", result.text)
            self.assertEqual(result.kind, "RuntimeError" if rank == 1 else "WinnowError")
