# SPDX-License-Identifier: BSD-3-Clause
"""What is refused, and that the message says what to do instead."""

import importlib.util
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import harness
import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow import _member


class Arguments(harness.Refuses, unittest.TestCase):
    def test_numpy(self):
        self.refused([1.0, 2.0], "numpy.asarray(data, dtype=numpy.float32)")
        self.refused(numpy.ones(4, numpy.uint8), "data.astype(numpy.int32)")
        self.refused(numpy.ones(4, bool), "data.astype(numpy.int32)")
        self.refused(numpy.ones(4, numpy.uint64), "data.astype(numpy.int64)")
        self.refused(numpy.ones(4, numpy.longdouble), "data.astype(numpy.float64)")
        self.refused(numpy.ones(4, numpy.complex64), "data.view(numpy.float32)")
        self.refused(numpy.ones((4, 4))[:, 1], "numpy.ascontiguousarray(data)")
        self.refused(numpy.ones(4, ">f4"), 'data.astype(data.dtype.newbyteorder("="))')
        fixed = numpy.ones(4)
        fixed.flags.writeable = False
        self.refused(fixed, "out=numpy.empty_like(data)")

    def test_torch(self):
        self.refused(torch.ones(4, 4).t()[1:], "data.contiguous()")
        self.refused(torch.ones(4, dtype=torch.bool), "data.to(torch.int32)")
        self.refused(torch.ones(4, dtype=torch.complex64), "torch.view_as_real(data)")
        self.refused(torch.ones(4).to_sparse(), "data.to_dense()")
        self.refused(torch.ones(4, device="meta"), "data.cpu()")

    def test_the_fixes_work(self):
        self.comm.allreduce(numpy.asarray([1.0, 2.0], dtype=numpy.float32))
        self.comm.allreduce(numpy.ones(4, numpy.complex64).view(numpy.float32))
        data = numpy.ones(4, ">f4")
        self.comm.allreduce(data.astype(data.dtype.newbyteorder("=")))
        self.comm.allreduce(torch.ones(4).to_sparse().to_dense())
        self.comm.allreduce(torch.view_as_real(torch.ones(4, dtype=torch.complex64)))

    def test_out(self):
        self.refused(numpy.ones(4), "out=numpy.empty_like(data)", out=numpy.ones(5))
        self.refused(numpy.ones(4), "out=numpy.empty_like(data)", out=numpy.ones(4, numpy.float32))
        both = numpy.ones(8)
        with self.assertRaisesRegex(winnow.WinnowError, "the buffers overlap") as caught:
            self.comm.allreduce(both[:6], out=both[2:])
        self.assertEqual(caught.exception.code, winnow.WinnowError.INVALID)

    def test_values(self):
        data = numpy.ones(4)
        self.refused(data, "want one of sum, avg, min, max, prod", op="mean")
        self.refused(data, "want one of auto, native, f32, fixed32", wire="f16")
        self.refused(data, "tag is -1: want 0 to 9223372036854775807", tag=-1)
        self.refused(data, "block is 70000: want 0 to 65536", block=70000)


class Joining(unittest.TestCase):
    def test_settings(self):
        for settings, text in (
            ({"rank": -1}, "rank is -1"),
            ({"rank": 2**32}, "rank is 4294967296"),
            ({"wire": "f16"}, "wire is 'f16'"),
            ({"network": 1}, "network is 1: want one of shared, private"),
            ({"rank": 3, "world": 2}, "rank is 3: want 0 to 1, below world"),
            ({"world": 0}, "world is 0"),
            ({"job": "a b"}, "job name 'a b'"),
            ({"key": "k" * 20, "insecure_no_key": True}, "insecure_no_key contradicts a key"),
        ):
            with self.subTest(**settings), self.assertRaisesRegex((ValueError, RuntimeError), text):
                winnow.Comm(**settings)

    def test_names(self):
        self.assertEqual([_member.configure({"network": name}).network for name in ("shared", "private")], [0, 1])

    def test_unknown_settings(self):
        for name in ("colour", "give_up"):
            with self.assertRaisesRegex(TypeError, rf"Comm\(\) has no argument '{name}'"):
                winnow.Comm(**{name: 1})
        self.assertLessEqual({"job", "network", "newcomer"}, set(inspect.signature(winnow.Comm).parameters))
        for kind in (winnow.Comm, winnow.Node):
            self.assertNotIn("_", inspect.getdoc(kind.__init__).replace("join_timeout_ms", ""), "help() shows names of our own")

    def test_environment(self):
        for name, value, text in (
            ("WINNOW_INSECURE_NO_KEY", "false", "no job key"),
            ("WINNOW_INSECURE_NO_KEY", "nein", "WINNOW_INSECURE_NO_KEY is 'nein': want yes or no"),
            ("WINNOW_BLOCK", "1k", "WINNOW_BLOCK is '1k': want a whole number"),
        ):
            with mock.patch.dict(os.environ, {name: value}), self.assertRaisesRegex(winnow.WinnowError, text):
                winnow.Comm(rank=0, world=1, job=harness.fresh_job())
        for value, means in (("no", False), ("off", False), ("", False), ("yes", True), ("1", True)):
            with mock.patch.dict(os.environ, WINNOW_NODE=value):
                self.assertIs(_member.flag_of("WINNOW_NODE"), means)
        with mock.patch.dict(os.environ, WINNOW_NODE="maybe"), self.assertRaisesRegex(ValueError, "WINNOW_NODE"):
            _member.flag_of("WINNOW_NODE")

    def test_what_is_read_first(self):
        """Python's words, and one place of ours before them."""
        script = "import winnow; winnow.Comm(rank=0, world=1)"
        kept = {name: value for name, value in os.environ.items() if "KEY" not in name}
        result = subprocess.run([sys.executable, "-c", script], env=kept, capture_output=True, text=True)
        lines = result.stderr.strip().splitlines()
        self.assertRegex(lines[-1], "^winnow.WinnowError: no job key: set WINNOW_KEY.*WINNOW_INSECURE_NO_KEY=1$")
        self.assertEqual(sum("client/python" in line for line in lines), 1, lines)


class Library(unittest.TestCase):
    def start(self, package=harness.PACKAGE, **environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WINNOW_")}
        kept.update(environment, PYTHONPATH=str(package), LD_LIBRARY_PATH="")
        command = [sys.executable, "-c", "import winnow; print(winnow.library_path)"]
        return subprocess.run(command, env=kept, capture_output=True, text=True, cwd="/")

    def fails(self, text, **arguments):
        result = self.start(**arguments)
        self.assertEqual(result.returncode, 1)
        self.assertIn("ImportError: ", result.stderr)
        self.assertIn(text, result.stderr.strip().splitlines()[-1])

    def test_named(self):
        path = str(harness.BUILD / "libwinnow.so")
        self.assertEqual(self.start(WINNOW_LIBRARY=path).stdout.strip(), path)
        self.fails("cannot load libwinnow from /nowhere.so", WINNOW_LIBRARY="/nowhere.so")
        self.fails("it has no winnow_config_init()", WINNOW_LIBRARY="libc.so.6")

    def test_beside_and_missing(self):
        with tempfile.TemporaryDirectory() as directory:
            copy = pathlib.Path(directory) / "winnow"
            shutil.copytree(harness.PACKAGE / "winnow", copy)
            if self.start(package=directory).returncode != 0:  # else one is installed here
                self.fails("build it with `make`", package=directory)
            shutil.copy(harness.BUILD / "libwinnow.so", copy)
            self.assertEqual(self.start(package=directory).stdout.strip(), str(copy / "libwinnow.so"))

    def test_imports_neither_torch_nor_numpy(self):
        script = "import sys, winnow; print({'torch', 'numpy'} & set(sys.modules))"
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(result.stdout.strip(), "set()")


class Attaching(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        dist.init_process_group("gloo", init_method=f"file://{cls.directory.name}/s", rank=0, world_size=1)
        (cls.comm,) = harness.join(1)

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()
        dist.destroy_process_group()
        cls.directory.cleanup()

    def refused(self, model, text, comm=None):
        with self.assertRaisesRegex(ValueError, text):
            winnow.torch.attach(DistributedDataParallel(model), comm or self.comm)

    def test_other_world(self):
        comms = harness.join(2)
        self.refused(nn.Linear(2, 2), "has 2 workers, but DDP has 1", comms[0])
        harness.on_threads(2, lambda rank: comms[rank].close())

    def test_second_hook(self):
        """Of one model: DDP takes one only, and no job is left behind."""
        ddp = DistributedDataParallel(nn.Linear(2, 2))
        winnow.torch.attach(ddp, self.comm)
        with mock.patch.object(winnow.torch.HookState, "open") as joined, self.assertRaisesRegex(RuntimeError, "call attach.. only once"):
            winnow.torch.attach(ddp)
        joined.assert_not_called()

    def test_arguments(self):
        """At once, in one line, and no job is joined."""
        ddp = DistributedDataParallel(nn.Linear(2, 2))
        for arguments, text in (
            ({"wire": "fp16"}, "wire is 'fp16': want one of auto, native"),
            ({"wire": "bfloat16"}, "wire is 'bfloat16': want one of"),
            ({"block": -1}, "block is -1: want 0 to 65536"),
            ({"block": 65537}, "block is 65537: want 0 to 65536"),
            ({"way": "rows"}, "way is 'rows': want \"auto\" or None"),
            ({"compress": "top:0.1"}, 'compress is .top:0.1.: want "topk:0.01"'),
            ({"check_nan": "no"}, "check_nan is 'no': want True or False"),
            ({"node": 2}, "node is 2: want True or False"),
            ({"elastic": "yes"}, "elastic is 'yes': want True or False"),
            ({"comm": "10.0.0.1:5555"}, "comm is a str: want a winnow.Comm, a winnow.Node or None"),
        ):
            for more in ({}, {"elastic": True}):
                with self.subTest(**arguments), mock.patch.object(winnow.Comm, "__init__") as joined:
                    with self.assertRaisesRegex((ValueError, TypeError), text) as caught:
                        winnow.torch.attach(ddp, **{**more, **arguments})
                    self.assertNotIn("\n", str(caught.exception))
                    joined.assert_not_called()
        with self.assertRaisesRegex(ValueError, "wire is 'fp16'"):
            winnow.torch.HookState(wire="fp16")

    def test_other_hook(self):
        """Of another kind, registered before."""
        for elastic in (False, True):
            ddp = DistributedDataParallel(nn.Linear(2, 2))
            ddp.register_comm_hook(None, default_hooks.allreduce_hook)
            with self.assertRaisesRegex(RuntimeError, "already has a communication hook.*leave register_comm_hook.. out"):
                winnow.torch.attach(ddp, self.comm, elastic=elastic)

    def test_not_ddp(self):
        with self.assertRaisesRegex(TypeError, "this is Linear: wrap it first, ddp = DistributedDataParallel"):
            winnow.torch.attach(nn.Linear(2, 2), self.comm)

    def test_integer_gradient(self):
        state = winnow.torch.HookState(self.comm)
        with self.assertRaisesRegex(RuntimeError, "averages need a floating-point type"):
            state.reduce(torch.ones(4, dtype=torch.int64)).wait()
        self.assertIsInstance(state.error, TypeError)
        state.close()

    def test_device(self):
        ddp = mock.Mock(spec=DistributedDataParallel, module=nn.Linear(2, 2, device="meta"), process_group=dist.group.WORLD)
        with self.assertRaisesRegex(ValueError, "parameter weight is on meta: the hook only takes gradients on the CPU or"):
            winnow.torch.attach(ddp, self.comm)


def attached(rank, world, job, order, ranks_with_comm):
    """What attach() says on each rank of two models of one shape, in an order; a program's own communicator on some."""
    torch.manual_seed(7)
    models = [DistributedDataParallel(nn.Linear(2, 2)) for _ in range(2)]
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        own = comm if rank in ranks_with_comm else None
        return [harness.error_of(winnow.torch.attach, models[number], own) for number in order[rank]]


def differing(rank, world, job):
    """With arguments that have to be the same on all ranks."""
    attach = lambda **arguments: winnow.torch.attach(DistributedDataParallel(nn.Linear(2, 2)), **(arguments if rank == 0 else {}))
    return [harness.error_of(attach, wire="bf16"), harness.error_of(attach, block=64), harness.error_of(attach, way="auto")]


class Attached(harness.TeamCase):
    def test_in_another_order(self):
        found = self.team.run(attached, harness.fresh_job(), ((0, 1), (1, 0)), (0, 1))
        for rank, said in enumerate(found):
            for text in said:
                self.assertRegex(text, f"^parameter weight has other values on rank {1 - rank} than on this one: .*same order")

    def test_other_arguments(self):
        values = ("wire", ("'bf16'", "None")), ("block", ("64", "0")), ("way", ("'auto'", "None"))
        for rank, said in enumerate(self.team.run(differing, harness.fresh_job())):
            for text, (name, mine) in zip(said, values):
                other = 1 - rank
                self.assertEqual(text, f"{name} is {mine[rank]} on this rank, but {mine[other]} on rank {other}: want the same on all")

    def test_to_another_communicator(self):
        """Neither joins a job that the other is not in."""
        (mine,), (other,) = self.team.run(attached, harness.fresh_job(), ((0,), (0,)), (0,))
        self.assertEqual(mine, "comm is the program's, with 0 hooks already on this rank, but one of its own on rank 1: want the same on all")
        self.assertIn("want the same on all", other)


class Package(unittest.TestCase):
    def test_wheel(self):
        """`pip install client/python` makes a pure wheel with the right name."""
        for module in ("pip", "setuptools", "wheel"):
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"{sys.executable} has no {module}")
        with tempfile.TemporaryDirectory() as directory:
            source = shutil.copytree(harness.PACKAGE, pathlib.Path(directory) / "source")
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
            target = pathlib.Path(directory) / "target"
            environment = {**os.environ, "HOMEPAGE": "https://winnow.invalid/"}
            subprocess.run([*command, "--target", target, source], check=True, capture_output=True, env=environment)
            metadata = target / "winnow_allreduce-0.1.0.dist-info"
            self.assertIn("Tag: py3-none-any", (metadata / "WHEEL").read_text())
            said = (metadata / "METADATA").read_text()
            for line in ("Name: winnow-allreduce", "License: BSD-3-Clause", "Project-URL: Homepage, https://winnow.invalid/"):
                self.assertIn(f"\n{line}\n", said)
            self.assertIn("# Winnow for Python", said)
            files = sorted(path.name for path in (target / "winnow").glob("*.py"))
            self.assertEqual(files, sorted(path.name for path in (harness.PACKAGE / "winnow").glob("*.py")))
