"""The one way for text of foreign origin to a terminal, a log, an Event or a report.

Pods' annotations, answers of servers and words of other programs may hold escape sequences, line ends and marks that
turn the writing direction. What cannot be printed is shown by its code, as Python writes it: `\\x1b`, `\\n`, `\\u202e`.
"""

from __future__ import annotations

import re
import unicodedata

_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")


def one_line(text: str) -> str:
    """`text` without control characters and line ends: nothing in it begins a line or moves a cursor."""
    if text.isprintable():
        return text
    # By distinct character: foreign texts may be megabytes long.
    return text.translate({ord(char): _shown(char) for char in set(text)})


def lines(text: str, *, colors: bool = False) -> str:
    """Same as `one_line`, but line ends stay: for a whole report, whose foreign parts went through `one_line` before.
    `colors`: sequences that set a colour stay as well; for a report that adds them itself."""
    if colors:
        parts = _COLOR.split(text)
        return "".join(part if index % 2 else lines(part) for index, part in enumerate(parts))
    return "\n".join(map(one_line, text.split("\n")))


def document(value: object) -> str:
    """`value` as an indented JSON document; what JSON has no form for, such as a CPU set, as its own text."""
    import msgspec

    return in_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=1).decode())


def in_json(text: str) -> str:
    """A JSON document that means the same, with every unprintable character inside its strings as `\\u` and its code.
    JSON itself demands that only of characters below U+0020."""
    if text.replace("\n", "").isprintable():
        return text
    unprintable = (char for char in set(text) if char != "\n" and not _is_printable(char))
    return text.translate({ord(char): _json_escape(char) for char in unprintable})


def _shown(char: str) -> str:
    return char if _is_printable(char) else char.encode("unicode_escape").decode("ascii")


def _is_printable(char: str) -> bool:
    """Spaces of any width are harmless; Python counts only one of them."""
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def shortened(text: str, limit: int = 80) -> str:
    """A value that fits on a line, and stays on it."""
    line = one_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
