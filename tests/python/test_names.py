# SPDX-License-Identifier: BSD-3-Clause
"""WINNOW_TRACE under the hook: winnow tune names the parameters, whatever buckets DDP puts them into."""

import json
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

import harness
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow import _names

STEPS = 4
ROW = 96


class Net(nn.Module):
    """Two layers of one size, tables with and without sparse gradients, and one that is not used."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(3000, 16, sparse=True)
        self.table = nn.EmbeddingBag(2000, 16, mode="sum")
        self.first = nn.Linear(16, 128)
        self.twins = nn.ModuleList(nn.Linear(128, 128) for _ in range(2))
        self.last = nn.Linear(128, 1)

    def forward(self, index):
        x = self.first(self.rows(index).sum(1) + self.table(index))
        x = self.twins[1](torch.relu(self.twins[0](x)))
        return self.last(x * (torch.arange(128) < 8))  # the other rows of the second twin get no gradient


def table():
    return nn.EmbeddingBag(4000, ROW, mode="sum")


def train(rank, world, job, folder, wrapped, model=Net):
    os.environ["WINNOW_TRACE"] = folder
    torch.manual_seed(1)
    draw = torch.Generator().manual_seed(rank)
    with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
        # Buckets of 64 KiB: a twin each, and the table alone.
        ddp = DistributedDataParallel(model(), bucket_cap_mb=1 / 16)
        if wrapped:
            state = winnow.torch.HookState(comm)
            state.name(ddp.module)
            ddp.register_comm_hook(state, lambda state, bucket: winnow.torch.hook(state, bucket))
        else:
            state = winnow.torch.attach(ddp, comm)
        for _ in range(STEPS):
            ddp(torch.randint(0, 2000, (4, 3), generator=draw)).sum().backward()
        state.close()
        said = comm.trace()
    return said, {name: list(p.shape) for name, p in ddp.module.named_parameters()}


def tune(folder, *options, status=0):
    command = [harness.BUILD / "winnow", "tune", folder, "--json", "--ops", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done
    return json.loads(done.stdout) if status == 0 else done.stderr


def shown(folder, *options):
    command = [harness.BUILD / "winnow", "tune", folder, "--ops", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Tune(unittest.TestCase):
    def check(self, folder, want):
        found = {p["name"]: p for p in tune(folder)["parameters"]}
        self.assertEqual(sorted(found), sorted(want))
        for name, shape in want.items():
            parameter = found[name]
            self.assertEqual(parameter["elements"], torch.Size(shape).numel(), name)
            self.assertEqual(parameter["operations"], STEPS, name)
            self.assertGreater(parameter["density"], 0)
        # Twelve indices a step and worker, of 2000 or 3000 rows; 8 of 128 rows.
        for name in ("rows.weight", "table.weight", "twins.1.weight"):
            self.assertLess(found[name]["density"], 0.15)
        for name in ("first.weight", "twins.0.weight"):
            self.assertGreater(found[name]["density"], 0.2)
        return found

    def test_names(self):
        for wrapped in (False, True):
            with self.subTest(wrapped=wrapped), tempfile.TemporaryDirectory() as folder, harness.Team(2) as team:
                results = team.run(train, harness.fresh_job(), folder, wrapped)
                for rank, (said, want) in enumerate(results):
                    self.assertRegex(said, rf"{folder}/.*\.{rank}\.trace")
                self.assertEqual(len(list(pathlib.Path(folder).glob("*.names"))), 1)
                self.check(folder, want)

    def test_threads(self):
        """Several threads complete operations: none loses what it has to say while another begins the file."""

        class Traced:
            rank = 0

            def __init__(self, path):
                self.path = path

            def trace(self):
                return self.path

        parameters = [nn.Parameter(torch.zeros(3))]
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(20):
                names, comm, start = _names.Names(), Traced(f"{folder}/{turn}.trace"), threading.Barrier(6)

                def note(tag):
                    start.wait()
                    names.note(comm, tag, parameters)

                threads = [threading.Thread(target=note, args=(tag,)) for tag in range(6)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                lines = [json.loads(line) for line in pathlib.Path(folder, f"{turn}.names").read_text().splitlines()]
                self.assertEqual(sorted(line["tag"] for line in lines if "tag" in line), list(range(6)))
                self.assertEqual([line["layout"] for line in lines], [0] * 7)
                self.assertIn("parameters", lines[0])

    def test_used(self):
        """Blocks are those of the parts; where tables are cut at rows nothing is to do."""
        with tempfile.TemporaryDirectory() as folder, harness.Team(2) as team:
            team.run(train, harness.fresh_job(), folder, False, table)
            got = tune(folder)
            job = got["traced_job"]
            self.assertEqual((job["block"], job["nothing_to_do"], got["best"]), (ROW, True, ROW))
            # Per step: the table; no other block is there.
            self.assertEqual(job["blocks"], [{"block": ROW, "operations": STEPS, "bytes": STEPS * 4000 * ROW * 4}])
            self.assertRegex(shown(folder, "--blocks", "4"), "Nothing to do: one takes .* and .* with block 4 for all")
            self.assertEqual(
                shown(folder).splitlines()[-1],
                f"The operations looked at have block {ROW}, cut at the rows of tables. Nothing to do: that is the best.",
            )

    def test_used_by_several(self):
        with tempfile.TemporaryDirectory() as folder, harness.Team(2) as team:
            team.run(train, harness.fresh_job(), folder, False)
            shares = tune(folder)["traced_job"]["blocks"]
            # Tables by their rows; layers and biases by the usual block, or by all that they are.
            self.assertEqual({share["block"] for share in shares}, {16, 256})
            self.assertEqual(shares, sorted(shares, key=lambda share: -share["bytes"]))
            self.assertRegex(shown(folder), r"\nThe operations looked at have blocks (16 and 256|256 and 16), cut at ")

    def test_files(self):
        """Without the file no names; one that is cut is good up to there; one that is damaged, a line."""
        with tempfile.TemporaryDirectory() as folder, harness.Team(2) as team:
            want = team.run(train, harness.fresh_job(), folder, False)[0][1]
            (path,) = pathlib.Path(folder).glob("*.names")
            whole = path.read_text()
            path.write_text(whole[:-9])
            self.assertEqual({p["name"] for p in tune(folder)["parameters"]}, set(want))
            names = pathlib.Path(folder, "own.json")
            names.write_text(json.dumps({"tensors": [{"count": 48000, "parameters": [
                {"name": "mine", "offset": 0, "shape": [3000, 16]}]}]}))
            self.assertEqual([p["name"] for p in tune(folder, "--names", names)["parameters"]], ["mine"])
            path.write_text(whole + "nonsense\n")
            self.assertRegex(tune(folder, status=1), "names: a line is no JSON; move it away, or say --names")
            path.write_text('{"tag": 7, "layout": 0}\n' + whole)
            self.assertRegex(tune(folder, status=1), "a layout that is not there")
            path.unlink()
            self.assertEqual(tune(folder)["parameters"], [])


if __name__ == "__main__":
    unittest.main()
