# SPDX-License-Identifier: BSD-3-Clause
"""tune_within.py TRACED [PREDICTED] - are the bytes that a traced job counted within 2 % of predicted ones?

Both are what winnow tune --json prints, of one block size; without PREDICTED the trace's own prediction counts.
"""
import json
import sys

traced, predicted = (json.load(open(sys.argv[at])) for at in (1, -1))
job, (row,) = traced["traced_job"], predicted["rows"]
assert job["operations"] == traced["operations"] > 0
ratios = [job[f"{way}_bytes"] / job["operations"] / row[way]["bytes"] for way in ("sent", "received")]
print("block", row["block"], "sent", round(ratios[0], 4), "received", round(ratios[1], 4))
sys.exit(not all(0.98 < ratio < 1.02 for ratio in ratios))
