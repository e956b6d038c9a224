# SPDX-License-Identifier: BSD-3-Clause
"""What lies where in buckets, beside a trace (WINNOW_TRACE), so that winnow tune shows parameters by name.

JSON lines in JOB.RUN.0.names, next to JOB.RUN.0.trace: how a bucket is made up, once for each way, and for each
operation which of them it is. DDP makes its buckets anew after the first step, and may have several of one size.
"""

import json
import sys
import threading

from ._member import WinnowError


class Names:
    def __init__(self):
        self._names = {}  # of parameters, by id
        self._trace = None
        self._file = None
        self._layouts = {}
        self._lock = threading.Lock()  # several threads complete operations

    def learn(self, module):
        for name, parameter in module.named_parameters():
            self._names[id(parameter)] = name

    def holding(self, parameters, wanted):
        """For people: those parameters of a bucket for whose slice of it wanted(slice) is true."""
        found, offset = [], 0
        for number, parameter in enumerate(parameters):
            end = offset + parameter.numel()
            if wanted(slice(offset, end)):
                found.append(self._names.get(id(parameter), f"({number})"))
            offset = end
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        return ", ".join(found[:3]) + more or "a bucket"

    def note(self, comm, tag, parameters):
        """Operation `tag` is a tensor of these parameters. The first worker's word is enough."""
        if comm.rank != 0 or not parameters:
            return
        try:
            trace = comm.trace()
        except WinnowError:
            return  # it is being closed
        with self._lock:
            if trace != self._trace:
                self._begin(trace)
            if self._file is None:
                return
            try:
                self._write(tag, parameters)
            except OSError as error:
                self._end(error)

    def _begin(self, trace):
        if self._file is not None:
            self._file.close()
        self._trace, self._file, self._layouts = trace, None, {}
        if trace is None:
            return
        try:
            self._file = open(trace[: -len("trace")] + "names", "x")
        except OSError as error:
            self._end(error)

    def _write(self, tag, parameters):
        key = tuple(id(parameter) for parameter in parameters)
        lines = []
        if key not in self._layouts:
            self._layouts[key] = len(self._layouts)
            lines.append({"layout": self._layouts[key], **self._described(parameters)})
        lines.append({"tag": tag, "layout": self._layouts[key]})
        self._file.write("".join(json.dumps(line) + "\n" for line in lines))
        self._file.flush()

    def _described(self, parameters):
        found, offset = [], 0
        for number, parameter in enumerate(parameters):
            name = self._names.get(id(parameter), f"({number})")
            found.append({"name": name, "offset": offset, "shape": list(parameter.shape)})
            offset += parameter.numel()
        return {"count": offset, "parameters": found}

    def _end(self, error):
        self._file = None
        print(f"winnow: no names beside the trace {self._trace}: {error}; the job goes on", file=sys.stderr)
