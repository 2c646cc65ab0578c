"""Time zones by name."""

from __future__ import annotations

import functools
import zoneinfo


@functools.cache
def zone(name: str) -> zoneinfo.ZoneInfo:
    """The time zone; ValueError when the tz database of this machine does not have it."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not in the tz database of this machine (a name like Europe/Berlin)") from error
