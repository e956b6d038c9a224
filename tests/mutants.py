#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which faults do the tests see? Draws faults, and puts one after the other into a copy of the sources.

    mutants.py N SEED FILE..

The seed draws N lines of these C files and changes each by one operator: a condition is negated, a statement is left
out, a number is one off, < becomes <=, and so on. The unit tests whose names begin like the file run first, then the
simulation, then all other unit tests, until one fails or does not end in time. A fault that none sees is printed. Many
of these are no faults (two ways to say the same), so read them: what a user would mind lacks a test.
A draw depends on the seed and the files alone, so the same draw can judge tests before and after a change.
"""

import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys

HOME = pathlib.Path(__file__).resolve().parent.parent
TREE = HOME / "build" / "mutants"
MEMORY = 8 << 30  # of a test that a fault has made greedy
SIMULATION = (("sim 1 60", 200), ("sim --members 1 60", 200), ("sim --deaths", 300))

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
    "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "|=": "&=", "&": "|", "|": "&",
}  # fmt: skip
OPERATOR = re.compile(r"(?<= )(<<|>>|<=|>=|==|!=|&&|\|\||[+*/|-]=|[-+*/%<>&|])(?= )")
CONDITION = re.compile(r"^(\s*(?:\} else )?(?:if|while) )\((.*)\)( \{)?$")
STATEMENT = re.compile(r"^(\t+)(?!return\b|break\b|continue\b|goto\b|case\b|default\b|assert\b|struct\b|enum\b|const\b|static\b)[\w*(+-].*;$")
RETURN = {"true": "false", "false": "true", "0": "1"}
NUMBER = re.compile(r"(?<![\w.\"%])(\d+)(?![\w.\"])")


def changes_of(line, before):
    """All lines that one operator makes of this one; `before` is the code before it."""
    found = CONDITION.match(line)
    if found and found[2].count("(") == found[2].count(")"):
        yield f"{found[1]}(!({found[2]})){found[3] or ''}"
    found = STATEMENT.match(line)
    if found and before.endswith((";", "{", "}", ":", "else")) and line.count("(") == line.count(")"):
        yield found[1] + ";"
    found = re.match(r"^(\s*return )(true|false|0);$", line)
    if found:
        yield f"{found[1]}{RETURN[found[2]]};"
    for found in OPERATOR.finditer(line):
        yield line[: found.start()] + SWAPS.get(found[0], found[0]) + line[found.end() :]
    for found in NUMBER.finditer(line):
        yield line[: found.start()] + str(int(found[0]) + 1) + line[found.end() :]


def faults_of(name):
    """[(line's index, lines it may become)] of the bodies of a file's functions."""
    inside, before = False, ""
    for index, line in enumerate((HOME / name).read_text().split("\n")):
        code = line.strip()
        inside = (inside or line == "{") and line != "}"
        if not inside or not code or code.startswith(("/*", "*", "//", "#")) or "assert(" in code or '"' in code:
            continue
        made = [change for change in changes_of(line, before) if change != line]
        if made:
            yield index, made
        before = code


def copy_tree():
    """What git knows or does not ignore; times stay, so that make builds what has changed alone."""
    TREE.mkdir(parents=True, exist_ok=True)
    for entry in TREE.iterdir():
        if entry.name != "build":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=HOME, capture_output=True, check=True).stdout
    made = subprocess.run(["tar", "c", "--null", "-T", "-", "--ignore-failed-read"], cwd=HOME, input=names, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    subprocess.run(["tar", "x"], cwd=TREE, input=made.stdout, check=True)


def ends_well(command, seconds):
    """Does it, within its time and memory?"""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # noqa: E731
    process = subprocess.Popen(command, cwd=TREE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=limit, start_new_session=True)
    try:
        return process.wait(seconds) in (0, 77)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


def build(*goals):
    return subprocess.run(["make", "-s", "-j2", "CFLAGS=-O1", *goals], cwd=TREE, capture_output=True).returncode == 0


def units_of(name):
    """The programs of unit tests: those that begin like the file, and all others."""
    names = sorted(path.stem for path in (TREE / "tests" / "unit").glob("test_*.c"))
    word = pathlib.Path(name).stem.split("_")[0]
    near = [each for each in names if each.split("_")[1] == word]
    return near, [each for each in names if each not in near]


def seen_by(name):
    """The test that fails; None: none does; "": the fault does not compile."""
    if not build(f"build/{name[:-2]}.o"):
        return ""
    near, others = units_of(name)
    programs = lambda names: [(f"tests/unit/{each}", 120) for each in names]  # noqa: E731
    for tests in (programs(near), [(f"tests/sim/{run}", seconds) for run, seconds in SIMULATION], programs(others)):
        if not build(*sorted({f"build/{test.split()[0]}" for test, _ in tests})):
            return "the linker"
        for test, seconds in tests:
            if not ends_well(["build/" + test.split()[0], *test.split()[1:]], seconds):
                return test.rpartition("/")[2]
    return None


def judge(name, index, change):
    """Prints what becomes of a fault, and says it: as seen_by()."""
    path = TREE / name
    original = path.read_text()
    lines = original.split("\n")
    was, lines[index] = lines[index].strip(), change
    path.write_text("\n".join(lines))
    seen = seen_by(name)
    path.write_text(original)
    (TREE / "build" / name).with_suffix(".o").unlink(missing_ok=True)  # the next copy's times are older
    if seen != "":
        verdict = f"seen by {seen}" if seen else "SURVIVES"
        print(f"{name}:{index + 1}: {verdict}\n    {was}\n    {change.strip()}", flush=True)
    return seen


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    count, draw, names = int(sys.argv[1]), random.Random(int(sys.argv[2])), sys.argv[3:]
    places = [(name, *fault) for name in names for fault in faults_of(name)]
    draw.shuffle(places)
    copy_tree()
    print("building all tests without a fault", flush=True)
    if not build("check-programs"):
        sys.exit("the sources do not build")
    survivors = judged = 0
    for name, index, made in places:
        if judged == count:
            break
        seen = judge(name, index, draw.choice(made))
        judged += seen != ""
        survivors += seen is None
    print(f"seed {sys.argv[2]}: {judged} faults, {survivors} of them survive")


main()
