# SPDX-License-Identifier: BSD-3-Clause
"""For models_bench.py: what has been measured, as tables."""

import os
import statistics

from models_plan import EVERY, SETTLED, STEPS, WARM_UP, load, ways

RATES = {"10mbit": 1e7, "100mbit": 1e8, "1gbit": 1e9}
TARGET_AT = 0.7  # of its steps: the loss that dense Gloo has then is what all ways are to come to


def mean_of(rows, *names):
    """Of a field within a field, over rows."""
    found = []
    for row in rows:
        for name in names:
            row = row[name]
        found.append(row)
    return statistics.mean(found)


def steps_to(losses, target):
    """The first step at which a loss is reached, between two evaluations by their straight line; None: never."""
    for at, loss in enumerate(losses):
        if loss <= target:
            back = (target - loss) / (losses[at - 1] - loss) if at > 0 else 0
            return EVERY * (at - back)
    return None


class Findings:
    """Of one model and number of workers."""

    def __init__(self, rows, model, world):
        self.model, self.world, self.rows = model, world, {}
        for row in rows:
            if (row["model"], row["world"], row["rate"]) == (model, world, "none"):
                self.rows.setdefault(row["way"], []).append(row)
        self.dense = self.curve("gloo")
        self.seeds = len(self.rows.get("gloo", []))
        self.target = self.dense[round(TARGET_AT * STEPS[model] / EVERY)] if self.dense else None

    def curve(self, way):
        """The mean of all seeds; over Winnow whole gradients have Gloo's sums."""
        rows = self.rows.get("gloo" if way == "winnow" else way, [])
        return [statistics.mean(each) for each in zip(*(row["losses"] for row in rows))]

    def worse(self, way):
        """Its loss after equal steps, in per cent above dense Gloo's."""
        return 100 * (self.curve(way)[-1] / self.dense[-1] - 1)

    def a_step(self, way, part, bits):
        rows = self.rows[way]
        most = max(mean_of(rows, part, "sent"), mean_of(rows, part, "received"))
        return mean_of(rows, part, "cpu") + 8 * most / bits

    def seconds(self, way, steps, bits):
        first = min(steps, WARM_UP)
        return first * self.a_step(way, "first", bits) + (steps - first) * self.a_step(way, "later", bits)

    def sooner(self, way, bits):
        """How many times sooner than dense Gloo it is at the target; None: not in its steps."""
        needed, base = steps_to(self.curve(way), self.target), steps_to(self.dense, self.target)
        return None if needed is None else self.seconds("gloo", base, bits) / self.seconds(way, needed, bits)

    def loss(self, way):
        if way in ("gloo", "winnow"):
            return f"{self.curve(way)[-1]:.3f}"
        return f"{self.worse(way):+.1f} %"

    def speeds(self, way):
        """How many times sooner, on each link."""
        times = [self.sooner(way, bits) for bits in RATES.values()]
        return "-" if None in times else "; ".join(f"{each:.0f}" if each >= 9.95 else f"{each:.1f}" for each in times)

    def costs(self, way):
        rows = self.rows[way]
        sent, received = (mean_of(rows, "later", name) / 1e3 for name in ("sent", "received"))
        return f"{sent:.0f}, {received:.0f}; {1e3 * mean_of(rows, 'later', 'cpu'):.0f}"


def row_of(cells):
    print("| " + " | ".join(cells) + " |")


def head_of(cells):
    row_of(cells)
    print("|---" * len(cells) + "|")


def print_table(title, all_findings, cell):
    """Rows are ways, columns are models."""
    print(f"\n{title}\n")
    head_of(["way", *(f"{one.model}, {one.world} workers" for one in all_findings)])
    for way in ways():
        if any(way in one.rows for one in all_findings):
            row_of([way, *(cell(one, way) if way in one.rows else "" for one in all_findings)])


def print_checks(rows, all_findings):
    checks = [row for row in rows if row["rate"] != "none"]
    for row in checks:
        for one in all_findings:
            if (one.model, one.world) == (row["model"], row["world"]) and row["way"] in one.rows:
                computed = one.a_step(row["way"], "later", RATES[row["rate"]])
                print(
                    f"Timed over links of {row['rate']}: {row['model']}, {row['way']}: {1e3 * row['later']['clock']:.0f} ms a step; "
                    f"computed: {1e3 * computed:.0f} ms."
                )


def show(path):
    rows = load(path)
    pairs = dict.fromkeys((row["model"], row["world"]) for row in rows if row["way"] == "gloo" and row["rate"] == "none")
    all_findings = [Findings(rows, model, world) for model, world in sorted(pairs, key=lambda pair: (pair[1], list(STEPS).index(pair[0])))]
    if not all_findings:
        print("nothing has been measured")
        return
    seeds = sorted({one.seeds for one in all_findings})
    print(
        f"Five models, {' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])} each. One thread a worker, all workers on"
        f" {os.cpu_count()} CPUs, one aggregator, MTU {os.environ.get('MTU', 1500)}."
    )
    print_table(
        "Held-out loss after equal steps: of dense gradients, and by how much that of other ways is higher.", all_findings, Findings.loss
    )
    print_table(
        f"How many times sooner than dense Gloo a way has the loss that dense Gloo has after {TARGET_AT:.0%} of its steps, on links"
        f"\nof 10 Mbit/s, 100 Mbit/s and 1 Gbit/s, by CPU time and bytes; '-': not within all of its steps.",
        all_findings,
        Findings.speeds,
    )
    print_table(
        f"KB that a worker sends, receives in a step, and its CPU time in ms, after the first {SETTLED} steps.", all_findings, Findings.costs
    )
    print()
    print_checks(rows, all_findings)
