"""Kubernetes objects as they come off the wire: only the fields that decisions need, decoded straight from JSON.

`null` and a missing field mean the same, unknown fields are ignored. Quantities stay text here; `pod` and `node` turn
these shapes into the values the rules judge.
"""

from __future__ import annotations

from typing import Any

import msgspec


class WireObject(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """An object or a part of one; what all of them have in common."""


class OwnerReference(WireObject, frozen=True):
    """Owner of an object, which is waited for when it goes."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""
    block_owner_deletion: bool | None = None


class ObjectMeta(WireObject, frozen=True):
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


class KubeObject(WireObject, frozen=True):
    """An object as a whole."""

    metadata: ObjectMeta = ObjectMeta()


class Resources(WireObject, frozen=True):
    """resources of a container; amounts are quantities as text (Kubernetes also accepts JSON numbers)."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ContainerPort(WireObject, frozen=True):
    """A port of a container; only host ports matter for placement."""

    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class Container(WireObject, frozen=True):
    """A container of a pod's spec."""

    name: str = ""
    image: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] | None = None


class ContainerStatus(WireObject, frozen=True):
    """State of a container. `state` has one of the keys waiting, running, terminated."""

    name: str = ""
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: dict[str, Any] | None = None
    restart_count: int = 0
    resources: Resources | None = None
    """Actual resources of the container; less or more than its spec while it is resized in place."""
    allocated_resources: dict[str, str | int | float] | None = None
    """Requests that the node has granted."""


class Toleration(WireObject, frozen=True):
    """A toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class LabelRequirement(WireObject, frozen=True):
    """One line of a selector. `operator`: In, NotIn, Exists, DoesNotExist; for nodes also Gt and Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(WireObject, frozen=True):
    """A label selector: every label and every requirement must hold; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelRequirement, ...] | None = None


class NodeSelectorTerm(WireObject, frozen=True):
    """One term of a node affinity: all its lines must hold; a term without lines matches no node."""

    match_expressions: tuple[LabelRequirement, ...] | None = None
    match_fields: tuple[LabelRequirement, ...] | None = None


class NodeSelector(WireObject, frozen=True):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class PreferredNodes(WireObject, frozen=True):
    """Nodes a pod would rather be on, and how much rather: 1 to 100."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(WireObject, frozen=True):
    """Required and preferred node affinity."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodes, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(WireObject, frozen=True):
    """Pods that `label_selector` selects, in the domain of nodes that share the label `topology_key`."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


class PodAffinity(WireObject, frozen=True):
    """The part of a pod affinity, or anti-affinity, that must hold."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(WireObject, frozen=True):
    """Required affinity and anti-affinity of a pod; of preferences, those for nodes."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(WireObject, frozen=True):
    """Spread of the pods that `label_selector` selects over the values of the node label `topology_key`."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    """DoNotSchedule, or ScheduleAnyway."""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    """Labels whose value must be the pod's own, too."""
    node_affinity_policy: str | None = None
    """Honor (the default): only nodes that the pod's node selector and affinity allow count; Ignore: all."""
    node_taints_policy: str | None = None
    """Honor: only nodes whose taints the pod tolerates count; Ignore (the default): all."""
    min_domains: int | None = None


class Volume(WireObject, frozen=True):
    """A volume; only what guards ask: is it local, is it a claim."""

    name: str = ""
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None


class PodSpec(WireObject, frozen=True):
    """spec of a pod."""

    node_name: str = ""
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: Resources | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    termination_grace_period_seconds: int | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None
    scheduling_gates: tuple[dict[str, Any], ...] | None = None
    eviction_responders: tuple[dict[str, Any], ...] | None = None
    host_network: bool | None = None


class PodCondition(WireObject, frozen=True):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PodStatus(WireObject, frozen=True):
    """status of a pod."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    qos_class: str | None = None
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    ephemeral_container_statuses: tuple[ContainerStatus, ...] | None = None
    conditions: tuple[PodCondition, ...] | None = None
    nominated_node_name: str | None = None
    """Node that keeps room for it, while it is not bound."""
    resources: Resources | None = None
    """Actual resources of the pod as a whole, where its spec gives resources for the whole."""
    allocated_resources: dict[str, str | int | float] | None = None


class PodObject(KubeObject, frozen=True):
    """A v1 Pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(WireObject, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(WireObject, frozen=True):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class Condition(WireObject, frozen=True):
    """One condition of a node."""

    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None


class NodeAddress(WireObject, frozen=True):
    """One address of a node; `type` is InternalIP, Hostname …"""

    type: str = ""
    address: str = ""


class NodeStatus(WireObject, frozen=True):
    """status of a node."""

    capacity: dict[str, str | int | float] | None = None
    allocatable: dict[str, str | int | float] | None = None
    addresses: tuple[NodeAddress, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class NodeObject(KubeObject, frozen=True):
    """A v1 Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def as_owner(self) -> OwnerReference:
        """The reference of an object that goes when the Node goes.
        `blockOwnerDeletion` is left out: OwnerReferencesPermissionEnforcement allows it only to those who may update
        nodes/finalizers, and nothing needs it."""
        meta = self.metadata
        return OwnerReference(api_version="v1", kind="Node", name=meta.name, uid=meta.uid, controller=True)


class ConfigMapObject(KubeObject, frozen=True):
    """A v1 ConfigMap."""

    data: dict[str, str] | None = None


class ZoneResource(WireObject, frozen=True, omit_defaults=False):
    """One resource of a NUMA zone."""

    name: str = ""
    capacity: str | int = "0"
    allocatable: str | int = "0"
    available: str | int = "0"


class Zone(WireObject, frozen=True):
    """A zone of a NodeResourceTopology; `node-0` of type `Node` is NUMA node 0."""

    name: str = ""
    type: str = ""
    parent: str = ""
    resources: tuple[ZoneResource, ...] | None = None
    costs: tuple[dict[str, Any], ...] | None = None
    attributes: tuple[dict[str, str], ...] | None = None


class NRTObject(WireObject, frozen=True):
    """A topology.node.k8s.io NodeResourceTopology; cluster-scoped, named after its node."""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] | None = None
    zones: tuple[Zone, ...] | None = None
    attributes: tuple[dict[str, str], ...] | None = None


class ManagedFields(WireObject, frozen=True):
    """Fields that one writer last wrote of an object, as the API server keeps it."""

    manager: str = ""
    operation: str = ""
    time: str = ""
    subresource: str = ""
    fields: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")

    def written(self, *path: str) -> frozenset[str]:
        """The keys it wrote in the map at `path`; none where it wrote nothing there."""
        fields: Any = self.fields
        for name in path:
            fields = fields.get(f"f:{name}") if isinstance(fields, dict) else None
        return frozenset(key.removeprefix("f:") for key in fields) if isinstance(fields, dict) else frozenset()


class MetaWithWriters(ObjectMeta, frozen=True):
    """metadata with who wrote what."""

    managed_fields: tuple[ManagedFields, ...] | None = None


class WrittenNodeObject(NodeObject, frozen=True):
    """A Node with who wrote what of it: the agent's own."""

    metadata: MetaWithWriters = MetaWithWriters()


class WrittenNRTObject(NRTObject, frozen=True):
    """A NodeResourceTopology with who wrote what of it: more than those need who read those of a whole cluster."""

    metadata: MetaWithWriters = MetaWithWriters()


class PodDisruptionBudgetSpec(WireObject, frozen=True):
    """spec of a PodDisruptionBudget; a missing selector selects no pod, an empty one every pod of the namespace."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(WireObject, frozen=True):
    """status of a PodDisruptionBudget."""

    disruptions_allowed: int = 0


class PodDisruptionBudgetObject(KubeObject, frozen=True):
    """A policy/v1 PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class NamespaceObject(KubeObject, frozen=True):
    """A v1 Namespace."""


class PriorityClassObject(KubeObject, frozen=True):
    """A scheduling.k8s.io/v1 PriorityClass."""

    value: int = 0
    global_default: bool | None = None
