"""JSON documents of other people, read as Go reads them and by a declared shape, with every mistake noted.

Names match without regard to case, `null` is unset, a repeated name's last value wins, unknown names are ignored (and
reported). A value of the wrong type spoils the whole document.

Structs declare what documents may hold: names, types, ranges and defaults in one place. A field
`cpu_suppress_min_percent: Percent | None = None` declares the setting `cpuSuppressMinPercent`: a whole number within 0
to 100 that need not be given. Types are bool, int, float, str, Quantity, Nanoseconds, `int | str`, another Struct
(settings inside settings), `tuple[…, ...]` and `Mapping[str, …]`.

What a document gives is `Values` by path, so that layers lie on each other as Koordinator's `MergeCfg` lays them: a
value that is given hides the one below, also 0 and false; what is null, empty text or an empty list is not given;
settings inside settings and maps are merged by name; lists are replaced as a whole.
"""

from __future__ import annotations

import collections.abc
import functools
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from koordlite.model import duration, printable
from koordlite.model.errors import UNREADABLE, Problem
from koordlite.model.quantity import Quantity

T = TypeVar("T")
Path = tuple[str, ...]
"""Names from the outside to the inside: `("beClass", "resctrlQOS", "mbaPercent")`."""
Values = dict[Path, Any]
"""Values by path."""

MOST_PROBLEMS = 50
"""More mistakes of one document are not listed: a list that long is not read, and a bad file must not cost minutes."""
UNKNOWN = "unknown key"
"""Mistake of an unknown name; the document stays usable."""
_MOST_GUESSES = 10
_SURROGATE = re.compile("[\ud800-\udfff]")


class JSONDocument:
    """One JSON text on its way to values; `problems` fills up, `broken` says that it must not be used."""

    def __init__(self, owner: str, key: str, meanwhile: str) -> None:
        """`meanwhile` says what holds while the document is broken."""
        self.owner, self.key, self.meanwhile = owner, key, meanwhile
        self.problems: list[Problem] = []
        self.broken = False
        self._noted = self._guessed = 0

    def decode(self, text: str) -> Any:
        """The decoded text; None, and `broken`, when it is not JSON."""
        try:
            value = json.loads(text, parse_constant=_refuse)
            # Half of a surrogate pair, which no text can hold, becomes the replacement character, as in Go.
            return _without_surrogates(value) if "\\u" in text or _SURROGATE.search(text) else value
        except json.JSONDecodeError as error:
            where = f"line {error.lineno} column {error.colno}"
            lines = text.split("\n")
            self.spoil("", lines[error.lineno - 1], f"not JSON: {error.msg.removesuffix(' at')} at {where}")
        except UNREADABLE as error:
            self.spoil("", text, f"not usable JSON: {error}")
        return None

    def object(self, value: Any, path: str, names: Collection[str] | None) -> dict[str, Any]:
        """The members of a JSON object by their proper names, without nulls; names other than `names` are reported.
        Without `names` every name is proper: a map."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.spoil(path, value, f"{word(value)} where an object is needed")
            return {}
        if names is None:
            return {name: member for name, member in value.items() if member is not None}
        proper = {folded(name): name for name in names}
        members: dict[str, Any] = {}
        for name, member in value.items():
            canonical = name if name in names else proper.get(folded(name))
            if canonical is None:
                self._guessed += 1
                meant = closest(name, names) if self._guessed <= _MOST_GUESSES else ""
                do = f"did you mean {meant}? It is ignored" if meant else "it is ignored; remove it"
                self.note(join(path, printable.shortened(name, 60)), name, UNKNOWN, do)
            else:
                members[canonical] = member
        return {name: member for name, member in members.items() if member is not None}

    def items(self, value: Any, path: str) -> Sequence[Any]:
        """The elements of a JSON list; nothing for null."""
        if value is not None and not isinstance(value, list):
            self.spoil(path, value, f"{word(value)} where a list is needed")
            return ()
        return value or ()

    def text(self, members: Mapping[str, Any], name: str, path: str) -> str:
        """A text member, empty when absent."""
        value = members.get(name, "")
        if not isinstance(value, str):
            self.spoil(join(path, name), value, f"{word(value)} where text is needed")
            return ""
        return value

    def spoil(self, path: str, value: Any, why: str) -> None:
        """Note a mistake that makes the whole document unusable."""
        self.broken = True
        self.note(path, value, why, f"fix it; {self.meanwhile}")

    def note(self, path: str, value: Any, why: str, do: str) -> None:
        """Note a mistake."""
        self._noted += 1
        if self._noted <= MOST_PROBLEMS:
            self.problems.append(Problem(self.owner, join(self.key, path), _shown(value)[:120], why, do))
        elif self._noted == MOST_PROBLEMS + 1:
            do = "fix those that are listed, and check again"
            self.problems.append(Problem(self.owner, self.key, "", "has more mistakes, which are not listed", do))


def folded(name: str) -> str:
    """`name` as Go compares it with a field's: letters of one length, the long s and the Kelvin sign too."""
    return name.lower().replace("ſ", "s")


def closest(name: str, names: Collection[str]) -> str:
    """The one of `names` that was probably meant; empty when none is near."""
    import difflib  # For a mistake only.

    proper = {folded(each): each for each in names}
    near = difflib.get_close_matches(folded(name)[:60], list(proper), n=1)
    return proper[near[0]] if near else ""


def word(value: Any) -> str:
    """Kind of a JSON value, for a message."""
    words: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return words.get(type(value), "a number")


def join(path: str, name: str) -> str:
    """`path.name`, or the one of them that is not empty."""
    return f"{path}.{name}" if path and name else path or name


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    return value


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "{…}" if isinstance(value, dict) else "[…]"
    return value if isinstance(value, str) else json.dumps(value)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")


_INT64 = 2**63
_DOUBLE = sys.float_info.max
_UPPER = {"cpu": "CPU", "cpus": "CPUs", "be": "BE", "qos": "QOS", "iops": "IOPS", "bps": "BPS", "numa": "NUMA"}


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """Mark of a number: its range. A value outside cannot be used."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    """Exclusive lower bound."""
    usual: float | None = None
    """Values above are used, and reported: Koordinator's webhook refuses them, its controllers take them."""

    def refused(self, value: float | str) -> str:
        """Reason why `value` is outside the range, empty when it is inside; text in place of a number is to be a
        quantity."""
        if isinstance(value, str):
            try:
                Quantity.parse(value)
            except ValueError as error:
                return str(error)
            return ""
        if self.above is not None and value <= self.above:
            return f"not above {self.above:g}"
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            return f"below {self.low:g}" if self.high is None else f"not within {self.low:g} to {self.high:g}"
        return ""


class OneOf(msgspec.Struct, frozen=True):
    """Mark of a text: the words that mean something. Another word stays as written and is reported."""

    words: tuple[str, ...]
    other: str = ""
    """Word that any other one means; empty for the first one."""


class Kind(msgspec.Struct, frozen=True):
    """Mark of a type that is written otherwise than Python holds it."""

    needed: str
    types: tuple[type, ...] = ()
    """Types of JSON values that are allowed; empty: any."""
    parse: Callable[[Any], Any] = lambda value: value
    """TypeError for a number that is none of this kind, ValueError for text that does not parse."""
    show: Callable[[Any], Any] = lambda value: value

    def read(self, value: Any) -> Any:
        """The value as Python holds it; TypeError for the wrong kind of JSON value, ValueError as of `parse`."""
        if self.types and type(value) not in self.types:
            raise TypeError
        return self.parse(value)


Percent = Annotated[int, Within(low=0, high=100)]
AtLeast0 = Annotated[int, Within(low=0)]
OnOff = Annotated[int, Within(low=0, high=1)]


def _whole(value: int | str) -> int | str:
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise TypeError
    return value


def _number(value: float) -> float:
    if not -_DOUBLE <= value <= _DOUBLE:
        raise TypeError
    return float(value)


Nanoseconds = Annotated[int, Kind("a duration like 5m", (str,), duration.parse, duration.show)]
NUMBER_OR_TEXT = Kind("a whole number or text", (int, str), _whole)
ANYTHING = Kind("anything")
_KINDS: Mapping[Any, Kind] = {
    bool: Kind("true or false", (bool,)),
    int: Kind("a whole number", (int,), _whole),
    float: Kind("a number", (int, float), _number),
    str: Kind("text", (str,)),
    Quantity: Kind("a quantity like 10G", (int, float, str), Quantity.parse, str),
    Any: ANYTHING,
}


class SettingType(msgspec.Struct, frozen=True):
    """Form of a value: one of a leaf's kind, settings, or a list or map of elements."""

    kind: Kind | None = None
    bounds: Within | None = None
    words: OneOf | None = None
    group: type | None = None
    listed: SettingType | None = None
    keyed: SettingType | None = None


class Setting(msgspec.Struct, frozen=True):
    """One field of a Struct as documents know it."""

    attribute: str
    shape: SettingType


def settings(shape: type[Any]) -> Mapping[str, Setting]:
    """The settings of a Struct by their names in JSON, in the order of its fields."""
    return _settings(typing.cast(Hashable, shape))


@functools.cache
def _settings(shape: Any) -> Mapping[str, Setting]:
    hints = typing.get_type_hints(shape, include_extras=True)
    return {camel(name): Setting(name, _shape(hints[name])) for name in shape.__struct_fields__}


def camel(name: str) -> str:
    """`batch_cpu_threshold_percent` → `batchCPUThresholdPercent`."""
    head, *words = name.split("_")
    return head + "".join(_UPPER.get(part, part.capitalize()) for part in words)


def _shape(hint: Any, marks: tuple[Any, ...] = ()) -> SettingType:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _shape(arguments[0], (*marks, *arguments[1:]))
    if origin in (typing.Union, types.UnionType):
        options = [each for each in arguments if each is not types.NoneType]
        return _shape(options[0], marks if len(options) == 1 else (*marks, NUMBER_OR_TEXT))
    if origin is tuple:
        return SettingType(listed=_shape(arguments[0], marks))
    if origin in (collections.abc.Mapping, dict):
        return SettingType(keyed=_shape(arguments[1], marks))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return SettingType(group=hint)
    kind = next((mark for mark in marks if isinstance(mark, Kind)), None) or _KINDS[hint]
    bounds = next((mark for mark in marks if isinstance(mark, Within)), None)
    return SettingType(kind, bounds, next((mark for mark in marks if isinstance(mark, OneOf)), None))


def build(base: T, values: Values) -> T:
    """`base` with the given values in place of its own."""
    by_name: dict[str, Values] = {}
    for path, value in values.items():
        by_name.setdefault(path[0], {})[path[1:]] = value
    fields = settings(type(base))
    changes: dict[str, Any] = {}
    for name, inner in by_name.items():
        current, shape = getattr(base, fields[name].attribute), fields[name].shape
        if shape.group is not None:
            changes[fields[name].attribute] = build(current or shape.group(), inner)
        elif shape.keyed is not None:
            changes[fields[name].attribute] = {**(current or {}), **{path[0]: value for path, value in inner.items()}}
        else:
            changes[fields[name].attribute] = inner[()]
    return msgspec.structs.replace(typing.cast(Any, base), **changes) if changes else base


def flatten(value: Any) -> Iterator[tuple[Path, Any]]:
    """Every setting of a Struct with its path, as JSON writes it; None where it is not set."""
    for name, setting in settings(type(value)).items():
        current = getattr(value, setting.attribute)
        if setting.shape.group is not None and current is not None:
            yield from (((name, *path), inner) for path, inner in flatten(current))
        elif setting.shape.keyed is not None and current:
            yield from (((name, key), _plain(setting.shape.keyed, each)) for key, each in current.items())
        else:
            yield (name,), _plain(setting.shape, current)


def plain(value: Any) -> dict[str, Any]:
    """A Struct as JSON has it, without what is not set: `decode` reads it back."""
    fields = settings(type(value)).items()
    members = ((name, _plain(setting.shape, getattr(value, setting.attribute))) for name, setting in fields)
    return {name: each for name, each in members if each is not None}


def crossed(value: Any) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of each pair whose lower end is not below its upper one.
    A Struct declares its pairs as `ORDERED`: (attribute of the lower end, attribute of the upper end)."""
    for lower, upper in getattr(type(value), "ORDERED", ()):
        low, high = getattr(value, lower), getattr(value, upper)
        if low is not None and high is not None and low >= high:
            yield "", f"{camel(lower)} ({low}) is not below {camel(upper)} ({high})"
    for name, setting in settings(type(value)).items():
        if setting.shape.group is not None:
            inner = crossed(getattr(value, setting.attribute))
            yield from ((join(name, path), why) for path, why in inner)


def _plain(shape: SettingType, value: Any) -> Any:
    if value is None:
        return None
    if shape.group is not None:
        return plain(value)
    if shape.listed is not None:
        return [_plain(shape.listed, each) for each in value]
    if shape.keyed is not None:
        return {name: _plain(shape.keyed, each) for name, each in value.items()}
    return shape.kind.show(value) if shape.kind else value


def read(
    document: JSONDocument, shape: type, members: Mapping[str, Any], path: str, meanwhile: str
) -> tuple[Values, bool]:
    """Values that `members`, which stand at `path`, give of `shape`, and whether all of it is within range.
    Mistakes are noted in the document; `meanwhile` says what holds in place of values that are out of range."""
    reader = _Reader(document, meanwhile)
    return dict(reader.settings(shape, members, path)), reader.in_range


def read_text(document: JSONDocument, shape: type, text: str, meanwhile: str = "") -> tuple[Values, bool]:
    """Same as `read`, of a whole text."""
    return read(document, shape, document.object(document.decode(text), "", settings(shape)), "", meanwhile)


def values(shape: type, text: str) -> Values:
    """Values that `text` gives of `shape`; ValueError with every mistake. Unknown names are ignored."""
    document = JSONDocument("", "", "")
    parsed, in_range = read_text(document, shape, text)
    if document.broken or not in_range:
        mistakes = [problem for problem in document.problems if problem.why != UNKNOWN]
        raise ValueError("; ".join(f"{p.field}: {p.why}" if p.field else p.why for p in mistakes))
    return parsed


def decode(shape: type[T], text: str) -> T:
    """The value of type `shape` that `text` writes; errors as of `values`."""
    return build(shape(), values(shape, text))


def ignored(shape: type, text: str) -> Iterator[str]:
    """A sentence for each name in the JSON object `text` that `shape` does not have."""
    document = JSONDocument("", "", "")
    document.object(document.decode(text), "", settings(shape))
    return (f"{p.field} is an {p.why}: {p.do}" for p in document.problems if p.why == UNKNOWN)


class _Reader:
    """One pass over given members; `in_range` turns false at the first value that cannot be used."""

    def __init__(self, document: JSONDocument, meanwhile: str) -> None:
        self.document, self.meanwhile, self.in_range = document, meanwhile, True

    def settings(self, group: type, members: Mapping[str, Any], path: str) -> Iterator[tuple[Path, Any]]:
        fields = settings(group)
        for name, value in members.items():
            if name in fields:
                inner = self._setting(fields[name].shape, value, join(path, name))
                yield from (((name, *below), each) for below, each in inner)

    def _setting(self, shape: SettingType, value: Any, path: str) -> Iterator[tuple[Path, Any]]:
        if shape.group is not None:
            members = self.document.object(value, path, settings(shape.group))
            yield from self.settings(shape.group, members, path)
        elif shape.keyed is not None:
            for key, each in self.document.object(value, path, None).items():
                element = self._element(shape.keyed, each, join(path, printable.shortened(key, 60)))
                yield from () if element is None else (((key,), element),)
        else:
            element = self._element(shape, value, path)
            # A field that is empty is left to the layer below; in a map an empty text is a value.
            yield from () if element in (None, "", ()) else (((), element),)

    def _element(self, shape: SettingType, value: Any, path: str) -> Any:
        """A value that stands for itself; None when it is not one."""
        if shape.group is not None:
            members = self.document.object(value, path, settings(shape.group))
            return build(shape.group(), dict(self.settings(shape.group, members, path)))
        if shape.listed is not None:
            listed = enumerate(self.document.items(value, path))
            elements = [self._element(shape.listed, each, f"{path}[{i}]") for i, each in listed if each is not None]
            return tuple(each for each in elements if each is not None)
        return self._leaf(shape, value, path)

    def _leaf(self, shape: SettingType, value: Any, path: str) -> Any:
        kind = shape.kind or ANYTHING
        try:
            parsed = kind.read(value)
        except TypeError:
            self.document.spoil(path, value, f"{word(value)} where {kind.needed} is needed")
            return None
        except ValueError as error:
            self.document.spoil(path, value, str(error))
            return None
        self._judge(shape, parsed, value, path)
        return parsed

    def _judge(self, shape: SettingType, parsed: Any, value: Any, path: str) -> None:
        bounds, words = shape.bounds, shape.words
        if why := bounds.refused(parsed) if bounds else "":
            self.in_range = False
            self.document.note(path, value, why, f"fix it; {self.meanwhile}")
        elif bounds and bounds.usual is not None and parsed > bounds.usual:
            self.document.note(path, value, f"above {bounds.usual:g}", "check it; it is used")
        if words and parsed and parsed not in words.words:
            do = f"write one of them; it means {words.other or words.words[0]}"
            self.document.note(path, value, f"not one of {', '.join(words.words)}", do)
