# SPDX-License-Identifier: BSD-3-Clause
"""libwinnow through ctypes: where the library is, and client/winnow.h in Python's words.

tests/python/test_abi.py compiles the header and compares every number and offset in here.
"""

import ctypes
import ctypes.util
import os

from . import _programs

ABI_VERSION = 10

OK = 0
ERRORS = {
    "INVALID": 1,
    "MEMORY": 2,
    "SYSTEM": 3,
    "UNREACHABLE": 4,
    "REFUSED": 5,
    "MISMATCH": 6,
    "LOST": 7,
    "ABORTED": 8,
    "TIMEOUT": 9,
    "BUSY": 10,
    "PROTOCOL": 11,
    "GPU": 12,
    "MEMBERS": 13,
}
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "float64": 4, "int32": 5, "int64": 6}
SIZES = {1: 4, 2: 2, 3: 2, 4: 8, 5: 4, 6: 8}  # bytes, by these numbers
OPS = {"sum": 1, "avg": 2, "min": 3, "max": 4, "prod": 5}
MEMORIES = {"host": 0, "cuda": 1}
WIRES = {"auto": 0, "native": 1, "f32": 1, "fixed32": 2, "fixed16": 3, "fixed8": 4, "bf16": 5}


def _all(names, kind):
    return [(name, kind) for name in names.split()]


LEVELS = {"off": 0, "warn": 1, "info": 2}
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class Config(ctypes.Structure):
    _fields_ = [
        *_all("aggregators job", ctypes.c_char_p),
        *_all("rank world", ctypes.c_uint32),
        *_all("key_file key", ctypes.c_char_p),
        ("insecure_no_key", ctypes.c_int),
        ("block", ctypes.c_uint32),
        ("wire", ctypes.c_int),
        *_all("threads silence_ms timeout_ms join_timeout_ms", ctypes.c_uint32),
        ("multicast", ctypes.c_int),
        ("payload", ctypes.c_uint32),
        *_all("datapath eal device data_address gateway", ctypes.c_char_p),
        ("give_up", ctypes.POINTER(ctypes.c_int)),
        *_all("staging_mb dscp", ctypes.c_uint32),
        ("network", ctypes.c_int),
        ("memory_mb", ctypes.c_uint32),
        ("interface", ctypes.c_char_p),
        ("debug", ctypes.c_int),
        ("log", LOG),
        ("log_context", ctypes.c_void_p),
    ]


class Membership(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_char_p),
        *_all("rank world join_timeout_ms", ctypes.c_uint32),
        ("give_up", ctypes.POINTER(ctypes.c_int)),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("tag", ctypes.c_uint64),
        ("block", ctypes.c_uint32),
        ("wire", ctypes.c_int),
        ("memory", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("priority", ctypes.c_uint32),
        ("lost", ctypes.c_void_p),
    ]


class Segment(ctypes.Structure):
    _fields_ = [
        ("offset", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("row", ctypes.c_uint64),
        ("tile_rows", ctypes.c_uint32),
        ("tile_columns", ctypes.c_uint32),
    ]


class NodeId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class NodeConfig(ctypes.Structure):
    _fields_ = [
        ("config", ctypes.POINTER(Config)),
        ("id", NodeId),
        ("local_world", ctypes.c_uint32),
        ("local_rank", ctypes.c_uint32),
        ("gpu_count", ctypes.c_uint32),
        ("gpus", ctypes.POINTER(ctypes.c_int)),
    ]


class Choice(ctypes.Structure):
    _fields_ = [
        *_all("chunk k", ctypes.c_uint64),
        ("block", ctypes.c_uint32),
        ("decay", ctypes.c_float),
    ]


class OpStats(ctypes.Structure):
    _fields_ = _all("blocks blocks_nonzero blocks_union time_us staged_out_bytes staged_in_bytes", ctypes.c_uint64)


class CommStats(ctypes.Structure):
    _fields_ = [
        *_all("sent_packets sent_bytes received_packets received_bytes retransmits nacks dropped", ctypes.c_uint64),
        *_all("payload window channels multicast wire window_now", ctypes.c_uint32),
        ("pinned_bytes", ctypes.c_uint64),
        *_all("rtt_us rtt_least_us", ctypes.c_uint32),
        *_all("sent_marked received_marked received_lost held_window_us held_credit_us", ctypes.c_uint64),
        ("op_slots", ctypes.c_uint32),
    ]


_pointer = ctypes.c_void_p
_int = ctypes.c_int
_buffers = [_pointer, _pointer, ctypes.c_uint64, _int, _int]
_per_gpu = _slot = ctypes.POINTER(_pointer)
_on_gpus = [_per_gpu, _per_gpu, ctypes.c_uint64, _int, _int, _per_gpu]
_blocks = [_pointer, _pointer, ctypes.c_uint64, ctypes.c_uint64]
_segments = [ctypes.POINTER(Segment), ctypes.c_uint32]
_start = [ctypes.POINTER(Options), _pointer]

FUNCTIONS = {
    "winnow_config_init": (None, [ctypes.POINTER(Config)]),
    "winnow_comm_create": (_int, [ctypes.POINTER(Config), _slot]),
    "winnow_comm_enter": (_int, [ctypes.POINTER(Config), ctypes.POINTER(_pointer)]),
    "winnow_comm_admit": (_int, [_pointer, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32)]),
    "winnow_comm_hold": (None, [_pointer]),
    "winnow_comm_reconfigure": (_int, [_pointer, ctypes.POINTER(Membership)]),
    "winnow_comm_destroy": (None, [_pointer]),
    "winnow_comm_exit": (None, [ctypes.c_int, _pointer]),
    "winnow_allreduce": (_int, _buffers + [_pointer]),
    "winnow_allreduce_async": (_int, _buffers + _start + [_slot]),
    "winnow_reduce_scatter": (_int, _buffers + [_pointer]),
    "winnow_broadcast": (_int, [_pointer, ctypes.c_uint64, ctypes.c_uint32, _pointer]),
    "winnow_broadcast_async": (_int, [_pointer, ctypes.c_uint64, ctypes.c_uint32] + _start + [_slot]),
    "winnow_reduce_scatter_async": (_int, _buffers + _start + [_slot]),
    "winnow_allreduce_segments_async": (_int, _buffers + _segments + _start + [_slot]),
    "winnow_allreduce_sparse_block": (_int, _blocks + [_pointer, ctypes.c_uint64, _int, _int, _pointer]),
    "winnow_allreduce_sparse_block_async": (_int, _blocks + [_pointer, ctypes.c_uint64, _int, _int] + _start + [_slot]),
    "winnow_allreduce_rows_async": (_int, _blocks + [ctypes.c_uint64, _int, _int] + _start + 2 * [_slot]),
    "winnow_topk": (
        _int,
        [_pointer, _pointer, ctypes.c_uint64, _int, ctypes.POINTER(Choice), ctypes.POINTER(ctypes.c_uint64)],
    ),
    "winnow_rows_count": (ctypes.c_uint64, [_pointer]),
    "winnow_rows_read": (None, [_pointer, _pointer, _pointer]),
    "winnow_rows_free": (None, [_slot]),
    "winnow_wait": (_int, [_pointer, ctypes.c_int64, ctypes.POINTER(OpStats)]),
    "winnow_test": (_int, [_pointer, ctypes.POINTER(_int), ctypes.POINTER(OpStats)]),
    "winnow_request_free": (None, [_slot]),
    "winnow_allreduce_cuda": (_int, _buffers + [_pointer, _pointer, _slot]),
    "winnow_stream_wait": (_int, [_pointer, _pointer]),
    "winnow_comm_check": (_int, [_pointer]),
    "winnow_comm_abort": (None, [_pointer, ctypes.c_char_p]),
    "winnow_strerror": (ctypes.c_char_p, [_int]),
    "winnow_comm_error": (ctypes.c_char_p, [_pointer]),
    "winnow_last_error": (ctypes.c_char_p, []),
    "winnow_comm_stats": (None, [_pointer, ctypes.POINTER(CommStats)]),
    "winnow_comm_late": (ctypes.c_char_p, [_pointer]),
    "winnow_comm_say": (None, [_pointer, ctypes.c_char_p]),
    "winnow_comm_rank": (ctypes.c_uint32, [_pointer]),
    "winnow_comm_world": (ctypes.c_uint32, [_pointer]),
    "winnow_node_id_make": (_int, [ctypes.POINTER(NodeId)]),
    "winnow_node_create": (_int, [ctypes.POINTER(NodeConfig), _slot]),
    "winnow_node_destroy": (None, [_pointer]),
    "winnow_node_exit": (None, [ctypes.c_int, _pointer]),
    "winnow_node_allreduce": (_int, _on_gpus + [_pointer]),
    "winnow_node_allreduce_async": (_int, _on_gpus[:-1] + _segments + [_per_gpu] + _start + [_slot]),
    "winnow_node_check": (_int, [_pointer]),
    "winnow_node_abort": (None, [_pointer, ctypes.c_char_p]),
    "winnow_node_stats": (None, [_pointer, ctypes.POINTER(CommStats)]),
    "winnow_version": (ctypes.c_char_p, []),
    "winnow_abi_version": (_int, []),
}


def find_library():
    """The path, or the name for the dynamic linker, of the first libwinnow.so there is."""
    named = os.environ.get("WINNOW_LIBRARY", "").strip()
    if named:
        return named
    for place in _programs.places():
        if (place / "libwinnow.so").exists():
            return str(place / "libwinnow.so")
    installed = ctypes.util.find_library("winnow")
    if installed:
        return installed
    raise ImportError(
        "libwinnow.so not found: build it with `make`, install it with `make install`, "
        "or set WINNOW_LIBRARY=/path/to/libwinnow.so"
    )


def load():
    """The library with its functions declared, and where it was found."""
    path = find_library()
    try:
        library = ctypes.CDLL(os.path.abspath(path) if os.sep in path else path)  # where others lie beside it
    except OSError as error:
        raise ImportError(f"cannot load libwinnow from {path}: {error}") from None
    try:
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except AttributeError:
        raise ImportError(f"{path} is not a libwinnow for this package: it has no {name}()") from None
    version = library.winnow_abi_version()
    if version != ABI_VERSION:
        raise ImportError(
            f"{path} has ABI version {version} and this package needs {ABI_VERSION}: "
            "install package and library of one release"
        )
    return library, path


lib, library_path = load()
