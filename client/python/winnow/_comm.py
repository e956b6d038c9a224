# SPDX-License-Identifier: BSD-3-Clause
"""Communicators and requests: client/winnow.h as Python objects.

What the C library leaves to its caller is done here: buffers live as long as an operation
uses them, and a communicator is destroyed only when no other call is inside it.
"""

import atexit
import collections
import contextlib
import ctypes
import os
import sys
import threading
import time
import weakref

from . import _buffers, _native
from ._native import lib

# Python handles signals between C calls only: how long Ctrl-C may have to wait.
_SLICE_MS = 100
_NOT_DONE = 2**64 - 1
_TAG_MAX = 2**63 - 1
_BLOCK_MAX = 65536


class WinnowError(RuntimeError):
    """An operation or communicator failed. `code` is one of WinnowError.INVALID, .LOST, ..."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

    def __reduce__(self):  # exceptions travel between processes
        return type(self), (self.code, str(self))


for _name, _code in _native.ERRORS.items():
    setattr(WinnowError, _name, _code)


class OpStats(collections.namedtuple("OpStats", [field for field, _ in _native.OpStats._fields_])):
    """Blocks of one operation, its microseconds from submission to completion, and the bytes that a
    GPU sent (staged_out_bytes) and received over its bus."""

    __slots__ = ()

    @property
    def density(self):
        """The share of the tensor's blocks that this worker sent."""
        return self.blocks_nonzero / self.blocks if self.blocks else 0.0

    @property
    def union(self):
        """The share of the tensor's blocks that any worker sent."""
        return self.blocks_union / self.blocks if self.blocks else 0.0


CommStats = collections.namedtuple("CommStats", [field for field, _ in _native.CommStats._fields_])
CommStats.__doc__ = "Totals of a communicator; bytes are of Ethernet frames."


def _plain(kind, structure):
    return kind(*(getattr(structure, field) for field in kind._fields))


def _failure(code, text=None):
    text = text or lib.winnow_last_error().decode(errors="replace")
    return WinnowError(code, text or lib.winnow_strerror(code).decode())


def _number(name, value, highest=2**32 - 1):
    """ctypes would cut off what does not fit."""
    value = int(value)
    if not 0 <= value <= highest:
        raise ValueError(f"{name} is {value}: want 0 to {highest}")
    return value


def _choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: want one of {', '.join(choices)}")
    return choices[value]


class Request:
    """An operation under way. Made by Comm.allreduce_async()."""

    def __init__(self, comm, handle, send, out):
        self._comm = comm
        self._handle = handle
        self._send = send
        self._out = out
        self._lock = threading.Lock()  # the C request allows one caller at a time
        self._code = None
        self._text = ""
        self.stats = None
        """OpStats once the operation is done."""

    def wait(self, timeout=None):
        """Blocks until the result is there and returns it.

        Raises WinnowError when the operation failed, TimeoutError when it is not done after
        `timeout` seconds; it goes on then and can be waited for again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE_MS / 1000
            if deadline is not None:
                left = min(left, max(deadline - time.monotonic(), 0))
            if self._poll(left):
                return self._result()
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"the operation is not done after {timeout} s")

    def test(self):
        """True when the result is there, False when it is not yet; raises like wait()."""
        if not self._poll(0):
            return False
        self._result()
        return True

    def _poll(self, seconds):
        # Whoever else holds the lock is waiting inside the library.
        if not (self._lock.acquire(timeout=seconds) if seconds > 0 else self._lock.acquire(False)):
            return False
        try:
            return self._code is not None or self._wait_once(int(seconds * 1000))
        finally:
            self._lock.release()

    def _wait_once(self, milliseconds):
        # TIMEOUT can be the caller's time or the operation's own failure; only of an operation
        # that is over does the library write statistics.
        stats = _native.OpStats(time_us=_NOT_DONE)
        code = lib.winnow_wait(self._handle, milliseconds, ctypes.byref(stats))
        if code == WinnowError.TIMEOUT and stats.time_us == _NOT_DONE:
            return False
        if code != _native.OK:
            self._text = lib.winnow_last_error().decode(errors="replace")
        self.stats = _plain(OpStats, stats)
        self._code = code
        self._collect()
        self._handle = self._send = None
        self._comm._forget(self)
        return True

    def _collect(self):
        """The operation is over: take what is still the library's."""

    def _result(self):
        if self._code != _native.OK:
            raise _failure(self._code, self._text)
        return self._out.owner

    def _drain(self):
        while not self._poll(_SLICE_MS / 1000):
            pass


class RowsRequest(Request):
    """One whose result is a list of rows. Made by Comm.allreduce_rows_async()."""

    def __init__(self, comm, handle, send, rows):
        super().__init__(comm, handle, send, None)
        self._rows = rows
        self._found = None

    def _collect(self):
        try:
            if self._code == _native.OK:
                index, values, self._found = _buffers.new_rows(
                    self._send.owner, lib.winnow_rows_count(self._rows)
                )
                lib.winnow_rows_read(self._rows, index, values)
        finally:
            lib.winnow_rows_free(self._rows)

    def _result(self):
        if self._code != _native.OK:
            raise _failure(self._code, self._text)
        return self._found


class Comm:
    """One worker's membership of a job on its aggregators.

    Every argument that is None comes from the environment or has the library's default:
    see struct winnow_config in winnow.h. Blocks until all workers have joined. Threads may
    share a communicator; operations without a tag should then come from one thread.

    Close it, use it in a `with` statement, or let the program's end close it. If an exception
    ends the statement or the program, the job is aborted and the other workers are told why.
    """

    def __init__(
        self,
        *,
        aggregators=None,
        job=None,
        rank=None,
        world=None,
        key_file=None,
        key=None,
        insecure_no_key=None,
        block=None,
        wire=None,
        threads=None,
        silence_ms=None,
        timeout_ms=None,
        join_timeout_ms=None,
        multicast=None,
        payload=None,
        datapath=None,
        eal=None,
        device=None,
        data_address=None,
        gateway=None,
    ):
        given = {name: value for name, value in locals().items() if name != "self" and value is not None}
        self._handle = None
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._closing = False
        self._callers = 0  # inside the library now
        self._pending = set()  # requests; keeps their buffers alive
        self._handle = _join(_configure(given))
        self.rank = lib.winnow_comm_rank(self._handle)
        self.world = lib.winnow_comm_world(self._handle)
        _open_comms.add(self)

    def allreduce(
        self, data, out=None, op="sum", tag=0, block=0, wire=None, segments=None, priority=0, stream=None
    ):
        """Combines `data` of all workers, element by element, and returns the result.

        data: numpy array, torch tensor on the CPU or a GPU, or an array with
            __cuda_array_interface__; contiguous, the same size and type everywhere.
        out: where the result goes; None: into `data` itself.
        op: "sum", "avg", "min", "max" or "prod".
        tag: matches the operation with the other workers'; 0: by order.
        block: elements of a block; 0: the communicator's.
        wire: "auto", "native" or "fixed32"; None: the communicator's.
        segments: parts of the tensor that are made of rows, so that blocks begin where rows do:
            a list of (offset, count, row length), in elements; None: the tensor has no rows.
        priority: of the operations under way, those with higher numbers go first.
        stream: of data on a GPU, the CUDA stream (a number) that it is produced in; None:
            torch's current one, or what the array says. Only the operation waits for it.
        """
        return self.allreduce_async(data, out, op, tag, block, wire, segments, priority, stream).wait()

    def allreduce_async(
        self, data, out=None, op="sum", tag=0, block=0, wire=None, segments=None, priority=0, stream=None
    ):
        """The same without waiting: a Request. Leave both buffers alone until it is done.

        On a GPU, too, "done" is what wait() and test() say; work that is put into a stream
        after that finds the result.
        """
        send = _buffers.describe(data, "data")
        recv = send if out is None else _buffers.describe(out, "out")
        _check_pair(send, recv)
        what = (send.address, recv.address, send.count, send.dtype, _choice("op", op, _native.OPS))
        handle = ctypes.c_void_p()
        start = lib.winnow_allreduce_async
        if segments is not None:
            start = lib.winnow_allreduce_segments_async
            what += ((_native.Segment * len(segments))(*segments), len(segments))
        return self._start(
            lambda options: start(*what, options, self._handle, ctypes.byref(handle)),
            lambda: Request(self, handle, send, recv),
            _options(tag, block, wire, priority, send, stream),
        )

    def allreduce_rows(self, index, values, count, op="sum", tag=0, wire=None, priority=0):
        """Combines tables of `count` rows of which each worker has some; returns (index, values).

        index: the numbers of this worker's rows, int64, each there once; none is fine.
        values: a row for each, numpy array or torch tensor, on the CPU; rows have one shape everywhere.
        A row that a worker lacks counts as zeros. The result holds each row that any worker
        has, in ascending order; no worker holds, sends or scans the whole table.
        """
        return self.allreduce_rows_async(index, values, count, op, tag, wire, priority).wait()

    def allreduce_rows_async(self, index, values, count, op="sum", tag=0, wire=None, priority=0):
        """The same without waiting: a RowsRequest. Leave `values` alone until it is done."""
        send = _buffers.describe_on_host(values, "values")
        length = _buffers.row_length(values)
        if not 1 <= length <= _BLOCK_MAX:
            raise ValueError(f"rows have {length} elements: want 1 to {_BLOCK_MAX}")
        starts = _buffers.starts(index, len(values), length)
        what = (send.address, starts.address, len(values), length)
        what += (_number("count", count, 2**48) * length, send.dtype, _choice("op", op, _native.OPS))
        handle, rows = ctypes.c_void_p(), ctypes.c_void_p()
        return self._start(
            lambda options: lib.winnow_allreduce_rows_async(
                *what, options, self._handle, ctypes.byref(rows), ctypes.byref(handle)
            ),
            lambda: RowsRequest(self, handle, send, rows),
            _options(tag, 0, wire, priority),
        )

    def _start(self, call, make, options):
        with self._using():
            code = call(ctypes.byref(options))
            if code != _native.OK:
                raise _failure(code)
            request = make()
            with self._changed:
                self._pending.add(request)
        return request

    def stats(self):
        """CommStats: what this communicator has sent and received so far."""
        stats = _native.CommStats()
        with self._using():
            lib.winnow_comm_stats(self._handle, ctypes.byref(stats))
        return _plain(CommStats, stats)

    def trace(self):
        """The file in which operations are being recorded (WINNOW_TRACE), or None."""
        with self._using():
            return os.fsdecode(lib.winnow_comm_trace(self._handle)) or None

    def abort(self, text="no reason given"):
        """Ends every operation on every worker; `text` tells them why."""
        with self._using():
            lib.winnow_comm_abort(self._handle, text.encode())

    def close(self):
        """Leaves the job; operations under way are aborted on all workers. Twice is fine."""
        with self._changed:
            if self._handle is None or self._closing:
                return
            self._closing = True
            pending = list(self._pending)
        if self._pid != os.getpid():
            return  # after a fork: it is the parent's
        if pending:
            lib.winnow_comm_abort(self._handle, b"it closed its communicator with operations under way")
        for request in pending:
            request._drain()
        with self._changed:
            self._changed.wait_for(lambda: not self._callers and not self._pending)
        lib.winnow_comm_destroy(self._handle)
        self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._end(error)

    def _end(self, error):
        """close(), or, if an exception was the cause, first tell the other workers which."""
        if error is not None and not self._closing and self._pid == os.getpid():
            self.abort(f"{type(error).__name__}: {error}".split("\n")[0])
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __repr__(self):
        state = " closed" if self._closing else ""
        return f"<winnow.Comm rank {self.rank} of {self.world}{state}>"

    @contextlib.contextmanager
    def _using(self):
        if self._pid != os.getpid():
            raise WinnowError(
                WinnowError.INVALID,
                "this communicator belongs to the parent process: make one after the fork",
            )
        with self._changed:
            if self._closing:
                raise WinnowError(WinnowError.INVALID, "the communicator is closed")
            self._callers += 1
        try:
            yield
        finally:
            with self._changed:
                self._callers -= 1
                self._changed.notify_all()

    def _forget(self, request):
        with self._changed:
            self._pending.discard(request)
            self._changed.notify_all()


def _options(tag, block, wire, priority, send=None, stream=None):
    options = _native.Options(
        tag=_number("tag", tag, _TAG_MAX),
        block=_number("block", block, _BLOCK_MAX),
        wire=_choice("wire", "auto" if wire is None else wire, _native.WIRES),
        priority=_number("priority", priority),
    )
    if send is not None and send.memory == "cuda":
        options.memory = _native.MEMORIES["cuda"]
        options.stream_goes_on = 1
        options.stream = _number("stream", send.stream or 0 if stream is None else stream, 2**64 - 1)
    elif stream is not None:
        raise ValueError("stream is of data on a GPU, and data is on the CPU: leave it out")
    return options


def _check_pair(send, recv):
    if recv.memory != send.memory:
        places = {"host": "the CPU", "cuda": "a GPU"}
        raise ValueError(f"data is on {places[send.memory]} and out is on {places[recv.memory]}")
    if not recv.writable:
        raise ValueError("the result's array is read-only: pass out=numpy.empty_like(data)")
    if recv.count != send.count or recv.dtype != send.dtype:
        raise ValueError("out differs from data in size or type: pass out=numpy.empty_like(data)")


def _configure(given):
    config = _native.Config()
    lib.winnow_config_init(ctypes.byref(config))
    # A key in hand counts for more than a key file that the environment names.
    if "key" in given and "key_file" not in given:
        config.key_file = None
    for name, value in given.items():
        kind = dict(_native.Config._fields_)[name]
        if name == "wire":
            value = _choice(name, value, _native.WIRES)
        elif kind is ctypes.c_char_p:
            value = os.fsencode(value)
        elif kind is ctypes.c_uint32:
            value = _number(name, value)
        setattr(config, name, value)
    return config


def _join(config):
    """winnow_comm_create() in a thread of its own, so that Ctrl-C ends the wait for others."""
    handle = ctypes.c_void_p()
    lock = threading.Lock()
    result = []
    given_up = []

    def create():
        code = lib.winnow_comm_create(ctypes.byref(config), ctypes.byref(handle))
        text = lib.winnow_last_error().decode(errors="replace")
        with lock:
            result.append((code, text))
            if given_up and code == _native.OK:
                lib.winnow_comm_destroy(handle)

    thread = threading.Thread(target=create, name="winnow-join", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        with lock:
            given_up.append(True)
            if result and result[0][0] == _native.OK:
                lib.winnow_comm_destroy(handle)
        raise
    code, text = result[0]
    if code != _native.OK:
        raise _failure(code, text)
    return handle


_open_comms = weakref.WeakSet()


@atexit.register
def _close_all():
    # The interpreter leaves what ended the program in last_value; a prompt, any error of the day.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for comm in list(_open_comms):
        comm._end(error)
