# SPDX-License-Identifier: BSD-3-Clause
"""Requests of the library as futures of torch: one thread waits and completes them in order."""

import queue
import threading

from . import _cuda


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
    """What becomes of a future: finish(request)."""

    def __init__(self, finish, device, future):
        self.finish, self.device, self.future = finish, device, future
        self.request = self.start = self.mark = None

    def complete(self):
        """Waits for the request; the result is ordered before whoever waits for the future."""
        try:
            self.request.wait()
            # From here on a GPU's memory holds the result. Whoever waits for the future has its
            # stream wait for this one, which has nothing of the program's in it.
            with _cuda.side(self.device, "complete"):
                self.future.set_result(self.finish(self.request))
        except Exception as error:
            self.fail(error)

    def fail(self, error):
        if not self.future.done():
            self.future.set_result(_Failure(error))


class Completer:
    """A thread, and the queue of what it waits for. It ends with close(), or with this object."""

    def __init__(self, name):
        self._name = name
        self._queue = queue.SimpleQueue()
        self._staged = None
        # The thread must not keep this object alive.
        threading.Thread(target=_complete, args=(self._queue,), name=name, daemon=True).start()

    def future(self, start, finish, failed, device=None, staged=False):
        """A Future of finish(request), called when the request that start() made is done.

        If any of them raises, failed(exception) is called and the future raises a RuntimeError.
        device: the GPU of tensors on one. staged: start() gives a function that makes the request;
        it may wait for the GPU, and is called in a thread and a stream of its own, which comes
        after what the caller's stream holds now.
        """
        future = _cuda.future(device)

        def check(done):
            value = done.value()
            if isinstance(value, _Failure):
                failed(value.error)
                raise RuntimeError(str(value.error))
            return value

        checked = future.then(check)
        order = _Order(finish, device, future)
        try:
            if staged:
                order.start, order.mark = start(), _cuda.mark(device)
                self._stager().put(order)
            else:
                order.request = start()
                self._queue.put(order)
        except Exception as error:
            order.fail(error)
        return checked

    def close(self):
        (self._queue if self._staged is None else self._staged).put(None)

    def _stager(self):
        if self._staged is None:
            self._staged = queue.SimpleQueue()
            threading.Thread(
                target=_stage, args=(self._staged, self._queue), name=f"{self._name}-stage", daemon=True
            ).start()
        return self._staged

    def __del__(self):
        self.close()


def _complete(items):
    while True:
        order = items.get()
        if order is None:
            return
        order.complete()
        del order  # get() may take long; gradients need not stay


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
