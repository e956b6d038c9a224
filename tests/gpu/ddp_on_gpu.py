# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch with tensors on a GPU that several processes share: against NCCL, and against itself.

check.sh runs it; WINNOW_AGGREGATORS, WINNOW_LIBRARY and BUILD say where everything is. On a machine
without a GPU, DEVICE=cpu runs it against Gloo, which only shows whether the tests work.

NCCL accepts one GPU from several processes if NCCL_HOSTID makes them look like different hosts.
"""

import contextlib
import functools
import importlib.util
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import harness  # noqa: E402
import test_failures  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import winnow  # noqa: E402
import winnow.torch  # noqa: E402

DEVICE = os.environ.get("DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"
if ON_GPU:
    harness.start_method = "spawn"
STEPS = 50 if ON_GPU else 6
ROUNDS = 60 if ON_GPU else 6
ROWS, WIDTH, DEPTH = 20_000, 64, 512
# Of losses near 1: f32 sums of a few workers differ by rounding, and 50 steps do not make much of it.
BOUND = 1e-4


def reference_group():
    """All processes over NCCL; Gloo where there is no GPU."""
    if not ON_GPU:
        return dist.new_group(backend="gloo")
    os.environ.update(NCCL_HOSTID=f"winnow-test-{dist.get_rank()}", NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(0)
    return dist.new_group(backend="nccl")


def busy(milliseconds):
    """Keeps the current stream at work, without the host."""
    if ON_GPU:
        torch.cuda._sleep(int(milliseconds * 1_500_000))


def idle():
    if ON_GPU:
        torch.cuda.synchronize()


def joined(function):
    """function(rank, world, comm, ..) with a communicator of the job that it is given."""

    def call(rank, world, job, *arguments, **options):
        with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
            return function(rank, world, comm, *arguments, **options)

    call.__name__ = call.__qualname__ = function.__name__  # pickled by its name
    return call


class Net(nn.Module):
    """kind: "dense", "sparse" or "mixed" embeddings. Wide enough that backward takes its time."""

    def __init__(self, kind):
        super().__init__()
        self.first = nn.Embedding(ROWS, WIDTH, sparse=kind != "dense")
        self.second = nn.Embedding(ROWS, WIDTH, sparse=kind == "sparse")
        layers = [nn.Linear(WIDTH, DEPTH), nn.Tanh()]
        for _ in range(4):
            layers += [nn.Linear(DEPTH, DEPTH), nn.Tanh()]
        self.tail = nn.Sequential(*layers, nn.Linear(DEPTH, 1))

    def forward(self, index):
        return self.tail((self.first(index) + self.second(index.flip(1))).sum(1))


def train(rank, kind, group, over, load=0, steps=STEPS, **options):
    """The losses of so many steps. Nothing but the losses, at the end, has the host wait."""
    torch.manual_seed(1)
    ddp = DistributedDataParallel(Net(kind).to(DEVICE), process_group=group, bucket_cap_mb=1, **options)
    state = over(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.02)
    draw = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(steps):
        index = torch.randint(0, ROWS, (16, 4), generator=draw).to(DEVICE)
        target = torch.randn(16, 1, generator=draw).to(DEVICE)
        optimizer.zero_grad(set_to_none=not options.get("gradient_as_bucket_view", False))
        busy(load)
        loss = (ddp(index) - target).square().mean()
        loss.backward()
        busy(load)
        optimizer.step()
        losses.append(loss.detach())
    idle()
    return torch.stack(losses).double().cpu(), state


def furthest(these, those):
    return float((these - those).abs().max())


def train_twice(rank, kind, group, attach, over=contextlib.nullcontext, **options):
    """Sparse gradients have no NCCL to compare with: plain SGD on dense ones is the same."""
    want, _ = train(rank, "dense", group, lambda ddp: None, **options)
    with over():
        got, state = train(rank, kind, group, attach, **options)
        buckets = state.stats().buckets
        state.close()
    assert furthest(want, got) < BOUND, furthest(want, got)
    assert abs(float(want[0] - want[-1])) > 10 * BOUND, "losses have not moved"
    assert buckets >= STEPS, buckets
    return state


@joined
def against_reference(rank, world, comm, kind, wire=None, way=None, **options):
    attach = functools.partial(winnow.torch.attach, comm=comm, wire=wire, way=way)
    state = train_twice(rank, kind, reference_group(), attach, **options)
    if way:  # averages are looked at
        assert state._seen.looks > 4, state._seen.looks


@joined
def many_under_way(rank, world, comm):
    """Dense and sparse by turns, eight at a time: written late, dropped at once, and used in their own stream or another."""
    state = winnow.torch.HookState(comm)
    streams = [torch.cuda.Stream() for _ in range(4)] if ON_GPU else [None] * 4
    wrong, scratch = [], []
    for i in range(ROUNDS // 3):
        started = []
        for j in range(8):
            with torch.cuda.stream(streams[j % 4]):
                busy(j % 3)
                dense = torch.zeros(30_000, 8, device=DEVICE)
                dense[(rank + j) * 17] = i + 1
                dense[5 + j] = rank
                started.append(state.reduce(dense.view(-1) if j % 2 else dense.to_sparse(1)))
                del dense
                scratch.append(torch.full((30_000, 8), -1e9, device=DEVICE))  # in what may be its memory, and must not be
        for j, future in enumerate(started):
            with torch.cuda.stream(streams[(i + j) % 4]):
                want = torch.zeros(30_000, 8, device=DEVICE)
                for r in range(world):
                    want[(r + j) * 17] += (i + 1) / world
                    want[5 + j] += r / world
                result = future.wait()
                wrong.append(((result.view_as(want) if j % 2 else result.to_dense()) - want).abs().max())
                (result if j % 2 else result.values()).fill_(7)
        scratch = scratch[-8:]
    idle()
    state.close()
    assert max(map(float, wrong)) < 1e-5, wrong


@joined
def chosen(rank, world, comm):
    state = winnow.torch.HookState(comm, compress=winnow.torch.TopK(0.02, block=2))
    for _ in harness.chosen(state, rank, world, ROUNDS // 6, 2, device=DEVICE):
        busy(1)
    state.close()


def as_a_gpu():
    """Where there is none, an emulated one: see tests/python/emulated_gpu.py."""
    if ON_GPU:
        return contextlib.nullcontext()
    import emulated_gpu

    emulated_gpu.load()
    return emulated_gpu.passing_for(0)


def on_nodes(rank, world, job, nodes, kind, **options):
    """attach(node=True), the processes being so many nodes, against the reference."""
    group = reference_group()
    node, local = divmod(rank, world // nodes)
    os.environ.update(WINNOW_JOB=job, WINNOW_INSECURE_NO_KEY="1", GROUP_RANK=str(node), LOCAL_RANK=str(local))
    attach = functools.partial(winnow.torch.attach, node=True)
    train_twice(rank, kind, group, attach, as_a_gpu, **options)


def through_a_group(rank, world, job):
    """The process group backend, dense and sparse and the rest, and DDP over it."""
    nccl = reference_group()
    os.environ.update(WINNOW_JOB=job, WINNOW_INSECURE_NO_KEY="1")
    group = dist.new_group(backend="winnow")
    mine = torch.arange(1000.0, device=DEVICE).view(10, 100) + rank
    want = mine.clone()
    dist.all_reduce(want, group=nccl)
    for tensor in (mine.clone(), mine.t().contiguous().t()):
        busy(2)
        dist.all_reduce(tensor, group=group)
        assert torch.equal(tensor, want)
    index = torch.tensor([[rank, 7]], device=DEVICE)
    coo = torch.sparse_coo_tensor(index, torch.ones(2, 4, device=DEVICE), (9, 4))
    dist.all_reduce(coo, group=group)
    dense = coo.to_dense()
    assert dense.is_cuda == ON_GPU and float(dense[7, 0]) == world and float(dense.sum()) == 8 * world
    told = torch.full((5,), float(rank), device=DEVICE)
    dist.broadcast(told, world - 1, group=group)
    assert told.tolist() == [world - 1.0] * 5
    dist.barrier(group=group)
    got, _ = train(rank, "mixed", group, lambda ddp: None)
    want, _ = train(rank, "dense", nccl, lambda ddp: None)
    assert furthest(want, got) < BOUND


@joined
def captured(rank, world, comm):
    """What an operation in a CUDA graph says, and that the next one is as good as before."""
    tensor = torch.ones(1000, device=DEVICE)
    graph, text = torch.cuda.CUDAGraph(), "nothing"
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        try:
            comm.allreduce_async(tensor)
        except winnow.WinnowError as error:
            text = str(error)
    comm.allreduce(tensor)
    assert "captur" in text and float(tensor.sum()) == 1000 * world, text


def break_the_gpu(_):
    """A kernel of the program's own fails, and with it all its process has there."""
    torch.ones(1, device=DEVICE)[torch.tensor([7], device=DEVICE)]


@joined
def until_it_fails(rank, world, comm, action):
    return test_failures.train_over(comm, rank, (1, action, None), True, test_failures.Sparse, DEVICE)


@joined
def of_cupy(rank, world, comm):
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        data = cupy.arange(10_000, dtype=cupy.float32) * (cupy.arange(10_000) % 7 == rank)
    out = cupy.empty_like(data)
    comm.allreduce(data, out=out, stream=stream.ptr)
    found = sum(cupy.arange(10_000, dtype=cupy.float32) * (cupy.arange(10_000) % 7 == r) for r in range(world))
    assert (out == found).all()


class OnGpu(harness.TeamCase):
    def test_training(self):
        for kind, options in (
            ("dense", {}),
            ("sparse", {}),
            ("mixed", {"load": 1}),
            ("mixed", {"gradient_as_bucket_view": True}),
            ("mixed", {"static_graph": True}),
            ("mixed", {"wire": "fixed32"}),
            ("dense", {"way": "auto", "steps": max(STEPS, 20)}),
        ):
            with self.subTest(kind=kind, **options):
                self.team.run(against_reference, harness.fresh_job(), kind, **options)

    def test_four_processes(self):
        with harness.Team(4) as team:
            team.run(against_reference, harness.fresh_job(), "mixed")

    def test_nodes(self):
        """All processes are on one GPU; how many there are of a node is what the environment says."""
        for world, nodes in ((2, 1), (2, 2), (4, 2)) if ON_GPU else ((4, 2),):
            with self.subTest(world=world, nodes=nodes), harness.Team(world) as team:
                team.run(on_nodes, harness.fresh_job(), nodes, "mixed", load=1)

    def test_many_under_way(self):
        self.team.run(many_under_way, harness.fresh_job())

    def test_chosen(self):
        self.team.run(chosen, harness.fresh_job())

    def test_through_a_group(self):
        self.team.run(through_a_group, harness.fresh_job())

    @unittest.skipUnless(ON_GPU, "a GPU's")
    def test_captured(self):
        self.team.run(captured, harness.fresh_job())

    @unittest.skipUnless(ON_GPU and importlib.util.find_spec("cupy"), "a GPU's, of cupy")
    def test_cupy(self):
        self.team.run(of_cupy, harness.fresh_job())


class Deaths(unittest.TestCase):
    def end(self, action):
        """What the second of three says at its end, which does this; the others name it."""
        with harness.Team(3) as team:
            team.start(until_it_fails, harness.fresh_job(), action)
            results = team.collect(60)
        for result in (results[0], results[2]):
            self.assertRegex(str(result), "rank 1|worker 1")
        return str(results[1])

    def test_a_worker_is_killed(self):
        self.assertEqual(self.end(test_failures.die), "died -9")

    @unittest.skipUnless(ON_GPU, "a GPU's")
    def test_a_kernel_of_the_program_fails(self):
        # PyTorch ends the process itself where it gives memory back that such a GPU has used.
        self.assertRegex(self.end(break_the_gpu), "CUDA|cuda|GPU|died -6")


if __name__ == "__main__":
    unittest.main()
