# SPDX-License-Identifier: BSD-3-Clause
"""WINNOW_TIMELINE: a file for each rank that a trace viewer reads, with buckets that overlap."""

import json
import os
import pathlib
import tempfile
import unittest

import harness
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch


def train(rank, world, job, path):
    os.environ["WINNOW_TIMELINE"] = path
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(6)))
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        ddp = DistributedDataParallel(model, bucket_cap_mb=1)
        state = winnow.torch.attach(ddp, comm)
        for _ in range(5):
            ddp(torch.ones(4, 512)).sum().backward()
        buckets = state.stats().buckets
        state.close()
    return buckets


class Timeline(unittest.TestCase):
    def test_buckets(self):
        with tempfile.TemporaryDirectory() as directory, harness.Team(2) as team:
            counts = team.run(train, harness.fresh_job(), f"{directory}/trace.json")
            overlaps = 0
            for rank in range(2):
                text = pathlib.Path(directory, f"trace.{rank}.json").read_text()
                name, *events = json.loads(text.rstrip().rstrip(",") + "]")
                self.assertEqual((name["ph"], name["pid"]), ("M", rank))
                self.assertEqual(len(events), counts[rank])
                for event in events:
                    self.assertEqual((event["ph"], event["pid"]), ("X", rank))
                    self.assertGreater(event["dur"], 0)
                    self.assertGreater(event["args"]["blocks"], 0)
                ordered = sorted(events, key=lambda event: event["ts"])
                for before, after in zip(ordered, ordered[1:]):
                    overlap = after["ts"] < before["ts"] + before["dur"]
                    overlaps += overlap
                    # A viewer nests what overlaps in one lane.
                    self.assertTrue(not overlap or before["tid"] != after["tid"])
            self.assertGreater(overlaps, 5)
