# SPDX-License-Identifier: BSD-3-Clause
"""generous.py PORT CHANNELS [NAME=VALUE..] - an aggregator that grants one worker more than a real one does, up to what 5.1 allows.

NAME=VALUE: fields of its WELCOME; silence_ms and stall_ms are the worker's own otherwise. It prints FAILED's word, or the
worker's last one, and ends when the worker does.
"""
import json
import select
import socket
import struct
import sys

port, channels = int(sys.argv[1]), int(sys.argv[2])
more = {}
for text in sys.argv[3:]:
    name, value = text.split("=", 1)
    more[name] = int(value) if value.isdigit() else value
listener = socket.create_server(("127.0.0.1", port))
data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
data.bind(("127.0.0.1", port))
print("here", flush=True)
worker, _ = listener.accept()
lines = worker.makefile("rb")


def say(**fields):
    worker.sendall(json.dumps(fields).encode() + b"\n")


GROUP, KNOCK, KNOCKED = 7, 4, 0x84
say(type="hello", version=3, software="generous")
assert json.loads(lines.readline()) == {"type": "ping"}
join = json.loads(lines.readline())
welcome = dict(
    type="welcome", channels=list(range(channels)), seed="00" * 32,
    token="%016x" % 5, group_token="%016x" % GROUP, silence_ms=join["silence_ms"], stall_ms=join["stall_ms"], payload=join["payload"],
    window=8192, op_slots=1024, segments_ahead=64, first_frame=0, group="", data_address="",
)  # fmt: skip
say(**{**welcome, **more})
while True:
    ready, _, _ = select.select([data, worker], [], [], 30)
    assert ready, "the worker does nothing"
    if data in ready:
        datagram, at = data.recvfrom(65536)
        if datagram[3] == KNOCK:
            answer = struct.pack("<HBBHHQIIQ", 0x4E57, 3, KNOCKED, struct.unpack_from("<H", datagram, 4)[0], 0, GROUP, 0, 0, 0)
            data.sendto(answer.ljust(len(datagram), b"\0"), at)
    if worker in ready:
        line = lines.readline()
        if not line:
            break
        said = json.loads(line)
        if said["type"] == "ready":
            say(type="start", payload=said["payload"], window=8192, window_start=8192, multicast=False, fast=False)
        elif said["type"] != "ping":
            print(said["type"], flush=True)
