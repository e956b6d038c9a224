# SPDX-License-Identifier: BSD-3-Clause
"""Datagrams as bytes: PROTOCOL.md 2.2, 6.1, 7 and 11.1. What does not fit is None, and is dropped."""

import struct
from typing import NamedTuple

import numpy as np

MAGIC, VERSION, EVERYONE = 0x4E57, 3, 0xFFFF
ANNOUNCE, PUSH, STATUS, KNOCK = range(1, 5)
PLAN, RESULT, STATUS_BACK, KNOCKED, PROBE = range(0x81, 0x86)
ALL, NONE, EAGER, NONFINITE, SCATTER = 1, 2, 4, 8, 16
NO_EXPONENT = -32768

HEADER_BYTES = 32
TO_AGGREGATOR = struct.Struct("<HBBHHQIIHHI")
TO_WORKER = struct.Struct("<HBBHHQIIHHI")
STATED = struct.Struct("<IB3xII")
ANNOUNCEMENT = struct.Struct("<QQQIIIHHHhBBBB")
PLANNED = struct.Struct("<QIIHhB3x")
MISMATCH = struct.Struct("<QQHHHxx")


def to_aggregator(kind, channel, worker, token, frame, ack, window=0, sequence=0, pushed=0, body=b""):
    """2.2: a worker's datagram. Numbers wrap."""
    frame, ack, sequence, pushed = frame & 0xFFFFFFFF, ack & 0xFFFFFFFF, sequence & 0xFFFF, pushed & 0xFFFFFFFF
    return TO_AGGREGATOR.pack(MAGIC, VERSION, kind, channel, worker, token, frame, ack, window, sequence, pushed) + body


def knock(channel, worker, token, count, number, size):
    """5.3"""
    halves = (number & 0xFFFF, number >> 16 & 0xFFFF, number >> 32)
    return to_aggregator(KNOCK, channel, worker, token, count, 0, *halves).ljust(size, b"\0")


def number_of(packet):
    """2.2: of a KNOCKED."""
    return packet.window | packet.sequence << 16 | packet.planned << 32


class Packet(NamedTuple):
    """2.2: a datagram to a worker."""

    kind: int
    channel: int
    worker: int
    token: int
    frame: int
    base: int
    window: int
    sequence: int
    planned: int
    body: bytes


def to_worker(datagram):
    if len(datagram) < HEADER_BYTES:
        return None
    magic, version, *fields = TO_WORKER.unpack_from(datagram)
    if (magic, version) != (MAGIC, VERSION):
        return None
    return Packet(*fields, datagram[HEADER_BYTES:])


def announcement(*fields):
    """6.1: all fields in the table's order; the last is the set and blocks."""
    return ANNOUNCEMENT.pack(*fields[:-1]) + fields[-1]


def bitmap(bits):
    """6.6: 64-bit words, least significant bit first."""
    padded = np.zeros((len(bits) + 63) // 64 * 64, dtype=bool)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").tobytes()


def gaps(bits):
    """6.6: r, then the gaps before the blocks of the set."""
    blocks = np.flatnonzero(bits)
    distances = np.diff(blocks, prepend=-1) - 1
    r = parameter(len(blocks), int(distances.sum()))
    ends = 5 + np.cumsum((distances >> r) + 1 + r)  # of the codes
    out = np.zeros(int(ends[-1]) if len(ends) else 5, dtype=bool)
    out[:5] = r >> np.arange(5) & 1
    out[ends - r - 1] = True
    for i in range(r):
        out[ends - r + i] = distances >> i & 1
    return np.packbits(out, bitorder="little").tobytes()


def parameter(s, z):
    """6.6: the largest r with s * 2^r <= z"""
    r = 0
    while 0 < s << r + 1 <= z:
        r += 1
    return r


def set_of(bits):
    """6.6: the shorter one"""
    return min(bitmap(bits), gaps(bits), key=len)


def bits(data, count):
    """6.6: the set, a bit for each of `count` blocks; None where it does not fit."""
    size = (count + 63) // 64 * 8
    flat = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if len(data) == size:
        return None if flat[count:].any() else flat[:count].astype(bool)
    if not 0 < len(data) < size:
        return None
    r = int(flat[:5] @ (1 << np.arange(5)))
    found, at, block = np.zeros(count, dtype=bool), 5, -1
    text = int.from_bytes(data, "little")
    for one in np.flatnonzero(flat).tolist():
        if one < at:
            continue  # a part of the code before
        block += 1 + (one - at << r) + (text >> one + 1 & (1 << r) - 1)
        if block >= count:
            return None
        found[block] = True
        at = one + 1 + r
    return found if gaps(found) == data else None


def parts(flags, rest):
    """6.1, 7: the set's bytes, and those of the blocks; None where it does not fit."""
    if flags & 3:
        return b"", rest
    if not flags & EAGER:
        return rest, b""
    size = int.from_bytes(rest[:2], "little")
    return (rest[2 : 2 + size], rest[2 + size :]) if len(rest) >= 2 + size else None


class Plan(NamedTuple):
    """7"""

    tag: int
    segment: int
    frame_count: int
    status: int
    exponent: int
    flags: int
    rest: bytes  # set and sums, or what did not match


def plan(body):
    if len(body) < PLANNED.size:
        return None
    return Plan(*PLANNED.unpack_from(body), body[PLANNED.size :])


class Mismatch(NamedTuple):
    """11.1"""

    value_a: int
    value_b: int
    rank_a: int
    rank_b: int
    field: int


def mismatch(rest):
    return Mismatch(*MISMATCH.unpack(rest)) if len(rest) == MISMATCH.size else None


def words_of(frames):
    """2.5: (first, words) of as many of these frames, in ascending order, as fit."""
    bits = sum(1 << frame - frames[0] for frame in frames if frame - frames[0] < 1024)
    return (frames[0] if frames else 0), bits.to_bytes((bits.bit_length() + 63) // 64 * 8, "little")


def status(stamp, asks, words=b"", held=0, marked=0):
    """2.5: the body"""
    return STATED.pack(stamp & 0xFFFFFFFF, asks, held, marked) + words


def stated(body):
    """2.5: (stamp, flags, held, marked, words), or None"""
    words = len(body) - STATED.size
    if words % 8 or not 0 <= words <= 128 or body[4] > 1:
        return None
    return *STATED.unpack_from(body), body[STATED.size :]


def frames_of(first, words):
    """2.5: the frames listed."""
    bits = int.from_bytes(words, "little")
    return [first + i for i in range(bits.bit_length()) if bits >> i & 1]
