# SPDX-License-Identifier: BSD-3-Clause
"""winnow.Node: two nodes of two GPUs, emulated ones, each with a process of its own, and an emulated NCCL.

Results of all kinds, and what ends a node: tests/e2e/test_gpu_node.sh.
"""

import os
import time
import unittest

import emulated_gpu
import harness
import numpy
import torch  # noqa: F401: of a torch with CUDA, emulated_gpu has to know here
from emulated_gpu import Array, Stream, values_of

import winnow

NODES, LOCAL = 2, 2
WORLD = NODES * LOCAL
COUNT = 20_000


def setUpModule():
    emulated_gpu.load()


def tearDownModule():
    emulated_gpu.unload()


def wanted(world, *arguments):
    return sum(values_of(rank, "float32", *arguments) for rank in range(world))


_node = None


def enter(rank, world, job, **settings):
    """This process's winnow.Node, as torchrun's environment has it, with the id that a first one made."""
    import torch.distributed as dist

    global _node
    emulated_gpu.load()
    here, local = divmod(rank, LOCAL)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(LOCAL),
        GROUP_RANK=str(here),
    )  # fmt: skip
    ids = [None] * world
    dist.all_gather_object(ids, winnow.node_id() if local == 0 else None)
    emulated_gpu.cuda.cudaSetDevice(local)
    _node = winnow.Node(gpus=local, id=ids[here * LOCAL], job=job, insecure_no_key=True, **settings)
    return _node.node, _node.nodes, _node.local_rank, _node.local_world, _node.rank, _node.world, repr(_node)


def leave(rank, world):
    _node.close()
    _node.close()  # twice is fine
    try:
        _node.allreduce(Array(numpy.ones(4, numpy.float32)))
    except winnow.WinnowError as error:
        return [str(error)]


def reduce_all(rank, world):
    """What is wrong, if something is: types, operations, lengths, in place and apart."""
    wrong = []
    for number, (dtype, op, count) in enumerate(
        (("float32", "sum", COUNT), ("float16", "max", 1), ("float64", "prod", 0), ("int32", "min", 511),
         ("int64", "sum", 4097), ("float32", "avg", COUNT))
    ):  # fmt: skip
        given = [values_of(other, dtype, count, number) for other in range(world)]
        ufunc = {"max": numpy.maximum, "min": numpy.minimum, "prod": numpy.multiply}.get(op, numpy.add)
        want = ufunc.reduce(given) / (world if op == "avg" else 1)
        stream = Stream() if number % 3 else None
        data = Array(given[rank], stream, **({"data": (0, False)} if count == 0 else {}))
        out = Array(numpy.full_like(given[rank], 7)) if number % 2 and count else data
        result = _node.allreduce(data, out=out, op=op, block=(0, 32)[number % 2])
        right = count == 0 or (result.read() == want).all() and (out is data or (data.read() == given[rank]).all())
        if not right or result is not out:
            wrong.append((dtype, op, count))
    return wrong


def while_the_others_are_late(rank, world):
    """CUDA waits for all streams when memory is freed, and lets no thread do anything else meanwhile."""
    if _node.node == 1:
        time.sleep(1)
    array = Array(values_of(rank, "float32"))
    request = _node.allreduce_async(array)
    begun = time.monotonic()
    Array(numpy.ones(1000))  # is freed at once
    took = time.monotonic() - begun
    request.wait()
    return took, bool((array.read() == wanted(world)).all())


def many_under_way(rank, world):
    """Written late, by the caller's word or the array's, and taken in another order."""
    streams = [Stream().hold(0.05) for _ in range(4)]
    requests = []
    for number in range(12):
        late = streams[number % 4]
        array = Array(values_of(rank, "float32", COUNT, number), late, stream=None)
        options = {"tag": number % 3 and number, "priority": number}
        requests.append(_node.allreduce_async(array, stream=late.handle, **options))
    wrong = [
        number
        for number in reversed(range(12))
        if not (requests[number].wait(30).read() == wanted(world, COUNT, number)).all()
    ]
    assert all(request.test() for request in requests)
    _node.check()
    return wrong, requests[0].stats, requests[0].stats.density, _node.stats().sent_bytes


ROW, TABLE = 250, 100  # elements of a row, rows
BEFORE = 130  # elements that are no rows


def with_segments(rank, world):
    """A table behind something else, of which each GPU has a row: blocks of rows, and others."""
    given = numpy.zeros(BEFORE + ROW * TABLE, numpy.float32)
    given[5] = 1
    given[BEFORE + ROW * (10 + 25 * rank) :][:ROW] = rank + 1
    want = numpy.zeros_like(given)
    want[5] = world
    for other in range(world):
        want[BEFORE + ROW * (10 + 25 * other) :][:ROW] = other + 1
    found = []
    for segments in ([(BEFORE, ROW * TABLE, ROW)], [], None):
        array = Array(given)
        request = _node.allreduce_async(array, segments=segments)
        found.append((bool((request.wait().read() == want).all()), request.stats.blocks_union))
    for wrong in ([(0, 10, 2), (5, 10, 2)], [(given.size, 1, 1)]):
        try:
            _node.allreduce(Array(given), segments=wrong)
        except winnow.WinnowError as error:
            found.append(str(error))
    return found


def with_rows(rank, world):
    """What nodes cannot do goes by a communicator of all processes."""
    with _node.comm() as comm:
        index = numpy.array([rank, 9])
        index, values = comm.allreduce_rows(index, numpy.ones((2, 4), numpy.float32), 10)
        return comm.rank, comm.world, index.tolist(), values[:, 0].tolist()


def refusals(rank, world):
    """The texts of what each of these raises, and that the node goes on."""
    ones = numpy.ones(16, numpy.float32)
    found = []
    for data, options in (
        (ones, {}),
        ([Array(ones), Array(ones)], {}),
        (Array(ones), {"out": ones.copy()}),
        (Array(ones), {"out": Array(numpy.ones(15, numpy.float32))}),
        (Array(ones), {"stream": [0, 0]}),
        (Array(ones), {"op": "mean"}),
        (Array(numpy.ones(16, numpy.int32)), {"op": "avg"}),
        (_elsewhere(ones), {}),
    ):
        try:
            found.append(_node.allreduce(data, **options))
        except (TypeError, ValueError, winnow.WinnowError) as error:
            found.append(str(error))
    return found, _node.allreduce(Array(ones)).read().tolist()


def _elsewhere(values):
    """On the process's other GPU."""
    emulated_gpu.cuda.cudaSetDevice(1 - _node.gpus[0])
    array = Array(values)
    emulated_gpu.cuda.cudaSetDevice(_node.gpus[0])
    return array


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
        _node.close()
        return [error.code, str(error)]


def fail_inside(rank, world, victim):
    """An exception ends one process's `with`: the others are told which."""
    with _node:
        for number in range(100_000):
            if rank == victim and number == 5:
                raise RuntimeError("a bug of mine")
            _node.allreduce(Array(values_of(rank, "float32", 3000)))


class Results(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.team = harness.Team(WORLD)
        cls.places = cls.team.run(enter, harness.fresh_job())

    @classmethod
    def tearDownClass(cls):
        texts = cls.team.run(leave)
        cls.team.close()
        assert texts == [["the node is closed"]] * WORLD, texts

    def test_places(self):
        want = [
            (rank // LOCAL, NODES, rank % LOCAL, LOCAL, rank, WORLD, f"<winnow.Node rank {rank} of 4>")
            for rank in range(WORLD)
        ]
        self.assertEqual(self.places, want)

    def test_types_operations_lengths(self):
        self.assertEqual(self.team.run(reduce_all), [[]] * WORLD)

    def test_many_under_way(self):
        for rank, (wrong, stats, density, sent) in enumerate(self.team.run(many_under_way)):
            self.assertEqual(wrong, [])
            # Of a tensor of 79 blocks, this GPU's half; and of that what either of the node's GPUs has.
            self.assertIn(stats.blocks, (39, 40))
            mine = values_of(rank, "float32")
            self.assertLess(numpy.count_nonzero(mine), COUNT / 4)
            self.assertTrue(0 < density < 0.7, density)
            self.assertGreaterEqual(stats.blocks_union, stats.blocks_nonzero)
            self.assertGreater(stats.time_us, 0)
            self.assertGreater(sent, 12 * stats.blocks_nonzero * 1024 / 2)

    def test_no_stream_of_a_node_stands_still(self):
        for took, right in self.team.run(while_the_others_are_late):
            self.assertLess(took, 5)
            self.assertTrue(right)

    def test_segments(self):
        """Shares are 12,544 and 12,586 elements: rows 0 to 48, one that is cut, and 50 to 99."""
        for rank, found in enumerate(self.team.run(with_segments)):
            (rows_right, rows), *blocks, overlap, outside = found
            self.assertTrue(rows_right)
            self.assertEqual(rows, (3, 2)[rank % LOCAL])  # two rows, and what comes before them
            self.assertEqual(blocks, 2 * [(True, (5, 4)[rank % LOCAL])])  # a row lies in two blocks
            self.assertIn("segments overlap", overlap)
            self.assertIn("outside of the tensor", outside)

    def test_rows(self):
        for rank, found in enumerate(self.team.run(with_rows)):
            self.assertEqual(found, (rank, WORLD, [0, 1, 2, 3, 9], [1.0, 1.0, 1.0, 1.0, 4.0]))

    def test_refusals(self):
        for rank, (texts, after) in enumerate(self.team.run(refusals)):
            own = rank % LOCAL
            for text, want in zip(
                texts,
                (
                    "data is on the CPU: a node's GPUs reduce what is in their memory; pass data.cuda()",
                    "data is not a list of 1 arrays",
                    "out is on the CPU",
                    "out differs from data in size or type",
                    "stream is not a list of 1",
                    "want one of sum, avg, min, max, prod",
                    "averages of integers",
                    f"send[0] and recv[0] are on GPU {1 - own}, not on GPU {own}",
                ),
            ):
                self.assertIn(want, str(text))
                self.assertNotIn("\n", text)
            self.assertEqual(after, [4.0] * 16)


class OneProcess(unittest.TestCase):
    """All GPUs of a node in one process: lists."""

    def test_two_gpus(self):
        with winnow.Node(
            gpus=[0, 1], node=0, nodes=1, job=harness.fresh_job(), insecure_no_key=True
        ) as node:
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

    def refused(self, text, environment=(), **settings):
        names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "WORLD_SIZE", "RANK")
        before = {name: os.environ.pop(name) for name in names if name in os.environ}
        os.environ.update(environment)
        try:
            with self.assertRaisesRegex((TypeError, ValueError, winnow.WinnowError), text):
                winnow.Node(**{"gpus": 0, "insecure_no_key": True, **settings})
        finally:
            for name in names:
                os.environ.pop(name, None)
            os.environ.update(before)

    def test_settings(self):
        two = {"local_rank": 0, "local_world": 2, "nodes": 2, "node": 0}
        id = bytes(128)
        self.refused("Node\\(\\) has no argument 'rank'", rank=0)
        self.refused("Node\\(\\) has no argument 'colour'", colour=0)
        self.refused("nobody says which of the node's processes this is")
        self.refused("nobody says which of the node's processes", {"LOCAL_RANK": "0"})
        self.refused("LOCAL_RANK is 'first': want a number", {"LOCAL_RANK": "first"})
        self.refused("local_rank is 2: want 0 to 1, below local_world", **{**two, "local_rank": 2})
        self.refused("WORLD_SIZE is 5 and each node has 2", {"WORLD_SIZE": "5"}, local_rank=0, local_world=2)
        self.refused("WORLD_SIZE is None and each node has 2", local_rank=0, local_world=2)
        self.refused("nobody says which node this is", **{**two, "node": None})
        self.refused("id is None, and the node has other processes", **two)
        self.refused("id is not 128 bytes", **two, id=id[1:])
        self.refused("id is not 128 bytes", **two, id="0" * 128)
        self.refused("node is 2: want 0 to 1, below nodes", **{**two, "node": 2}, id=id)
        self.refused("local_rank and local_world are of processes with one GPU", gpus=[0, 1], local_rank=0)
        self.refused("local_world is the number of GPUs of this node: 1 to 64", gpus=[0] * 65, nodes=1)
        self.refused("gpus is -1", gpus=-1, local_rank=0, local_world=1, nodes=1)
        self.refused("has at most 57 characters", **two, id=id, job="j" * 58)
        self.refused("wire is 'f16'", **two, id=id, wire="f16")


class Ends(unittest.TestCase):
    """Each test ends its team's node."""

    def test_work_is_abandoned(self):
        with harness.Team(LOCAL) as team:
            team.run(enter, harness.fresh_job())
            team.start(abandon)
            (code, text), gone = team.collect(30)  # "hangs" if it is not told
        self.assertEqual((code, gone), (winnow.WinnowError.ABORTED, "died 0"), text)
        self.assertIn("a node was destroyed while it had work", text)

    def test_an_exception(self):
        with harness.Team(WORLD) as team:
            team.run(enter, harness.fresh_job())
            team.start(fail_inside, 1)
            results = team.collect(60)
        for rank, result in enumerate(results):
            self.assertIsInstance(result, harness.Failure)
            self.assertIn("a bug of mine", result.text)
            self.assertEqual(result.kind, "RuntimeError" if rank == 1 else "WinnowError")


if __name__ == "__main__":
    unittest.main()
