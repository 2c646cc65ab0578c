"""One pod of the picture: what it is, what it was promised, what its status says, when it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from koordlite.model import cpuset, times
from koordlite.model.cpuset import CPUSet
from koordlite.model.nrt import ContainerPlacement
from koordlite.model.pod.qos import KubeQoS
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects

PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
ASK_FIRST = "descheduler.koordlite.io/ask-first"
"""Annotation of pods that are asked before they are evicted, with the value `true`; ours."""
_QOS_RANK = {KubeQoS.BEST_EFFORT: 0, KubeQoS.BURSTABLE: 1, KubeQoS.GUARANTEED: 2}


class SpecKey(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Says what a pod template consists of but for its labels; equal to itself alone.

    Pods hold the same key only when these parts of them are equal: namespace and owners; containers, init containers,
    overhead and resources; node selector, affinity, tolerations and spread constraints; volumes, resource claims and
    eviction responders. So whatever follows from these parts alone is worked out once for each key, even where every
    pod has a label of its own, as those of a StatefulSet have. Pods with equal parts may have different keys: that
    costs time and changes no answer.
    """


class TemplateKey(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Says which pod template a pod was made from; equal to itself alone. Pods hold the same key only when they have
    equal labels and the same `SpecKey`."""

    spec: SpecKey = msgspec.field(default_factory=SpecKey)


class PodView(msgspec.Struct, frozen=True):
    """A pod with what the picture knows about it. A Struct, because there are hundreds of thousands, and every rule
    walks over all of them."""

    pod: Pod
    object: objects.PodObject
    node: str
    started: float | None
    """Time when the pod started, else when it was created, in seconds since the epoch; None when neither is known. Its
    age is `View.age`: a pod that did not change is the same value in every picture."""
    containers: tuple[ContainerPlacement, ...] = ()
    """Promise and fact of each container that has one or the other."""
    observed: bool = False
    """The agent saw the containers there. False: all we have is what was promised."""
    template: TemplateKey = msgspec.field(default_factory=TemplateKey)
    """The pod template it was made from; a pod that was compared with no other has a key of its own."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.pod.key

    @property
    def asks_first(self) -> bool:
        """It runs, and wants to be asked before it is evicted."""
        asks = self.object.spec.eviction_responders or self.pod.annotations.get(ASK_FIRST) == "true"
        return self.pod.active and bool(asks)

    def is_called(self, name: str) -> bool:
        """`namespace/name`, or a bare name."""
        return name in (self.key, self.pod.name)

    @property
    def uid(self) -> str:
        """Identity of this very pod, not of its name."""
        return self.pod.uid

    @property
    def owner(self) -> str:
        """`Kind/namespace/name` of the controller, else of the first owner; empty for a bare pod."""
        owners = self.object.metadata.owner_references or ()
        controller = next((o for o in owners if o.controller), owners[0] if owners else None)
        return f"{controller.kind}/{self.pod.namespace}/{controller.name}" if controller else ""

    def request_nano(self, resource: str) -> int:
        """Requested nano-units of the resource, 0 when none."""
        amount = self.pod.requests.get(resource)
        return amount.nano if amount else 0

    def taken_nano(self, resource: str) -> int:
        """Nano-units of the resource that the pod takes from its node: of `pods` one, else its request."""
        return _NANO_PER_UNIT if resource == "pods" else self.request_nano(resource)

    @property
    def promised(self) -> bool:
        """The pod was promised CPUs of its own, or one NUMA node."""
        if not self.containers:  # Of nearly all pods.
            return False
        return any(c.source != "none" and (c.exclusive or c.single_numa) for c in self.containers)

    @property
    def single_numa(self) -> bool:
        """A single NUMA node was promised."""
        return any(c.single_numa for c in self.containers)

    @property
    def pinned(self) -> CPUSet:
        """CPUs that are this pod's alone: those it was promised, wherever it runs, since kubelet and schedulers give
        out the others; where no CPUs were named, those it has."""
        return cpuset.union(c.promised_cpus or c.cpuset for c in self.containers if c.exclusive)


def alike_pods(one: PodView, other: PodView) -> bool:
    """Tell whether they differ in their statuses alone, of which no place follows."""
    if one is other:
        return True
    same = one.pod == other.pod and one.started == other.started and one.containers == other.containers
    if one.template is not other.template:  # Where there are very many templates, equal ones may have two keys.
        owners = one.object.metadata.owner_references == other.object.metadata.owner_references
        same = same and owners and one.object.spec == other.object.spec
    created = one.object.metadata.creation_timestamp == other.object.metadata.creation_timestamp
    return same and created and one.observed == other.observed


def anti_affinity_terms(pod: PodView) -> tuple[objects.PodAffinityTerm, ...]:
    """The required anti-affinity terms of a pod: which pods it must not be with."""
    affinity = pod.object.spec.affinity
    anti = affinity.pod_anti_affinity if affinity else None
    return (anti.required or ()) if anti else ()


def least_important_first(pod: PodView) -> tuple[float, int, bool]:
    """Sort key: no priority before any number, lower priority first, then BestEffort before Burstable before
    Guaranteed, then pods that do not ask to be left alone. Sorts of it must be stable: ties keep their order.

    Source: upstream `SortPodsBasedOnPriorityLowToHigh`.
    """
    value = pod.pod
    return (
        float("-inf") if value.priority is None else value.priority,
        _QOS_RANK[value.kube_qos],
        PREFER_NO_EVICTION in value.annotations,
    )


def statuses(pod: PodView, *, init: bool = False, ephemeral: bool = False) -> Iterator[objects.ContainerStatus]:
    """Statuses of the app containers; of init and ephemeral containers only when asked for."""
    status = pod.object.status
    yield from status.container_statuses or ()
    if init:
        yield from status.init_container_statuses or ()
    if ephemeral:
        yield from status.ephemeral_container_statuses or ()


def reasons(pod: PodView, *, ended: bool = True, init: bool = False, ephemeral: bool = False) -> Iterator[str]:
    """Reasons why containers wait or, with `ended`, have ended: `CrashLoopBackOff`, `OOMKilled` …"""
    for status in statuses(pod, init=init, ephemeral=ephemeral):
        state = status.state or {}
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            yield waiting["reason"]
        if ended and terminated and terminated.get("reason"):
            yield terminated["reason"]


def exit_codes(pod: PodView, *, init: bool = False) -> Iterator[int]:
    """Codes with which containers have ended; what an earlier run ended with does not count."""
    for status in statuses(pod, init=init):
        terminated = (status.state or {}).get("terminated")
        if terminated is not None:
            yield terminated.get("exitCode", 0)


def restarts(pod: PodView, *, init: bool = False) -> int:
    """Restarts of the containers since the pod was made."""
    status = pod.object.status
    count = 0
    for one in status.container_statuses or ():
        count += one.restart_count
    if init:
        for one in status.init_container_statuses or ():
            count += one.restart_count
    return count


def seconds_since(text: str | None, now: float) -> float | None:
    """Seconds between an RFC 3339 time and `now`, negative when it lies ahead; None without a readable time."""
    seconds = times.parse_or_none(text)
    return None if seconds is None else now - seconds


def age_seconds(pod: PodView, now: float) -> float:
    """Seconds since the pod was made; infinite when nobody knows, as upstream has it. A sort key, too: the youngest is
    first, at any one `now`."""
    age = seconds_since(pod.object.metadata.creation_timestamp, now)
    return float("inf") if age is None else age


Amounts = Mapping[str, int]
"""Whole units by resource name."""

_NANO_PER_UNIT = 10**9
_NANO_PER_MILLI = 10**6


def whole(resource: str, nano: int) -> int:
    """Nano-units as units of the resource, rounded away from zero.

    >>> whole("cpu", 1_500_000), whole("memory", 1_500_000)
    (2, 1)
    """
    size = _NANO_PER_MILLI if resource == "cpu" else _NANO_PER_UNIT
    return -(-nano // size) if nano > 0 else nano // size


def units(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """Amounts of several resources."""
    return {name: whole(name, amount.nano) for name, amount in amounts.items()}
