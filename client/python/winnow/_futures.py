# SPDX-License-Identifier: BSD-3-Clause
"""Requests of the library as futures of torch: one thread waits and completes them in order."""

import queue
import threading

import torch


class _Failure:
    """A future's value that stands for an exception.

    torch 1.13 has one way to report a failure well: an exception in a callback. A future with
    Future.set_exception() crashes DDP, reads as a failed cast, or is not looked at at all.
    """

    def __init__(self, error):
        self.error = error


class Completer:
    """A thread, and the queue of what it waits for. It ends with close(), or with this object."""

    def __init__(self, name):
        self._queue = queue.SimpleQueue()
        # The thread must not keep this object alive.
        threading.Thread(target=_complete, args=(self._queue,), name=name, daemon=True).start()

    def future(self, start, finish, failed):
        """A Future of finish(request), called when the request that start() made is done.

        If any of them raises, failed(exception) is called and the future raises a RuntimeError.
        """
        future = torch.futures.Future()

        def check(done):
            value = done.value()
            if isinstance(value, _Failure):
                failed(value.error)
                raise RuntimeError(str(value.error))
            return value

        checked = future.then(check)
        try:
            request = start()
        except Exception as error:
            future.set_result(_Failure(error))
        else:
            self._queue.put((request, finish, future))
        return checked

    def close(self):
        self._queue.put(None)

    def __del__(self):
        self.close()


def _complete(items):
    while True:
        item = items.get()
        if item is None:
            return
        request, finish, future = item
        try:
            request.wait()
            value = finish(request)
        except Exception as error:
            value = _Failure(error)
        future.set_result(value)
        del item, request, finish, future, value  # get() may take long; gradients need not stay
