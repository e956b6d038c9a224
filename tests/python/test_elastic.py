# SPDX-License-Identifier: BSD-3-Clause
"""attach(ddp, elastic=True): what it refuses, that backward() raises MembersChanged, and what compress remembers. The rest is
make demo-elastic's."""

import pickle
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import numpy

import winnow

ALONE = """
import sys, torch, torch.distributed as dist, winnow, winnow.torch
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(int(sys.argv[2]))
model = torch.nn.Sequential(torch.nn.Linear(7, 300), torch.nn.Linear(300, 1))
ddp = torch.nn.parallel.DistributedDataParallel(model)
comm = winnow.Comm(job=sys.argv[1], rank=int(sys.argv[2]), world=4, insecure_no_key=True)
if comm.rank == 3:
    import os; os.kill(os.getpid(), 9)  # before the first step
for wrong, text in (
    ({"way": "row"}, "way is 'row'"),
    ({"compress": "topk:2"}, "density is 2"),
    ({"node": True}, "leave node and check_nan out"),
    ({"check_nan": True}, "leave node and check_nan out"),
):
    try:
        winnow.torch.attach(ddp, comm, elastic=True, **wrong)
        sys.exit(f"{wrong} is taken")
    except ValueError as error:
        assert text in str(error), error
for other, options, text in (
    (torch.nn.Linear(2, 2), {"static_graph": True}, "static_graph=True: leave it out"),
    (torch.nn.Linear(2, 2), {"find_unused_parameters": True}, "find_unused_parameters=True: leave it out"),
    (torch.nn.Sequential(torch.nn.EmbeddingBag(3, 3, sparse=True)), {}, "0 has sparse=True"),
):
    try:
        winnow.torch.attach(torch.nn.parallel.DistributedDataParallel(other, **options), comm, elastic=True)
        sys.exit(f"{other} with {options} is taken")
    except ValueError as error:
        assert text in str(error), error
elastic = winnow.torch.attach(ddp, comm, elastic=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
elastic.share(optimizer)
for step in range(4):
    try:
        if comm.rank == 2 and elastic.step == 2:
            sys.stdout.flush()
            import os; os.kill(os.getpid(), 9)
        optimizer.zero_grad()
        ddp(torch.full((2, 7), comm.rank + 1.0)).sum().backward()
        optimizer.step()
        elastic.admit()
    except winnow.MembersChanged as error:
        assert "rank 2" in str(error), error
        elastic.resume(least=2)
        print("changed", comm.world, flush=True)
try:
    elastic.comm.reconfigure()
    sys.exit("nobody is lost")
except winnow.WinnowError as error:
    assert error.code == winnow.WinnowError.INVALID
print("weights", elastic.step, sum(parameter.double().sum().item() for parameter in model.parameters()))
elastic.close()
comm.close()
"""


# A worker's gradients are `weights` of a loss, so it knows them without asking anybody. It says what it has had of them, and
# what of that is in its memory; worker 0 says what all have got. Worker 3 dies before a backward(), which fails on the others.
# Worker 2 dies after one that succeeds on it and on worker 0, and not on worker 1. Worker 4 comes later.
COMPRESSED = """
import hashlib, os, pickle, signal, sys, time
import numpy, torch, torch.distributed as dist, winnow, winnow.torch
import winnow._elastic as module
job, name, compress, way, wire, gpu, folder = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
if gpu:  # its memory is the CPU's, but what is known to be a copy
    from winnow import _cuda
    copies = []
    def to_host(tensors):
        copies.extend(tensor.clone() for tensor in tensors)
        return copies[-len(tensors):]
    _cuda.to_host, _cuda.to_device = to_host, lambda tensors, device: [tensor.clone() for tensor in tensors]
    _cuda.device_of = lambda tensor: None if any(tensor is one or getattr(tensor, "_base", None) is one for one in copies) else "gpu0"
    original = winnow.Comm.allreduce_async
    def allreduce_async(comm, data, *more, segments=None, **options):
        assert all(len(one) == 3 for one in segments or ()) or _cuda.device_of(data) is None, "tiles in a GPU's memory"
        return original(comm, data, *more, **({"segments": segments} if segments else {}), **options)
    winnow.Comm.allreduce_async = allreduce_async
class Late(module.Elastic):
    def _arrived(self):
        if name != 1 or self.step != 4 or self.comm.world != 3:
            return super()._arrived()
        for part in self._parts:
            part.values.fill_(7)  # this worker has not seen it
        try:
            self.comm.allreduce(numpy.zeros(1), tag=99)
            sys.exit("worker 2 lives")
        except winnow.MembersChanged as error:
            self.error = error
winnow.torch.Elastic = Late
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(name)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.randn(200, 150)), torch.nn.Parameter(torch.randn(50))
    def forward(self, weights):
        return (self.a * weights).sum() + self.b.sum()
net = Net()
ddp = torch.nn.parallel.DistributedDataParallel(net)
there = {"newcomer": True} if name == 4 else {"rank": name, "world": 4}
while name == 4 and not os.path.exists(folder + "/gate"):
    time.sleep(0.01)
comm = winnow.Comm(job=job, insecure_no_key=True, **there)
elastic = winnow.torch.attach(ddp, comm, elastic=True, compress=eval(compress), way=way or None, wire=wire or None)
optimizer = torch.optim.SGD(net.parameters(), lr=1)
elastic.share(optimizer)
had, got = {}, {}
def tell(**more):
    memory = elastic.compress.state_dict()["memory"].get("a", torch.zeros(200 * 150)) if elastic.compress else torch.zeros(200 * 150)
    sent = sum(had.values()).double() - memory.view(200, 150)
    with open(f"{folder}/{name}", "wb") as file:
        pickle.dump({"sent": sent.numpy(), "memory": float(memory.abs().sum()), "got": got, "steps": len(had), **more}, file)
while elastic.step < 10:
    try:
        if name == 3 and elastic.step == 2:
            tell()
            os.kill(os.getpid(), signal.SIGKILL)
        if name != 4 and elastic.step == 6 and comm.world == 2:
            open(folder + "/gate", "w").close()
            while comm.admit() == 0:
                time.sleep(0.01)
            elastic.share(optimizer)
        weights = torch.randn(200, 150, generator=torch.Generator().manual_seed(100 * elastic.step + name))
        weights[:, 20:] *= torch.arange(130) < 100 - 10 * elastic.step if way else 1
        optimizer.zero_grad()
        ddp(weights).backward()
        had[elastic.step] = weights
        got[elastic.step] = (net.a.grad * comm.world).double().numpy()
        if name == 2 and elastic.step == 4:
            tell()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        elastic.admit()
    except winnow.MembersChanged:
        step = elastic.step
        elastic.resume()
        if elastic.step > step:
            had[step] = weights  # another one has done the step, with what this one has sent
data = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
tell(weights=hashlib.sha256(data).hexdigest(), ways=elastic.ways())
elastic.close()
comm.close()
"""


class Elastic(unittest.TestCase):
    def test_a_worker_is_lost(self):
        job = harness.fresh_job()
        command = lambda rank: [sys.executable, "-c", ALONE, job, str(rank)]
        workers = [subprocess.Popen(command(rank), stdout=subprocess.PIPE, text=True) for rank in range(4)]
        said = [worker.communicate(timeout=100)[0].splitlines() for worker in workers]
        self.assertEqual([worker.returncode for worker in workers], [0, 0, -9, -9])
        self.assertEqual([lines[0] for lines in said[:2]], ["changed 2"] * 2)
        self.assertEqual(said[0][-1], said[1][-1])

    def train(self, compress, way="", gpu="", wire="", atol=1e-3):
        """Its workers' last words, by name."""
        with tempfile.TemporaryDirectory() as folder:
            job = harness.fresh_job()
            workers = [harness.program(COMPRESSED, job, str(name), compress, way, wire, gpu, folder) for name in range(5)]
            until = time.monotonic() + 120
            for worker in workers:
                worker.join(max(until - time.monotonic(), 0))
                worker.kill()
                worker.join()
            self.assertEqual([worker.exitcode for worker in workers], [0, 0, -9, -9, 0])
            said = []
            for name in range(5):
                with open(f"{folder}/{name}", "rb") as file:
                    said.append(pickle.load(file))
        self.assertEqual([one["steps"] for one in said], [10, 10, 5, 2, 4])
        self.assertEqual(len({said[name]["weights"] for name in (0, 1, 4)}), 1)
        sent, got = (sum(one["sent"] for one in said), sum(said[0]["got"].values()))
        numpy.testing.assert_allclose(got, sent, atol=atol)  # nothing is lost, and nothing counted twice
        return said

    def test_compressed(self):
        """On a GPU the choice is made there, and what was chosen travels from the host."""
        for gpu in ("", "gpu"):
            with self.subTest(gpu=gpu):
                self.assertTrue(all(one["memory"] > 100 for one in self.train("winnow.torch.TopK(0.1)", gpu=gpu)))

    def test_rounded(self):
        """All is sent, so what is remembered is what rounding takes; of the sums it takes what nobody remembers."""
        for one in self.train("winnow.torch.TopK(1)", wire="fixed16", atol=0.02):
            self.assertGreater(one["memory"], 0.1)

    def test_way(self):
        for gpu in ("", "gpu"):
            with self.subTest(gpu=gpu):
                said = self.train("None", "auto", gpu)
                for name in (0, 1, 4):
                    self.assertEqual(said[name]["ways"], {"a": "columns", "b": "blocks"})

    def test_settings_differ(self):
        """Whoever comes later than the others, or has another rank than 0, is told."""
        code = """
import sys, torch, torch.distributed as dist, winnow, winnow.torch
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(7, 300)
comm = winnow.Comm(job=sys.argv[1], rank=int(sys.argv[2]), world=2, insecure_no_key=True)
ddp = torch.nn.parallel.DistributedDataParallel(model)
elastic = winnow.torch.attach(ddp, comm, elastic=True, compress=f"topk:0.{1 + comm.rank}")
try:
    elastic.share(torch.optim.SGD(model.parameters(), lr=1))
except ValueError as error:
    print(error)
"""
        job = harness.fresh_job()
        command = lambda rank: [sys.executable, "-c", code, job, str(rank)]
        workers = [subprocess.Popen(command(rank), stdout=subprocess.PIPE, text=True) for rank in range(2)]
        said = [worker.communicate(timeout=60)[0] for worker in workers]
        self.assertEqual(said[0], "")
        self.assertRegex(said[1], r"compress is TopK\(0.2, .* on this worker, and compress is TopK\(0.1, .*: want the same on all")

    def test_group_of_many(self):
        code = """
import torch, torch.distributed as dist, winnow.torch
class Group:
    pass
import winnow._elastic as elastic
dist.get_world_size = lambda group: 2
ddp = type("Ddp", (), {"process_group": None})()
try:
    elastic.Elastic(ddp)
except ValueError as error:
    print(error)
"""
        text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout
        self.assertIn("of one process", text)

    def test_lost_aggregators_too(self):
        error = winnow._member.failure(winnow.WinnowError.LOST, "it is gone")
        self.assertIsInstance(error, winnow.MembersChanged)


if __name__ == "__main__":
    unittest.main()
