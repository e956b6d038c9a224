#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sweep.py BUILD FOLDER STEP KEYLESS - a job of two workers that go on to another membership, again and again: each time the system
refuses one worker or winnowd another piece of memory, thread or descriptor, once alone and once with all after it. It refuses each
thread and each descriptor, but of memory only each STEPth piece with a key, and each KEYLESSth without one. In other jobs rank 1 dies,
and rank 0 goes on alone.

FOLDER has fail.so, of refuse.c, and a key. Every process ends in time, by its own will, and says why; no result is wrong. A thread or a
descriptor that is refused once does not keep rank 0 from going on alone. (A worker that runs out of memory may end the job.)
"""
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from ports import free_port  # noqa: E402

BUILD, FOLDER, STEP, KEYLESS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
LIMIT_S = 25
BEHIND = 2000  # pieces; those before them are for OpenSSL's tables, and end a process at once
AT_A_TIME = 12  # jobs, which mostly wait
JOBS = (("moves", 0), ("moves", 2), ("dies", 0))  # and whom the system refuses something: 0 is a worker, 2 is winnowd
REASON = {"memory": "", "threads": "Resource temporarily unavailable", "descriptors": "Too many open files"}  # what its line says if it fails
SETTINGS = {"WINNOW_SILENCE": "2s", "WINNOW_JOIN_TIMEOUT": "5s", "WINNOW_TIMEOUT": "6s", "WINNOW_JOB": "swept", "WINNOW_THREADS": "2"}


def run(kind, key, job, at=None, count=None):
    """One of the JOBS: what is wrong, or ""; and has a process failed?"""
    how, victim = job
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    key_options = ["--key-file", key] if key else ["--insecure-no-key"]
    key_of = {"WINNOW_KEY_FILE": key} if key else {"WINNOW_INSECURE_NO_KEY": "1"}
    fail = {"LD_PRELOAD": f"{FOLDER}/fail.so", "FAIL_WHAT": kind} | ({"FAIL_AT": at} if at else {}) | ({"FAIL_COUNT": count} if count else {})
    environment = lambda number, more: os.environ | more | (fail if victim == number else {})
    start = lambda number, more, *command: subprocess.Popen(command, env=environment(number, more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    daemon = start(2, {}, f"{BUILD}/winnowd", "--listen", address, "--metrics", metrics, "--threads", "1", "--join-timeout", "4s", "--drain-timeout", "1s", *key_options)
    workers, said, wrong = [], [], []
    try:
        for rank in (0, 1):
            workers.append(start(rank, {**SETTINGS, **key_of, "WINNOW_AGGREGATORS": address, "RANK": str(rank), "WORLD_SIZE": "2"}, f"{BUILD}/tests/e2e/sweep", how))
        until = time.monotonic() + LIMIT_S
        for process in workers:
            said.append(process.communicate(timeout=max(0.1, until - time.monotonic()))[1])
            if process.returncode not in (0, 1):
                wrong.append(f"a worker ends with {process.returncode}: {said[-1][-300:]}")
            elif process.returncode == 1 and not said[-1].strip():
                wrong.append("a worker fails without a word")
            elif process.returncode == 1 and victim == 0 and len(said) == 1 and REASON[kind] not in said[0]:
                wrong.append(f"it does not say why: {said[0]}")
            elif how == "dies" and kind != "memory" and "+" not in (at or "") and "reconfigure:" in said[-1]:
                wrong.append(f"it does not go on at the second try: {said[-1]}")
        daemon.terminate()
        said.append(daemon.communicate(timeout=10)[1])
        if daemon.returncode not in ((0, 1, 2) if victim == 2 else (0,)):
            wrong.append(f"winnowd ends with {daemon.returncode}: {said[-1][-500:]}")
        elif daemon.returncode != 0 and (not said[-1].strip() or REASON[kind] not in said[-1]):
            wrong.append(f"winnowd does not say why: {said[-1]}")
        if at is None and any(process.returncode for process in workers):
            wrong.append(f"without a fault: {said}")
    except subprocess.TimeoutExpired:
        wrong.append(f"a process hangs: {[p.poll() for p in workers]}, {daemon.poll()}; {said}")
    finally:
        for process in [*workers, daemon]:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return "; ".join(wrong), any(process.returncode for process in [*workers, daemon])


def sweep(pool, kind, secret, job):
    """Faults, as many of them as end a process, and what is wrong."""
    counted = f"{FOLDER}/count"
    wrong, _ = run(kind, secret, job, count=counted)
    if wrong:
        sys.exit(wrong)
    with open(counted) as file:
        total = int(file.read())
    step, begin = 1, 1
    if kind == "memory":
        step = STEP if secret else KEYLESS
        begin = max(1, total - BEHIND) + random.randrange(step)
    faults = [f"{n}{more}" for n in range(begin, total + 1, step) for more in ("", "+")]
    what = f"{job[0]}, {'winnowd' if job[1] == 2 else 'worker'} {'with' if secret else 'without'} a key"
    ended, bad = 0, []
    for at, (wrong, fails) in zip(faults, pool.map(lambda at: run(kind, secret, job, at), faults)):
        ended += fails
        if wrong:
            bad.append(f"{what}, FAIL_WHAT={kind} FAIL_AT={at}: {wrong}")
    print(f"{what}: {total} {kind}, {len(faults)} faults, of which {ended} end a process, {len(bad)} bad", flush=True)
    return len(faults), ended, bad


def main():
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for kind in REASON:
            done = [sweep(pool, kind, secret, job) for job in JOBS for secret in (f"{FOLDER}/key", None)]
            faults, ended, bad = sum(d[0] for d in done), sum(d[1] for d in done), [line for d in done for line in d[2]]
            print("\n".join(bad[:20]))
            print(f"{kind}: {faults} faults, of which {ended} end a process with a line, {len(bad)} bad", flush=True)
            if ended < faults / 4:
                sys.exit(f"so few would not show that {kind} are refused at all")
            if bad:
                sys.exit(1)


if __name__ == "__main__":
    main()
