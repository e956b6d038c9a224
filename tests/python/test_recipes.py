# SPDX-License-Identifier: BSD-3-Clause
"""docs/RECIPES.md: each script of the page runs over Winnow, and loses what it loses over Gloo.

RECIPES=a,b: of those chapters only (default: the first, which any torch can do).
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import harness

CHAPTERS = os.environ.get("RECIPES", "With the hook").split(",")
# What the scripts import in place of Winnow, to have something to compare with.
GLOO = '''
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook as hook

def attach(ddp):
    pass

def HookState():
    return None

dist.Backend.register_backend("winnow", dist.ProcessGroupGloo)
'''
LIMIT_S = 400


def recipes():
    """(chapter, title, text, script)"""
    page = (harness.ROOT / "docs" / "RECIPES.md").read_text()
    for chapter in re.split(r"^# ", page, flags=re.M)[2:]:
        for section in re.split(r"^## ", chapter, flags=re.M)[1:]:
            text, script, rest = re.split(r"^```(?:python)?\n", section, flags=re.M)
            assert not rest.strip(), section
            yield chapter.splitlines()[0], section.splitlines()[0], text, script


def command(text):
    """What starts the script: the line of its section, or `winnow run`."""
    own = re.search(r"^    (.*)torchrun (.*)$", text, flags=re.M)
    if own:
        return [*own[1].split(), sys.executable, "-m", "torch.distributed.run", *own[2].split()]
    world = "4" if "-n 4" in text else "2"
    return [str(harness.BUILD / "winnow"), "run", "-n", world, "--", sys.executable, "recipe.py"]


def run(text, script, package, job):
    """The lines that begin with "loss", of all ranks, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "recipe.py").write_text(script)
        environment = {**os.environ, "PYTHONPATH": str(package), "WINNOW_INSECURE_NO_KEY": "1", "WINNOW_JOB": job}
        environment["OMP_NUM_THREADS"] = "1"
        result = subprocess.run(
            ["env", *command(text)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    if result.returncode != 0:
        raise AssertionError(f"exit status {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}")
    return sorted(re.findall(r"loss .*", result.stdout))


class Recipes(unittest.TestCase):
    def compare(self, text, script):
        with tempfile.TemporaryDirectory() as directory:
            package = pathlib.Path(directory) / "winnow"
            package.mkdir()
            (package / "__init__.py").write_text("")
            (package / "torch.py").write_text(GLOO)
            over_gloo = run(text, script, directory, harness.fresh_job())
        over_winnow = run(text, script, harness.PACKAGE, harness.fresh_job())
        self.assertGreater(len(over_gloo), 1)
        self.assertEqual(len(over_gloo), len(over_winnow))
        for gloo, ours in zip(over_gloo, over_winnow):
            gloo, ours = ([float(number) for number in re.findall(r"[\d.]+", line)] for line in (gloo, ours))
            for a, b in zip(gloo, ours):
                self.assertAlmostEqual(a, b, delta=2e-4 * abs(a) + 1e-5)


def add(title, text, script):
    name = "test_" + re.sub(r"\W+", "_", title.lower())
    setattr(Recipes, name, lambda self: self.compare(text, script))


for chapter, title, text, script in recipes():
    if chapter in CHAPTERS:
        add(title, text, script)

if __name__ == "__main__":
    unittest.main()
