# SPDX-License-Identifier: BSD-3-Clause
"""The common part of communicators and nodes: joining and leaving a job, requests, errors.

It does what the C library leaves to its caller: buffers live as long as an operation uses them, and a job is left only
when no other call is inside it.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import functools
import inspect
import logging
import math
import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Generic, Optional, Set, Tuple, TypeVar, cast, get_type_hints

from . import _native
from ._native import lib
from ._settings import OfComm
from ._stats import CommStats, OpStats

F = TypeVar("F", bound=Callable[..., Any])
Own = TypeVar("Own", bound="Member")
Result = TypeVar("Result")

# Python handles signals only between C calls, so Ctrl-C may have to wait this long.
_SLICE_MS = 100
_MOMENT_S = 0.001
_LATE_S = 5  # seconds of waiting before the late worker is named
_LATE_AGAIN_S = 60
_GIVE_UP_S = 3  # seconds that the library may take to leave a job after Ctrl-C
_NOT_DONE = 2**64 - 1
_TAG_MAX = 2**63 - 1
_YES, _NO = ("1", "yes", "true", "on"), ("0", "no", "false", "off", "")
BLOCK_MAX = 65536
_CONFIG = {name: kind for name, kind in _native.Config._fields_ if name not in ("give_up", "log", "log_context")}

_CHOICES = {"wire": _native.WIRES, "network": _native.NETWORKS, "debug": _native.LEVELS}

_log = logging.getLogger("winnow")


class WinnowError(RuntimeError):
    """An operation or a communicator failed.

    The text says what failed, and names the rank and the host of the worker that caused it, where one did.

    Attributes:
        code: The reason, a number. Compare it with these constants of the class:

            - ``INVALID``: an argument is impossible. Nothing was done.
            - ``MEMORY``: out of memory.
            - ``SYSTEM``: the system refused a socket or a thread.
            - ``UNREACHABLE``: no aggregator answers at the address.
            - ``REFUSED``: an aggregator refused this worker because of its key, rank, world or a limit.
            - ``MISMATCH``: workers differ in call, count, type, layout or operation.
            - ``LOST``: an aggregator is gone, or the others have continued without this worker.
            - ``ABORTED``: a worker aborted the job, or heavy loss ended it.
            - ``TIMEOUT``: the call waited as long as the configuration allows.
            - ``BUSY``: an operation with this tag has not ended yet.
            - ``PROTOCOL``: the peer that answered is not a Winnow aggregator.
            - ``GPU``: a GPU or its driver failed. The text names the call and the GPU.
            - ``MEMBERS``: a worker is gone, silent or cut off. The text names it.
    """

    INVALID: int
    MEMORY: int
    SYSTEM: int
    UNREACHABLE: int
    REFUSED: int
    MISMATCH: int
    LOST: int
    ABORTED: int
    TIMEOUT: int
    BUSY: int
    PROTOCOL: int
    GPU: int
    MEMBERS: int

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code

    def __reduce__(self):  # exceptions travel between processes
        return type(self), (self.code, str(self))


for _name, _code in _native.ERRORS.items():
    setattr(WinnowError, _name, _code)
WinnowError.__module__ = "winnow"


class MembersChanged(WinnowError):
    """A worker or an aggregator is gone, or the job has continued without this worker.

    The other workers can continue: call ``Comm.reconfigure()`` and repeat the step. With
    ``attach(ddp, elastic=True)`` call ``Elastic.resume()`` instead. Its ``code`` is ``MEMBERS`` or ``LOST``.
    """


MembersChanged.__module__ = "winnow"


def brief(call: F) -> F:
    """Decorates public calls: removes this package's frames from the traceback of a WinnowError, because its text is enough."""

    @functools.wraps(call)
    def run(*arguments, **options):
        try:
            return call(*arguments, **options)
        except WinnowError as error:
            raise error.with_traceback(None)

    return cast(F, run)


def plain(kind, structure):
    return kind(*(getattr(structure, field) for field in kind._fields))


def failure(code, text=None):
    text = text or lib.winnow_last_error().decode(errors="replace")
    kind = MembersChanged if code in (WinnowError.MEMBERS, WinnowError.LOST) else WinnowError
    return kind(code, text or lib.winnow_strerror(code).decode())


def check(code, text=None):
    """Raises the failure of a call of the library."""
    if code != _native.OK:
        raise failure(code, text)


def end_job(member, text):
    """Ends the job on all ranks, and raises the same error here."""
    member.abort(text)
    raise WinnowError(WinnowError.ABORTED, text)


def number(name, value, highest=2**32 - 1):
    """Checks a range, because ctypes would cut off higher bits."""
    value = int(value)
    if not 0 <= value <= highest:
        raise ValueError(f"{name} is {value}: want 0 to {highest}")
    return value


def variable(name):
    """Returns an environment variable without surrounding white space, as the library reads it, or ""."""
    return os.environ.get(name, "").strip()


def flag_of(name):
    """Returns a flag of the environment, False if it is not set. The library and winnowd accept the same values."""
    value = variable(name)
    if value not in _YES + _NO:
        raise ValueError(f"{name} is {value!r}: want yes or no")
    return value in _YES


def choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: want one of {', '.join(choices)}")
    return choices[value]


class Request(Generic[Result]):
    """An operation that was started and may not be done yet.

    ``Comm.allreduce_async()``, the other calls that end in ``_async``, and ``Node.allreduce_async()`` return it; do not
    construct it yourself. The request keeps the buffers alive until the operation is done.

    Threads: Any thread may call ``wait()`` and ``test()``, also several at a time.

    Attributes:
        stats: An OpStats once the operation is done, and None before.
    """

    def __init__(self, member: Member, kept: Any, result: Any):
        self._member = member
        self._kept = kept
        self._out = result
        self._handle = ctypes.c_void_p()  # only the library writes it
        self._calls: Set[Tuple[int, object]] = set()  # calls that use the handle now, of any thread
        self._code = None
        self._text = ""
        self.stats: Optional[OpStats] = None

    @brief
    def wait(self, timeout: Optional[float] = None) -> Result:
        """Block until the operation is done.

        Ctrl-C interrupts the wait. If it takes long, a warning to the logger ``winnow`` names the late worker.

        Args:
            timeout: The longest time to wait, in seconds. By default there is no limit of its own; the operation itself
                fails after the communicator's ``timeout_ms``.

        Returns:
            The result: what the call without ``_async`` returns.

        Raises:
            WinnowError: The operation failed.
            TimeoutError: The operation is not done after ``timeout`` seconds. It continues, and you can wait for it again.
        """
        began = time.monotonic()
        deadline = began + (math.inf if timeout is None else timeout)
        while True:
            self._member._tell_late(began)
            if self._poll(max(min(_SLICE_MS / 1000, deadline - time.monotonic()), 0)):
                return self._result()
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the operation is not done after {timeout} s")

    @brief
    def test(self) -> bool:
        """Tell whether the operation is done, without waiting.

        Returns:
            True if the result is there, False if it is not there yet.

        Raises:
            WinnowError: The operation failed.
        """
        if not self._poll(0):
            return False
        self._result()
        return True

    def abort(self, text: str) -> None:
        """End the job of this operation, and with it every operation on every worker.

        If the job has ended already, nothing happens.

        Args:
            text: The reason, for the errors on all workers.
        """
        with contextlib.suppress(WinnowError):  # it may already be over
            self._member.abort(text)

    def _poll(self, seconds):
        """Returns whether it is over. It may be called again, so Ctrl-C may interrupt it anywhere."""
        call = (threading.get_ident(), object())
        try:
            self._calls.add(call)
            return self._code is not None or self._ask(int(seconds * 1000))
        finally:
            self._calls.discard(call)
            self._let_go()

    def _ask(self, milliseconds):
        # TIMEOUT can mean the caller's time or the operation's failure. The library writes statistics only for an
        # operation that is over.
        stats = _native.OpStats(time_us=_NOT_DONE)
        where = ctypes.byref(stats)
        code = lib.winnow_wait(self._handle, milliseconds, where)
        if stats.time_us == _NOT_DONE:
            return self._code is not None  # a signal handler may have closed the member just before the call
        if code != _native.OK:
            self._text = lib.winnow_last_error().decode(errors="replace")
        self.stats = plain(OpStats, stats)
        self._collect(code)
        self._code = code
        return True

    def _collect(self, code):
        """Takes a result from the library, when the operation is over."""

    def _result(self):
        check(self._code, self._text)
        return self._out

    def _let_go(self):
        """Frees the request and the buffers when the operation is over and no other thread uses them."""
        if self._code is not None and not of_others(self._calls):
            self._free()
            self._kept = None
            self._member._pending.discard(self)

    def _free(self):
        lib.winnow_request_free(ctypes.byref(self._handle))

    def _drain(self):
        """Waits for close() until the operation is over, or is known not to have begun."""
        while self._handle and not self._poll(_SLICE_MS / 1000):
            pass
        if not self._handle:
            self._member._pending.discard(self)


def of_others(calls):
    """Returns whether other threads make some of these calls. This thread's own calls are interrupted by a signal."""
    here = threading.get_ident()
    return any(thread != here for thread, _ in list(calls))


Calls = collections.namedtuple("Calls", "create destroy exit abort stats")


def calls_of(kind):
    """Returns the library's functions for one kind of member, such as winnow_comm_create()."""
    return Calls(*(getattr(lib, f"winnow_{kind}_{call}") for call in Calls._fields))


def teller(debug):
    """Returns a Config.log for the library. Its lines go to the logger `winnow`, or, if that does not take them and
    WINNOW_DEBUG asks for them, to stderr. It runs in threads of wait_for(), so Ctrl-C does not interrupt it."""

    def tell(_context, level, text):
        name = logging.INFO if level >= _native.LEVELS["info"] else logging.WARNING
        line = text.decode(errors="replace")
        if _log.isEnabledFor(name):
            _log.log(name, "%s", line)
        elif level <= debug and sys.stderr is not None:
            print(f"winnow: {line}", file=sys.stderr)

    return _native.LOG(tell)


@contextlib.contextmanager
def told_late(text):
    """Logs `text` once if the body takes long."""
    timer = threading.Timer(_LATE_S, _log.warning, ("%s", text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wait_for(act, given_up):
    """Runs act() in a thread and returns its result. Ctrl-C sets given_up, which ends the wait for other workers."""
    ends = []
    thread = threading.Thread(target=lambda: ends.append(act()), name="winnow-join", daemon=True)
    try:
        thread.start()
        thread.join()
    except BaseException:
        given_up.value = 1
        until = time.monotonic() + _GIVE_UP_S
        while thread.ident is not None and not ends and time.monotonic() < until:
            time.sleep(_MOMENT_S)
        raise
    return ends[0]


class Member:
    """One process's place in a job: the base of Comm and Node, which define `_calls` and `_noun`.

    Python may raise KeyboardInterrupt, or run a program's signal handler, after any call. So the library writes its results
    to memory that exists before the call, and steps can be repeated: nothing depends on a line after a call.
    """

    _noun: str
    _calls: Calls
    rank: int
    world: int

    def __init__(self, setup: Any, config: Any):
        # Joins with _calls.create(setup). `config` is the Config in `setup`; it gets a flag to give up.
        self._handle: Optional[ctypes.c_void_p] = ctypes.c_void_p()  # the library writes it; None after close()
        self._pid = os.getpid()
        self._closing = False
        self._inside: Set[Tuple[int, object]] = set()  # calls that use the handle now
        self._pending: Set[Request] = set()  # requests that the library works on; keeps their buffers alive
        _open_members.add(self)
        try:
            self._join(setup, config)
        except BaseException:
            self.close()
            raise

    def _join(self, setup, config):
        """Joins the job. Ctrl-C ends the wait, and then leaves nothing behind."""
        handle, given_up, owner = self._handle, ctypes.c_int(0), {}
        config.give_up = ctypes.pointer(given_up)
        self._teller = config.log = teller(config.debug)

        def create():
            code = self._calls.create(ctypes.byref(setup), ctypes.byref(handle))
            text = lib.winnow_last_error().decode(errors="replace")
            if owner.setdefault("is", "the member") != "the member" and handle:
                self._calls.destroy(handle)
            return code, text

        try:
            code, text = wait_for(create, given_up)
        except BaseException:
            if owner.setdefault("is", "the thread") == "the thread":
                self._handle = None
            raise
        check(code, text)

    def _call(self, function, before, after=()):
        """Calls function(*before, handle, *after). close() waits for it."""
        if self._pid != os.getpid():
            raise WinnowError(
                WinnowError.INVALID,
                f"this {self._noun} belongs to the parent process: make one after the fork",
            )
        call = (threading.get_ident(), object())
        try:
            self._inside.add(call)
            handle = None if self._closing else self._handle
            if not handle:
                raise WinnowError(WinnowError.INVALID, f"the {self._noun} is closed")
            return function(*before, handle, *after)
        finally:
            self._inside.discard(call)

    def _start(self, request, function, before, after=()):
        """Begins the operation of `request`, after making it known to close()."""
        self._release_some()
        handle = ctypes.byref(request._handle)
        try:
            self._pending.add(request)
            check(self._call(function, before, (*after, handle)))
            return request
        finally:
            if not request._handle:
                self._pending.discard(request)

    def _release_some(self):
        """Frees requests that nobody waits for: looks at two for each operation that begins."""
        pending = list(self._pending)
        for _ in range(min(2, len(pending))):
            self._turn += 1
            request = pending[self._turn % len(pending)]
            if request._handle:
                request._poll(0)

    def late(self) -> Optional[str]:
        """Return None, because a node does not know which worker is late."""
        return None

    def _tell_late(self, began):
        """Logs which worker is late: once after some seconds of a wait, and again when the time has doubled."""
        now = time.monotonic()
        if now - began < _LATE_S or now < self._late_due:
            return
        self._late_due = now + 1
        with contextlib.suppress(WinnowError):  # another thread may close it
            text = self.late()
            if text is not None:
                self._late_due = now + max(_LATE_AGAIN_S, now - began)
                _log.warning("rank %d: %s", self.rank, text)

    _late_due = 0
    _turn = 0

    def stats(self) -> CommStats:
        """Return what this process has sent and received since it joined the job.

        The call never waits. The totals are those of the last completed operation, or at most about 10 ms old.

        Returns:
            A CommStats.

        Raises:
            WinnowError: This object is closed, or belongs to the parent process.
        """
        stats = _native.CommStats()
        self._call(self._calls.stats, (), (ctypes.byref(stats),))
        return plain(CommStats, stats)

    def abort(self, text: str = "no reason given") -> None:
        """End every operation on every worker.

        Any thread may call it.

        Args:
            text: The reason, for the errors on all workers.

        Raises:
            WinnowError: This object is closed, or belongs to the parent process.
        """
        self._call(self._calls.abort, (), (text.encode(errors="replace"),))

    def close(self) -> None:
        """Leave the job.

        Operations that are not done yet are aborted on all workers. The call waits until calls of other threads have
        returned. A second call does nothing, and neither does a call in a forked child process.
        """
        if self._pid != os.getpid():
            return  # a forked child: it belongs to the parent
        for request in list(self._pending):  # those that are over but were not waited for
            request._poll(0)
        if self._pending:
            with contextlib.suppress(WinnowError):  # another thread may also close it
                self.abort(f"it closed its {self._noun} with operations under way")
        self._closing = True
        while of_others(self._inside):
            time.sleep(_MOMENT_S)
        while self._pending:
            for request in list(self._pending):
                request._drain()
            if self._pending:
                time.sleep(_MOMENT_S)  # other threads are taking the results
        handle, self._handle = self._handle, None
        if handle:
            self._calls.destroy(handle)

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._end(error)

    def _end(self, error):
        """Closes. If an exception was the cause, tells the other workers first."""
        success = error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        if not success and not self._closing and self._handle and self._pid == os.getpid():
            self.abort(f"{type(error).__name__}: {error}".split("\n")[0].removesuffix(": "))
        self.close()

    def _leave_on_exit(self):
        """Makes the C library leave the job at exit, when the exit status is known. Returns False if it cannot.

        Python does not tell its exit status, and has ended by then, so no Python code may run.
        """
        for request in list(self._pending):
            request._poll(0)
        if self._closing or self._pending or of_others(self._inside) or self._pid != os.getpid():
            return False
        handle, self._closing = self._handle, True
        if not handle or ctypes.CDLL(None).on_exit(self._calls.exit, handle) != 0:
            self._closing = False
            return False
        self._handle = None
        return True

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    def __repr__(self):
        state = " closed" if self._closing else ""
        return f"<winnow.{type(self).__name__} rank {self.rank} of {self.world}{state}>"


def options_of(tag, block, wire, priority, send=None, stream=None, lost=None):
    options = _native.Options(
        tag=number("tag", tag, _TAG_MAX),
        block=number("block", block, BLOCK_MAX),
        wire=choice("wire", "auto" if wire is None else wire, _native.WIRES),
        priority=number("priority", priority),
    )
    if send is not None and send.memory == "cuda":
        options.memory = _native.MEMORIES["cuda"]
        options.stream = number("stream", send.stream or 0 if stream is None else stream, 2**64 - 1)
    elif stream is not None:
        raise ValueError("stream is only for data on a GPU, but data is on the CPU: leave it out")
    if lost is not None:
        if lost.dtype != _native.DTYPES["float32"] or lost.count != send.count or not lost.writable:
            raise ValueError(f"lost must be float32, writable, and as large as data: {send.count} elements")
        options.lost = lost.address
    return options


def segments_of(segments):
    """Converts a list of (offset, count, row length), perhaps with a tile's rows and columns, to C."""
    for segment in segments:
        for i, field in enumerate(segment):
            number("segments", field, 2 ** (64 if i < 3 else 32) - 1)
    return (_native.Segment * len(segments))(*map(tuple, segments)), len(segments)


def tiles_of(data, tile):
    """Returns the segments of a matrix whose blocks are tiles."""
    shape = tuple(data.shape)
    if len(shape) != 2:
        raise ValueError(f"tile needs a matrix, but data has {len(shape)} dimensions: pass data.reshape(rows, columns)")
    rows, columns = (number("tile", side) for side in tile)
    if not rows or not columns:
        raise ValueError("tile must be (rows, columns), each at least 1")
    return [(0, shape[0] * shape[1], shape[1], rows, columns)]


def check_pair(send, recv):
    if recv.memory != send.memory:
        places = {"host": "the CPU", "cuda": "a GPU"}
        raise ValueError(f"data is on {places[send.memory]} and out is on {places[recv.memory]}")
    if not recv.writable:
        raise ValueError("the result's array is read-only: pass out=numpy.empty_like(data)")
    if recv.count != send.count or recv.dtype != send.dtype:
        raise ValueError("out differs from data in size or type: pass out=numpy.empty_like(data)")


def refuse_unknown(caller, settings, *own):
    """Refuses settings that the library's Config lacks, and those in `own`, which the caller sets itself."""
    for name in settings:
        if name not in _CONFIG or name in own:
            raise TypeError(f"{caller}() has no argument {name!r}")


def signature_of(**own):
    """Returns a signature for help() and editors, of a call that takes settings and these arguments."""
    kinds, keyword = get_type_hints(OfComm), inspect.Parameter.KEYWORD_ONLY
    settings = [inspect.Parameter(name, keyword, default=None, annotation=kinds[name]) for name in _CONFIG]
    return inspect.Signature(settings + [inspect.Parameter(n, keyword, default=d, annotation=type(d)) for n, d in own.items()])


def configure(settings):
    """Returns the Config of these settings. A setting of None is the environment's, or the library's default."""
    given = {name: value for name, value in settings.items() if value is not None}
    config = _native.Config()
    lib.winnow_config_init(ctypes.byref(config))
    # A key argument overrides a key file of the environment, and a key file argument overrides a key of the
    # environment.
    if "key" in given and "key_file" not in given:
        config.key_file = None
    if "key_file" in given and "key" not in given:
        config.key = None
    for name, value in given.items():
        if name in _CHOICES:
            value = choice(name, value, _CHOICES[name])
        elif _CONFIG[name] is ctypes.c_char_p:
            value = os.fsencode(value)
        elif _CONFIG[name] is ctypes.c_uint32:
            value = number(name, value)
        setattr(config, name, value)
    return config


_open_members: weakref.WeakSet[Member] = weakref.WeakSet()


@atexit.register
def close_all():
    # The interpreter keeps the exception that ended the program in last_value. At a prompt it may be any earlier error.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for member in list(_open_members):
        if error is not None or not member._leave_on_exit():
            member._end(error)
