#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sweep.py BUILD FOLDER STEP KEYLESS - a job of two workers with a reconfiguration, again and again: each time the system refuses
one worker or winnowd another piece of memory, thread or descriptor, once alone and once with all after it. Of memory it refuses each
STEPth piece with a key, and each KEYLESSth without one; of the rest everything.

FOLDER has fail.so, of refuse.c, and a key. Every process ends in time, by its own will, and says why; no result is wrong.
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
WAITING = 12  # jobs at a time, where they mostly wait
REASON = {"memory": "", "threads": "Resource temporarily unavailable", "descriptors": "Too many open files"}  # which its line has if it fails
SETTINGS = {"WINNOW_SILENCE": "2s", "WINNOW_JOIN_TIMEOUT": "5s", "WINNOW_TIMEOUT": "6s", "WINNOW_JOB": "swept", "WINNOW_THREADS": "2"}


def run(kind, key, victim, at=None, count=None):
    """A job: what is wrong, or None; and has a process failed? `victim` is 0, a worker, or 2, winnowd."""
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    key_options = ["--key-file", key] if key else ["--insecure-no-key"]
    key_of = {"WINNOW_KEY_FILE": key} if key else {"WINNOW_INSECURE_NO_KEY": "1"}
    fail = {"LD_PRELOAD": f"{FOLDER}/fail.so", "FAIL_WHAT": kind} | ({"FAIL_AT": at} if at else {}) | ({"FAIL_COUNT": count} if count else {})
    environment = lambda number, more: os.environ | more | (fail if victim == number else {})
    start = lambda number, more, *command: subprocess.Popen(command, env=environment(number, more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    daemon = start(2, {}, f"{BUILD}/winnowd", "--listen", address, "--metrics", metrics, "--threads", "1", "--join-timeout", "4s", "--drain-timeout", "1s", *key_options)
    workers, said, wrong = [], [], None
    try:
        for rank in (0, 1):
            workers.append(start(rank, {**SETTINGS, **key_of, "WINNOW_AGGREGATORS": address, "RANK": str(rank), "WORLD_SIZE": "2"}, f"{BUILD}/tests/e2e/sweep"))
        until = time.monotonic() + LIMIT_S
        for process in workers:
            said.append(process.communicate(timeout=max(0.1, until - time.monotonic()))[1])
            if process.returncode not in (0, 1):
                wrong = f"a worker ends with {process.returncode}: {said[-1][-300:]}"
            elif process.returncode == 1 and not said[-1].strip():
                wrong = "a worker fails without a word"
            elif process.returncode == 1 and victim == 0 and len(said) == 1 and REASON[kind] not in said[0]:
                wrong = f"it does not say why: {said[0]}"
        daemon.terminate()
        said.append(daemon.communicate(timeout=10)[1])
        if daemon.returncode not in ((0, 1, 2) if victim == 2 else (0,)):
            wrong = f"winnowd ends with {daemon.returncode}: {said[-1][-500:]}"
        elif daemon.returncode != 0 and (not said[-1].strip() or REASON[kind] not in said[-1]):
            wrong = f"winnowd does not say why: {said[-1]}"
        if at is None and any(process.returncode for process in workers):
            wrong = f"without a fault: {said}"
    except subprocess.TimeoutExpired:
        wrong = f"a process hangs: {[p.poll() for p in workers]}, {daemon.poll()}; {said}"
    finally:
        for process in [*workers, daemon]:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return wrong, any(process.returncode for process in [*workers, daemon])


def sweep(pool, kind, secret, victim):
    """Faults, as many of them as end a process, and what is wrong."""
    counted = f"{FOLDER}/count"
    wrong, _ = run(kind, secret, victim, count=counted)
    if wrong:
        sys.exit(wrong)
    with open(counted) as file:
        total = int(file.read())
    step, begin = 1, 1
    if kind == "memory":
        step = STEP if secret else KEYLESS
        begin = max(1, total - BEHIND) + random.randrange(step)
    faults = [f"{n}{more}" for n in range(begin, total + 1, step) for more in ("", "+")]
    ended, bad = 0, []
    for at, (wrong, fails) in zip(faults, pool.map(lambda at: run(kind, secret, victim, at), faults)):
        ended += fails
        if wrong:
            bad.append(f"{'winnowd' if victim == 2 else 'worker 0'}, {'with' if secret else 'without'} a key, FAIL_WHAT={kind} FAIL_AT={at}: {wrong}")
    print(f"{'winnowd' if victim == 2 else 'worker'} {'with' if secret else 'without'} a key: {total} {kind}, {len(faults)} faults, of which {ended} end a process, {len(bad)} bad", flush=True)
    return len(faults), ended, bad


def main():
    for kind, at_a_time in (("memory", os.cpu_count()), ("threads", WAITING), ("descriptors", WAITING)):
        with ThreadPoolExecutor(at_a_time) as pool:
            done = [sweep(pool, kind, secret, victim) for secret in (f"{FOLDER}/key", None) for victim in (0, 2)]
        faults, ended, bad = sum(d[0] for d in done), sum(d[1] for d in done), [line for d in done for line in d[2]]
        print("\n".join(bad[:20]))
        print(f"{kind}: {faults} faults, of which {ended} end a process with a line, {len(bad)} bad")
        if ended < faults / 4:
            sys.exit(f"so few would not show that {kind} are refused at all")
        if bad:
            sys.exit(1)


if __name__ == "__main__":
    main()
