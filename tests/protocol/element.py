# SPDX-License-Identifier: BSD-3-Clause
"""Element types, zeros and fixed point: PROTOCOL.md 3 and 9. bf16 has no type in numpy: its bits are in u16."""

from typing import NamedTuple

import numpy as np

from wire import NO_EXPONENT

SUM, AVERAGE, MINIMUM, MAXIMUM, PRODUCT = range(1, 6)
NATIVE, FIXED32 = 0, 1


class Type(NamedTuple):
    """3"""

    number: int
    array: str  # numpy's name of the type
    bits: str  # of an unsigned integer of the same size
    is_float: bool


TYPES = {
    "f32": Type(1, "<f4", "<u4", True),
    "f16": Type(2, "<f2", "<u2", True),
    "bf16": Type(3, "<u2", "<u2", True),
    "f64": Type(4, "<f8", "<u8", True),
    "i32": Type(5, "<i4", "<u4", False),
    "i64": Type(6, "<i8", "<u8", False),
}


def nonzero(array, kind):
    """3: which elements are not zero; -0.0 is."""
    bits = array.view(kind.bits)
    return (bits << 1) != 0 if kind.is_float else bits != 0


def exponent(values):
    """9.1: (the smallest E with |x| < 2^E for all finite values, does a NaN or infinity occur?)"""
    finite = np.isfinite(values)
    largest = float(np.max(np.abs(values[finite]), initial=0))
    return int(np.frexp(largest)[1]) if largest else NO_EXPONENT, not finite.all()


def shift(E, N):
    """9.2: s, with h = ceil(log2 N)"""
    return 30 - (N - 1).bit_length() - E


def to_fixed(values, s):
    """9.2: to nearest even; a product with a power of two is exact in f64."""
    return np.rint(values.astype(np.float64) * 2.0**s).astype("<i4")


def from_fixed(sums, s, divisor):
    """9.2: (float)sum * 2^-s, divided by N for an average; 2^-s need not be an f32."""
    with np.errstate(over="ignore"):
        result = (sums.astype(np.float32).astype(np.float64) * 2.0**-s).astype(np.float32)
    return result / np.float32(divisor)
