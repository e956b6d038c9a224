# SPDX-License-Identifier: BSD-3-Clause
"""lcore.py - the table of dpdk.sh's part_lcore: frames a CPU second of the polling thread, in rounds

    lcore.py RAW NAME..      RAW/lcore-NAME-ROUND.json are lines of dpdk_source; a testpmd is the base of what follows it
"""
import json
import pathlib
import statistics
import sys


def rounds(raw, name):
    files = sorted(raw.glob(f"lcore-{name}-[0-9]*.json"))
    return [json.loads(text) for text in (f.read_text() for f in files) if text.strip()]


def rate(one):
    """In and out, of the thread's CPU time: it polls, so that is nearly the time that has passed."""
    return (one["sent"] + one["received"]) / one["cpu"]


def main():
    raw, base = pathlib.Path(sys.argv[1]), None
    head = "", "rounds", "in M/s", "out M/s", "M frames a CPU s", "best", "x testpmd", "best", "ns a frame in", "best"
    print("{:26}{:>7}{:>9}{:>9}{:>18}{:>7}{:>11}{:>7}{:>15}{:>7}".format(*head))
    for name in sys.argv[2:]:
        runs = rounds(raw, name)
        if not runs:
            print(f"{name:26} failed")
            continue
        median, best = statistics.median(map(rate, runs)), max(map(rate, runs))
        costs = [r["cpu"] / r["sent"] * 1e9 for r in runs]
        if "testpmd" in name:
            base = median, best
        print(
            f"{name:26}{len(runs):7}{statistics.median(r['sent'] / r['seconds'] for r in runs) / 1e6:9.2f}"
            f"{statistics.median(r['received'] / r['seconds'] for r in runs) / 1e6:9.2f}{median / 1e6:18.2f}{best / 1e6:7.2f}"
            f"{median / base[0]:11.2f}{best / base[1]:7.2f}{statistics.median(costs):15.0f}{min(costs):7.0f}"
        )
        if any(r["wrong"] or r["lost"] for r in runs):
            print(f"  {sum(r['wrong'] for r in runs)} wrong, {sum(r['lost'] for r in runs)} lost")


if __name__ == "__main__":
    main()
