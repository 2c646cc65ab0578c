"""JSON documents of other people, read as Go reads them, with every mistake noted instead of thrown.

Names match without regard to case, `null` is unset, a repeated name's last value wins, unknown names are ignored (and
reported). A value of the wrong type spoils the whole document. `declared` says what the documents may hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from koordlite.model.errors import Problem

MOST_PROBLEMS = 50
"""More mistakes of one document are not listed: a list that long is not read, and a bad file must not cost minutes."""
UNKNOWN = "unknown key"
"""What is wrong with a name that is not known; the document stays usable."""
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
            return _readable(json.loads(text, parse_constant=_refuse), text)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno} column {error.colno}"
            lines = text.split("\n")
            self.spoil("", lines[error.lineno - 1], f"not JSON: {error.msg.removesuffix(' at')} at {where}")
        except (ValueError, RecursionError) as error:
            self.spoil("", text, f"not usable JSON: {error}")
        return None

    def object(self, value: Any, path: str, known: Collection[str] | None) -> dict[str, Any]:
        """The members of a JSON object by their proper names, without nulls; names other than `known` are reported.

        Without `known` every name is proper: a map.
        """
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.spoil(path, value, f"{word(value)} where an object is needed")
            return {}
        if known is None:
            return {name: member for name, member in value.items() if member is not None}
        return self._named(value, path, known)

    def _named(self, value: dict[str, Any], path: str, known: Collection[str]) -> dict[str, Any]:
        proper = {folded(name): name for name in known}
        members: dict[str, Any] = {}
        for name, member in value.items():
            canonical = name if name in known else proper.get(folded(name))
            if canonical is None:
                self._unknown(join(path, printable(name)), name, known)
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

    def _unknown(self, path: str, name: str, known: Collection[str]) -> None:
        self._guessed += 1
        meant = closest(name, known) if self._guessed <= _MOST_GUESSES else ""
        do = f"did you mean {meant}? It is ignored" if meant else "it is ignored; remove it"
        self.note(path, name, UNKNOWN, do)


def folded(name: str) -> str:
    """`name` as Go compares it with a field's: letters of one length, the long s and the Kelvin sign too."""
    return name.lower().replace("ſ", "s")


def closest(name: str, known: Collection[str]) -> str:
    """The name among `known` that was probably meant; empty when none is near."""
    import difflib  # For a mistake only.

    proper = {folded(each): each for each in known}
    near = difflib.get_close_matches(folded(name)[:60], list(proper), n=1)
    return proper[near[0]] if near else ""


def word(value: Any) -> str:
    """Kind of a JSON value, for a message."""
    words: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return words.get(type(value), "a number")


def printable(name: str) -> str:
    """A name from a document, fit for a message: in one line, without control characters, at most 60 characters."""
    return (name if name.isprintable() else ascii(name))[:60]


def join(path: str, name: str) -> str:
    """`path.name`, or the one of them that is not empty."""
    return f"{path}.{name}" if path and name else path or name


def _readable(value: Any, text: str) -> Any:
    """Half of a surrogate pair, which no text can hold, becomes the replacement character, as in Go."""
    return _without_surrogates(value) if "\\u" in text or _SURROGATE.search(text) else value


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
