"""Pauses of the agent: the file of `koordlite pause`, the Node's annotation, and when they end.

The file is one in the state folder, replaced as a whole. It outlives the agent, so that a restart stays paused; on
tmpfs it dies with the boot, as what is in force does.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from koordlite.host import state_folder
from koordlite.model.errors import UNREADABLE, InputError, Problem, noting
from koordlite.model.status import PAUSE_ANNOTATION, Pause, PauseSource, combined_pause

NAME = "pause.json"
_ACKNOWLEDGED = "pause-heard.json"
"""The pause that the agent has read last, as it wrote it down: commands wait for it."""
_ADVICE = 'write {"until": "2026-01-31T18:00:00Z", "because": "…", "inForce": "keep"}'
_KEPT = "what held before stays"


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The form of the file, and of the annotation."""

    until: datetime.datetime
    because: str = ""
    in_force: str = msgspec.field(default="keep", name="inForce")


def parse(text: str | bytes, *, owner: str, field: str, by: PauseSource) -> Pause:
    """The pause that `text` writes; InputError names `owner` and `field`."""

    def wrong(why: str) -> InputError:
        content = text if isinstance(text, str) else text.decode(errors="replace")
        return InputError(Problem(owner, field, content, why, f"{_ADVICE}; {_KEPT}"))

    try:
        written = msgspec.json.decode(text, type=_Written)
    except UNREADABLE as error:
        raise wrong(str(error)) from error
    if written.until.tzinfo is None:
        raise wrong("the time has no zone: end it with Z or an offset")
    if written.in_force not in ("keep", "release"):
        raise wrong(f"inForce is {written.in_force!r}, and not keep or release")
    if not written.because.strip():
        raise wrong("it does not say because of what")
    release = written.in_force == "release"
    return Pause(until=written.until.timestamp(), because=written.because.strip(), release=release, by=by)


def encode(pause: Pause) -> str:
    """The text that `parse` reads, to the second."""
    until = datetime.datetime.fromtimestamp(round(pause.until), tz=datetime.UTC)
    in_force = "release" if pause.release else "keep"
    return msgspec.json.encode(_Written(until=until, because=pause.because, in_force=in_force)).decode()


def read(folder: Path) -> Pause | None:
    """The pause asked for in the state folder; None when there is none. InputError when the file cannot be read."""
    path = folder / NAME
    try:
        raw = state_folder.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(Problem(str(path), "file", "", why, f"make it readable, or remove it; {_KEPT}")) from error
    return parse(raw, owner=str(path), field="content", by="command")


def write(folder: Path, pause: Pause) -> None:
    """Ask for a pause; an earlier one is replaced. OSError when the folder cannot be written."""
    state_folder.make(folder)
    state_folder.replace(folder / NAME, f"{encode(pause)}\n".encode())


def acknowledge(folder: Path, pause: Pause | None) -> None:
    """Note that the agent has read this pause, or that there is none. OSError when the folder cannot be written."""
    if pause is None:
        (folder / _ACKNOWLEDGED).unlink(missing_ok=True)
    else:
        state_folder.replace(folder / _ACKNOWLEDGED, encode(pause).encode())


def acknowledged(folder: Path) -> str | None:
    """The pause that the agent has read, as `encode` writes it; None when it has seen none."""
    try:
        return state_folder.read(folder / _ACKNOWLEDGED).decode(errors="replace")
    except OSError:
        return None


def remove(folder: Path) -> bool:
    """Take the pause back; False when there was none."""
    try:
        os.unlink(folder / NAME)
    except FileNotFoundError:
        return False
    return True


class Pauses:
    """Reads requests to pause, each tick. What cannot be read is reported as a problem, and the last good pause lasts
    until it ends."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is the state folder; without one only the annotation counts."""
        self._folder = folder
        self._command: Pause | None = None
        self._annotation: Pause | None = None
        self._unacknowledged = folder is not None
        self.problems: tuple[Problem, ...] = ()
        """Mistakes of the last reading."""

    def read(self, annotations: Mapping[str, str] | None, *, owner: str, wall: float) -> Pause | None:
        """The pause that holds at `wall`. `owner` is the Node, for messages; None: it is not known at present."""
        problems: list[Problem] = []
        before = self._command
        with noting(problems):
            self._command = read(self._folder) if self._folder else None
        if self._folder and (self._unacknowledged or self._command != before):
            try:
                acknowledge(self._folder, self._command)
                self._unacknowledged = False
            except OSError:
                # Without room on the disk `koordlite pause` says that nobody has confirmed it.
                self._unacknowledged = True
        with noting(problems):
            if annotations is not None:
                text = annotations.get(PAUSE_ANNOTATION)
                self._annotation = (
                    None if text is None else parse(text, owner=owner, field=PAUSE_ANNOTATION, by="annotation")
                )
        self.problems = tuple(problems)
        return combined_pause(*(each for each in (self._command, self._annotation) if each and each.holds(wall)))
