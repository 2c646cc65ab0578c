"""Put back what was found: the undo journal read backwards, every state on the way as legal as on the way there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Sequence

from koordlite.apply import kinds
from koordlite.apply.inherited import ExclusiveCPUs
from koordlite.apply.kind import GONE, Undoing
from koordlite.apply.kinds import AnyKind
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import Journal
from koordlite.model import isolation
from koordlite.model.change import Entry
from koordlite.model.errors import KoordliteError
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.place import Place
from koordlite.model.status import AppliedStep
from koordlite.ports import Cluster

LOG = logging.getLogger(__name__)


def restore(
    host: Host,
    journal: Journal,
    cluster: Cluster | None = None,
    *,
    staying: Collection[str] = (),
    exclusive: Sequence[PodCPUs] | None = None,
) -> tuple[AppliedStep, ...]:
    """Undo every entry and forget those that were undone; what is refused stays in the journal for the next try.

    Without `cluster` only the kernel's files are restored. What the strategies `staying` have changed is not undone:
    this run goes on with it. No container gets back a CPU that kubelet has given to another pod alone: `exclusive`, by
    default as the view of `cluster` says.
    """
    back = Undoing(host, cluster, ExclusiveCPUs.of(host, _exclusive_cpus(cluster) if exclusive is None else exclusive))
    entries = [entry for entry in journal.entries if set(staying).isdisjoint(kinds.of_entry(entry).owners(entry))]
    steps = [step for kind, alike in kinds.families(entries) for step in _undone(kind, alike, back)]
    refused = {step.place for step in steps if not step.ok}
    journal.forget({step.place for step in steps} - refused)
    return tuple(steps)


def _undone(kind: AnyKind, entries: Sequence[Entry], back: Undoing) -> Iterable[AppliedStep]:
    """Undo the entries of a kind in one go; where one of them brings out a fault, each alone.

    Alone they come in no legal order: what the kernel refuses is tried again, as long as others come back meanwhile.
    """
    try:
        return tuple(kind.undo(entries, back))
    except Exception:
        LOG.exception("undoing %d places together failed: each is tried alone", len(entries))
    done: list[AppliedStep] = []
    remaining = list(entries)
    while remaining:
        tried = [
            *isolation.each(
                remaining,
                lambda entry: tuple(kind.undo((entry,), back)),
                lambda entry, why: (AppliedStep(entry.place, entry.describe(), ok=False, error=why),),
            )
        ]
        good = [all(step.ok for step in steps) for steps in tried]
        if not any(good):
            return (*done, *(step for steps in tried for step in steps))
        done += [step for steps, fine in zip(tried, good, strict=True) if fine for step in steps]
        remaining = [entry for entry, fine in zip(remaining, good, strict=True) if not fine]
    return done


def log(occasion: str, steps: Sequence[AppliedStep]) -> None:
    """Number of places that were restored, and each that was not."""
    refused = [step for step in steps if not step.ok]
    if steps:
        LOG.info("%s: %d places restored, %d refused", occasion, len(steps) - len(refused), len(refused))
    for step in refused:
        LOG.error("could not restore %s to %s: %s", step.place, step.value, step.error)


def _exclusive_cpus(cluster: Cluster | None) -> Sequence[PodCPUs]:
    try:
        return cluster.view().kubelet.pod_cpus if cluster else ()
    except (OSError, KoordliteError) as error:
        LOG.warning("which CPUs kubelet has given away is not known, sets are put back as they were found: %s", error)
        return ()


def undo_list(host: Host, entries: Sequence[Entry], exclusive: Sequence[PodCPUs] = ()) -> list[tuple[str, str, str]]:
    """(place, present value, value to put back) of each entry, for `restore --dry-run`."""
    back = Undoing(host, None, ExclusiveCPUs.of(host, exclusive))
    values: dict[Place, str] = {}
    for kind, alike in kinds.by_entry(entries).items():
        values |= kind.to_put_back(alike, back)
    rows = []
    for entry in entries:
        present = None
        with contextlib.suppress(OSError):
            present = kinds.of_entry(entry).present(entry, host)
        rows.append((str(entry.place), present or GONE, values[entry.place]))
    return rows
