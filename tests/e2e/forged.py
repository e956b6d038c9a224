# SPDX-License-Identifier: BSD-3-Clause
"""forged.py PORT SERVER_PORT WHAT.. - somebody on the path between workers of this host and an aggregator.

TCP is passed on as it is, datagrams too, but for what he does to them:

  lines    before each line to a worker that has a proof go others: one that ends the job, without a proof and with this line's, and
           this line with another end; after a JOIN come some
  abort    the same before the fourth line of a worker that has a proof

  flip     one of fifty has another bit, anywhere, on either way
  data     one of fifty PUSHes and RESULTs has other data, and its own header
  double   before one of twenty goes another with its header and seal, and other data or other numbers; from the same socket
  knock    now and then a KNOCK in a worker's name, with its latest seal, from a socket of his own; answers to it are counted
  replay   once the first job's connections have ended: all its workers' datagrams, from a socket of the next one's

Prints what he has done on SIGTERM.
"""
import random
import select
import signal
import socket
import sys

port, server, what = int(sys.argv[1]), ("127.0.0.1", int(sys.argv[2])), set(sys.argv[3:])
rng = random.Random(5)
count = dict.fromkeys("passed lines abort flip data double knock answered replay".split(), 0)
PUSH, KNOCK, RESULT = 2, 4, 0x82  # PROTOCOL.md 2.2


def finish(*_):
    print(" ".join(f"{name}={number}" for name, number in count.items()), flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, finish)
listener = socket.create_server(("127.0.0.1", port))
front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
front.bind(("127.0.0.1", port))
front.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
accepted = set()
peers, clients, backs = {}, {}, {}  # TCP: each to the other; UDP: address to socket, and back
recorded, replaying = [], False


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
    if "replay" in what and not replaying and len(recorded) < 20000:
        recorded.append(data)
    if replaying and recorded:
        for old in recorded[:3]:
            back.send(old)
        count["replay"] += len(recorded[:3])
        del recorded[:3]
    if "knock" in what and rng.random() < 0.01:
        number = rng.choice((0, 1, 2**64 - 1)).to_bytes(8, "little")
        own.sendto(data[:3] + bytes([KNOCK]) + data[4:24] + number + bytes(600), server)
        count["knock"] += 1
    back.send(attacked(data, back.send))


END = b'{"type":"%s","rank":0,"code":"aborted","text":"forged"}'
# What a worker that joins would obey, if they were the aggregator's.
EARLY = b"""{"type":"next","next":"forged/next.0123456789abcdef","next_rank":0,"next_world":1,"without":"0000000000000000","came":1,"text":""}
{"type":"ping"}
{"type":"hello","version":3,"key":true,"software":"forged","nonce":"%s"}
""" % (b"5" * 64)
texts, proven = {}, {}  # by socket: what has come of a line; lines with a proof


def lines_of(sock, data):
    """The lines that are whole now, with those that he puts before them."""
    *lines, texts[sock] = (texts.get(sock, b"") + data).split(b"\n")
    out = []
    for line in lines:
        proof = line[:49]
        if proof[:1] != b"{":
            proven[sock] = proven.get(sock, 0) + 1
            whose = "abort" if sock in accepted else "lines"
            if whose in what and (whose == "lines" or proven[sock] == 4):
                end = END % (b"abort" if sock in accepted else b"failed")
                out += [end, proof + end, line[:-1] + b" }", end + proof]
                count[whose] += 4
        out.append(line)
        if "lines" in what and b'"type":"join"' in line:
            sock.sendall(EARLY)
            count["lines"] += 3
    return b"".join(line + b"\n" for line in out)


while True:
    readable, _, _ = select.select([listener, front, own, *peers, *backs], [], [])
    for sock in readable:
        if sock is listener:
            worker, _ = listener.accept()
            replaying = replaying or (bool(recorded) and not peers)
            aggregator = socket.create_connection(server)
            peers[worker], peers[aggregator] = aggregator, worker
            accepted.add(worker)
        elif sock is front:
            try:
                from_worker(*front.recvfrom(65536))
            except ConnectionRefusedError:
                pass
        elif sock is own:
            own.recv(65536)
            count["answered"] += 1
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
                peers[sock].sendall(lines_of(sock, data))
            except OSError:
                data = b""
            if not data:
                for end in (sock, peers[sock]):
                    peers.pop(end, None)
                    texts.pop(end, None)
                    accepted.discard(end)
                    end.close()
