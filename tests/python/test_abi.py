# SPDX-License-Identifier: BSD-3-Clause
"""The ctypes declarations say what client/winnow.h says: the header is compiled and compared.

abi.txt is what programs that were built against this version of it rely on: `test_abi.py --write` writes it.
"""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import typing
import unittest

import harness

import winnow.torch
from winnow import _member, _native, _settings

STRUCTURES = {
    "winnow_config": _native.Config,
    "winnow_membership": _native.Membership,
    "winnow_options": _native.Options,
    "winnow_segment": _native.Segment,
    "winnow_choice": _native.Choice,
    "winnow_node_id": _native.NodeId,
    "winnow_node_config": _native.NodeConfig,
    "winnow_op_stats": _native.OpStats,
    "winnow_stats": _native.CommStats,
}
CONSTANTS = {
    "WINNOW_ABI_VERSION": _native.ABI_VERSION,
    "WINNOW_OK": _native.OK,
    **{f"WINNOW_ERR_{name}": value for name, value in _native.ERRORS.items()},
    **{f"WINNOW_{name.upper()}": value for name, value in _native.OPS.items()},
    **{f"WINNOW_WIRE_{name.upper()}": value for name, value in _native.WIRES.items() if name != "f32"},
    **{f"WINNOW_MEMORY_{name.upper()}": value for name, value in _native.MEMORIES.items()},
    **{f"WINNOW_NETWORK_{name.upper()}": value for name, value in _native.NETWORKS.items()},
    "WINNOW_QUIET": _native.LEVELS["off"],
    "WINNOW_WARN": _native.LEVELS["warn"],
    "WINNOW_INFO": _native.LEVELS["info"],
    "WINNOW_F32": _native.DTYPES["float32"],
    "WINNOW_F16": _native.DTYPES["float16"],
    "WINNOW_BF16": _native.DTYPES["bfloat16"],
    "WINNOW_F64": _native.DTYPES["float64"],
    "WINNOW_I32": _native.DTYPES["int32"],
    "WINNOW_I64": _native.DTYPES["int64"],
}
HEADER = harness.ROOT / "client" / "winnow.h"
KNOWN = pathlib.Path(__file__).with_name("abi.txt")


def expressions():
    """C expressions, each with the number that Python takes it for."""
    wanted = dict(CONSTANTS)
    for name, structure in STRUCTURES.items():
        wanted[f"sizeof(struct {name})"] = ctypes.sizeof(structure)
        for field, kind in structure._fields_:
            wanted[f"offsetof(struct {name}, {field})"] = getattr(structure, field).offset
            wanted[f"sizeof(((struct {name} *)0)->{field})"] = ctypes.sizeof(kind)
    return wanted


def evaluate(names):
    """What the C compiler takes them for."""
    lines = "".join(f'printf("%lld\\n", (long long)({name}));' for name in names)
    source = f'#include <stdio.h>\n#include "client/winnow.h"\nint main(void) {{ {lines} return 0; }}\n'
    with tempfile.TemporaryDirectory() as directory:
        program = pathlib.Path(directory) / "abi"
        (program.with_suffix(".c")).write_text(source)
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-I", harness.ROOT, f"{program}.c", "-o", program], check=True)
        output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [int(line) for line in output.split()]


def declarations():
    """The header's functions: their parameters, by name; and the whole of each."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    for match in re.finditer(r"^WINNOW_API ([^;(]*?\b(winnow_\w+)\(([^;]*)\));", text, flags=re.M):
        yield match[2], match[3], " ".join(match[1].replace("WINNOW_CHECK", "").split())


def promises():
    """Its version, and a line for each thing that a program relies on."""
    lines = [whole for _, _, whole in declarations()]
    for name, structure in STRUCTURES.items():
        fields = (f"{field}@{getattr(structure, field).offset}+{ctypes.sizeof(kind)}" for field, kind in structure._fields_)
        lines.append(f"struct {name} {ctypes.sizeof(structure)}: {' '.join(fields)}")
    lines += [f"{name} = {value}" for name, value in CONSTANTS.items() if name != "WINNOW_ABI_VERSION"]
    return [f"version {_native.ABI_VERSION}", *sorted(lines)]


class Abi(unittest.TestCase):
    def test_version(self):
        """Of what programs rely on nothing may change, but with the version; they may come to rely on more."""
        version, *known = KNOWN.read_text().splitlines()
        now = promises()
        if now[0] == version:
            self.assertEqual([line for line in known if line not in now], [], "raise WINNOW_ABI_VERSION")
        self.assertEqual([version, *known], now, "write abi.txt anew: /usr/bin/python3 tests/python/test_abi.py --write")

    def test_numbers(self):
        wanted = expressions()
        self.assertEqual(dict(zip(wanted, evaluate(wanted))), wanted)

    def test_documents(self):
        """The page for operators names the numbers that have to be the same."""
        wire = re.search(r"#define WIRE_VERSION (\d+)", (harness.ROOT / "ebpf/wire.h").read_text())[1]
        page = (harness.ROOT / "docs/deploy.md").read_text()
        for what, value in (("wire version", wire), ("ABI", _native.ABI_VERSION)):
            self.assertIn(f"\n| {what} | {value} |", page)
        self.assertIn(f"libwinnow.so.{_native.ABI_VERSION}`", page)

    def test_every_function_is_declared(self):
        self.assertEqual({name for name, _, _ in declarations()}, set(_native.FUNCTIONS))
        for name, parameters, _ in declarations():
            count = 0 if parameters.strip() == "void" else parameters.count(",") + 1
            self.assertEqual(len(_native.FUNCTIONS[name][1]), count, name)

    def test_every_result_and_field_is_declared(self):
        text = HEADER.read_text()
        results = set(re.findall(r"\b(WINNOW_(?:OK|ERR_\w+)) = ", text))
        self.assertEqual(results, {name for name in CONSTANTS if re.match("WINNOW_(OK|ERR)", name)})
        structures = set(re.findall(r"^struct (winnow_\w+) {", text, flags=re.M))
        self.assertEqual(structures, set(STRUCTURES))

    def test_what_python_shows(self):
        """Settings and statistics, which have types and docstrings there, are those of the library."""
        self.assertEqual(set(typing.get_type_hints(_settings.OfComm)), set(_member._CONFIG))
        for shown, structure in ((winnow.OpStats, _native.OpStats), (winnow.CommStats, _native.CommStats)):
            self.assertEqual(list(shown._fields), [field for field, _ in structure._fields_])
        hook = ("buckets", "bytes", *winnow.OpStats._fields, *winnow.torch._WIRE_TOTALS)  # as they are added up
        self.assertEqual(winnow.torch.HookStats._fields, hook)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        KNOWN.write_text("\n".join(promises()) + "\n")
    else:
        unittest.main()
