# SPDX-License-Identifier: BSD-3-Clause
"""tune_within.py FILE [SEEN] - of each block size that winnow tune --json measured: are counted bytes within 2 % of predicted ones?

With SEEN, a file that keeps what earlier runs have seen: were they once? A busy machine sends some again, now of one
size and then of another; what is predicted wrongly is never within.
"""
import json
import os
import sys

seen = sys.argv[2] if len(sys.argv) > 2 else os.devnull
before = set(open(seen).read().split()) if os.path.exists(seen) else set()
bad = False
for row in json.load(open(sys.argv[1]))["rows"]:
    measured = row["measured"]
    sent = measured["sent_bytes"] / measured["predicted_sent_bytes"]
    received = measured["received_bytes"] / row["received"]["bytes"]
    print(row["block"], round(sent, 4), round(received, 4))
    if 0.98 < sent < 1.02 and 0.98 < received < 1.02:
        with open(seen, "a") as file:
            print(row["block"], file=file)
    elif str(row["block"]) not in before:
        bad = True
sys.exit(bad)
