"""Cgroups of pods and containers, and their present values.

Listing every folder and reading every limit of a full node each second would be most of the agent's cost. Kubelet's own
groups are looked at each tick, the others when they are fresh, when we wrote to them, when a pod names a container that
was not there, and otherwise in turns (docs/design.md, "What a tick looks at").
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from koordlite.host.bundle import Host
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.files import readable
from koordlite.model import keys
from koordlite.model.picture.groups import Cgroup, MemoryCharge, PodGroups
from koordlite.model.pod.values import Pod
from koordlite.observe.rotation import Rotation
from koordlite.ports import Files

LIMITS_SECONDS = 5.0
"""Time within which a foreign write to a limit is noticed, on a node of any size."""
FOLDERS_SECONDS = 30.0
"""Time within which a group that nobody names is noticed below a container or a known pod."""
DEPTH = 64
"""Levels below the besteffort group that are looked at. Each costs a walk along its path: with a thousand of them,
which a container that may write its own group can make, a tick would take seconds."""
AT_LEAST_LIMITS = 128
AT_LEAST_FOLDERS = 16

_Children = Mapping[str, None]
"""Groups in their order, to be found quickly: a full node has hundreds in one folder."""
_NO_CHILDREN: _Children = {}
_NONE: Mapping[str, Set[str]] = {}


class Places:
    """Looks at the groups of one node, and remembers what it saw."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._fields: tuple[str, ...] = ()
        self._supported: tuple[str, ...] = ()
        self._common: Set[str] = frozenset()
        self._fields_of: Mapping[str, Set[str]] = {}
        self._own_fields: Mapping[str, tuple[str, ...]] = {}
        self._folders = Rotation(self._list, seconds=FOLDERS_SECONDS, at_least=AT_LEAST_FOLDERS)
        self._limits = Rotation(self._state, seconds=LIMITS_SECONDS, at_least=AT_LEAST_LIMITS)
        self._by_uid: dict[str, tuple[Pod, _Children, PodGroups]] = {}
        self._pods: Sequence[Pod] | None = None
        self._recognized: dict[str, str] = {}
        self._places: Mapping[str, PodGroups] = {}
        self._groups: tuple[str, ...] = ()
        self._stands = False
        self.too_deep = ""
        """A group below which there are more than are looked at."""

    def begin(self, now: float) -> None:
        """A new reading. What was written since the last one is read again."""
        layout = self._cgroups.layout
        roots = (layout.kubepods, layout.burstable, layout.besteffort)
        self._folders.begin(now, fresh=roots)
        written = self._cgroups.take_written()
        if written and layout.version == 2:
            self._limits.clear()  # The CPUs a group may really use follow the groups above it.
        self._limits.begin(now, fresh={*roots, *written})

    def forget(self) -> None:
        """The machine itself has changed: nothing remembered holds."""
        self._limits.clear()
        self._folders.clear()

    def find(self, pods: Sequence[Pod]) -> Mapping[str, PodGroups]:
        """Place by pod uid; a pod whose group is not there (yet, or any more) has none."""
        changed = self._folders.renew()
        # What was found stands as long as neither pods nor folders changed.
        self._stands = pods is self._pods and not changed
        if not self._stands:
            self._pods = pods
            pairs = ((pod, self._place(pod)) for pod in pods)
            self._by_uid = {pod.uid: (pod, children, place) for pod, (children, place) in pairs if place is not None}
            self._places = {uid: place for uid, (_, _, place) in self._by_uid.items()}
        return self._places

    def refresh(self, folders: Iterable[str], pods: Sequence[Pod]) -> Mapping[str, PodGroups]:
        """Same as `find`, between two readings: only what lies in these folders is looked at."""
        refreshed = frozenset(folders)
        for folder in refreshed:
            self._folders.reread(folder)
        self._by_uid = {pod.uid: entry for pod in pods if (entry := self._placed(pod, refreshed)) is not None}
        self._places = {uid: place for uid, (_, _, place) in self._by_uid.items()}
        self._pods = None  # The next reading has other groups than the last one.
        return self._places

    def _placed(self, pod: Pod, refreshed: Set[str]) -> tuple[Pod, _Children, PodGroups] | None:
        """Keep what is known of a pod, unless its group is among those that were `refreshed`."""
        entry = self._by_uid.get(pod.uid)
        if entry and entry[0] is pod and entry[2].group not in refreshed:
            return entry
        children, place = self._place(pod)
        return None if place is None else (pod, children, place)

    def recognize(self, containers: Mapping[str, str]) -> None:
        """Each group is that of this container of its pod, until the pod's status names another one."""
        self._recognized |= containers
        pods = {group.rpartition("/")[0] for group in containers}
        self._by_uid = {uid: entry for uid, entry in self._by_uid.items() if entry[2].group not in pods}

    def present(self, fields_of: Mapping[str, Set[str]]) -> dict[str, Cgroup]:
        """Present values of these groups alone, with these fields; a group that is gone is left out. The next reading
        looks at them again."""
        state = self._cgroups.state
        states = ((group, readable(state, group, sorted(fields))) for group, fields in fields_of.items())
        return {group: state for group, state in states if state is not None}

    def memory_held(self, group: str) -> MemoryCharge | None:
        """Memory that a group holds at this instant; None when it is gone, or its files cannot be read."""
        return readable(self._cgroups.memory_held, group)

    def states(
        self, further: Iterable[str] = (), *, fields: Set[str] = frozenset(), fields_of: Mapping[str, Set[str]] = _NONE
    ) -> dict[str, Cgroup]:
        """Present values of kubelet's own groups, of the whole besteffort tree (also pods we do not know), of the
        groups of the pods that were found and of `further` ones, with `fields` besides sets and quotas, and in the
        groups of `fields_of` these as well. A group that vanishes meanwhile is left out."""
        self._ask_for(fields, fields_of)
        if not self._stands:
            self._groups = tuple(dict.fromkeys(self._all_groups()))
            self._folders.end()
            self._recognized = {g: name for g, name in self._recognized.items() if g in self._groups}
        states = self._limits.all((*self._groups, *further))
        self._limits.end()
        return states

    def _ask_for(self, fields: Set[str], fields_of: Mapping[str, Set[str]]) -> None:
        """Set the fields to read of each group. Kubelet's own groups are read whole, since they show which files the
        kernel has."""
        supported = self._cgroups.supported(sorted(frozenset(fields).union(*fields_of.values())))
        if supported == self._supported and fields_of is self._fields_of and fields == self._common:
            return
        layout = self._cgroups.layout
        before, common = self._own_fields, tuple(each for each in supported if each in fields)
        own = {
            group: tuple(each for each in supported if each in fields or each in more)
            for group, more in fields_of.items()
        } | dict.fromkeys((layout.kubepods, layout.burstable, layout.besteffort), supported)
        if common != self._fields:
            self._limits.clear()
        else:
            self._limits.forget(g for g in before.keys() | own.keys() if before.get(g, common) != own.get(g, common))
        self._supported, self._fields_of, self._common = supported, fields_of, fields
        self._fields, self._own_fields = common, own

    def _all_groups(self) -> Iterator[str]:
        layout = self._cgroups.layout
        yield from (layout.kubepods, layout.burstable, *self._tree(layout.besteffort))
        for place in self._places.values():
            yield from place.all

    def _place(self, pod: Pod) -> tuple[_Children, PodGroups | None]:
        try:
            group = self._cgroups.pod_group(pod.uid, pod.kube_qos)
        except ValueError:
            return _NO_CHILDREN, None  # Its uid is no name of a group: kubelet has made none.
        siblings = self._folders.get(group.rpartition("/")[0])
        if not siblings or group not in siblings:
            return _NO_CHILDREN, None
        children = self._folders.get(group) or _NO_CHILDREN
        entry = self._by_uid.get(pod.uid)
        if entry and entry[0] is pod and entry[1] is children:
            return children, entry[2]
        named = self._named(pod, group, children)
        if not children or not children.keys() >= {*named.values()}:
            children = self._folders.reread(group) or _NO_CHILDREN
            named = self._named(pod, group, children)
        containers = {name: path for name, path in named.items() if path in children}
        if not containers and pod.annotations.get(keys.CONFIG_MIRROR) == pod.uid:
            return (
                children,
                None,
            )  # An annotation says that this group is the pod's, and none of its containers is there.
        return children, PodGroups(group, containers, tuple(sorted(children.keys() - containers.values())))

    def _named(self, pod: Pod, group: str, children: _Children) -> dict[str, str]:
        """Groups of the containers that the pod's status names, and of those that were recognized before it did."""
        named = ((c.name, self._container_group(group, c.id, children)) for c in pod.containers)
        by_name = {name: path for name, path in named if path}
        for child in self._recognized.keys() & children.keys() - by_name.values():
            name = self._recognized[child]
            if by_name.get(name) not in children and any(c.name == name for c in pod.containers):
                by_name[name] = child
        return by_name

    def _container_group(self, group: str, container_id: str, children: _Children) -> str:
        try:
            return self._cgroups.container_group(group, container_id) or ""
        except ValueError:
            # A runtime we do not know: its group is the one that ends with the id. Else it counts as a sandbox, and
            # still gets the pod's set.
            suffix, id_of = container_id.rpartition("://")[2], self._cgroups.container_id
            return next((child for child in children if suffix and readable(id_of, child) == suffix), "")

    def _tree(self, group: str) -> Iterator[str]:
        """The group and those below it, each before those below it; none that somebody has nested too deep."""
        waiting, self.too_deep = [group], ""
        deepest = group.count("/") + DEPTH
        while waiting:
            group = waiting.pop()
            yield group
            below = tuple(self._folders.get(group) or ())
            if group.count("/") < deepest:
                waiting += reversed(below)
            elif below:
                self.too_deep = group

    def _list(self, group: str) -> _Children | None:
        names = readable(self._cgroups.children, group)
        # The groups of pods and containers are named by other texts, too.
        return None if names is None else {sys.intern(f"{group}/{name}"): None for name in names}

    def _state(self, group: str) -> Cgroup | None:
        return readable(self._cgroups.state, group, self._own_fields.get(group, self._fields))


def container_names(
    host: Host,
    pods: Iterable[Pod],
    places: Mapping[str, PodGroups],
    groups: Collection[str],
    *,
    runtime_names: Mapping[str, str],
) -> dict[str, str]:
    """Container by group, of those of `groups`, and of the groups below pods in `groups`, that no status names.

    `runtime_names` go before what mounts say, which are made only later.
    """
    parents = {group.rpartition("/")[0] for group in groups}
    candidates = (
        (pod.uid, group)
        for pod in pods
        if (place := places.get(pod.uid)) and (place.group in parents or place.group in groups)
        for group in place.sandboxes
        if group in groups or place.group in groups
    )
    names = ((group, runtime_names.get(group) or container_of_group(host, group, uid)) for uid, group in candidates)
    return {group: name for group, name in names if name}


_TERMINATION_LOG = re.compile(r"/pods/([^/]+)/containers/([^/]+)/[^/]+\Z")
"""kubelet binds this file over the termination log of every container, whatever the runtime. The sandbox of a pod has
none. Source: kubelet 1.35, `makeMounts` in kuberuntime_container.go."""


def container_of_group(host: Host, group: str, uid: str = "") -> str | None:
    """The name of the container of the pod `uid` (any pod without) that `group` belongs to, by the mounts of its first
    process; None where there is no process yet, or its mounts do not say."""
    pids = readable(host.cgroups.procs, group)
    return readable(container_of_process, host.files, pids[0], uid) if pids else None


def container_of_process(files: Files, pid: int, uid: str = "") -> str | None:
    """The name of the container of the pod `uid` (any pod without) in which process `pid` runs, by its mounts; None
    where they do not say, as before the runtime has made them. OSError when the process is gone."""
    for line in files.read(f"/proc/{pid}/mountinfo").decode(errors="replace").splitlines():
        fields = line.split(" ")
        match = _TERMINATION_LOG.search(fields[3]) if len(fields) > 4 else None
        if match and uid in ("", match[1]):
            return match[2]
    return None
