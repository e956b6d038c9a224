# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong: datagrams (PROTOCOL.md 10) and workers (11)."""

import os
import time
import unittest

import numpy as np

import element
import wire
from endpoint import Endpoint, Weather, drive, now_us
from reference import tensor
from team import KEYED, OPEN, Team, outcome, rest


def kind(datagram):
    return datagram[3]


class Once:
    """Loses `count` datagrams of a kind that a worker sends or gets, after the first `skip`."""

    def __init__(self, kind, count=1, skip=0):
        self.kind, self.left, self.skip = kind, count, skip

    def __call__(self, datagram, inward):
        if kind(datagram) != self.kind or not self.left:
            return False
        self.skip -= 1
        self.left -= self.skip < 0
        return self.skip < 0


def wrong_pushes(channel, frame, body):
    """Like this one but for the data, and each wrong in one thing."""
    body = bytes(byte ^ 0x55 for byte in body)
    right = dict(number=channel.number, rank=channel.rank, token=channel.token, frame=frame, body=body)
    wrong = [
        dict(body=body + bytes(1024)),
        dict(body=body[:-1024]),
        dict(body=body + bytes(8)),
        dict(body=body[:-8]),
        dict(body=b""),
        dict(frame=frame + channel.window),
        dict(frame=frame - channel.window),
        dict(token=channel.token ^ 1),
        dict(rank=0),
        dict(rank=7),
        dict(number=channel.number ^ 1),
    ]
    for what in ({**right, **each} for each in wrong):
        number, rank, token, frame, body = what.values()
        yield wire.to_aggregator(wire.PUSH, number, rank, token, frame, channel.ack, pushed=channel.pushed, body=body)


def mixed(team, rng):
    """Sparse and dense, small and large, parts of blocks, fixed point."""
    for count, block, density, form in (
        (100, 8, 0.5, 0),
        (60000, 64, 0.2, 0),
        (60000, 256, 1.0, element.FIXED32),
        (0, 1, 1.0, 0),
        (30000, 7000, 0.7, 0),
        (500, 500, 1.0, element.FIXED32),
        (5000, 4, 0.05, 0),
        (20000, 4, 0.3, element.FIXED32),
    ):
        tensors = [tensor(rng, count, "f32", block, density, True) for _ in range(team.world)]
        yield team.operation(tensors, block_elems=block, form=form)


class Loss(unittest.TestCase):
    def check(self, world, weather, aggregators=1, **settings):
        rng = np.random.default_rng(world)
        with Team(world, aggregators, weather=weather, settings=lambda rank: settings) as team:
            team.check(list(mixed(team, rng)))
            return {
                name: sum(team.counts(worker, name) for worker in team.workers)
                for name in team.counts(team.workers[0])
            }

    def test_none(self):
        """10.2: where nothing is lost, next to nothing comes twice."""
        for _ in range(3):  # who has had no CPU asks for what is on its way; not each time
            counts = self.check(2, lambda rank: None, 2)
            if counts["duplicates"] < 0.1 * counts["results"]:
                break
        self.assertEqual(counts["repushes"], 0)
        self.assertLess(counts["duplicates"], 0.1 * counts["results"])
        self.assertGreater(counts["measured"], 0)

    def test_sequence(self):
        """10.2: the RESULTs to everyone are counted, each frame's once. 8.4: more frames than may be pushed at once."""
        rng = np.random.default_rng(3)
        with Team(2, at=OPEN[1:2]) as team:
            team.check([team.operation([tensor(rng, 10**6, "i32") for _ in range(2)], "i32")])
            for channel in (worker.worker.channels[0] for worker in team.workers):
                self.assertGreater(channel.sequence, 2 * channel.window)
                self.assertEqual(channel.sequence, channel.counts["results"])
                self.assertEqual(channel.counts["repushes"], 0)

    def test_five_percent(self):
        counts = self.check(3, lambda rank: Weather(0.05, 0.05, 0.2, seed=rank), 2)
        self.assertGreater(counts["repushes"], 0)
        self.assertGreater(counts["lists"], 0)

    def test_twenty_percent(self):
        self.check(4, lambda rank: Weather(0.2, 0.2, 0.2, seed=rank))

    def test_one_bad_worker(self):
        self.check(3, lambda rank: Weather(0.3, seed=7) if rank == 1 else None)

    def test_unicast(self):
        self.check(3, lambda rank: Weather(0.05, 0.05, 0.2, seed=rank), multicast=False)

    def test_no_advice(self):
        """What is a must is enough: no round trips."""
        counts = self.check(3, lambda rank: Weather(0.1, 0.1, 0.2, seed=rank), advice=False)
        self.assertGreater(counts["lists"], 0)

    def test_each_kind(self):
        """One datagram of a kind, and then nothing that would tell of it: repaired all the same."""
        rng = np.random.default_rng(5)
        for lost in (wire.ANNOUNCE, wire.PUSH, wire.STATUS, wire.PLAN, wire.RESULT, wire.STATUS_BACK):
            for advice in (True, False):
                for count in (4, 40000):
                    with self.subTest(kind=lost, advice=advice, count=count):
                        loses = Once(lost)
                        settings = lambda rank: {"advice": advice}
                        with Team(
                            2, weather=lambda rank: Weather(lose=loses) if rank else None, settings=settings
                        ) as team:
                            team.check([team.operation([tensor(rng, count, "i32") for _ in range(2)], "i32")])

    def alone(self, lost, mechanism, count=40000, operations=1, skip=0):
        """One datagram of worker 1's is lost, and `mechanism` has left it one way to repair that."""
        rng = np.random.default_rng(9)
        loses = Once(lost, skip=skip)
        with Team(2, at=OPEN[1:2], weather=lambda rank: Weather(lose=loses) if rank else None) as team:
            mechanism(team.workers[1].worker.channels[0])
            tensors = [[tensor(rng, count, "i32") for _ in range(2)] for _ in range(operations)]
            team.check([team.operation(pair, "i32") for pair in tensors], limit_s=10)
            self.assertEqual(loses.left, 0)

    def test_one_way(self):
        """10.2: a gap shows that a RESULT is lost; 10.4: asking finds a PUSH."""

        def no_asking(channel):
            acknowledge = channel.acknowledge

            def early(now):
                channel.ask_due = float("inf")
                acknowledge(now)

            channel.acknowledge = early

        def no_gaps(channel):
            channel.list_missing = lambda now: None

        for lost, mechanism in ((wire.RESULT, no_asking), (wire.PUSH, no_gaps)):
            for skip in (0, 10):
                self.alone(lost, mechanism, skip=skip)

    def test_third_ones_losses(self):
        """10: a worker asks for nothing, and is asked for nothing, when it is another one's PUSHes that get lost."""
        rng = np.random.default_rng(12)
        loses = lambda datagram, inward: kind(datagram) == wire.PUSH and not inward and rng.random() < 0.1
        with Team(3, weather=lambda rank: Weather(lose=loses) if rank == 1 else None) as team:
            team.check([team.operation([tensor(rng, 300000, "i32") for _ in range(3)], "i32")])
            again = [team.counts(worker, "repushes") for worker in team.workers]
            self.assertEqual((again[0], again[1] > 10, again[2]), (0, True, 0))
            self.assertLess(team.counts(team.workers[0], "lists") + team.counts(team.workers[2], "lists"), 4)

    def test_what_is_on_its_way(self):
        """10.2: a RESULT that was sent after the STATUS's sequence is not sent again; before, it is."""
        with Team(2, at=OPEN[1:2], settings=lambda rank: {"multicast": False}) as team:
            first, second = (worker.worker.channels[0] for worker in team.workers)
            advance, second.advance = second.advance, lambda now: None  # its ack holds base
            ops = [worker.submit(np.ones(40000, dtype="<f4")) for worker in team.workers]
            team.until(lambda: all(op.done for op in ops), 10)
            frame, heard = first.ack - 1, []
            first.receive = lambda datagram, now: heard.append(datagram)
            for sequence, answers in ((0, 0), (first.sequence - 1, 0), (first.sequence, 1)):
                first.before = sequence, 0, 0
                first.send(wire.STATUS, frame, wire.status(1, False, wire.bitmap(np.ones(1, dtype=bool))))
                rest(team.workers, 0.3)
                self.assertEqual(sum(kind(datagram) == wire.RESULT for datagram in heard), answers, sequence)
                heard.clear()
            del first.receive
            second.advance = advance

    def test_plan_again_is_enough(self):
        """10.2: the plan comes though the announcement is not repeated."""

        def no_repeating(channel):
            announce, once = channel.announce, set()

            def announce_once(now):
                before = len(channel.out)
                announce(now)
                new = [datagram for datagram in channel.out[before:] if datagram[32:] not in once]
                once.update(datagram[32:] for datagram in new)
                channel.out[before:] = new

            channel.announce = announce_once

        self.alone(wire.PLAN, no_repeating, 9, 2)

    def test_status_to_everyone_is_enough(self):
        """8.4: base is told when all that is planned is over, to workers that do not ask."""

        def no_asking(channel):
            status = channel.send_status
            channel.send_status = lambda now, asks, *what: None if asks else status(now, asks, *what)

        self.alone(wire.ANNOUNCE, no_asking)

    def test_late_announcements(self):
        """6.2: what comes again when its operation is long over begins none, which nobody would ever join."""
        rng = np.random.default_rng(10)
        sent = []
        record = lambda datagram, inward: kind(datagram) == wire.ANNOUNCE and sent.append(datagram)
        settings = lambda rank: {"silence_ms": 1000, "stall_ms": 1000}
        with Team(2, weather=lambda rank: Weather(lose=record), settings=settings) as team:
            for count in (9, 40000):
                team.check([team.operation([tensor(rng, count, "i32") for _ in range(2)], "i32")])
                team.until(lambda: all(worker.worker.idle for worker in team.workers), 10)
            self.assertGreater(len(sent), 4)
            for datagram in list(sent):
                team.workers[0].links[0].udp.sendto(datagram, team.workers[0].links[0].to)
            rest(team.workers, 2.5)
            self.assertEqual([worker.failure for worker in team.workers], [None, None])

    def test_nonsense(self):
        """12: before each PUSH some that are not right: none of them is added."""
        rng = np.random.default_rng(11)
        with Team(2, at=OPEN[1:2]) as team:
            channel = team.workers[1].worker.channels[0]
            send = channel.send

            def nonsense(kind, frame=0, body=b""):
                if kind == wire.PUSH:
                    channel.out += wrong_pushes(channel, frame, body)
                send(kind, frame, body)

            channel.send = nonsense
            for count, block in ((40000, 256), (30000, 7000)):
                tensors = [tensor(rng, count, "i32", block, 0.7) for _ in range(2)]
                team.check([team.operation(tensors, "i32", block_elems=block)])

    def test_group_is_cut_off(self):
        """No PROBE arrives: results come by unicast (5.3)."""
        rng = np.random.default_rng(6)
        cut = Once(wire.PROBE, 10**9)
        with Team(2, weather=lambda rank: Weather(lose=cut) if rank else None) as team:
            said = [worker.links[0].joining.start["multicast"] for worker in team.workers]
            self.assertEqual(said, [True, False])
            team.check([team.operation([tensor(rng, 50000, "i32") for _ in range(2)], "i32")])

    def test_small_path(self):
        """5.3: only datagrams of up to 1440 bytes pass one worker's path; all use the largest size that does."""
        rng = np.random.default_rng(7)
        narrow = lambda datagram, inward: len(datagram) > 1440
        with Team(2, 2, weather=lambda rank: Weather(lose=narrow) if rank else None) as team:
            self.assertEqual([worker.worker.payload for worker in team.workers], [1432, 1432])
            team.check([team.operation([tensor(rng, 50000, "i32") for _ in range(2)], "i32")])

    def test_sequence_wraps(self):
        """More than 2^16 RESULTs on a channel, with losses at the end."""
        rng = np.random.default_rng(8)
        loss = Weather(seed=3)
        one_thread = OPEN[1:2]
        with Team(1, settings=lambda rank: {"payload": 584}, weather=lambda rank: loss, at=one_thread) as team:
            self.assertEqual(len(team.workers[0].worker.channels), 1)

            def dense():
                return team.operation([tensor(rng, 5 * 10**6, "i32")], "i32", block_elems=1)

            frames = 0
            while frames < 2**16:
                team.check([dense()])
                frames = team.counts(team.workers[0], "results")
            loss.loss = 0.05
            team.check([team.operation([tensor(rng, 10**5, "i32")], "i32", block_elems=1)])


class Disagreement(unittest.TestCase):
    """11.1"""

    OURS = {"count": 50001, "dtype": "f32", "reduction": 1, "block_elems": 256, "form": 0, "scatter": False}
    CASES = {
        1: ({"count": 50002}, {"count": 10}, {"count": 0}),
        2: ({"dtype": "i32"}, {"dtype": "f64"}),
        3: ({"block_elems": 128}, {"layout": [(50001, 7143, 1, 9)]}),
        4: ({"reduction": 3},),
        5: ({"form": 5}, {"form": 7}, {"form": 3}),
        # The first segment has blocks of 256 in any case.
        6: ({"layout": [(40000, 0, 1, 256), (10001, 0, 1, 64)]}, {"layout": [(25000, 50, 32, 8), (25001, 0, 1, 256)]}),
        7: ({"scatter": True}, {"scatter": True, "count": 60000}),
    }
    VALUES = {1: ("count", int), 2: ("dtype", {"f32": 1, "f64": 4, "i32": 5}.get),
              4: ("reduction", int), 5: ("form", int), 7: ("scatter", int)}  # fmt: skip

    def submit(self, worker, tag, count, **what):
        worker_type = {"f64": "<f8", "i32": "<i4"}.get(what["dtype"], "<f4")
        return worker.submit(np.ones(count, dtype=worker_type), tag=tag, **what)

    def differ(self, theirs, ours=OURS, **options):
        """All but rank 1 submit ours: the job ends for all, and each that is told is told of two ranks' values."""
        with Team(3, **options) as team:
            said = {worker.rank: ours | (theirs if worker.rank == 1 else {}) for worker in team.workers}
            ops = [self.submit(worker, 1000, **said[worker.rank]) for worker in team.workers]
            self.assertEqual({code for code, _, _ in outcome(team.workers)}, {"mismatch"})
        errors = [op.error for op in ops if op.error]
        for error in errors:
            self.assertEqual([error.rank_a, error.rank_b].count(1), 1)
            self.assertNotEqual(error.value_a, error.value_b)
            if error.field in self.VALUES:
                name, number = self.VALUES[error.field]
                self.assertEqual(error.value_a, number(said[error.rank_a][name]))
                self.assertEqual(error.value_b, number(said[error.rank_b][name]))
        return {error.field for error in errors}

    def test_fields(self):
        for aggregators in (1, 3):
            for field, cases in self.CASES.items():
                for theirs in cases:
                    with self.subTest(field=field, theirs=theirs):
                        self.assertEqual(self.differ(theirs, aggregators=aggregators), {field})
            small = self.OURS | {"count": 10}
            self.assertEqual(self.differ({"count": 11}, small, aggregators=aggregators), {1})  # both eager

    def test_lossy(self):
        weather = lambda rank: Weather(0.2, 0.2, 0.2, seed=rank)
        for theirs in ({"count": 7}, {"reduction": 4}):
            self.differ(theirs, aggregators=2, weather=weather)

    def test_order_of_aggregators(self):
        """Also where the one in the middle is the same for all, and has a plan."""
        for at in (OPEN[:2], OPEN[:3]):
            with self.subTest(at=at):
                self.assertEqual(self.differ({}, at=at, reverse={1}), {6})

    def test_impossible(self):
        """A number that nobody knows: the job ends, and says which."""
        with Team(2, at=OPEN[1:2]) as team:
            op = self.submit(team.workers[0], 5, **self.OURS)
            team.until(lambda: op.shares, 5)
            body = bytearray(op.shares[0].open[0].body)
            body[78 - 32] = 2  # form
            op.shares[0].channel.send(wire.ANNOUNCE, body=bytes(body))
            self.assertEqual({code for code, _, _ in outcome(team.workers)}, {"mismatch"})
            self.assertEqual((op.error.field, op.error.value_a, op.error.rank_a, op.error.rank_b), (5, 2, 0, 0))


class Ends(unittest.TestCase):
    """11.2 to 11.4"""

    QUICK = {"silence_ms": 1000, "stall_ms": 1500}

    def team(self, world=3, **options):
        return Team(world, settings=lambda rank: self.QUICK, **options)

    def test_connection_ends(self):
        with self.team() as team:
            lost, *others = team.workers
            for sock in lost.links[0].sockets():
                sock.close()
            lost.links = []
            team.workers = others
            self.assertEqual([(code, rank) for code, rank, _ in outcome(others)], [("lost", 0)] * 2)

    def test_silence(self):
        """The silent worker is told why its connection is closed."""
        with self.team() as team:
            silent, *others = team.workers
            began = time.monotonic()
            self.assertEqual([(code, rank) for code, rank, _ in outcome(others)], [("lost", 0)] * 2)
            self.assertGreater(time.monotonic() - began, 0.7)  # it was heard of somewhat before `began`
            silent.links[0].joining.heard_at = None  # it does not mind how long it slept
            code, rank, text = outcome([silent])[0]
            self.assertEqual((code, rank), ("lost", 0))
            self.assertIn("silent for 1.", text)

    def test_pings_are_enough(self):
        with self.team(2) as team:
            rest(team.workers, 2.5)
            self.assertEqual([worker.failure for worker in team.workers], [None, None])

    def test_abort(self):
        for code in ("stalled", "lost", "gone", "moved", "mismatch", "whim"):
            heard = "aborted" if code == "whim" else code
            with self.team() as team:
                first, *others = team.workers
                first.last_word("abort", code=code, text="so there")
                team.workers = others
                for got, rank, text in outcome(others):
                    self.assertEqual((got, rank), (heard, 0))
                    self.assertIn("so there", text)

    def elastic(self, world, silence_ms=1000, **options):
        return Team(world, settings=lambda rank: {**self.QUICK, "silence_ms": silence_ms, "continues": True}, **options)

    def continued(self, team, members, without=0):
        """These go on as NEXT says, which is the same for all but for the rank, and work together."""
        team.workers = members
        self.assertTrue(drive(members, lambda: all(worker.next and worker.worker for worker in members), 20), [w.failure for w in members])
        said = [worker.next for worker in members]
        self.assertRegex(said[0]["next"], r"^[^/]+/next\.[0-9a-f]{16}$")
        self.assertEqual({each["next"] for each in said}, {said[0]["next"]})
        self.assertEqual([(s["next_rank"], s["next_world"]) for s in said], [(i, len(members)) for i in range(len(members))])
        self.assertEqual({each["without"] for each in said}, {f"{without:016x}"})
        for count in (5000, 5):
            arrays = [np.full(count, rank + 1, dtype="<f4") for rank in range(len(members))]
            ops = [worker.submit(array, dtype="f32", tag=count) for worker, array in zip(members, arrays)]
            team.until(lambda: all(op.done for op in ops), 20)
            want = sum(range(1, len(members) + 1))
            self.assertTrue(all((op.result == want).all() for op in ops))
        team.until(lambda: all(worker.worker.idle for worker in members), 20)

    def test_those_who_are_left(self):
        """All but the one that is lost continue, in the order of ranks; then once more."""
        with self.elastic(4) as team:
            for lost in 1, 0:
                gone = team.workers.pop(lost)
                gone.close(gone.links)
                gone.links = []
                for worker in team.workers:
                    worker.next = None
                self.continued(team, team.workers)

    def test_without_an_aggregator(self):
        """One worker has lost the second one, and all leave it out."""
        with self.elastic(3, aggregators=2) as team:
            team.workers[1].links[1].tcp.shutdown(2)
            team.workers[1].step(now_us())  # it notices, before others say that it is lost
            self.continued(team, team.workers, 2)

    def test_the_decider_is_lost(self):
        """All have lost it, and come back to its door."""
        with self.elastic(3, aggregators=2) as team:
            for worker in team.workers:
                worker.links[0].tcp.shutdown(2)
            self.continued(team, team.workers)

    def test_gone_on(self):
        """Who comes late is told that the others have gone on; it may come as a newcomer."""
        with self.elastic(3) as team:
            late = team.workers[2]
            late.links[0].tcp.shutdown(2)
            self.continued(team, team.workers[:2])
            self.assertTrue(drive([late], lambda: late.failure and late.failure[0] == "running", 20))

    def test_newcomer(self):
        """At a boundary: all members say stay while the membership runs."""
        with self.elastic(2) as team:
            came = Endpoint(OPEN[:1], team.workers[0].job, 0, 1, newcomer=True, **self.QUICK, continues=True)
            everybody = [*team.workers, came]
            drive(everybody, lambda: came.links and came.links[0].joining.hello, 5)
            rest(everybody, 0.1)
            for worker in team.workers:
                worker.admit = 1
                worker.stay_on()
            self.continued(team, everybody)
            self.assertEqual(came.next["came"], 1)

    def test_found(self):
        """The job's name alone is taken while its members are here in another membership."""
        with self.elastic(2) as team:
            job = team.workers[0].job
            for worker in team.workers:
                worker.stay_on()
            self.continued(team, team.workers)
            late = Endpoint(OPEN[:1], job, 0, 1, None, **self.QUICK)
            self.assertEqual([code for code, _, _ in outcome([late])], ["running"])

    def test_one_aggregator_is_lost(self):
        """11.2: the others are told, with the same code."""
        with self.team(2, aggregators=2) as team:
            first, second = team.workers
            first.links[1].tcp.shutdown(2)
            self.assertEqual([code for code, _, _ in outcome([first])], ["lost"])
            self.assertEqual([(code, rank) for code, rank, _ in outcome([second])], [("lost", 0)])

    def test_never_called(self):
        with self.team() as team:
            for worker in team.workers[1:]:
                worker.submit(np.ones(9, dtype="<f4"))
            for code, rank, text in outcome(team.workers):
                self.assertEqual((code, rank), ("stalled", 0))
                self.assertRegex(text, r"^rank 0 \(python\) has not called operation #1 for [1-9]\.\d s: it is alive, in no operation$")

    def test_called_something_else(self):
        """5.1, ping; 11.3: the line says in which operation the missing worker is."""
        with self.team(2) as team:
            for i, worker in enumerate(team.workers):
                worker.submit(np.ones(9, dtype="<f4"), tag=0xBEEF + i)
            for code, rank, text in outcome(team.workers):
                self.assertEqual((code, rank in (0, 1)), ("stalled", True))
                other = 0xBEEF + rank
                self.assertIn(f"rank {rank} (python) has not called operation {0xBEEF + 1 - rank:#x} for", text)
                self.assertTrue(text.endswith(f"it is alive, in operation {other:#x} (1 under way)"), text)

    def test_shortest_silence_time(self):
        """5.1: WELCOME says it to everybody; the worker that would be silent for longer pings in time."""
        times = lambda rank: {"silence_ms": 1000 if rank else 60000, "stall_ms": 60000}
        with Team(2, settings=times) as team:
            rest(team.workers, 2.5)
            self.assertEqual([worker.failure for worker in team.workers], [None, None])

    def test_shortest_stall_time(self):
        """5.1: the job's is the shortest of its workers'."""
        times = lambda rank: self.QUICK | ({} if rank else {"stall_ms": 600000})
        with Team(2, settings=times) as team:
            team.workers[0].submit(np.ones(9, dtype="<f4"))
            self.assertEqual({(code, rank) for code, rank, _ in outcome(team.workers)}, {("stalled", 1)})

    def test_no_data(self):
        """Announcements pass, PUSHes of one worker do not."""
        cut = Once(wire.PUSH, 10**9)
        with self.team(2, weather=lambda rank: Weather(lose=cut) if rank else None) as team:
            for worker in team.workers:
                worker.submit(np.ones(50000, dtype="<f4"))
            for code, rank, _ in outcome(team.workers):
                self.assertEqual((code, rank), ("stalled", 1))

    def test_no_acks(self):
        """A worker that has all results and does not say so."""
        with self.team(2) as team:
            ops = [worker.submit(np.ones(50000, dtype="<f4")) for worker in team.workers]
            for channel in team.workers[1].worker.channels:
                channel.advance = lambda now: None
            codes = outcome(team.workers)
            self.assertEqual([(code, rank) for code, rank, _ in codes], [("stalled", 1)] * 2)
            self.assertTrue(ops[0].done)

    def test_leaving(self):
        """The others are told; what is under way fails after the silence time, what comes later at once."""
        with Team(2, settings=lambda rank: {"silence_ms": 1000, "stall_ms": 60000}) as team:
            first, second = team.workers
            ops = [worker.submit(np.ones(9, dtype="<f4")) for worker in team.workers]
            team.until(lambda: all(op.done for op in ops) and all(w.worker.idle for w in team.workers), 20)
            waits = second.submit(np.ones(9, dtype="<f4"))
            first.leave()
            team.workers = [second]
            began = time.monotonic()
            self.assertEqual([(code, rank) for code, rank, _ in outcome([second])], [("lost", 0)])
            self.assertGreater(time.monotonic() - began, 0.9)
            self.assertFalse(waits.done)

    def test_submitted_after_leaving(self):
        with self.team(2) as team:
            first, second = team.workers
            first.leave()
            team.workers = [second]
            team.until(lambda: second.left, 5)
            self.assertEqual(second.left[0], 0)
            second.submit(np.ones(9, dtype="<f4"))
            self.assertEqual(second.failure[:2], ("lost", 0))

    def test_last_one(self):
        """The last to leave ends the job: its name is free."""
        for _ in range(2):
            with self.team(2, job="protocol-again") as team:
                first, second = team.workers
                first.leave()
                team.workers = [second]
                team.until(lambda: second.left, 5)


class Ways(unittest.TestCase):
    """5.3, 11.5: datagrams that pass no more, and addresses that change."""

    TIMES = {"silence_ms": 2000, "stall_ms": 60000, "multicast": False}

    def operation(self, team):
        return [worker.submit(np.ones(50000, dtype="<f4")) for worker in team.workers]

    def dead(self, lose, line):
        """Rank 1's datagrams are lost from now on: all are told which."""
        weather = Weather()
        with Team(2, at=OPEN[1:2], settings=lambda rank: self.TIMES, weather=lambda rank: weather if rank else None) as team:
            weather.lose = lose
            self.operation(team)
            began = time.monotonic()
            for code, rank, text in outcome(team.workers):
                self.assertEqual((code, rank), ("path", 1))
                self.assertIn(line, text)
            self.assertLess(time.monotonic() - began, 4)

    def test_outward(self):
        self.dead(lambda datagram, inward: not inward, "sends datagrams that do not arrive (48 in 2.0 s)")

    def test_inward(self):
        self.dead(lambda datagram, inward: inward, "arrive, but ours do not reach it (48 in 2.0 s)")

    def test_shrunk(self):
        narrow = lambda datagram, inward: not inward and len(datagram) > 1000
        self.dead(narrow, "from rank 1 (python) no longer pass, 584 do: the path's MTU has shrunk")

    def test_late_is_not_dead(self):
        """A worker that waits for another has its KNOCKs answered, and goes on waiting."""
        with Team(2, at=OPEN[1:2], settings=lambda rank: self.TIMES) as team:
            first = team.workers[0].submit(np.ones(9, dtype="<f4"))
            rest(team.workers, 4)
            self.assertEqual([worker.failure for worker in team.workers], [None, None])
            second = team.workers[1].submit(np.ones(9, dtype="<f4"))
            team.until(lambda: first.done and second.done, 10)

    def readdress(self, team):
        """Rank 1 is another's port now, as behind a NAT that forgets."""
        link = team.workers[1].links[0]
        link.udp.close()
        link.udp = link.datagram_socket()

    def test_other_address(self):
        """With a key what it sends counts again soon."""
        with Team(2, at=[KEYED], settings=lambda rank: self.TIMES) as team:
            self.readdress(team)
            ops = self.operation(team)
            team.until(lambda: all(op.done for op in ops), 10)

    def test_other_address_alone(self):
        """Without one nobody can tell that it is the same worker: it has no path any more."""
        with Team(2, at=OPEN[1:2], settings=lambda rank: self.TIMES) as team:
            self.readdress(team)
            self.operation(team)
            self.assertEqual({code for code, _, _ in outcome(team.workers)}, {"path"})

    def test_token_alone(self):
        """Somebody who has read rank 1's token knocks, and pushes: nothing of the job comes to him."""
        with Team(2, at=OPEN[1:2], settings=lambda rank: self.TIMES) as team:
            link = team.workers[1].links[0]
            stranger = link.datagram_socket()
            for number in (0, 1, 2**64 - 1):
                datagram = bytearray(link.joining.knock_of(link.joining.welcome["channels"][0], 600))
                datagram[24:32] = number.to_bytes(8, "little")
                stranger.sendto(datagram, link.to)
            ops = self.operation(team)
            team.until(lambda: all(op.done for op in ops), 10)
            with self.assertRaises(BlockingIOError):
                stranger.recv(65536)
            stranger.close()


class Forged(unittest.TestCase):
    """2.4: where there is a key, nobody without it changes anything."""

    def sums(self, team, rounds=3):
        rng = np.random.default_rng(11)
        team.check([op for _ in range(rounds) for op in mixed(team, rng)])

    def forged(self, team):
        return [worker.links[0].joining.forged for worker in team.workers]

    def test_changed(self):
        """One datagram of twenty arrives with another bit, in both directions."""
        with Team(2, at=[KEYED], weather=lambda rank: Weather(seed=rank, change=0.05)) as team:
            self.sums(team)
            self.assertGreater(min(self.forged(team)), 0)

    def test_replayed(self):
        """All datagrams of a job, again in the next one of the same name, from and to the same worker."""
        job, recorded = f"replayed-{os.getpid()}", []

        def record(datagram, inward):
            recorded.append((datagram, inward))
            return False

        with Team(2, at=[KEYED], job=job, weather=lambda rank: Weather(lose=record) if rank else None) as team:
            self.sums(team, 1)
        old, recorded = recorded, []
        self.assertGreater(len(old), 100)
        time.sleep(0.3)  # the job has ended
        with Team(2, at=[KEYED], job=job) as team:
            worker = team.workers[1]
            for datagram, inward in old:
                for link in worker.links:
                    number = link.joining.welcome["channels"][0].to_bytes(2, "little")
                    worker.arrive((link, datagram[:4] + number + datagram[6:], inward), now_us())
            self.sums(team, 1)
            self.assertEqual(self.forged(team)[1], sum(inward for _, inward in old))

    def test_wrapped(self):
        """What was sent 2^32 frames ago has the same numbers on the wire, and another seal."""
        with Team(2, at=[KEYED]) as team:
            self.sums(team, 1)
            link = team.workers[0].links[0]
            channel = next(iter(link.channels.values()))
            status = wire.to_aggregator(wire.STATUS, channel.number, 0, 0, 0, channel.ack, body=wire.status(1, True))
            now, old = link.joining.seal(status, channel.ack), link.joining.seal(status, channel.ack - 2**32)
            self.assertEqual(now[:8] + now[16:], old[:8] + old[16:])
            self.assertNotEqual(now, old)
            rest(team.workers, 0.3)  # the last answer to what the sums have measured may still come
            before = channel.counts["measured"]
            link.udp.sendto(old, link.to)
            rest(team.workers, 0.3)
            self.assertEqual(channel.counts["measured"], before)
            link.udp.sendto(now, link.to)
            rest(team.workers, 0.3)
            self.assertEqual(channel.counts["measured"], before + 1)


if __name__ == "__main__":
    unittest.main()
