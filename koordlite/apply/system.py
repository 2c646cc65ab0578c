"""Settings of the whole kernel and oom_score_adj: what was found before us, the write, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeGuard

from koordlite.changes.oom_score import OOMScoreChange, OOMScoreFound
from koordlite.changes.system_file import SystemFileChange
from koordlite.formulas.system_settings import FEATURES
from koordlite.host import procfs, system_files
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import Entry, FileEntry
from koordlite.model.picture.groups import Found
from koordlite.model.place import Place

GROUP = "system"
"""What stands in place of a cgroup in the journal's entries for settings."""

Change = SystemFileChange | OOMScoreChange


def entries(host: Host, change: Change, strategy: str) -> Iterator[Entry]:
    """What stands where `change` is about to write for the first time."""
    if isinstance(change, OOMScoreChange):
        present = system_files.oom_score_adj(host.files, change.pid)
        # A process with an old one's number is not the one that was judged.
        if present is not None and procfs.start_time(host.files, change.pid) == change.start_time:
            yield OOMScoreFound(pid=change.pid, start_time=change.start_time, value=present, strategy=strategy)
        return
    text = system_files.read(host.files, change.name)
    if text is not None:
        if not change.name.startswith(f"{FEATURES}/"):
            int(text)  # ValueError: later, what is not a number would look like a value of ours.
        yield FileEntry.of(
            path=system_files.path(host.files, change.name),
            group=GROUP,
            field=change.name,
            raw=text.encode(),
            found_at=host.clock.wall(),
            strategy=strategy,
        )


def write(host: Host, change: Change) -> bool:
    """Carry out one change; False when the process is gone."""
    if isinstance(change, OOMScoreChange):
        return system_files.write_oom_score_adj(host.files, change.pid, change.start_time, change.value)
    system_files.write(host.files, change.name, change.value)
    return True


def is_ours(entry: Entry) -> TypeGuard[FileEntry | OOMScoreFound]:
    """Whether the entry is of a setting of the whole kernel or of an oom_score_adj."""
    return isinstance(entry, OOMScoreFound) or (isinstance(entry, FileEntry) and entry.group == GROUP)


def found_values(kept: Iterable[Entry]) -> Iterator[tuple[Place, Found]]:
    """What was found, by place; of a feature of the scheduler 1 for on, 0 for off."""
    for entry in kept:
        if isinstance(entry, OOMScoreFound):
            yield entry.place, Found(entry.value, entry.strategy)
        elif isinstance(entry, FileEntry) and entry.group == GROUP:
            feature = entry.field.startswith(f"{FEATURES}/")
            value = int(not entry.text.startswith("NO_")) if feature else int(entry.text)
            yield entry.place, Found(value, entry.strategy)


def undo(entry: FileEntry | OOMScoreFound) -> Change:
    """The change that puts back what the entry holds."""
    if isinstance(entry, OOMScoreFound):
        return OOMScoreChange(entry.pid, entry.start_time, entry.value)
    return SystemFileChange(entry.field, entry.text)


def present(host: Host, entry: FileEntry | OOMScoreFound) -> str | None:
    """What stands there at this moment; None when it is gone."""
    if isinstance(entry, OOMScoreFound):
        score = system_files.oom_score_adj(host.files, entry.pid)
        return None if score is None else str(score)
    return system_files.read(host.files, entry.field)
