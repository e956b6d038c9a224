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
from winnow import _outer

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
    texts = []

    def note(make, *arguments, **options):
        try:
            make(*arguments, **options)
            texts.append(None)
        except (TypeError, ValueError, RuntimeError) as error:
            texts.append(str(error))

    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        outer = winnow.torch.OuterOptimizer
        note(outer, net, inner_of(net), H=0, comm=comm)
        note(outer, net, inner_of(net), H=2.5, comm=comm)
        note(outer, net, inner_of(net), H=1, warm_up=-1, comm=comm)
        note(outer, net, inner_of(net), H=1, lr=0, comm=comm)
        note(outer, net, inner_of(net), H=1, momentum=1, comm=comm)
        note(outer, net, inner_of(model()), H=1, comm=comm)
        note(outer, DistributedDataParallel(net), inner_of(net), H=1, comm=comm)
        note(outer, model().double(), inner_of(net), H=1, comm=comm)
        note(outer, nn.ReLU(), inner_of(net), H=1, comm=comm)
        note(outer, net, inner_of(net), H=1, compress="topk:0", comm=comm)
        note(outer, net, inner_of(net), H=1 + rank, comm=comm)
        note(outer, net, inner_of(net), H=1, compress="topk:0.1" if rank else "topk:0.2", comm=comm)
        good = outer(net, inner_of(net), H=1, comm=comm, **EXACT)
        state = good.state_dict()
        note(good.load_state_dict, {**state, "compress": {"memory": {}, "velocity": {}, "steps": {}}})
        note(good.load_state_dict, {**state, "start": {}})
        note(good.load_state_dict, {**state, "speed": {**state["speed"], "2.weight": torch.zeros(5)}})
        if rank == 1:
            with torch.no_grad():
                net[2].bias[3] = float("inf")
        note(good.step)
    return texts


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


def sent_and_kept(rank, world, job):
    """Of whole numbers: all that was given, all that arrived, and what is left, of a weight that H=1 exchanges."""
    net = nn.Linear(WIDTH, WIDTH, bias=False)
    nn.init.zeros_(net.weight)
    given, arrived = torch.zeros(WIDTH * WIDTH), torch.zeros(WIDTH * WIDTH)
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        compress = winnow.torch.TopK(0.02, chunk=100)
        outer = winnow.torch.OuterOptimizer(net, torch.optim.SGD(net.parameters(), lr=1), H=1, compress=compress, comm=comm, **EXACT)
        for step in range(8):
            draw = torch.Generator().manual_seed(1000 * step + rank)
            gradient = torch.randint(-50, 51, (WIDTH, WIDTH), generator=draw).float() * world
            before = net.weight.detach().clone()
            net.weight.grad = gradient.clone()
            outer.step()
            given += gradient.flatten()
            arrived += (before - net.weight.detach()).flatten() * world
        return given, arrived, compress.state_dict()["memory"]["weight"].clone()


class Outer(harness.TeamCase):
    def assert_same(self, first, second):
        for ours, theirs in zip(first, second):
            self.assertTrue(torch.equal(ours, theirs))

    def assert_near(self, first, second):
        for ours, theirs in zip(first, second):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)

    def test_diloco(self):
        """Three exchanges, and two steps alone after them."""
        want = reference(2, 14, 0.7, 0.7)
        for rank, (found, _, exchanges) in enumerate(self.team.run(trained, harness.fresh_job(), None, 14)):
            self.assert_near(found, want[rank])
            self.assertEqual(exchanges, 3)

    def test_warm_up(self):
        """So many steps of everybody's mean gradient come first, in which there is no other exchange."""
        for steps, exchanges in ((5, 5), (15, 8)):
            want = reference(2, steps, 0.7, 0.7, warm_up=6)
            found = self.team.run(trained, harness.fresh_job(), None, steps, warm_up=6)
            for rank in range(2):
                self.assert_near(found[rank][0], want[rank])
                self.assertEqual(found[rank][2], exchanges)

    def test_warm_up_of_all_kinds(self):
        """Gradients that are sparse, that some worker or none has, and that a closure makes."""
        first, second = self.team.run(kinds_of_gradients, harness.fresh_job())
        self.assertEqual(first, second)
        table, used, unused, closure = first
        self.assertEqual(table, [-1, -2, 0])  # of rows 0 and 1 by two workers, 1 by one of them; SGD's rate is 1
        self.assertEqual((used, unused, closure), (-1, None, 3))

    def test_sgd(self):
        """The mean of the weights, whose inner optimizers are SGD."""
        want = reference(2, 15, 1, 0, warm_up=6, inner_of=sgd_of)
        for rank, (found, *_) in enumerate(self.team.run(trained, harness.fresh_job(), None, 15, sgd_of, warm_up=6)):
            self.assert_near(found, want[rank])

    def test_sparseloco(self):
        want = reference(2, 24, 1.0, 0.0, 0.05, 200, 0.9)
        dense = self.team.run(trained, harness.fresh_job(), None, 24)
        found = self.team.run(trained, harness.fresh_job(), sparseloco(), 24)
        for rank in range(2):
            self.assert_near(found[rank][0], want[rank])
            self.assertLess(found[rank][1], 0.6 * dense[rank][1])
        want = reference(2, 24, 1.0, 0.0, 0.05, 200, 0.9, warm_up=6)
        found = self.team.run(trained, harness.fresh_job(), sparseloco(), 24, warm_up=6)
        for rank in range(2):
            self.assert_near(found[rank][0], want[rank])

    def test_nothing_is_lost(self):
        found = self.team.run(sent_and_kept, harness.fresh_job())
        self.assertGreater(int((found[0][1] != 0).sum()), 200)
        self.assertTrue(torch.equal(found[0][1], found[1][1]))
        self.assertTrue(torch.equal(sum(each[0] for each in found), found[0][1] + sum(each[2] for each in found)))

    def test_settings(self):
        want = reference(2, 8, 0.5, 0.3)
        found = self.team.run(trained, harness.fresh_job(), None, 8, lr=0.5, momentum=0.3)
        self.assert_near(found[0][0], want[0])
        self.assert_same(found[0][0], found[1][0])

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
            for text, want in zip(
                texts,
                (
                    "H is 0: want at least 1",
                    "H is 2.5",
                    "warm_up is -1: want 0 or more",
                    "lr is 0 and momentum 0.7",
                    "momentum 1: want",
                    "the model has not",
                    "not a DistributedDataParallel",
                    "parameter 0.weight is torch.float64",
                    "no parameter that is trained",
                    "density is 0",
                    f"on rank {1 - rank}: want the same on all",
                    f"TopK(0.{1 + rank}, chunk=4096",
                    "or the other way round",
                    "no start of 0.weight, of 4096 elements",
                    "no speed of 2.weight, of 4096 elements",
                    "the weights of 2.bias are not finite on rank 1, after 1 steps",
                ),
            ):
                self.assertIn(want, str(text))
                self.assertNotIn("\n", text)


class Members(unittest.TestCase):
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
        with self.assertRaisesRegex(ValueError, "wire is 'fp16': want one of"):
            winnow.torch.OuterOptimizer(net, outer.inner, H=2, wire="fp16", comm=comm)
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
            for ours, theirs in zip(first[0], second[0]):
                self.assertTrue(torch.equal(ours, theirs))

    def test_one_lacks_a_gradient(self):
        """As if the last mean gradient had reached rank 1 only: rank 0 gets the weights after it."""
        nets, comms = [model(), model()], harness.join(2)
        make = lambda rank: winnow.torch.OuterOptimizer(nets[rank], inner_of(nets[rank]), H=2, comm=comms[rank], warm_up=9)
        outers = harness.on_threads(2, make)
        harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(2)))
        before = copy.deepcopy((nets[0].state_dict(), outers[0].state_dict()))
        harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(2, 3)))
        nets[0].load_state_dict(before[0])
        outers[0].load_state_dict({**before[1], "steps": 3})
        harness.on_threads(2, lambda rank: outers[rank].join())
        harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(3, 6)))
        self.assertEqual([outer.exchanges for outer in outers], [5, 5])
        for ours, theirs in zip(weights(nets[0]), weights(nets[1])):
            self.assertTrue(torch.equal(ours, theirs))
        for comm in comms:
            comm.close()

    def test_newcomer(self):
        """It gets weights, momentum and count; those who were there keep theirs."""
        job = harness.fresh_job()
        nets, outers = [model(), model(8), model(9)], [None] * 3
        comms = harness.join(2, job=job) + [None]

        def make(rank):
            outers[rank] = winnow.torch.OuterOptimizer(nets[rank], inner_of(nets[rank]), H=2, comm=comms[rank], **EXACT)

        def come(rank):
            if rank < 2:
                comms[rank].reconfigure("more", rank, 3)
                return outers[rank].join()
            comms[2] = winnow.Comm(job=f"{job}/more", rank=2, world=3)
            return make(2)

        harness.on_threads(2, make)
        harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(3)))
        alone = weights(nets[1])
        harness.on_threads(3, come)
        for ours, kept in zip(weights(nets[1]), alone):
            self.assertTrue(torch.equal(ours, kept))  # a step after the exchange: its own still
        begun = outers[0].state_dict()
        for part, both in enumerate(zip(begun["start"].values(), outers[2].state_dict()["start"].values())):
            self.assertTrue(torch.equal(*both))
        for mine, net in zip(begun["start"].values(), weights(nets[2])):
            self.assertTrue(torch.equal(mine, net.flatten()))
        self.assertEqual([outer.exchanges for outer in outers], [1, 1, 1])
        harness.on_threads(
            3, lambda rank: take_steps(outers[rank], nets[rank], rank, range(3, 4) if rank < 2 else range(3, 5))
        )
        for net in nets[1:]:
            for ours, theirs in zip(weights(nets[0]), weights(net)):
                self.assertTrue(torch.equal(ours, theirs))
        for comm in comms:
            comm.close()

    def test_newcomer_with_compress(self):
        """It has not warmed up when the others have, and begins where they are."""
        job, nets, outers = harness.fresh_job(), [model(), model(8)], [None] * 2
        comms = [winnow.Comm(job=job, rank=0, world=1), None]
        outers[0] = winnow.torch.OuterOptimizer(nets[0], inner_of(nets[0]), H=1, compress=slow(), comm=comms[0], **EXACT)
        take_steps(outers[0], nets[0], 0, range(3))

        def come(rank):
            if rank == 0:
                while comms[0].admit() == 0:
                    time.sleep(0.01)
                return outers[0].join()
            comms[1] = winnow.Comm(job=job, newcomer=True)
            outers[1] = winnow.torch.OuterOptimizer(nets[1], inner_of(nets[1]), H=1, compress=slow(), comm=comms[1], **EXACT)

        harness.on_threads(2, come)
        harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(3, 6)))
        for ours, theirs in zip(weights(nets[0]), weights(nets[1])):
            self.assertTrue(torch.equal(ours, theirs))
        self.assertEqual([outer.compress.state_dict()["steps"]["0.weight"] for outer in outers], [6, 6])
        for comm in comms:
            comm.close()

    def test_one_lacks_a_rounded_exchange(self):
        """As if the last result had reached rank 1 only: rank 0's memory is as if it had reached both."""
        memories = []
        for lost in (False, True):
            nets, comms = [model(), model()], harness.join(2)
            outers = harness.on_threads(
                2,
                lambda rank: winnow.torch.OuterOptimizer(
                    nets[rank], inner_of(nets[rank]), H=2, compress=slow(), momentum=0.5, comm=comms[rank], warm_up=0
                ),
            )
            harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(4)))
            before, remember = copy.deepcopy(outers[0].state_dict()), _outer.remember_lost
            unsettled = []

            def note(compress, *arguments):
                if not lost or compress is not outers[0].compress:
                    return remember(compress, *arguments)
                unsettled.append(copy.deepcopy((outers[0]._sent, outers[0]._lost, compress.state_dict()["memory"])))

            with mock.patch.object(_outer, "remember_lost", note):
                harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(4, 6)))
            if lost:
                sent, rounded, memory = unsettled[0]
                self.assertTrue(rounded.any())
                kept = {**before["compress"], "memory": memory}
                outers[0]._sent, outers[0]._lost = sent, rounded  # of an exchange that was interrupted before
                outers[0].load_state_dict({**before, "inner": outers[0].inner.state_dict(), "steps": 6, "compress": kept})
                self.assertIsNone(outers[0]._sent)
                self.assertIsNone(outers[0]._lost)
                outers[0]._sent, outers[0]._lost = sent, rounded
                outers[0].compress.begin_at(3)
                harness.on_threads(2, lambda rank: outers[rank].join())
                self.assertIsNone(outers[0]._sent)
            memories.append(copy.deepcopy(outers[0].compress.state_dict()["memory"]))
            self.assertEqual([outer.exchanges for outer in outers], [3, 3])
            for comm in comms:
                comm.close()
        self.assertGreater(int(sum((kept != 0).sum() for kept in memories[0].values())), 1000)
        for name, kept in memories[0].items():
            self.assertTrue(torch.equal(kept, memories[1][name]), name)

    def test_one_lacks_an_exchange(self):
        """As if the last result had reached rank 1 only: what rank 0 sent is in it, and not sent again."""
        runs = []
        for lost in (False, True):
            nets, comms = [model(), model()], harness.join(2)
            outers = harness.on_threads(
                2, lambda rank: winnow.torch.OuterOptimizer(nets[rank], inner_of(nets[rank]), H=2, comm=comms[rank], **EXACT)
            )
            harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(2)))
            before = copy.deepcopy(outers[0].state_dict())
            harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(2, 4)))
            if lost:
                outers[0].load_state_dict({**before, "inner": outers[0].inner.state_dict(), "steps": 4})
                outers[0]._sent = torch.ones_like(outers[0]._start)
                with torch.no_grad():
                    nets[0][0].weight.fill_(7)
                harness.on_threads(2, lambda rank: outers[rank].join())
            harness.on_threads(2, lambda rank: take_steps(outers[rank], nets[rank], rank, range(4, 6)))
            self.assertEqual([outer.exchanges for outer in outers], [3, 3])
            runs += map(weights, nets)
            for comm in comms:
                comm.close()
        for run in runs[1:]:
            for ours, theirs in zip(runs[0], run):
                self.assertTrue(torch.equal(ours, theirs))
