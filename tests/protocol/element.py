# SPDX-License-Identifier: BSD-3-Clause
"""Element types, zeros and fixed point: PROTOCOL.md 3 and 9. bf16 has no type in numpy: its bits are in u16."""

from typing import NamedTuple

import numpy as np

from wire import NO_EXPONENT

SUM, AVERAGE, MINIMUM, MAXIMUM, PRODUCT = range(1, 6)
NATIVE, BF16, FIXED32, FIXED16, FIXED8 = 0, 3, 5, 7, 8
FORMS = {"native": NATIVE, "bf16": BF16, "fixed32": FIXED32, "fixed16": FIXED16, "fixed8": FIXED8}
INTEGERS = {FIXED32: "<i4", FIXED16: "<i2", FIXED8: "<i1"}


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


def wire_bytes(kind, form):
    """4: e, the bytes that an element has on the wire"""
    if form == BF16:
        return 2
    return np.dtype(INTEGERS.get(form, kind.array)).itemsize


def nonzero(array, kind):
    """3: which elements are not zero; -0.0 is."""
    bits = array.view(kind.bits)
    return (bits << 1) != 0 if kind.is_float else bits != 0


def exponent(values):
    """9.1: (the smallest E with |x| < 2^E for all finite values, does a NaN or infinity occur?)"""
    finite = np.isfinite(values)
    largest = float(np.max(np.abs(values[finite]), initial=0))
    return int(np.frexp(largest)[1]) if largest else NO_EXPONENT, not finite.all()


def headroom(N):
    """9.2: h = ceil(log2 N)"""
    return (N - 1).bit_length()


def shift(form, E, N):
    """9.2: s"""
    return {FIXED32: 30 - headroom(N), FIXED16: 15, FIXED8: 7}[form] - E


def to_fixed(values, form, s):
    """9.2: to nearest even; a product with a power of two is exact in f64."""
    numbers = np.rint(values.astype(np.float64) * 2.0**s)
    if form != FIXED32:
        limit = np.iinfo(INTEGERS[form]).max
        numbers = np.clip(numbers, -limit, limit)
    return numbers.astype(INTEGERS[form])


def from_fixed(sums, form, s, N, divisor):
    """9.2: (float)sum * 2^-s, divided by N for an average; 2^-s need not be an f32."""
    if form != FIXED32:
        s -= headroom(N)
    with np.errstate(over="ignore"):
        result = (sums.astype(np.float32).astype(np.float64) * 2.0**-s).astype(np.float32)
    return result / np.float32(divisor)


def to_bf16(values):
    """9.4: to nearest even; as in section 3 a NaN stays one."""
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype("<u2")


def from_bf16(bits):
    return (bits.astype("<u4") << 16).view("<f4")
