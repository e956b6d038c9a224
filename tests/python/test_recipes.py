# SPDX-License-Identifier: BSD-3-Clause
# long: it computes
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
# To import PyTorch takes longer than most scripts do. So this is what starts, and each script runs in a process that is forked
# of it, once the one before has ended on all ranks.
ONE_BY_ONE = """
import os, sys, time, torch.distributed
import torch.nn.parallel
job, rank, world = os.environ["WINNOW_JOB"], os.environ["RANK"], int(os.environ["WORLD_SIZE"])
for number in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        os.environ["WINNOW_JOB"] = f"{job}-{number}"
        os.dup2(os.open(f"{number}.{rank}.out", os.O_WRONLY | os.O_CREAT), 1)
        exec(compile(open(f"{number}.py").read(), f"{number}.py", "exec"), {"__name__": "__main__"})
        sys.exit()
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(1)
    open(f"{number}.{rank}.over", "w").close()
    while sum(name.startswith(f"{number}.") and name.endswith(".over") for name in os.listdir()) < world:
        time.sleep(0.01)
"""
LIMIT_S = 400


def recipes():
    """By title: (chapter, what starts it, script)."""
    page, found = (harness.ROOT / "docs" / "recipes.md").read_text(), {}
    for chapter in re.split(r"^# ", page, flags=re.M)[2:]:
        for section in re.split(r"^## ", chapter, flags=re.M)[1:]:
            text, script, rest = re.split(r"^```(?:python)?\n", section, flags=re.M)
            assert not rest.strip(), section
            found[section.splitlines()[0]] = chapter.splitlines()[0], command(text), script
    return found


def command(text):
    """The line of the section without the script, or `winnow run`."""
    own = re.search(r"^    (.*)torchrun (.*) recipe.py$", text, flags=re.M)
    if own:
        return (*own[1].split(), sys.executable, "-m", "torch.distributed.run", *own[2].split())
    world = "4" if "-n 4" in text else "2"
    return (str(harness.BUILD / "winnow"), "run", "-n", world, "--", sys.executable)


def run(command, scripts, package):
    """Of each script: the lines that begin with "loss", of all ranks, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for number, script in enumerate(scripts):
            (folder / f"{number}.py").write_text(script)
        (folder / "recipe.py").write_text(ONE_BY_ONE)
        environment = {**os.environ, "PYTHONPATH": str(package), "WINNOW_JOB": harness.fresh_job(), "OMP_NUM_THREADS": "1"}
        alone = "torch.distributed.run" in command  # it starts scripts again that end too early
        result = subprocess.run(
            ["env", *command, *(["0.py"] if alone else ["recipe.py", *map(str, range(len(scripts)))])],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S * len(scripts), stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if result.returncode != 0:
            raise AssertionError(f"exit status {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}")
        said = [result.stdout] if alone else ["".join(file.read_text() for file in folder.glob(f"{n}.*.out")) for n in range(len(scripts))]
    return [sorted(re.findall(r"loss .*", text)) for text in said]


def over_gloo(command, script):
    with tempfile.TemporaryDirectory() as directory:
        package = pathlib.Path(directory) / "winnow"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "torch.py").write_text(GLOO)
        return run(command, [script], directory)[0]


def same(gloo, ours):
    """Of lines: each number differs by rounding at most."""
    if len(gloo) != len(ours) or len(gloo) < 2:
        return False
    numbers = ([float(number) for line in lines for number in re.findall(r"[\d.]+", line)] for lines in (gloo, ours))
    return all(abs(a - b) <= 2e-4 * abs(a) + 1e-5 for a, b in zip(*numbers, strict=True))


class Recipes(unittest.TestCase):
    def test_all(self):
        known = json.loads(LOSSES.read_text())
        chosen = {title: rest for title, (chapter, *rest) in recipes().items() if chapter in CHAPTERS}
        if RECORD:
            known.update({title: over_gloo(*recipe) for title, recipe in chosen.items()})
            LOSSES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        for command in dict.fromkeys(command for command, _ in chosen.values()):
            these = {title: script for title, (its, script) in chosen.items() if its == command}
            for title, ours in zip(these, run(command, these.values(), harness.PACKAGE)):
                with self.subTest(title):
                    want = known[title]
                    if not same(want, ours):
                        want = over_gloo(command, these[title])
                    self.assertTrue(same(want, ours), f"{ours}, and {want} over Gloo")
