"""Whether an answer is the recorded one: status, reason, structure, relations between revisions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import cyaml

from tests.conformance.apiserver_symbols import Symbols

_AGE = re.compile(r"\d+[smhdy](\d+s)?")
_OPAQUE = frozenset({"storageVersionHash", "serverAddress", "description", "buildDate", "goVersion"})
_GO_TEXT = (
    r"(couldn't get version/kind; json parse error).*",
    r"(pod updates may not change fields other than).*",
    r"(patch: Invalid value: ).*",
    r"(Invalid value: )\"?\{.*",
    r"(json: cannot unmarshal \w+).*",
    r"(continue key is not valid).*",
    r"(error converting YAML to JSON: ).*",
    r"(Object 'Kind' is missing in ).*",
    r"(Invalid value: policy.PodDisruptionBudgetSpec)\{.*?\}(: min.*)",
    r"(no kind \"[^\"]*\" is registered for version).*",
)
"""Words of Go's decoders, and values printed as Go values: they differ from one release to the next."""
_EXACT: frozenset[str] = frozenset()
_UNORDERED = frozenset({"unordered"})
_PARTIAL = frozenset({"partial"})


class Matcher:
    """Compares answers of one recording."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._subset = False
        self._is_object = False

    def differences(self, interaction: Any, found: Any) -> list[str]:
        """What differs, one line each."""
        wanted = interaction["response"]
        self._subset = "trimmed to" in interaction["title"]
        lines = [] if wanted["status"] == found["status"] else [f"status {found['status']}"]
        lines += self._headers(wanted.get("headers") or {}, found["headers"])
        query = interaction["request"]["path"].partition("?")[2]
        mode = _UNORDERED if "resourceVersion" in query or "stream" in wanted else _EXACT
        if "stream" in wanted:
            lines += self._stream(wanted["stream"], found["body"])
        elif interaction["request"]["method"] != "HEAD":
            lines += self._body(wanted["body"], found["body"], mode=mode)
        return lines

    def _headers(self, wanted: Any, found: Any) -> Iterator[str]:
        for name in ("content-type", "retry-after", "warning"):
            if wanted.get(name) != found.get(name):
                yield f"header {name}: {found.get(name)}"

    def _body(self, wanted: Any, text: str, *, mode: frozenset[str]) -> list[str]:
        if isinstance(wanted, str):
            if wanted.startswith(("apiVersion:", "kind:")):
                return list(self._value(cyaml.safe_load(wanted), cyaml.safe_load(text), "", mode=mode))
            return [] if text == wanted else [f"text {text[:80]!r}"]
        found = _parsed(text)
        if isinstance(wanted, list) and isinstance(found, dict):
            return list(self._names(wanted, found.get("items") or []))
        if isinstance(wanted, dict) and "kind" not in wanted:
            mode = mode | _PARTIAL
        return list(self._value(wanted, found, "", mode=mode))

    def _stream(self, wanted: list[Any], text: str) -> list[str]:
        lines = [_parsed(line) for line in text.splitlines() if line]
        if wanted and isinstance(wanted[0], str):
            return list(self._value(cyaml.safe_load(wanted[0]), cyaml.safe_load(text), "", mode=_EXACT))
        return list(self._list(wanted, lines, "stream", mode=_UNORDERED))

    def _value(self, wanted: Any, found: Any, path: str, *, mode: frozenset[str]) -> Iterator[str]:
        if isinstance(wanted, dict) and isinstance(found, dict):
            yield from self._dict(wanted, found, path, mode=mode)
        elif isinstance(wanted, list) and isinstance(found, list):
            yield from self._list(wanted, found, path, mode=mode)
        elif isinstance(wanted, str) and isinstance(found, str):
            if not self._same_text(wanted, found, path):
                yield f"{path}: {found[:160]!r} where {wanted[:160]!r} was recorded"
        elif isinstance(wanted, str) and wanted.startswith(("trimmed", "...")):
            return
        elif wanted != found or isinstance(wanted, bool) != isinstance(found, bool):
            yield f"{path}: {str(found)[:120]!r} where {str(wanted)[:120]!r} was recorded"

    def _same_text(self, wanted: str, found: str, path: str) -> bool:
        if path.endswith("message"):
            wanted, found = _neutral(wanted), _neutral(found)
        if ".cells" in path and _AGE.fullmatch(wanted):
            return _AGE.fullmatch(found) is not None
        strict = path.endswith("metadata.resourceVersion") and path.count("metadata") == 1 and "Table" not in path
        return self._symbols.matches(wanted, found, strict=strict and self._is_object)

    def _dict(self, wanted: Any, found: Any, path: str, *, mode: frozenset[str]) -> Iterator[str]:
        meta = wanted.get("metadata")
        if isinstance(meta, dict):
            self._is_object = "uid" in meta or "name" in meta
        if wanted.get("generateName") and str(found.get("name", "")).startswith(wanted["generateName"]):
            self._symbols.names[wanted["name"]] = found["name"]
        partial = any(str(value).startswith(("trimmed", "...")) or key == "..." for key, value in wanted.items())
        mode = mode | _PARTIAL if "..." in wanted else mode
        for key in wanted:
            if key in ("...", *_OPAQUE):
                continue
            if key not in found and wanted[key] is None and "..." in wanted:
                continue
            if key not in found:
                yield f"{path}.{key} is missing"
            elif key == "items" and _only_names(wanted):
                yield from self._names(wanted[key], found[key])
            else:
                yield from self._value(wanted[key], found[key], f"{path}.{key}", mode=mode)
        extra = set(found) - set(wanted) - {"managedFields"} - _OPAQUE
        if extra and not partial and not mode & _PARTIAL:
            yield f"{path} has more: {', '.join(sorted(extra))}"

    def _names(self, wanted: list[Any], found: list[Any]) -> Iterator[str]:
        names = [each["metadata"]["name"] for each in found]
        plain = [each if isinstance(each, str) else each["name"] for each in wanted]
        if sorted(names) != sorted(self._symbols.names.get(each, each) for each in plain):
            yield f"items: {names}"

    def _list(self, wanted: list[Any], found: list[Any], path: str, *, mode: frozenset[str]) -> Iterator[str]:
        if wanted and wanted[-1] == "...trimmed":
            yield from (f"{path} lacks {each}" for each in wanted[:-1] if each not in found)
            return
        if self._subset and path.endswith(("groups", "resources")):
            known = {each["name"]: each for each in found}
            yield from (f"{path} lacks {each['name']}" for each in wanted if each["name"] not in known)
            wanted = [each for each in wanted if each["name"] in known]
            found = [known[each["name"]] for each in wanted]
        if len(wanted) != len(found):
            yield f"{path}: {len(found)} entries where {len(wanted)} were recorded: {str(found)[:300]}"
            return
        if mode & _UNORDERED:
            found = _like(wanted, found)
        for place, (want, have) in enumerate(zip(wanted, found, strict=True)):
            yield from self._value(want, have, f"{path}[{place}]", mode=mode)


def _only_names(wanted: Any) -> bool:
    """Whether the recording keeps no more than the names of a list's items."""
    items = wanted["items"]
    return wanted.get("...") == "items reduced to names" or bool(items and isinstance(items[0], str))


def _like(wanted: list[Any], found: list[Any]) -> list[Any]:
    """What has no order, in the order of the recording: entries of cached lists, and a watch's first state."""
    order = [_name(each) for each in wanted]
    begin = 0
    while begin < len(found) and isinstance(found[begin], dict) and found[begin].get("type", "ADDED") == "ADDED":
        begin += 1
    head = sorted(found[:begin], key=lambda each: order.index(_name(each)) if _name(each) in order else 0)
    return head + found[begin:]


def _name(entry: Any) -> str:
    item = entry.get("object", entry) if isinstance(entry, dict) else {}
    return str((item.get("metadata") or {}).get("name", "")) if isinstance(item, dict) else ""


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _neutral(text: str) -> str:
    for pattern in _GO_TEXT:
        text = re.sub(pattern, lambda match: "".join(match.groups()), text, flags=re.DOTALL)
    return text
