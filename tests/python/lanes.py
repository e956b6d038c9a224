# SPDX-License-Identifier: BSD-3-Clause
"""lanes.py COUNT NAME..: runs modules of tests, COUNT at a time, each in a process of its own.

To import PyTorch takes longer than many a module does. So it is imported once, by multiprocessing's server, of which all
processes are forked: these, and the ranks that tests start. Modules whose second line begins with "# long" come first.
No test may be skipped: nobody would see it.
"""

import concurrent.futures
import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import sys
import tempfile
import time
import unittest

LAST_LINES = 40  # of a module that fails


def run(name, path):
    """In a process of its own."""
    # It knows the address of the server that it comes from, and would start another one.
    multiprocessing.forkserver._forkserver.ensure_running = lambda: None
    with open(path, "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    result = unittest.main(module=None, argv=["unittest", "-v", name], exit=False).result
    sys.exit(not result.wasSuccessful() or bool(result.skipped) or result.testsRun == 0)


def passes(name, folder):
    begun, path = time.monotonic(), pathlib.Path(folder, name)
    process = multiprocessing.get_context("forkserver").Process(target=run, args=(name, path))
    process.start()
    process.join()
    print(f"{time.monotonic() - begun:5.1f} s  {name}", flush=True)
    if process.exitcode != 0:
        print(f"FAILED: exit code {process.exitcode}", name, *path.read_text(errors="replace").splitlines()[-LAST_LINES:], sep="\n", flush=True)
    return process.exitcode == 0


def is_long(name):
    return pathlib.Path(f"{name}.py").read_text().splitlines()[1].startswith("# long")


if __name__ == "__main__":
    names = sorted(sys.argv[2:], key=is_long, reverse=True)
    multiprocessing.set_forkserver_preload(["harness", "numpy", "torch._dynamo", "winnow.torch"])
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(int(sys.argv[1])) as pool:
        sys.exit(not all([*pool.map(passes, names, [folder] * len(names))]))
