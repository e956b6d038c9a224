# SPDX-License-Identifier: BSD-3-Clause
"""One worker of tests/bench/models.sh: what compression and local steps do to five models of different kinds.

    models_bench.py RANK WORLD STORE RATE RESULTS    measures the rows of the plan that RESULTS lacks; rank 0 appends them
    models_bench.py missing WORLD RATE RESULTS       exit status 0 if there are such
    models_bench.py wanted WORLDS|RATES|MODELS       what the plan has of these
    models_bench.py table RESULTS                    what it says, as tables

What a step learns does not depend on the link, so losses, bytes and CPU time are measured where links are not shaped. The
time on a link is computed from these: CPU time of a step, and after that its bytes, in the direction that has more. Rows
that are timed over shaped links show how near that is. A row is a JSON line, written when all of it has been measured:
start again, and it goes on with the next one.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from models_plan import EVERY, SETTLED, WARM_UP, missing, wanted


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
            for part in ("first", "later"):
                row[part] = {name: max(one[part][name] for one in everyone) for name in everyone[0][part]}
            with open(path, "a") as file:
                print(json.dumps(row), file=file)
            what = f"{row['model']}, {world} workers, {row['way']}, seed {row['seed']}, links {rate}"
            found = f"held-out loss {row['losses'][-1]:.3f}" if row["losses"] else f"{1e3 * row['later']['clock']:.0f} ms a step"
            print(f"# {what}: {found}", file=sys.stderr, flush=True)
    dist.destroy_process_group()


class Meter:
    """Bytes of this worker's port, its CPU time, winnowd's and the clock's, without what is paused."""

    def __init__(self, rank):
        self.rank, self.away = rank, 0.0

    def read(self):
        from train_bench import interface_bytes

        sent, received = interface_bytes()
        return {
            "sent": sent,
            "received": received,
            "cpu": time.process_time() - self.away,
            "winnowd": daemon_seconds() if self.rank == 0 else 0,
            "clock": time.monotonic() - self.away,
        }


def daemon_seconds():
    """Of the CPU."""
    fields = pathlib.Path("/proc", os.environ["AGGREGATOR_PID"], "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def train(rank, world, row):
    """This worker's part of a row: losses on its part of what is held out; of a step, bytes, CPU time and seconds."""
    import numpy
    import torch
    import torch.distributed as dist

    import models_tasks
    from models_ways import Way

    torch.manual_seed(row["seed"])
    data = models_tasks.load(os.environ["MODELS_DATA"], row["model"])
    task = models_tasks.TASKS[row["model"]](data)
    held = task.held(data)[rank::world]
    way = Way(row["way"], task, row["steps"])
    draw, meter = numpy.random.default_rng([row["seed"], rank]), Meter(rank)
    losses, marks = [], {}
    for step in range(row["steps"] + 1):
        if step in (1, WARM_UP, SETTLED, row["steps"]):
            dist.barrier()
            marks[step] = meter.read()
        if step % EVERY == 0 and row["rate"] == "none":
            begun = time.process_time()
            losses.append(task.evaluate(held))
            meter.away += time.process_time() - begun
        if step < row["steps"]:
            way.step(task.batch(data, draw))
    way.close()
    a_step = lambda begin, end: {name: (marks[end][name] - marks[begin][name]) / (end - begin) for name in marks[end]}
    return {"losses": losses, "first": a_step(1, WARM_UP), "later": a_step(SETTLED, row["steps"])}


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    if verb == "missing":
        world, rate, path = arguments
        sys.exit(0 if missing(int(world), rate, path) else 1)
    elif verb == "wanted":
        print(*wanted(arguments[0]))
    elif verb == "table":
        import models_table

        models_table.show(arguments[0])
    else:
        worker(int(verb), int(arguments[0]), *arguments[1:])


if __name__ == "__main__":
    main()
