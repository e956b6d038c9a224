# SPDX-License-Identifier: BSD-3-Clause
"""OuterOptimizer: local steps and exchanges, against a reference in one process; lost members and newcomers."""

import copy
import io
import os
import signal
import time
import unittest
from unittest import mock

import harness
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

WIDTH = 64
H = 4


def model(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


def loss_of(net, rank, step):
    draw = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(8, WIDTH, generator=draw)
    teacher = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(4))
    return (net(x) - torch.tanh(x @ teacher)).square().mean()


def inner_of(net):
    return torch.optim.AdamW(net.parameters(), lr=0.01)


def sgd_of(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def kinds_of_gradients(rank, world, job):
    """What a table, a weight that one worker uses, the gradient of one that none uses, and a closure's loss are after a step."""
    net = nn.ModuleDict({"table": nn.Embedding(3, 1, sparse=True), "used": nn.Linear(1, 1), "unused": nn.Linear(1, 1)})
    for parameter in net.parameters():
        nn.init.zeros_(parameter)

    def evaluate():
        loss = net["table"](torch.tensor([[0, 0, 1], [1, 1, 1]][rank])).sum()
        loss = loss + (net["used"](torch.ones(1)) * world if rank == 0 else 0)
        loss.sum().backward()
        return 3

    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        outer = winnow.torch.OuterOptimizer(net, torch.optim.SGD(net.parameters(), lr=1), H=H, comm=comm, warm_up=1, wire=None)
        loss = outer.step(evaluate)
    return net["table"].weight.flatten().tolist(), net["used"].weight.item(), net["unused"].weight.grad, loss


def weights(net):
    return [parameter.detach().clone() for parameter in net.parameters()]


def sparseloco():
    return winnow.torch.TopK(0.05, chunk=200, decay=0.9)


def slow():
    return winnow.torch.TopK(0.05, chunk=200, decay=0.9, warm_up=1)


def take_steps(outer, net, rank, steps):
    for step in steps:
        loss_of(net, rank, step).backward()
        outer.step()
        outer.zero_grad()


EXACT = {"warm_up": 0, "wire": None}  # local steps from the first one, and float32


def trained(rank, world, job, compress, steps, inner_of=inner_of, **options):
    """The weights after these steps. Ranks begin with different weights."""
    net = model(3 + rank)
    options = {**EXACT, **options}
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        outer = winnow.torch.OuterOptimizer(net, inner_of(net), H=H, compress=compress, comm=comm, **options)
        take_steps(outer, net, rank, range(steps))
        return weights(net), comm.stats().sent_bytes, outer.exchanges


def largest(values, density, chunk):
    """Zero but for the largest of each chunk, by sorting."""
    found = torch.zeros_like(values)
    for at in range(0, len(values), chunk):
        part = values[at : at + chunk]
        share = -(-int(-(-density * chunk // 1)) * len(part) // chunk)
        order = part.abs().argsort(descending=True, stable=True)[:share] + at
        found[order] = values[order]
    return found


def reference(world, steps, lr, momentum, density=None, chunk=None, decay=None, warm_up=0, inner_of=inner_of):
    """All workers in this process. The outer step is PyTorch's SGD."""
    shared = model()
    nets = [copy.deepcopy(shared) for _ in range(world)]
    inners = [inner_of(net) for net in nets]
    outer = torch.optim.SGD(shared.parameters(), lr=lr, momentum=momentum, nesterov=momentum > 0)
    memory = [[torch.zeros(p.numel()) for p in shared.parameters()] for _ in range(world)]
    for step in range(steps):
        for rank, (net, inner) in enumerate(zip(nets, inners)):
            inner.zero_grad()
            loss_of(net, rank, step).backward()
        if step < warm_up:
            for parameters in zip(*(net.parameters() for net in nets)):
                mean = sum(parameter.grad for parameter in parameters) / world
                for parameter in parameters:
                    parameter.grad = mean.clone()
        for inner in inners:
            inner.step()
        if step < warm_up:
            shared.load_state_dict(nets[0].state_dict())
            continue
        if (step + 1) % H:
            continue
        for index, parameter in enumerate(shared.parameters()):
            parts = []
            for rank, net in enumerate(nets):
                part = (parameter - list(net.parameters())[index]).detach().flatten()
                if density is not None and parameter.dim() > 1:
                    total = decay * memory[rank][index] + part
                    part = largest(total, density, chunk)
                    memory[rank][index] = total - part
                parts.append(part)
            parameter.grad = (sum(parts) / world).view_as(parameter)
        outer.step()
        for net in nets:
            net.load_state_dict(shared.state_dict())
    return [weights(net) for net in nets]


def interrupted(rank, world, job, make):
    """The weights after 15 steps: without a break, and with one after 6, in which all is saved and loaded."""
    want, *_ = trained(rank, world, job, make(), 15, momentum=0.8, warm_up=3, wire="bf16")
    saved = io.BytesIO()
    for part, net, steps in ((0, model(3 + rank), range(6)), (1, model(9), range(6, 15))):
        with winnow.Comm(job=f"{job}-{part}", rank=rank, world=world) as comm:
            outer = winnow.torch.OuterOptimizer(net, inner_of(net), H=H, compress=make(), momentum=0.8, warm_up=3, comm=comm)
            if part == 0:
                take_steps(outer, net, rank, steps)
                torch.save({"model": net.state_dict(), "outer": outer.state_dict()}, saved)
                saved.seek(0)
            else:
                state = torch.load(saved)
                net.load_state_dict(state["model"])
                outer.load_state_dict(state["outer"])
                take_steps(outer, net, rank, steps)
    return want, weights(net)


def small_steps(rank, world, job):
    """The weight after each exchange, in bfloat16: the inner step is as small as that can be, the outer one a tenth of it."""
    net, found = nn.Linear(1, 1, bias=False), []
    nn.init.ones_(net.weight)
    net.to(torch.bfloat16)
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        inner = torch.optim.SGD(net.parameters(), lr=1)
        outer = winnow.torch.OuterOptimizer(net, inner, H=1, lr=0.1, momentum=0, comm=comm, **EXACT)
        for _ in range(10):
            net.weight.grad = torch.full_like(net.weight, 2**-8)
            outer.step()
            found.append(float(net.weight))
    return found


def by_group(rank, world):
    """Without comm: the job of the default process group, which close() leaves."""
    net = model(3 + rank)
    outer = winnow.torch.OuterOptimizer(net, inner_of(net), H=1, **EXACT)
    take_steps(outer, net, rank, range(2))
    outer.close()
    return weights(net), repr(outer.comm)


def refused(rank, world, job):
    net = model()
    outer, error_of = winnow.torch.OuterOptimizer, harness.error_of
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        texts = [
            error_of(outer, module, inner_of(of), comm=comm, **{"H": 1, **options})
            for module, of, options in (
                (net, net, {"H": 0}),
                (net, net, {"H": 2.5}),
                (net, net, {"warm_up": -1}),
                (net, net, {"lr": 0}),
                (net, net, {"momentum": 1}),
                (net, model(), {}),
                (DistributedDataParallel(net), net, {}),
                (model().double(), net, {}),
                (nn.ReLU(), net, {}),
                (net, net, {"compress": "topk:0"}),
                (net, net, {"wire": "fp16"}),
                (net, net, {"H": 1 + rank}),
                (net, net, {"compress": "topk:0.1" if rank else "topk:0.2"}),
            )
        ]
        good = outer(net, inner_of(net), H=1, comm=comm, **EXACT)
        state = good.state_dict()
        for wrong in (
            {"compress": {"memory": {}, "velocity": {}, "steps": {}}},
            {"start": {}},
            {"speed": {**state["speed"], "2.weight": torch.zeros(5)}},
        ):
            texts.append(error_of(good.load_state_dict, {**state, **wrong}))
        sparse = outer(net, inner_of(net), H=1, comm=comm, compress="topk:0.1")
        texts.append(error_of(sparse.load_state_dict, state))
        if rank == 1:
            with torch.no_grad():
                net[2].bias[3] = float("inf")
        return [*texts, error_of(good.step)]


def survivor(rank, world, job, warm_up):
    """Rank 2 dies after 5 steps; what the others' weights are after 12, and how often members were lost."""
    net, lost = model(), 0
    comm = winnow.Comm(job=job, rank=rank, world=world)
    outer = winnow.torch.OuterOptimizer(net, inner_of(net), H=H, comm=comm, warm_up=warm_up)
    for step in range(12):
        if rank == 2 and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        loss_of(net, rank, step).backward()
        try:
            outer.step()
        except winnow.MembersChanged:
            comm.reconfigure()
            outer.join()
            lost += 1
        outer.zero_grad()
    comm.close()
    return weights(net), lost, outer.exchanges


class Outer(harness.TeamCase):
    def assert_same(self, first, second):
        for ours, theirs in zip(first, second):
            self.assertTrue(torch.equal(ours, theirs))

    def assert_near(self, first, second):
        for ours, theirs in zip(first, second):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)

    def test_against_the_reference(self):
        """Exchanges, and steps alone after the last; after a warm-up, so many steps of everybody's mean gradient, in which there is no
        other exchange; with an inner SGD, which is the mean of weights; with other settings; and SparseLoCo."""
        sparse = 1.0, 0.0, 0.05, 200, 0.9
        for compress, steps, options, settings, exchanges in (
            (None, 14, {}, (0.7, 0.7), 3),
            (None, 5, {"warm_up": 6}, (0.7, 0.7), 5),
            (None, 15, {"warm_up": 6}, (0.7, 0.7), 8),
            (None, 15, {"warm_up": 6, "inner_of": sgd_of}, (1, 0), 8),
            (None, 8, {"lr": 0.5, "momentum": 0.3}, (0.5, 0.3), 2),
            (sparseloco(), 24, {}, sparse, 6),
            (sparseloco(), 24, {"warm_up": 6}, sparse, 11),
        ):
            shared = {name: value for name, value in options.items() if name in ("warm_up", "inner_of")}
            want = reference(2, steps, *settings, **shared)
            found = self.team.run(trained, harness.fresh_job(), compress, steps, **options)
            for rank in range(2):
                self.assert_near(found[rank][0], want[rank])
                self.assertEqual(found[rank][2], exchanges, options)
        dense = self.team.run(trained, harness.fresh_job(), None, 24)
        sparse = self.team.run(trained, harness.fresh_job(), sparseloco(), 24)
        self.assertLess(sparse[0][1], 0.6 * dense[0][1])

    def test_warm_up_of_all_kinds(self):
        """Gradients that are sparse, that some worker or none has, and that a closure makes."""
        first, second = self.team.run(kinds_of_gradients, harness.fresh_job())
        self.assertEqual(first, second)
        table, used, unused, closure = first
        self.assertEqual(table, [-1, -2, 0])  # of rows 0 and 1 by two workers, 1 by one of them; SGD's rate is 1
        self.assertEqual((used, unused, closure), (-1, None, 3))

    def test_small_steps(self):
        """What is too small for bfloat16 adds up in the float32 weights that all begin with."""
        (found,) = self.team.run(small_steps, harness.fresh_job())[:1]
        self.assertEqual(found[3], 1)  # four tenths of a rounding step
        self.assertEqual(found[5], 1 - 2**-8)

    def test_saved_and_loaded(self):
        for want, found in self.team.run(interrupted, harness.fresh_job(), sparseloco):
            self.assert_same(want, found)

    def test_of_the_group(self):
        (first, comm), (second, _) = self.team.run(by_group)
        self.assertEqual(comm, "<winnow.Comm rank 0 of 2 closed>")
        self.assert_same(first, second)

    def test_refusals(self):
        for rank, texts in enumerate(self.team.run(refused, harness.fresh_job())):
            wanted = (
                "H is 0: want at least 1",
                "H is 2.5",
                "warm_up is -1: want 0 or more",
                "lr is 0 and momentum 0.7",
                "momentum 1: want",
                "the model lacks",
                "not a DistributedDataParallel",
                "parameter 0.weight is torch.float64",
                "no parameter that is trained",
                "density is 0",
                "wire is 'fp16': want one of",
                f"on rank {1 - rank}: want the same on all",
                f"TopK(0.{1 + rank}, chunk=4096",
                "the saved state was made with compress=, but this optimizer has none",
                "no start of 0.weight, of 4096 elements",
                "no speed of 2.weight, of 4096 elements",
                "this optimizer has compress=, but the saved state was made without it",
                "the weights of 2.bias are not finite on rank 1, after 1 steps",
            )
            self.assertEqual(len(texts), len(wanted))
            for text, want in zip(texts, wanted):
                self.assertIn(want, text)
                self.assertNotIn("\n", text)


class Workers:
    """In this process: each with its communicator, model and OuterOptimizer."""

    def __init__(self, count, job=None, **options):
        self.comms, self.nets, self.options = harness.join(count, job=job or harness.fresh_job()), [model() for _ in range(count)], options
        self.outers = harness.on_threads(count, self.make)

    def make(self, rank):
        make = self.options.get("compress")
        options = {"H": 2, **self.options, "compress": make and make()}
        return winnow.torch.OuterOptimizer(self.nets[rank], inner_of(self.nets[rank]), comm=self.comms[rank], **options)

    def take(self, *steps, ranks=None):
        harness.on_threads(ranks or len(self.outers), lambda rank: take_steps(self.outers[rank], self.nets[rank], rank, steps))

    def join(self):
        harness.on_threads(len(self.outers), lambda rank: self.outers[rank].join())

    def states(self):
        return [copy.deepcopy((net.state_dict(), outer.state_dict())) for net, outer in zip(self.nets, self.outers)]

    def close(self):
        """Their weights; those of compress's memories."""
        for comm in self.comms:
            comm.close()
        memories = [outer.compress.state_dict()["memory"] for outer in self.outers if outer.compress is not None]
        return [weights(net) for net in self.nets], memories


class Members(unittest.TestCase):
    def assert_same(self, one, other):
        for ours, theirs in zip(one, other):
            self.assertTrue(torch.equal(ours, theirs))

    def test_is_an_optimizer(self):
        """A scheduler of it moves the inner one's learning rate, also after its state was loaded."""
        (comm,) = harness.join(1)
        net = model()
        outer = winnow.torch.OuterOptimizer(net, torch.optim.SGD(net.parameters(), lr=0.8), H=2, comm=comm)
        self.assertIsInstance(outer, torch.optim.Optimizer)
        schedule = torch.optim.lr_scheduler.StepLR(outer, 1, gamma=0.5)
        for loads in (False, True):
            if loads:
                outer.load_state_dict(copy.deepcopy(outer.state_dict()))
            loss_of(net, 0, 0).backward()
            outer.step()
            schedule.step()
            outer.zero_grad()
            self.assertEqual(outer.inner.param_groups[0]["lr"], 0.2 if loads else 0.4)
        with self.assertRaisesRegex(ValueError, "give all groups to the inner optimizer"):
            outer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        comm.close()

    def test_one_dies(self):
        """In the warm-up, which then ends, five gradients and two differences are exchanged."""
        for warm_up, exchanges in ((0, 3), (8, 7)):
            with harness.Team(3) as team:
                team.start(survivor, harness.fresh_job(), warm_up)
                first, second, third = team.collect()
            self.assertEqual(third, "died -9")
            self.assertEqual(first[1:], (1, exchanges))
            self.assertEqual(second[1:], (1, exchanges))
            self.assert_same(first[0], second[0])

    def test_one_lacks_a_gradient(self):
        """As if the last mean gradient had reached rank 1 only: rank 0 gets the weights after it."""
        two = Workers(2, warm_up=9)
        two.take(0, 1)
        net, outer = two.states()[0]
        two.take(2)
        two.nets[0].load_state_dict(net)
        two.outers[0].load_state_dict({**outer, "steps": 3})
        two.join()
        two.take(3, 4, 5)
        self.assertEqual([outer.exchanges for outer in two.outers], [5, 5])
        self.assert_same(*two.close()[0])

    def test_newcomer(self):
        """It gets weights, momentum and count; those who were there keep theirs."""
        job = harness.fresh_job()
        all = Workers(2, job, **EXACT)
        all.take(0, 1, 2)
        alone = weights(all.nets[1])
        all.nets.append(model(9))

        def come(rank):
            if rank < 2:
                all.comms[rank].reconfigure("more", rank, 3)
                return all.outers[rank].join()
            all.comms.append(winnow.Comm(job=f"{job}/more", rank=2, world=3))
            all.outers.append(all.make(2))

        harness.on_threads(3, come)
        self.assert_same(weights(all.nets[1]), alone)  # a step after the exchange: its own still
        begun, its = (all.outers[rank].state_dict()["start"].values() for rank in (0, 2))
        self.assert_same(begun, its)
        self.assert_same(begun, [weight.flatten() for weight in weights(all.nets[2])])
        self.assertEqual([outer.exchanges for outer in all.outers], [1, 1, 1])
        harness.on_threads(3, lambda rank: take_steps(all.outers[rank], all.nets[rank], rank, (3,) if rank < 2 else (3, 4)))
        first, *others = all.close()[0]
        for other in others:
            self.assert_same(first, other)

    def test_newcomer_with_compress(self):
        """It has not warmed up when the others have, and begins where they are."""
        job = harness.fresh_job()
        all = Workers(1, job, **EXACT, H=1, compress=slow)
        all.take(0, 1, 2)
        all.nets.append(model(8))

        def come(rank):
            if rank == 0:
                while all.comms[0].admit() == 0:
                    time.sleep(0.01)
                return all.outers[0].join()
            all.comms.append(winnow.Comm(job=job, newcomer=True))
            all.outers.append(all.make(1))

        harness.on_threads(2, come)
        all.take(3, 4, 5)
        self.assertEqual([outer.compress.state_dict()["steps"]["0.weight"] for outer in all.outers], [6, 6])
        self.assert_same(*all.close()[0])

    def after_a_loss(self, kind, options):
        """Weights and memories of two after six steps. kind: "one": the third result has reached rank 1 only, and what rank 0 sent
        is in it; "both": nobody has it, and they have ended, and begun anew with what they have saved."""
        two = Workers(2, warm_up=0, **options)
        two.take(0, 1, 2, 3)
        before, unsettled, outer = two.states(), [], two.outers[0]
        if kind == "both":
            lost = mock.patch.object(winnow.Comm, "allreduce", side_effect=winnow.MembersChanged(winnow.WinnowError.LOST, "lost"))
            with lost, self.assertRaises(winnow.MembersChanged):
                two.take(4, 5)
            saved = two.states()
            two.close()
            two = Workers(2, warm_up=0, **options)
            for net, outer, (parameters, state) in zip(two.nets, two.outers, saved):
                net.load_state_dict(parameters)
                outer.load_state_dict(state)
            two.join()
            return two

        def note():
            memory = outer.compress and copy.deepcopy(outer.compress.state_dict()["memory"])
            unsettled.append((copy.deepcopy((outer._sent, outer._lost)), memory))
            type(outer)._settle(outer)

        with mock.patch.object(outer, "_settle", note):
            two.take(4, 5)
        if kind == "one":
            (interrupted, memory), (net, state) = unsettled[0], before[0]
            kept = {**state, "inner": outer.inner.state_dict(), "steps": 6}
            if memory is not None:
                kept["compress"] = {**kept["compress"], "memory": memory}
            outer.load_state_dict(kept)
            outer._sent, outer._lost = interrupted
            if memory is not None:
                self.assertTrue(outer._lost.any())
                outer.compress._begin_at(3)
            with torch.no_grad():
                two.nets[0][0].weight.fill_(7)
            two.join()
        return two

    def test_a_result_is_lost(self):
        """Whom it has reached gives it to the other; where it has reached nobody it is computed again."""
        for options in (EXACT, {"compress": slow, "momentum": 0.5}):
            options = {name: value for name, value in options.items() if name != "warm_up"}
            runs = {}
            for kind in ("none", "one", "both"):
                two = self.after_a_loss(kind, options)
                self.assertEqual([outer.exchanges for outer in two.outers], [3, 3], kind)
                self.assertEqual([outer._sent for outer in two.outers], [None, None])
                runs[kind] = two.close()
            want, memories = runs.pop("none")
            self.assertGreater(int(sum((kept != 0).sum() for memory in memories for kept in memory.values())), 1000 * len(memories) - 1)
            for kind, (found, its) in runs.items():
                for ours, theirs in zip(want, found):
                    self.assert_same(ours, theirs)
                for ours, theirs in zip(memories, its):
                    self.assert_same(ours.values(), theirs.values())
