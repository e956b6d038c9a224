# SPDX-License-Identifier: BSD-3-Clause
"""Seals and their keys: PROTOCOL.md 2.4 and 5.2. Plain integers, slow; NH of what is large by numpy."""

import functools
import hashlib
import re

import numpy as np

MASK = (1 << 64) - 1
CHUNK, SHIFT = 4096, 16
KNOCKS = (4, 0x84, 0x85)  # their edge means nothing


@functools.lru_cache
def job_key(text):
    """5.2: the 32 bytes of a key's text."""
    if re.fullmatch("[0-9a-f]{64}", text):
        return bytes.fromhex(text)
    return hashlib.scrypt(text.encode(), salt=b"winnow key 2", n=16384, r=8, p=1, maxmem=1 << 26, dklen=32)


class Keys:
    """5.2: of the seed that WELCOME has, and of what the connection exports."""

    def __init__(self, seed, worker):
        made = hashlib.shake_256(seed).digest(16 + CHUNK + SHIFT)
        self.group, self.stretch, self.worker = made[:16], made[16:], worker

    def sealed(self, datagram, edge):
        return datagram[:8] + seal(self.stretch, self.worker, datagram, edge).to_bytes(8, "little") + datagram[16:]

    def opened(self, datagram, edge):
        """The datagram with zeros where its seal was, if that was right; else None."""
        if len(datagram) < 32:
            return None
        right = seal(self.stretch, self.group, datagram, edge)
        return datagram[:8] + bytes(8) + datagram[16:] if right == int.from_bytes(datagram[8:16], "little") else None


def siphash(key, data):
    """SipHash-2-4, as its paper has it."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    rotate = lambda x, bits: (x << bits | x >> (64 - bits)) & MASK

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    whole = len(data) // 8 * 8
    last = data[whole:] + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, whole + 8, 8):
        word = int.from_bytes(data[at : at + 8] if at < whole else last, "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def nh_slowly(stretch, data):
    """2.4: both passes over at most 4096 bytes."""
    data += bytes(-len(data) % 8)
    word = lambda text, at: int.from_bytes(text[at : at + 4], "little")
    sums = []
    for shift in (0, SHIFT):
        total = 0
        for at in range(0, len(data), 8):
            low = (word(data, at) + word(stretch, at + shift)) % 2**32
            high = (word(data, at + 4) + word(stretch, at + 4 + shift)) % 2**32
            total += low * high
        sums.append(total % 2**64)
    return sums


def nh(stretch, data):
    """The same, by numpy."""
    words = np.frombuffer(data + bytes(-len(data) % 8), dtype="<u4")
    sums = []
    for shift in (0, SHIFT):
        t = words + np.frombuffer(stretch, dtype="<u4", count=len(words), offset=shift)
        sums.append(int((t[::2].astype("<u8") * t[1::2]).sum()))
    return sums


def seal(stretch, key, datagram, edge, nh=nh):
    """2.4: of a datagram, whatever stands in its seal's place; edge: a number near its own, upper half and all."""
    own = int.from_bytes(datagram[20:24], "little")
    near = edge + ((own - edge + 2**31) % 2**32) - 2**31
    high = 0 if datagram[3] in KNOCKS else near >> 32 & 0xFFFFFFFF
    said = datagram[:8] + datagram[16:32] + high.to_bytes(4, "little") + len(datagram).to_bytes(4, "little")
    for at in range(32, len(datagram), CHUNK):
        for number in nh(stretch, datagram[at : at + CHUNK]):
            said += number.to_bytes(8, "little")
    return siphash(key, said)
