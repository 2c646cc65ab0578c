"""Pauses of the agent: the file of `koordlite pause` and the Node's annotation, and when they end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from koordlite.host import pause_file
from koordlite.model.errors import InputError, Problem
from koordlite.model.status import PAUSE_ANNOTATION, Pause, combined_pause


class Pauses:
    """Reads requests to pause, each tick. What cannot be read is reported as a problem, and the last good pause lasts
    until it ends."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is the state folder; without one only the annotation counts."""
        self._folder = folder
        self._command: Pause | None = None
        self._annotation: Pause | None = None
        self._unheard = folder is not None
        self.problems: tuple[Problem, ...] = ()
        """What was wrong at the last reading."""

    def read(self, annotations: Mapping[str, str] | None, *, owner: str, wall: float) -> Pause | None:
        """The pause that holds at `wall`. `owner` is the Node, for messages; None: it is not known at present."""
        problems: list[Problem] = []
        before = self._command
        try:
            self._command = pause_file.read(self._folder) if self._folder else None
        except InputError as error:
            problems += error.problems
        if self._folder and (self._unheard or self._command != before):
            try:
                pause_file.acknowledge(self._folder, self._command)
                self._unheard = False
            except OSError:
                self._unheard = True  # Without room on the disk `koordlite pause` says that nobody has confirmed it.
        try:
            self._annotation = self._annotation if annotations is None else _annotated(annotations, owner)
        except InputError as error:
            problems += error.problems
        self.problems = tuple(problems)
        return combined_pause(*(each for each in (self._command, self._annotation) if each and each.holds(wall)))


def _annotated(annotations: Mapping[str, str], owner: str) -> Pause | None:
    text = annotations.get(PAUSE_ANNOTATION)
    return None if text is None else pause_file.parse(text, owner=owner, field=PAUSE_ANNOTATION, by="annotation")
