# SPDX-License-Identifier: BSD-3-Clause
"""Training while datagrams are lost, doubled and reordered: the same losses as over Gloo."""

import os
import subprocess
import time
import unittest

import harness
from test_sparse_ddp import compare

CHAOS = harness.BUILD / "tests" / "e2e" / "chaos"


class Loss(unittest.TestCase):
    def test_mixed_model(self):
        port = harness.free_port()
        server = os.environ["WINNOW_AGGREGATORS"]
        proxy = subprocess.Popen(
            [CHAOS, str(port), server, "1", "5", "5", "10"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            os.environ["WINNOW_AGGREGATORS"] = f"127.0.0.1:{port}"
            time.sleep(0.3)
            with harness.Team(2) as team:
                results = team.run(compare, harness.fresh_job(), "mixed", uneven=True)
        finally:
            os.environ["WINNOW_AGGREGATORS"] = server
            proxy.terminate()
            said = proxy.communicate()[0]
        for losses, parameters, coalesced, stats in results:
            self.assertLess(max(losses, parameters), 2e-5)
            self.assertTrue(coalesced)
        self.assertRegex(said, "lost [1-9]")
