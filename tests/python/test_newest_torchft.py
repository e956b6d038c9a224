# SPDX-License-Identifier: BSD-3-Clause
"""torchft's Manager with ProcessGroupWinnow: replicas train, are killed, come back."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta

import harness


def train(replica, end, min_size, kind, way, *outputs):
    """One that says a line of JSON for each step."""
    import torch
    import torchft
    from torch.distributed import TCPStore
    from torchft.local_sgd import DiLoCo, LocalSGD

    import winnow.torchft

    for fd, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY), fd)
    torch.set_num_threads(1)
    torch.manual_seed(int.from_bytes(replica.encode(), "little") % 97)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    limit = timedelta(seconds=45)  # for a quorum, 20 may be too few on a busy machine
    if kind == "gloo":
        group = torchft.ProcessGroupGloo(timeout=limit)
    else:
        group = winnow.torchft.ProcessGroupWinnow(timeout=limit, silence_ms=2000)
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    manager = torchft.Manager(
        pg=group, min_replica_size=min_size, rank=0, world_size=1, replica_id=replica,
        store_addr="127.0.0.1", store_port=store.port, hostname="127.0.0.1", timeout=limit, quorum_timeout=limit,
        load_state_dict=lambda state: (model.load_state_dict(state["model"]), inner.load_state_dict(state["optimizer"])),
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        use_async_quorum=way != "diloco",
    )
    if way == "ddp":
        step_of, optimizer, trained = contextlib.nullcontext(), torchft.Optimizer(manager, inner), torchft.DistributedDataParallel(manager, model)
    else:  # four steps alone, then an exchange, which is the Manager's step
        optimizer, trained = inner, model
        outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        step_of = LocalSGD(manager, model, inner, 4) if way == "localsgd" else DiLoCo(manager, [model], inner, outer, 4)
    say = lambda **what: print(json.dumps(what), flush=True)
    lost = 0
    with step_of:
        while not end.exists() or manager.current_step() < int(end.read_text()):
            step = manager.current_step()
            draw = torch.Generator().manual_seed(1000 * step + ord(replica[-1]))
            x = torch.randn(16, 8, generator=draw)
            for _ in range(1 if way == "ddp" else 4):
                optimizer.zero_grad()
                loss = (trained(x) - x.sum(1, keepdim=True)).square().mean()
                loss.backward()
                optimizer.step()
            lost += manager.current_step() == step
            say(step=manager.current_step(), size=manager.num_participants(), at=time.monotonic(), lost=lost, loss=loss.item())
            if kind != "fast":
                time.sleep(0.05)
    say(done=[round(p.double().sum().item(), 9) for p in model.parameters()])
    manager.shutdown()
    group.shutdown()


LIGHTHOUSE = """
import sys
from torchft.coordination import LighthouseServer
server = LighthouseServer(
    bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=200, quorum_tick_ms=20, heartbeat_timeout_ms=int(sys.argv[1])
)
print(server.address(), flush=True)
sys.stdin.read()
"""


class Replica:
    def __init__(self, name, folder, min_size=2, kind="winnow", way="ddp"):
        self.name, self.file = name, folder / f"{name}-{time.monotonic()}.out"
        self.errors = self.file.with_suffix(".err")
        for file in (self.file, self.errors):
            file.touch()
        self.process = harness.program(train, name, folder / "end", min_size, kind, way, self.file, self.errors)

    def said(self):
        return [json.loads(line) for line in self.file.read_text().splitlines() if line.endswith("}")]

    def until(self, holds, seconds=60):
        end = time.monotonic() + seconds
        while not any(map(holds, self.said())):
            errors = self.errors.read_text()[-2000:]
            assert time.monotonic() < end, f"{self.name}: {self.said()[-3:]} {errors}"
            assert self.process.exitcode in (None, 0) or any(map(holds, self.said())), f"{self.name} has ended: {errors}"
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.join()
        return time.monotonic()


class Torchft(unittest.TestCase):
    heartbeat_ms = 3000  # after which a replica is dead; a machine may have no CPU for a live one for as long as a second

    def setUp(self):
        os.environ["WINNOW_JOB"] = harness.fresh_job()
        self.folder = tempfile.TemporaryDirectory()
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.lighthouse = subprocess.Popen([sys.executable, "-c", LIGHTHOUSE, str(self.heartbeat_ms)], text=True, **streams)
        os.environ.update(TORCHFT_LIGHTHOUSE=self.lighthouse.stdout.readline().strip(), OTEL_SDK_DISABLED="true")
        self.replicas = []

    def tearDown(self):
        for replica in self.replicas:
            replica.kill()
        self.lighthouse.kill()
        self.lighthouse.communicate()
        self.folder.cleanup()
        del os.environ["WINNOW_JOB"]

    def start(self, name, **options):
        self.replicas.append(Replica(name, pathlib.Path(self.folder.name), **options))
        return self.replicas[-1]

    def end_at(self, step):
        """All who train end after that many steps; it must be far enough ahead."""
        end = pathlib.Path(self.folder.name, "end")
        end.with_suffix(".new").write_text(str(step))
        end.with_suffix(".new").rename(end)

    def kill_and_return(self, way):
        """Two are left after the kill, then there are three again, and all end with the same parameters."""
        a, b, c = (self.start(name, way=way) for name in "abc")
        for replica in (a, b, c):
            replica.until(lambda line: line.get("size") == 3 and line["step"] >= 5)
        c.kill()
        for replica in (a, b):
            replica.until(lambda line: line.get("size") == 2)
        lost = a.said()[-1]["lost"]
        back = self.start("c", way=way)
        for replica in (a, b, back):
            replica.until(lambda line: "step" in line and line["size"] == 3 and line["lost"] >= (lost if replica is a else 0))
        self.end_at(back.said()[-1]["step"] + (100 if way == "ddp" else 40))
        for replica in (a, b, back):
            replica.until(lambda line: "done" in line, 90)
        ends = [replica.said()[-1]["done"] for replica in (a, b, back)]
        self.assertEqual(ends[0], ends[1])
        self.assertEqual(ends[0], ends[2])
        self.assertLessEqual(a.said()[-2]["lost"], 6)  # the death, and quorums that change meanwhile
        self.assertLess(a.said()[-2]["loss"], a.said()[0]["loss"] / 4)

    def test_kill_and_return(self):
        self.kill_and_return("ddp")

    def test_local_sgd(self):
        self.kill_and_return("localsgd")

    def test_diloco(self):
        self.kill_and_return("diloco")

    def test_freeze(self):
        a, b, c = (self.start(name) for name in "abc")
        for replica in (a, b, c):
            replica.until(lambda line: line.get("size") == 3 and line["step"] >= 5)
        os.kill(c.process.pid, signal.SIGSTOP)
        for replica in (a, b):
            replica.until(lambda line: line.get("size") == 2)
        os.kill(c.process.pid, signal.SIGCONT)
        at = a.said()[-1]["step"]
        for replica in (a, b, c):
            replica.until(lambda line: line.get("size") == 3 and line["step"] > at)
