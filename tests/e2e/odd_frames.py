# SPDX-License-Identifier: BSD-3-Clause
"""odd_frames.py FROM_IP TO_IP PORT TO_MAC - send odd frames by eth0, several of each kind; prints how many are damaged,
how many are for somebody else, and how many are well framed with bytes that are no packet of ours."""
import os
import random
import socket
import struct
import sys
import time

SIX = ":" in sys.argv[1]
FROM, TO = (socket.inet_pton(socket.AF_INET6 if SIX else socket.AF_INET, text) for text in sys.argv[1:3])
PORT = int(sys.argv[3])
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


def udp(payload, to=TO, port=PORT, right=True, none=False):
    head = struct.pack("!HHHH", 40000, port, 8 + len(payload), 0)
    pseudo = FROM + to + struct.pack("!HH", 17, 8 + len(payload))
    value = 0 if none else checksum(pseudo + head + payload) or 0xFFFF
    return head[:6] + struct.pack("!H", value if right else value ^ 0x0101) + payload


def ip(body, to=TO, protocol=17, options=b"", total=None, offset=0x4000, right=True, number=7):
    total = total if total is not None else 20 + len(options) + len(body)
    head = struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, total, number, offset, 64, protocol, 0, FROM, to) + options
    value = checksum(head) ^ (0 if right else 0x10)
    return head[:10] + struct.pack("!H", value) + head[12:] + body


def ip6(body, to=TO, protocol=17, extensions=b"", hops=64):
    return struct.pack("!B3xHBB16s16s", 0x60, len(extensions) + len(body), protocol, hops, FROM, to) + extensions + body


def icmp6(body, right=True, hops=255):
    value = checksum(FROM + TO + struct.pack("!II", len(body), 58) + body) ^ (0 if right else 0x10)
    return ip6(body[:2] + struct.pack("!H", value) + body[4:], protocol=58, hops=hops)


def asks():
    """A neighbour solicitation, which speaks of nobody's MAC address."""
    return struct.pack("!BBHI16s", 135, 0, 0, 0, TO) + b"\1\1" + bytes(6)


def ether(body, kind=0x86DD if SIX else 0x0800, tag=None, to=MAC):
    tags = b"" if tag is None else struct.pack("!HH", 0x8100, tag)
    return to + mine + tags + struct.pack("!H", kind) + body


def garbage():
    """Long enough for a header, and with another magic."""
    return b"\xff\xff" + os.urandom(random.randrange(40, 1400))


# Some of each kind: tests/unit/test_frame*.c and tests/fuzz/fuzz_frame.c have the others.
if SIX:
    opts = b"\x11\0\1\4" + bytes(4)  # 8 bytes of options before UDP
    damaged = [
        lambda: ether(ip6(udp(garbage(), right=False))),
        lambda: ether(ip6(udp(garbage()))[:30]),
        lambda: ether(ip6(udp(garbage()), protocol=0, extensions=opts)[:44]),  # an extension header, cut
        lambda: ether(icmp6(asks(), right=False)),
    ]
    others = [
        lambda: ether(ip6(udp(garbage())), tag=5),  # a VLAN
        lambda: ether(ip6(udp(garbage(), to=FROM), to=FROM)),  # our MAC address, another's IP address
        lambda: ether(icmp6(asks(), hops=64)),  # from beyond the link
        lambda: ether(ip6(os.urandom(100), protocol=132)),
    ]
    taken = [
        lambda: ether(ip6(udp(garbage()))),
        lambda: ether(ip6(udp(garbage()), protocol=0, extensions=opts)),
        lambda: ether(ip6(udp(garbage())), tag=0),  # a priority and no VLAN
        lambda: ether(ip6(udp(garbage())) + os.urandom(10)),  # bytes after the packet
    ]
else:
    damaged = [
        lambda: ether(ip(udp(garbage(), right=False))),
        lambda: ether(ip(udp(garbage()), right=False)),
        lambda: ether(ip(udp(garbage()), total=1500)[:200]),
        lambda: ether(b"\0\1\x08\0\6\4\0\1", kind=0x0806),  # ARP, cut
        lambda: ether(b"\0" + os.urandom(99), kind=0x86DD),  # no IPv6
    ]
    others = [
        lambda: ether(ip(udp(garbage())), tag=5),  # a VLAN
        lambda: ether(ip(udp(garbage(), port=9), to=TO)),
        lambda: ether(ip(udp(garbage(), to=FROM), to=FROM)),  # our MAC address, another's IP address
        lambda: ether(os.urandom(100), kind=0x88B5),
    ]
    taken = [
        lambda: ether(ip(udp(garbage()))),
        lambda: ether(ip(udp(garbage(), none=True))),
        lambda: ether(ip(udp(garbage()), options=b"\1" * 39 + b"\0")),
        lambda: ether(ip(udp(garbage())), tag=0),  # a priority and no VLAN
    ]
todo = [make for make in damaged + others + taken for _ in range(EACH)]
random.shuffle(todo)
for number, make in enumerate(todo):
    wire.send(make()[:1514])
    if number % 10 == 0:  # a port whose thread waits for a CPU holds some hundred
        time.sleep(0.001)
# Datagrams in two pieces: a packet socket of DPDK's gets those of IPv4 joined. And pieces without the other half.
for number in range(EACH):
    whole = udp(garbage())
    if SIX:
        wire.send(ether(ip6(whole[:24], protocol=44, extensions=struct.pack("!BBHI", 17, 0, 1, number))))
        continue
    wire.send(ether(ip(whole[:24], offset=0x2000, number=number)))
    wire.send(ether(ip(whole[24:], offset=0x0003, number=number)))
    wire.send(ether(ip(whole[24:], offset=0x0003, number=EACH + number)))
print(EACH * (len(damaged) + SIX), EACH * len(others), EACH * (len(taken) + (not SIX)))
