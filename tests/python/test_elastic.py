# SPDX-License-Identifier: BSD-3-Clause
# long: processes that die, and others that come
"""attach(ddp, elastic=True): what members give to each other, that nothing is lost or counted twice, and what is refused."""

import contextlib
import hashlib
import json
import os
import pathlib
import pickle
import re
import signal
import sys
import tempfile
import time
import unittest
import urllib.request
from unittest import mock

import harness
import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow import _cuda, _elastic


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def digest(tensors):
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()[:12]


class Worker:
    """Of a script below, each of which takes one: its name is a number; `world`: how many begin with it; None: it comes later.
    Models differ before share(), as names do."""

    silence_ms = None  # after which one that has left is missed

    def __init__(self, job, folder, name):
        self.job, self.folder, self.name = job, pathlib.Path(folder), name
        torch.set_num_threads(1)
        torch.manual_seed(name)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def join(self, world):
        who = {"newcomer": True} if world is None else {"rank": self.name, "world": world}
        return winnow.Comm(job=self.job, silence_ms=self.silence_ms, **who)

    def attach(self, world, model=None, lr=0.05, **options):
        """Communicator, model, optimizer, and what attach() returns."""
        ddp = DistributedDataParallel(model or nn.Linear(7, 1))
        comm = self.join(world)
        return comm, ddp, torch.optim.SGD(ddp.parameters(), lr=lr), winnow.torch.attach(ddp, comm, elastic=True, **options)

    def touch(self, file):
        (self.folder / file).touch()

    def wait_for(self, file):
        while not (self.folder / file).exists():
            time.sleep(0.01)

    def say(self, text):
        with open(self.folder / f"{self.name}.text", "a") as file:
            file.write(f"{text}\n")

    def leave(self, found):
        (self.folder / str(self.name)).write_bytes(pickle.dumps(found))


def work(script, job, folder, name, *arguments):
    script(Worker(job, folder, name), *arguments)


def late_at(step, worker):
    """Worker 1 does not see this step of three workers, which worker 0 has done: worker 2 dies in it."""

    class Late(_elastic.Elastic):
        def _arrived(self):
            if worker.name != 1 or self.step != step or self.comm.world != 3:
                return super()._arrived()
            for part in self._parts:
                part.values.fill_(7)
            try:
                self.comm.allreduce(numpy.zeros(1), tag=99)
                sys.exit("worker 2 lives")
            except winnow.MembersChanged as error:
                self.error = error

    winnow.torch.Elastic = Late


class Scaler:
    """As a GradScaler, which torch 1.13 has for GPUs only."""

    def __init__(self):
        self.scale, self.steps = 64.0, 0

    def step(self, optimizer, parameters):
        for parameter in parameters:
            parameter.grad /= self.scale
        optimizer.step()
        self.steps += 1
        self.scale = min(2 * self.scale, 2.0**16) if self.steps % 3 == 0 else self.scale

    def state_dict(self):
        return {"scale": self.scale, "steps": self.steps}

    def load_state_dict(self, state):
        self.scale, self.steps = state["scale"], state["steps"]


def train(worker, mode):
    """Worker 2 dies, and worker 3 comes later. What each leaves: by step, what its state was after it."""
    name = worker.name
    if mode == "late":
        late_at(5, worker)
    model = nn.Sequential(nn.Linear(7, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    scheduler, scaler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100), Scaler()
    if name == 3:
        worker.wait_for("gate")
    comm = worker.join(None if name == 3 else 3)
    elastic = winnow.torch.attach(ddp, comm, elastic=True)
    elastic.share(ddp, optimizer, *([] if mode == "unshared" else [scheduler, scaler]))
    found, last, worlds = {}, 200, []

    def note():
        moments = [part[key] for part in optimizer.state_dict()["state"].values() for key in sorted(part) if torch.is_tensor(part[key])]
        rates = optimizer.param_groups[0]["lr"], scheduler.last_epoch, scaler.scale
        assert model[1].num_batches_tracked == elastic.step  # a step that is repeated counts once
        found[elastic.step] = (*map(digest, (model.parameters(), model.buffers(), moments)), *rates)

    note()
    try:
        while elastic.step < last:
            if comm.world not in worlds[-1:]:
                worlds.append(comm.world)
                last = elastic.step + 8 if len(worlds) == 3 or name == 3 else last
            try:
                if name == 2 and elastic.step == 5 and mode != "late":
                    die()
                if name == 0 and elastic.step == 10:
                    worker.touch("gate")
                x = torch.randn(8, 7, generator=torch.Generator().manual_seed(100 * elastic.step + comm.rank))
                loss = (ddp(x) - x.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                (loss * scaler.scale).backward()
                if name == 2 and elastic.step == 5:
                    die()
                scaler.step(optimizer, list(ddp.parameters()))
                scheduler.step()
                elastic.admit()
                note()
                if worlds == [3, 2]:
                    time.sleep(0.02)
            except winnow.MembersChanged:
                elastic.resume()
                note()
    except RuntimeError as error:
        worker.say(error)
    worker.leave(found)
    comm.close()


class Slopes(nn.Module):
    """Whose gradients are what it is given."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(200, 150)), nn.Parameter(torch.randn(50))

    def forward(self, weights):
        return (self.a * weights).sum() + self.b.sum()


def pretend_to_have_a_gpu():
    """All memory is the CPU's; what is not known to be a copy passes for a GPU's."""
    copies, begin = [], winnow.Comm.allreduce_async

    def to_host(tensors):
        copies.extend(tensor.clone() for tensor in tensors)
        return copies[-len(tensors) :]

    def allreduce_async(comm, data, *more, segments=None, **options):
        assert all(len(one) == 3 for one in segments or ()) or _cuda.device_of(data) is None, "tiles in a GPU's memory"
        return begin(comm, data, *more, **({"segments": segments} if segments else {}), **options)

    _cuda.to_host, _cuda.to_device = to_host, lambda tensors, device: [tensor.clone() for tensor in tensors]
    _cuda.device_of = lambda tensor: None if any(tensor is one or getattr(tensor, "_base", None) is one for one in copies) else "gpu0"
    winnow.Comm.allreduce_async = allreduce_async


def account(worker, compress, gpu, options):
    """What a worker leaves: what it has had of gradients, less what is in its memory; worker 0 also what all have got.

    Worker 3 dies before a backward(), which fails on the others. Worker 2 dies after one that succeeds on it and on worker 0,
    and not on worker 1. Worker 4 comes later."""
    name = worker.name
    if gpu:
        pretend_to_have_a_gpu()
    late_at(4, worker)
    if name == 4:
        worker.wait_for("gate")
    net = Slopes()
    comm, ddp, optimizer, elastic = worker.attach(None if name == 4 else 4, net, 1, compress=compress, **options)
    elastic.share(optimizer)
    had, got = {}, {}

    def tell(**more):
        memory = torch.zeros(200 * 150)
        if elastic.compress is not None:
            memory = elastic.compress.state_dict()["memory"].get("a", memory)
        sent = sum(had.values()).double() - memory.view(200, 150)
        worker.leave({"sent": sent.numpy(), "memory": float(memory.abs().sum()), "got": got, "steps": len(had), **more})

    while elastic.step < 10:
        try:
            if name == 3 and elastic.step == 2:
                tell()
                die()
            if name != 4 and elastic.step == 6 and comm.world == 2:
                worker.touch("gate")
                while comm.admit() == 0:
                    time.sleep(0.01)
                elastic.share(optimizer)
            weights = torch.randn(200, 150, generator=torch.Generator().manual_seed(100 * elastic.step + name))
            weights[:, 20:] *= torch.arange(130) < 100 - 10 * elastic.step if "way" in options else 1
            optimizer.zero_grad()
            ddp(weights).backward()
            had[elastic.step] = weights
            got[elastic.step] = (net.a.grad * comm.world).double().numpy()
            if name == 2 and elastic.step == 4:
                tell()
                die()
            optimizer.step()
            elastic.admit()
        except winnow.MembersChanged:
            step = elastic.step
            elastic.resume()
            if elastic.step > step:
                had[step] = weights  # another one has done the step, with what this one has sent
    tell(weights=digest(net.parameters()), ways=elastic.ways())
    elastic.close()
    comm.close()


def orphans(worker, newcomers):
    """The founder lets newcomers in, and is gone before it has given them its state."""
    comm, ddp, optimizer, elastic = worker.attach(None if worker.name else 1)
    if worker.name == 0:
        elastic.share(optimizer)
        worker.wait_for("gate")
        assert comm.admit() == newcomers
        die()
    try:
        elastic.share(optimizer)
        worker.say(f"step {elastic.step}, {comm.rank} of {comm.world}")
    except RuntimeError as error:
        worker.say(error)


def founders(worker):
    """The first of three founders is gone before it has given the others what all begin with."""
    comm, ddp, optimizer, elastic = worker.attach(3)
    worker.touch(f"{worker.name}.joined")
    try:
        ddp(torch.ones(2, 7)).sum().backward()
    except RuntimeError as error:
        worker.say(error)
    if worker.name == 0:
        worker.wait_for("1.joined")
        worker.wait_for("2.joined")
        die()
    mine = digest(ddp.parameters())
    elastic.share(optimizer)
    worker.say(f"{elastic.step} {comm.rank} {comm.world} {mine} {digest(ddp.parameters())}")
    ddp(torch.ones(2, 7)).sum().backward()
    comm.close()


def accumulate(worker, is_view):
    """Gradients are cleared at the end of a step, as many scripts have it, and a step is of two backward(). Worker 1 dies in the
    fourth."""
    model, name = nn.Linear(4, 1, bias=False), worker.name
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=is_view)
    comm = worker.join(2)
    elastic = winnow.torch.attach(ddp, comm, elastic=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.0)
    elastic.share(optimizer)
    while elastic.step < 6:
        try:
            with ddp.no_sync():
                ddp(torch.ones(1, 4) * (1 + name)).sum().backward()
            if name == 1 and elastic.step == 3:
                die()
            ddp(torch.ones(1, 4) * 10 * (1 + name)).sum().backward()
            worker.say(f"{elastic.step} {comm.world} {model.weight.grad[0].tolist()}")
            optimizer.step()
            elastic.admit()
            optimizer.zero_grad()
        except winnow.MembersChanged:
            elastic.resume()
    comm.close()


class Pickled:
    """Where it is unpickled, it runs a command."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def hostile(worker, mode):
    """Worker 0 says that it has done a million steps, and sends what is no state."""
    if worker.name == 0:
        comm = worker.join(2)
        table = numpy.zeros((2, 2), numpy.int64)
        table[0] = 1000000, 1
        comm.allreduce(table)
        settings = "compress is None, way None and SGD is shared"
        data = {
            "pickle": lambda: pickle.dumps(Pickled(f"touch {worker.folder}/executed")),
            "huge": lambda: b"",
            "parts": lambda: _elastic._state.pack([settings, {"SGD": {}}, {}], "it").tobytes(),
            "counts": lambda: _elastic._state.pack([settings, {"model": {}, "SGD": {}}, {"weight": "many"}], "it").tobytes(),
        }[mode]()
        words = numpy.frombuffer(data + bytes(-len(data) % 4), numpy.int32).copy()
        comm.broadcast(numpy.array([len(words) or 1 << 60]), 0)
        request = comm.broadcast_async(words, 0)  # which the other does not take part in, if it is to be huge
        return worker.wait_for("1.text") or request
    comm, ddp, optimizer, elastic = worker.attach(2)
    try:
        elastic.share(optimizer)
    except ValueError as error:
        worker.say(f"{type(error).__name__}: {error}")


def diverge(worker, what):
    """Worker 1's parameters, or its momentum, are changed after the third step: it does something else than the others."""
    model, name = nn.Sequential(nn.Linear(500, 300), nn.Linear(300, 1)), worker.name
    ddp = DistributedDataParallel(model)
    comm = worker.join(3)
    elastic = winnow.torch.attach(ddp, comm, elastic=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    elastic.share(optimizer, compare=what != "leave")
    try:
        while elastic.step < 9:
            if name == 0 and elastic.step == 4 and what == "momentum":
                die()
            ddp(torch.ones(2, 500)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if name == 1 and elastic.step == 3:
                optimizer.state[model[0].bias]["momentum_buffer"][3] += 1e-3
                model[1].weight.data[0, 7] += 1e-3 if what != "momentum" else 0
            if name == 0 and elastic.step == 4:
                die()
            elastic.admit()
        worker.say(f"done {elastic.step}")
    except winnow.MembersChanged:
        try:
            elastic.resume()
            worker.say(f"resumed {elastic.step}")
        except RuntimeError as error:
            worker.say(f"resume: {error}")
    except RuntimeError as error:
        worker.say(f"admit: {error}")


def refuse(worker):
    """What attach() and share() refuse, and what is said of a state that has become no state since."""
    worker.silence_ms = 4000
    comm, ddp, optimizer, elastic = worker.attach(None if worker.name else 1)
    scaler = Scaler()
    scaler.scale = scaler if worker.name == 0 else 1.0
    other = lambda module=nn.Linear(2, 2), options={}, **arguments: winnow.torch.attach(
        DistributedDataParallel(module, **options), comm, elastic=True, **arguments
    )
    for call in (
        elastic.admit, elastic.resume, lambda: elastic.share(optimizer, 0.1), lambda: elastic.share(optimizer, scaler),
        lambda: elastic.share(optimizer, {"a": 1}),
        lambda: other(compress="topk:2"),
        lambda: other(node=True),
        lambda: other(check_nan=True),
        lambda: other(options={"static_graph": True}),
        lambda: other(options={"find_unused_parameters": True}),
        lambda: other(module=nn.Sequential(nn.EmbeddingBag(3, 3, sparse=True))),
        lambda: other(),
    ):  # fmt: skip
        try:
            call() if worker.name == 0 else None
        except (TypeError, RuntimeError, ValueError) as error:
            worker.say(error)
    scaler.scale = 1.0
    try:
        elastic.share(optimizer, scaler)
        scaler.scale = [scaler]
        came = False
        while worker.name == 0 and not came:
            try:
                elastic.admit()
                time.sleep(0.01)
            except winnow.MembersChanged:  # the newcomer has left
                elastic.resume()
                came = True
        worker.say(f"{worker.name} goes on, {comm.rank} of {comm.world}")
    except RuntimeError as error:
        worker.say(error)
    comm.close()


def differ(worker):
    """Whoever comes later than the others, or has another rank than 0, is told."""
    worker.silence_ms = 4000
    comm, ddp, optimizer, elastic = worker.attach(2, compress=f"topk:0.{1 + worker.name}")
    try:
        elastic.share(optimizer)
    except ValueError as error:
        worker.say(error)


def follow_the_recipe(worker):
    """The script of docs/recipes.md, of which worker 1 dies in the tenth step, and worker 2 is the newcomer."""
    os.environ.update(WINNOW_JOB=worker.job, RANK=str(worker.name), WORLD_SIZE="2")
    sys.argv = ["recipe.py"] + ["newcomer"] * (worker.name == 2)
    admit = _elastic.Elastic.admit

    def slowly(elastic):
        if worker.name == 1 and elastic.step == 9:
            die()
        admit(elastic)
        if worker.name == 0 and elastic.step == 15:
            worker.touch("gate")
        if elastic.step > 15 and elastic.comm.world == 1:
            time.sleep(0.3)

    _elastic.Elastic.admit = slowly
    dist.destroy_process_group()
    if worker.name == 2:
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
        worker.wait_for("gate")
    page = (harness.ROOT / "docs" / "recipes.md").read_text()
    script = re.search(r"## Workers that come and go.*?```python\n(.*?)```", page, re.S)[1]
    end = """
tensors = [*ddp.parameters(), *ddp.buffers()]
say(f"{elastic.step} {comm.world} {digest(tensors)} {scheduler.last_epoch} {len(mine)} {loss.item()}")
"""
    exec(script.replace("comm.close()\n", end + "comm.close()\n"), {"say": worker.say, "digest": digest})


class Run:
    """So many workers of one job, which run a script."""

    def __init__(self, script, count, *arguments):
        self.directory = tempfile.TemporaryDirectory(prefix="winnow-test-")
        self.folder, job = pathlib.Path(self.directory.name), harness.fresh_job()
        self.workers = [harness.program(work, script, job, self.folder, name, *arguments) for name in range(count)]

    def finish(self, limit=120):
        """Their exit codes."""
        until = time.monotonic() + limit
        for worker in self.workers:
            worker.join(max(until - time.monotonic(), 0))
            worker.kill()
            worker.join()
        return [worker.exitcode for worker in self.workers]

    def said(self, name):
        path = self.folder / f"{name}.text"
        return path.read_text().splitlines() if path.exists() else []

    def left(self, *names):
        return [pickle.loads((self.folder / str(name)).read_bytes()) for name in names]


class Elastic(unittest.TestCase):
    def run_all(self, codes, script, *arguments):
        run = Run(script, len(codes), *arguments)
        self.addCleanup(run.directory.cleanup)
        self.assertEqual(run.finish(), codes)
        return run

    def run_each(self, codes, script, modes):
        """By mode, side by side, for most wait."""
        runs = {mode: Run(script, len(codes), mode) for mode in modes}
        for mode, run in runs.items():
            self.addCleanup(run.directory.cleanup)
            self.assertEqual(run.finish(), codes, mode)
        return runs

    def test_everything_is_shared(self):
        """Optimizer, learning rate, scale and buffers are the same on all after each step, whoever comes and goes."""
        for mode, run in self.run_each([0, 0, -9, 0], train, ("", "late")).items():
            found = dict(zip((0, 1, 3), run.left(0, 1, 3)))
            self.assertEqual([run.said(name) for name in found], [[], [], []])
            self.assertEqual(max(found[0]), max(found[3]))
            self.assertGreater(min(found[3]), 5)
            self.assertEqual(len(found[3]), 9)
            for step in sorted(found[0]):
                states = {name: found[name][step] for name in found if step in found[name]}
                self.assertEqual(len(set(states.values())), 1, (mode, step, states))
            self.assertGreater(found[3][max(found[3])][5], 64)

    def test_what_is_not_shared(self):
        """A newcomer with another learning rate is noticed after its first step."""
        run = self.run_all([0, 0, -9, 0], train, "unshared")
        for name in (0, 1, 3):
            (text,) = run.said(name)
            self.assertRegex(text, r"^parameter [0-3]\.\w+ is not the same on rank 2 as on rank 0, after \d+ steps: pass everything")

    def accounted(self, compress=None, gpu=False, atol=1e-3, **options):
        """Its workers' last words, by name."""
        found = self.run_all([0, 0, -9, -9, 0], account, compress, gpu, options).left(*range(5))
        self.assertEqual([one["steps"] for one in found], [10, 10, 5, 2, 4])
        self.assertEqual(len({found[name]["weights"] for name in (0, 1, 4)}), 1)
        sent, got = (sum(one["sent"] for one in found), sum(found[0]["got"].values()))
        numpy.testing.assert_allclose(got, sent, atol=atol)  # nothing is lost, and nothing counted twice
        return found

    def test_compressed(self):
        """On a GPU the choice is made there, and what was chosen travels from the host."""
        for gpu in (False, True):
            self.assertTrue(all(one["memory"] > 100 for one in self.accounted(winnow.torch.TopK(0.1), gpu)))

    def test_rounded(self):
        """All is sent, so what is remembered is what rounding takes; of the sums it takes what nobody remembers."""
        for one in self.accounted(winnow.torch.TopK(1), atol=0.02, wire="fixed16"):
            self.assertGreater(one["memory"], 0.1)

    def test_way(self):
        for gpu in (False, True):
            found = self.accounted(None, gpu, way="auto")
            self.assertEqual([found[name]["ways"] for name in (0, 1, 4)], 3 * [{"a": "columns", "b": "blocks"}])

    def test_recipe(self):
        run = self.run_all([0, -9, 0], follow_the_recipe)
        (first,), (newcomer,) = run.said(0), run.said(2)
        self.assertEqual(first.split()[:5], newcomer.split()[:5])
        self.assertEqual(first.split()[:2] + first.split()[3:5], ["60", "2", "60", str(4096 // 2 // 32)])
        self.assertLess(float(first.split()[5]), 1)

    def test_orphans(self):
        with harness.Aggregator("--join-timeout", "3s", metrics=f"127.0.0.1:{harness.free_port()}") as aggregator:
            with mock.patch.dict(os.environ, WINNOW_AGGREGATORS=aggregator.address):
                runs = {newcomers: Run(orphans, 1 + newcomers, newcomers) for newcomers in (1, 2)}
                self.await_newcomers(aggregator, sorted(runs))
                for run in runs.values():
                    (run.folder / "gate").touch()
                for newcomers, run in runs.items():
                    self.addCleanup(run.directory.cleanup)
                    self.assertEqual(run.finish(), [-9] + [0] * newcomers)
                    for name in range(1, 1 + newcomers):
                        (text,) = run.said(name)
                        self.assertRegex(text, "no worker is left that has the state of job")

    def await_newcomers(self, aggregator, counts):
        until, found = time.monotonic() + 60, None
        while time.monotonic() < until:
            with contextlib.suppress(OSError):  # it has just been started
                with urllib.request.urlopen(f"http://{aggregator.metrics}/status", timeout=10) as answer:
                    found = [job.get("newcomers") for job in json.load(answer)["jobs"]]
            if found is not None and sorted(found) == counts:
                return
            time.sleep(0.02)
        self.fail(f"{found} newcomers wait, and not {counts}")

    def test_founders(self):
        run = self.run_all([-9, 0, 0], founders)
        told, begun = zip(*[run.said(name) for name in (1, 2)])
        for text in told:
            self.assertIn("this worker has no state yet: all members must call share() before the first step", text)
        first, second = (line.split() for line in begun)
        self.assertEqual([first[:3], second[:3]], [["0", "0", "2"], ["0", "1", "2"]])
        self.assertEqual(first[3], first[4])
        self.assertEqual(second[4], first[4])
        self.assertNotEqual(second[3], first[4])

    def test_gradients(self):
        """Of a step that is repeated nothing is left, of all of its backward()."""
        both, alone = [(1.0 + 10 + 2 + 20) / 2] * 4, [1.0 + 10] * 4  # what no_sync() accumulates is averaged with the rest
        for run in self.run_each([0, -9], accumulate, (False, True)).values():
            self.assertEqual(run.said(0), [f"{step} 2 {both}" for step in range(3)] + [f"{step} 1 {alone}" for step in range(3, 6)])

    def test_hostile(self):
        """What another worker sends is never run, nor taken for more memory than there is, nor believed."""
        wanted = {
            "pickle": "what rank 0 has sent is not the state of a training: it has another format",
            "huge": r"the state of rank 0 has \d+ bytes, but this machine's memory only \d+",
            "parts": "what rank 0 has sent is not the state of a training: parts of it are missing",
            "counts": "what rank 0 has sent is not the state of a training: parts of it are missing",
        }
        for mode, run in self.run_each([0, 0], hostile, wanted).items():
            self.assertFalse((run.folder / "executed").exists())
            (said,) = run.said(1)
            self.assertRegex(said, f"^StateError: {wanted[mode]}")

    def test_diverged(self):
        """Who, and where; after some steps, since some of the parameters are looked at after each."""
        wanted = {
            "": r"(admit|resume): parameter 1.weight is not the same on rank [01] as on rank [02], after [45] steps",
            # Before it has changed a parameter.
            "momentum": r"resume: SGD\['state'\]\[1\]\['momentum_buffer'\] is not the same on rank 1 as on rank 0, after 4",
            "leave": "resumed 5$",
        }
        runs = {what: Run(diverge, 3, what) for what in wanted}
        for what, run in runs.items():
            self.addCleanup(run.directory.cleanup)
            self.assertEqual(run.finish()[1:], [0, 0])
            for name in (1, 2):
                (text,) = run.said(name)
                self.assertRegex(text, f"^{wanted[what]}")

    def test_refused(self):
        run = self.run_all([0, 0], refuse)
        *texts, last = run.said(0)
        wanted = (
            *["^call share.. first: all members do, before the first step$"] * 2,
            "^share.. takes objects with state_dict.. and load_state_dict.., and this float lacks them$",
            r"^Scaler\['scale'\] is of type test_elastic.Scaler: want dict, list, tuple",
            "and this dict lacks them$",
            "density is 2",
            *["leave node and check_nan out"] * 2,
            "static_graph=True: leave it out",
            "find_unused_parameters=True: leave it out",
            "0 has sparse=True",
            "^this communicator already has an elastic model: put both into one module",
        )
        self.assertEqual(len(texts), len(wanted), texts)
        for text, want in zip(texts, wanted):
            self.assertRegex(text, want)
        self.assertEqual(last, "0 goes on, 0 of 1")
        (text,) = run.said(1)
        self.assertRegex(text, r"^rank 0 cannot hand over its state: Scaler\['scale'\]\[0\] is of type test_elastic.Scaler")

    def test_settings_differ(self):
        run = self.run_all([0, 0], differ)
        self.assertEqual(run.said(0), [])
        (text,) = run.said(1)
        self.assertRegex(text, r"compress is TopK\(0.2, .* on this worker, but compress is TopK\(0.1, .*: want the same on all")

    def test_group_of_many(self):
        with mock.patch.object(dist, "get_world_size", return_value=2), self.assertRaisesRegex(ValueError, "of one process"):
            _elastic.Elastic(mock.Mock())

    def test_lost_aggregators_too(self):
        self.assertIsInstance(winnow._member.failure(winnow.WinnowError.LOST, "it is gone"), winnow.MembersChanged)
