# SPDX-License-Identifier: BSD-3-Clause
"""How programs end: the others learn at once whether that was a failure, whatever else still lives."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest

import harness
import numpy

import winnow
from winnow import _native

SILENCE_MS = 60000
SOON_SECONDS = 8  # with what a program takes to end; silence would take a minute

HEAD = """
import ctypes, os, sys, time, numpy, winnow
comm = winnow.Comm(job=sys.argv[1], rank=0, world=2, silence_ms=60000)
comm.allreduce(numpy.ones(1000))
"""

FORKS = """
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
"""


# A forked child's exit says nothing about its parent.
CHILD = """
child = os.fork()
if child == 0:
    sys.exit(3)
os.waitpid(child, 0)
sys.exit(4)
"""


class Ends(unittest.TestCase):
    def end_of(self, code, kill=False):
        """Rank 0 runs `code` after one operation; (its exit status, seconds until rank 1 knew, how)."""
        job = harness.fresh_job()
        # A session of its own: what it forks does not outlive the test.
        other = subprocess.Popen(
            [sys.executable, "-c", HEAD + code + "\nprint('there', flush=True)\ntime.sleep(60 if %r else 0)" % kill, job],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            comm = winnow.Comm(job=job, rank=1, world=2, silence_ms=SILENCE_MS)
            comm.allreduce(numpy.ones(1000))
            request = comm.allreduce_async(numpy.ones(1000))
            if kill:
                self.assertEqual(other.stdout.readline(), b"there\n")
                other.kill()
            begun = time.monotonic()
            status = other.wait(30)
            with self.assertRaises(winnow.WinnowError) as caught:
                request.wait(30)
            took = time.monotonic() - begun
            comm.close()
            return status, took, str(caught.exception)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(other.pid, signal.SIGKILL)
            other.stdout.close()

    def check(self, code, status, text, kill=False):
        found, took, why = self.end_of(code, kill)
        self.assertEqual(found, status)
        self.assertRegex(why, text)
        self.assertLess(took, SOON_SECONDS)

    def test_failures(self):
        aborted = "rank 0 .*aborted the job: "
        for code, status, text in (
            ("sys.exit(3)", 3, aborted + "it ended with exit status 3"),
            ("raise SystemExit('no more')", 1, "it ended with exit status 1"),
            ("import atexit; atexit.register(lambda: None); sys.exit(3)", 3, aborted + "it ended with exit status 3"),
            ("with comm: sys.exit(3)", 3, aborted + "SystemExit: 3"),
            ("raise ValueError('of no use')", 1, aborted + "ValueError: of no use"),
            (r"with comm: raise OSError('caf\udce9')", 1, aborted + r"OSError: caf\?"),  # of a file's name
            (CHILD, 4, aborted + "it ended with exit status 4"),
        ):
            with self.subTest(code=code):
                self.check(code, status, text)

    def test_killed_with_children(self):
        for code in (FORKS, FORKS.replace("    time", "    os.fork()\n    time")):
            self.check(code, -signal.SIGKILL, "rank 0 .* is lost: connection", kill=True)

    def test_success_leaves(self):
        """No failure of its own: the operation that the other began is."""
        for code in ("sys.exit(0)", "sys.exit()", "pass", "with comm: sys.exit(0)"):
            with self.subTest(code=code):
                job = harness.fresh_job()
                other = subprocess.Popen([sys.executable, "-c", HEAD + code, job])
                with winnow.Comm(job=job, rank=1, world=2, silence_ms=1000) as comm:
                    comm.allreduce(numpy.ones(1000))
                    self.assertEqual(other.wait(30), 0)
                    with self.assertRaisesRegex(winnow.WinnowError, "rank 0 .*has left the job"):
                        comm.allreduce(numpy.ones(1000))

    def test_a_child_joins(self):
        """A child has its own communicator, and that of its parent goes on beside it."""
        job, code = harness.fresh_job(), """
if os.fork() == 0:
    with winnow.Comm(job=sys.argv[1] + "-child", rank=0, world=1) as own:
        right = own.allreduce(numpy.ones(10))[0] == 1
    os._exit(0 if right else 1)
status = os.wait()[1]
comm.allreduce(numpy.ones(1000))
print(status, flush=True)
"""
        other = subprocess.Popen([sys.executable, "-c", HEAD + code, job], stdout=subprocess.PIPE, text=True)
        with winnow.Comm(job=job, rank=1, world=2) as comm:
            for _ in range(2):
                comm.allreduce(numpy.ones(1000))
        self.assertEqual(other.communicate(timeout=30)[0], "0\n")

    def test_forgotten(self):
        """Of an operation that is over, whether anybody has asked for it or not, nothing is aborted."""
        comms = harness.join(2)
        requests = [comm.allreduce_async(numpy.ones(1000)) for comm in comms]
        for request in requests:
            self.assertEqual(_native.lib.winnow_wait(request._handle, 20000, None), _native.OK)
        self.assertEqual(len(comms[0]._pending), 1)
        comms[0].close()
        with self.assertRaisesRegex(winnow.MembersChanged, "rank 0 .*has left"):
            comms[1].allreduce(numpy.ones(1000))
        comms[1].close()
