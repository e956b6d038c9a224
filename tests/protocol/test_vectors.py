# SPDX-License-Identifier: BSD-3-Clause
"""docs/vectors/ against this worker: packets, cuts, seals, fixed-point numbers, and whole operations."""

import pathlib
import random
import unittest

import numpy as np

import element
import seal
import wire
from channel import Channel
from cut import Cut, turn
from worker import Worker

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "vectors"


def read(name):
    """[(kind, name, {field: [values]}, [(field, values)])] of a file, a paragraph each."""
    for text in (VECTORS / name).read_text().split("\n\n"):
        lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
        if lines:
            fields = {}
            for key, value in lines[1:]:
                fields.setdefault(key, []).append(value)
            yield lines[0][0], lines[0][1], fields, lines[1:]


def number(fields, name):
    return int(fields[name][0], 0)


def float_of(bits):
    return np.array([int(text, 16) for text in bits.split()], dtype="<u4").view("<f4")


class Packets(unittest.TestCase):
    def test_all(self):
        seen = set()
        for _, name, fields, lines in read("packets.txt"):
            with self.subTest(name):
                datagram = bytes.fromhex("".join(fields["hex"]))
                seen.add(datagram[3])
                said = {key: value for key, value in lines if key != "hex"}
                if datagram[3] & 0x80:
                    self.assertEqual(self.read_back(datagram), said)
                else:
                    self.assertEqual(self.build(said), datagram)
        self.assertEqual(seen, {1, 2, 3, 4, 0x81, 0x82, 0x83, 0x84, 0x85})

    def build(self, said):
        """A worker's datagram, from the fields."""
        get = lambda name: int(said[name], 0)
        rest = b"".join(
            bytes.fromhex(said[name])
            for name in ("set", "blocks", "data", "words")
            if name in said
        )
        if get("kind") == wire.ANNOUNCE:
            if get("flags") & 7 == wire.EAGER:
                rest = (len(said["set"]) // 2).to_bytes(2, "little") + rest
            names = "tag count layout segment segment_count generation op_slot block_count block_last exponent dtype reduction form flags"
            rest = wire.announcement(*map(get, names.split()), rest)
        if get("kind") == wire.STATUS:
            rest = wire.status(get("stamp"), get("flags"), rest, get("held"), get("marked"))
        if get("kind") == wire.KNOCK:
            return wire.knock(*map(get, "channel worker token frame number".split()), 32 + len(said["padding"]) // 2)
        names = "kind channel worker token frame ack window sequence pushed"
        return wire.to_aggregator(*map(get, names.split()), rest)

    def read_back(self, datagram):
        """The fields of an aggregator's, as text."""
        packet = wire.to_worker(datagram)
        said = {"kind": f"{packet.kind:#04x}", "token": f"{packet.token:#018x}"}
        knocked = packet.kind == wire.KNOCKED
        for name in ("channel", "worker", "frame", "base") + (() if knocked else ("window", "sequence", "planned")):
            said[name] = str(getattr(packet, name))
        if knocked:
            said["number"] = f"{wire.number_of(packet):#x}"
        if packet.kind == wire.STATUS_BACK:
            stamp, flags, held, marked, words = wire.stated(packet.body)
            said |= {"stamp": str(stamp), "flags": f"{flags:#04x}"}
            said |= {"held": str(held), "marked": str(marked)}
            return said | ({"words": words.hex()} if words else {})
        if packet.kind != wire.PLAN:
            key = {wire.RESULT: "data", wire.KNOCKED: "padding", wire.PROBE: "padding"}
            return said | ({key[packet.kind]: packet.body.hex()} if packet.body else {})
        plan = wire.plan(packet.body)
        said |= {"tag": f"{plan.tag:#018x}", "flags": f"{plan.flags:#04x}"}
        for name in ("segment", "frame_count", "status", "exponent"):
            said[name] = str(getattr(plan, name))
        if plan.status:
            return said | {name: str(value) for name, value in wire.mismatch(plan.rest)._asdict().items()}
        parts = zip(("set", "sums"), wire.parts(plan.flags, plan.rest))
        return said | {name: data.hex() for name, data in parts if data}

    def test_sets(self):
        """Two sets of packets.txt follow from what their comments say and the cut."""
        said = {name: fields for _, name, fields, _ in read("packets.txt")}
        blocks = Cut(163840, 4, 256, 10, 3498, True).blocks(4, 0)
        self.assertEqual(wire.bitmap(blocks % 3 != 1).hex(), said["announce-bitmap"]["set"][0])
        self.assertEqual(wire.set_of(blocks % 3 != 1), wire.bitmap(blocks % 3 != 1))
        blocks = Cut(256000, 4, 256, 10, 3498, True).blocks(4, 0)
        self.assertEqual(wire.set_of(blocks % 9 == 0).hex(), said["announce-gaps"]["set"][0])

    def test_words(self):
        """2.5: lists of frames, there and back; at most 1024 from the first."""
        rng = random.Random(1)
        for _ in range(200):
            frames = sorted(rng.sample(range(10**6, 10**6 + rng.choice((40, 2000, 5000))), 30))
            want = [frame for frame in frames if frame < frames[0] + 1024]
            self.assertEqual(wire.frames_of(*wire.words_of(frames)), want)
        for size in range(160):
            fits = size % 8 == 0 and 16 <= size <= 144
            self.assertEqual(wire.stated(bytes(size)) is not None, fits)


class Sets(unittest.TestCase):
    def test_all(self):
        for kind, name, fields, _ in read("sets.txt"):
            data, count = bytes.fromhex(fields["hex"][0]), number(fields, "blocks")
            with self.subTest(name):
                if kind == "wrong":
                    self.assertIsNone(wire.bits(data, count))
                    continue
                want = np.zeros(count, dtype=bool)
                want[[int(block) for text in fields["set"] for block in text.split()]] = True
                self.assertEqual(wire.set_of(want), data)
                self.assertEqual(wire.bits(data, count).tolist(), want.tolist())

    def test_there_and_back(self):
        rng = np.random.default_rng(3)
        for count in (1, 63, 64, 65, 4096, 16384):
            for density in (0.001, 0.05, 0.3, 0.9):
                bits = rng.random(count) < density
                bits[int(rng.integers(count))] = True
                self.assertEqual(wire.bits(wire.set_of(bits), count).tolist(), bits.tolist())


class Cuts(unittest.TestCase):
    def test_all(self):
        for _, name, fields, _ in read("cut.txt"):
            with self.subTest(name):
                given = [
                    number(fields, n)
                    for n in ("count", "element_bytes", "block_elems", "channels", "payload")
                ]
                workers = number(fields, "workers") if "workers" in fields else 1
                layout = [tuple(map(int, text.split())) for text in fields.get("part", [])]
                cut = Cut(*given, native=number(fields, "form") == 0, workers=workers, layout=layout)
                letters = "T eager S segments" + " b w G L k p m" * (not layout) + " N R M" * ("workers" in fields)
                for name in letters.split():
                    self.assertEqual(int(getattr(cut, name)), number(fields, name), name)
                for text in fields.get("layout", []):
                    shard, value = text.split()
                    self.assertEqual(cut.hash(int(shard), number(fields, "channels")), int(value, 0))
                for text in fields.get("block", []):
                    self.check_block(cut, *map(int, text.split()))
                for text in fields.get("blocks", []):
                    shard, segment, first, *blocks = map(int, text.split())
                    self.assertEqual(list(cut.blocks(shard, segment)[first : first + len(blocks)]), blocks)
                for text in fields.get("frames", []):
                    blocks, frames = map(int, text.split())
                    self.assertEqual(cut.frame_count(blocks), frames)
                    self.assertEqual(len(list(cut.frames(blocks))), frames)
                for text in fields.get("channel", []):
                    tag, channel = map(int, text.split())
                    self.assertEqual(turn(tag) % number(fields, "channels"), channel)

    def check_block(self, cut, segment, block, first, h, v):
        part, number, _, _ = cut.place(segment)
        begin = sum(before.N * before.Q for before in cut.parts[:number])
        rows = part.elements(begin, -1)[block].reshape(part.h, part.v)
        want = np.full_like(rows, -1)
        want[:h, :v] = first + np.arange(h)[:, None] * (part.columns or 1) + np.arange(v)
        self.assertEqual(rows.tolist(), want.tolist())

    def test_each_block_once(self):
        for channels, workers in ((1, 1), (2, 1), (7, 1), (256, 1), (1, 3), (2, 3), (7, 300)):
            cut = Cut(99900, 4, 3, channels, 1472, True, workers)
            blocks = np.concatenate([cut.blocks(s, n) for s in range(channels) for n in range(cut.segments)])
            self.assertEqual(sorted(blocks[blocks < cut.T]), list(range(cut.T)))

    def test_each_element_once(self):
        layouts = [[(35, 0, 1, 10)], [(35, 7, 2, 3)], [(10, 0, 1, 4), (21, 7, 2, 3), (4, 4, 1, 1)], [(35, 5, 3, 5)]]
        for layout in layouts:
            cut = Cut(35, 4, 256, 2, 1472, False, layout=layout)
            firsts = np.cumsum([0] + [part.Q for part in cut.parts])
            found = [part.elements(int(first), -1) for part, first in zip(cut.parts, firsts)]
            elements = np.concatenate([elements.reshape(-1) for elements in found])
            self.assertEqual(sorted(elements[elements >= 0]), list(range(35)))


class Seals(unittest.TestCase):
    def test_all(self):
        keys = None
        for kind, name, fields, _ in read("seal.txt"):
            of = lambda field: bytes.fromhex("".join(fields[field]).replace("-", ""))
            with self.subTest(f"{kind} {name}"):
                if kind == "sip":
                    self.assertEqual(seal.siphash(of("key"), of("text")), number(fields, "hash"))
                elif kind == "key":
                    self.assertEqual(seal.job_key(fields["text"][0]), of("key"))
                elif kind == "keys":
                    keys = seal.Keys(of("seed"), of("worker"))
                    self.assertEqual((keys.group, keys.stretch[:32], keys.stretch[-32:]), (of("group"), of("stretch_begin"), of("stretch_end")))
                elif kind == "nh":
                    for nh in (seal.nh, seal.nh_slowly):
                        self.assertEqual(nh(keys.stretch, of("data")), [number(fields, "first"), number(fields, "second")])
                else:
                    datagram, key = of("hex"), keys.worker if fields["by"] == ["worker"] else keys.group
                    made = seal.seal(keys.stretch, key, datagram, number(fields, "edge"))
                    self.assertEqual(made.to_bytes(8, "little"), datagram[8:16])


class FixedPoint(unittest.TestCase):
    def test_all(self):
        for kind, name, fields, _ in read("fixed.txt"):
            with self.subTest(f"{kind} {name}"):
                if kind == "exponent":
                    self.assertEqual(
                        element.exponent(float_of(fields["values"][0]))[0], number(fields, "exponent")
                    )
                    continue
                if kind == "finish":
                    sums, world = np.array([number(fields, "sum")]), number(fields, "world")
                    got = np.rint(sums / 2.0 ** element.headroom(world))
                    self.assertEqual(int(got[0]), number(fields, "result"))
                    continue
                form, world = element.FORMS[fields["form"][0]], number(fields, "world")
                s = element.shift(form, number(fields, "E"), world)
                self.assertEqual(s, number(fields, "s"))
                value = float_of(fields["value"][0])
                if kind == "number":
                    self.assertEqual(element.to_fixed(value, form, s)[0], number(fields, "sent"))
                else:
                    sums = np.array([number(fields, "sum")], dtype=element.INTEGERS[form])
                    result = element.from_fixed(sums, form, s, world, number(fields, "divisor"))
                    self.assertEqual(result.tobytes(), value.tobytes())

    def test_nonfinite(self):
        values = np.array([1.0, np.nan, -np.inf, 3.0], dtype="<f4")
        self.assertEqual(element.exponent(values), (2, True))


class Operations(unittest.TestCase):
    """Both workers of operation.txt, on a clock of their own: they send what it says and nothing else."""

    def test_all(self):
        for _, name, fields, lines in read("operation.txt"):
            with self.subTest(name):
                self.replay(fields, lines)

    def replay(self, fields, lines):
        token = dict(text.split() for text in fields["token"])
        start = {"window": number(fields, "window"), "window_start": number(fields, "window_start")}
        workers = []
        for rank in (0, 1):
            welcome = {"token": token[str(rank)][2:], "group_token": fields["group_token"][0][2:],
                       "first_frame": number(fields, "first_frame")}  # fmt: skip
            channel = Channel(0, number(fields, "channel"), rank, welcome, start, random.Random(1))
            ahead = number(fields, "segments_ahead")
            workers.append(Worker(2, [channel], number(fields, "payload"), number(fields, "op_slots"), ahead))
        submits = {int(rank): int(us) for rank, us in (text.split() for text in fields["submit"])}
        ops, sent = {}, []  # sent: (us, rank, datagram)
        steps = self.steps(lines)
        arrivals = [(us + 100, to, data) for who, to, us, data, lost in steps if who == "aggregator"]
        lost = {(us + 100, data) for who, _, us, data, lost in steps if lost}
        for us in range(0, 3001, 100):
            now = number(fields, "clock") + us
            for rank, worker in enumerate(workers):
                for at, to, data in arrivals:
                    if at == us and to in (rank, 65535) and not (rank == 1 and (at, data) in lost):
                        worker.channels[0].receive(data, now)
                if submits[rank] == us:
                    ops[rank] = worker.submit(self.tensor(fields, rank), "f32", number(fields, "reduction"),
                                              number(fields, "block_elems"), number(fields, "form"), number(fields, "tag"))  # fmt: skip
                sent += [(us, rank, data.hex()) for _, data in worker.poll(now)]
        self.assertEqual(sent, [(us, to, data.hex()) for who, to, us, data, _ in steps if who == "worker"])
        want = np.zeros(number(fields, "count"), dtype="<f4")
        for text in fields["result"]:
            index, bits = text.split()
            want[int(index)] = float_of(bits)[0]
        for rank in (0, 1):
            self.assertTrue(ops[rank].done and workers[rank].idle)
            self.assertEqual(ops[rank].result.tobytes(), want.tobytes())

    def steps(self, lines):
        steps = []
        for key, value in lines:
            if key in ("worker", "aggregator"):
                steps.append([key, *map(int, value.split()), b"", False])
            elif key == "hex":
                steps[-1][3] += bytes.fromhex(value)
            elif key == "lost":
                steps[-1][4] = True
        return steps

    def tensor(self, fields, rank):
        values = np.zeros(number(fields, "count"), dtype="<f4")
        for whose, index, bits in (text.split() for text in fields["element"]):
            if int(whose) == rank:
                values[int(index)] = float_of(bits)[0]
        return values


if __name__ == "__main__":
    unittest.main()
