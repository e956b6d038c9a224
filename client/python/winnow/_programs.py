# SPDX-License-Identifier: BSD-3-Clause
"""The commands `winnow` and `winnowd` of an environment: runs the package's programs, or else the machine's."""

import os
import pathlib
import sys


def winnow():
    _become("winnow")


def winnowd():
    _become("winnowd")


def _become(name):
    program = _find(name)
    if program is None:
        sys.exit(
            f"{name}: this package was built without the programs: install the wheel that `make wheel` makes, or run `make install`"
        )
    # With the whole path, because programs look for objects beside themselves.
    os.execv(program, [str(program), *sys.argv[1:]])


def places():
    """Returns the places of programs and library: this package and, in a repository, <repository>/build."""
    package = pathlib.Path(__file__).resolve().parent  # in a repository <repository>/client/python/winnow
    if len(package.parents) > 2 and (package.parents[1] / "winnow.h").exists():
        return [package, package.parents[2] / "build"]
    return [package]


def _find(name):
    path = [pathlib.Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for place in places() + path:
        if _is_program(place / name):
            return place / name
    return None


def _is_program(path):
    """Returns whether it is a program, and not a script such as this command itself."""
    try:
        with open(path, "rb") as file:
            return os.access(path, os.X_OK) and file.read(4) == b"\x7fELF"
    except OSError:
        return False
