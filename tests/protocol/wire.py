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
ANNOUNCEMENT = struct.Struct("<QQIIIHHHhBBBB")
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
    """6.1: all fields in the table's order; the last is bitmap and blocks."""
    return ANNOUNCEMENT.pack(*fields[:-1]) + fields[-1]


def bitmap(bits):
    """6.1: 64-bit words, least significant bit first."""
    padded = np.zeros((len(bits) + 63) // 64 * 64, dtype=bool)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").tobytes()


def bits(data, count):
    """The first `count` bits of a bitmap and what follows it; None where it does not fit."""
    size = (count + 63) // 64 * 8
    found = np.unpackbits(np.frombuffer(data[:size], dtype=np.uint8), bitorder="little").astype(bool)
    if len(data) < size or found[count:].any():
        return None, b""
    return found[:count], data[size:]


class Plan(NamedTuple):
    """7"""

    tag: int
    segment: int
    frame_count: int
    status: int
    exponent: int
    flags: int
    rest: bytes  # bitmap and sums, or what did not match


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
