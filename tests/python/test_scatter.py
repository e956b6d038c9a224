# SPDX-License-Identifier: BSD-3-Clause
"""reduce_scatter, of a communicator and of the process group "winnow": sums, bytes received, what is refused."""

import ctypes

import harness
import numpy
import torch
import torch.distributed as dist
from test_group import DTYPES, group_of, tensor_of

import winnow
from winnow import _native

OPS = {"sum": numpy.add, "min": numpy.minimum, "max": numpy.maximum, "prod": numpy.multiply}
WORLD = 4


def tensors(world, count, dtype, density=1.0, seed=0):
    """Small integers: exact in any order."""
    draw = numpy.random.default_rng(seed)
    found = draw.integers(-3, 4, (world, count)).astype(dtype)
    found[:, draw.random(count) > density] = 0
    return found


class Scatter(harness.CommCase):
    world = WORLD

    def shares(self, data, outs, **options):
        return harness.on_threads(
            WORLD, lambda rank: self.comms[rank].reduce_scatter(data[rank], outs[rank], **options)
        )

    def check(self, count, dtype, op="sum", in_place=False, **options):
        data = tensors(WORLD, count * WORLD, dtype, options.pop("density", 1.0))
        whole = OPS[op].reduce(data)
        if in_place:
            outs = [data[rank][rank * count : (rank + 1) * count] for rank in range(WORLD)]
        else:
            outs = [numpy.full(count, 77, dtype) for _ in range(WORLD)]
        for rank, share in enumerate(self.shares(data, outs, op=op, **options)):
            self.assertIs(share, outs[rank])
            wanted = whole[rank * count : (rank + 1) * count]
            self.assertTrue((share == wanted).all(), (count, dtype, op, in_place, options, rank))

    def test_sums(self):
        """Eager ones, of blocks that lie across a share's border, too; frames; blocks larger than a datagram."""
        for dtype in ("float32", "float64", "int32", "int64", "float16"):
            for count in (0, 1, 7, 50, 999, 30001):
                for in_place in (False, True):
                    self.check(count, dtype, in_place=in_place)
        for block in (1, 64, 1000, 20000):
            self.check(5003, "float32", block=block)
            self.check(300000, "int32", block=block, density=0.01)

    def test_operations(self):
        for op in OPS:
            for count in (9, 4001):
                self.check(count, "int64", op)
                self.check(count, "float32", op, density=0.1)

    def test_average(self):
        for count in (5, 4099):
            data = [numpy.full(count * WORLD, rank + 1, numpy.float32) for rank in range(WORLD)]
            for share in self.shares(data, [numpy.empty(count, numpy.float32) for _ in range(WORLD)], op="avg"):
                self.assertEqual(set(share.tolist()), {2.5})

    def test_fixed(self):
        for count in (100, 40000):
            self.check(count, "float32", wire="fixed32")
            self.check(count, "float32", wire="fixed32", density=0.02, in_place=True)

    def received(self, call):
        """The least of some calls: on a busy machine frames are sent again."""
        found = []
        for _ in range(5):
            before = [comm.stats().received_bytes for comm in self.comms]
            harness.on_threads(WORLD, call)
            found.append(max(comm.stats().received_bytes - b for comm, b in zip(self.comms, before)))
        return min(found)

    def test_bytes_received(self):
        """A worker's own share, and a head in place of each frame of the others'."""
        count = 1 << 18
        data = [numpy.ones(count * WORLD, numpy.float32) for _ in range(WORLD)]
        outs = [numpy.empty(count, numpy.float32) for _ in range(WORLD)]
        wholes = [numpy.empty_like(d) for d in data]
        scattered = self.received(lambda rank: self.comms[rank].reduce_scatter(data[rank], outs[rank]))
        reduced = self.received(lambda rank: self.comms[rank].allreduce(data[rank], wholes[rank]))
        frame = self.comms[0].stats().payload
        most = reduced / WORLD + reduced / frame * 74 + 100000  # PLANs and CREDITs
        self.assertGreater(scattered, 4 * count)
        self.assertLess(scattered, most, (scattered, reduced))
        print(f"received: reduce_scatter {scattered}, allreduce {reduced}: {scattered / reduced:.3f}")

    def test_differ(self):
        """Each worker has one line that says who differs in what."""
        data, out = numpy.ones(400 * WORLD), numpy.empty(400)
        calls = (
            (lambda comm: comm.allreduce(data.copy()), "the call is"),
            (lambda comm: comm.reduce_scatter(data[: 300 * WORLD], out[:300]), "count is"),
            (lambda comm: comm.reduce_scatter(data, out, op="max"), "operation is"),
        )
        for other, text in calls:
            call = lambda comm, rank: other(comm) if rank == 1 else comm.reduce_scatter(data, numpy.empty(400))
            harness.mismatches(WORLD, call, f"{text} .* rank 1")

    def test_in_c(self):
        """The call that waits, and what only C can pass."""
        lib, count, f32, plus = _native.lib, 3000, _native.DTYPES["float32"], _native.OPS["sum"]
        data, outs = numpy.ones(count * WORLD, numpy.float32), [numpy.zeros(count, numpy.float32) for _ in self.comms]
        address = data.ctypes.data
        codes = harness.on_threads(
            WORLD,
            lambda rank: lib.winnow_reduce_scatter(
                address, outs[rank].ctypes.data, count, f32, plus, self.comms[rank]._handle
            ),
        )
        self.assertEqual(codes, [_native.OK] * WORLD)
        self.assertTrue(all((out == WORLD).all() for out in outs))
        request, handle = ctypes.c_void_p(), self.comms[0]._handle
        cuda = _native.Options(memory=_native.MEMORIES["cuda"])
        for send, recv, elems, options, text in (
            (None, address, 5, None, "a buffer is NULL"),
            (address, None, 5, None, "a buffer is NULL"),
            (address + 2, outs[0].ctypes.data, 5, None, "not aligned"),
            (address, outs[0].ctypes.data, 2**47, None, "above 2^48"),
            (address, outs[0].ctypes.data, 5, ctypes.byref(cuda), "takes no tensors on a GPU"),
        ):
            code = lib.winnow_reduce_scatter_async(
                send, recv, elems, f32, plus, options, handle, ctypes.byref(request)
            )
            self.assertEqual(code, winnow.WinnowError.INVALID)
            self.assertIn(text, lib.winnow_last_error().decode())
            self.assertIsNone(request.value)

    def test_refused(self):
        comm, data = self.comms[1], numpy.ones(8 * WORLD, numpy.float32)
        for out in (data[:8], data[9:17], data[7:15], data[16:24]):
            self.fails("INVALID", "overlap: recv must be send . rank . recv_count", comm.reduce_scatter, data, out)
        for out in (numpy.ones(7, numpy.float32), numpy.ones(8), numpy.ones(8 * WORLD, numpy.float32)):
            with self.assertRaisesRegex(ValueError, "since there are 4 workers"):
                comm.reduce_scatter(data, out)
        fixed = numpy.ones(8, numpy.float32)
        fixed.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "out is read-only"):
            comm.reduce_scatter(data, fixed)


def whole_of(rank, world, dtype, count):
    return torch.cat([tensor_of(10 * rank + r, dtype, (count,)) for r in range(world)])


def against_gloo(rank, world, job):
    """Every type and operation that Gloo has, small and large; in place. test_strides.py has the rest."""
    group, gloo = group_of(job), dist.group.WORLD
    base = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
    for dtype in DTYPES:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            for count in (3, 4000):
                whole = whole_of(rank, world, dtype, count)
                wanted = whole.float() if dtype == torch.bfloat16 else whole.clone()  # some Gloos lack it
                dist.all_reduce(wanted, op=op, group=gloo)
                wanted = wanted[rank * count : (rank + 1) * count].to(dtype)
                got = torch.full((count,), 9, dtype=dtype)
                base(got, whole, op=op, group=group)
                assert torch.equal(got, wanted), (dtype, op, count)
                assert torch.equal(whole, whole_of(rank, world, dtype, count)), "the input has changed"
    whole = whole_of(rank, world, torch.float32, 4000)
    wanted = sum(whole_of(r, world, torch.float32, 4000) for r in range(world)).chunk(world)[rank]
    for part in range(world):  # in place, and of another's part
        copy = whole.clone()
        output = copy.chunk(world)[part]
        base(output, copy, group=group)
        assert torch.equal(output, wanted), part


def coalesced(rank, world, job):
    """Of torch 2; called as the group's own method, which older ones do not know."""
    group = group_of(job)
    inputs = [whole_of(rank, world, torch.float32, count) for count in (1, 500, 2000)]
    outputs = [torch.empty(count) for count in (1, 500, 2000)]
    group.reduce_scatter_tensor_coalesced(outputs, inputs, dist.ReduceScatterOptions()).wait()
    for output in outputs:
        count = output.numel()
        wanted = sum(whole_of(r, world, torch.float32, count) for r in range(world)).chunk(world)[rank]
        assert torch.equal(output, wanted), count


class Group(harness.TeamCase):
    world = 4

    def test_against_gloo(self):
        self.team.run(against_gloo, harness.fresh_job())

    def test_coalesced(self):
        self.team.run(coalesced, harness.fresh_job())
