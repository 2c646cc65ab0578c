"""Which nodes reach the volume of a claim: where it is, or where it may be made.

Source: kube-scheduler's VolumeBinding and VolumeZone filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordlite.model import wire, wire_volumes

_ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_SEPARATOR = "__"
"""Between the zones of one label of a volume."""


def nodes(
    claims: Iterable[wire_volumes.PersistentVolumeClaimObject],
    volumes: Iterable[wire_volumes.PersistentVolumeObject],
    classes: Iterable[wire_volumes.StorageClassObject],
) -> dict[str, tuple[wire.NodeSelector, ...]]:
    """Selectors by claim, `namespace/name`, that a node must all match. A claim without an entry is no obstacle."""
    by_volume = {volume.metadata.name: tuple(_of_volume(volume)) for volume in volumes}
    by_class = {found.metadata.name: tuple(_of_class(found)) for found in classes}
    found: dict[str, tuple[wire.NodeSelector, ...]] = {}
    for claim in claims:
        bound = claim.spec.volume_name
        where = by_volume.get(bound, ()) if bound else by_class.get(claim.spec.storage_class_name or "", ())
        if where:
            found[f"{claim.metadata.namespace}/{claim.metadata.name}"] = where
    return found


def _of_volume(volume: wire_volumes.PersistentVolumeObject) -> Iterator[wire.NodeSelector]:
    affinity = volume.spec.node_affinity
    if affinity and affinity.required:
        yield affinity.required
    labels = volume.metadata.labels or {}
    lines = [
        wire.LabelRequirement(key=key, operator="In", values=tuple(labels[key].split(_SEPARATOR)))
        for key in _ZONES
        if key in labels
    ]
    if lines:
        yield wire.NodeSelector(node_selector_terms=(wire.NodeSelectorTerm(match_expressions=tuple(lines)),))


def _of_class(found: wire_volumes.StorageClassObject) -> Iterator[wire.NodeSelector]:
    """A volume that is made where the pod starts is made only where its class allows."""
    if found.volume_binding_mode == "WaitForFirstConsumer" and found.allowed_topologies:
        yield wire.NodeSelector(node_selector_terms=tuple(map(_term, found.allowed_topologies)))


def _term(topology: wire_volumes.TopologyTerm) -> wire.NodeSelectorTerm:
    wanted = topology.match_label_expressions or ()
    lines = (wire.LabelRequirement(key=line.key, operator="In", values=line.values) for line in wanted)
    return wire.NodeSelectorTerm(match_expressions=tuple(lines))
