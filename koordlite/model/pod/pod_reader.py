"""A pod from its object on the wire, made once; what cannot be read becomes its problems."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import Problem
from koordlite.model.pod import crane, qos
from koordlite.model.pod.values import NO_PREFERENCE, Amounts, ContainerInfo, Pod, ResourceSpec, ResourceStatus
from koordlite.model.quantity import Quantity, add_resources, parse_resources
from koordlite.model.reading import declared
from koordlite.model.wire import objects

T = TypeVar("T")
LONGEST_ANNOTATION = 4096
"""Characters. A longer annotation is not read: none that rules read needs as much, and each is parsed, kept in pictures
and recorded."""
MOST_PROBLEMS = 10
"""Maximum number of problems listed for one pod; the others are counted."""
DECISIVE_LABELS = (keys.QOS_CLASS, keys.PRIORITY)
DECISIVE_NOTES = (
    *(keys.EXTENDED_RESOURCE_SPEC, keys.RESOURCE_STATUS, keys.RESOURCE_SPEC, keys.NUMA_TOPOLOGY_SPEC),
    *keys.CRANE_NOTES,
)
"""Labels and annotations that `from_wire` makes something of. Of pods that differ in others only, all else is equal."""


def from_wire(obj: objects.PodObject, machine: CPUSet | None = None) -> Pod:
    """The pod `obj` describes; annotations and quantities that cannot be read become its `problems`.
    Of the CPUs that are promised to it those count which the `machine` has; None is any machine."""
    problems: list[Problem] = []
    name = f"pod/{obj.metadata.namespace}/{obj.metadata.name}"
    labels, notes = obj.metadata.labels or {}, _bounded(obj.metadata.annotations or {}, name, problems)

    def read(key: str, parse: Callable[[str], T], absent: T) -> T:
        text = (labels if key in DECISIVE_LABELS else notes).get(key)
        try:
            return parse(text) if text else absent
        except ValueError as error:
            problems.append(Problem(name, key, text or "", str(error), _INSTEAD[key]))
            return absent

    return Pod(
        namespace=obj.metadata.namespace,
        name=obj.metadata.name,
        uid=obj.metadata.uid,
        phase=obj.status.phase,
        labels=labels,
        annotations=notes,
        raw_qos=qos.QoSClass.of_label(labels.get(keys.QOS_CLASS)),
        kube_qos=kube_qos(obj),
        priority=obj.spec.priority,
        sub_priority=read(keys.PRIORITY, qos.sub_priority, 0),
        requests=effective_requests(counted(obj).spec, name, problems),
        overhead=parse_resources(obj.spec.overhead, name, "spec.overhead", []),
        containers=_containers(obj),
        extended_resources=read(
            keys.EXTENDED_RESOURCE_SPEC, lambda text: declared.decode(_ExtendedText, text).containers, _NO_AMOUNTS
        ),
        resource_status=read(keys.RESOURCE_STATUS, lambda text: parse_resource_status(text, machine), _NO_STATUS),
        resource_spec=parse_resource_spec(notes.get(keys.RESOURCE_SPEC), name, problems),
        numa_policy=read(
            keys.NUMA_TOPOLOGY_SPEC, lambda text: declared.decode(_NUMASpecText, text).numa_topology_policy, ""
        ),
        crane=crane.parse(notes, name, problems),
        deleting=obj.metadata.deletion_timestamp is not None,
        constraints=constraints(obj.spec),
        problems=_listed(problems, name),
    )


def constraints(spec: objects.PodSpec) -> tuple[str, ...]:
    """Fields that must hold for a node, not those that would rather."""
    if not (spec.affinity or spec.node_selector or spec.topology_spread_constraints):
        return ()
    affinity = spec.affinity or objects.Affinity()
    fields = {
        "nodeSelector": spec.node_selector,
        "nodeAffinity": affinity.node_affinity and affinity.node_affinity.required,
        "podAffinity": affinity.pod_affinity and affinity.pod_affinity.required,
        "podAntiAffinity": affinity.pod_anti_affinity and affinity.pod_anti_affinity.required,
        "topologySpreadConstraints": any(
            each.when_unsatisfiable == "DoNotSchedule" for each in spec.topology_spread_constraints or ()
        ),
    }
    return tuple(name for name, constraint in fields.items() if constraint)


def _bounded(notes: Mapping[str, str], owner: str, problems: list[Problem]) -> Mapping[str, str]:
    """Annotations that are short enough to be read; one of Koordinator's, Crane's or ours that is not is a problem."""
    if all(len(text) <= LONGEST_ANNOTATION for text in notes.values()):
        return notes
    for key, text in notes.items():
        if len(text) > LONGEST_ANNOTATION and _is_read(key):
            why = f"{len(text)} characters, {LONGEST_ANNOTATION} are read at most"
            problems.append(Problem(owner, key, text[:120], why, "shorten it; it counts as not set"))
    return {key: text for key, text in notes.items() if len(text) <= LONGEST_ANNOTATION}


def _is_read(key: str) -> bool:
    domain = key.partition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in ("koordinator.sh", "koordlite.io", "crane.io"))


def _listed(problems: list[Problem], owner: str) -> tuple[Problem, ...]:
    """The first problems of a pod, and how many more there are."""
    more = len(problems) - MOST_PROBLEMS
    if more <= 0:
        return tuple(problems)
    omitted = Problem(owner, "", "", f"{more} more problems of this pod", "fix those that are listed, and check again")
    return (*problems[:MOST_PROBLEMS], omitted)


def effective_requests(spec: objects.PodSpec, owner: str, problems: list[Problem]) -> dict[str, Quantity]:
    """containers + sidecars, or the largest init container (with the sidecars started before it), plus overhead;
    pod-level resources win where they are given."""
    total = _effective(spec, lambda container: amounts(container.resources, owner, container.name, problems)[0])
    whole = spec.resources.requests if spec.resources else None
    total.update(parse_resources(whole, owner, "spec.resources.requests", problems))
    return add_resources(total, parse_resources(spec.overhead, owner, "spec.overhead", problems))


def effective_limits(spec: objects.PodSpec) -> dict[str, Quantity]:
    """The same of limits; a container without a limit adds nothing, and overhead counts where there is a limit. What
    cannot be read counts as none."""
    total = _effective(spec, lambda container: amounts(container.resources)[1])
    total.update(amounts(spec.resources)[1])
    overhead = parse_resources(spec.overhead, "", "", [])
    return add_resources(total, {name: amount for name, amount in overhead.items() if name in total})


def _effective(
    spec: objects.PodSpec, amounts: Callable[[objects.Container], dict[str, Quantity]]
) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for container in spec.containers or ():
        add_resources(total, amounts(container))
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in spec.init_containers or ():
        own = amounts(container)
        if container.restart_policy == "Always":
            add_resources(sidecars, own)
            own = sidecars
        else:
            own = add_resources(dict(own), sidecars)
        peak = {**peak, **{k: max(q, peak.get(k, q)) for k, q in own.items()}}
    add_resources(total, sidecars)
    return {**peak, **{k: max(q, peak.get(k, q)) for k, q in total.items()}}


def kube_qos(obj: objects.PodObject) -> qos.KubeQoS:
    """status.qosClass if set, else computed from cpu and memory of all containers as the API server does."""
    if obj.status.qos_class in ("Guaranteed", "Burstable", "BestEffort"):
        return qos.KubeQoS(obj.status.qos_class)
    containers = [*(obj.spec.containers or ()), *(obj.spec.init_containers or ())]
    requests = [_native(c, "requests") for c in containers]
    limits = [_native(c, "limits") for c in containers]
    if not any(amount for of_one in (*requests, *limits) for amount in of_one.values()):
        return qos.KubeQoS.BEST_EFFORT
    if all(len(limit) == 2 and all(limit.values()) for limit in limits) and all(
        {**limit, **request} == limit for request, limit in zip(requests, limits, strict=True)
    ):
        return qos.KubeQoS.GUARANTEED
    return qos.KubeQoS.BURSTABLE


def parse_resource_spec(text: str | None, owner: str, problems: list[Problem]) -> ResourceSpec:
    """The preferences in the annotation of pod `owner`; what cannot be read is none, and is added to `problems`."""
    if not text:
        return NO_PREFERENCE
    document = declared.JSONDocument(owner, keys.RESOURCE_SPEC, "the pod counts as one without preferences")
    values, _ = declared.read_text(document, ResourceSpec, text)
    problems += [problem for problem in document.problems if problem.why != declared.UNKNOWN]
    return NO_PREFERENCE if document.broken else declared.build(NO_PREFERENCE, values)


@functools.lru_cache(maxsize=16384)
def parse_resource_status(text: str, machine: CPUSet | None = None) -> ResourceStatus:
    """Decode annotation `scheduling.koordinator.sh/resource-status`; ValueError when it cannot be read.
    Kept, because the same few CPUs are handed out on every node of a cluster."""
    status = declared.decode(ResourceStatusText, text)
    entries = status.numa_node_resources
    nodes = tuple(dict.fromkeys(entry.node for entry in entries))
    return ResourceStatus(CPUSet.parse(status.cpuset, machine), nodes, any(map(_grants_cpu, entries)))


class ZoneText(msgspec.Struct, frozen=True):
    """Amounts on one NUMA node."""

    node: int = 0
    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)


class ResourceStatusText(msgspec.Struct, frozen=True):
    """Text of that annotation: CPUs of the pod alone, and its amounts by NUMA node."""

    cpuset: str = ""
    numa_node_resources: tuple[ZoneText, ...] = ()


def _grants_cpu(entry: ZoneText) -> bool:
    cpu, batch = entry.resources.get("cpu"), entry.resources.get(keys.BATCH_CPU)
    return (cpu is not None and cpu.nano != 0) or (batch is not None and batch.nano > 0)


class _ExtendedText(msgspec.Struct, frozen=True):
    containers: Mapping[str, Amounts] = msgspec.field(default_factory=dict)


class _NUMASpecText(msgspec.Struct, frozen=True):
    numa_topology_policy: str = ""


_NO_STATUS = ResourceStatus()
_NO_AMOUNTS: Mapping[str, Amounts] = {}
"""One for all pods, which mostly have neither."""
_INSTEAD = {
    keys.RESOURCE_STATUS: "the pod is treated as one without pinned CPUs; the scheduler writes this annotation",
    keys.EXTENDED_RESOURCE_SPEC: "the resources of the pod's spec count; Koordinator's webhook writes this annotation",
    keys.PRIORITY: "write a number like 9100; counted as 0",
    keys.NUMA_TOPOLOGY_SPEC: (
        'write {"numaTopologyPolicy":"SingleNUMANode"}; the pod is treated as one without a policy'
    ),
}
"""Words for what holds in place of an unreadable text; as in Koordinator it counts as absent."""


def amounts(
    resources: objects.Resources | None, owner: str = "", container: str = "", problems: list[Problem] | None = None
) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    """(requests, limits) of a container. A limit without a request is the request, as the API server has it. Amounts
    that cannot be read count as none and are added to `problems` of `owner`."""
    if resources is None:
        return {}, {}
    field, noted = f"spec.containers[{container}].resources", [] if problems is None else problems
    limits = parse_resources(resources.limits, owner, f"{field}.limits", noted)
    return {**limits, **parse_resources(resources.requests, owner, f"{field}.requests", noted)}, limits


def _native(container: objects.Container, which: str) -> dict[str, int]:
    texts = getattr(container.resources, which, None) or {}
    amounts = parse_resources({k: v for k, v in texts.items() if k in ("cpu", "memory")}, "", "", [])
    return {k: max(q.nano, 0) for k, q in amounts.items()}


def _containers(obj: objects.PodObject) -> tuple[ContainerInfo, ...]:
    reported = (*(obj.status.container_statuses or ()), *(obj.status.init_container_statuses or ()))
    statuses = {status.name: status for status in reported}

    def info(spec: objects.Container) -> ContainerInfo:
        status = statuses.get(spec.name)
        running = status is not None and "running" in (status.state or {})
        requests, limits = amounts(granted(obj, spec, status))
        return ContainerInfo(spec.name, (status and status.container_id) or "", running, requests, limits)

    return (
        *(
            msgspec.structs.replace(info(each), one_shot=each.restart_policy != "Always", init=True)
            for each in obj.spec.init_containers or ()
        ),
        *map(info, obj.spec.containers or ()),
    )


Texts = Mapping[str, str | int | float]


def counted(obj: objects.PodObject) -> objects.PodObject:
    """Replace the amounts in the pod's spec by those that count against its node.

    Until a container has shrunk, what it still has counts, and a growth counts from the moment it is asked for. One
    that the node can never grant (PodResizePending: Infeasible) counts with what it has. The same object where nothing
    differs, which is nearly always.

    Source: Kubernetes 1.36, `determineEffectiveRequests` and `determineEffectiveLimits`, by which kube-scheduler and
    kubelet count.
    """
    spec, status = obj.spec, obj.status
    states = {each.name: each for each in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))}
    if not (status.resources or any(state.resources for state in states.values())):
        return obj
    pending = next((each for each in status.conditions or () if each.type == "PodResizePending"), None)
    infeasible = pending is not None and pending.reason == "Infeasible"

    def resized(
        desired: objects.Resources | None, status: objects.ContainerStatus | objects.PodStatus
    ) -> objects.Resources | None:
        asked, actual = desired or objects.Resources(), status.resources
        if actual is None:
            return desired
        requests = () if infeasible else (asked.requests,)
        amounts = objects.Resources(
            requests=_largest(*requests, actual.requests, status.allocated_resources),
            limits=actual.limits if infeasible else _largest(asked.limits, actual.limits),
        )
        return desired if amounts == asked else amounts

    def container(one: objects.Container) -> objects.Container:
        state = states.get(one.name)
        return msgspec.structs.replace(one, resources=resized(one.resources, state)) if state else one

    containers, init_containers = (
        listed and tuple(map(container, listed)) for listed in (spec.containers, spec.init_containers)
    )
    resources = spec.resources and resized(spec.resources, status)
    if containers == spec.containers and init_containers == spec.init_containers and resources == spec.resources:
        return obj
    changed = msgspec.structs.replace(spec, containers=containers, init_containers=init_containers, resources=resources)
    return msgspec.structs.replace(obj, spec=changed)


def granted(
    obj: objects.PodObject, container: objects.Container, state: objects.ContainerStatus | None
) -> objects.Resources:
    """Requests and limits that the container runs with while its pod is resized: its cgroup has those, not the ones it
    is still to get.

    At other times the spec says the same. The status may then say something else: a runtime also reports what a plugin
    (NRI) made of the values, ours included.
    """
    resized = any(each.type in ("PodResizePending", "PodResizeInProgress") for each in obj.status.conditions or ())
    return (resized and state and state.resources) or container.resources or objects.Resources()


def _largest(first: Texts | None, *more: Texts | None) -> dict[str, str | int | float] | None:
    """The largest amount of each resource, as it is written. One that cannot be read is left as the first has it."""
    largest = dict(first or {})
    for texts in more:
        for name, text in (texts or {}).items():
            if text != (before := largest.setdefault(name, text)):
                with contextlib.suppress(ValueError):
                    if Quantity.parse(text) > Quantity.parse(before):
                        largest[name] = text
    return largest or None
