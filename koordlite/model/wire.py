"""Kubernetes objects as they come off the wire: only the fields somebody decides on, decoded straight from JSON.

`null` and a missing field mean the same, unknown fields are ignored. Quantities stay text here; `pod` and `node` turn
these shapes into the values the rules judge.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Object(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Common settings of all shapes."""


class OwnerReference(_Object, frozen=True):
    """Who made an object, and is waited for when it goes."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""
    block_owner_deletion: bool | None = None


class ObjectMeta(_Object, frozen=True):
    """metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    resource_version: str = ""
    owner_references: tuple[OwnerReference, ...] | None = None


class Resources(_Object, frozen=True):
    """resources of a container; amounts are quantities as text (Kubernetes also accepts JSON numbers)."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ContainerPort(_Object, frozen=True):
    """A port of a container; only host ports matter for placement."""

    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class Container(_Object, frozen=True):
    """A container of a pod's spec."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] | None = None


class ContainerStatus(_Object, frozen=True):
    """State of a container. `state` has one of the keys waiting, running, terminated."""

    name: str = ""
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: dict[str, Any] | None = None
    restart_count: int = 0


class Toleration(_Object, frozen=True):
    """A toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class LabelRequirement(_Object, frozen=True):
    """One line of a selector. `operator`: In, NotIn, Exists, DoesNotExist; for nodes also Gt and Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(_Object, frozen=True):
    """A label selector: every label and every requirement must hold; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelRequirement, ...] | None = None


class NodeSelectorTerm(_Object, frozen=True):
    """One term of a node affinity: all its lines must hold; a term without lines matches no node."""

    match_expressions: tuple[LabelRequirement, ...] | None = None
    match_fields: tuple[LabelRequirement, ...] | None = None


class NodeSelector(_Object, frozen=True):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class NodeAffinity(_Object, frozen=True):
    """The part of a node affinity that must hold."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(_Object, frozen=True):
    """Pods that `label_selector` selects, in the domain of nodes that share the label `topology_key`."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


class PodAntiAffinity(_Object, frozen=True):
    """The part of a pod anti-affinity that must hold."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Object, frozen=True):
    """Where a pod must, and must not, be placed; preferences are not read."""

    node_affinity: NodeAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Volume(_Object, frozen=True):
    """A volume; only what guards ask: is it local, is it a claim."""

    name: str = ""
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None


class PodSpec(_Object, frozen=True):
    """spec of a pod."""

    node_name: str = ""
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: Resources | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None


class PodStatus(_Object, frozen=True):
    """status of a pod."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    qos_class: str | None = None
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class PodObject(_Object, frozen=True):
    """A v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(_Object, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Object, frozen=True):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class Condition(_Object, frozen=True):
    """One condition of a node."""

    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None


class NodeStatus(_Object, frozen=True):
    """status of a node."""

    capacity: dict[str, str | int | float] | None = None
    allocatable: dict[str, str | int | float] | None = None
    conditions: tuple[Condition, ...] | None = None


class NodeObject(_Object, frozen=True):
    """A v1 Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ConfigMapObject(_Object, frozen=True):
    """A v1 ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class ZoneResource(_Object, frozen=True, omit_defaults=False):
    """One resource of a NUMA zone."""

    name: str = ""
    capacity: str | int = "0"
    allocatable: str | int = "0"
    available: str | int = "0"


class Zone(_Object, frozen=True):
    """A zone of a NodeResourceTopology; `node-0` of type `Node` is NUMA node 0."""

    name: str = ""
    type: str = ""
    resources: tuple[ZoneResource, ...] | None = None
    costs: tuple[dict[str, Any], ...] | None = None
    attributes: tuple[dict[str, str], ...] | None = None


class NRTObject(_Object, frozen=True):
    """A topology.node.k8s.io NodeResourceTopology; cluster-scoped, named after its node."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] | None = None
    zones: tuple[Zone, ...] | None = None
    attributes: tuple[dict[str, str], ...] | None = None


class PodDisruptionBudgetSpec(_Object, frozen=True):
    """spec of a PodDisruptionBudget; a missing selector selects no pod, an empty one every pod of the namespace."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(_Object, frozen=True):
    """status of a PodDisruptionBudget."""

    disruptions_allowed: int = 0


class PodDisruptionBudgetObject(_Object, frozen=True):
    """A policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class NamespaceObject(_Object, frozen=True):
    """A v1 Namespace."""

    metadata: ObjectMeta = ObjectMeta()


class PriorityClassObject(_Object, frozen=True):
    """A scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool | None = None


class PersistentVolumeClaimSpec(_Object, frozen=True):
    """spec of a PersistentVolumeClaim."""

    storage_class_name: str | None = None


class PersistentVolumeClaimObject(_Object, frozen=True):
    """A v1 PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
