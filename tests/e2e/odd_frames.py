# SPDX-License-Identifier: BSD-3-Clause
"""odd_frames.py FROM_IP TO_IP PORT TO_MAC - send odd frames by eth0, several of each kind; prints how many are damaged,
how many are for somebody else, and how many are well framed with bytes that are no packet of ours."""
import os
import random
import socket
import struct
import sys

FROM, TO, PORT = socket.inet_aton(sys.argv[1]), socket.inet_aton(sys.argv[2]), int(sys.argv[3])
MAC = bytes.fromhex(sys.argv[4].replace(":", ""))
EACH = 200
random.seed(4)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("eth0", 0))
mine = wire.getsockname()[4]


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def udp(payload, to=TO, port=PORT, right=True, none=False, length=None):
    head = struct.pack("!HHHH", 40000, port, length or 8 + len(payload), 0)
    pseudo = FROM + to + struct.pack("!BBH", 0, 17, 8 + len(payload))
    value = 0 if none else checksum(pseudo + head + payload) or 0xFFFF
    return head[:6] + struct.pack("!H", value if right else value ^ 0x0101) + payload


def ip(body, to=TO, protocol=17, first=0x45, options=b"", total=None, offset=0x4000, right=True, number=7):
    total = total if total is not None else 20 + len(options) + len(body)
    head = struct.pack("!BBHHHBBH4s4s", first + len(options) // 4, 0, total, number, offset, 64, protocol, 0, FROM, to) + options
    value = checksum(head) ^ (0 if right else 0x10)
    return head[:10] + struct.pack("!H", value) + head[12:] + body


def ether(body, kind=0x0800, tag=None, to=MAC):
    tags = b"" if tag is None else struct.pack("!HH", 0x8100, tag)
    return to + mine + tags + struct.pack("!H", kind) + body


def garbage():
    """Long enough for a header, and with another magic."""
    return b"\xff\xff" + os.urandom(random.randrange(40, 1400))


damaged = [
    lambda: ether(ip(udp(garbage(), right=False))),
    lambda: ether(ip(udp(garbage()), right=False)),
    lambda: ether(ip(udp(garbage(), length=5))),
    lambda: ether(ip(udp(garbage(), length=3000))),
    lambda: ether(ip(udp(garbage()), total=19)),
    lambda: ether(ip(udp(garbage()), total=1500)[:200]),
    lambda: ether(ip(udp(garbage()), first=0x65)),
    lambda: ether(ip(udp(garbage()), first=0x44)),
    lambda: ether(ip(udp(garbage()))[:12]),  # no whole header
    lambda: ether(b""),
    lambda: ether(b"\0\1\x08\0\6\4\0\1", kind=0x0806),  # ARP, cut
]
others = [
    lambda: ether(ip(udp(garbage())), tag=5),  # a VLAN
    lambda: ether(ip(udp(garbage())), tag=0x2005),
    lambda: ether(ip(udp(garbage(), port=9), to=TO)),
    lambda: ether(ip(udp(garbage(), to=FROM), to=FROM)),  # our MAC address, another's IP address
    lambda: ether(os.urandom(100), kind=0x86DD),
    lambda: ether(os.urandom(100), kind=0x88B5),
    lambda: ether(ip(os.urandom(100), protocol=132)),
]
taken = [
    lambda: ether(ip(udp(garbage()))),
    lambda: ether(ip(udp(garbage(), none=True))),
    lambda: ether(ip(udp(garbage()), options=b"\1" * 8)),
    lambda: ether(ip(udp(garbage()), options=b"\1" * 39 + b"\0")),
    lambda: ether(ip(udp(garbage())), tag=0),  # a priority and no VLAN
    lambda: ether(ip(udp(garbage())), tag=0xE000),
    lambda: ether(ip(udp(garbage()), offset=0)),
    lambda: ether(ip(udp(garbage())) + os.urandom(10)),  # bytes after the packet
]
todo = [make for make in damaged + others + taken for _ in range(EACH)]
random.shuffle(todo)
for make in todo:
    wire.send(make()[:1514])
# Datagrams in two pieces: a packet socket of DPDK's gets them joined. And pieces without the other half.
for number in range(EACH):
    whole = udp(garbage())
    wire.send(ether(ip(whole[:24], offset=0x2000, number=number)))
    wire.send(ether(ip(whole[24:], offset=0x0003, number=number)))
    wire.send(ether(ip(whole[24:], offset=0x0003, number=EACH + number)))
print(EACH * len(damaged), EACH * len(others), EACH * len(taken) + EACH)
