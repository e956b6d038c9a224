# SPDX-License-Identifier: BSD-3-Clause
"""Datagrams as bytes: PROTOCOL.md 2.2, 6.1, 7 and 11.1. What does not fit is None, and is dropped."""

import struct
from typing import NamedTuple

import numpy as np

MAGIC, VERSION, EVERYONE = 0x4E57, 2, 0xFFFF
ANNOUNCE, PUSH, ACK, NACK, ASK, KNOCK = range(1, 7)
PLAN, RESULT, CREDIT, WANT, KNOCKED, PROBE = 0x81, 0x82, 0x83, 0x84, 0x86, 0x87
ALL, NONE, EAGER, NONFINITE, SCATTER = 1, 2, 4, 8, 16
NO_EXPONENT = -32768

HEADER_BYTES = 32
TO_AGGREGATOR = struct.Struct("<HBBHHQIIQ")
TO_WORKER = struct.Struct("<HBBHHQIIHHI")
ANNOUNCEMENT = struct.Struct("<QQQIIIHHHhBBBB")
PLANNED = struct.Struct("<QIIHhB3x")
MISMATCH = struct.Struct("<QQHHHxx")


def to_aggregator(kind, channel, worker, token, frame, ack, mask=0, body=b""):
    """2.2: a worker's datagram. Frame numbers wrap."""
    frame, ack = frame & 0xFFFFFFFF, ack & 0xFFFFFFFF
    return TO_AGGREGATOR.pack(MAGIC, VERSION, kind, channel, worker, token, frame, ack, mask) + body


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
    """The frames of a NACK, in ascending order: [(first, words)], at most 16 words each."""
    runs = []
    for frame in frames:
        if not runs or frame - runs[-1][0] >= 1024:
            runs.append((frame, 0))
        first, bits = runs[-1]
        runs[-1] = (first, bits | 1 << (frame - first))
    return [(first, bits.to_bytes((bits.bit_length() + 63) // 64 * 8, "little")) for first, bits in runs]


def frames_of(first, words):
    """The frames that a WANT lists; None if it has not 1 to 16 words."""
    if len(words) % 8 or not 8 <= len(words) <= 128:
        return None
    bits = int.from_bytes(words, "little")
    return [first + i for i in range(bits.bit_length()) if bits >> i & 1]
