"""Verdicts by shape of pod: asked again only about nodes that have changed since.

A board is brought up to date by the names of the nodes that changed. So a question costs those, and one look-up for
each node it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koordlite.fault_guard import SubjectFaults
from koordlite.reservation.pods import PodShape
from koordlite.scheduler.judgement import judge
from koordlite.scheduler.judgement.nodes import Row
from koordlite.scheduler.judgement.settings import Settings

MOST_ENTRIES = 300_000
"""Verdicts that are kept in all: at 5,000 nodes those of 60 shapes."""


class Board:
    """Verdicts about pods of one shape, by name of the node."""

    def __init__(self, shape: PodShape, settings: Settings, faults: SubjectFaults) -> None:
        self._shape, self._settings, self._faults = shape, settings, faults
        self.refused: dict[str, str] = {}
        """Why not, by node; a node that is unknown is not refused: nobody says no."""
        self._totals: dict[str, int] = {}
        self.version = -1
        """Up to which change of the cluster it is up to date; -1: it has not judged any node."""

    def judge(self, rows: Iterable[Row | None]) -> None:
        """Judge these nodes."""
        shape, settings, refused, totals, ask = (
            self._shape,
            self._settings,
            self.refused,
            self._totals,
            judge.refusal,
        )
        for row in rows:
            if row is None:
                continue
            try:
                refusal = ask(shape, row, settings)
            except Exception as error:  # noqa: BLE001 - one node's fault costs that node
                refusal = self._faults.note(row.name, error)
            if refusal:
                refused[row.name] = refusal
            else:
                refused.pop(row.name, None)
            totals.pop(row.name, None)

    def forget(self, name: str) -> None:
        """The node is gone."""
        self.refused.pop(name, None)
        self._totals.pop(name, None)

    def unscored(self, names: Sequence[str]) -> list[str]:
        """Nodes that were not asked about before."""
        return [name for name in names if name not in self._totals]

    def scores(self, names: Sequence[str], unscored: Iterable[tuple[str, Row | None]]) -> list[int]:
        """0 to 100 for each node; 0 for one that is unknown. `unscored` has the rows of those that have none yet."""
        totals, shape, settings, points = self._totals, self._shape, self._settings, judge.points
        for name, row in unscored:
            try:
                totals[name] = points(shape, row, settings) if row is not None else 0
            except Exception as error:  # noqa: BLE001 - one node's fault costs that node
                self._faults.note(name, error)
                totals[name] = 0
        return [totals[name] for name in names]


class Boards:
    """One board for each shape; those not asked for longest are forgotten."""

    def __init__(self, settings: Settings, faults: SubjectFaults) -> None:
        self.settings, self._faults = settings, faults
        """What every verdict of these boards was judged by."""
        self._boards: dict[PodShape, Board] = {}

    def of(self, shape: PodShape, places: int) -> Board:
        """The board of a shape, in a cluster of so many nodes."""
        board = self._boards.pop(shape, None) or Board(shape, self.settings, self._faults)
        self._boards[shape] = board
        while len(self._boards) > max(8, MOST_ENTRIES // max(1, places)):
            del self._boards[next(iter(self._boards))]
        return board

    def is_behind(self, shape: PodShape, now: int) -> bool:
        """Tell whether a question about this shape would have to judge nodes, at this change of the cluster."""
        board = self._boards.get(shape)
        return board is None or board.version < now

    def __len__(self) -> int:
        return len(self._boards)
