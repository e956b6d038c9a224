# SPDX-License-Identifier: BSD-3-Clause
"""levels.py - what levels.sh has measured, in rows

    levels.py head
    levels.py rows PREFIX DENSITY LINE LINK OPERATIONS   of PREFIX-one-DENSITY, -unicast-, -two-: .json and .bytes
    levels.py peers PREFIX LINE                          of PREFIX-gloo-ring.json, -gloo-sites, -mpi
    levels.py small PREFIX                               latencies
"""
import json
import pathlib
import sys

SITES, EACH, MASK = 2, 4, (1 << 64) - 1
SEED = 1


def mixed(a, b):
    """pattern_hash() of client/cli/pattern.c."""
    z = (a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019) & MASK
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & MASK
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb & MASK
    return z ^ (z >> 31)


def blocks_of(rank, density, count):
    """The blocks that winnow bench draws for a worker, see pattern_bits()."""
    seed, wanted, drawn = mixed(SEED, rank + 1), round(density * count), set()
    for block in range(count):
        if (mixed(seed, block) >> 11) * 2.0 ** -53 * (count - block) < wanted - len(drawn):
            drawn.add(block)
    return drawn


def unions(run):
    """The shares of blocks that each site has, and that all have."""
    count = run["count"] // run["block"]
    of = [blocks_of(rank, run["density"], count) for rank in range(SITES * EACH)]
    sites = [set().union(*of[s * EACH:(s + 1) * EACH]) for s in range(SITES)]
    whole = len(set().union(*sites)) / count
    assert abs(whole - run["union"]) < 1e-9, (whole, run["union"])
    return [len(site) / count for site in sites], whole


def line_bytes(path, operations):
    """For each operation, up and down, of each site: [site][way]."""
    n = [int(word) for word in path.read_text().split()]
    before, between, after = (n[i * 2 * SITES:(i + 1) * 2 * SITES] for i in range(3))
    each = [((c - b) - (b - a)) / operations for a, b, c in zip(before, between, after)]
    return [each[2 * s:2 * s + 2] for s in range(SITES)]


HEAD = ("line", "density", "U of a site", "U", "levels", "up (unions)", "down (unions)", "bound (s)", "time (s)", "ratio", "wrong")
FORMAT = "| {:>12} | {:>7} | {:>11} | {:>5} | {:>13} | {:>11} | {:>13} | {:>9} | {:>8} | {:>5} | {:>5} |"
LEVELS = {"one": "1", "unicast": "1, unicast", "two": "2"}


def bytes_s(rate):
    """Of a rate such as 100mbit."""
    return float(rate[:-4]) * {"m": 1e6, "g": 1e9}[rate[-4]] / 8


def rows(prefix, density, line, link, operations):
    for way, name in LEVELS.items():
        path = pathlib.Path(f"{prefix}-{way}-{density}.json")
        if not path.exists():
            continue
        run = json.loads(path.read_text())
        sites, whole = unions(run)
        # With headers; the bound that it prints is that of its link.
        tensor = run["bound_us"] / 1e6 * bytes_s(link) / max(run["density"], run["union"])
        moved = line_bytes(path.with_suffix(".bytes"), int(operations))
        up = max(site[0] / tensor / union for site, union in zip(moved, sites))
        down = max(site[1] for site in moved) / tensor / whole
        bound = run["bound_us"] / 1e6
        rate, far = (line.split("/") + ["0"])[:2]
        if rate != "0":
            least = {"one": (EACH * run["density"], whole), "unicast": (EACH * run["density"], EACH * whole),
                     "two": (max(sites), whole)}[way]
            bound = max(bound, tensor * max(least) / bytes_s(rate))
        bound += float(far) / 1e3  # a sum cannot come back sooner
        time = run["time_us"]["median"] / 1e6
        print(FORMAT.format("no limit" if rate == "0" else line, density, f"{max(sites):.3f}", f"{whole:.3f}", name, f"{up:.3f}",
                            f"{down:.3f}", f"{bound:.3f}", f"{time:.3f}", f"{time / bound:.3f}", run["errors"]), flush=True)


def peers(prefix, line):
    for file, name in (("gloo-ring", "Gloo, ring"), ("gloo-sites", "Gloo, by site"), ("mpi", "MPI, ring")):
        run = json.loads(pathlib.Path(f"{prefix}-{file}.json").read_text())
        print(FORMAT.format(line, "1", "", "", name, "", "", "", f"{run['time_us'] / 1e6:.3f}", "", run["errors"]), flush=True)


def small(prefix):
    us = {name: json.load(open(f"{prefix}-{name}.json"))["time_us"]["median"] for name in ("one", "above", "below-0", "below-1", "two")}
    below = max(us["below-0"], us["below-1"])
    both = us["above"] + below
    print(f"\n4 KB, in us: one level {us['one']:.0f}, two levels {us['two']:.0f}. A job of each site's workers takes {below:.0f} "
          f"beside the other's, one of a worker beside each site's aggregator {us['above']:.0f}: two levels take {us['two'] / both:.2f} times both.")


if __name__ == "__main__":
    if sys.argv[1] == "head":
        print(FORMAT.format(*HEAD), "|" + "---|" * len(HEAD), sep="\n")
    else:
        {"rows": rows, "peers": peers, "small": small}[sys.argv[1]](*sys.argv[2:])
