# SPDX-License-Identifier: BSD-3-Clause
"""WINNOW_TIMELINE=file.json: a timeline of operations for chrome://tracing or ui.perfetto.dev.

Rank 3 writes file.3.json. Events are written as they end, so a killed program leaves a valid file, because the format
does not need its last bracket.
"""

import functools
import json
import pathlib
import threading
import time

from ._member import variable


class Timeline:
    """One process's file. Times are those of the machine's clock, so that files of several ranks fit together."""

    def __init__(self, path, rank):
        path = pathlib.Path(path)
        self._rank = rank
        self._lock = threading.Lock()
        self._file = open(path.with_name(f"{path.stem}.{rank}{path.suffix}"), "w")
        self._file.write("[\n")
        self._write(name="process_name", ph="M", args={"name": f"rank {rank}"})

    def span(self, name, lane, begun, ended, **details):
        """Writes an operation, with times of now(). Operations of one lane do not overlap."""
        self._write(
            name=name,
            ph="X",
            tid=lane,
            ts=round(begun * 1e6, 1),
            dur=round((ended - begun) * 1e6, 1),
            args=details,
        )

    def _write(self, **event):
        line = json.dumps({"pid": self._rank, **event})
        with self._lock:
            self._file.write(line + ",\n")
            self._file.flush()


now = time.time


def of_rank(rank):
    """Returns this process's Timeline, or None if WINNOW_TIMELINE is not set."""
    path = variable("WINNOW_TIMELINE")
    return _opened(path, rank) if path else None


@functools.lru_cache(None)
def _opened(path, rank):
    return Timeline(path, rank)
