#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which lines of C do the tests execute? Runs suites on a build that counts, and prints a table by folder.

    coverage.py BUILD [END-TO-END TEST..]

The suites are the simulation, the unit tests, and these tests of tests/e2e, by name. Columns are percent of the lines that
have code: those that each suite executes, all together, and what no other suite does. BUILD/lines.txt then has every
line, with the letters of the suites that execute it (s, u, e). Failures are not told: that is what make check is for.
"""

import collections
import json
import pathlib
import subprocess
import sys

FOLDERS = "aggregator bitmap client ebpf kernels"
SIMULATION = ("1 100", "--members 1 60", "--deaths")


def run(*command):
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def simulate(build):
    for options in SIMULATION:
        run(f"{build}/tests/sim/sim", *options.split())


def test_units(build):
    run("tests/run.sh", str(build), "", "unit")


def test_ends(build):
    if sys.argv[2:]:
        run("tests/run.sh", str(build), "", "check", *sys.argv[2:])


def forget(build):
    for counts in build.rglob("*.gcda"):
        counts.unlink()


def executed(build):
    """{(file, line): is it executed} of all objects that have run; those that have not are known from other suites."""
    found = collections.defaultdict(bool)
    names = [str(path) for folder in FOLDERS.split() for path in (build / folder).rglob("*.gcno")]
    # Without counts gcov says that nothing was executed.
    told = subprocess.run(["gcov", "--json-format", "--stdout", *names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for text in told.stdout.splitlines():
        for file in json.loads(text)["files"]:
            if file["file"].split("/")[0] in FOLDERS.split():
                for line in file["lines"]:
                    found[file["file"], line["line_number"]] |= line["count"] > 0
    return found


def table(lines):
    """Rows of a table: what is counted is the letters of each line."""
    folders = collections.defaultdict(list)
    for (name, _), suites in lines.items():
        folders[str(pathlib.Path(name).parent)].append(suites)
        folders["all"].append(suites)
    yield f"{'folder':28}{'lines':>7}{'sim':>6}{'unit':>6}{'e2e':>6}{'all':>6}   alone: sim  unit   e2e"
    for folder, counted in sorted(folders.items(), key=lambda item: (item[0] == "all", item[0])):
        part = lambda of: 100 * sum(map(of, counted)) / len(counted)  # noqa: E731, B023
        each = "".join(f"{part(lambda suites, one=one: one in suites):6.0f}" for one in "sue")
        alone = "".join(f"{part(lambda suites, one=one: suites == one):6.0f}" for one in "sue")
        yield f"{folder:28}{len(counted):7}{each}{part(bool):6.0f}         {alone}"


def main():
    build = pathlib.Path(sys.argv[1])
    lines = collections.defaultdict(str)
    for letter, suite in (("s", simulate), ("u", test_units), ("e", test_ends)):
        forget(build)
        suite(build)
        for line, is_executed in executed(build).items():
            lines[line] += letter * is_executed
    (build / "lines.txt").write_text("".join(f"{name}:{line} {suites}\n" for (name, line), suites in sorted(lines.items())))
    print(*table(lines), sep="\n")


if __name__ == "__main__":
    main()
