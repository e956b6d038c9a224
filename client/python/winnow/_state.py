# SPDX-License-Identifier: BSD-3-Clause
"""States that workers give to each other, as bytes that contain no code.

A state consists of dict, list, tuple, None, bool, int, float, str and tensors. Its bytes are a magic, the length of a
description (8 bytes, least significant first), the description, which is JSON, and the tensors' values, each from a
multiple of 16 on. In the description a list stands for a container. Its first element is the kind, and the rest is the
content: for a dictionary, keys and values by turns, and for a tensor, its type and shape.
"""

import collections
import itertools
import json
import math
import zlib

import numpy
import torch

from . import _plain

_MAGIC = b"winnow1\n"
_HEAD = len(_MAGIC) + 8
_ALIGN = 16
_DEPTH = 64
_DIMENSIONS = 64
_TEXT_MAX = 1 << 26  # the most bytes of a description
_NAMES = (
    "float64 float32 float16 bfloat16 complex128 complex64 int64 int32 int16 int8 uint8 bool "
    "uint64 uint32 uint16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"
)
_DTYPES = {name: getattr(torch, name) for name in _NAMES.split() if hasattr(torch, name)}  # torch 1.13 lacks some
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_DICTS = {"dict": dict, "ordered": collections.OrderedDict, "counter": collections.Counter}
_LISTS = {"list": list, "tuple": tuple}
_KINDS = {kind: name for name, kind in {**_DICTS, **_LISTS}.items()}
_WANT = "want dict, list, tuple, None, bool, int, float, str and tensors"


class StateError(ValueError):
    """The bytes are not a state."""


def pack(value, name):
    """Returns the bytes of a state as an array of int32. `name` is for errors."""
    tensors = []
    text = json.dumps(_described(value, name, tensors, 0)).encode()
    if len(text) > _TEXT_MAX:
        raise TypeError(f"{name} has {len(text)} bytes beside its tensors: want {_TEXT_MAX} at most")
    at = _places(_HEAD + len(text), map(_plain.size, tensors))
    room = numpy.zeros(-(-at[-1] // 4), numpy.int32)
    data = room.view(numpy.uint8)
    data[:_HEAD] = numpy.frombuffer(_MAGIC + len(text).to_bytes(8, "little"), numpy.uint8)
    data[_HEAD : _HEAD + len(text)] = numpy.frombuffer(text, numpy.uint8)
    for tensor, begin in zip(tensors, at):
        torch.from_numpy(data)[begin : begin + _plain.size(tensor)] = _plain.bytes_of(tensor.cpu())
    return room


def unpack(room):
    """Returns the state in such an array, which comes from another worker. Raises StateError if it contains none."""
    data = room.view(numpy.uint8)
    length = int.from_bytes(data[len(_MAGIC) : _HEAD].tobytes(), "little")
    if data[: len(_MAGIC)].tobytes() != _MAGIC or length > min(len(data) - _HEAD, _TEXT_MAX):
        raise StateError("it has another format")
    try:
        description = json.loads(data[_HEAD : _HEAD + length].tobytes())
    except (ValueError, RecursionError) as error:
        raise StateError(f"its description is not JSON: {error}") from None
    reader = _Reader(data, _HEAD + length)
    value = reader.value(description, 0)
    reader.end()
    return value


def check(value, name):
    """Raises a TypeError with the place if `value` is not a state."""
    _described(value, name, [], 0)


def leaves(value, name):
    """Returns pairs (place, checksum) of a state's contents, in the same order for equal states."""
    found = []

    def look(part, where):
        kind = _KINDS.get(type(part))
        if kind is not None and not part:
            found.append((where, zlib.crc32(kind.encode())))
        elif kind in _DICTS:
            for key in sorted(part, key=repr):
                look(part[key], f"{where}[{key!r}]")
        elif kind in _LISTS:
            for number, each in enumerate(part):
                look(each, f"{where}[{number}]")
        elif isinstance(part, torch.Tensor):
            found.append((where, checksum(part, f"{part.dtype} {tuple(part.shape)}")))
        else:
            found.append((where, zlib.crc32(repr(float(part) if isinstance(part, float) else part).encode())))

    check(value, name)
    look(value, name)
    return found


def checksum(tensor, text=""):
    return zlib.crc32(_plain.bytes_of(tensor.cpu()).numpy(), zlib.crc32(text.encode()))


def _places(first, sizes):
    """Returns where tensors of these sizes begin, and the end of the last."""
    places, end = [], first
    for size in sizes:
        places.append(-(-end // _ALIGN) * _ALIGN)
        end = places[-1] + size
    return [*places, end]


def _described(value, where, tensors, depth):
    if depth > _DEPTH:
        raise TypeError(f"{where} is nested more than {_DEPTH} deep: is it in itself?")
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):  # also numpy's
        return float(value)
    kind = _KINDS.get(type(value))
    if kind in _LISTS:
        return [kind, *(_described(part, f"{where}[{n}]", tensors, depth + 1) for n, part in enumerate(value))]
    if kind in _DICTS:
        for key in value:
            if key is not None and type(key) not in (bool, int, str, float):
                raise TypeError(f"{where} has the key {key!r}, which is {_called(key)}: want None, bool, int, float or str")
        pairs = [(key, _described(part, f"{where}[{key!r}]", tensors, depth + 1)) for key, part in value.items()]
        return [kind, *itertools.chain.from_iterable(pairs)]
    if type(value) in _TENSORS and value.layout == torch.strided and value.device.type in ("cpu", "cuda"):
        name = str(value.dtype)[len("torch.") :]
        if name in _DTYPES:
            tensors.append(value.detach())
            return ["tensor", name, *value.shape]
    raise TypeError(f"{where} is {_called(value)}: {_WANT}, because other workers get it")


def _called(value):
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} of {value.dtype}, {value.layout} on {value.device}"
    return f"of type {type(value).__module__}.{type(value).__qualname__}"


class _Reader:
    """Reads a description, and takes the tensors in its order."""

    def __init__(self, data, at):
        self._data, self._at = data, at

    def value(self, found, depth):
        if not isinstance(found, list):
            if isinstance(found, dict):
                raise StateError("its description has an object")
            return found
        if depth > _DEPTH:
            raise StateError(f"it is nested more than {_DEPTH} deep")
        kind, *rest = found or [None]
        if kind == "tensor":
            return self._tensor(*(rest or [None]))
        if isinstance(kind, str) and kind in _LISTS:
            return _LISTS[kind]([self.value(part, depth + 1) for part in rest])
        if isinstance(kind, str) and kind in _DICTS:
            return self._dict(_DICTS[kind], rest, depth)
        raise StateError("its description has a container of unknown kind")

    def _dict(self, kind, rest, depth):
        keys = rest[::2]
        if len(rest) % 2 or any(isinstance(key, (list, dict)) for key in keys):
            raise StateError("its description has a dictionary without keys")
        value = kind()
        for key, part in zip(keys, rest[1::2]):
            value[key] = self.value(part, depth + 1)
        if len(value) != len(keys):
            raise StateError("its description has a key twice")
        return value

    def _tensor(self, name, *shape):
        dtype = _DTYPES.get(name) if isinstance(name, str) else None
        if dtype is None:
            raise StateError("it has a tensor of unknown type")
        if len(shape) > _DIMENSIONS or any(type(side) is not int or side < 0 for side in shape):
            raise StateError("it has a tensor without a shape")
        size = math.prod(shape) * torch.empty(0, dtype=dtype, device="cpu").element_size()
        begin, end = _places(self._at, [size])
        sides = math.prod(max(side, 1) for side in shape)  # torch multiplies the sides before it notices that one is 0
        if end > len(self._data) or sides > 2**62:
            raise StateError("it has a tensor that is larger than its data")
        self._at = end
        data = torch.from_numpy(self._data[begin:end].copy())
        if dtype == torch.bool and size > 0 and int(data.max()) > 1:
            raise StateError("it has a truth value other than 0 and 1")
        return data.view(dtype).view(shape) if size > 0 else torch.empty(shape, dtype=dtype, device="cpu")

    def end(self):
        if -(-self._at // 4) * 4 != len(self._data):
            raise StateError("it has more data than it describes")
