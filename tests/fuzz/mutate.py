"""Hostile inputs made from good ones: by the grammar of JSON, by words and lines of text, and byte by byte."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutate = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""A source of chance, a good input, and all good inputs of the entry → an input."""


class Raw(str):
    """Text that goes into a JSON document as it is, whether or not that is JSON."""

    __slots__ = ()


TEXTS = (
    *("", " ", "\n", "\0", "x" * 300, "x" * 70_000, "\u202e", "\ud800", "٣", "-", "0", "-1", "1", "+5", "-0", "1_000"),
    *(
        "1.5",
        "1e308",
        "-1e999",
        "1e-400",
        "nan",
        "inf",
        "9" * 25,
        "9" * 5000,
        "0x10",
        "1Ki",
        "9E",
        "-9223372036854775809",
    ),
    *("true", "null", "[]", "{}", "{", '"', "{a}", "{0.__class__}", "{x:>3000000000}", "%s%s%n", "$(id)", "<script>"),
    *(
        "../..",
        "/",
        "/etc/passwd",
        "a/b/c",
        ".",
        "..",
        "*",
        "0-4095",
        "0-99999999",
        "3-1",
        "1,,2",
        ",",
        "0-",
        "max",
        "max 0",
    ),
    *("2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+23:59", "10s", "1e9h", "node-" + "7" * 5000),
)
NUMBERS = (
    *("0", "-1", "1", "2", "1e308", "-1e999", "1e-999", "NaN", "Infinity", "1.5", "2147483648", "9223372036854775808"),
    *("-9223372036854775809", "18446744073709551616", "9" * 400, "9" * 5000, "-0", "0.0000001", "1E+400"),
)
WHOLES = ("null", "true", "[]", "{}", '""', "[null]", '{"":null}', "[[]]", '[{"a":[]}]')
LINES = (
    b"",
    b"\n",
    b"garbage",
    b"\0",
    b"a b c d",
    b"0 0",
    b"max 0",
    b"\xff\xfe",
    b"9" * 5000,
    b"-1",
    b"some avg10=nan total=-1",
)


def anything(random: Random, seed: bytes, seeds: Sequence[bytes]) -> bytes:
    """By the grammar where the seed is JSON, else by words; one in eight byte by byte."""
    if random.random() < 0.125:
        return noise(random, seed, seeds)
    try:
        return as_json(random, seed, seeds) if _is_json(seed) else as_text(random, seed, seeds)
    except RecursionError:  # The seed is itself nested as deep as can be read.
        return noise(random, seed, seeds)


def as_json(random: Random, seed: bytes, seeds: Sequence[bytes]) -> bytes:
    """One to four members of the document replaced, removed, renamed, doubled, nested or exchanged."""
    tree = json.loads(seed)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        tree = _changed(random, tree, seeds)
    return _written(tree).encode("utf-8", "surrogatepass" if random.random() < 0.5 else "replace")


def as_text(random: Random, seed: bytes, seeds: Sequence[bytes]) -> bytes:
    """One to four words or lines replaced, removed, repeated or taken from another seed."""
    lines = [line.split(b" ") for line in seed.split(b"\n")]
    for _ in range(random.choice((1, 1, 2, 4))):
        row = random.randrange(len(lines))
        op = random.randrange(7)
        if op <= 2:
            words = lines[row]
            words[random.randrange(len(words))] = _word(random).encode("utf-8", "surrogatepass")
        elif op == 3 and len(lines) > 1:
            del lines[row]
        elif op == 4:
            lines[row:row] = [lines[row]] * random.choice((1, 2, 50))
        elif op == 5:
            lines[row] = random.choice(LINES).split(b" ")
        else:
            lines.insert(row, random.choice(random.choice(seeds).split(b"\n")).split(b" "))
    return b"\n".join(map(b" ".join, lines))


def noise(random: Random, seed: bytes, seeds: Sequence[bytes]) -> bytes:
    """Bytes flipped, cut, doubled or joined with those of another seed."""
    raw = bytearray(seed)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(raw) + 1)
        op = random.randrange(6)
        if op == 0 and at < len(raw):
            raw[at] ^= 1 << random.randrange(8)
        elif op == 1:
            raw[at:at] = random.randbytes(random.choice((1, 4, 16)))
        elif op == 2:
            del raw[at : at + random.choice((1, 4, 64, len(raw)))]
        elif op == 3:
            raw[at:at] = raw[at : at + 64] * random.choice((1, 16, 200))
        elif op == 4:
            other = random.choice(seeds)
            raw[at:] = other[random.randrange(len(other) + 1) :]
        else:
            raw[at:at] = random.choice((b"[", b"{", b"(", b"\x80")) * random.choice((3, 200, 20_000))
    return bytes(raw)


@functools.lru_cache(maxsize=4096)
def _is_json(seed: bytes) -> bool:
    try:
        json.loads(seed)
    except (ValueError, RecursionError):
        return False
    return True


def _changed(random: Random, tree: Any, seeds: Sequence[bytes]) -> Any:
    """The tree with one change at a place that chance chooses: children are preferred to what holds them."""
    if isinstance(tree, dict) and tree and random.random() < 0.85:
        return _changed_members(random, tree, seeds)
    if isinstance(tree, list) and tree and random.random() < 0.85:
        at = random.randrange(len(tree))
        op = random.randrange(8)
        if op == 0:
            return tree[:at] + tree[at + 1 :]
        if op == 1:
            return tree[:at] + [tree[at]] * random.choice((2, 3, 300)) + tree[at:]
        return [*tree[:at], _changed(random, tree[at], seeds), *tree[at + 1 :]]
    is_text = isinstance(tree, str) and not isinstance(tree, Raw)
    return _changed_text(random, tree, seeds) if is_text else _leaf(random)


def _changed_members(random: Random, tree: dict[str, Any], seeds: Sequence[bytes]) -> Any:
    key, other = random.choice(list(tree)), random.choice(list(tree))
    rest = {name: value for name, value in tree.items() if name != key}
    changed = (rest, {**rest, _word(random): tree[key]}, {**tree, _word(random): _leaf(random)})
    op = random.randrange(12)
    if op == 3:
        return {**tree, key: tree[other], other: tree[key]}
    return changed[op] if op < 3 else {**tree, key: _changed(random, tree[key], seeds)}


def _changed_text(random: Random, text: str, seeds: Sequence[bytes]) -> Any:
    """Text in a document is often a document itself: an annotation, a list, a number with its unit."""
    op = random.random()
    if op < 0.35 and _is_json(text.encode("utf-8", "replace")) and text[:1] in "[{":
        return _written(_changed(random, json.loads(text), seeds))
    if op < 0.5:
        return noise(random, text.encode("utf-8", "replace")[:500], seeds).decode("utf-8", "surrogateescape")
    return _word(random) if op < 0.85 else _leaf(random)


def _leaf(random: Random) -> Any:
    op = random.randrange(9)
    if op < 3:
        return Raw(random.choice(NUMBERS))
    if op < 6:
        return random.choice(TEXTS)
    if op < 8:
        return Raw(random.choice(WHOLES))
    depth = random.choice((20, 200, 1100, 20_000))
    start, end = random.choice((("[", "]"), ('{"a":', "}")))
    return Raw(start * depth + "1" + end * depth)


def _word(random: Random) -> str:
    return str(random.choice(TEXTS) if random.random() < 0.6 else random.choice(NUMBERS))


def _written(tree: Any) -> str:
    if isinstance(tree, Raw):
        return str(tree)
    if isinstance(tree, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_written(each)}" for name, each in tree.items())
            + "}"
        )
    if isinstance(tree, list):
        return "[" + ",".join(map(_written, tree)) + "]"
    return json.dumps(tree, ensure_ascii=False)
