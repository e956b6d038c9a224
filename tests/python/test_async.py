# SPDX-License-Identifier: BSD-3-Clause
"""Operations under way: several at a time, in any order, given up, closed beneath."""

import gc
import os
import pickle
import statistics
import threading
import time
import weakref

import harness
import numpy

import winnow

WORLD = 3


class Async(harness.Case):
    def setUp(self):
        self.comms = harness.join(WORLD)

    def tearDown(self):
        harness.on_threads(WORLD, lambda rank: self.comms[rank].close())

    def test_tags_in_any_order(self):
        count = 40  # more than an aggregator's operation slots
        orders = [numpy.random.default_rng(rank).permutation(count) + 1 for rank in range(WORLD)]

        def work(rank):
            comm = self.comms[rank]
            arrays = {int(t): numpy.full(1000 * int(t), float(t) * (rank + 1)) for t in orders[rank]}
            requests = {tag: comm.allreduce_async(array, tag=tag) for tag, array in arrays.items()}
            for tag in reversed(requests):
                self.assertTrue((requests[tag].wait() == tag * 6).all())

        harness.on_threads(WORLD, work)

    def test_by_order(self):
        def work(rank):
            sent = [numpy.full(100, float(index)) for index in range(20)]
            requests = [self.comms[rank].allreduce_async(array) for array in sent]
            return [request.wait()[0] for request in requests]

        want = [index * WORLD for index in range(20)]
        self.assertEqual(harness.on_threads(WORLD, work), [want] * WORLD)

    def test_priority(self):
        """The last one submitted, with the highest priority, overtakes what is under way: most of that is over later."""
        sizes = 8 * [1 << 20] + [1 << 17]
        count, comms = len(sizes), harness.join(WORLD, block=64)

        def work(rank, priorities):
            """How many are over before the last one is."""
            arrays = [numpy.full(size, rank + 1, numpy.float32) for size in sizes]
            requests = [comms[rank].allreduce_async(a, priority=p) for a, p in zip(arrays, priorities)]
            self.assertTrue((requests[-1].wait()[::4096] == 6).all())
            over = sum(request.test() for request in requests[:-1])
            self.assertTrue(all((request.wait()[::4096] == 6).all() for request in requests))
            return over

        def middle(priorities):
            """Losses on the way, and a thread that waits for its turn, make it more or less."""
            return statistics.median(max(harness.on_threads(WORLD, lambda rank: work(rank, priorities))) for _ in range(7))

        self.assertLess(middle(range(1, count + 1)), middle([0] * count))
        # Workers that do not agree are not blocked.
        harness.on_threads(WORLD, lambda rank: work(rank, [(7 * rank + i) % count for i in range(count)]))
        with self.assertRaisesRegex(ValueError, "priority is -1: want 0 to 4294967295"):
            comms[0].allreduce_async(numpy.ones(4), priority=-1)
        harness.on_threads(WORLD, lambda rank: comms[rank].close())

    def test_test_and_time_outs(self):
        array = numpy.ones(10)
        request = self.comms[0].allreduce_async(array)
        self.assertFalse(request.test())
        self.assertIsNone(request.stats)
        begun = time.monotonic()
        with self.assertRaises(TimeoutError):
            request.wait(0.25)
        self.assertLess(abs(time.monotonic() - begun - 0.25), 0.2)
        with self.assertRaises(TimeoutError):
            request.wait(0)
        harness.on_threads(2, lambda index: self.comms[index + 1].allreduce(numpy.ones(10)))
        self.assertTrue((request.wait(5) == 3).all())
        self.assertTrue(request.test())
        self.assertIs(request.wait(), array)
        self.assertGreater(request.stats.time_us, 200_000)

    def test_many_threads_wait_for_one(self):
        request = self.comms[0].allreduce_async(numpy.ones(10))
        results = []
        threads = [threading.Thread(target=lambda: results.append(request.wait())) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        self.assertFalse(request.test())
        harness.on_threads(2, lambda index: self.comms[index + 1].allreduce(numpy.ones(10)))
        for thread in threads:
            thread.join(5)
        self.assertEqual([result[0] for result in results], [3] * 4)

    def test_buffers_outlive_their_names(self):
        requests = [comm.allreduce_async(numpy.ones(100_000)) for comm in self.comms[:2]]
        gc.collect()
        noise = [numpy.full(100_000, 9.0) for _ in range(20)]
        self.assertTrue((self.comms[2].allreduce(numpy.ones(100_000)) == 3).all())
        self.assertTrue(all((request.wait() == 3).all() for request in requests))
        del noise

    def test_nobody_waits(self):
        """What is over is let go of by the operations that follow, whoever still has its Request."""
        def work(rank):
            arrays, requests = [], []
            for _ in range(300):
                array = numpy.ones(1000)
                arrays.append(weakref.ref(array))
                request = self.comms[rank].allreduce_async(array, out=numpy.empty(1000))
                del array
                requests += [request] * (len(arrays) % 3 == 0)
                if len(arrays) % 10 == 0:
                    self.comms[rank].allreduce(numpy.ones(1))
            return sum(array() is not None for array in arrays), len(self.comms[rank]._pending)

        for alive, pending in harness.on_threads(WORLD, work):
            self.assertLess(alive, 30)
            self.assertLess(pending, 30)

    def test_same_tag_twice(self):
        first = self.comms[0].allreduce_async(numpy.ones(10), tag=5)
        self.fails("BUSY", "^an operation with tag 5 is under way$", self.comms[0].allreduce, numpy.ones(10), tag=5)
        harness.on_threads(2, lambda index: self.comms[index + 1].allreduce(numpy.ones(10), tag=5))
        first.wait()

    def test_mismatch(self):
        count = lambda comm, rank: comm.allreduce(numpy.ones((10, 10, 11)[rank]))
        harness.mismatches(WORLD, count, r"count is 1. on rank . and 1. on rank .$")
        operation = lambda comm, rank: comm.allreduce(numpy.ones(8), op="max" if rank else "sum")
        harness.mismatches(WORLD, operation, "operation is .* on rank")

    def test_close_beneath(self):
        """A wait in another thread, and the other workers, see the end; twice is fine."""
        request = self.comms[0].allreduce_async(numpy.ones(10))
        seen = []
        waiting = threading.Thread(target=lambda: seen.extend(harness.outcomes(1, lambda _: request.wait())))
        waiting.start()
        others = [comm.allreduce_async(numpy.ones(10)) for comm in self.comms[1:2]]
        self.comms[0].close()
        self.comms[0].close()
        waiting.join(5)
        self.assertEqual(seen[0].code, winnow.WinnowError.ABORTED)
        with self.assertRaisesRegex(winnow.WinnowError, "rank 0 .*aborted the job: it closed"):
            others[0].wait()
        with self.assertRaisesRegex(winnow.WinnowError, "the communicator is closed"):
            self.comms[0].allreduce(numpy.ones(10))
        with self.assertRaisesRegex(winnow.WinnowError, "the communicator is closed"):
            self.comms[0].stats()

    def test_abort(self):
        request = self.comms[0].allreduce_async(numpy.ones(10))
        self.comms[1].abort("loss is NaN")
        with self.assertRaisesRegex(winnow.WinnowError, "rank 1 .*aborted the job: loss is NaN") as caught:
            request.wait()
        self.assertEqual(caught.exception.code, winnow.WinnowError.ABORTED)
        copy = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((copy.code, str(copy)), (caught.exception.code, str(caught.exception)))

    def test_forked_child(self):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.comms[0].allreduce(numpy.ones(10))
            except winnow.WinnowError as error:
                status = 0 if "make one after the fork" in str(error) else 2
            self.comms[0].close()
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.test_by_order()  # the parent's still work

    def test_collected(self):
        """A communicator that nobody holds leaves the job."""
        comm = winnow.Comm(rank=0, world=1, job=harness.fresh_job())
        comm.allreduce(numpy.ones(10))
        del comm
        gc.collect()
        self.assertEqual([t.name for t in threading.enumerate() if t.name == "winnow-join"], [])
