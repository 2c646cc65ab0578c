"""Rows of the table of pods, and its columns: one source for the terminal, the agent's page and the report of a run.

`pods` makes the rows; what only shows them, as `koordlite top` does, loads nothing of the picture of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from koordlite.model.errors import UNREADABLE, KoordliteError
from koordlite.report import units


class PodRow(msgspec.Struct, frozen=True, rename="camel"):
    """One pod. CPU in millicores, memory in bytes; None is unknown, or no limit."""

    name: str
    """`namespace/name`."""
    qos: str
    cpu: int | None = None
    cpu_limit: int | None = None
    """Its own quota; the CPUs of `cpus` are a limit as well."""
    memory: int | None = None
    cpus: str = ""
    """CPUs that its containers may run on; empty while it has none."""
    pressure: float | None = None
    """Percent of the last ten seconds in which some task waited for the resource of `waits_for`."""
    waits_for: str = ""
    decided: str = ""
    """The last decision about it or about all best-effort pods."""
    decided_at: float | None = None
    """Time of the decision, in seconds since the epoch."""


class _Document(msgspec.Struct, frozen=True):
    pods: tuple[PodRow, ...]


class Column(NamedTuple):
    """One column: how it is shown, and by what it is sorted. `is_number`: right-aligned, the largest first."""

    key: str
    title: str
    show: Callable[[PodRow], str]
    order: Callable[[PodRow], Any]
    is_number: bool = False


def decided(row: PodRow) -> str:
    """The last decision in one line, with its time."""
    return f"{units.stamp(0.0, row.decided_at)} {row.decided}" if row.decided_at else row.decided or "–"


def _limit(row: PodRow) -> str:
    return "none" if row.cpu_limit is None else units.cores(row.cpu_limit)


def _pressure(row: PodRow) -> str:
    if row.pressure is None:
        return "–"
    return f"{row.waits_for} {row.pressure:.0f} %" if row.pressure >= 0.5 else "0 %"


COLUMNS = (
    Column("name", "pod", lambda row: row.name, lambda row: row.name),
    Column("qos", "class", lambda row: row.qos, lambda row: (row.qos, row.name)),
    Column("cpu", "CPU", lambda row: units.cores(row.cpu), lambda row: row.cpu or 0, True),
    Column("limit", "limit", _limit, lambda row: row.cpu_limit or 0, True),
    Column("memory", "memory", lambda row: units.size(row.memory), lambda row: row.memory or 0, True),
    Column("pressure", "pressure", _pressure, lambda row: row.pressure or 0.0, True),
    Column("cpus", "CPUs", lambda row: row.cpus or "–", lambda row: row.cpus),
    Column("decided", "decided last", decided, lambda row: -(row.decided_at or 0.0)),
)
"""The columns that every medium has, in their order."""


# Made once, before there are threads: msgspec completes a type when it first decodes one, and two threads of `top` that
# do so at once crash it.
_DECODER = msgspec.json.Decoder(_Document)


def read(document: str) -> tuple[PodRow, ...]:
    """The rows of what an agent serves at /pods. KoordliteError when it is something else."""
    try:
        return _DECODER.decode(document).pods
    except UNREADABLE as error:
        raise KoordliteError(f"the agent serves no pods as this version does: {error}") from error


def ordered(rows: Iterable[PodRow], key: str, *, backwards: bool = False) -> tuple[PodRow, ...]:
    """Rows by a column: numbers from the largest, words from A; KeyError when there is no such column."""
    column = next((column for column in COLUMNS if column.key == key), None)
    if column is None:
        raise KeyError(key)
    named = sorted(rows, key=lambda row: row.name)
    return tuple(sorted(named, key=column.order, reverse=column.is_number != backwards))


def matching(rows: Iterable[PodRow], words: str) -> tuple[PodRow, ...]:
    """Rows that have every word in one of their columns, whatever the case."""
    terms = words.lower().split()
    return tuple(
        row for row in rows if all(any(word in column.show(row).lower() for column in COLUMNS) for word in terms)
    )
