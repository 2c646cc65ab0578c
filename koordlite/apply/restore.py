"""Put back what was found: the undo journal read backwards, every state on the way as legal as on the way there."""

from __future__ import annotations

import dataclasses
import errno
import logging
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import cast

from koordlite import plan
from koordlite.apply import block, inherited, promises, resctrl_undo, system, writer
from koordlite.apply.exclusive import ExclusiveCPUs
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.oom_score import OOMScoreFound
from koordlite.changes.resctrl_group import GroupMade
from koordlite.changes.resctrl_mount import MountMade
from koordlite.changes.resctrl_tasks import TasksMoved
from koordlite.host import sysfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups.fields import NUMBERS
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import Entry, FileEntry, Journal
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import KoordliteError
from koordlite.model.picture.groups import Cgroup
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.status.outcome import AppliedStep
from koordlite.ports import Cluster

LOG = logging.getLogger(__name__)
_RESCTRL = resctrl_undo.PREFIX


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
    entries = [entry for entry in journal.entries if not _stays(entry, staying)]
    held = ExclusiveCPUs.of(host, _given_away(cluster) if exclusive is None else exclusive)
    promised = [e for e in entries if isinstance(e, promises.ClusterEntry)]
    steps = [
        *_cgroups(host, [e for e in entries if isinstance(e, FileEntry) and not _elsewhere(e)], held),
        *(writer.write(host, block.undo(e)) for e in entries if block.is_ours(e)),
        *(writer.write(host, system.undo(e)) for e in entries if system.is_ours(e)),
        *resctrl_undo.undo(host, entries, writer.words),
        *(promises.take_back(cluster, promised) if cluster else ()),
    ]
    refused = {step.place for step in steps if not step.ok}
    journal.forget({step.place for step in steps} - refused)
    return tuple(steps)


def log(occasion: str, steps: Sequence[AppliedStep]) -> None:
    """How many places were restored, and each that was not."""
    refused = [step for step in steps if not step.ok]
    if steps:
        LOG.info("%s: %d places restored, %d refused", occasion, len(steps) - len(refused), len(refused))
    for step in refused:
        LOG.error("could not restore %s to %s: %s", step.place, step.value, step.error)


def _stays(entry: Entry, staying: Collection[str]) -> bool:
    match entry:
        case GroupMade() | TasksMoved() | MountMade():
            return "resctrl" in staying
        case FileEntry(strategy=""):
            # A set that was copied from one of ours when its group was made.
            return not {"cpuSuppress", "cpusetPools"}.isdisjoint(staying)
        case _:
            return entry.strategy in staying


def _given_away(cluster: Cluster | None) -> Sequence[PodCPUs]:
    try:
        return cluster.view().kubelet.pod_cpus if cluster else ()
    except (OSError, KoordliteError) as error:
        LOG.warning("which CPUs kubelet has given away is not known, sets are put back as they were found: %s", error)
        return ()


def _elsewhere(entry: FileEntry) -> bool:
    """Whether it is no number or set of a cgroup."""
    return resctrl_undo.is_ours(entry) or system.is_ours(entry) or block.is_ours(entry)


def undo_list(host: Host, entries: Sequence[Entry], exclusive: Sequence[PodCPUs] = ()) -> list[tuple[str, str, str]]:
    """(place, present value, value to put back) of each entry, for `restore --dry-run`."""
    held = ExclusiveCPUs.of(host, exclusive)
    cgroups = [entry for entry in entries if isinstance(entry, FileEntry) and not _elsewhere(entry)]
    present, _ = _states(host, cgroups)
    less = {change.place: str(change.value) for change in _less_than_found(host, cgroups, present, held)}
    return [(str(entry.place), _present(host, entry), less.get(entry.place) or _found(entry)) for entry in entries]


def _present(host: Host, entry: Entry) -> str:
    try:
        if system.is_ours(entry) or block.is_ours(entry):
            found = block.present(host, entry) if block.is_ours(entry) else system.present(host, entry)
            return found or writer.GONE
        match entry:
            case FileEntry(group=group) if group.startswith(_RESCTRL):
                return host.resctrl.schemata_raw(group.removeprefix(_RESCTRL), entry.field).decode().strip()
            case FileEntry(group=group, field=field):
                return host.cgroups.read_raw(group, field).decode().strip()
            case TasksMoved(tid=tid):
                return host.resctrl.group_of(tid) or "root group"
    except OSError:
        return writer.GONE
    return "ours"


def _found(entry: Entry) -> str:
    match entry:
        case FileEntry(text=text):
            return text.strip() or "(empty)"
        case OOMScoreFound(value=value):
            return str(value)
        case GroupMade() | MountMade():
            return "(unmounted)" if isinstance(entry, MountMade) else "(removed)"
        case TasksMoved(group=group):
            return group or "root group"
        case _ if isinstance(entry, promises.ClusterEntry):
            return promises.describe(entry)
        case _:
            raise TypeError(f"{entry.place} has no value to put back")


def _cgroups(host: Host, entries: Sequence[FileEntry], held: ExclusiveCPUs) -> list[AppliedStep]:
    """Values back in legal order. The last write of each file is of the very bytes that were found, unless kubelet has
    given away CPUs of them."""
    present, unread = _states(host, entries)
    found = {entry.place: entry for entry in entries}
    less = {change.place: change for change in _less_than_found(host, entries, present, held)}
    wanted, sets = list[CgroupChange](), dict[str, FileEntry]()
    for entry in (e for e in entries if e.group in present):
        try:
            wanted.append(less.get(entry.place) or _change(host, entry))
        except ValueError as error:
            unread[entry.group] = writer.words(error)
            continue
        if entry.field == inherited.FIELD:
            sets[entry.group] = entry
    for change, state in inherited.copies(host, sets, dict(present)):
        value = held.put_back(change.group, cast(CPUSet, change.value), state.cpuset)
        wanted.append(dataclasses.replace(change, value=value))
        present[change.group] = state
    steps = plan.order(wanted, present)
    final = {change.place: change for change in steps}
    done = [
        _final(host, found[c.place])
        if final[c.place] is c and c.place in found and c.place not in less
        else writer.write(host, c)
        for c in steps
        if isinstance(c, CgroupChange)
    ]
    return [*done, *(_untouched(e, present, unread) for place, e in found.items() if place not in final)]


def _less_than_found(
    host: Host, entries: Iterable[FileEntry], present: Mapping[str, Cgroup], held: ExclusiveCPUs
) -> Iterator[CgroupChange]:
    """Sets of containers that do not come back whole: kubelet has given some of their CPUs to others alone."""
    for entry in entries:
        if entry.field != inherited.FIELD or entry.group not in present:
            continue
        try:
            found = cast(CPUSet, host.cgroups.decode(inherited.FIELD, entry.raw))
        except ValueError:
            continue  # Reported where it is to be put back.
        value = held.put_back(entry.group, found, present[entry.group].cpuset)
        if value != found:
            yield CgroupChange(entry.group, inherited.FIELD, value)


def _untouched(entry: FileEntry, present: Container[str], unread: Mapping[str, str]) -> AppliedStep:
    """The step of an entry that asked for no write."""
    if entry.group in unread:
        return AppliedStep(entry.place, _found(entry), False, unread[entry.group])
    return AppliedStep(entry.place, "already so" if entry.group in present else writer.GONE)


def _change(host: Host, entry: FileEntry) -> CgroupChange:
    field = cast(CgroupField, entry.field)
    return CgroupChange(entry.group, field, host.cgroups.decode(field, entry.raw))


def _final(host: Host, entry: FileEntry) -> AppliedStep:
    if entry.field == "cpu.shares" and entry.raw.strip() == b"0":
        # v2 prints weight 0 for an idle group, and takes none: idle again, it has the same share.
        return AppliedStep(entry.place, "idle as it was found")
    try:
        host.cgroups.write_raw(entry.group, entry.field, entry.raw.rstrip(b"\n") or b"\n")
    except OSError as error:
        if error.errno == errno.ENOSPC and not entry.raw.strip():
            return _inherit(host, entry)
        if vanished(error):
            return AppliedStep(entry.place, writer.GONE)
        return AppliedStep(entry.place, _found(entry), False, writer.words(error))
    return AppliedStep(entry.place, _found(entry))


def _inherit(host: Host, entry: FileEntry) -> AppliedStep:
    """No kernel takes an empty set back while there are tasks in a group; all possible CPUs give it the same CPUs,
    those of its parent, also when some go offline or come back."""
    everything = sysfs.possible(host.files)
    step = writer.write(host, CgroupChange(entry.group, "cpuset.cpus", everything))
    return dataclasses.replace(step, value=f"{everything} (inherits; the kernel takes no empty set here)")


def _states(host: Host, entries: Iterable[FileEntry]) -> tuple[dict[str, Cgroup], dict[str, str]]:
    """Present values of the groups that are still there: of their sets, quotas and whatever is to come back; and the
    kernel's words about groups that cannot be read, which must not keep the others from being put back."""
    fields: dict[str, list[str]] = {}
    for entry in entries:
        fields.setdefault(entry.group, []).append(entry.field)
    present, unread = dict[str, Cgroup](), dict[str, str]()
    for group, named in fields.items():
        try:
            present[group] = host.cgroups.state(group, NUMBERS.keys() & set(named))
        except (OSError, ValueError) as error:
            if not isinstance(error, OSError) or not vanished(error):
                unread[group] = writer.words(error)
    return present, unread
