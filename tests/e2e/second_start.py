# SPDX-License-Identifier: BSD-3-Clause
"""second_start.py WINNOWD - a winnowd that is refused because its port is taken must not touch the owner's datagrams

The owner is made up here: two UDP sockets that share a port, with a program that gives all datagrams to the second one. A program
belongs to all sockets that share a port, so a winnowd that opens a socket there replaces it.
"""
import ctypes
import select
import socket
import struct
import subprocess
import sys

ATTACH = 51  # SO_ATTACH_REUSEPORT_CBPF


def always(fd, index):
    code = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, index))  # BPF_RET | BPF_K
    fd.setsockopt(socket.SOL_SOCKET, ATTACH, struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))


def shared(port):
    fd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fd.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    fd.bind(("127.0.0.1", port))
    return fd


def counts(sockets, sender, port):
    """How many of 16 datagrams, of 16 channels, each socket gets."""
    for channel in range(16):
        sender.sendto(bytes([channel]) * 64, ("127.0.0.1", port))
    got = [0, 0]
    while sum(got) < 16:
        ready, _, _ = select.select(sockets, [], [], 5)
        if not ready:
            break
        for fd in ready:
            fd.recv(100)
            got[sockets.index(fd)] += 1
    return got


def main():
    control = socket.create_server(("127.0.0.1", 0))
    port = control.getsockname()[1]
    sockets = [shared(port), shared(port)]
    always(sockets[0], 1)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    assert counts(sockets, sender, port) == [0, 16], "the program does not work here"
    start = subprocess.run(
        [sys.argv[1], "--listen", f"127.0.0.1:{port}", "--metrics", "no", "--insecure-no-key", "--threads", "2"],
        capture_output=True, text=True, timeout=30)
    assert start.returncode == 1 and f"cannot listen on TCP 127.0.0.1:{port}: Address already in use" in start.stderr, start
    got = counts(sockets, sender, port)
    assert got == [0, 16], f"its sockets get {got} of 16 datagrams, want [0, 16]"


main()
