# SPDX-License-Identifier: BSD-3-Clause
"""Describes arrays and tensors for the library: address, element count, element type, memory.

This module imports neither numpy nor torch: a program that has their objects has imported them. Arrays of other
packages on a GPU (CuPy, Numba, ..) are recognized by __cuda_array_interface__.
"""

import collections
import math
import sys

from . import _native


# The types that __cuda_array_interface__ names, without byte order.
_INTERFACE_DTYPES = {"f4": "float32", "f2": "float16", "f8": "float64", "i4": "int32", "i8": "int64"}
_LEGACY_DEFAULT_STREAM = 1


class Buffer(collections.namedtuple("Buffer", "owner address count dtype writable memory stream", defaults=("host", None))):
    """The place of an array's elements. Keeps `owner`, and so the memory, alive.

    memory: "host" or "cuda". stream: with "cuda", the stream that produces the data.
    """

    __slots__ = ()


def describe(data, name):
    """Returns the Buffer of an array or tensor on the CPU or a GPU. `name` is the argument's name, for errors."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        return _of_tensor(torch, data, name)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(data, numpy.ndarray):
        return _of_array(data, name)
    if hasattr(data, "__cuda_array_interface__"):
        return _of_interface(data, data.__cuda_array_interface__, name)
    raise TypeError(
        f"{name} is of type {type(data).__name__}: want a numpy array or a torch tensor, "
        f"for example numpy.asarray({name}, dtype=numpy.float32)"
    )


def describe_on_host(data, name, what="lists of rows are"):
    """Like describe(), but refuses data on a GPU."""
    found = describe(data, name)
    if found.memory != "host":
        raise TypeError(f"{name} is on a GPU: {what} on the CPU; pass {name}.cpu()")
    return found


def row_length(values):
    """Returns the number of elements of values[i]."""
    if len(values.shape) == 0:
        raise ValueError("values has no rows: want an array with one row for each index")
    return math.prod(values.shape[1:])


def starts(index, count, length):
    """Returns a Buffer of the places of the first elements of `count` rows."""
    found = describe_on_host(index, "index")
    if found.dtype != _native.DTYPES["int64"]:
        raise TypeError("index is not int64")
    if found.count != count:
        raise ValueError(f"there are {found.count} indices and {count} rows of values")
    return describe(index * length, "index")


def new_rows(like, count):
    """Allocates `count` rows like those of `like`. Returns two addresses, and (index, values)."""
    shape = (count, *like.shape[1:])
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        pinned = torch.cuda.is_initialized() and like.is_pinned()  # then the data came from a GPU
        index = torch.empty(count, dtype=torch.int64, device="cpu", pin_memory=pinned)
        values = torch.empty(shape, dtype=like.dtype, device="cpu", pin_memory=pinned)
        return index.data_ptr(), values.data_ptr(), (index, values)
    numpy = sys.modules["numpy"]
    index = numpy.empty(count, dtype=numpy.int64)
    values = numpy.empty(shape, dtype=like.dtype)
    return index.ctypes.data, values.ctypes.data, (index, values)


def _of_tensor(torch, tensor, name):
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} is sparse ({tensor.layout}): pass {name}.to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{name} is on {tensor.device}: want the CPU or a CUDA GPU; pass {name}.cpu()")
    dtype = str(tensor.dtype)[len("torch.") :]
    _check_dtype(name, dtype, f"{name}.to(torch.{_nearest(dtype)})", f"torch.view_as_real({name})")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} is not contiguous: pass {name}.contiguous()")
    if tensor.is_neg():
        raise ValueError(f"{name} is a lazily negated view: pass {name}.resolve_neg()")
    where = ()
    if tensor.is_cuda:
        where = ("cuda", torch.cuda.current_stream(tensor.device).cuda_stream)
    return Buffer(tensor, tensor.data_ptr(), tensor.numel(), _native.DTYPES[dtype], True, *where)


def _of_array(array, name):
    dtype = array.dtype.name  # ml_dtypes adds "bfloat16"
    parts = "float64" if dtype == "complex128" else "float32"
    _check_dtype(name, dtype, f"{name}.astype(numpy.{_nearest(dtype)})", f"{name}.view(numpy.{parts})")
    if not array.dtype.isnative:
        raise TypeError(f'{name} has foreign byte order: pass {name}.astype({name}.dtype.newbyteorder("="))')
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} is not contiguous: pass numpy.ascontiguousarray({name})")
    return Buffer(array, array.ctypes.data, array.size, _native.DTYPES[dtype], array.flags.writeable)


def _of_interface(array, interface, name):
    kind = interface["typestr"]
    dtype = _INTERFACE_DTYPES.get(kind[1:], f"'{kind}'") if kind[0] != ">" else f"'{kind}'"
    if dtype not in _native.DTYPES:
        wanted = ", ".join(_INTERFACE_DTYPES.values())
        raise TypeError(f"{name} has dtype {dtype}: an array on a GPU is one of {wanted}")
    if interface.get("mask") is not None:
        raise TypeError(f"{name} is a masked array: pass one without a mask")
    shape, strides = interface["shape"], interface.get("strides")
    if strides is not None and not _is_contiguous(shape, strides, int(kind[2:])):
        raise ValueError(f"{name} is not contiguous: pass cupy.ascontiguousarray({name}) or the like")
    address, read_only = interface["data"]
    count = math.prod(shape)
    stream = interface.get("stream") or 0
    stream = 0 if stream == _LEGACY_DEFAULT_STREAM else stream
    return Buffer(array, address or 0, count, _native.DTYPES[dtype], not read_only, "cuda", stream)


def _is_contiguous(shape, strides, size):
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != size:
            return 0 in shape
        size *= length
    return True


def _check_dtype(name, dtype, fix, complex_fix):
    if dtype not in _native.DTYPES:
        fix = complex_fix if dtype.startswith("complex") else fix
        raise TypeError(f"{name} has dtype {dtype}: want one of {', '.join(_native.DTYPES)}; pass {fix}")


def _nearest(dtype):
    """Returns a supported type that holds most values of `dtype`, to suggest in an error."""
    if dtype in ("bool", "uint8", "int8", "uint16", "int16"):
        return "int32"
    if dtype.startswith(("uint", "int")):
        return "int64"
    return "float64" if dtype in ("float128", "longdouble", "float96") else "float32"
