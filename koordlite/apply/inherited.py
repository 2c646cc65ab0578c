"""Groups born below a set of ours: kubelet and runtimes copy the parent's set into a new v1 group, and it stays there.

What is found in such a group is not what would stand there without us; that is what its parent had. Nor does a set that
is put back have CPUs that kubelet has given to others alone since it was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from koordlite.changes import cgroup
from koordlite.changes.cgroup import CgroupChange
from koordlite.host import sysfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups import names
from koordlite.host.cgroups.filesystem import vanished
from koordlite.host.journal.journal import Entry, FileEntry
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.picture.groups import Cgroup, Layout
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.place import Place
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.snapshot import Snapshot

FIELD: CgroupField = "cpuset.cpus"


_KEPT = 8


class RecentSets:
    """Sets of ours that stood in a group not long ago. A group that was born meanwhile, and was not seen or could not
    be read before the next one came, still holds such a copy."""

    def __init__(self) -> None:
        self._sets: dict[str, tuple[CPUSet, ...]] = {}

    def wrote(self, change: CgroupChange) -> None:
        """The set of a group is ours."""
        if change.field == FIELD and isinstance(change.value, CPUSet):
            self._sets[change.group] = (*self._sets.get(change.group, ()), change.value)[-_KEPT:]

    def stood(self, group: str, value: CPUSet | int) -> bool:
        """Was this its set?"""
        return value in self._sets.get(group, ())

    def keep(self, places: Collection[Place]) -> None:
        """Forget groups whose set is not ours any more."""
        self._sets = {group: sets for group, sets in self._sets.items() if cgroup.PLACE.place(group, FIELD) in places}


def original(host: Host, group: str, raw: bytes, entries: Mapping[Place, Entry], recent_sets: RecentSets) -> bytes:
    """Value to note as found in `group`, where `raw` stands: if that is a copy of ours, what was noted for the nearest
    group above that has an entry.

    A pod that began a moment ago has no entry of its own, and its containers copied what it had copied.
    """
    while host.cgroups.layout.version == 1 and (parent := group.rpartition("/")[0]):
        above = host.cgroups.read_present(parent, FIELD)
        copied = above is not None and raw.strip() == above.strip()
        if above is None or not (copied or recent_sets.stood(parent, host.cgroups.decode(FIELD, raw))):
            return raw
        noted = entries.get(cgroup.PLACE.place(parent, FIELD))
        if isinstance(noted, FileEntry):
            return noted.raw
        group = parent
    return raw


def entries_of_copies(
    host: Host, moved: Collection[str], snapshot: Snapshot, entries: Mapping[Place, Entry], recent_sets: RecentSets
) -> Iterator[FileEntry]:
    """Entries for groups that copied a set of ours and keep it while a group above them, one of `moved`, goes on.

    Afterwards `lately` alone tells their set from one of their own, and not for long.
    """
    if host.cgroups.layout.version != 1:
        return
    for group in snapshot.cgroups:
        above = any(group.startswith(f"{each}/") for each in moved)
        if above and group not in moved and cgroup.PLACE.place(group, FIELD) not in entries:
            try:
                raw = host.cgroups.read_present(group, FIELD)
                before = raw if raw is None else original(host, group, raw, entries, recent_sets)
            except (OSError, ValueError):
                continue  # We write nothing there yet; before we do it is read again, and a failure then is reported.
            if before is not None and before != raw:
                path = host.cgroups.path(group, FIELD)
                yield FileEntry.of(path=path, group=group, field=FIELD, raw=before, found_at=host.clock.wall())


def copies(
    host: Host, noted: Mapping[str, FileEntry], present: Mapping[str, Cgroup]
) -> Iterator[tuple[CgroupChange, Cgroup]]:
    """Groups that no entry names but that hold a copy of a set of ours, with the value their parent gets back.

    `noted` are the entries of cpusets by group, `present` what stands in those groups.
    """
    if host.cgroups.layout.version != 1:
        return
    for group, entry in noted.items():
        if group in present:
            value = host.cgroups.decode(FIELD, entry.raw)
            for child, state in _unnoted(host, group, noted):
                if state.cpuset == present[group].cpuset:
                    yield CgroupChange(child, FIELD, value), state


def _unnoted(host: Host, group: str, noted: Mapping[str, FileEntry]) -> Iterator[tuple[str, Cgroup]]:
    """Groups below `group` down to those that have an entry of their own, or no CPUs that those below could copy."""
    waiting = [group]
    while waiting:
        above = waiting.pop()
        try:
            children = [f"{above}/{name}" for name in host.cgroups.children(above)]
        except OSError as error:
            if vanished(error):
                continue
            raise
        for child in children:
            try:
                state = None if child in noted else host.cgroups.state(child)
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and not vanished(error):
                    raise
                continue  # Gone, or not understood: then it is no copy of ours as far as anybody can tell.
            if state is not None and state.cpuset:
                yield child, state
                waiting.append(child)


class ExclusiveCPUs:
    """CPUs that kubelet's static policy has given to pods exclusively, as its checkpoint says now."""

    def __init__(self, layout: Layout, pod_cpus: Sequence[PodCPUs], online: CPUSet) -> None:
        self._layout, self._online = layout, online
        self._all = union(each.cpus for each in pod_cpus)
        own = ((each, qos) for each in pod_cpus if each.cpus for qos in KubeQoS)
        self._own = {names.pod_group(layout, each.uid, qos): each.cpus for each, qos in own}

    @classmethod
    def of(cls, host: Host, pod_cpus: Sequence[PodCPUs]) -> ExclusiveCPUs:
        """Read them on this machine; nothing is read where kubelet has given nothing away."""
        return cls(host.cgroups.layout, pod_cpus, sysfs.online(host.files) if pod_cpus else EMPTY)

    def put_back(self, group: str, original: CPUSet, present: CPUSet | None) -> CPUSet:
        """The set to put back in `group`, where `found` stood before us and `present` stands now.

        Pods and QoS groups get what was found: kubelet leaves them whole too, and on cgroup v1 a new container starts
        only within them. So do groups outside kubelet's tree. An empty set of v2 stands for all online CPUs.
        """
        tops = (self._layout.besteffort, self._layout.burstable, self._layout.kubepods)
        top = next((each for each in tops if group.startswith(f"{each}/")), None)
        pod, _, container = group.removeprefix(f"{top}/").partition("/") if top else ("", "", "")
        if not container or not self._all:
            return original
        own = self._own.get(f"{top}/{pod}")
        if own and original and original <= own:
            return original
        if own and present and present <= own:
            return present  # Kubelet gave it to this container after we had found something else.
        return (original or self._online) - self._all or self._online - self._all or original
