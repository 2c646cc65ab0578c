"""Groups that have just been made: what kubelet has yet to write there.

kubelet and the runtime make a group first and write its values afterwards, as a rule some milliseconds later. What
stands there until then is the kernel's initial value, which nobody chose: it is neither worth keeping for a restore,
nor may a group become idle before its shares are written, since the kernel then refuses them.
"""

from __future__ import annotations

from koordlite.formulas import batch_resource
from koordlite.formulas.cpu import burst
from koordlite.host.bundle import Host
from koordlite.model.cgroup_fields import MIN_SHARES, CgroupField
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.snapshot import Snapshot
from koordlite.numa.koordinator import assignments

YOUNG_SECONDS = 15.0
"""Time from a new group on in which a value that another process writes over ours counts as kubelet's first one.
Longer than `observe.places.LIMITS_SECONDS`, within which it is noticed."""
PATIENCE_SECONDS = 1.0
"""Longest time for which nothing is written into a group because kubelet has not written there yet."""
_SHARES: CgroupField = "cpu.shares"
_QUOTA: CgroupField = "cpu.quota"
_INITIAL = {1: {_SHARES: b"1024", _QUOTA: b"-1"}, 2: {_SHARES: b"100", _QUOTA: b"max 100000"}}
"""Values of a new group by version of cgroups, as the kernel sets them."""


class Beginnings:
    """Remembers when each group came into sight. What the first picture of a run shows is older, unless its pod has not
    started."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._newest = float("-inf")
        self._places: object = None
        self._first = True

    def look(self, snapshot: Snapshot, now: float) -> None:
        """Take in the groups of the pods in `snapshot`."""
        if snapshot.places is self._places:
            return
        self._places = snapshot.places
        pending = {pod.uid for pod in snapshot.pods if pod.phase == "Pending"}
        old = float("-inf") if self._first else now
        before, self._first = self._since, False
        self._since = {
            group: before.get(group, now if uid in pending else old)
            for uid, place in snapshot.places.items()
            for group in place.all
        }
        self._newest = max(self._since.values(), default=old)

    def young(self, now: float) -> frozenset[str]:
        """The groups that came into sight a moment ago."""
        if now - self._newest >= YOUNG_SECONDS:
            return frozenset()
        return frozenset(group for group, since in self._since.items() if now - since < YOUNG_SECONDS)

    def is_waited_for(self, group: str, host: Host, snapshot: Snapshot) -> bool:
        """Tell whether kubelet is about to write the group's values: it still has the kernel's initial shares, and has
        not been in sight for long. A group that cannot be read is not waited for; the write says why."""
        if host.clock.monotonic() - self._since.get(group, float("-inf")) >= PATIENCE_SECONDS:
            return False
        try:
            raw = host.cgroups.read_present(group, _SHARES)
        except OSError:
            return False
        return raw is not None and self.original(group, _SHARES, raw, host, snapshot) != raw

    def original(self, group: str, field: CgroupField, raw: bytes, host: Host, snapshot: Snapshot) -> bytes:
        """Value that would stand there without us, where `raw` was read: in a new group that still has the kernel's
        initial value what kubelet writes by the pod's spec, everywhere else what was read."""
        initial = _INITIAL[host.cgroups.layout.version].get(field)
        age = host.clock.monotonic() - self._since.get(group, float("-inf"))
        if raw.strip() != initial or age >= YOUNG_SECONDS:
            return raw
        value = by_kubelet(snapshot, group).get(field)
        return raw if value is None else host.cgroups.encode(field, value)


def by_kubelet(snapshot: Snapshot, group: str) -> dict[CgroupField, int]:
    """Values that kubelet writes into the group of a pod, a container or a sandbox, as far as the pod's spec says.

    Source: kubelet `ResourceConfigForPod`, `calculateLinuxResources`; containerd's shares of a sandbox.
    """
    parent = group.rpartition("/")[0]
    pods = {pod.uid: pod for pod in snapshot.pods}
    for uid, place in snapshot.places.items():
        if place.group in (group, parent) and uid in pods:
            return _values(snapshot, pods[uid], place, group)
    return {}


def _values(snapshot: Snapshot, pod: Pod, place: PodGroups, group: str) -> dict[CgroupField, int]:
    names = {path: name for name, path in place.containers.items()}
    container = next((each for each in pod.containers if each.name == names.get(group)), None)
    if pod.kube_qos is KubeQoS.BEST_EFFORT:
        return {_SHARES: MIN_SHARES}
    if group == place.group:
        request, limit = pod.request_milli("cpu"), assignments.cpu_limit_milli(pod) or 0
    elif container is not None:
        limit = container.limits["cpu"].milli if "cpu" in container.limits else 0
        request = container.requests["cpu"].milli if "cpu" in container.requests else limit
    else:
        return {}  # A sandbox, or a container that is not recognized yet.
    values: dict[CgroupField, int] = {}
    shares = batch_resource.shares(request)
    if snapshot.layout.version == 1 or shares == MIN_SHARES:
        values[_SHARES] = shares  # On v2 the weight of other shares depends on the runtime's version.
    has_own_cpus = any(each.uid == pod.uid for each in snapshot.kubelet.pod_cpus)
    if limit and snapshot.kubelet.cpu_cfs_quota and not has_own_cpus:
        values[_QUOTA] = burst.base_quota(limit_milli=limit)
    return values
