# SPDX-License-Identifier: BSD-3-Clause
"""A worker of libwinnow's, for jobs that it shares with workers of this folder."""

import threading

import numpy as np
import torch
import winnow

import element

from reference import OPERATIONS

NAMES = {number: name for name, number in OPERATIONS.items()}


class Real:
    """In a thread of its own: it joins, and does the operations it is given, all at once."""

    def __init__(self, aggregators, rank, job, world, key=None, **settings):
        self.rank, self.results, self.error = rank, None, None
        where = ",".join("[%s]:%d" % to if ":" in to[0] else "%s:%d" % to for to in aggregators)
        keys = {"key": key} if key else {"insecure_no_key": True}
        self.arguments = dict(aggregators=where, job=job, rank=rank, world=world, **keys, **settings)
        self.operations, self.go = [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            with winnow.Comm(**self.arguments) as comm:
                self.go.wait()
                self.results = [
                    self.outcome(request) for request in [self.start(comm, op) for op in self.operations]
                ]
        except Exception as error:
            self.error = error

    def start(self, comm, op):
        wire = {form: name for name, form in element.FORMS.items()}[op["form"]]
        what = dict(op=NAMES[op["reduction"]], tag=op["tag"], block=op["block_elems"], wire=wire)
        if not op["scatter"]:
            return comm.allreduce_async(self.data(op), **what)
        data = self.data(op)
        return comm.reduce_scatter_async(data, data[: len(data) // comm.world] * 0, **what)

    def outcome(self, request):
        try:
            data = request.wait()
        except Exception as error:
            return error
        return data if isinstance(data, np.ndarray) else data.view(torch.int16).numpy().view("<u2")

    def data(self, op):
        """A copy; numpy has no bf16, torch has."""
        array = op["tensors"][self.rank].copy()
        return torch.from_numpy(array.view("<i2")).view(torch.bfloat16) if op["dtype"] == "bf16" else array
