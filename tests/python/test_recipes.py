# SPDX-License-Identifier: BSD-3-Clause
"""docs/recipes.md: each script of the page runs over Winnow, and loses what it loses over Gloo.

What they lose over Gloo is in recipes.json, so that each runs once; if that differs, Gloo says what it is today, with
today's packages. RECORD=1 writes it anew.

RECIPES=a,b: of those chapters only (default: the first, which any torch can do).
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import harness

LOSSES = pathlib.Path(__file__).with_name("recipes.json")
RECORD = os.environ.get("RECORD") == "1"
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
    page = (harness.ROOT / "docs" / "recipes.md").read_text()
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


def over_gloo(text, script):
    with tempfile.TemporaryDirectory() as directory:
        package = pathlib.Path(directory) / "winnow"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "torch.py").write_text(GLOO)
        return run(text, script, directory, harness.fresh_job())


def record(title, lines):
    known = json.loads(LOSSES.read_text()) if LOSSES.exists() else {}
    LOSSES.write_text(json.dumps({**known, title: lines}, indent=1, sort_keys=True) + "\n")


def same(gloo, ours):
    """Of lines: each number differs by rounding at most."""
    if len(gloo) != len(ours) or len(gloo) < 2:
        return False
    numbers = ([float(number) for line in lines for number in re.findall(r"[\d.]+", line)] for lines in (gloo, ours))
    return all(abs(a - b) <= 2e-4 * abs(a) + 1e-5 for a, b in zip(*numbers, strict=True))


class Recipes(unittest.TestCase):
    def compare(self, title, text, script):
        if RECORD:
            record(title, over_gloo(text, script))
        want, ours = json.loads(LOSSES.read_text())[title], run(text, script, harness.PACKAGE, harness.fresh_job())
        if not same(want, ours):
            want = over_gloo(text, script)
            self.assertTrue(same(want, ours), f"{ours}, and {want} over Gloo")


def add(title, text, script):
    name = "test_" + re.sub(r"\W+", "_", title.lower())
    setattr(Recipes, name, lambda self: self.compare(title, text, script))


for chapter, title, text, script in recipes():
    if chapter in CHAPTERS:
        add(title, text, script)

if __name__ == "__main__":
    unittest.main()
