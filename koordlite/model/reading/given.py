"""Values in JSON documents of the settings that Structs declare (`declared`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from koordlite.model.reading.declared import ANYTHING, Path, SettingType, Values, build, settings
from koordlite.model.reading.lenient_json import UNKNOWN, JSONDocument, join, printable, word

T = TypeVar("T")


def read(
    document: JSONDocument, shape: type, members: Mapping[str, Any], path: str, meanwhile: str
) -> tuple[Values, bool]:
    """Values that `members`, which stand at `path`, give of `shape`, and whether all of it is within range.

    Mistakes are noted in the document; `meanwhile` says what holds in place of values that are out of range.
    """
    reader = _Reader(document, meanwhile)
    return dict(reader.settings(shape, members, path)), reader.in_range


def decode(shape: type[T], text: str) -> T:
    """The value of type `shape` that `text` writes; ValueError with every mistake. Unknown names are ignored."""
    document = JSONDocument("", "", "")
    members = document.object(document.decode(text), "", settings(shape))
    values, in_range = read(document, shape, members, "", "")
    if document.broken or not in_range:
        mistakes = [problem for problem in document.problems if problem.why != UNKNOWN]
        raise ValueError("; ".join(f"{p.field}: {p.why}" if p.field else p.why for p in mistakes))
    return build(shape(), values)


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
        known = settings(group)
        for name, value in members.items():
            if name in known:
                inner = self._setting(known[name].shape, value, join(path, name))
                yield from (((name, *rest), each) for rest, each in inner)

    def _setting(self, shape: SettingType, value: Any, path: str) -> Iterator[tuple[Path, Any]]:
        if shape.group is not None:
            members = self.document.object(value, path, settings(shape.group))
            yield from self.settings(shape.group, members, path)
        elif shape.keyed is not None:
            for key, each in self.document.object(value, path, None).items():
                found = self._element(shape.keyed, each, join(path, printable(key)))
                yield from () if found is None else (((key,), found),)
        else:
            found = self._element(shape, value, path)
            # A field that is empty is left to the layer below; in a map an empty text is a value.
            yield from () if found in (None, "", ()) else (((), found),)

    def _element(self, shape: SettingType, value: Any, path: str) -> Any:
        """A value that stands for itself; None when it is not one."""
        if shape.group is not None:
            members = self.document.object(value, path, settings(shape.group))
            return build(shape.group(), dict(self.settings(shape.group, members, path)))
        if shape.listed is not None:
            listed = enumerate(self.document.items(value, path))
            found = [self._element(shape.listed, each, f"{path}[{i}]") for i, each in listed if each is not None]
            return tuple(each for each in found if each is not None)
        return self._leaf(shape, value, path)

    def _leaf(self, shape: SettingType, value: Any, path: str) -> Any:
        kind = shape.kind or ANYTHING
        try:
            found = kind.read(value)
        except TypeError:
            self.document.spoil(path, value, f"{word(value)} where {kind.needed} is needed")
            return None
        except ValueError as error:
            self.document.spoil(path, value, str(error))
            return None
        self._judge(shape, found, value, path)
        return found

    def _judge(self, shape: SettingType, found: Any, value: Any, path: str) -> None:
        bounds, words = shape.bounds, shape.words
        if why := bounds.refused(found) if bounds else "":
            self.in_range = False
            self.document.note(path, value, why, f"fix it; {self.meanwhile}")
        elif bounds and bounds.usual is not None and found > bounds.usual:
            self.document.note(path, value, f"above {bounds.usual:g}", "check it; it is used")
        if words and found and found not in words.words:
            do = f"write one of them; it means {words.other or words.words[0]}"
            self.document.note(path, value, f"not one of {', '.join(words.words)}", do)
