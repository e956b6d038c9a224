# SPDX-License-Identifier: BSD-3-Clause
"""Turns requests of the library into futures of torch. Threads wait for requests and complete futures in order.

Callbacks (Future.then()) run in the thread that completes a future, and may wait for other operations. So another
thread waits for the next request.
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
    """The value of a future that has failed.

    In torch 1.13 an exception in a callback is the only good way to report a failure. A future with
    Future.set_exception() crashes DDP, looks like a failed cast, or is ignored.
    """

    def __init__(self, error):
        self.error = error

    def __reduce__(self):  # a future with devices looks for tensors in its value by pickling it
        return _Failure, (None,)


class _Order:
    """A future that will get the value finish(request), unless the request takes longer than `limit` seconds."""

    def __init__(self, finish, device, future, context, limit):
        self.finish, self.device, self.future, self.context = finish, device, future, context
        self.limit, self.begun = limit, time.monotonic()
        self.request = self.start = self.mark = None

    def wait(self):
        """Waits until the request is done or has failed. Ends the job if it takes too long."""
        left = None if self.limit is None else max(self.begun + self.limit - time.monotonic(), 0)
        try:
            self.request.wait(left)
        except TimeoutError:
            self.request.abort(f"an operation is not done after its timeout of {self.limit:g} s")
        except Exception:
            pass  # complete() gets the same error

    def complete(self):
        """Sets the future's value from the result, and runs callbacks."""
        try:
            self.request.wait()
            # The GPU's memory now holds the result. Streams of waiters wait for this stream, which holds no work of the
            # program.
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
    """Returns the `context` of the future whose callbacks this thread runs now, or None."""
    return getattr(_thread, "context", None)


class Completer:
    """Threads, and the queue of requests that they wait for. They end with close(), or with this object."""

    def __init__(self, name):
        self._name = name
        self._turns = _Turns(name)  # a separate object, so that its threads do not keep this one alive
        self._staged = None
        _completers.add(self)

    def future(self, start, finish, failed, device=None, staged=False, context=None, limit=None):
        """Returns a Future of finish(request), which is called when the request of start() is done.

        If any of them raises, failed(exception) is called and the future raises a RuntimeError.
        device: the GPU of the tensors, or None. staged: start() returns a function that makes the request. It may wait for
        the GPU or another operation. It is called in another thread with another stream, after the work that is now in
        the caller's stream.
        context: the value of calling_back() in callbacks; context.end() is called after them.
        limit: seconds after which the request's job is aborted.
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
    """Threads of which one at a time takes the next order and waits for it. One is always free to do so.

    A thread that runs a long callback is replaced, and ends after it if others are free.
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
            del order  # frees gradients while the next one takes long
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
                self._orders.put(None)  # for the other threads
                return None
            order.wait()
            with self._lock:
                if self._ready == 0:
                    self._more()
            return order


_completers: weakref.WeakSet = weakref.WeakSet()


@atexit.register
def _end_all():
    """Ends the threads before Python ends: a thread that returns from torch's C++ later would crash the process."""
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
