# SPDX-License-Identifier: BSD-3-Clause
"""One worker of tests/bench/compress.sh: loss against time when gradients are dense and links are thin.

    compress_bench.py RANK WORLD STORE RATE RESULTS    measures the rows of the plan that RESULTS lacks; rank 0 appends them
    compress_bench.py missing WORLD RATE RESULTS       exit status 0 if there are such
    compress_bench.py wanted WORLDS|RATES|MODELS       what the plan has of these
    compress_bench.py table RESULTS                    what it says, as tables
    compress_bench.py plot RESULTS OUT.svg|OUT.png     held-out loss against time, for each rate (needs matplotlib)

A small GPT (or the demo's skip-gram) reads real text, the King James Bible by words; a recommender learns real ratings of
films. What a step learns does not depend on the link, and ways that exchange the same sums learn the same. So loss curves
are measured once, over links that are not shaped ("loss" rows, at RATE none), and the time of a step over few steps on
each shaped link ("time" rows). Time to a loss is the sum of its steps' times. A row is a JSON line, written when all of it
has been measured: start again, and it goes on with the next one.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HELD = 20  # each so manieth stretch of the text is for evaluation only
EVERY = 10  # steps from one evaluation to the next
WARM, TIMED = 3, int(os.environ.get("TIMED", 6))
LIMIT = "alone"  # the way that exchanges nothing

# What is measured: PLAN=short, in some 20 minutes on two CPUs, or full, in hours. Variables of these names overrule it.
PLANS = {
    "short": {"WORLDS": "4", "RATES": "10mbit 100mbit", "MODELS": "gpt", "SEEDS": "1", "STEPS": "400"},
    "full": {"WORLDS": "4 8", "RATES": "10mbit 100mbit 1gbit", "MODELS": "gpt skipgram recommender", "SEEDS": "1 2 3", "STEPS": "1000"},
}
# compress_ways.py says what they are. "winnow 0.01 20" takes 20 dense steps first.
WAYS = (
    "gloo, powersgd 4, allgather 0.01 20, winnow, winnow 0.01 20, winnow 0.03 20 bf16, sums 0.03 0.03 20 bf16, "
    "diloco 10 bf16, diloco 30 bf16, sparseloco 10 0.05 3 bf16"
)
LONGER = 1.5  # ways that send less than all take so many times the steps of dense Gloo, since they learn less in each


def wanted(name):
    plan = PLANS[os.environ.get("PLAN", "short")]
    return os.environ.get(name, plan.get(name, "")).split()


def ways():
    return [way.strip() for way in os.environ.get("WAYS", WAYS).split(",")]


def learns(way):
    """The way that has the same sums, or sums up to rounding: their losses are measured once."""
    if way == "winnow":
        return "gloo"
    return way.replace("allgather", "winnow")


def words(way):
    """Its kind, its numbers, and the numbers on the wire; None: as they are."""
    kind, *of = way.split()
    wire = of.pop() if of and of[-1][0].isalpha() else None
    return kind, [float(number) for number in of], wire


def dense_steps(way):
    """How many come first, and in which way."""
    kind, of, wire = words(way)
    at = {"winnow": 1, "allgather": 1, "sums": 2}.get(kind)
    if at is not None and len(of) > at:
        return int(of[at]), "gloo" if kind == "allgather" else f"winnow {wire or ''}".strip()
    return 0, None


def later(way):
    """What it is after its dense steps."""
    kind, of, wire = words(way)
    numbers = way.split()[1 : 1 + len(of) - 1]
    return " ".join(filter(None, (kind, *numbers, wire))) if dense_steps(way)[0] else way


def rows(world, rate):
    """The plan's rows at one number of workers and one rate; loss curves are at "none"."""
    steps, found = int(wanted("STEPS")[0]), []
    for model in wanted("MODELS"):
        if rate != "none":
            dense = (dense_steps(way)[1] for way in ways() if dense_steps(way)[0])
            for way in dict.fromkeys([*map(later, ways()), *dense]):
                found.append({"kind": "time", "way": way, "model": model, "seed": 1, "steps": timed_steps(way)})
            continue
        found.append({"kind": "time", "way": LIMIT, "model": model, "seed": 1, "steps": WARM + 5 * TIMED})
        for way in dict.fromkeys(map(learns, ways())):
            for seed in wanted("SEEDS"):
                long = steps if way == "gloo" else int(LONGER * steps)
                found.append({"kind": "loss", "way": way, "model": model, "seed": int(seed), "steps": long})
    return [{**row, "world": world, "rate": rate} for row in found]


def timed_steps(way):
    """Three to warm up, and some; with local steps, twice two exchanges."""
    period = local_steps(way)
    return WARM + TIMED if period == 1 else 4 * period


def local_steps(way):
    kind, of, _ = words(way)
    return int(of[0]) if kind in ("diloco", "sparseloco") else 1


def load(path):
    path = pathlib.Path(path)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def missing(world, rate, path):
    plan, done = rows(world, rate), load(path)
    return [row for row in plan if not any(row.items() <= found.items() for found in done)]


# ---- training: only where there are rows to measure, since torch and winnow are imported ----


def worker(rank, world, store, rate, path):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    plan = [missing(world, rate, path)]
    dist.broadcast_object_list(plan)
    for row in plan[0]:
        everyone = [None] * world
        dist.all_gather_object(everyone, train(rank, world, row))
        if rank == 0:
            row["losses"] = [statistics.mean(each) for each in zip(*(one["losses"] for one in everyone))]
            row["seconds"] = max(statistics.mean(one["seconds"]) for one in everyone)
            row["selection"] = max(statistics.mean(one["selection"]) for one in everyone)
            row["worker"] = [max(one["worker"][way] for one in everyone) for way in (0, 1)]
            row["aggregator"] = everyone[0]["aggregator"]
            with open(path, "a") as file:
                print(json.dumps(row), file=file)
            print(f"# {rate}: {row['model']}, {row['way']}: {1e3 * row['seconds']:.0f} ms a step", file=sys.stderr, flush=True)
    dist.destroy_process_group()


def train(rank, world, row):
    """This worker's part of a row: losses on held-out text; for each step that counts, seconds and those of selection;
    bytes out and in, of its port and the aggregator's, a step."""
    import torch
    import torch.distributed as dist
    from train_bench import interface_bytes

    import compress_ways

    torch.manual_seed(row["seed"])
    task = compress_ways.TASKS[row["model"]](row["seed"], rank)
    way = compress_ways.Way(row["way"], task)
    losses, times, selection = [], [], []
    counts = range(*counted(row))
    for step in range(row["steps"] + 1):
        if row["kind"] == "loss" and step % EVERY == 0:
            losses.append(task.evaluate(way.model))
        if step == counts.start:
            before = interface_bytes(), aggregator_bytes(rank)
        if step == row["steps"]:
            break
        batch = task.batch()
        dist.barrier()
        begun, selected = time.perf_counter(), way.selection()
        way.step(batch)
        dist.barrier()
        if step in counts:
            times.append(time.perf_counter() - begun)
            selection.append(way.selection() - selected)
    after = interface_bytes(), aggregator_bytes(rank)
    way.close()
    ports = [[(now - was) / len(counts) for now, was in zip(*port)] for port in zip(after, before)]
    return {"losses": losses, "seconds": times, "selection": selection, "worker": ports[0], "aggregator": ports[1]}


def counted(row):
    """The steps of a row of which the time counts: whole periods."""
    period = local_steps(row["way"])
    return (WARM if period == 1 else 2 * period, row["steps"])


def aggregator_bytes(rank):
    """Out and in; rank 0 asks."""
    where = os.environ.get("AGGREGATOR_NAMESPACE")
    if rank != 0 or where is None:
        return [0, 0]
    said = subprocess.run(["ip", "-n", where, "-j", "-s", "link", "show", "eth0"], capture_output=True, check=True)
    found = json.loads(said.stdout)[0]["stats64"]
    return [found["tx"]["bytes"], found["rx"]["bytes"]]


# ---- what has been measured ----


def first_below(losses, target):
    """Steps to a loss, between two evaluations by their straight line; None: never."""
    for at, loss in enumerate(losses):
        if loss <= target:
            back = (target - loss) / (losses[at - 1] - loss) if at > 0 else 0
            return EVERY * (at - back)
    return None


class Findings:
    """Of one model and number of workers."""

    def __init__(self, found, model, world):
        mine = [row for row in found if (row["model"], row["world"]) == (model, world)]
        self.model, self.world = model, world
        self.curves = {}  # by way: each seed's losses
        self.times = {}  # by way and rate
        self.alone = None
        for row in mine:
            if row["kind"] == "loss":
                self.curves.setdefault(row["way"], {})[row["seed"]] = row
            elif row["way"] == LIMIT:
                self.alone = row
            else:
                self.times[row["way"], row["rate"]] = row
        self.rates = list(dict.fromkeys(rate for _, rate in self.times))

    def curve(self, way):
        """The mean of the seeds that dense Gloo has, too; none: []."""
        mine = self.curves.get(learns(way), {})
        seeds = [row["losses"] for seed, row in mine.items() if seed in self.curves["gloo"]]
        return [statistics.mean(each) for each in zip(*seeds)]

    def seconds(self, way, rate, steps):
        """That so many steps take; None: not measured."""
        first, dense = dense_steps(way)
        first = min(first, steps)
        parts = [(first, dense), (steps - first, later(way))]
        if any(count > 0 and (way, rate) not in self.times for count, way in parts):
            return None
        return sum(count * self.times[way, rate]["seconds"] for count, way in parts if count > 0)

    def print(self):
        dense = self.curve("gloo")
        target, steps, seeds = dense[-1], EVERY * (len(dense) - 1), len(self.curves["gloo"])
        print(f"\n{self.model}, {self.world} workers, {seeds} seed{'s' * (seeds > 1)}.")
        print(f"Target: a held-out loss of {target:.3f}, dense Gloo's after {steps} steps.")
        if self.alone is not None:
            print(f"A step without any exchange takes {1e3 * self.alone['seconds']:.0f} ms.")
        print("For each link: ms a step (after the dense ones), seconds to the target, and how many times sooner than dense Gloo.")
        head = ["way", f"loss after {steps} steps", "loss in the end (steps)", "steps to the target", "selection, ms"]
        head += ["worker's port, KB out, in a step", "aggregator's", *self.rates]
        print("\n| " + " | ".join(head) + " |")
        print("|---" * len(head) + "|")
        for way in ways():
            if curve := self.curve(way):
                print("| " + " | ".join(self.cells(way, curve, len(dense) - 1, target)) + " |")

    def cells(self, way, curve, last, target):
        needed, links = first_below(curve, target), []
        sample = next((self.times[later(way), rate] for rate in self.rates if (later(way), rate) in self.times), None)
        for rate in self.rates:
            row, base = self.times.get((later(way), rate)), self.seconds("gloo", rate, EVERY * last)
            whole = None if needed is None else self.seconds(way, rate, needed)
            cell = f"{1e3 * row['seconds']:.0f}" if row else "-"
            links.append(cell if None in (whole, base) else f"{cell}; {whole:.0f}; {base / whole:.1f}")
        kilobytes = lambda pair: ", ".join(f"{value / 1e3:.0f}" for value in pair)
        return [
            way,
            f"{curve[min(last, len(curve) - 1)]:.3f}",
            f"{curve[-1]:.3f} ({EVERY * (len(curve) - 1)})",
            "-" if needed is None else f"{needed:.0f}",
            f"{1e3 * sample['selection']:.1f}" if sample else "",
            kilobytes(sample["worker"]) if sample else "",
            kilobytes(sample["aggregator"]) if sample else "",
            *links,
        ]


def findings(path):
    found = load(path)
    kinds = dict.fromkeys((row["model"], row["world"]) for row in found if row["kind"] == "loss" and row["way"] == "gloo")
    return [Findings(found, model, world) for model, world in kinds]


def plot(path, out):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    each = [(one, rate) for one in findings(path) for rate in one.rates]
    if not each:
        sys.exit(f"{path} has no times of a shaped link: nothing to draw")
    figure, axes = pyplot.subplots(1, len(each), figsize=(1 + 4.2 * len(each), 4.4), squeeze=False)
    for axis, (one, rate) in zip(axes[0], each):
        for way, colour in zip(ways(), pyplot.get_cmap("tab10").colors):
            curve = one.curve(way)
            seconds = [one.seconds(way, rate, max(EVERY * at, 1)) for at in range(len(curve))]
            if curve and None not in seconds:
                axis.plot(seconds, curve, color=colour, label=way, lw=1.3)
        axis.axhline(one.curve("gloo")[-1], color="#000000", ls=":", lw=0.8)
        axis.set_xscale("log")
        axis.set_title(f"{one.model}, {one.world} workers, {rate.replace('mbit', ' Mbit/s').replace('gbit', ' Gbit/s')}", fontsize=10)
        axis.set_xlabel("seconds of training")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("held-out loss")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3 * len(each), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.15, 1, 1))
    pyplot.rcParams["svg.hashsalt"] = "winnow"  # the same file from the same numbers
    figure.savefig(out, **({"metadata": {"Date": None}} if out.endswith("svg") else {"dpi": 120}))


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    if verb == "missing":
        world, rate, path = arguments
        sys.exit(0 if missing(int(world), rate, path) else 1)
    elif verb == "wanted":
        print(*wanted(arguments[0]))
    elif verb == "table":
        for one in findings(arguments[0]):
            one.print()
    elif verb == "plot":
        plot(*arguments)
    else:
        worker(int(verb), int(arguments[0]), *arguments[1:])


if __name__ == "__main__":
    main()
