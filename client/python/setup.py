# SPDX-License-Identifier: BSD-3-Clause
"""What pyproject.toml cannot say: in a repository the wheel holds the library, built by make.

The library is plain C behind ctypes, so one wheel serves every Python 3 and every torch. Elsewhere
the wheel is the package alone, and the library that of `make install` or WINNOW_LIBRARY.
"""

import pathlib
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


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if not IN_REPOSITORY or self.editable_mode:
            return
        subprocess.run(["make", "-s", "-C", REPOSITORY, "wheel-library"], check=True)
        for library in (REPOSITORY / "build" / "wheel").glob("*.so*"):
            shutil.copy(library, pathlib.Path(self.build_lib) / "winnow")


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return IN_REPOSITORY


class WheelForAnyPython(bdist_wheel):
    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


options = {}
if IN_REPOSITORY:
    made = REPOSITORY / "build" / "python"
    made.mkdir(parents=True, exist_ok=True)
    options = {"build": {"build_base": str(made)}, "egg_info": {"egg_base": str(made)}}

setup(
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelForAnyPython},
    distclass=WithLibrary,
    options=options,
)
