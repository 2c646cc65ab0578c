"""YAML read strictly into dataclasses: every mistake at once, each with file:line:column and its path.

One reader for the configuration files of both products. A field's type is one of bool, int, float, str, a Literal, an
optional or tuple of these, `dict[str, …]`, or another dataclass; names are camelCase in YAML, snake_case in Python.
A field's metadata may hold `name` (its YAML name), `formerly` (the name it had, which is refused with a hint), `ge` and
`le` (bounds), `yaml` (the type to read instead of its own) and `check` (called with the value, raises ValueError). A
dataclass with a static method `variant(name)` is read as the dataclass which that returns for the mapping's `name`; for
an unknown name it returns the class itself.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import yaml

from koordlite.model.errors import ConfigError, Problem
from koordlite.model.reading import declared, yaml_bounds

T = TypeVar("T")
_NULL = "tag:yaml.org,2002:null"
_WORDS: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def load(text: str, shape: type[T], source: str, prepare: Callable[[yaml.Node], None] | None = None) -> T:
    """The value of type `shape` that `text` writes; ConfigError lists everything that is wrong in it.
    `prepare` may rewrite the parsed document first, for instance to accept another program's spelling of a key."""
    reader = _Reader(source)
    node = reader.compose(text)
    if node is not None and prepare is not None:
        prepare(node)
    value = shape() if node is None and not reader.problems else reader.value(node, shape, "$")
    if reader.problems:
        raise ConfigError(reader.problems)
    return typing.cast(T, value)


def camel(name: str) -> str:
    """snake_case → camelCase; words of an acronym keep Python's spelling (`mba_percent` → `mbaPercent`)."""
    head, *words = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in words)


def fields(shape: Any) -> Mapping[str, tuple[dataclasses.Field[Any], Any]]:
    """YAML name → (field, resolved type) of a dataclass; a field's metadata may give its YAML name as `name`."""
    return _fields(shape)


@functools.cache
def _fields(shape: type) -> Mapping[str, tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(shape)
    return {
        f.metadata.get("name", camel(f.name)): (f, f.metadata.get("yaml", hints[f.name]))
        for f in dataclasses.fields(shape)
        if f.init
    }


def beyond(field: dataclasses.Field[Any], value: object) -> str:
    """Advice in place of a number that is beyond the bounds of its field; empty while it is within."""
    low, high = field.metadata.get("ge"), field.metadata.get("le")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    # Written this way so that NaN, which the command line can give, is beyond every bound.
    if (low is None or value >= low) and (high is None or value <= high):
        return ""
    if low is None:
        return f"write a number at most {high}"
    return f"write a number at least {low}" if high is None else f"write a number {low} to {high}"


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self._construct: Callable[[yaml.Node], Any] = lambda node: node

    def compose(self, text: str) -> yaml.Node | None:
        try:
            loader = yaml_bounds.LOADER(yaml_bounds.checked(text))
            self._construct = functools.partial(loader.construct_object, deep=True)
            return loader.get_single_node()
        except yaml_bounds.UNREADABLE as error:
            where = yaml_bounds.place(self.source, error)
            self.problems.append(Problem(where, "$", "", f"not YAML: {yaml_bounds.why(error)}", "fix the syntax"))
            return None

    def value(self, node: yaml.Node | None, hint: Any, path: str) -> Any:
        """The Python value of `node`, or None with a problem noted."""
        if node is None:
            return None
        if dataclasses.is_dataclass(hint):
            return self._dataclass(node, typing.cast(type, hint), path)
        read = {
            types.UnionType: self._optional,
            typing.Union: self._optional,
            typing.Literal: self._literal,
            tuple: self._tuple,
            dict: self._mapping,
            collections.abc.Mapping: self._mapping,
        }.get(typing.get_origin(hint), self._scalar)
        return read(node, hint, path)

    def wrong(self, node: yaml.Node, path: str, why: str, do: str) -> None:
        text = str(node.value) if isinstance(node, yaml.ScalarNode) else _kind(node)
        self.problems.append(Problem(yaml_bounds.place(self.source, node), path, text, why, do))

    def _optional(self, node: yaml.Node, hint: Any, path: str) -> Any:
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        if node.tag == _NULL:
            return None
        return self.value(node, inner[0], path)

    def _literal(self, node: yaml.Node, hint: Any, path: str) -> Any:
        words = typing.get_args(hint)
        # YAML 1.1 reads a bare `off` as false; the word is what the author meant.
        text = node.value if isinstance(node, yaml.ScalarNode) else None
        if text not in words:
            close = declared.closest(str(text), words)
            hint = f"did you mean {close}? " if close else ""
            self.wrong(node, path, "not one of the accepted words", f"{hint}write one of: {', '.join(map(str, words))}")
        return text

    def _dataclass(self, node: yaml.Node, shape: type, path: str) -> Any:
        choose, named = getattr(shape, "variant", None), yaml_bounds.child(node, "name")
        if choose is not None and isinstance(named, yaml.ScalarNode):
            shape = choose(named.value)
        arguments: dict[str, Any] = {}
        names, start = fields(shape), len(self.problems)
        for key, child in self._pairs(node, path):
            if key.value not in names:
                self._unknown(key, names, path)
                continue
            (field, hint), below = names[key.value], f"{path}.{key.value}"
            if child.tag == _NULL and typing.get_origin(hint) is tuple:
                continue  # A list of which all items are comments is not given.
            before = len(self.problems)
            value = self.value(child, hint, below)
            if do := beyond(field, value):
                self.wrong(child, below, "out of range", do)
            check, has_null = field.metadata.get("check"), value is None and field.default is None
            if len(self.problems) == before and check and not has_null:
                try:
                    check(value)
                except ValueError as error:
                    self.wrong(child, below, str(error), "correct the value")
            if len(self.problems) == before:
                arguments[field.name] = value
        try:
            return shape(**arguments)
        except (TypeError, ValueError) as error:
            # What is wrong inside the mapping already may be all that is wrong.
            if len(self.problems) == start:
                self.wrong(node, path, str(error), "change the combination")
            return None

    def _unknown(self, key: yaml.Node, names: Mapping[str, tuple[dataclasses.Field[Any], Any]], path: str) -> None:
        renamed = next((n for n, (field, _) in names.items() if field.metadata.get("formerly") == key.value), None)
        close = declared.closest(str(key.value), names)
        do = f"did you mean {close}?" if close else f"known here: {', '.join(names) or 'nothing'}"
        do = f"it has been renamed: write {renamed}" if renamed else do
        self.wrong(key, path, "unknown key", do)

    def _pairs(self, node: yaml.Node, path: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
        if node.tag == _NULL:
            return []
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, path, f"{_kind(node)} where a mapping is needed", "write `key: value` lines")
            return []
        pairs: list[tuple[yaml.ScalarNode, yaml.Node]] = []
        counts = collections.Counter[str]()
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.wrong(key, path, f"{_kind(key)} as a key", "write a name before the colon")
                continue
            pairs.append((key, child))
            counts[key.value] += 1
            if counts[key.value] == 2:
                self.wrong(key, path, "the key stands twice", "keep one of them")
        return pairs

    def _tuple(self, node: yaml.Node, hint: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(node, yaml.SequenceNode):
            self.wrong(node, path, f"{_kind(node)} where a list is needed", "write `- item` lines")
            return ()
        inner = typing.get_args(hint)[0]
        return tuple(self.value(child, inner, f"{path}[{i}]") for i, child in enumerate(node.value))

    def _mapping(self, node: yaml.Node, hint: Any, path: str) -> dict[str, Any]:
        inner = typing.get_args(hint)[1]
        return {key.value: self.value(child, inner, f"{path}.{key.value}") for key, child in self._pairs(node, path)}

    def _scalar(self, node: yaml.Node, hint: Any, path: str) -> Any:
        if hint is Any:
            return self._plain(node, path)
        if not isinstance(node, yaml.ScalarNode):
            self.wrong(node, path, f"{_kind(node)} where {_WORDS[hint]} is needed", f"write {_WORDS[hint]}")
            return None
        if hint is str and (node.tag != _NULL or not node.value):
            return node.value
        before = len(self.problems)
        value = self._plain(node, path)
        if hint is float and type(value) is int and abs(value) < 2**1000:
            return float(value)
        if len(self.problems) == before and (type(value) is not hint or (hint is float and not math.isfinite(value))):
            self.wrong(node, path, f"not {_WORDS[hint]}", f"write {_WORDS[hint]}")
            return None
        return value

    def _plain(self, node: yaml.Node, path: str) -> Any:
        """Value that YAML itself makes of `node`; a date that does not exist or an unknown tag is a mistake like
        others."""
        try:
            return self._construct(node)
        except yaml_bounds.UNREADABLE as error:
            why = f"YAML cannot read it: {yaml_bounds.why(error)}"
            self.wrong(node, path, why, "put text in quotes, or correct the value")
            return None


def _kind(node: yaml.Node) -> str:
    kinds: dict[type[yaml.Node], str] = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list"}
    return kinds.get(type(node), "a value")
