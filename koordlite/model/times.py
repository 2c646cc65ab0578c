"""RFC 3339 times of Kubernetes objects, as seconds since the epoch."""

from __future__ import annotations

import datetime


def micro(wall: float) -> str:
    """MicroTime, `2026-01-02T03:04:05.000600Z`: the API server refuses it unless six digits follow the point."""
    return datetime.datetime.fromtimestamp(wall, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str, *, assume_utc: bool = False) -> float:
    """Seconds since the epoch; ValueError when `text` is no RFC 3339 time with a zone. People may leave the zone out
    where `assume_utc` says so."""
    time = datetime.datetime.fromisoformat(text)
    if time.tzinfo is None and assume_utc:
        time = time.replace(tzinfo=datetime.UTC)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it like 2026-01-01T00:00:00Z")
    return time.timestamp()


def parse_or_none(text: str | None) -> float | None:
    """Like `parse`; None for a missing or unreadable time: an object without a time has no age."""
    try:
        return parse(text) if text else None
    except ValueError:
        return None


def show(seconds: float) -> str:
    """RFC 3339 in UTC, whole seconds."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
