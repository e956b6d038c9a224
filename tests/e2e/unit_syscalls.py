# SPDX-License-Identifier: BSD-3-Clause
"""unit_syscalls.py UNIT STRACE - what winnowd called, as strace saw it, is what the unit's SystemCallFilter allows"""
import re
import subprocess
import sys


def members(name, seen=()):
    """The system calls of a set such as @system-service, sets in sets opened."""
    if not name.startswith("@"):
        return {name}
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name], capture_output=True, text=True, check=True).stdout
    found = set()
    for line in text.splitlines()[1:]:
        word = line.strip()
        if word and not word.startswith("#") and word not in seen:
            found |= members(word, (*seen, name))
    return found


allowed = set()
for line in open(sys.argv[1]):
    if line.startswith("SystemCallFilter="):
        words = line.split("=", 1)[1].strip()
        names = set().union(*(members(word) for word in words.lstrip("~").split()))
        allowed = allowed - names if words.startswith("~") else allowed | names
called = {m[1] for m in re.finditer(r"^\d+ +(?:<\.\.\. )?([a-z_0-9]+)(?:\(| resumed)", open(sys.argv[2]).read(), re.M)}
assert len(called) > 20, called
denied = called - allowed - {"execve", "exit_group", "exit"}
if denied:
    sys.exit(f"{sys.argv[1]} denies: {', '.join(sorted(denied))}")
print(f"{len(called)} system calls, all allowed")
