"""How many pods of a workload may be missing, or on the move, at once."""

from __future__ import annotations

_LARGE = 10
_SMALL = 4
_OF_MIDDLE = 2


def allowed(replicas: int, value: int | str | None) -> int:
    """⌊replicas × percent⌋ or the number itself, at least 1 and at most `replicas`; 0 for a workload without replicas.

    >>> [allowed(6, value) for value in ("80%", "150%", 0, 7)]
    [4, 6, 1, 6]

    Without a value: a tenth of more than 10 replicas, 2 of 4 to 10, 1 of fewer.

    >>> [allowed(replicas, None) for replicas in (50, 10, 4, 3, 0)]
    [5, 2, 2, 1, 0]

    Source: Koordinator `GetMaxUnavailable` and `GetMaxMigrating`.
    """
    if isinstance(value, str):
        value = replicas * int(value.removesuffix("%")) // 100
    if value is None:
        value = replicas // 10 if replicas > _LARGE else _OF_MIDDLE if replicas >= _SMALL else 1
    return min(replicas, value or 1)
