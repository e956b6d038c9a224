# SPDX-License-Identifier: BSD-3-Clause
"""attach(ddp, elastic=True): what members give to each other, and that nobody trains with another state than the others."""

import contextlib
import json
import os
import pickle
import re
import tempfile
import time
import unittest
import urllib.request

import harness
from ports import free_port

# What all scripts begin with. The workers' models differ before share(), as their names do.
BEGIN = """
import hashlib, json, os, pickle, signal, sys, time
import numpy, torch, torch.distributed as dist, winnow, winnow.torch
import winnow._elastic as module
torch.set_num_threads(1)
job, name, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(name)
class Scaler:  # as a GradScaler, which torch 1.13 has for GPUs only
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
def digest(tensors):
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()[:12]
def wait_for(file):
    while not os.path.exists(f"{folder}/{file}"):
        time.sleep(0.01)
def touch(file):
    open(f"{folder}/{file}", "w").close()
def comm_of(world, newcomer=False, **more):
    return winnow.Comm(job=job, insecure_no_key=True, **({"newcomer": True} if newcomer else {"rank": name, "world": world}), **more)
def said(text):
    with open(f"{folder}/{name}.text", "a") as file:
        file.write(text + "\\n")
"""

# Worker 2 dies, and worker 3 comes later. `late`: worker 1 has not seen the step that worker 0 has done when 2 dies.
TRAIN = (
    BEGIN
    + """
late, unshared = sys.argv[4] == "late", sys.argv[4] == "unshared"
class Late(module.Elastic):
    def _arrived(self):
        if name != 1 or self.step != 5 or self.comm.world != 3:
            return super()._arrived()
        try:
            self.comm.allreduce(numpy.zeros(1), tag=99)
            sys.exit("worker 2 lives")
        except winnow.MembersChanged as error:
            self.error = error
if late:
    winnow.torch.Elastic = Late
model = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
scaler = Scaler()
if name == 3:
    wait_for("gate")
comm = comm_of(3, name == 3)
elastic = winnow.torch.attach(ddp, comm, elastic=True)
elastic.share(ddp, optimizer, *([] if unshared else [scheduler, scaler]))
found, last, worlds = {}, 200, []
def note():
    moments = [part[key] for part in optimizer.state_dict()["state"].values() for key in sorted(part) if torch.is_tensor(part[key])]
    found[elastic.step] = (
        digest(model.parameters()), digest(model.buffers()), digest(moments),
        optimizer.param_groups[0]["lr"], scheduler.last_epoch, scaler.scale,
    )
note()
try:
    while elastic.step < last:
        if comm.world not in worlds[-1:]:
            worlds.append(comm.world)
            last = elastic.step + 8 if len(worlds) == 3 or name == 3 else last
        try:
            if name == 2 and elastic.step == 5 and not late:
                die()
            if name == 0 and elastic.step == 10:
                touch("gate")
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
    said(str(error))
with open(f"{folder}/{name}", "wb") as file:
    pickle.dump(found, file)
comm.close()
"""
)

# The founder lets newcomers in, and is gone before it has given them its state.
ORPHANS = (
    BEGIN
    + """
newcomers = int(sys.argv[4])
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(7, 1))
comm = comm_of(1, name > 0)
elastic = winnow.torch.attach(ddp, comm, elastic=True)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
if name == 0:
    elastic.share(optimizer)
    wait_for("gate")
    assert comm.admit() == newcomers
    die()
try:
    elastic.share(optimizer)
    said(f"step {elastic.step}, {comm.rank} of {comm.world}, {digest(ddp.parameters())}")
except winnow.MembersChanged as error:
    said(f"changed: {error}")
except RuntimeError as error:
    said(str(error))
"""
)

# The first of three founders is gone before it has given the others what all begin with.
FOUNDERS = (
    BEGIN
    + """
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(7, 1))
comm = comm_of(3)
touch(f"{name}.joined")
elastic = winnow.torch.attach(ddp, comm, elastic=True)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
try:
    ddp(torch.ones(2, 7)).sum().backward()
except RuntimeError as error:
    said(str(error))
if name == 0:
    wait_for("1.joined")
    wait_for("2.joined")
    die()
mine = digest(ddp.parameters())
elastic.share(optimizer)
said(f"{elastic.step} {comm.rank} {comm.world} {mine} {digest(ddp.parameters())}")
ddp(torch.ones(2, 7)).sum().backward()
comm.close()
"""
)

# Gradients are cleared at the end of a step, as many scripts have it, and a step is of two backward(). Worker 1 dies in the fourth.
GRADIENTS = (
    BEGIN
    + """
model = torch.nn.Linear(4, 1, bias=False)
ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=sys.argv[4] == "view")
comm = comm_of(2)
elastic = winnow.torch.attach(ddp, comm, elastic=True)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.0)
elastic.share(optimizer)
while elastic.step < 6:
    try:
        with ddp.no_sync():
            ddp(torch.ones(1, 4) * (1 if name == 0 else 2)).sum().backward()
        if name == 1 and elastic.step == 3:
            die()
        ddp(torch.ones(1, 4) * (10 if name == 0 else 20)).sum().backward()
        said(f"{elastic.step} {comm.world} {model.weight.grad[0].tolist()}")
        optimizer.step()
        elastic.admit()
        optimizer.zero_grad()
    except winnow.MembersChanged:
        elastic.resume()
comm.close()
"""
)

# Worker 0 says that it has done a million steps, and sends what runs code where it is unpickled.
HOSTILE = (
    BEGIN
    + """
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(7, 1))
comm = comm_of(2)
class Pickled:
    def __reduce__(self):
        return os.system, (f"touch {folder}/executed",)
if name == 0:
    table = numpy.zeros((2, 2), numpy.int64)
    table[0] = 1000000, 1
    comm.allreduce(table)
    data = {"pickle": pickle.dumps(Pickled()), "huge": b""}[sys.argv[4]]
    words = numpy.frombuffer(data + bytes(-len(data) % 4), numpy.int32).copy()
    comm.broadcast(numpy.array([len(words) or 1 << 60]), 0)
    try:
        comm.broadcast(words, 0)
    except winnow.WinnowError:
        pass
    sys.exit()
elastic = winnow.torch.attach(ddp, comm, elastic=True)
try:
    elastic.share(torch.optim.SGD(ddp.parameters(), lr=0.05))
except ValueError as error:
    said(f"{type(error).__name__}: {error}")
"""
)

# Worker 1's parameters are changed after the third step: it does something else than the others.
DIVERGED = (
    BEGIN
    + """
model = torch.nn.Sequential(torch.nn.Linear(500, 300), torch.nn.Linear(300, 1))
ddp = torch.nn.parallel.DistributedDataParallel(model)
comm = comm_of(3)
elastic = winnow.torch.attach(ddp, comm, elastic=True)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
elastic.share(optimizer, compare=sys.argv[4] != "leave")
try:
    while elastic.step < 9:
        if name == 0 and elastic.step == 4 and sys.argv[4] == "momentum":
            die()
        ddp(torch.ones(2, 500)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if name == 1 and elastic.step == 3 and sys.argv[4] != "momentum":
            model[1].weight.data[0, 7] += 1e-3
        if name == 1 and elastic.step == 3:
            optimizer.state[model[0].bias]["momentum_buffer"][3] += 1e-3
        if name == 0 and elastic.step == 4:
            die()
        elastic.admit()
    said(f"done {elastic.step}")
except winnow.MembersChanged:
    try:
        elastic.resume()
        said(f"resumed {elastic.step}")
    except RuntimeError as error:
        said(f"resume: {error}")
except RuntimeError as error:
    said(f"admit: {error}")
"""
)

# What share() refuses, and what it says of a state that has become no state since.
REFUSED = (
    BEGIN
    + """
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(7, 1))
comm = comm_of(1, name > 0)
elastic = winnow.torch.attach(ddp, comm, elastic=True)
optimizer, scaler = torch.optim.SGD(ddp.parameters(), lr=0.05), Scaler()
scaler.scale = scaler if name == 0 else 1.0
for call in (
    elastic.admit, elastic.resume, lambda: elastic.share(optimizer, 0.1), lambda: elastic.share(optimizer, scaler),
    lambda: elastic.share(optimizer, {"a": 1}),
):
    if name == 0:
        try:
            call()
        except (TypeError, RuntimeError) as error:
            said(str(error))
scaler.scale = 1.0
try:
    elastic.share(optimizer, scaler)
    scaler.scale = [scaler]
    came = False
    while name == 0 and not came:
        try:
            elastic.admit()
            time.sleep(0.01)
        except winnow.MembersChanged:  # the newcomer has left
            elastic.resume()
            came = True
    said(f"{name} goes on, {comm.rank} of {comm.world}")
except RuntimeError as error:
    said(str(error))
comm.close()
"""
)


# The script of docs/recipes.md, of which worker 1 dies in the tenth step, and worker 2 is the newcomer.
RECIPE_BEGINS = (
    BEGIN
    + """
os.environ.update(WINNOW_JOB=job, WINNOW_INSECURE_NO_KEY="1", RANK=str(name), WORLD_SIZE="2")
sys.argv = ["recipe.py"] + ["newcomer"] * (name == 2)
admit = module.Elastic.admit
def slowly(elastic):
    if name == 1 and elastic.step == 9:
        die()
    admit(elastic)
    if name == 0 and elastic.step == 15:
        touch("gate")
    if elastic.step > 15 and elastic.comm.world == 1:
        time.sleep(0.3)
module.Elastic.admit = slowly
dist.destroy_process_group()
if name == 2:
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    wait_for("gate")
"""
)
RECIPE_ENDS = """
said(f"{elastic.step} {comm.world} {digest([*ddp.parameters(), *ddp.buffers()])} {scheduler.last_epoch} {len(mine)} {loss.item()}")
"""


def recipe():
    page = (harness.ROOT / "docs" / "recipes.md").read_text()
    return re.search(r"## Workers that come and go.*?```python\n(.*?)```", page, re.S)[1].replace("comm.close()\n", RECIPE_ENDS + "comm.close()\n")


class State(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="winnow-test-")
        self.addCleanup(directory.cleanup)
        self.folder, self.job = directory.name, harness.fresh_job()

    def start(self, script, count, *arguments):
        return [harness.program(script, self.job, str(name), self.folder, *arguments) for name in range(count)]

    def finish(self, workers, limit=120):
        """Their exit codes."""
        until = time.monotonic() + limit
        for worker in workers:
            worker.join(max(until - time.monotonic(), 0))
            worker.kill()
            worker.join()
        return [worker.exitcode for worker in workers]

    def run_all(self, script, count, *arguments):
        return self.finish(self.start(script, count, *arguments))

    def said(self, name):
        path = f"{self.folder}/{name}.text"
        if not os.path.exists(path):
            return []
        with open(path) as file:
            return file.read().splitlines()

    def trained(self, mode, codes):
        """By worker: what its state was after each step."""
        self.assertEqual(self.run_all(TRAIN, 4, mode), codes)
        found = {}
        for name in (0, 1, 3):
            with open(f"{self.folder}/{name}", "rb") as file:
                found[name] = pickle.load(file)
        return found

    def test_everything_is_shared(self):
        """Optimizer, learning rate, scale and buffers are the same on all after each step, whoever comes and goes."""
        for mode in ("", "late"):
            with self.subTest(mode=mode):
                self.setUp()
                found = self.trained(mode, [0, 0, -9, 0])
                self.assertEqual([self.said(name) for name in (0, 1, 3)], [[], [], []])
                self.assertEqual(max(found[0]), max(found[3]))
                self.assertGreater(min(found[3]), 5)
                self.assertEqual(len(found[3]), 9)
                for step in sorted(found[0]):
                    states = {name: found[name][step] for name in (0, 1, 3) if step in found[name]}
                    self.assertEqual(len(set(states.values())), 1, (step, states))
                self.assertGreater(found[3][max(found[3])][5], 64)

    def test_what_is_not_shared(self):
        """A newcomer with another learning rate is noticed after its first step."""
        self.trained("unshared", [0, 0, -9, 0])
        for name in (0, 1, 3):
            (text,) = self.said(name)
            self.assertRegex(text, r"^parameter [0-3]\.\w+ is not the same on rank 2 as on rank 0, after \d+ steps: does share\(\) get")

    def test_recipe(self):
        self.assertEqual(self.run_all(RECIPE_BEGINS + recipe(), 3), [0, -9, 0])
        (first,), (newcomer,) = self.said(0), self.said(2)
        self.assertEqual(first.split()[:5], newcomer.split()[:5])
        self.assertEqual(first.split()[:2] + first.split()[3:5], ["60", "2", "60", str(4096 // 2 // 32)])
        self.assertLess(float(first.split()[5]), 1)

    def test_orphans(self):
        for newcomers in (1, 2):
            with self.subTest(newcomers=newcomers):
                self.setUp()
                with harness.Aggregator("--join-timeout", "5s", metrics=f"127.0.0.1:{free_port()}") as aggregator:
                    kept = os.environ["WINNOW_AGGREGATORS"]
                    os.environ["WINNOW_AGGREGATORS"] = aggregator.address
                    try:
                        workers = self.start(ORPHANS, 1 + newcomers, str(newcomers))
                        self.await_newcomers(aggregator, newcomers)
                        open(f"{self.folder}/gate", "w").close()
                        self.assertEqual(self.finish(workers), [-9] + [0] * newcomers)
                    finally:
                        os.environ["WINNOW_AGGREGATORS"] = kept
                for name in range(1, 1 + newcomers):
                    (text,) = self.said(name)
                    self.assertRegex(text, "no worker is left that has the state of job")

    def await_newcomers(self, aggregator, count):
        until, found = time.monotonic() + 60, None
        while time.monotonic() < until:
            with contextlib.suppress(OSError):  # it has just been started
                with urllib.request.urlopen(f"http://{aggregator.metrics}/status", timeout=10) as answer:
                    found = [job.get("newcomers") for job in json.load(answer)["jobs"]]
            if found is not None and count in found:
                return
            time.sleep(0.02)
        self.fail(f"{found} newcomers wait, and not {count}")

    def test_founders(self):
        self.assertEqual(self.run_all(FOUNDERS, 3), [-9, 0, 0])
        told, begun = zip(*[self.said(name) for name in (1, 2)])
        for text in told:
            self.assertIn("this worker has no state yet: all members call share() before the first step", text)
        first, second = (line.split() for line in begun)
        self.assertEqual([first[:3], second[:3]], [["0", "0", "2"], ["0", "1", "2"]])
        self.assertEqual(first[3], first[4])
        self.assertEqual(second[4], first[4])
        self.assertNotEqual(second[3], first[4])

    def test_gradients(self):
        """Of a step that is repeated nothing is left, of all of its backward()."""
        for mode in ("", "view"):
            with self.subTest(mode=mode):
                self.setUp()
                self.assertEqual(self.run_all(GRADIENTS, 2, mode), [0, -9])
                lines = self.said(0)
                both, alone = [(1.0 + 10 + 2 + 20) / 2] * 4, [1.0 + 10] * 4  # what no_sync() accumulates is averaged with the rest
                self.assertEqual(lines, [f"{step} 2 {both}" for step in range(3)] + [f"{step} 1 {alone}" for step in range(3, 6)])

    def test_hostile(self):
        """What another worker sends is never run, nor taken for more memory than there is."""
        for mode, text in (
            ("pickle", "^StateError: what rank 0 has sent is not the state of a training: it has another format"),
            ("huge", r"^StateError: the state of rank 0 has \d+ bytes, and this machine's memory \d+"),
        ):
            with self.subTest(mode=mode):
                self.setUp()
                self.assertEqual(self.run_all(HOSTILE, 2, mode), [0, 0])
                self.assertFalse(os.path.exists(f"{self.folder}/executed"))
                (said,) = self.said(1)
                self.assertRegex(said, text)

    def test_diverged(self):
        """Who, and where; after some steps, since some of the parameters are looked at after each."""
        for mode in ("", "momentum", "leave"):
            with self.subTest(mode=mode):
                self.setUp()
                codes = self.run_all(DIVERGED, 3, mode)
                for name in (1, 2):
                    (text,) = self.said(name)
                    if mode == "leave":
                        self.assertEqual(text, "resumed 5")
                    elif mode == "momentum":  # before it has changed a parameter
                        self.assertRegex(text, r"^resume: SGD\['state'\]\[1\]\['momentum_buffer'\] is not the same on rank 1 as on rank 0, after 4")
                    else:
                        self.assertRegex(text, r"^(admit|resume): parameter 1.weight is not the same on rank [01] as on rank [02], after [45] steps")
                self.assertEqual(codes[1:], [0, 0])

    def test_refused(self):
        workers = self.start(REFUSED, 2)
        self.assertEqual(self.finish(workers), [0, 0])
        texts = self.said(0)
        self.assertEqual(texts[:2], ["call share() first: all members do, before the first step"] * 2)
        self.assertEqual(texts[2], "share() takes what has state_dict() and load_state_dict(), and this is a float")
        self.assertRegex(texts[3], r"^Scaler\['scale'\] is of type __main__.Scaler: want dict, list, tuple")
        self.assertEqual(texts[4], "share() takes what has state_dict() and load_state_dict(), and this is a dict")
        self.assertEqual(texts[5:], ["0 goes on, 0 of 1"])
        self.assertEqual(len(self.said(1)), 1)
        self.assertRegex(self.said(1)[0], r"^rank 0 cannot hand over its state: Scaler\['scale'\]\[0\] is of type __main__.Scaler")


if __name__ == "__main__":
    unittest.main()
