# SPDX-License-Identifier: BSD-3-Clause
"""Ports that are free, for tests; as a program, prints one.

What bind() with port 0 gives may be the next connection's of somebody else, and then nobody is refused there. So these lie
below the ports that the kernel gives to connections, and a number comes again after all others only, in whichever test.
"""

import fcntl
import os
import socket
import tempfile

_FIRST, _END = 16000, 32000


def free_port():
    """Of 127.0.0.1, TCP and UDP."""
    with open(os.path.join(tempfile.gettempdir(), f"winnow-tests-ports-{os.getuid()}"), "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or _FIRST)
        for _ in range(_FIRST, _END):
            port = port + 1 if port + 1 < _END else _FIRST
            if _is_free(port):
                file.truncate(0)
                file.write(str(port))
                return port
    raise OSError(f"no port from {_FIRST} to {_END - 1} is free")


def _is_free(port):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


if __name__ == "__main__":
    print(free_port())
