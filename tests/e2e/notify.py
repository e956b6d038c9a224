# SPDX-License-Identifier: BSD-3-Clause
"""notify.py SOCKET OUT - a service manager that listens: each datagram as a line "SECONDS TEXT", new lines as spaces"""
import socket
import sys
import time

path, out = sys.argv[1:]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, open(out, "w", buffering=1) as log:
    manager.bind("\0" + path[1:] if path.startswith("@") else path)
    begun = time.monotonic()
    log.write("0 LISTENING\n")
    while True:
        text = manager.recv(4096).decode().replace("\n", " ")
        log.write(f"{time.monotonic() - begun:.3f} {text}\n")
