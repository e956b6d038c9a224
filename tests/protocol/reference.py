# SPDX-License-Identifier: BSD-3-Clause
"""What an allreduce is, element by element (PROTOCOL.md 3), and tensors to try it with. Knows no blocks."""

import numpy as np

import element
from element import AVERAGE, MAXIMUM, MINIMUM, PRODUCT, SUM

OPERATIONS = {"sum": SUM, "avg": AVERAGE, "min": MINIMUM, "max": MAXIMUM, "prod": PRODUCT}


def widen(array, dtype):
    """To what is summed in."""
    if dtype == "bf16":
        return (array.astype("<u4") << 16).view("<f4")
    return array.astype("<f4") if dtype == "f16" else array


def narrow(array, dtype):
    """And back, to nearest even."""
    if dtype == "f16":
        return array.astype("<f2")
    if dtype != "bf16":
        return array
    bits = array.view("<u4").astype("<u8")
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype("<u2")


def reduce(tensors, dtype, reduction):
    fold = {SUM: np.add, AVERAGE: np.add, MINIMUM: np.minimum, MAXIMUM: np.maximum, PRODUCT: np.multiply}
    with np.errstate(all="ignore"):
        total = widen(tensors[0], dtype)
        for tensor in tensors[1:]:
            total = fold[reduction](total, widen(tensor, dtype))
        count = len(tensors)
        if reduction == AVERAGE and element.TYPES[dtype].is_float:
            total = total / total.dtype.type(count)
        elif reduction == AVERAGE:
            total = total // count + ((total % count != 0) & (total < 0))  # towards zero
        return narrow(total, dtype)


def differences(result, want, dtype):
    """Where bits differ, but for NaNs and the sign of zeros: the indices."""
    kind = element.TYPES[dtype]
    same = result.view(kind.bits) == want.view(kind.bits)
    if kind.is_float:
        a, b = widen(result, dtype), widen(want, dtype)
        same |= (np.isnan(a) & np.isnan(b)) | ((a == 0) & (b == 0))
    return np.flatnonzero(~same)


def tensor(rng, count, dtype, block=1, density=1.0, exact=False, special=0.0):
    """Random elements in a share of the blocks. exact: any order of additions or multiplications gives the same."""
    kind = element.TYPES[dtype]
    if kind.is_float:
        values = (
            rng.choice([-4, -2, -1, -0.5, 0.5, 1, 2, 4], count) if exact else rng.standard_normal(count) * 100
        )
        hit = rng.random(count) < special
        values[hit] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], hit.sum())
        array = narrow(values.astype("<f4"), dtype) if dtype in ("f16", "bf16") else values.astype(kind.array)
    else:
        info = np.iinfo(kind.array)
        array = rng.integers(info.min, info.max, count, dtype=kind.array, endpoint=True)
    blocks = rng.random(count // block + 1) < density
    array[~np.repeat(blocks, block)[:count]] = 0
    return array


def fixed(rng, count, scale):
    """Values of 23 binary orders of magnitude."""
    return (rng.standard_normal(count) * 2.0 ** rng.integers(-20, 3, count) * scale).astype("<f4")


def fixed_want(tensors, span, average, bits=None):
    """9.2, written a second time: segments of `span` elements, in Python's integers. bits: 15, 7; None: fixed32."""
    want, N = np.zeros_like(tensors[0]), len(tensors)
    h = (N - 1).bit_length()
    up = bits if bits else 30 - h
    limit = 2**bits - 1 if bits else 2**30
    for at in range(0, len(want), span):
        parts = [x[at : at + span].astype(np.float64) for x in tensors]
        E = max(int(np.frexp(np.abs(part).max(initial=0))[1]) for part in parts)
        total = sum(np.clip(np.rint(np.ldexp(part, up - E)), -limit, limit).astype(np.int64) for part in parts)
        if bits:  # the aggregator's division
            total, E = np.rint(np.ldexp(total.astype(np.float64), -h)).astype(np.int64), E + h
        result = np.ldexp(total.astype("<f4").astype(np.float64), E - up).astype("<f4")
        want[at : at + span] = result / np.float32(N) if average else result
    return want
