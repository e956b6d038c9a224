# SPDX-License-Identifier: BSD-3-Clause
"""Comm.reconfigure(): memberships that shrink, grow, split and merge, in threads of this process."""

import os
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import harness
import numpy

import winnow


def formed(comms, id, **options):
    harness.on_threads(len(comms), lambda rank: comms[rank].reconfigure(id, rank, len(comms), **options))


def summed(comms):
    """Of each one's number in the list, counted from 1."""
    want = sum(range(1, len(comms) + 1))
    for count in (3, 100000):  # in one datagram, and in many
        results = harness.on_threads(
            len(comms), lambda rank: comms[rank].allreduce(numpy.full(count, rank + 1.0, numpy.float32))
        )
        assert all((result == want).all() for result in results), (want, results)


VICTIM = """
import sys, time, winnow
comm = winnow.Comm(job=sys.argv[1], rank=1, world=4)
time.sleep(60)
"""


FROZEN = """
import os, signal, sys, numpy, winnow
comm = winnow.Comm(job=sys.argv[1], rank=1, world=2)
comm.allreduce(numpy.ones(3))
os.kill(os.getpid(), signal.SIGSTOP)
"""


class Members(harness.Case):
    def setUp(self):
        self.job = harness.fresh_job()
        self.comms = harness.join(4, job=self.job)

    def tearDown(self):
        for comm in self.comms:
            comm.close()

    def test_split_and_merge(self):
        halves = self.comms[:2], self.comms[2:]
        for turn in range(3):
            harness.on_threads(2, lambda i: (formed(halves[i], f"half{i}.{turn}"), summed(halves[i])))
            formed(self.comms, f"all_{turn}")
            summed(self.comms)

    def test_newcomer(self):
        job = harness.fresh_job()
        first = winnow.Comm(job=job, rank=0, world=1)
        both = [first, None]

        def come(rank):
            if rank == 0:
                first.reconfigure("2", 0, 2)
            else:
                both[1] = winnow.Comm(job=f"{job}/2", rank=1, world=2)

        with first:
            harness.on_threads(2, come)
            summed(both)
            formed(both, "3")
            summed(both)
            both[1].close()

    def test_used_twice(self):
        formed(self.comms, "once")
        for comm in self.comms:
            self.fails("INVALID", "already used", comm.reconfigure, "once", 0, 1)
        summed(self.comms)  # nothing was done
        with self.assertRaisesRegex(winnow.WinnowError, "is taken by|use another membership"):
            winnow.Comm(job=f"{self.job}/once", rank=0, world=4)

    def test_refused(self):
        comm = self.comms[0]
        for id, rank, world in (("", 0, 1), ("a b", 0, 1), ("a/b", 0, 1), ("x" * 65, 0, 1), ("r", 1, 1), ("w", 0, 0)):
            self.fails("INVALID", "", comm.reconfigure, id, rank, world)
        self.assertEqual(comm.memberships, 0)
        summed(self.comms)  # it has not gone anywhere
        comm.close()
        with unittest.mock.patch("threading.excepthook") as seen:  # nothing from the thread that calls the library
            self.fails("INVALID", "is closed", comm.reconfigure, "closed", 0, 1)
        seen.assert_not_called()

    def test_under_way(self):
        """What is under way fails on all, and those who wait learn it at once."""
        waiting = [comm.allreduce_async(numpy.ones(100000, numpy.float32)) for comm in self.comms[1:]]
        begun = time.monotonic()
        alone = threading.Thread(target=self.comms[0].reconfigure, args=("alone", 0, 1))
        alone.start()
        for request in waiting:
            self.fails("MEMBERS", r"rank 0 \(.*\) has ended the membership", request.wait, 20)
        self.assertLess(time.monotonic() - begun, 1)
        alone.join()
        summed(self.comms[:1])
        formed(self.comms[1:], "others")
        summed(self.comms[1:])

    def test_own_under_way(self):
        request, before = self.comms[0].allreduce_async(numpy.ones(10)), self.comms[0].stats()
        formed(self.comms, 1)
        self.fails("MEMBERS", "", request.wait, 5)
        summed(self.comms)
        after = self.comms[0].stats()  # counters go on
        self.assertGreaterEqual(after.sent_bytes, before.sent_bytes + 400000)
        self.assertEqual(after.payload, before.payload)

    def test_others_stay_away(self):
        begun = time.monotonic()
        self.fails("TIMEOUT", "", self.comms[0].reconfigure, "alone", 0, 2, timeout=0.5)
        self.assertLess(time.monotonic() - begun, 5)
        with self.assertRaises(winnow.WinnowError):
            self.comms[0].allreduce(numpy.ones(3))
        formed(self.comms, "together", timeout=20)
        summed(self.comms)
        self.comms[2].abort("no more of this")
        self.fails("ABORTED", "no more of this", self.comms[0].allreduce, numpy.ones(3))
        formed(self.comms, "again")
        summed(self.comms)

    def test_abort_meanwhile(self):
        """While the old membership ends, which takes its time: the other worker does not acknowledge the last operation."""
        job = harness.fresh_job()
        frozen = subprocess.Popen([sys.executable, "-c", FROZEN, job])
        try:
            with winnow.Comm(job=job, rank=0, world=2) as comm:
                comm.allreduce(numpy.ones(3))
                os.waitpid(frozen.pid, os.WUNTRACED)
                ender = threading.Timer(0.2, comm.abort)
                begun = time.monotonic()
                ender.start()
                self.fails("ABORTED", "", comm.reconfigure, "alone", 0, 2, timeout=10)
                self.assertLess(time.monotonic() - begun, 8)
                ender.join()
        finally:
            frozen.kill()
            frozen.wait()

    def test_by_itself(self):
        """The first aggregator says who is left: the others, in the order of their ranks."""
        self.fails("INVALID", "", self.comms[1].reconfigure)  # nobody is lost
        job = harness.fresh_job()
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, job])
        left = harness.on_threads(3, lambda i: winnow.Comm(job=job, rank=(0, 2, 3)[i], world=4))
        requests = [comm.allreduce_async(numpy.ones(1000)) for comm in left]
        victim.kill()
        victim.wait()
        for request in requests:
            self.fails("MEMBERS", "", request.wait, 10)
        harness.on_threads(3, lambda i: self.fails("MEMBERS", "3 workers are left, and 4 are wanted", left[i].reconfigure, world=4))
        harness.on_threads(3, lambda i: left[i].reconfigure(world=3))
        self.assertEqual([(comm.rank, comm.world) for comm in left], [(0, 3), (1, 3), (2, 3)])
        summed(left)
        back, came = [], 0
        thread = threading.Thread(
            target=lambda: back.append(winnow.Comm(job=job, newcomer=True, rank=1))
        )
        thread.start()
        while not came:
            came = harness.on_threads(3, lambda i: left[i].admit())[0]
        thread.join()
        self.assertEqual([(comm.rank, comm.world) for comm in left + back], [(0, 4), (2, 4), (3, 4), (1, 4)])
        summed(left + back)
        left[0].abort("that is no loss")
        self.fails("ABORTED", "", left[1].allreduce, numpy.ones(3))
        self.fails("LOST", "says who continues", left[1].reconfigure)
        for comm in left + back:
            comm.close()

    def test_admit(self):
        """Newcomers wait until the members let them in, as many as they want; then they are the last ones."""
        comms, new = self.comms[:2], []
        formed(comms, "two")

        def come():
            new.append(winnow.Comm(job=self.job, newcomer=True))

        self.assertEqual(harness.on_threads(2, lambda i: comms[i].admit()), [0, 0])
        threads = [threading.Thread(target=come) for _ in range(3)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 20
        came = 0
        while came < 3:
            came += harness.on_threads(len(comms), lambda i: comms[i].admit(2))[0]
            while len(new) < came and time.monotonic() < until:
                time.sleep(0.01)
            self.assertLess(time.monotonic(), until)
            if came > len(comms) - 2:
                comms = sorted(comms[:2] + new, key=lambda comm: comm.rank)
                self.assertEqual([(comm.rank, comm.world) for comm in comms], [(i, 2 + came) for i in range(2 + came)])
                summed(comms)
        self.assertEqual(harness.on_threads(5, lambda i: comms[i].admit()), [0] * 5)
        state = harness.on_threads(5, lambda i: comms[i].broadcast(numpy.full(7, i + 1.0)))
        self.assertTrue(all((each == 1).all() for each in state))
        for comm in new:
            comm.close()

    def test_found(self):
        """Workers that know no rank: one founds the job, whoever that is, and the others are newcomers, later as well."""
        with harness.Aggregator() as one, harness.Aggregator() as two:
            job = harness.fresh_job()
            setting = {"aggregators": f"{one.address},{two.address}", "job": job}
            comms, errors = [], []

            def come(delay):
                try:
                    time.sleep(delay)
                    comm = winnow.Comm.enter_or_found(found_after=0.5, **setting)
                    while comm.world < 4:
                        comm.admit()
                    comms.append(comm)
                except Exception as error:
                    errors.append(error)

            threads = [threading.Thread(target=come, args=(delay,)) for delay in (0, 0, 0, 2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [])
            comms.sort(key=lambda comm: comm.rank)
            self.assertEqual([(comm.rank, comm.world) for comm in comms], [(rank, 4) for rank in range(4)])
            summed(comms)
            with self.assertRaisesRegex(winnow.WinnowError, "newcomers wait until its members admit them"):
                winnow.Comm.enter_or_found(found_after=0.2, join_timeout_ms=1000, **setting)
            for comm in comms:
                comm.close()
            again = winnow.Comm.enter_or_found(found_after=0.2, **setting)
            self.assertEqual((again.rank, again.world), (0, 1))
            again.close()

    def test_not_admitted(self):
        for options, code, text in (
            ({"join_timeout_ms": 500, "job": self.job}, "TIMEOUT", "could not join within 0.5 s"),
            *[({"job": self.job + "/2"}, "REFUSED", "is a membership")] * 50,  # why, however soon it is asked
        ):
            begun = time.monotonic()
            self.fails(code, text, winnow.Comm, newcomer=True, **options)
            self.assertLess(time.monotonic() - begun, 5)
        summed(self.comms)
