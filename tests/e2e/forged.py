# SPDX-License-Identifier: BSD-3-Clause
"""forged.py PORT SERVER_PORT WHAT.. - somebody on the path between workers of this host and an aggregator.

TCP is passed on as it is, datagrams too, but for what he does to them:

  abort    after some records of TLS from a worker goes one of his own, with its last one's length

  flip     one of fifty has another bit, anywhere, on either way
  data     one of fifty PUSHes and RESULTs has other data, and its own header
  double   before one of twenty goes another with its header and seal, and other data or other numbers; from the same socket

Prints what he has done on SIGTERM.
"""
import random
import select
import signal
import socket
import sys

port, server, what = int(sys.argv[1]), ("127.0.0.1", int(sys.argv[2])), set(sys.argv[3:])
rng = random.Random(5)
count = dict.fromkeys("passed abort flip data double".split(), 0)
PUSH, RESULT = 2, 0x82  # PROTOCOL.md 2.2


def finish(*_):
    print(" ".join(f"{name}={number}" for name, number in count.items()), flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, finish)
listener = socket.create_server(("127.0.0.1", port))
front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
front.bind(("127.0.0.1", port))
front.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
accepted = set()
peers, clients, backs = {}, {}, {}  # TCP: each to the other; UDP: address to socket, and back


def other_data(data):
    return data[:32] + bytes(byte ^ 0x11 for byte in data[32:])


def other_numbers(data):
    at = rng.choice((3, 6, 16, 20, 24, 31))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def attacked(data, send):
    """What goes on in place of `data`; more goes by send()."""
    count["passed"] += 1
    if "double" in what and rng.random() < 0.05:
        send(other_data(data) if len(data) > 32 and rng.random() < 0.5 else other_numbers(data))
        count["double"] += 1
    if "flip" in what and rng.random() < 0.02:
        bit = rng.randrange(len(data) * 8)
        data = data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
        count["flip"] += 1
    if "data" in what and data[3] in (PUSH, RESULT) and rng.random() < 0.02:
        data = other_data(data)
        count["data"] += 1
    return data


def from_worker(data, address):
    if address not in clients:
        clients[address] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        clients[address].connect(server)
        clients[address].setblocking(False)
        backs[clients[address]] = address
    back = clients[address]
    back.send(attacked(data, back.send))


records = {}  # by socket: TLS records with what a worker says


def forged_record(sock, data):
    """The bytes, with a record behind them that the worker has not made."""
    if sock in accepted and data[:1] == b"\x17":
        records[sock] = records.get(sock, 0) + 1
        if "abort" in what and records[sock] == 4:
            length = int.from_bytes(data[3:5], "big")
            data += data[:5] + rng.randbytes(length)
            count["abort"] += 1
    return data


while True:
    readable, _, _ = select.select([listener, front, *peers, *backs], [], [])
    for sock in readable:
        if sock is listener:
            worker, _ = listener.accept()
            aggregator = socket.create_connection(server)
            peers[worker], peers[aggregator] = aggregator, worker
            accepted.add(worker)
        elif sock is front:
            try:
                from_worker(*front.recvfrom(65536))
            except ConnectionRefusedError:
                pass
        elif sock in backs:
            try:
                data = sock.recv(65536)
                to = backs[sock]
                front.sendto(attacked(data, lambda more: front.sendto(more, to)), to)
            except (ConnectionRefusedError, BlockingIOError):
                pass
        elif sock in peers:
            try:
                data = sock.recv(65536)
                peers[sock].sendall(forged_record(sock, data))
            except OSError:
                data = b""
            if not data:
                for end in (sock, peers[sock]):
                    peers.pop(end, None)
                    accepted.discard(end)
                    end.close()
