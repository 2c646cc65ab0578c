"""Effects of another CPU manager configuration on a node: pod by pod, and the checkpoint in the way of it.

Source: kubelet 1.36, `cm/cpumanager`: `NewManager`, `validateState` of the static policy, `restoreState`. A kubelet
that restarts admits the pods of its node again, the oldest first; a refused one ends with phase Failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from koordlite.model import keys
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.picture.kubelet import Kubelet, KubeletResources
from koordlite.model.pod import pod_reader
from koordlite.model.pod.values import Pod
from koordlite.model.topology import Topology
from koordlite.model.wire import objects
from koordlite.numa.kubelet.admit import KubeletNode, admit, empty_node
from koordlite.numa.kubelet.cpu_manager import CPUOptions, CPUState, StaticPolicy
from koordlite.numa.kubelet.device_manager import NO_DEVICES, DeviceState
from koordlite.numa.kubelet.memory_manager import NO_NODES, MemoryState, first_state
from koordlite.numa.kubelet.merge import POLICIES, Options
from koordlite.numa.kubelet.requests import PodRequest, of_pod
from koordlite.numa.machine import Machine

Outcome = Literal["gets own CPUs", "keeps its CPUs", "gets other CPUs", "loses its own CPUs", "shared", "refused"]
Policy = Literal["none", "static"]


class Configuration(msgspec.Struct, frozen=True):
    """The part of kubelet's configuration that is to change."""

    policy: Policy = "none"
    reserved: CPUSet = EMPTY
    """`reservedSystemCPUs`; empty for an amount only (`systemReserved` + `kubeReserved`)."""
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    """`cpuManagerPolicyOptions` as they are written."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Contents of `cpu_manager_state`."""

    policy: str
    cpus: CPUState


class Effect(msgspec.Struct, frozen=True):
    """Effect of a restart with the other configuration on a pod that is still on the node."""

    pod: str
    outcome: Outcome
    before: CPUSet
    """CPUs it has alone; empty for one that shares."""
    after: CPUSet
    reason: str = ""
    """Reason of the refusal, as in the pod's status."""
    message: str = ""
    remains: str = ""
    """Reason why draining leaves it where it is: `DaemonSet` or `static pod`."""
    unowned: bool = False
    """Nothing makes it again once it is deleted."""
    local_data: bool = False
    """It has an emptyDir, whose content goes with it."""


class Change(msgspec.Struct, frozen=True):
    """The change as a whole."""

    effects: tuple[Effect, ...]
    """Effects in the order in which kubelet admits the pods."""
    obstacle: str
    """Kubelet's words when it finds the checkpoint; empty where it takes it over."""
    reserved: CPUSet
    """CPUs that no container gets alone."""
    shared_before: CPUSet
    shared_after: CPUSet
    allocatable_milli_before: int
    allocatable_milli_after: int
    drain: tuple[str, ...]
    """`namespace/name` of the pods that leave, first to last: best-effort work first, the highest priority last."""


def change(
    kubelet: Kubelet,
    target: Configuration,
    topology: Topology,
    pods: Iterable[objects.PodObject],
    checkpoint: Checkpoint | None,
) -> Change:
    """Plan the change from what kubelet does at present. ValueError, in its words, where it would not start."""
    machine = Machine(topology.cpus)
    policy = _static(kubelet, target, machine)
    present = checkpoint or Checkpoint(
        kubelet.cpu_manager_policy or "none",
        CPUState(
            topology.cpuset - union(own.cpus for own in kubelet.pod_cpus) - _strictly(kubelet),
            {own.uid: own.containers for own in kubelet.pod_cpus},
        ),
    )
    stays = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
    stays.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name))
    read = {pod.metadata.uid: pod_reader.from_wire(pod) for pod in stays}
    obstacle = _obstacle(present, target.policy, policy, machine)
    node = _node(kubelet, policy, topology, stays, CPUState(EMPTY) if obstacle else present.cpus)
    # A list replaces the amounts.
    milli_after = len(target.reserved) * 1000 or kubelet.reserved_milli
    milli_before = len(kubelet.listed_reserved_cpus) * 1000 or kubelet.reserved_milli
    allocatable = len(machine.all) * 1000 - milli_after
    effects, used = list[Effect](), 0
    before = {own.uid: own.cpus for own in kubelet.pod_cpus}
    for obj in stays:
        pod = read[obj.metadata.uid]
        old, request = before.get(pod.uid, EMPTY), pod.request_milli()
        answer = admit(node, _remaining(of_pod(obj), node)) if node else None
        changes: dict[str, object]
        if used + request > allocatable:
            amounts = f"requested: {request}, used: {used}, capacity: {allocatable}"
            wrong = f"Node didn't have enough resource: cpu, {amounts}"
            changes = {"outcome": "refused", "reason": "OutOfcpu", "message": wrong}
        elif answer and not answer.admitted:
            changes = {"outcome": "refused", "reason": answer.reason, "message": answer.message}
        else:
            used += request
            new = union(each.cpus for each in answer.allocations) if answer else EMPTY
            node = answer.node if answer else None
            changes = {"outcome": _outcome(old, new), "after": new}
        effects.append(msgspec.structs.replace(_undisturbed(obj, pod, old), **changes))
    own_before = union(before.values())
    return Change(
        tuple(effects),
        obstacle,
        policy.reserved if policy else EMPTY,
        topology.cpuset - own_before - _strictly(kubelet),
        node.cpus.shared if node else topology.cpuset,
        len(machine.all) * 1000 - milli_before,
        allocatable,
        _drain_order(read.values(), effects),
    )


def _static(kubelet: Kubelet, target: Configuration, machine: Machine) -> StaticPolicy | None:
    if not target.reserved <= machine.all:
        outside = target.reserved - machine.all
        raise ValueError(f"CPUs {outside} are not on this machine, which has {machine.all}")
    if target.policy == "none":
        return None
    options = CPUOptions.parse(target.options)
    options.check(machine, kubelet.topology_manager_policy or "none")
    count = len(target.reserved) or -(-kubelet.reserved_milli // 1000)
    if not count:
        raise ValueError("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
    if count >= len(machine.all):
        raise ValueError(f"{count} of {len(machine.all)} CPUs would be reserved, and none left for containers")
    if target.reserved:
        return StaticPolicy(machine, target.reserved, options)
    return StaticPolicy.reserving(machine, count, options)


def _node(
    kubelet: Kubelet, policy: StaticPolicy | None, topology: Topology, pods: Iterable[objects.PodObject], cpus: CPUState
) -> KubeletNode | None:
    if policy is None:
        return None
    by_name = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
    memory, devices = _memory_and_devices(kubelet.resources, topology, by_name)
    node = empty_node(
        topology,
        policy=next((word for word in POLICIES if word == kubelet.topology_manager_policy), "none"),
        scope="pod" if kubelet.topology_manager_scope == "pod" else "container",
        reserved=policy.reserved,
        cpu_options=policy.options,
        options=Options.parse(kubelet.topology_manager_options),
        memory=memory,
        devices=devices,
    )
    return msgspec.structs.replace(node, cpus=cpus) if cpus.shared or cpus.assigned else node


def _remaining(request: PodRequest, node: KubeletNode) -> PodRequest:
    """The request without memory and devices of init containers, where kubelet lists what the pod has: they are of
    ended containers, which it no longer lists, and it does not allocate them again when it restarts."""
    has = {*node.memory.assigned.get(request.uid, {}), *node.devices.assigned.get(request.uid, {})}
    if not has:
        return request
    containers = (
        msgspec.structs.replace(each, memory={}, devices={}) if each.kind == "init" and each.name not in has else each
        for each in request.containers
    )
    return PodRequest(request.uid, tuple(containers))


def _memory_and_devices(
    resources: KubeletResources | None, topology: Topology, pods: Mapping[tuple[str, str], objects.PodObject]
) -> tuple[MemoryState, DeviceState]:
    """Memory and devices as kubelet lists them: pods that stay keep theirs over a restart."""
    if resources is None:
        return NO_NODES, NO_DEVICES
    memory = first_state([node.id for node in topology.nodes], resources.allocatable.memory)
    uids = {pod.metadata.uid for pod in pods.values()}
    devices: dict[str, dict[str, frozenset[int]]] = {}
    for each in resources.allocatable.devices:
        by_id = devices.setdefault(each.resource, {})
        by_id |= {id_: by_id.get(id_, frozenset()) | set(each.nodes) for id_ in each.ids}
    assigned: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
    for pod in resources.pods:
        obj = pods.get((pod.namespace, pod.name))
        uid = pod.uid or (obj.metadata.uid if obj else "")
        if uid not in uids:
            continue
        for name, own in pod.containers.items():
            blocks = tuple(block for block in own.memory if set(block.nodes) <= memory.nodes.keys())
            for block in blocks:
                memory = memory.reserving(block, block.size)
            memory = memory.with_blocks(uid, name, blocks) if blocks else memory
            ids = assigned.setdefault(uid, {}).setdefault(name, {})
            for each in own.devices:
                ids[each.resource] = ids.get(each.resource, frozenset()) | set(each.ids)
    return memory, DeviceState(devices, assigned)


def _obstacle(present: Checkpoint, word: Policy, policy: StaticPolicy | None, machine: Machine) -> str:
    if present.policy and present.policy != word:
        return f'configured policy "{word}" differs from state checkpoint policy "{present.policy}"'
    shared, assigned = present.cpus.shared, present.cpus.assigned
    if policy is None or not (shared or assigned):
        return ""
    total = shared | union(cpus for own in assigned.values() for cpus in own.values())
    strict = policy.options.strict_reservation
    expected = machine.all - policy.reserved if strict else machine.all
    why = ""
    if not shared:
        why = "default cpuset cannot be empty"
    elif strict and shared & policy.reserved:
        both = shared & policy.reserved
        why = f'some of strictly reserved cpus: "{both}" are present in defaultCpuSet: "{shared}"'
    elif not strict and not policy.reserved <= shared:
        why = f'not all reserved cpus: "{policy.reserved}" are present in defaultCpuSet: "{shared}"'
    elif total != expected:
        why = f'current set of available CPUs "{expected}" doesn\'t match with CPUs in state "{total}"'
    return why


def _undisturbed(obj: objects.PodObject, pod: Pod, own: CPUSet) -> Effect:
    """The pod as it is at present, before kubelet is asked."""
    owners = {owner.kind for owner in obj.metadata.owner_references or ()}
    static = keys.CONFIG_MIRROR in pod.annotations or "Node" in owners
    return Effect(
        pod.key,
        "shared",
        own,
        EMPTY,
        remains="static pod" if static else "DaemonSet" if "DaemonSet" in owners else "",
        unowned=not owners and not static,
        local_data=any(volume.empty_dir is not None for volume in obj.spec.volumes or ()),
    )


def _outcome(old: CPUSet, new: CPUSet) -> Outcome:
    if not new:
        return "loses its own CPUs" if old else "shared"
    if not old:
        return "gets own CPUs"
    return "keeps its CPUs" if old == new else "gets other CPUs"


def _drain_order(pods: Iterable[Pod], effects: Iterable[Effect]) -> tuple[str, ...]:
    remaining = {effect.pod for effect in effects if effect.remains}
    leaving = [pod for pod in pods if pod.key not in remaining]
    return tuple(
        pod.key for pod in sorted(leaving, key=lambda pod: (not pod.is_best_effort, pod.priority_value, pod.key))
    )


def _strictly(kubelet: Kubelet) -> CPUSet:
    """CPUs that containers are kept off at present."""
    return kubelet.reserved_cpus if CPUOptions.parse(kubelet.cpu_manager_options).strict_reservation else EMPTY
