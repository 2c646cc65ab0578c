"""Settings of the whole kernel, the CPUs of interrupts, and the oom_score_adj of one process: what has an old one's
number is not what was judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from koordlite.apply.kind import GONE, Kind, Undoing, Work
from koordlite.changes.system import (
    OOM_SCORE_AT_CREATION,
    IRQChange,
    IRQEntry,
    OOMScoreAtCreation,
    OOMScoreChange,
    OOMScoreEntry,
    SystemFileChange,
)
from koordlite.formulas.system_settings import FEATURES
from koordlite.host import irqs, procfs, system_files
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import FileEntry
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Original
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep

_GROUP = "system"
"""Stand-in for a cgroup in the entries."""


class SystemFile(Kind[SystemFileChange, FileEntry]):
    """Numbers, and features of the scheduler, which are words."""

    change = SystemFileChange

    def originals(self, change: SystemFileChange, strategy: str, work: Work) -> Iterator[FileEntry]:
        """The text; nothing where this kernel has no such setting."""
        host = work.host
        text = None if change.place in work.noted else system_files.read(host.files, change.name)
        if text is None:
            return
        if not _is_feature(change.name):
            int(text)  # ValueError: later, what is not a number would look like a value of ours.
        yield FileEntry.of(
            path=system_files.path(host.files, change.name),
            group=_GROUP,
            field=change.name,
            raw=text.encode(),
            found_at=host.clock.wall(),
            strategy=strategy,
        )

    def set(self, host: Host, change: SystemFileChange) -> None:
        """The text."""
        system_files.write(host.files, change.name, change.value)

    def value_before(self, entry: FileEntry, host: Host) -> Original | None:
        """State of a feature of the scheduler: 1 for on, 0 for off."""
        value = int(not entry.text.startswith("NO_")) if _is_feature(entry.field) else int(entry.text)
        return Original(value, entry.strategy)

    def _put_back(self, entry: FileEntry, host: Host) -> AppliedStep:
        return self.put(host, SystemFileChange(entry.field, entry.text))

    def present(self, entry: FileEntry, host: Host) -> str | None:
        """The text."""
        return system_files.read(host.files, entry.field)


def _is_feature(name: str) -> bool:
    return name.startswith(f"{FEATURES}/")


class OOMScore(Kind[OOMScoreChange, OOMScoreEntry | OOMScoreAtCreation]):
    """A process with an old one's number is not the one that was judged.

    The entry of a container that was created with our number becomes one for each of its processes in the first round
    that writes them."""

    change = OOMScoreChange
    entry_places = (OOM_SCORE_AT_CREATION,)

    def originals(self, change: OOMScoreChange, strategy: str, work: Work) -> Iterator[OOMScoreEntry]:
        """The number of the process that was judged, while it lives."""
        files = work.host.files
        present = None if change.place in work.noted else system_files.oom_score_adj(files, change.pid)
        if present is None or procfs.start_time(files, change.pid) != change.start_time:
            return
        group = next((g for g, those in work.snapshot.oom_scores.items() if change.pid in (p.pid for p in those)), "")
        created = work.noted.get(OOM_SCORE_AT_CREATION.place(group))
        if isinstance(created, OOMScoreAtCreation) and present == created.ours:
            present = created.value
        yield OOMScoreEntry(pid=change.pid, start_time=change.start_time, value=present, strategy=strategy)

    def carry_out(self, changes: Sequence[OOMScoreChange], work: Work) -> Iterator[AppliedStep]:
        """Besides, forget containers whose processes have entries of their own now."""
        yield from super().carry_out(changes, work)
        pids = {change.pid for change in changes}
        work.journal.forget(
            OOM_SCORE_AT_CREATION.place(group)
            for group, processes in work.snapshot.oom_scores.items()
            if processes and pids.issuperset(each.pid for each in processes)
        )

    def set(self, host: Host, change: OOMScoreChange) -> str | None:
        """The number."""
        alive = system_files.write_oom_score_adj(host.files, change.pid, change.start_time, change.value)
        return None if alive else GONE

    def value_before(self, entry: OOMScoreEntry | OOMScoreAtCreation, host: Host) -> Original | None:
        """The number."""
        return Original(entry.value, entry.strategy)

    def has_ended(self, entry: OOMScoreEntry | OOMScoreAtCreation, host: Host, snapshot: Snapshot) -> bool:
        """Ended with its process, or its container."""
        if isinstance(entry, OOMScoreAtCreation):
            return not host.cgroups.exists(entry.group)
        return procfs.start_time(host.files, entry.pid) != entry.start_time

    def undo(self, entries: Sequence[OOMScoreEntry | OOMScoreAtCreation], back: Undoing) -> Iterable[AppliedStep]:
        """Give processes back their numbers; of an entry about a container, those that have the number it was created
        with."""
        host = back.host
        for entry in entries:
            if isinstance(entry, OOMScoreEntry):
                yield self.put(host, entry.undoing())
                continue
            processes = system_files.oom_scores(host.files, host.cgroups, entry.group)
            steps = [
                self.put(host, OOMScoreChange(each.pid, each.start_time, entry.value))
                for each in processes
                if each.oom_score_adj == entry.ours
            ]
            refused = next((step for step in steps if not step.ok), None)
            yield AppliedStep(entry.place, entry.describe(), refused is None, refused.error if refused else "")

    def present(self, entry: OOMScoreEntry | OOMScoreAtCreation, host: Host) -> str | None:
        """The number; of a container, those of its processes."""
        if isinstance(entry, OOMScoreAtCreation):
            processes = system_files.oom_scores(host.files, host.cgroups, entry.group)
            return ", ".join(dict.fromkeys(str(each.oom_score_adj) for each in processes)) or None
        score = system_files.oom_score_adj(host.files, entry.pid)
        return None if score is None else str(score)


class IRQAffinity(Kind[IRQChange, IRQEntry]):
    """An interrupt, or the default of new ones."""

    change = IRQChange

    def stands(self, change: IRQChange, work: Work) -> bool:
        """Read it again: the picture may be some seconds old."""
        present = irqs.read(work.host.files, change.number)
        return present is not None and (present.device, present.cpus) == (change.device, change.value)

    def originals(self, change: IRQChange, strategy: str, work: Work) -> Iterator[IRQEntry]:
        """The CPUs, while it is the interrupt that was judged."""
        present = None if change.place in work.noted else irqs.read(work.host.files, change.number)
        if present is not None and present.device == change.device:
            yield IRQEntry(number=change.number, device=present.device, cpus=str(present.cpus), strategy=strategy)

    def is_gone(self, host: Host, change: IRQChange, error: OSError) -> bool:
        """Gone or ended with its device."""
        return vanished(error)

    def set(self, host: Host, change: IRQChange) -> str | None:
        """The CPUs."""
        present = irqs.read(host.files, change.number)
        if present is None or present.device != change.device:
            return GONE
        # Putting back what was never moved is no write: the kernel would refuse it as it refused the move.
        if present.cpus != change.value:
            irqs.write(host.files, change.number, change.value)
        return None

    def value_before(self, entry: IRQEntry, host: Host) -> Original | None:
        """The CPUs."""
        return Original(CPUSet.parse(entry.cpus), entry.strategy)

    def has_ended(self, entry: IRQEntry, host: Host, snapshot: Snapshot) -> bool:
        """Gone or ended with its device."""
        present = irqs.read(host.files, entry.number)
        return present is None or present.device != entry.device

    def present(self, entry: IRQEntry, host: Host) -> str | None:
        """The CPUs."""
        irq = irqs.read(host.files, entry.number)
        return None if irq is None or irq.device != entry.device else str(irq.cpus)


SYSTEM_FILE, PROCESS, INTERRUPT = SystemFile(), OOMScore(), IRQAffinity()
