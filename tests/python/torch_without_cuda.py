# SPDX-License-Identifier: BSD-3-Clause
"""torch_without_cuda.py SITE-PACKAGES - makes PyPI's torch importable without the gigabytes of CUDA libraries.

They are loaded with torch, and used with a GPU only. In their place come small ones with the same names and symbols, of
which each function says cudaErrorNoDevice.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

_NO_DEVICE = 100
_CUDA = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+")


def main(folder):
    own = [str(path) for path in folder.glob("*.so")]
    versions, symbols = _versions_needed(own), collections.defaultdict(set)
    for symbol in _symbols("--undefined-only", own) - _symbols("--defined-only", own):
        name, _, version = symbol.partition("@")
        symbols[version].add(name)
    libraries = [name for name in _loaded(folder / "libtorch_python.so") if _CUDA.fullmatch(name)]
    for library in libraries:
        # Symbols that no version ties to a library may be in any.
        loose = symbols[""] if library == libraries[0] else set()
        _write(folder / library, {version: symbols[version] for version in versions[library]}, loose)


def _lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def _symbols(which, libraries):
    """name or name@version of all but weak ones."""
    words = [line.split() for line in _lines("nm", "-D", "--with-symbol-versions", which, *libraries)]
    return {word[-1] for word in words if len(word) >= 2 and word[-2] not in "vw"}


def _versions_needed(libraries):
    """Which versions of symbols each library must have."""
    needed = collections.defaultdict(set)
    for line in _lines("objdump", "-p", *libraries):
        begins = re.match(r"\s+required from (\S+):", line)
        version = re.match(r"\s+0x\w+ 0x\w+ \d+ (\S+)$", line)
        if begins:
            library = begins.group(1)
        elif version:
            needed[library].add(version.group(1))
    return needed


def _loaded(library):
    """The names of all libraries that are loaded with this one."""
    return sorted(line.split()[0] for line in _lines("ldd", library))


def _write(path, versioned, loose):
    names = loose.union(*versioned.values())
    code = "".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in sorted(names))
    command = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", "-", f"-Wl,-soname,{path.name}", "-o", str(path)]
    with tempfile.NamedTemporaryFile("w") as script:
        for version, group in versioned.items():
            script.write(f"{version} {{ {' '.join(f'{name};' for name in group)} }};\n")
        script.flush()
        if versioned:
            command.append(f"-Wl,--version-script={script.name}")
        subprocess.run(command, check=True, input=code, text=True)


main(pathlib.Path(sys.argv[1]) / "torch" / "lib")
