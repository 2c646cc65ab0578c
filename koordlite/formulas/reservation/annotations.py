"""Annotations about reservations, read one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from koordlite.model.errors import UNREADABLE, InputError, Problem

T = TypeVar("T", bound=msgspec.Struct)


def read(shape: type[T], annotations: Mapping[str, str] | None, key: str, owner: str) -> T | None:
    """Annotation `key` of object `owner`; None without it, InputError when it cannot be read. Empty text is `{}`."""
    text = (annotations or {}).get(key)
    if text is None:
        return None
    try:
        return (msgspec.json.decode(text, type=shape | None) if text else None) or shape()
    except UNREADABLE as error:
        do = "fix the annotation; until then no reservation matches"
        raise InputError(Problem(owner, key, text, str(error), do)) from error
