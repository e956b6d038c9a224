# SPDX-License-Identifier: BSD-3-Clause
"""The process group backend "winnow" with views of every kind: the right values, in the view alone, by whichever way."""

import random
import time

import harness
import torch
import torch.distributed as dist
from test_group import group_of

import winnow.torch  # noqa: F401 - the backend

FLOATS = [torch.float32, torch.float64, torch.float16]
WHOLE = [torch.uint8, torch.int8, torch.int32, torch.int64]
BESIDE = 99  # what is in memory beside a view


def view_of(draw, dtype, shape):
    """A view of this shape, of a type and in memory that holds more than it."""
    way = draw.choice(["contiguous", "columns", "every second", "transposed", "offset", "negated"])
    if way == "negated" and dtype in (torch.float32, torch.float64):
        kind = torch.complex64 if dtype == torch.float32 else torch.complex128
        whole = torch.full(shape, complex(BESIDE, BESIDE), dtype=kind)
        return whole, whole.conj().imag
    if way == "columns":
        whole = torch.full((*shape, 2), BESIDE, dtype=dtype)
        return whole, whole[..., 1]
    if way == "every second":
        whole = torch.full((2 * shape[0], *shape[1:]), BESIDE, dtype=dtype)
        return whole, whole[::2]
    if way == "transposed":
        whole = torch.full(tuple(reversed(shape)), BESIDE, dtype=dtype)
        return whole, whole.permute(*reversed(range(len(shape))))
    if way == "offset":
        whole = torch.full((shape[0] + 3, *shape[1:]), BESIDE, dtype=dtype)
        return whole, whole[2:-1]
    whole = torch.full(shape, BESIDE, dtype=dtype)
    return whole, whole


class Tensors:
    """What a test hands to a collective: views that are filled, and memory beside them that has to stay as it is."""

    def __init__(self, draw):
        self._draw, self._wholes = draw, []

    def new(self, values):
        whole, view = view_of(self._draw, values.dtype, tuple(values.shape))
        view.copy_(values)
        self._wholes.append((whole, view))
        return view

    def check(self):
        for whole, view in self._wholes:
            view.fill_(BESIDE)
            values = torch.view_as_real(whole) if whole.is_complex() else whole
            assert (values.abs() == BESIDE).all(), (whole.dtype, view.shape, view.stride(), whole)


def combined(op, values):
    stack = torch.stack(values)
    if op == "AVG":
        return (stack.double().sum(0) / len(values)).to(stack.dtype)
    if op in ("SUM", "PRODUCT"):
        return (stack.double().sum(0) if op == "SUM" else stack.double().prod(0)).to(stack.dtype)
    if op in ("MIN", "MAX"):
        return stack.amin(0) if op == "MIN" else stack.amax(0)
    result = values[0].clone()
    for other in values[1:]:
        result = {"BAND": result & other, "BOR": result | other, "BXOR": result ^ other}[op]
    return result


def step(rank, world, group, draw, own):
    """One collective. `draw` is the same on all ranks, `own` is not: views differ between ranks."""
    name = draw.choice([
        "all_reduce", "all_reduce", "all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter",
        "reduce_scatter", "all_gather_base", "reduce_scatter_base", "all_to_all", "send",
    ])  # fmt: skip
    dtype = draw.choice(FLOATS + WHOLE)
    ops = ["SUM", "PRODUCT", "MIN", "MAX"] + (["AVG"] if dtype in FLOATS else ["BAND", "BOR", "BXOR"])
    if name.startswith("reduce_scatter"):
        dtype = draw.choice(FLOATS + [torch.int32, torch.int64])
        ops = ops[:4]
    op, root = draw.choice(ops), draw.randrange(world)
    shape = [draw.randint(1, 5) for _ in range(draw.randint(1, 3))]
    seeds = torch.Generator().manual_seed(draw.randrange(2**31))
    new = lambda: torch.randint(0, 4, shape, generator=seeds).to(dtype)
    each = [[new() for _ in range(world)] for _ in range(world)]  # by rank, a tensor for each rank
    mine, all_firsts, tensors = each[rank], [one[0] for one in each], Tensors(own)
    said = f"{name} {op} of {dtype}, {shape}, root {root}"

    def same(got, wanted):
        assert torch.equal(torch.stack(list(got)), torch.stack(list(wanted))), (said, got, wanted)

    how = {"op": getattr(dist.ReduceOp, op), "group": group}
    first = tensors.new(mine[0])
    room = [tensors.new(torch.full_like(mine[0], 55)) for _ in range(world)]
    if name == "all_reduce":
        dist.all_reduce(first, **how)
        same([first], [combined(op, all_firsts)])
    elif name == "broadcast":
        dist.broadcast(first, root, group=group)
        same([first], [all_firsts[root]])
    elif name == "reduce":
        if op == "AVG":
            how["op"], op = dist.ReduceOp.SUM, "SUM"  # Gloo has none
        dist.reduce(first, root, **how)
        if rank == root:
            same([first], [combined(op, all_firsts)])
    elif name == "all_gather":
        dist.all_gather(room, first, group=group)
        same(room, all_firsts)
    elif name == "gather":
        dist.gather(first, room if rank == root else None, root, group=group)
        if rank == root:
            same(room, all_firsts)
    elif name == "scatter":
        dist.scatter(first, [tensors.new(one) for one in mine] if rank == root else None, root, group=group)
        same([first], [each[root][rank]])
    elif name == "reduce_scatter":
        dist.reduce_scatter(first, [tensors.new(one) for one in mine], **how)
        same([first], [combined(op, [one[rank] for one in each])])
    elif name == "all_gather_base":
        output = tensors.new(torch.full((world * shape[0], *shape[1:]), 55, dtype=dtype))
        group._allgather_base(output, first).wait()
        same(output.chunk(world), all_firsts)
    elif name == "reduce_scatter_base":
        options = dist.ReduceScatterOptions()
        options.reduceOp = how["op"]
        group._reduce_scatter_base(first, tensors.new(torch.cat(mine)), options).wait()
        same([first], [combined(op, [one[rank] for one in each])])
    elif name == "all_to_all":
        output = tensors.new(torch.full((world * shape[0], *shape[1:]), 55, dtype=dtype))
        dist.all_to_all_single(output, tensors.new(torch.cat(mine)), group=group)
        same(output.chunk(world), [one[rank] for one in each])
    else:
        to, come_from = (rank + 1) % world, (rank - 1) % world
        work = dist.isend(first, to, group=group)
        come = dist.irecv(room[0], come_from, group=group)
        come.wait()
        work.wait()
        same([room[0]], [all_firsts[come_from]])
    tensors.check()


def fuzz(rank, world, job, seed, steps):
    group, draw, own = group_of(job), random.Random(seed), random.Random(f"{seed} {rank}")
    for _ in range(steps):
        step(rank, world, group, draw, own)
    for way in ("future", "is_completed"):  # instead of wait()
        whole = torch.full((3, 2), BESIDE, dtype=torch.uint8)
        whole[:, 0] = rank + 1
        work = dist.all_reduce(whole[:, 0], group=group, async_op=True)
        if way == "future":
            assert work.get_future().wait()[0].data_ptr() == whole.data_ptr()
        while not work.is_completed():
            time.sleep(0.001)
        assert whole.tolist() == [[sum(range(1, world + 1)), BESIDE]] * 3, (way, whole)


class Strides(harness.TeamCase):
    world = 3

    def test_fuzz(self):
        for seed in range(4):
            with self.subTest(seed=seed):
                self.team.run(fuzz, harness.fresh_job(), seed, 150)
