"""Moments as the API server writes them. MicroTime is refused unless it has exactly six digits after the point."""

from __future__ import annotations

import datetime


def micro(wall: float) -> str:
    """`2026-01-02T03:04:05.000600Z`, of seconds since the epoch."""
    return _moment(wall).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds(wall: float) -> str:
    """`2026-01-02T03:04:05Z`, of seconds since the epoch."""
    return _moment(wall).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(wall: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(wall, tz=datetime.UTC)
