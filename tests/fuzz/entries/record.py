"""The flight record, as replay reads it: its bytes, and frames that are whole and say something else."""

from __future__ import annotations

import functools
import pathlib
import tempfile
import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import zstandard
from emulated import Emulated

from koordlite.record import segment
from koordlite.record.reader import Record
from koordlite.record.round_record import RecordError
from koordlite.record.segment import FRAME_HEAD_BYTES, MARK, Head, PieceWriter
from koordlite.replay import compare, verify
from koordlite.replay.what_if import Other
from tests.fuzz import mutate
from tests.fuzz.frame import Entry

_FOLDER = tempfile.TemporaryDirectory(prefix="koordlite-fuzz-")
_START = MARK + bytes([segment.VERSION])
LEAVES = (None, True, -1, 0, 1, 2**63, 1e308, float("nan"), float("-inf"), "", "x" * 300, "0-4095", [], {}, [[]], b"\0")
OTHER = Other(modes={"cpuSuppress": "enforce"}, threshold={"cpu_suppress_threshold_percent": 50})


def replayed(raw: bytes) -> str:
    """A file that somebody sent: decided again, and with other settings."""
    path = pathlib.Path(_FOLDER.name) / "fuzz.record"
    path.write_bytes(raw)
    record = Record(path)
    found = verify.check(record.rounds())
    compare.compare(record.rounds(), OTHER)
    return f"{min(found.rounds, 5)} rounds, same {found.same}, {[problem.why[:24] for problem in record.problems]}"


def frames(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """One in four as anything; else one frame of the content changed, and the piece written as by an agent."""
    contents = _contents(data)
    if not contents or random.random() < 0.25:
        return mutate.noise(random, data, seeds)
    at = random.randrange(len(contents))
    if random.random() < 0.2:
        contents[at] = mutate.noise(random, contents[at], contents)
    else:
        contents[at] = msgspec.msgpack.encode(_changed(random, _decoded(contents[at])))
    if random.random() < 0.1:
        random.shuffle(contents)
    return _piece(contents)


def _changed(random: Random, tree: Any) -> Any:
    if isinstance(tree, dict) and tree and random.random() < 0.95:
        key = random.choice(list(tree))
        op = random.randrange(8)
        if op == 0:
            return {name: value for name, value in tree.items() if name != key}
        return {**tree, ("x" if op == 1 else key): _changed(random, tree[key])}
    if isinstance(tree, list) and tree and random.random() < 0.95:
        at = random.randrange(len(tree))
        return [*tree[:at], _changed(random, tree[at]), *tree[at + 1 :]]
    return random.choice(LEAVES)


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(content, strict=False)
    except (ValueError, RecursionError, TypeError):
        return {}


def _contents(data: bytes) -> list[bytes]:
    """What the frames of one piece hold, as far as it is whole."""
    stream, found = zstandard.ZstdDecompressor(max_window_size=1 << 21).decompressobj(), []
    try:
        for _, body in segment.bodies(data, len(_START)):
            found.append(stream.decompress(body))
    except (zstandard.ZstdError, EOFError, MemoryError):
        return []
    return found if data.startswith(_START) else []


def _piece(contents: Sequence[bytes]) -> bytes:
    stream, found = zstandard.ZstdCompressor(level=1).compressobj(), bytearray(_START)
    for content in contents:
        body = stream.compress(content) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        found += len(body).to_bytes(4, "little") + zlib.crc32(body).to_bytes(FRAME_HEAD_BYTES - 4, "little") + body
    return bytes(found)


@functools.cache
def _seed() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Emulated("small", pathlib.Path(folder))
        made.pod("web", "LS", "3")
        made.pod("batch", "BE", "64")
        writer = PieceWriter(Head(koordlite="test", node="node-a"))
        found = bytearray(writer.start)
        with made.journal() as held:
            agent = made.agent(held)
            for _ in range(4):
                made.ticks(agent, 1)
                assert agent.last_round
                found += writer.frame(agent.last_round)
        return bytes(found)


ENTRIES = [
    Entry(name="flight-record", seeds=[_seed()], run=replayed, mutate=frames, refusals=(RecordError,), weight=2),
]
