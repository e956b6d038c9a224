# SPDX-License-Identifier: BSD-3-Clause
"""Requests of the library as futures of torch: threads wait for them and complete them in order.

Callbacks (Future.then()) run where a future is completed, and may wait for other operations. So whoever
completes one leaves it to another thread to wait for the next.
"""

import atexit
import queue
import threading
import time
import weakref

from . import _cuda, _member

_thread = threading.local()
_END_S = 2  # for callbacks that run when the program ends


class _Failure:
    """A future's value that stands for an exception.

    torch 1.13 has one way to report a failure well: an exception in a callback. A future with
    Future.set_exception() crashes DDP, reads as a failed cast, or is not looked at at all.
    """

    def __init__(self, error):
        self.error = error

    def __reduce__(self):  # a future with devices looks for tensors in its value by pickling it
        return _Failure, (None,)


class _Order:
    """What becomes of a future: finish(request), which has `limit` seconds from now on."""

    def __init__(self, finish, device, future, context, limit):
        self.finish, self.device, self.future, self.context = finish, device, future, context
        self.limit, self.begun = limit, time.monotonic()
        self.request = self.start = self.mark = None

    def wait(self):
        """Until the request is over, well or not; too late, it ends the job."""
        left = None if self.limit is None else max(self.begun + self.limit - time.monotonic(), 0)
        try:
            self.request.wait(left)
        except TimeoutError:
            self.request.abort(f"an operation is not done after its timeout of {self.limit:g} s")
        except Exception:
            pass  # complete() comes to it again

    def complete(self):
        """The result, which is there, is ordered before whoever waits for the future; callbacks run."""
        try:
            self.request.wait()
            # From here on a GPU's memory holds the result. Whoever waits for the future has its
            # stream wait for this one, which has nothing of the program's in it.
            with _cuda.side(self.device, "complete"):
                self._tell(self.finish(self.request))
        except Exception as error:
            self.fail(error)

    def fail(self, error):
        if not self.future.done():
            self._tell(_Failure(error))

    def _tell(self, value):
        before, _thread.context = calling_back(), self.context
        try:
            self.future.set_result(value)
        finally:
            _thread.context = before
            if self.context is not None:
                self.context.end()


def calling_back():
    """The `context` of the future whose callbacks this thread runs now, or None."""
    return getattr(_thread, "context", None)


class Completer:
    """Threads, and the queue of what they wait for. They end with close(), or with this object."""

    def __init__(self, name):
        self._name = name
        self._turns = _Turns(name)  # its threads must not keep this object alive
        self._staged = None
        _completers.add(self)

    def future(self, start, finish, failed, device=None, staged=False, context=None, limit=None):
        """A Future of finish(request), called when the request that start() made is done.

        If any of them raises, failed(exception) is called and the future raises a RuntimeError.
        device: the GPU of tensors on one. staged: start() gives a function that makes the request;
        it may wait, for the GPU or another operation, and is called in a thread and a stream of its own,
        which comes after what the caller's stream holds now.
        context: what calling_back() says in callbacks; context.end() is called after them.
        limit: in seconds; if the request takes longer its job is aborted.
        """
        future = _cuda.future(device)

        def check(done):
            value = done.value()
            if isinstance(value, _Failure):
                failed(value.error)
                raise RuntimeError(str(value.error))
            return value

        checked = future.then(check)
        order = _Order(finish, device, future, context, limit)
        try:
            if staged:
                order.start, order.mark = start(), _cuda.mark(device)
                self._stager().put(order)
            else:
                order.request = start()
                self._turns.put(order)
        except Exception as error:
            order.fail(error)
        return checked

    def close(self):
        (self._turns if self._staged is None else self._staged).put(None)

    def _stager(self):
        if self._staged is None:
            self._staged = queue.SimpleQueue()
            thread = threading.Thread(
                target=_stage, args=(self._staged, self._turns), name=f"{self._name}-stage", daemon=True
            )
            self._turns.threads.add(thread)
            thread.start()
        return self._staged

    def __del__(self):
        self.close()


class _Turns:
    """Threads of which one at a time takes the next order and waits for it; there is always one that can.

    One that is kept by a callback is replaced, and ends when there are others again.
    """

    def __init__(self, name):
        self._name = name
        self._orders = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._ready = 0  # threads that wait for their turn
        self.threads = weakref.WeakSet()
        self._more()

    def put(self, order):
        self._orders.put(order)

    def _more(self):
        self._ready += 1
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self.threads.add(thread)
        thread.start()

    def _work(self):
        while True:
            order = self._next()
            if order is None:
                return
            order.complete()
            del order  # the next one may take long; gradients need not stay
            with self._lock:
                if self._ready > 0:
                    return
                self._ready += 1

    def _next(self):
        with self._turn:
            with self._lock:
                self._ready -= 1
            order = self._orders.get()
            if order is None:
                self._orders.put(None)  # for the others
                return None
            order.wait()
            with self._lock:
                if self._ready == 0:
                    self._more()
            return order


_completers: weakref.WeakSet = weakref.WeakSet()


@atexit.register
def _end_all():
    """Python ends a thread that comes back from torch's C++ later than this, and C++ then ends the process."""
    _member.close_all()
    until = time.monotonic() + _END_S
    for completer in list(_completers):
        completer.close()
        for thread in list(completer._turns.threads):
            thread.join(max(until - time.monotonic(), 0))


def _stage(items, started):
    while True:
        order = items.get()
        if order is None:
            started.put(None)
            return
        try:
            with _cuda.side(order.device, "stage", order.mark):
                order.request = order.start()
            started.put(order)
        except Exception as error:
            order.fail(error)
        del order
