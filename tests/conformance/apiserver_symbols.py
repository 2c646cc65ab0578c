"""The symbols of recorded interactions with an API server: what each stands for on the server that is being judged."""

from __future__ import annotations

import base64
import json
import re
import uuid
from typing import Any

TIME = "2026-01-01T00:00:00Z"
_SYMBOL = re.compile(r"\$continue\{v=[^,]*,rv=[^,]*,start=\"[^\"]*\"\}|\$rv\d+|\$uid\d+|\$microtime|\$time")
_CONTINUE = re.compile(r'\$continue\{v=([^,]*),rv=([^,]*),start="([^"]*)"\}')
_PATTERNS = {
    "$time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "$microtime": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"),
}


class Symbols:
    """What is bound so far. A revision stands for one number, and revisions keep their order."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.names: dict[str, str] = {}
        """Generated names of the recording to ours."""
        self._microseconds = 0
        self.strict: set[str] = set()
        """Revisions that objects carry: two of them never stand for the same number."""

    def said(self, value: Any) -> Any:
        """A part of a request with its symbols replaced."""
        if isinstance(value, dict):
            return {key: self.said(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.said(each) for each in value]
        return _SYMBOL.sub(lambda match: self._one(match[0]), value) if isinstance(value, str) else value

    def _one(self, symbol: str) -> str:
        if symbol.startswith("$continue"):
            found = _CONTINUE.match(symbol)
            assert found is not None
            return self.token(found[1], found[2], found[3])
        if symbol == "$microtime":
            self._microseconds += 1
            return f"2026-01-01T00:00:00.{self._microseconds:06}Z"
        if symbol.startswith("$uid"):
            return self.values.setdefault(symbol, str(uuid.uuid4()))
        return TIME if symbol == "$time" else self.values[symbol]

    def token(self, version: str, revision: str, start: str) -> str:
        """A continue token with our revision in it."""
        number = int(self.values.get(revision, revision)) if revision.startswith("$") else int(revision)
        fields = {"v": version, "rv": number, "start": json.loads(f'"{start}"')}
        text = json.dumps(fields, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def bind(self, symbol: str, value: str, *, strict: bool = False) -> bool:
        """Whether `value` can be what the symbol stands for."""
        if strict and symbol.startswith("$rv"):
            self.strict.add(symbol)
        if symbol in self.values:
            return self.values[symbol] == value
        if symbol.startswith("$rv") and not self._in_order(symbol, value):
            return False
        self.values[symbol] = value
        return True

    def _in_order(self, symbol: str, value: str) -> bool:
        if not value.isdecimal():
            return False
        mine = int(symbol[3:])
        for other, known in self.values.items():
            if not other.startswith("$rv"):
                continue
            low, high = sorted(((int(other[3:]), int(known)), (mine, int(value))))
            both = symbol in self.strict and other in self.strict
            if low[1] > high[1] or (both and low[1] == high[1]):
                return False
        return True

    def matches(self, text: str, found: str, *, strict: bool = False) -> bool:
        """Whether a recorded text, with symbols in it, is what we found."""
        parts = _SYMBOL.split(text)
        symbols = _SYMBOL.findall(text)
        if not symbols:
            return self.names.get(text, text) == found
        if len(symbols) == 1 and parts == ["", ""]:
            return self._is(symbols[0], found, strict=strict)
        pattern = re.escape(parts[0]) + "".join("(.+?)" + re.escape(part) for part in parts[1:])
        match = re.fullmatch(pattern, found, re.DOTALL)
        return match is not None and all(map(self._is, symbols, match.groups()))

    def _is(self, symbol: str, found: str, *, strict: bool = False) -> bool:
        if symbol in _PATTERNS:
            return _PATTERNS[symbol].fullmatch(found) is not None
        if symbol.startswith("$continue"):
            return self._is_token(symbol, found)
        return self.bind(symbol, found, strict=strict)

    def _is_token(self, symbol: str, found: str) -> bool:
        wanted = _CONTINUE.match(symbol)
        assert wanted is not None
        fields = json.loads(base64.urlsafe_b64decode(found + "=" * (-len(found) % 4)))
        revision = str(fields["rv"])
        same = revision == wanted[2] if not wanted[2].startswith("$") else self.bind(wanted[2], revision)
        return bool(same and fields["v"] == wanted[1] and fields["start"] == json.loads(f'"{wanted[3]}"'))
