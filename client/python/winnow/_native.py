# SPDX-License-Identifier: BSD-3-Clause
"""libwinnow through ctypes: finds the library, and declares client/winnow.h in Python.

tests/python/test_abi.py compiles the header and compares each number and offset with this module.
"""

import ctypes
import ctypes.util
import os
import re

from . import _programs

ABI_VERSION = 10

OK = 0
ERRORS = {
    name: 1 + number
    for number, name in enumerate(
        "INVALID MEMORY SYSTEM UNREACHABLE REFUSED MISMATCH LOST ABORTED TIMEOUT BUSY PROTOCOL GPU MEMBERS".split()
    )
}
DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3, "float64": 4, "int32": 5, "int64": 6}
SIZES = {1: 4, 2: 2, 3: 2, 4: 8, 5: 4, 6: 8}  # bytes, by these numbers
OPS = {"sum": 1, "avg": 2, "min": 3, "max": 4, "prod": 5}
MEMORIES = {"host": 0, "cuda": 1}
WIRES = {"auto": 0, "native": 1, "f32": 1, "fixed32": 2, "fixed16": 3, "fixed8": 4, "bf16": 5}
NETWORKS = {"shared": 0, "private": 1}
LEVELS = {"off": 0, "warn": 1, "info": 2}
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class NodeId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


_KINDS = {
    "none": None,
    "text": ctypes.c_char_p,
    "int": ctypes.c_int,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64,
    "float": ctypes.c_float,
    "pointer": ctypes.c_void_p,
    "log": LOG,
    "node_id": NodeId,
}


def _kind(name):
    return ctypes.POINTER(_kind(name[:-1])) if name.endswith("*") else _KINDS[name]


def _structure(name, text):
    """Makes a Structure. text: kinds, separated by ";", each followed by the names of its members."""
    fields = [(member, _kind(kind)) for kind, *members in map(str.split, text.split(";")) for member in members]
    _KINDS[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return _KINDS[name]


Config = _structure(
    "config",
    """
    text aggregators job;
    u32 rank world;
    text key_file key;
    int insecure_no_key;
    u32 block;
    int wire;
    u32 threads silence_ms timeout_ms join_timeout_ms;
    int multicast;
    u32 payload;
    text datapath eal device data_address gateway;
    int* give_up;
    u32 staging_mb dscp;
    int network;
    u32 memory_mb;
    text interface;
    int debug;
    log log;
    pointer log_context
    """,
)
Membership = _structure("membership", "text id; u32 rank world join_timeout_ms; int* give_up")
Options = _structure("options", "u64 tag; u32 block; int wire memory; pointer stream; u32 priority; pointer lost")
Segment = _structure("segment", "u64 offset count row; u32 tile_rows tile_columns")
NodeConfig = _structure("node_config", "config* config; node_id id; u32 local_world local_rank gpu_count; int* gpus")
Choice = _structure("choice", "u64 chunk k; u32 block; float decay")
OpStats = _structure("op_stats", "u64 blocks blocks_nonzero blocks_union time_us staged_out_bytes staged_in_bytes")
CommStats = _structure(
    "comm_stats",
    """
    u64 sent_packets sent_bytes received_packets received_bytes retransmits nacks dropped;
    u32 payload window channels multicast wire window_now;
    u64 pinned_bytes;
    u32 rtt_us rtt_least_us;
    u64 sent_marked received_marked received_lost held_window_us held_credit_us;
    u32 op_slots
    """,
)

_DECLARATIONS = """
none winnow_config_init(config*)
int winnow_comm_create(config*, pointer*)
int winnow_comm_enter(config*, pointer*)
int winnow_comm_admit(pointer, u32, u32*)
none winnow_comm_hold(pointer)
int winnow_comm_reconfigure(pointer, membership*)
none winnow_comm_destroy(pointer)
none winnow_comm_exit(int, pointer)
int winnow_allreduce(pointer, pointer, u64, int, int, pointer)
int winnow_allreduce_async(pointer, pointer, u64, int, int, options*, pointer, pointer*)
int winnow_reduce_scatter(pointer, pointer, u64, int, int, pointer)
int winnow_broadcast(pointer, u64, u32, pointer)
int winnow_broadcast_async(pointer, u64, u32, options*, pointer, pointer*)
int winnow_reduce_scatter_async(pointer, pointer, u64, int, int, options*, pointer, pointer*)
int winnow_allreduce_segments_async(pointer, pointer, u64, int, int, segment*, u32, options*, pointer, pointer*)
int winnow_allreduce_sparse_block(pointer, pointer, u64, u64, pointer, u64, int, int, pointer)
int winnow_allreduce_sparse_block_async(pointer, pointer, u64, u64, pointer, u64, int, int, options*, pointer, pointer*)
int winnow_allreduce_rows_async(pointer, pointer, u64, u64, u64, int, int, options*, pointer, pointer*, pointer*)
int winnow_topk(pointer, pointer, u64, int, choice*, u64*)
u64 winnow_rows_count(pointer)
none winnow_rows_read(pointer, pointer, pointer)
none winnow_rows_free(pointer*)
int winnow_wait(pointer, i64, op_stats*)
int winnow_test(pointer, int*, op_stats*)
none winnow_request_free(pointer*)
int winnow_allreduce_cuda(pointer, pointer, u64, int, int, pointer, pointer, pointer*)
int winnow_stream_wait(pointer, pointer)
int winnow_comm_check(pointer)
none winnow_comm_abort(pointer, text)
text winnow_strerror(int)
text winnow_comm_error(pointer)
text winnow_last_error()
none winnow_comm_stats(pointer, comm_stats*)
text winnow_comm_late(pointer)
none winnow_comm_say(pointer, text)
u32 winnow_comm_rank(pointer)
u32 winnow_comm_world(pointer)
int winnow_node_id_make(node_id*)
int winnow_node_create(node_config*, pointer*)
none winnow_node_destroy(pointer)
none winnow_node_exit(int, pointer)
int winnow_node_allreduce(pointer*, pointer*, u64, int, int, pointer*, pointer)
int winnow_node_allreduce_async(pointer*, pointer*, u64, int, int, segment*, u32, pointer*, options*, pointer, pointer*)
int winnow_node_check(pointer)
none winnow_node_abort(pointer, text)
none winnow_node_stats(pointer, comm_stats*)
text winnow_version()
int winnow_abi_version()
"""


def _declared():
    """Returns the types of the result and the arguments of each function, by name."""
    found = {}
    for result, name, arguments in re.findall(r"(\w+) (\w+)\((.*)\)", _DECLARATIONS):
        found[name] = _kind(result), [_kind(argument) for argument in arguments.split(", ") if argument]
    return found


FUNCTIONS = _declared()


def find_library():
    """Returns the path of the first libwinnow.so that exists, or its name for the dynamic linker."""
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
    """Loads the library and declares its functions. Returns it and its path."""
    path = find_library()
    try:
        # Absolute, because it looks for other libraries beside itself.
        library = ctypes.CDLL(os.path.abspath(path) if os.sep in path else path)
    except OSError as error:
        raise ImportError(f"cannot load libwinnow from {path}: {error}") from None
    try:
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except AttributeError:
        raise ImportError(f"{path} does not fit this package: it has no {name}()") from None
    version = library.winnow_abi_version()
    if version != ABI_VERSION:
        raise ImportError(
            f"{path} has ABI version {version}, but this package needs {ABI_VERSION}: "
            "install the package and the library of the same release"
        )
    return library, path


lib, library_path = load()
