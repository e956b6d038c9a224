# SPDX-License-Identifier: BSD-3-Clause
"""hang.py TID - stops one thread of another process, and only that one, until this process ends (ptrace; root)"""
import ctypes
import os
import sys
import time

PTRACE_ATTACH = 16
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(PTRACE_ATTACH, int(sys.argv[1]), None, None) != 0:
    sys.exit(f"cannot stop thread {sys.argv[1]}: {os.strerror(ctypes.get_errno())}")
time.sleep(600)
