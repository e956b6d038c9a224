# SPDX-License-Identifier: BSD-3-Clause
"""Builds the wheel. In a repository it contains the library and the programs, which make builds.

They are plain C, so one wheel serves every Python 3 and every torch. Everything that they load, except the C library,
lies beside them. Outside a repository the wheel contains only the package, which then needs `make install` or
WINNOW_LIBRARY.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
IN_REPOSITORY = (REPOSITORY / "client" / "winnow.h").exists()
CROSS = os.environ.get("CROSS", "")  # another processor than this machine's, as `make wheel` says it
MACHINE = CROSS.split("-")[0] or platform.machine()
MADE = REPOSITORY / "build" / CROSS / "wheel"


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if not IN_REPOSITORY or self.editable_mode:
            return
        subprocess.run(["make", "-s", "-C", REPOSITORY, "wheel-library"], check=True)
        package = pathlib.Path(self.build_lib) / "winnow"
        for file in contents():
            shutil.copy(file, package)
        shutil.copytree(MADE / "licenses", package / "licenses", dirs_exist_ok=True)


def contents():
    """Returns the programs, objects and libraries for the wheel."""
    return [*MADE.glob("*.so*"), MADE / "winnow", MADE / "winnowd"]


def glibc():
    """Returns the minor version of glibc that they all need, such as 36 for 2.36, for the manylinux tag."""
    command = ["readelf", "-WV", *contents()]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    relr = [36] if "GLIBC_ABI_DT_RELR" in said else []
    return max(relr + [int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", said)])


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return IN_REPOSITORY


class WheelForAnyPython(bdist_wheel):
    def get_tag(self):
        _, _, tag = super().get_tag()
        return "py3", "none", f"manylinux_2_{glibc()}_{MACHINE}" if IN_REPOSITORY else tag


options = {}
if IN_REPOSITORY:
    made = MADE.parent / "python"
    made.mkdir(parents=True, exist_ok=True)
    options = {"build": {"build_base": str(made)}, "egg_info": {"egg_base": str(made)}}

# The publisher of a wheel sets the project's address: make wheel HOMEPAGE=https://..
HOMEPAGE = os.environ.get("HOMEPAGE")

setup(
    project_urls={"Homepage": HOMEPAGE} if HOMEPAGE else {},
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelForAnyPython},
    distclass=WithLibrary,
    options=options,
)
