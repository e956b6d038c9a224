# SPDX-License-Identifier: BSD-3-Clause
"""classes.py - counts by IP version, direction and TOS byte the UDP datagrams of port 5555 that pass eth0, until SIGTERM;
then prints lines such as "4 up 0x22 1234": from a worker, of class 8, able to carry marks (ECT(0))"""
import collections
import signal
import socket
import sys

wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
wire.bind(("eth0", 3))
wire.settimeout(0.2)
wire.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
counts = collections.Counter()
going = True


def stop(*_):
    global going
    going = False


signal.signal(signal.SIGTERM, stop)
print("ready", file=sys.stderr, flush=True)
while going:
    try:
        data = wire.recv(64)
    except TimeoutError:
        continue
    if data[0] >> 4 == 4:
        tos, protocol, udp = data[1], data[9], data[(data[0] & 15) * 4 :]
    else:
        tos, protocol, udp = (data[0] & 15) << 4 | data[1] >> 4, data[6], data[40:]
    ports = [int.from_bytes(udp[at : at + 2], "big") for at in (0, 2)]
    if protocol == 17 and 5555 in ports:
        counts[data[0] >> 4, "down" if ports[0] == 5555 else "up", f"{tos:#04x}"] += 1
for key, count in sorted(counts.items()):
    print(*key, count)
