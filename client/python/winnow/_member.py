# SPDX-License-Identifier: BSD-3-Clause
"""What communicators and nodes have in common: joining and leaving a job, requests, errors.

What the C library leaves to its caller is done here: buffers live as long as an operation
uses them, and what has been joined is left only when no other call is inside it.
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

from . import _native
from ._native import lib

# Python handles signals between C calls only: how long Ctrl-C may have to wait.
_SLICE_MS = 100
_NOT_DONE = 2**64 - 1
_TAG_MAX = 2**63 - 1
BLOCK_MAX = 65536


class WinnowError(RuntimeError):
    """An operation or communicator failed. `code` is one of WinnowError.INVALID, .LOST, ..."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

    def __reduce__(self):  # exceptions travel between processes
        return type(self), (self.code, str(self))


for _name, _code in _native.ERRORS.items():
    setattr(WinnowError, _name, _code)


class Shares:
    """Of statistics that count blocks."""

    __slots__ = ()

    @property
    def density(self):
        """The share of the tensor's blocks that this worker sent."""
        return self.blocks_nonzero / self.blocks if self.blocks else 0.0

    @property
    def union(self):
        """The share of the tensor's blocks that any worker sent."""
        return self.blocks_union / self.blocks if self.blocks else 0.0


class OpStats(Shares, collections.namedtuple("OpStats", [field for field, _ in _native.OpStats._fields_])):
    """Blocks of one operation, its microseconds from submission to completion, and the bytes that a
    GPU sent (staged_out_bytes) and received over its bus."""

    __slots__ = ()


CommStats = collections.namedtuple("CommStats", [field for field, _ in _native.CommStats._fields_])
CommStats.__doc__ = "Totals of a communicator; bytes are of Ethernet frames."


def plain(kind, structure):
    return kind(*(getattr(structure, field) for field in kind._fields))


def failure(code, text=None):
    text = text or lib.winnow_last_error().decode(errors="replace")
    return WinnowError(code, text or lib.winnow_strerror(code).decode())


def number(name, value, highest=2**32 - 1):
    """ctypes would cut off what does not fit."""
    value = int(value)
    if not 0 <= value <= highest:
        raise ValueError(f"{name} is {value}: want 0 to {highest}")
    return value


def choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: want one of {', '.join(choices)}")
    return choices[value]


class Request:
    """An operation under way. Made by allreduce_async() of a Comm or a Node.

    kept: what must not go before the operation is over, `result`, which wait() returns, apart.
    """

    def __init__(self, member, handle, kept, result):
        self._member = member
        self._handle = handle
        self._kept = kept
        self._out = result
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
        code = self._member._calls.wait(self._handle, milliseconds, ctypes.byref(stats))
        if code == WinnowError.TIMEOUT and stats.time_us == _NOT_DONE:
            return False
        if code != _native.OK:
            self._text = lib.winnow_last_error().decode(errors="replace")
        self.stats = plain(OpStats, stats)
        self._code = code
        self._collect()
        self._member._calls.free(ctypes.byref(self._handle))
        self._handle = self._kept = None
        self._member._forget(self)
        return True

    def _collect(self):
        """The operation is over: take what is still the library's."""

    def _result(self):
        if self._code != _native.OK:
            raise failure(self._code, self._text)
        return self._out

    def _drain(self):
        while not self._poll(_SLICE_MS / 1000):
            pass


# The library's functions for one kind of member.
Calls = collections.namedtuple("Calls", "create destroy abort stats wait free")


class Member:
    """One process's place in a job: a Comm or a Node, which say `_calls` and `_noun`."""

    def __init__(self, config):
        self._handle = None
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._closing = False
        self._callers = 0  # inside the library now
        self._pending = set()  # requests; keeps their buffers alive
        self._handle = _join(self._calls, config)
        _open_members.add(self)

    def _start(self, call, make, options):
        with self._using():
            code = call(ctypes.byref(options))
            if code != _native.OK:
                raise failure(code)
            request = make()
            with self._changed:
                self._pending.add(request)
        return request

    def stats(self):
        """CommStats: what this process has sent and received so far."""
        stats = _native.CommStats()
        with self._using():
            self._calls.stats(self._handle, ctypes.byref(stats))
        return plain(CommStats, stats)

    def abort(self, text="no reason given"):
        """Ends every operation on every worker; `text` tells them why."""
        with self._using():
            self._calls.abort(self._handle, text.encode())

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
            self._calls.abort(self._handle, f"it closed its {self._noun} with operations under way".encode())
        for request in pending:
            request._drain()
        with self._changed:
            self._changed.wait_for(lambda: not self._callers and not self._pending)
        self._calls.destroy(self._handle)
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
        return f"<winnow.{type(self).__name__} rank {self.rank} of {self.world}{state}>"

    @contextlib.contextmanager
    def _using(self):
        if self._pid != os.getpid():
            raise WinnowError(
                WinnowError.INVALID,
                f"this {self._noun} belongs to the parent process: make one after the fork",
            )
        with self._changed:
            if self._closing:
                raise WinnowError(WinnowError.INVALID, f"the {self._noun} is closed")
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


def options_of(tag, block, wire, priority, send=None, stream=None):
    options = _native.Options(
        tag=number("tag", tag, _TAG_MAX),
        block=number("block", block, BLOCK_MAX),
        wire=choice("wire", "auto" if wire is None else wire, _native.WIRES),
        priority=number("priority", priority),
    )
    if send is not None and send.memory == "cuda":
        options.memory = _native.MEMORIES["cuda"]
        options.stream_goes_on = 1
        options.stream = number("stream", send.stream or 0 if stream is None else stream, 2**64 - 1)
    elif stream is not None:
        raise ValueError("stream is of data on a GPU, and data is on the CPU: leave it out")
    return options


def segments_of(segments):
    """A list of (offset, count, row length) as C wants it."""
    return (_native.Segment * len(segments))(*segments), len(segments)


def check_pair(send, recv):
    if recv.memory != send.memory:
        places = {"host": "the CPU", "cuda": "a GPU"}
        raise ValueError(f"data is on {places[send.memory]} and out is on {places[recv.memory]}")
    if not recv.writable:
        raise ValueError("the result's array is read-only: pass out=numpy.empty_like(data)")
    if recv.count != send.count or recv.dtype != send.dtype:
        raise ValueError("out differs from data in size or type: pass out=numpy.empty_like(data)")


def configure(given):
    config = _native.Config()
    lib.winnow_config_init(ctypes.byref(config))
    # A key in hand counts for more than a key file that the environment names.
    if "key" in given and "key_file" not in given:
        config.key_file = None
    for name, value in given.items():
        kind = dict(_native.Config._fields_)[name]
        if name == "wire":
            value = choice(name, value, _native.WIRES)
        elif kind is ctypes.c_char_p:
            value = os.fsencode(value)
        elif kind is ctypes.c_uint32:
            value = number(name, value)
        setattr(config, name, value)
    return config


def _join(calls, config):
    """The create function in a thread of its own, so that Ctrl-C ends the wait for others."""
    handle = ctypes.c_void_p()
    lock = threading.Lock()
    result = []
    given_up = []

    def create():
        code = calls.create(ctypes.byref(config), ctypes.byref(handle))
        text = lib.winnow_last_error().decode(errors="replace")
        with lock:
            result.append((code, text))
            if given_up and code == _native.OK:
                calls.destroy(handle)

    thread = threading.Thread(target=create, name="winnow-join", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        with lock:
            given_up.append(True)
            if result and result[0][0] == _native.OK:
                calls.destroy(handle)
        raise
    code, text = result[0]
    if code != _native.OK:
        raise failure(code, text)
    return handle


_open_members = weakref.WeakSet()


@atexit.register
def _close_all():
    # The interpreter leaves what ended the program in last_value; a prompt, any error of the day.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for member in list(_open_members):
        member._end(error)
