"""Bounds of a YAML document, and the places of what is in it. libyaml's composer goes down by recursion in C, where too
deep a document ends the process, and an alias of an alias of an alias is a small file for a huge value."""

from __future__ import annotations

import contextlib
from typing import Any

import yaml

DEPTH = 100
"""Levels of mappings and lists. Objects of Kubernetes have some twenty."""
_SAFE_DEPTH = 4000
"""Levels that the composer bears with any usual stack."""
_SMALL = 1 << 16
"""Characters of a text that costs next to nothing to look through."""
VALUES = 2_000_000
"""Values in a file, those behind aliases counted wherever they stand."""
UNREADABLE = (
    *(yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    RecursionError,
)
"""Errors of reading YAML. PyYAML's constructors answer a tag that does not fit, such as `!!bool x`, with whatever error
comes up."""
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""YAML's own types, by libyaml where it is there."""


def checked(text: str) -> str:
    """`text`, when it may be composed; yaml.MarkedYAMLError when it is nested too deep, or aliases make it too large.
    Syntax errors are left to the composer. Of a large text only what could harm is looked for: it takes as long to look
    through as to compose."""
    if _may_nest(text) or ("&" in text and "*" in text):
        with contextlib.suppress(yaml.scanner.ScannerError, yaml.parser.ParserError, yaml.reader.ReaderError):
            _scan(text)
    return text


def place(path: object, subject: BaseException | yaml.Node | None) -> str:
    """FILE:LINE:COLUMN of a mistake or a node; the file alone where it has no place."""
    mark = subject.start_mark if isinstance(subject, yaml.Node) else getattr(subject, "problem_mark", None)
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


def child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """The node of one value in a mapping or list; of a key that stands twice the first."""
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    if isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
        item: yaml.Node = node.value[int(key)]
        return item
    return None


def why(error: BaseException) -> str:
    """Mistake, in one line."""
    return " ".join(str(getattr(error, "problem", None) or error).split()) or type(error).__name__


def _may_nest(text: str) -> bool:
    """Tell whether it could be too deep: each level takes a bracket, a column of indentation, or a mark on its line."""
    small = len(text) <= _SMALL
    half = (DEPTH if small else _SAFE_DEPTH) // 2
    documents = [text] if small else text.split("\n---")
    if any(document.count("[") + document.count("{") > half for document in documents):
        return True
    return any(len(line) >= half and _marks(line) >= half for line in text.split("\n"))


def _marks(line: str) -> int:
    marks = sum(line.count(mark) for mark in ("- ", "? ", "-\t", "?\t"))
    return len(line) - len(line.lstrip(" ")) + marks


def _scan(text: str) -> None:
    depth = values = 0
    open_anchors: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth, values = depth + 1, values + 1
            open_anchors.append((event.anchor, values))
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
            anchor, before = open_anchors.pop()
            if anchor:
                sizes[anchor] = values - before + 1
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            values += sizes.get(event.anchor or "", 1)
        if depth > DEPTH:
            raise _error(f"nested deeper than {DEPTH} levels", event)
        if values > VALUES:
            raise _error(f"more than {VALUES} values, those behind aliases included", event)


def _error(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = event.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
