# SPDX-License-Identifier: BSD-3-Clause
"""States that members give to each other: what goes in comes out, and what others have made does no harm."""

import collections
import math
import random
import re
import struct
import unittest

import harness
import numpy
import torch

from winnow import _state

PLAIN = (type(None), bool, int, float, str)
CODE = r"\bpickle\.|import pickle|torch\.load\(|allow_pickle|\beval\(|\bexec\(|_object\(|object_list\(|marshal|__import__"


def tensor_of(draw):
    dtype = draw.choice(list(_state._DTYPES.values()))
    shape = [draw.choice([0, 1, 1, 2, 3, 7]) for _ in range(draw.randrange(4))]
    size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    if dtype == torch.bool:
        tensor = torch.tensor([draw.random() < 0.5 for _ in range(math.prod(shape))], dtype=dtype).view(shape)
    else:
        data = torch.tensor(list(draw.randbytes(size)), dtype=torch.uint8)
        tensor = data.view(dtype).view(shape) if size else torch.empty(shape, dtype=dtype)
    if len(shape) == 2 and draw.random() < 0.3:
        tensor = tensor.t()
    return torch.nn.Parameter(tensor) if tensor.is_floating_point() and draw.random() < 0.2 else tensor


def value_of(draw, depth=0):
    kind = draw.choice(["leaf", "tensor", "list", "dict"] if depth < 4 else ["leaf", "tensor"])
    if kind == "leaf":
        text = "".join(draw.choice("aé\0\n\"\\𝄞\ud800") for _ in range(draw.randrange(4)))
        number = struct.unpack("<d", draw.randbytes(8))[0]
        return draw.choice([None, True, False, 0, -1, 2**80, number, math.inf, -0.0, numpy.float64(0.1), text])
    if kind == "tensor":
        return tensor_of(draw)
    parts = [value_of(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == "list":
        return draw.choice([list, tuple])(parts)
    keys = draw.sample([None, False, "", "a", 1, -7, 2.5, "state"], len(parts))
    return draw.choice([dict, collections.OrderedDict])(zip(keys, parts))


def same(a, b):
    if isinstance(a, torch.Tensor):
        return (
            type(b) is torch.Tensor
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and torch.equal(_state._plain.bytes_of(a), _state._plain.bytes_of(b))
        )
    if isinstance(a, float):
        return type(b) is float and (a == b or (a != a and b != b)) and math.copysign(1, a) == math.copysign(1, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def kinds_in(value):
    if isinstance(value, dict):
        return {type(value)} | set().union(*map(kinds_in, [*value, *value.values()]))
    if isinstance(value, (list, tuple)):
        return {type(value)} | set().union(*map(kinds_in, value))
    return {type(value)}


class Thing:
    pass


class States(unittest.TestCase):
    def test_round_trip(self):
        draw = random.Random(1)
        for number in range(1500):
            value = value_of(draw)
            room = _state.pack(value, "it")
            self.assertEqual(room.dtype, numpy.int32)
            back = _state.unpack(room)
            self.assertTrue(same(value, back), (number, value, back))
            self.assertEqual(_state.leaves(value, "it"), _state.leaves(back, "it"))

    def test_of_an_optimizer(self):
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5, 5])  # a Counter is in it
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        for thing in (model, optimizer, schedule):
            state = thing.state_dict()
            self.assertTrue(same(state, _state.unpack(_state.pack(state, "it"))))
            thing.load_state_dict(_state.unpack(_state.pack(state, "it")))
        self.assertEqual(schedule.milestones, collections.Counter({5: 2, 3: 1}))

    def test_checksums(self):
        """They tell values, types and shapes apart, and not in which order a dictionary was filled."""
        values = [1, 1.0, True, "1", [1], (2,), None, [], {}, (), torch.ones(2), torch.ones(2, 1), torch.ones(2).double(), -torch.ones(2)]
        found = [tuple(_state.leaves({"a": value}, "it")) for value in values]
        self.assertEqual(len(set(found)), len(values))
        self.assertEqual(_state.leaves({"a": 1, "b": 2}, "it"), _state.leaves({"b": 2, "a": 1}, "it"))
        self.assertEqual(_state.leaves({"a": [{3: 1}]}, "it")[0][0], "it['a'][0][3]")

    def test_refused(self):
        """With where it is."""
        nested = []
        nested.append(nested)
        for value, text in (
            ({"a": [1, Thing()]}, r"^it\['a'\]\[1\] is of type test_state.Thing: want dict, list"),
            ({"a": {3: (lambda: 0)}}, r"^it\['a'\]\[3\] is of type builtins.function: want"),
            ([{Thing: 1}], r"^it\[0\] has the key .*, which is of type builtins.type: want None, bool"),
            ({(1, 2): 3}, r"^it has the key \(1, 2\), which is of type builtins.tuple"),
            ([torch.ones(2, 2).to_sparse()], r"^it\[0\] is a Tensor of torch.float32, torch.sparse_coo on cpu: want"),
            ([torch.empty(2, device="meta")], r"^it\[0\] is a Tensor of torch.float32, torch.strided on meta: want"),
            ([torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)], r"^it\[0\] is a Tensor of torch.qint8"),
            ({"a": {1, 2}}, r"^it\['a'\] is of type builtins.set"),
            ({"a": numpy.ones(2)}, r"^it\['a'\] is of type numpy.ndarray"),
            ({"a": collections.defaultdict(list)}, r"^it\['a'\] is of type collections.defaultdict"),
            (nested, r"is nested more than 64 deep: is it in itself\?$"),
        ):
            for call in (_state.pack, _state.check, _state.leaves):
                with self.assertRaisesRegex(TypeError, text) as caught:
                    call(value, "it")
                self.assertNotIn("\n", str(caught.exception))

    def made(self, text, tensors=b""):
        data = b"winnow1\n" + len(text).to_bytes(8, "little") + text
        data += bytes(-len(data) % 16) + tensors if tensors else b""
        return numpy.frombuffer(data + bytes(-len(data) % 4), numpy.int32)

    def test_made_by_others(self):
        self.assertEqual(_state.unpack(self.made(b'["tensor", "uint8", 3]', bytes((1, 2, 3)))).tolist(), [1, 2, 3])
        for text, said in (
            (b"{}", "an object"),
            (b'["list", {"a": 1}]', "an object"),
            (b"[]", "unknown kind"),
            (b'["set", 1]', "unknown kind"),
            (b"[[1], 2]", "unknown kind"),
            (b'["dict", 1]', "without keys"),
            (b'["dict", ["list"], 1]', "without keys"),
            (b'["dict", 1, 2, true, 3]', "a key twice"),
            (b'["tensor"]', "unknown type"),
            (b'["tensor", "object", 1]', "unknown type"),
            (b'["tensor", ["list"], 1]', "unknown type"),
            (b'["tensor", "float32", -1]', "without a shape"),
            (b'["tensor", "float32", 1.0]', "without a shape"),
            (b'["tensor", "float32", true]', "without a shape"),
            (b'["tensor", "float32", ' + b"1, " * 64 + b"1]", "without a shape"),
            (b'["tensor", "float32", 1000000000000]', "larger than its data"),
            (b'["tensor", "float32", 4294967296, 4294967296]', "larger than its data"),
            (b'["tensor", "float32", 0, 99999999999999999999999]', "larger than its data"),
            (b'["tensor", "float32", 4294967296, 4294967296, 0]', "larger than its data"),
            (b"nonsense", "not JSON"),
            (b"\xff\xfe", "not JSON"),
            (b"[" * 100000, "not JSON|deep"),
            (b'["list",' * 70 + b"1" + b"]" * 70, "nested more than 64 deep"),
        ):
            with self.assertRaisesRegex(_state.StateError, said):
                _state.unpack(self.made(text))
        with self.assertRaisesRegex(_state.StateError, "truth value"):
            _state.unpack(self.made(b'["tensor", "bool", 4]', bytes((0, 1, 2, 0))))
        with self.assertRaisesRegex(_state.StateError, "more data than"):
            _state.unpack(self.made(b'["tensor", "bool", 4]', bytes(12)))
        for room in (numpy.zeros(0, numpy.int32), numpy.zeros(3, numpy.int32), numpy.full(100, 0x61616161, numpy.int32)):
            with self.assertRaisesRegex(_state.StateError, "another format"):
                _state.unpack(room)

    def test_fuzz(self):
        """Bytes that are changed, cut and put together: a StateError, or a value of what states are made of."""
        draw, right = random.Random(2), 0
        allowed = {*PLAIN, list, tuple, dict, collections.OrderedDict, collections.Counter, torch.Tensor}
        parts = [b'"tensor"', b'"float32"', b'"dict"', b"[", b"]", b",", b"1", b"-1", b"99999999999", b"null", b'"list"', b"{", b"}", b"1e999", b"NaN"]
        for _ in range(6000):
            data = bytearray(_state.pack(value_of(draw), "it").tobytes())
            for _ in range(draw.randrange(4)):
                at = draw.randrange(len(data))
                way = draw.randrange(4)
                if way == 0:
                    data[at] ^= 1 << draw.randrange(8)
                elif way == 1:
                    del data[at:]
                    data += bytes(16 if len(data) < 16 else 0)
                elif way == 2:
                    data[at:at] = draw.choice(parts)
                else:
                    data[at] = draw.randrange(256)
            data += bytes(-len(data) % 4)
            try:
                found = _state.unpack(numpy.frombuffer(bytes(data), numpy.int32))
            except _state.StateError as error:
                self.assertNotIn("\n", str(error).replace("\\n", ""))
                continue
            self.assertLessEqual(kinds_in(found), allowed)
            right += 1
        self.assertGreater(right, 500)

    def test_no_code(self):
        """Nowhere in the package are objects made of what somebody else has sent."""
        for path in (harness.PACKAGE / "winnow").glob("*.py"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                self.assertIsNone(re.search(CODE, line), f"{path.name}:{number}: {line}")
