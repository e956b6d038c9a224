# SPDX-License-Identifier: BSD-3-Clause
"""For models_bench.py: what is measured, and what has been."""

import json
import os
import pathlib

EVERY = 30  # steps from one evaluation to the next: whole periods of all local steps
WARM_UP = 20  # steps that are whole in all ways
SETTLED = 30  # steps after which bytes and CPU time are those of every later period
STEPS = {"code": 300, "letters": 240, "films": 360, "digits": 240, "manuals": 300}

WAYS = "gloo, winnow, powersgd 4, topk 0.01, topk 0.03, outer 10, outer 30, outer 30 topk:0.0156"
CHECKED = "gloo, outer 10, topk 0.01"  # of which steps are timed over shaped links
# PLAN=short is one model and one seed. Variables of these names overrule the plan's.
PLANS = {
    "short": {"WORLDS": "4", "RATES": "", "MODELS": "code", "SEEDS": "1"},
    "full": {"WORLDS": "4 8", "RATES": "10mbit 100mbit", "MODELS": "code letters films digits manuals", "SEEDS": "1 2 3"},
}
WITH_MANY = ("films", "digits")  # the models that more than 4 workers also train


def wanted(name):
    plan = PLANS[os.environ.get("PLAN", "full")]
    return os.environ.get(name, plan.get(name, "")).split()


def ways(name="WAYS"):
    return [way.strip() for way in os.environ.get(name, globals()[name]).split(",")]


def period(way):
    return int(way.split()[1]) if way.startswith("outer") else 1


def rows(world, rate):
    """The plan's at one number of workers and one rate. Losses are measured at "none", where no link is shaped."""
    if rate != "none":
        if world != 4:
            return []
        timed = [{"model": "code", "way": way, "seed": 1, "steps": SETTLED + max(10, 2 * period(way))} for way in ways("CHECKED")]
        return [{**row, "world": world, "rate": rate} for row in timed]
    found = []
    for seed in map(int, wanted("SEEDS")):
        for model in wanted("MODELS"):
            if world > 4 and model not in WITH_MANY:
                continue
            for way in ways():
                if way != "winnow":
                    found.append({"model": model, "way": way, "seed": seed, "steps": STEPS[model]})
                elif seed == 1:  # the same sums as Gloo's: bytes and time only
                    found.append({"model": model, "way": way, "seed": seed, "steps": SETTLED + 10})
    return [{**row, "world": world, "rate": rate} for row in found]


def load(path):
    path = pathlib.Path(path)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def missing(world, rate, path):
    done = load(path)
    return [row for row in rows(world, rate) if not any(row.items() <= found.items() for found in done)]
