"""CPUs of interrupts: an interrupt with an old one's number is not the one that was judged."""

from __future__ import annotations

from collections.abc import Iterator

from koordlite.apply import writer
from koordlite.apply.kind import Kind, Work
from koordlite.changes.irq import IRQChange, IRQFound
from koordlite.host import irqs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import vanished
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Found
from koordlite.model.snapshot import Snapshot


class IRQAffinity(Kind[IRQChange, IRQFound]):
    """One interrupt, or the default of new ones."""

    change = IRQChange

    def stands(self, change: IRQChange, work: Work) -> bool:
        """Read it again: the picture may be some seconds old."""
        present = irqs.read(work.host.files, change.number)
        return present is not None and (present.device, present.cpus) == (change.device, change.value)

    def found(self, change: IRQChange, strategy: str, work: Work) -> Iterator[IRQFound]:
        """The CPUs, while it is the interrupt that was judged."""
        present = None if change.place in work.noted else irqs.read(work.host.files, change.number)
        if present is not None and present.device == change.device:
            yield IRQFound(number=change.number, device=present.device, cpus=str(present.cpus), strategy=strategy)

    def is_gone(self, host: Host, change: IRQChange, error: OSError) -> bool:
        """With its device."""
        return vanished(error)

    def set(self, host: Host, change: IRQChange) -> str | None:
        """The CPUs."""
        present = irqs.read(host.files, change.number)
        if present is None or present.device != change.device:
            return writer.GONE
        # Putting back what was never moved is no write: the kernel would refuse it as it refused the move.
        if present.cpus != change.value:
            irqs.write(host.files, change.number, change.value)
        return None

    def value_before(self, entry: IRQFound, host: Host) -> Found | None:
        """The CPUs."""
        return Found(CPUSet.parse(entry.cpus), entry.strategy)

    def has_ended(self, entry: IRQFound, host: Host, snapshot: Snapshot) -> bool:
        """With its device."""
        present = irqs.read(host.files, entry.number)
        return present is None or present.device != entry.device

    def present(self, entry: IRQFound, host: Host) -> str | None:
        """The CPUs."""
        found = irqs.read(host.files, entry.number)
        return None if found is None or found.device != entry.device else str(found.cpus)


KIND = IRQAffinity()
