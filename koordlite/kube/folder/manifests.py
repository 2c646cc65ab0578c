"""A folder of manifests as the cluster: what one would `kubectl apply`, read again when a file changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from koordlite.changes.eviction import EvictPod
from koordlite.kube.folder import manifest_files
from koordlite.kube.folder.manifest_files import Loaded
from koordlite.kube.folder.published import EvictionRecord, Published
from koordlite.kube.kubelet import configz
from koordlite.kube.kubelet.configz import CPUManagerState
from koordlite.model import times
from koordlite.model.change import ClusterChange
from koordlite.model.cpuset import EMPTY
from koordlite.model.errors import EvictionRefused, InputError, Problem
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.topology import Topology
from koordlite.model.wire import affinity
from koordlite.model.wire import objects as wire
from koordlite.ports import Clock, ClusterView

CONFIG_NAMESPACE = "koordinator-system"
CONFIG_NAME = "slo-controller-config"
LOOK_SECONDS = 1.0
"""Least time between two looks at the folder."""

_KUBELET_FILES = ("cpu_manager_state",)

T = TypeVar("T")
Stamp = tuple[int, int, int]
Key = tuple[str, str, str]


class _File(msgspec.Struct, frozen=True):
    """One file as last seen: `objects` are the last good ones, `problems` what is wrong with it now."""

    stamp: Stamp | None
    objects: tuple[Loaded, ...]
    problems: tuple[Problem, ...] = ()
    good_at: float = 0.0


class ManifestCluster:
    """`ports.Cluster` over the files directly in a folder.

    Read are kinds Node, Pod, ConfigMap koordinator-system/slo-controller-config, NodeResourceTopology, Oenuma
    tcs/podafi, Whitelist tcs/whitelist, lists of these, KubeletConfiguration, and the files `configz.json` and
    `cpu_manager_state`; other kinds are passed over. A pod without a uid gets a stable one, a pod without a status
    counts as running.

    `published` is where `publish` writes; without it what was published is only remembered. `topology` is needed only
    to work out CPUs that a KubeletConfiguration reserves by number instead of by list.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        node_name: str | None = None,
        published: Path | None = None,
        topology: Topology | None = None,
    ) -> None:
        self._folder, self._clock, self._topology = folder, clock, topology
        self._node_name, self._published_folder = node_name, published
        self._published: Published | None = None
        self._evictions = EvictionRecord(published)
        self._node: wire.NodeObject | None = None
        do = "write its Node manifest, or name another node"
        why = "there is no node to publish for"
        self._cannot_publish: tuple[Problem, ...] = (Problem(str(folder), "Node", node_name or "", why, do),)
        self._files: dict[str, _File] = {}
        self._looked_at: float | None = None
        self._view = ClusterView(node=None, pods=(), config=None, topology=None, kubelet=Kubelet())

    def view(self) -> ClusterView:
        """The newest state of the folder, at most a second old."""
        now = self._clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_SECONDS:
            first = self._looked_at is None
            self._looked_at = now
            if self._look(now) or first:
                self._view = self._judged()
        return msgspec.structs.replace(self._view, ages=dict(self._ages(now)))

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Take over the changes; OSError when the files cannot be written, InputError when there is no node
        to publish for or an earlier run left files that cannot be read."""
        if not changes:
            return
        if self._published is None or self._node is None:
            raise InputError(self._cannot_publish)
        self._published.publish(changes, node=self._node, topology=self._view.topology)
        self._view = self._judged()

    def evict(self, pod: EvictPod) -> None:
        """Record the eviction; the pod shows a deletion time from now on. OSError when that cannot be written,
        EvictionRefused when an earlier record cannot be read."""
        try:
            self._evictions.add(pod, taken_at=times.show(self._clock.wall()))
        except InputError as error:
            raise EvictionRefused(f"pod/{pod.namespace}/{pod.name}", str(error)) from error
        self._view = self._judged()

    def _look(self, now: float) -> bool:
        """Read the files that changed; says whether any did."""
        folder = str(self._folder)
        files = {name: self._reread(folder, name, self._files.get(name), now) for name in _manifests(self._folder)}
        changed = files.keys() != self._files.keys() or any(files[name] is not self._files[name] for name in files)
        if changed:
            before = {_key(obj): obj for file in self._files.values() for obj in file.objects}
            # Objects that did not change stay the same objects, so that readers need not judge them again.
            for name, file in files.items():
                pairs = ((before.get(_key(obj), obj), obj) for obj in file.objects)
                same = tuple(old if old == new else new for old, new in pairs)
                files[name] = msgspec.structs.replace(file, objects=same)
            self._files = files
        return changed

    def _reread(self, folder: str, name: str, previous: _File | None, now: float) -> _File:
        stamp = _stamp(f"{folder}/{name}")
        if previous is not None and previous.stamp == stamp:
            return previous
        path = self._folder / name
        try:
            return _File(stamp, manifest_files.read(path), good_at=now)
        except InputError as error:
            problems = error.problems
        except OSError as error:
            do = f"make it readable; {manifest_files.KEEP.partition('; ')[2]}"
            problems = (Problem(str(path), "file", "", error.strerror or str(error), do),)
        last = previous or _File(None, (), good_at=now)
        return _File(stamp, last.objects, problems, last.good_at)

    def _ages(self, now: float) -> Iterator[tuple[str, float]]:
        """Seconds since node, pods, config and kubelet were confirmed: 0 unless a file that had them is broken."""
        kinds: dict[str, tuple[type[object], ...]] = {
            "node": (wire.NodeObject,),
            "pods": (wire.PodObject,),
            "config": (wire.ConfigMapObject,),
            "kubelet": (Kubelet, CPUManagerState),
        }
        broken = [file for file in self._files.values() if file.problems]
        for name, shapes in kinds.items():
            since = [now - file.good_at for file in broken if any(isinstance(obj, shapes) for obj in file.objects)]
            yield name, max(since, default=0.0)

    def _judged(self) -> ClusterView:
        """The view that the objects at hand give."""
        problems = [problem for file in self._files.values() for problem in file.problems]
        if not self._folder.is_dir():
            problems.append(
                Problem(str(self._folder), "$", "", "there is no such folder", "name a folder of manifests")
            )
        objects = _unique(self._files, self._folder, problems)
        nodes = {obj.metadata.name: obj for obj in _of(objects, wire.NodeObject)}
        node = self._node = self._own_node(nodes, problems)
        published = self._publisher(node, problems)
        topologies = {obj.metadata.name: obj for obj in _of(objects, wire.NRTObject)}
        configs = (o for o in _of(objects, wire.ConfigMapObject) if _is(o, CONFIG_NAMESPACE, CONFIG_NAME))
        config = next((obj.data or {} for obj in configs), None)
        oenumas = (o for o in _of(objects, affinity.OenumaObject) if _is(o, affinity.NAMESPACE, affinity.OENUMA))
        whitelists = (
            o for o in _of(objects, affinity.WhitelistObject) if _is(o, affinity.NAMESPACE, affinity.WHITELIST)
        )
        topology = topologies.get(node.metadata.name) if node else None
        # A pod that names no node runs on the only one there is.
        names = {node.metadata.name, *([""] if len(nodes) == 1 else ())} if node else set[str]()
        pods = (pod for pod in _of(objects, wire.PodObject) if pod.spec.node_name in names)
        return ClusterView(
            node=published.over_node(node) if published and node else node,
            pods=self._evictions.shown(pods),
            config=config,
            topology=published.topology or topology if published else topology,
            kubelet=self._kubelet(objects, problems),
            problems=tuple(problems),
            oenuma=next(oenumas, None),
            whitelist=next(whitelists, None),
        )

    def _own_node(self, nodes: dict[str, wire.NodeObject], problems: list[Problem]) -> wire.NodeObject | None:
        if self._node_name is not None:
            name, why = self._node_name, f"no Node manifest is called {self._node_name}"
        else:
            name = next(iter(nodes)) if len(nodes) == 1 else ""
            why = "several Node manifests, and none was chosen" if nodes else "no Node manifest"
        if name not in nodes:
            names = ", ".join(sorted(nodes)) or "none"
            do = f"name one of the nodes in the folder ({names}) with --node, or add a Node manifest"
            problems.append(Problem(str(self._folder), "Node" if name else "$", name, why, do))
        return nodes.get(name)

    def _publisher(self, node: wire.NodeObject | None, problems: list[Problem]) -> Published | None:
        """Made when the node is first known, because the files are named after it."""
        if self._published is None and node is not None:
            try:
                self._published = Published(node.metadata.name, self._published_folder)
            except InputError as error:
                self._cannot_publish = error.problems
                problems.extend(error.problems)
        return self._published

    def _kubelet(self, objects: Sequence[Loaded], problems: list[Problem]) -> Kubelet:
        state = next(_of(objects, CPUManagerState), CPUManagerState())
        config = next(_of(objects, Kubelet), None) or state.as_config
        if self._topology is not None:
            kubelet, conflicts = configz.combine(config, state, self._topology)
            problems.extend(conflicts)
            return kubelet
        problems.extend(state.problems)
        static, listed = config.cpu_manager_policy == configz.STATIC, config.listed_reserved_cpus
        milli = config.reserved_milli
        if static and milli and not listed:
            do = "write reservedSystemCPUs as a list; until then no CPU counts as reserved by kubelet"
            why = "which CPUs these are depends on the machine, which is not known here"
            problems.append(Problem("kubelet", "systemReserved + kubeReserved", f"{milli}m", why, do))
        return msgspec.structs.replace(
            config, reserved_cpus=listed if static else EMPTY, pod_cpus=state.pod_cpus if static else ()
        )


def _manifests(folder: Path) -> list[str]:
    """Names of the files, sorted. A folder may have hundreds, and is looked at each second: names are cheaper than
    paths."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    listed = (name for name in names if name.endswith(manifest_files.SUFFIXES) or name in _KUBELET_FILES)
    return sorted(name for name in listed if not name.startswith("."))


def _stamp(path: str) -> Stamp | None:
    """Stamp that changes when a file is written or replaced; None when it cannot be looked at."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _key(obj: Loaded) -> Key:
    if isinstance(obj, Kubelet | CPUManagerState):
        return type(obj).__name__, "", ""
    return type(obj).__name__, obj.metadata.namespace, obj.metadata.name


def _unique(files: dict[str, _File], folder: Path, problems: list[Problem]) -> tuple[Loaded, ...]:
    """All objects, each once: in the order of the files, the last one of a name wins."""
    by_key: dict[Key, Loaded] = {}
    for name, file in files.items():
        for obj in file.objects:
            key = _key(obj)
            if key in by_key:
                named = "/".join(part for part in key[1:] if part)
                why, do = "this object comes more than once", "remove all but one; the last one read counts"
                problems.append(Problem(str(folder / name), key[0].removesuffix("Object"), named, why, do))
            by_key[key] = obj
    return tuple(by_key.values())


def _of(objects: Iterable[Loaded], shape: type[T]) -> Iterator[T]:
    return (obj for obj in objects if isinstance(obj, shape))


def _is(obj: manifest_files.Object, namespace: str, name: str) -> bool:
    return (obj.metadata.namespace, obj.metadata.name) == (namespace, name)
