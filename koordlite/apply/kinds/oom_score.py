"""The oom_score_adj of a process."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply import writer
from koordlite.apply.kind import Kind, Work
from koordlite.changes.oom_score import PLACE, OOMScoreChange, OOMScoreFound
from koordlite.host import procfs, system_files
from koordlite.host.bundle import Host
from koordlite.model.picture.groups import Found
from koordlite.model.snapshot import Snapshot


class OOMScore(Kind[OOMScoreChange, OOMScoreFound]):
    """A process with an old one's number is not the one that was judged."""

    change = OOMScoreChange
    places = (PLACE,)

    def found(self, change: OOMScoreChange, strategy: str, work: Work) -> Iterator[OOMScoreFound]:
        """The number of the process that was judged, while it lives."""
        files = work.host.files
        present = None if change.place in work.noted else system_files.oom_score_adj(files, change.pid)
        if present is not None and procfs.start_time(files, change.pid) == change.start_time:
            yield OOMScoreFound(pid=change.pid, start_time=change.start_time, value=present, strategy=strategy)

    def set(self, host: Host, change: OOMScoreChange) -> str:
        """The number."""
        alive = system_files.write_oom_score_adj(host.files, change.pid, change.start_time, change.value)
        return change.describe() if alive else writer.GONE

    def value_before(self, entry: OOMScoreFound, host: Host) -> Found | None:
        """The number."""
        return Found(entry.value, entry.strategy)

    def has_ended(self, entry: OOMScoreFound, host: Host, seen: Snapshot) -> bool:
        """With its process."""
        return procfs.start_time(host.files, entry.pid) != entry.start_time

    def present(self, entry: OOMScoreFound, host: Host) -> str | None:
        """The number."""
        score = system_files.oom_score_adj(host.files, entry.pid)
        return None if score is None else str(score)


KIND = OOMScore()
