# SPDX-License-Identifier: BSD-3-Clause
"""key_memory.py PORT KEY_FILE WINNOWD_PID LOG - where processes have keys in their memory, during a job and after it
key_memory.py PID TEXT - fails if the process has the text in its memory

A worker of tests/protocol and one of libwinnow's are a job, so all keys of the job are known here: PROTOCOL.md 5.2. After the
job they are nowhere, and of the job's own key winnowd has what it needs for the next one.
"""
import json
import os
import re
import subprocess
import sys
import time

import numpy as np

from endpoint import Endpoint, drive
from seal import job_key

def memory(pid):
    """All that the process can write to, as one piece of bytes for each mapping."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            begin, end, mode, where = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)", line).groups()
            begin, end = int(begin, 16), int(end, 16)
            if "w" not in mode or end - begin > 1 << 30:
                continue
            try:
                mem.seek(begin)
                yield where or "anonymous", mem.read(end - begin)
            except OSError:
                pass  # a guard, a device


def found(pid, secrets):
    """How often each is there, and where."""
    places = {}
    for where, piece in memory(pid):
        for name, secret in secrets.items():
            count = len(re.findall(re.escape(secret), piece))
            if count:
                places.setdefault(name, []).append(f"{count} in {where}")
    return places


if len(sys.argv) == 3:
    sys.exit(str(found(sys.argv[1], {"text": sys.argv[2].encode()}) or "") or None)
port, key_file, daemon, log = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
key = open(key_file).read().split()[1]  # "* KEY" comes first
JOB = "memory"
LIBRARY = """
import json, sys
import numpy, winnow
comm = winnow.Comm(aggregators="127.0.0.1:%s", job="%s", rank=1, world=2, key_file=sys.argv[1])
request = comm.allreduce_async(numpy.ones(1000, numpy.float32), tag=1, block=256, wire="f32")
request.wait()
print("done", flush=True)
sys.stdin.readline()
comm.close()
del comm, request
print("closed", flush=True)
sys.stdin.readline()
""" % (port, JOB)


def until(holds, what, limit_s=20):
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(0.02)


def secrets_of(joining):
    keys = joining.keys
    seed = joining.welcome["seed"]
    made = {"stretch": keys.stretch[:64], "group": keys.group, "worker": keys.worker}
    return {"seed": bytes.fromhex(seed), "seed's text": seed.encode(), **made}


os.environ.update(OMP_NUM_THREADS="1")
library = subprocess.Popen([sys.executable, "-c", LIBRARY, key_file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
worker = Endpoint([("127.0.0.1", port)], JOB, 0, 2, key=key)
assert drive([worker], lambda: worker.worker or worker.failure, 20) and not worker.failure, worker.failure
secrets = {"text": key.encode(), "K": job_key(key), **secrets_of(worker.links[0].joining)}
operation = worker.submit(np.ones(1000, "f4"), dtype="f32", reduction=1, block_elems=256, form=0, tag=1)
assert drive([worker], lambda: operation.done or worker.failure, 20) and not worker.failure, worker.failure
assert library.stdout.readline() == "done\n"

# While it runs the keys are in use: this test sees where they are.
during = {"winnowd": found(daemon, secrets), "libwinnow": found(library.pid, secrets)}
for process, needed in (("winnowd", ("K", "stretch", "group", "worker")), ("libwinnow", ("K", "stretch", "group"))):
    missing = [name for name in needed if name not in during[process]]
    assert not missing, f"{process} runs the job without its keys {missing}: this test is blind"
    assert "text" not in during[process], f"during the job {process} has its text: {during[process]['text']}"

worker.leave()
library.stdin.write("\n")
library.stdin.flush()
assert library.stdout.readline() == "closed\n"
after = found(library.pid, secrets)
assert not after, f"libwinnow, after the job: {after}"
library.communicate("\n", timeout=20)

until(lambda: re.search(f"event=job_(finished|failed).* job={JOB}", open(log).read()), "the job's end in winnowd's log")
# What is left is the key of the next job, once.
after = found(daemon, secrets)
assert re.fullmatch(r"\['1 in .*'\]", str(after.pop("K", None))), f"winnowd's own key: {during}, {after}"
assert not after, f"winnowd, after the job: {after}"

# Another key takes its place.
with open(key_file, "w") as file:
    file.write("* " + os.urandom(32).hex() + "\n")
before = open(log).read().count("event=reloaded")
os.kill(daemon, 1)
until(lambda: open(log).read().count("event=reloaded") > before, "event=reloaded")
after = found(daemon, secrets)
assert not after, f"winnowd, after SIGHUP: {after}"
print(json.dumps(during))
