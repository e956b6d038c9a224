# SPDX-License-Identifier: BSD-3-Clause
"""attach(ddp, elastic=True): what it refuses, and that backward() raises MembersChanged. The rest is make demo-elastic's."""

import subprocess
import sys
import unittest

import harness

import winnow

ALONE = """
import sys, torch, torch.distributed as dist, winnow, winnow.torch
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(int(sys.argv[2]))
model = torch.nn.Sequential(torch.nn.Linear(7, 300), torch.nn.Linear(300, 1))
ddp = torch.nn.parallel.DistributedDataParallel(model)
comm = winnow.Comm(job=sys.argv[1], rank=int(sys.argv[2]), world=3, insecure_no_key=True)
for wrong in ({"way": "auto"}, {"compress": "topk:0.1"}, {"node": True}, {"check_nan": True}):
    try:
        winnow.torch.attach(ddp, comm, elastic=True, **wrong)
        sys.exit(f"{wrong} is taken")
    except ValueError as error:
        assert "block and wire only" in str(error), error
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
        elastic.admit(optimizer)
    except winnow.MembersChanged as error:
        assert "rank 2" in str(error), error
        elastic.resume(optimizer, 2)
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


class Elastic(unittest.TestCase):
    def test_a_worker_is_lost(self):
        job = harness.fresh_job()
        command = lambda rank: [sys.executable, "-c", ALONE, job, str(rank)]
        workers = [subprocess.Popen(command(rank), stdout=subprocess.PIPE, text=True) for rank in range(3)]
        said = [worker.communicate(timeout=100)[0].splitlines() for worker in workers]
        self.assertEqual([worker.returncode for worker in workers], [0, 0, -9])
        self.assertEqual([lines[0] for lines in said[:2]], ["changed 2"] * 2)
        self.assertEqual(said[0][-1], said[1][-1])

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
