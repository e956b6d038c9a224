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


class Members(unittest.TestCase):
    def setUp(self):
        self.job = harness.fresh_job()
        self.comms = harness.join(4, job=self.job)

    def tearDown(self):
        for comm in self.comms:
            comm.close()

    def test_shrink_and_grow(self):
        comms = self.comms
        summed(comms)
        for id, members in enumerate((comms[:3], [comms[2], comms[0]], comms[1:2], comms, comms[::-1])):
            formed(members, id)
            summed(members)
            self.assertEqual([(comm.rank, comm.world) for comm in members], [(i, len(members)) for i in range(len(members))])

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
            with self.assertRaises(winnow.WinnowError) as caught:
                comm.reconfigure("once", 0, 1)
            self.assertIn("already used", str(caught.exception))
        summed(self.comms)  # nothing was done
        with self.assertRaises(winnow.WinnowError) as caught:
            winnow.Comm(job=f"{self.job}/once", rank=0, world=4)
        self.assertRegex(str(caught.exception), "is taken by|use another membership")

    def test_refused(self):
        comm = self.comms[0]
        for id, rank, world in (("", 0, 1), ("a b", 0, 1), ("a/b", 0, 1), ("x" * 65, 0, 1), ("r", 1, 1), ("w", 0, 0)):
            with self.assertRaises(winnow.WinnowError) as caught:
                comm.reconfigure(id, rank, world)
            self.assertEqual(caught.exception.code, winnow.WinnowError.INVALID)
        self.assertEqual(comm.memberships, 0)
        summed(self.comms)  # it has not gone anywhere

    def test_closed(self):
        """One line, and nothing from the thread that calls the library."""
        self.comms[0].close()
        seen = []
        with unittest.mock.patch("threading.excepthook", seen.append):
            with self.assertRaisesRegex(winnow.WinnowError, "is closed"):
                self.comms[0].reconfigure("closed", 0, 1)
        self.assertEqual(seen, [])

    def test_under_way(self):
        """What is under way fails on all, and those who wait learn it at once."""
        waiting = [comm.allreduce_async(numpy.ones(100000, numpy.float32)) for comm in self.comms[1:]]
        begun = time.monotonic()
        alone = threading.Thread(target=self.comms[0].reconfigure, args=("alone", 0, 1))
        alone.start()
        for request in waiting:
            with self.assertRaises(winnow.MembersChanged) as caught:
                request.wait(20)
            self.assertRegex(str(caught.exception), r"rank 0 \(.*\) has ended the membership")
        self.assertLess(time.monotonic() - begun, 1)
        alone.join()
        summed(self.comms[:1])
        formed(self.comms[1:], "others")
        summed(self.comms[1:])

    def test_own_under_way(self):
        request = self.comms[0].allreduce_async(numpy.ones(10))
        formed(self.comms, 1)
        with self.assertRaises(winnow.MembersChanged):
            request.wait(5)
        summed(self.comms)

    def test_others_stay_away(self):
        begun = time.monotonic()
        with self.assertRaises(winnow.WinnowError) as caught:
            self.comms[0].reconfigure("alone", 0, 2, timeout=0.5)
        self.assertEqual(caught.exception.code, winnow.WinnowError.TIMEOUT)
        self.assertLess(time.monotonic() - begun, 5)
        with self.assertRaises(winnow.WinnowError):
            self.comms[0].allreduce(numpy.ones(3))
        formed(self.comms, "together", timeout=20)
        summed(self.comms)

    def test_after_abort(self):
        self.comms[2].abort("no more of this")
        with self.assertRaises(winnow.WinnowError):
            self.comms[0].allreduce(numpy.ones(3))
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
                with self.assertRaises(winnow.WinnowError) as caught:
                    comm.reconfigure("alone", 0, 2, timeout=10)
                self.assertEqual(caught.exception.code, winnow.WinnowError.ABORTED)
                self.assertLess(time.monotonic() - begun, 8)
                ender.join()
        finally:
            frozen.kill()
            frozen.wait()

    def test_by_itself(self):
        """The first aggregator says who is left: the others, in the order of their ranks."""
        with self.assertRaises(winnow.WinnowError) as caught:
            self.comms[1].reconfigure()  # nobody is lost
        self.assertEqual(caught.exception.code, winnow.WinnowError.INVALID)
        job = harness.fresh_job()
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, job])
        left = harness.on_threads(3, lambda i: winnow.Comm(job=job, rank=(0, 2, 3)[i], world=4))
        requests = [comm.allreduce_async(numpy.ones(1000)) for comm in left]
        victim.kill()
        victim.wait()
        for request in requests:
            with self.assertRaises(winnow.MembersChanged):
                request.wait(10)

        def too_few(i):
            with self.assertRaises(winnow.MembersChanged) as caught:
                left[i].reconfigure(world=4)
            self.assertIn("3 workers are left, and 4 are wanted", str(caught.exception))

        harness.on_threads(3, too_few)
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
        with self.assertRaises(winnow.WinnowError):
            left[1].allreduce(numpy.ones(3))
        with self.assertRaises(winnow.WinnowError) as caught:
            left[1].reconfigure()
        self.assertEqual(caught.exception.code, winnow.WinnowError.LOST)
        self.assertIn("says who continues", str(caught.exception))
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
            with self.assertRaises(winnow.WinnowError) as caught:
                winnow.Comm.enter_or_found(found_after=0.2, join_timeout_ms=1000, **setting)
            self.assertIn("newcomers wait until its members admit them", str(caught.exception))
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
            with self.assertRaises(winnow.WinnowError) as caught:
                winnow.Comm(newcomer=True, **options)
            self.assertEqual(caught.exception.code, getattr(winnow.WinnowError, code), str(caught.exception))
            self.assertRegex(str(caught.exception), text)
            self.assertLess(time.monotonic() - begun, 5)
        summed(self.comms)

    def test_counters_go_on(self):
        summed(self.comms)
        before = self.comms[0].stats()
        formed(self.comms, "counted")
        summed(self.comms)
        after = self.comms[0].stats()
        self.assertGreaterEqual(after.sent_bytes, before.sent_bytes + 400000)
        self.assertEqual(after.payload, before.payload)

    def test_many(self):
        """Nothing grows: the aggregator has room for few jobs at a time."""
        for turn in range(40):
            formed(self.comms, f"turn{turn}")
            summed(self.comms)
