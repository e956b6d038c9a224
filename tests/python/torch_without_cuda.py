# SPDX-License-Identifier: BSD-3-Clause
"""torch_without_cuda.py SITE-PACKAGES - makes PyPI's torch importable without the gigabytes of CUDA libraries.

They are loaded with torch, and used with a GPU only. In their place come empty ones with the same names, and one with all
their symbols, of which each function says cudaErrorNoDevice, and those that have a text to return say so in words. It has no
versions of symbols: the loader takes a symbol without one for one of any version, but not from the library that ought to
have it.
"""

import pathlib
import re
import subprocess
import sys

_NO_DEVICE = 100
_TEXT = re.compile(r"(cuda|cudnn|cusparse|cublas|nccl|nvrtc)\w*(ErrorString|ErrorName|StatusString)|ncclGetLastError")
_CUDA = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+")
_SYSTEM = re.compile(r"@(GLIBC|GLIBCXX|CXXABI|GCC|GOMP|OMP|GFORTRAN)_")
_STUB = "libno_cuda.so.0"


def main(folder):
    own = [str(path) for path in folder.glob("*.so")]
    undefined = _symbols("--undefined-only", own) - _symbols("--defined-only", own)
    system = {symbol for symbol in undefined if _SYSTEM.search(symbol)}
    names = _names(undefined - system) - _names(system)  # some are asked for with a version and without
    _library(folder, _STUB, "".join(map(_function, sorted(names))))
    for line in _lines("ldd", folder / "libtorch_python.so"):
        if _CUDA.fullmatch(line.split()[0]):
            _library(folder, line.split()[0], "", "-Wl,--no-as-needed,-rpath,$ORIGIN", folder / _STUB)


def _function(name):
    if _TEXT.fullmatch(name):
        return f'const char *{name}(void) {{ return "there is no CUDA here"; }}\n'
    return f"int {name}(void) {{ return {_NO_DEVICE}; }}\n"


def _lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def _symbols(which, libraries):
    """name or name@version of all but weak ones."""
    words = [line.split() for line in _lines("nm", "-D", "--with-symbol-versions", which, *libraries)]
    return {word[-1] for word in words if len(word) >= 2 and word[-2] not in "vw"}


def _names(symbols):
    return {symbol.partition("@")[0] for symbol in symbols}


def _library(folder, name, code, *more):
    new = folder / f"{name}.new"  # the present one may be in use
    command = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-x", "none", *more, f"-Wl,-soname,{name}", "-o", new]
    subprocess.run(command, check=True, input=code, text=True)
    new.replace(folder / name)


main(pathlib.Path(sys.argv[1]) / "torch" / "lib")
