# SPDX-License-Identifier: BSD-3-Clause
"""torchft_deaths.py SECONDS - what a replica's death costs the others under torchft, over Winnow and over Gloo by turns

Three replicas of tests/python/test_newest_torchft.py on this machine, one killed at a random moment, and started again.
WINNOW_AGGREGATORS names a winnowd; run it with a Python that has torchft. A row for each death: a usual step; from the kill
to the later of the two others' next steps; steps that they repeated; their longest pause as it returns; steps repeated then.
"""

import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import test_newest_torchft  # noqa: E402

DEATHS = 4  # of one start of all three
KINDS = ("winnow", "gloo")


class Run(test_newest_torchft.Torchft):
    heartbeat_ms = 1000

    def runTest(self):
        pass


def wait_for(replicas, holds):
    for replica in replicas:
        replica.until(holds, 90)


def death(run, kind, draw):
    """One row; the last of the replicas is the one that is killed."""
    *others, last = run.replicas[:2] + run.replicas[-1:]
    wait_for((*others, last), lambda line: line.get("size") == 3)
    until = len(others[0].said()) + 30
    while len(others[0].said()) < until:
        time.sleep(0.05)
    time.sleep(draw.random() * 0.2)
    before = [replica.said() for replica in others]
    usual = statistics.median(y["at"] - x["at"] for said in before for x, y in zip(said[-25:], said[-24:]))
    killed = last.kill()
    wait_for(others, lambda line: line.get("size") == 2 and line["at"] > killed)
    time.sleep(1)
    took, lost = 0, 0
    for replica, said in zip(others, before):
        done = lambda line: line["at"] > killed and line["size"] == 2 and line["step"] > said[-1]["step"]
        first = next(filter(done, replica.said()))
        took, lost = max(took, first["at"] - killed), max(lost, first["lost"] - said[-1]["lost"])
    lost_before, begun = others[0].said()[-1]["lost"], time.monotonic()
    wait_for((run.start("c", kind=kind),), lambda line: line.get("size") == 3)
    time.sleep(1)
    later = [line for line in others[0].said() if line["at"] > begun]
    pause = max(y["at"] - x["at"] for x, y in zip(later, later[1:]))
    return usual, took, lost, pause, later[-1]["lost"] - lost_before


def deaths(kind, seed):
    """Rows, and whether a survivor has ended, too."""
    run, draw, rows = Run(), random.Random(seed), []
    run.setUp()
    try:
        for name in "abc":
            run.start(name, kind=kind)
        for _ in range(DEATHS):
            rows.append(death(run, kind, draw))
            print(kind, " ".join(f"{value:.3f}" for value in rows[-1]), flush=True)
    except AssertionError as error:
        if "has ended" not in str(error):
            raise
        print(kind, "a survivor has ended:", str(error).strip().splitlines()[-1], flush=True)
        return rows, True
    finally:
        run.tearDown()
    return rows, False


def main():
    until, seed, rows, ended = time.monotonic() + float(sys.argv[1]), 0, {kind: [] for kind in KINDS}, dict.fromkeys(KINDS, 0)
    while time.monotonic() < until:
        for kind in KINDS:
            found, over = deaths(kind, seed)
            rows[kind] += found
            ended[kind] += over
        seed += 1
    for kind in KINDS:
        columns = " ".join(f"{statistics.median(column):.3f} ({min(column):.3f} to {max(column):.3f})" for column in zip(*rows[kind]))
        print(f"{kind}: {len(rows[kind])} deaths, a survivor ended in {ended[kind]} more; medians {columns}")


if __name__ == "__main__":
    main()
