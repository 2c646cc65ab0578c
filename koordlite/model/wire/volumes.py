"""Volumes, claims and storage classes as they come off the wire."""

from __future__ import annotations

from koordlite.model.wire.objects import KubeObject, LabelRequirement, NodeSelector, WireObject


class PersistentVolumeClaimSpec(WireObject, frozen=True):
    """spec of a PersistentVolumeClaim."""

    storage_class_name: str | None = None
    volume_name: str | None = None
    """The volume it is bound to; missing or empty before that."""


class PersistentVolumeClaimObject(KubeObject, frozen=True):
    """A v1 PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class VolumeNodeAffinity(WireObject, frozen=True):
    """Nodes that reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(WireObject, frozen=True):
    """spec of a PersistentVolume; only from where it can be reached."""

    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolumeObject(KubeObject, frozen=True):
    """A v1 PersistentVolume; cluster-scoped."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologyTerm(WireObject, frozen=True):
    """Labels that a node must have, all of them."""

    match_label_expressions: tuple[LabelRequirement, ...] | None = None


class StorageClassObject(KubeObject, frozen=True):
    """A storage.k8s.io/v1 StorageClass."""

    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None
