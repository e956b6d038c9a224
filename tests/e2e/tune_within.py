# SPDX-License-Identifier: BSD-3-Clause
"""tune_within.py FILE - of each block size that winnow tune --json measured: are counted bytes within 2 % of predicted ones?"""
import json
import sys

for row in json.load(open(sys.argv[1]))["rows"]:
    measured = row["measured"]
    sent = measured["sent_bytes"] / measured["predicted_sent_bytes"]
    received = measured["received_bytes"] / row["received"]["bytes"]
    print(row["block"], round(sent, 4), round(received, 4))
    if not (0.98 < sent < 1.02 and 0.98 < received < 1.02):
        sys.exit(1)
