# SPDX-License-Identifier: BSD-3-Clause
"""Top-k with error feedback: what is sent and what is remembered, alone and as DistributedDataParallel's hook."""

import contextlib
import copy
import io
import random
import unittest

import harness
import numpy
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow import _compress, _way

WIDTH = 96
STEPS = 60


def reference(gradient, memory, k, chunk, decay):
    """By sorting, in float32."""
    total = (numpy.float32(decay) * memory + gradient).astype(numpy.float32)
    sent = numpy.zeros_like(total)
    for at in range(0, len(total), chunk):
        part = total[at : at + chunk]
        share = -(-k * len(part) // chunk)
        order = numpy.argsort(-abs(part), kind="stable")[:share]
        sent[at + order] = part[order]
    return sent, total - sent


class TopK(unittest.TestCase):
    def test_against_sorting(self):
        draw = numpy.random.default_rng(1)
        for count, k, chunk, decay in ((1, 1, 1, 1.0), (1000, 3, 64, 0.9), (5000, 50, 5000, 1.0), (4097, 41, 4096, 0.0)):
            gradient = draw.standard_normal(count, dtype=numpy.float32)
            memory = draw.standard_normal(count, dtype=numpy.float32)
            sent, kept = reference(gradient, memory, k, chunk, decay)
            found = winnow.topk(gradient, memory, k, chunk, decay)
            numpy.testing.assert_array_equal(gradient, sent)
            numpy.testing.assert_array_equal(memory, kept)
            self.assertEqual(found, numpy.count_nonzero(sent))

    def test_halves(self):
        for dtype in (torch.float16, torch.bfloat16):
            gradient = torch.randn(300, generator=torch.Generator().manual_seed(2)).to(dtype)
            memory = torch.full((300,), 1e-5)
            total = gradient.float() + memory
            self.assertEqual(winnow.topk(gradient, memory, 5, 100), 15)
            self.assertTrue(torch.equal(gradient.float() + memory, total))  # nothing is lost, rounding included
            self.assertEqual(int(gradient.count_nonzero()), 15)

    def test_on_a_gpu(self):
        """There torch's operations choose: the same, to the bit, whatever the ties, types and ends of chunks."""
        dice = random.Random(3)
        plain = lambda tensor: torch.nan_to_num(tensor.float(), nan=123.0)
        for seed in range(150):
            torch.manual_seed(seed)
            count, block, dtype = dice.choice([1, 7, 300, 4097]), dice.choice([1, 1, 2, 3, 16]), dice.choice([torch.float32, torch.float16, torch.bfloat16])
            chunk = block * dice.choice([1, 2, 5, 64, -(-count // block)])
            k = min(dice.choice([1, 2, 3, 50]), chunk // block)
            gradient = torch.randn(count) * dice.choice([1, 1e-6, 1e4, 1e30])
            if dice.random() < 0.5:
                gradient = (gradient * 2).round() / 2
            gradient[torch.rand(count) < dice.choice([0, 0.7])] = 0
            gradient[torch.rand(count) < dice.choice([0, 0.02])] = dice.choice([numpy.nan, numpy.inf, -numpy.inf])
            data, memory, decay = gradient.to(dtype), torch.randn(count) * dice.choice([0, 1, 1e-3, 6e4]), dice.choice([1.0, 0.9, 0.0])
            there, kept = data.clone(), memory.clone()
            winnow.topk(data, memory, k, chunk, decay, block)
            _compress.topk_of_torch(there, kept, k, chunk, decay, block)
            self.assertTrue(torch.equal(plain(there), plain(data)) and torch.equal(plain(kept), plain(memory)), seed)

    def test_refusals(self):
        data, memory = numpy.ones(8, numpy.float32), numpy.zeros(8, numpy.float32)
        fixed = data.copy()
        fixed.flags.writeable = False
        for text, arguments in (
            ("k must be at least 1", (data, memory, 0, 8)),
            ("k must be at most", (data, memory, 9, 8)),
            ("k must be at most", (data, memory, 5, 8, 1.0, 2)),
            ("a multiple", (data, memory, 1, 8, 1.0, 3)),
            ("1 to 1024", (data, memory, 1, 2050, 1.0, 1025)),
            ("decay", (data, memory, 1, 8, 1.5)),
            ("decay", (data, memory, 1, 8, float("nan"))),
            ("f32, f16 or bf16", (data.astype(numpy.float64), memory, 1, 8)),
            ("as large as", (data, memory[:4], 1, 8)),
            ("float32", (data, memory.astype(numpy.float64), 1, 8)),
            ("read-only", (fixed, memory, 1, 8)),
        ):
            with self.assertRaisesRegex(ValueError, text):
                winnow.topk(*arguments)
        for text in ("topk:0", "topk:2", "topk:x", "topk", "powersgd:1", "sums:0.01"):
            with self.assertRaisesRegex(ValueError, text):
                winnow.torch.compressor_of(text)
        with self.assertRaisesRegex(ValueError, 'compress is .topk.: want "topk:0.01"'):
            winnow.torch.compressor_of("topk")
        for text, options in (
            ("block is 0", {"block": 0}),
            ("block is 1025", {"block": 1025}),
            ("chunk is 100: want a multiple of block, which is 8", {"block": 8, "chunk": 100}),
            ("momentum is 1", {"momentum": 1}),
            ("decay is 2", {"decay": 2}),
        ):
            with self.assertRaisesRegex(ValueError, text):
                winnow.torch.TopK(0.1, **options)

    def test_blocks(self):
        gradient = torch.tensor([1.0, 0, 0, 5, 3, 3, 0, -4, 2])
        memory = torch.zeros(9)
        self.assertEqual(winnow.topk(gradient, memory, 2, 10, block=2), 4)
        self.assertEqual(gradient.tolist(), [0, 0, 0, 5, 0, 0, 0, -4, 0])
        self.assertEqual(memory.tolist(), [1, 0, 0, 0, 3, 3, 0, 0, 2])


def alone(compress, shape=(50, 40)):
    """It, and a step: takes a gradient and returns what is sent of it."""
    layer = nn.Linear(shape[1], shape[0], bias=False)
    compress._learn(layer)

    def step(gradient):
        sent = gradient.clone()
        compress._take(sent, layer.weight)
        return sent

    return step


class Compressors(unittest.TestCase):
    """One worker's part, without a job."""

    def gradients(self, steps, count=2000):
        draw = torch.Generator().manual_seed(5)
        return [torch.randn(count, generator=draw) for _ in range(steps)]

    def test_nothing_is_lost(self):
        """What was given is what was sent and what is remembered."""
        for compress in (
            winnow.torch.TopK(0.02),
            winnow.torch.TopK(0.05, block=7, chunk=70),
            winnow.torch.TopK(0.01, chunk=None, block=64),
        ):
            given, sent, step = 0, 0, alone(compress)
            for gradient in self.gradients(30):
                given, sent = given + gradient.double(), sent + step(gradient).double()
            kept = compress.state_dict()["memory"]["weight"].double()
            torch.testing.assert_close(sent + kept, given, rtol=0, atol=1e-4)
            self.assertGreater(int((sent != 0).sum()), 100)

    def test_unknown_arguments(self):
        for make, text in (
            (lambda: winnow.torch.TopK(0.1, warmup=3), r"^TopK\(\) has no argument 'warmup': did you mean warm_up\?$"),
            (lambda: winnow.torch.TopK(0.1, chunks=64), r"^TopK\(\) has no argument 'chunks': did you mean chunk\?$"),
            (lambda: winnow.torch.TopK(0.1, own=0.2), r"^TopK\(\) has no argument 'own'$"),
        ):
            with self.assertRaisesRegex(TypeError, text):
                make()

    def test_no_state(self):
        compress = winnow.torch.TopK(0.1)
        for state, missing in (({}, "memory"), ({"memory": {}, "velocity": {}}, "steps")):
            with self.assertRaisesRegex(ValueError, f"^the saved state has no '{missing}': want what state_dict.. of a TopK"):
                compress.load_state_dict(state)

    def test_merged(self):
        """What four workers had not sent is what two have not, as a part of the average."""
        for options in ({}, {"momentum": 0.5}):
            four = [winnow.torch.TopK(0.02, **options) for _ in range(4)]
            for number, compress in enumerate(four):
                step = alone(compress)
                for gradient in self.gradients(3 + number)[number:]:
                    step(gradient)
            states = [{**compress.state_dict(), "workers": 4} for compress in four]
            merged = winnow.torch.merge_memories(states)
            for kind in ("memory", "velocity"):
                before = [state[kind]["weight"].double() for state in states if state[kind]]
                self.assertEqual(len(merged[kind]), len(before) > 0)
                if before:
                    torch.testing.assert_close(merged[kind]["weight"].double(), sum(before) / 4, rtol=1e-5, atol=1e-6)
            two = [winnow.torch.TopK(0.02, **options) for _ in range(2)]
            for compress in two:
                compress.load_state_dict(merged)
            self.assertEqual(two[0]._steps_taken(), four[0]._steps_taken())
            for wrong, text in (
                (states[:3], "there are 3 states, but 4 workers have saved: want all"),
                ([], "there are 0 states"),
                ([*states[:3], {**states[3], "steps": {"weight": 9}}], "not of the same step"),
            ):
                with self.assertRaisesRegex(ValueError, text):
                    winnow.torch.merge_memories(wrong)

    def test_decay(self):
        """What is not sent halves in each step."""
        compress = winnow.torch.TopK(0.01, decay=0.5)
        step = alone(compress)
        sent = [step(gradient) != 0 for gradient in (torch.full((2000,), 8.0), *[torch.zeros(2000)] * 2)]
        kept = compress.state_dict()["memory"]["weight"]
        never = ~(sent[0] | sent[1] | sent[2])
        self.assertGreater(int(never.sum()), 1000)
        self.assertTrue((kept[never] == 2).all())

    def test_momentum(self):
        """Lin et al. 2018, algorithm 1, by hand; with warm-up it is plain momentum."""
        compress = winnow.torch.TopK(0.1, chunk=None, momentum=0.9, warm_up=2)
        step = alone(compress)
        velocity, memory = torch.zeros(2000), torch.zeros(2000)
        for number, gradient in enumerate(self.gradients(12)):
            velocity = 0.9 * velocity + gradient
            want = velocity.clone()
            if number >= 2:
                memory = memory + velocity
                taken = torch.zeros(2000, dtype=torch.bool)
                taken[memory.abs().topk(200).indices] = True
                want = torch.where(taken, memory, torch.zeros(()))
                memory, velocity = (torch.where(taken, torch.zeros(()), each) for each in (memory, velocity))
            torch.testing.assert_close(step(gradient), want, rtol=0, atol=1e-5)
        for warm_up in (0, 1):
            step = alone(winnow.torch.TopK(0.1, momentum=0.9, warm_up=warm_up))
            first, second = self.gradients(2)
            first[5] = float("inf")
            self.assertTrue(step(first)[5].isinf())
            self.assertTrue(step(second).isfinite().all())

    def test_undone(self):
        """A step that is repeated: undo() brings back what it took, and what it took it from."""
        plain, other = (winnow.torch.TopK(0.05, momentum=0.9) for _ in range(2))
        want, got = alone(plain), alone(other)
        for number, gradient in enumerate(self.gradients(6)):
            if number == 3:
                other._begin()
                got(torch.full((2000,), float("inf")))
                other._undo()
            self.assertTrue(torch.equal(got(gradient), want(gradient)))

    def test_saved_velocity(self):
        first, second = (winnow.torch.TopK(0.1, momentum=0.9) for _ in range(2))
        ours, theirs = alone(first), alone(second)
        for number, gradient in enumerate(self.gradients(6)):
            want = ours(gradient)
            if number == 2:
                second.load_state_dict(copy.deepcopy(first.state_dict()))
            elif number > 2:
                self.assertTrue(torch.equal(theirs(gradient), want))
        state = copy.deepcopy(first.state_dict())
        state["velocity"]["weight"][1] = float("nan")
        with self.assertRaisesRegex(ValueError, "velocity of weight is not finite"):
            second.load_state_dict(state)

    def test_cut_into_blocks(self):
        """Blocks on the wire are those that are chosen."""
        layer = nn.Linear(40, 50)
        for block, weight in ((1, (0, 2000, 1, 1, 1)), (8, (0, 2000, 8, 1, 8)), (48, (0, 2000, 48))):
            compress = winnow.torch.TopK(0.1, block=block, chunk=None)
            compress._learn(layer)
            parameters = list(layer.parameters())
            self.assertEqual(_way.segments(parameters, torch.empty(2050), compress), [weight])


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))


def train(ddp, rank, steps):
    """From step to step; the mean loss of the last ten."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2)
    teacher = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(4))
    losses = []
    for step in steps:
        x = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))
        loss = (ddp(x) - torch.tanh(x @ teacher)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return sum(losses[-10:]) / len(losses[-10:])


@contextlib.contextmanager
def attached(rank, world, job, compress, module=model, find_unused_parameters=False, **options):
    """A DistributedDataParallel, and what attach() returns."""
    # Several buckets, which are made anew after the first step.
    ddp = DistributedDataParallel(module(), bucket_cap_mb=0.02, find_unused_parameters=find_unused_parameters)
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        state = winnow.torch.attach(ddp, comm, compress=compress, **options)
        yield ddp, state
        state.close()


def weights(ddp):
    return [p.detach().clone() for p in ddp.parameters()]


def run(rank, world, job, compress, steps=STEPS, **options):
    """Loss, bytes sent, weights."""
    with attached(rank, world, job, compress, **options) as (ddp, state):
        return train(ddp, rank, range(steps)), state.stats().sent_bytes, weights(ddp)


def interrupted(rank, world, job, make):
    """The weights after 20 steps: without a break, and with one after 10 in which all is saved and loaded."""
    *_, want = run(rank, world, job, make(), 20)
    saved = io.BytesIO()
    with attached(rank, world, job + "-1", make()) as (ddp, state):
        train(ddp, rank, range(10))
        torch.save([ddp.module.state_dict(), state.compress.state_dict()], saved)
    saved.seek(0)
    with attached(rank, world, job + "-2", make()) as (ddp, state):
        for thing, part in zip((ddp.module, state.compress), torch.load(saved)):
            thing.load_state_dict(part)
        train(ddp, rank, range(10, 20))
        return want, weights(ddp)


def make_slow():
    return winnow.torch.TopK(0.05, chunk=512, decay=0.9, warm_up=4)


def memories(rank, world, job):
    """What is remembered: nothing while it warms up, and then of which parameters."""
    with attached(rank, world, job, winnow.torch.TopK(0.1, warm_up=2)) as (ddp, state):
        train(ddp, rank, range(2))
        early = len(state.compress.state_dict()["memory"])
        train(ddp, rank, range(2, 3))
        return early, sorted(state.compress.state_dict()["memory"])


def infinite(rank, world, job, compress):
    """Rank 0 has nothing but infinities, or NaNs, once: are they seen, and are memory and the next step's gradients free of them?"""
    with attached(rank, world, job, compress) as (ddp, state):
        train(ddp, rank, range(2))
        found = []
        for x in (float("inf") if rank == 0 else 1.0, 1.0, float("nan") if rank == 0 else 1.0, 1.0):
            ddp.zero_grad()
            (ddp(torch.ones(1, WIDTH)).sum() * 0 + ddp.module[0].weight.sum() * x).backward()
            found.append(bool(ddp.module[0].weight.grad.isfinite().all()))
        return found, all(bool(kept.isfinite().all()) for kept in state.compress.state_dict()["memory"].values())


class Heads(nn.Module):
    """Of which each step uses one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))

    def forward(self, x, head):
        return self.heads[head](x)


def unused(rank, world, job, compress):
    """Of each head: what its gradients add up to, what came of them, and what is remembered."""
    given, came = [torch.zeros(WIDTH, WIDTH) for _ in range(2)], [torch.zeros(WIDTH, WIDTH) for _ in range(2)]
    with attached(rank, world, job, compress, Heads, True) as (ddp, state):
        for step in range(12):
            x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))
            used = step % 3 == 0 if step % 4 != 3 else rank == 0  # the same head on all, or not
            given[used] += torch.autograd.grad(ddp.module(x, used).square().sum(), ddp.module.heads[used].weight)[0]
            ddp.zero_grad(set_to_none=True)
            ddp(x, used).square().sum().backward()
            for head, all in zip(ddp.module.heads, came):
                all += 0 if head.weight.grad is None else head.weight.grad
        kept = [state.compress.state_dict()["memory"][f"heads.{head}.weight"].view(WIDTH, WIDTH).clone() for head in range(2)]
    return given, came, kept


def settings(rank, world, job):
    """What a text makes of them."""
    found = []
    for wire in (None, "native"):
        with attached(rank, world, f"{job}-{wire}", "topk:0.05", wire=wire) as (_, state):
            found.append((repr(state.compress), state.wire))
    return found


def refused(rank, world, job):
    """What attach() and load_state_dict() say."""
    with attached(rank, world, job, winnow.torch.TopK(0.1)) as (ddp, state):
        train(ddp, rank, range(1))
        compress, comm, other = state.compress, state.comm, DistributedDataParallel(model())
        saved = copy.deepcopy(compress.state_dict())
        name = next(iter(saved["memory"]))
        infinite = copy.deepcopy(saved)
        infinite["memory"][name][0] = float("inf")
        of = lambda **memory: {"memory": memory, "velocity": {}, "steps": {}}
        attach = winnow.torch.attach
        texts = [
            harness.error_of(attach, other, comm, compress="topk:0.1" if rank == 0 else "topk:0.2"),
            harness.error_of(attach, other, comm, compress="topk:0.1" if rank == 0 else None),
            harness.error_of(attach, other, comm, compress=compress),
            harness.error_of(attach, DistributedDataParallel(model().double()), comm, compress="topk:0.1"),
            harness.error_of(compress.load_state_dict, infinite),
            harness.error_of(compress.load_state_dict, of(nobody=torch.zeros(1))),
            harness.error_of(compress.load_state_dict, of(**{name: torch.zeros(7)})),
        ]
        if rank == 0:
            compress.state_dict()["memory"][name][3] = float("nan")
        texts.append(harness.error_of(train, ddp, rank, range(1)))
    with attached(rank, world, f"{job}-4", winnow.torch.TopK(0.1)) as (ddp, state):
        assert saved["workers"] == world
        state.compress.load_state_dict(saved)
        train(ddp, rank, range(1))
        state.compress.load_state_dict({**saved, "workers": 4})
        return [*texts, harness.error_of(train, ddp, rank, range(1))]


class Hook(harness.TeamCase):
    def test_learns_as_dense(self):
        dense = self.team.run(run, harness.fresh_job(), None)
        first = self.team.run(run, harness.fresh_job(), None, 10)
        for compress in (winnow.torch.TopK(0.05, block=16, chunk=4096), winnow.torch.TopK(0.05, block=4, momentum=0.5)):
            sparse = self.team.run(run, harness.fresh_job(), compress)
            for ours, theirs in zip(sparse[0][2], sparse[1][2]):
                self.assertTrue(torch.equal(ours, theirs))
            gained = [first[0][0] - found[0][0] for found in (dense, sparse)]
            self.assertGreater(gained[1], 0.5 * gained[0], compress)
            self.assertLess(sparse[0][1], 0.4 * dense[0][1], compress)

    def test_all_of_it_is_dense(self):
        """density 1 sends everything: no bit differs from a hook that does not compress."""
        dense = self.team.run(run, harness.fresh_job(), None, 10)
        whole = self.team.run(run, harness.fresh_job(), winnow.torch.TopK(1), 10)
        for ours, theirs in zip(dense[0][2], whole[0][2]):
            self.assertTrue(torch.equal(ours, theirs))

    def test_saved_and_loaded(self):
        for want, got in self.team.run(interrupted, harness.fresh_job(), make_slow):
            for ours, theirs in zip(want, got):
                self.assertTrue(torch.equal(ours, theirs))

    def test_memories(self):
        names = ["0.weight", "2.weight"]  # not biases and the norm
        self.assertEqual(self.team.run(memories, harness.fresh_job()), [(0, names)] * 2)

    def test_unused(self):
        """Where nobody uses a parameter DDP leaves its gradient alone: what is remembered of it waits."""
        ours, theirs = self.team.run(unused, harness.fresh_job(), winnow.torch.TopK(0.05))
        for head in range(2):
            self.assertTrue(torch.equal(ours[1][head], theirs[1][head]))
            given, kept = (sum(each[what][head].double() for each in (ours, theirs)) / 2 for what in (0, 2))
            torch.testing.assert_close(ours[1][head].double() + kept, given, rtol=0, atol=1e-3)
            self.assertGreater(int((ours[1][head] != 0).sum()), 100)

    def test_infinite(self):
        """A member all of whose magnitudes are infinite."""
        self.assertEqual(self.team.run(infinite, harness.fresh_job(), winnow.torch.TopK(0.1)), [([False, True] * 2, True)] * 2)

    def test_texts(self):
        """A text stands for the settings that docs/thin-links.md measures; `wire` may overrule its part."""
        want = "TopK(0.05, chunk=4096, block=1, decay=1.0, momentum=0.0, warm_up=20)"
        self.assertEqual(self.team.run(settings, harness.fresh_job()), [[(want, "bf16"), (want, "native")]] * 2)

    def test_refusals(self):
        for rank, texts in enumerate(self.team.run(refused, harness.fresh_job())):
            wanted = (
                rf"TopK\(0.{2 - rank}, chunk=4096, block=1, decay=1.0, momentum=0.0, warm_up=20\) on rank {1 - rank}",
                "want the same on all",
                "has a model already",
                "parameter 0.weight is torch.float64: on the CPU compress takes float32",
                "not finite",
                "nobody",
                "the saved memory of 0.weight has 7 elements, but the parameter has 9216",
                "the memory of 0.weight is not finite, on rank 0",
                "saved by 4 workers, but there are 2: on each, load the result of winnow.torch.merge_memories",
            )
            self.assertEqual(len(texts), len(wanted))
            for text, want in zip(texts, wanted):
                self.assertRegex(text, want)
