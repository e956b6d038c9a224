# SPDX-License-Identifier: BSD-3-Clause
# long: it waits
"""Who is late is said in the log `winnow`: once, on one of the ranks that wait, with the rank that they wait for; in
attach(), on all that wait."""

import logging
import pathlib
import tempfile
import time
import unittest
from unittest import mock

import harness
import numpy
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

LATE_S = 7  # and pings come twice a second


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage()))


def job(rank, world, name, late):
    """Rank `late` computes for long between two operations. What each rank has logged."""
    log = Lines()
    logging.getLogger("winnow").addHandler(log)
    with winnow.Comm(job=name, rank=rank, world=world, silence_ms=2000) as comm:
        comm.allreduce(numpy.ones(1000, numpy.float32))
        if rank == late:
            time.sleep(LATE_S)
        assert (comm.allreduce(numpy.ones(1000, numpy.float32)) == world).all()
        until = time.monotonic() + 3  # it hears at the next ping that this is over
        while (said := comm.late()) is not None and time.monotonic() < until:
            time.sleep(0.05)
        comm.allreduce(numpy.ones(1000, numpy.float32))
    return log.lines, said


def attached(rank, world, late):
    """What each rank has logged, when `late` calls attach() later."""
    log = Lines()
    logging.getLogger("winnow").addHandler(log)
    ddp = DistributedDataParallel(nn.Linear(2, 2))
    if rank == late:
        time.sleep(7)
    winnow.torch.attach(ddp).close()
    return log.lines


def until_said(path, text):
    until = time.monotonic() + 25
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < until, f"never said: {text}"
        time.sleep(0.05)


def joined(rank, world, job, late, agg, path):
    """What each rank has logged, when `late` joins later, through an aggregator that comes later. Rank 0 logs to `path` as well."""
    log = Lines()
    logging.getLogger("winnow").addHandler(log)
    if rank == 0:
        logging.getLogger("winnow").addHandler(logging.FileHandler(path))
    if rank == late:
        until_said(path, "waiting for rank 1 of 2 to join")
    winnow.Comm(job=job, rank=rank, world=world, aggregators=agg).close()
    return log.lines


class Late(unittest.TestCase):
    """Side by side, for they wait: what a scenario asserts is raised."""

    def test_all(self):
        with tempfile.TemporaryDirectory() as folder, harness.Aggregator() as first:
            first.kill()
            checks = lambda: self.last(2, 0), lambda: self.last(0, 1), self.attach, lambda: self.join(first, folder)
            harness.on_threads(len(checks), lambda i: checks[i]())

    def last(self, late, teller):
        with harness.Team(3) as team:
            results = team.run(job, harness.fresh_job(), late)
        for rank, (lines, said) in enumerate(results):
            self.assertIsNone(said)  # it is over
            if rank != teller:
                self.assertEqual(lines, [], f"rank {rank}")
                continue
            ((level, text),) = lines
            self.assertEqual(level, "WARNING")
            self.assertRegex(
                text, rf"^rank {rank}: waiting in operation #2 for rank {late} \(.+\): in no operation for [5-9] s$"
            )

    def join(self, first, folder):
        """An aggregator that is started after the workers is waited for, too."""
        with harness.Team(2) as team:
            path = pathlib.Path(folder, "log")
            team.start(joined, "late-joins", 1, first.address, path)
            until_said(path, "Connection refused")  # after 2 s; and 5 s after somebody answers, who has not come
            with mock.patch.object(harness, "free_port", return_value=first.address.split(":")[1]), harness.Aggregator():
                waited, late = team.collect()
        self.assertEqual(
            waited[:2],
            [
                ("WARNING", f"rank 0: {first.address}: Connection refused; trying for 30 s"),
                ("WARNING", f"rank 0: {first.address}: waiting for rank 1 of 2 to join"),
            ],
        )
        for _, line in waited[2:]:  # on a busy machine
            self.assertIn("no datagrams come back from its data port", line)
        self.assertEqual(late, [])

    def attach(self):
        with harness.Team(2) as team:
            waited, late = team.run(attached, 1)
        self.assertEqual(waited, [("WARNING", "rank 0: waiting for other ranks, which must also call attach() or make_node()")])
        self.assertEqual(late, [])
