"""The nodes that reach the volume of a claim: where it is, or where it may be made.

Source: kube-scheduler's VolumeBinding and VolumeZone filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from descheduler.framework import PodView
from descheduler.picture.templates import SpecGroup
from koordlite.model.wire import objects
from koordlite.model.wire import volumes as wire_volumes

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
) -> dict[str, tuple[objects.NodeSelector, ...]]:
    """Selectors by claim, `namespace/name`, that a node must all match. A claim without an entry is no obstacle."""
    by_volume = {volume.metadata.name: tuple(_of_volume(volume)) for volume in volumes}
    by_class = {found.metadata.name: tuple(_of_class(found)) for found in classes}
    found: dict[str, tuple[objects.NodeSelector, ...]] = {}
    for claim in claims:
        bound = claim.spec.volume_name
        where = by_volume.get(bound, ()) if bound else by_class.get(claim.spec.storage_class_name or "", ())
        if where:
            found[f"{claim.metadata.namespace}/{claim.metadata.name}"] = where
    return found


def notes(
    groups: Iterable[SpecGroup],
    claims: Mapping[tuple[str, str], wire_volumes.PersistentVolumeClaimObject],
    volumes: Mapping[tuple[str, str], wire_volumes.PersistentVolumeObject],
) -> Iterator[str]:
    """Claims of pods of which nobody can say where their volumes are, by (namespace, name) what there is: pods that
    have them are taken for fitting wherever the rest of them fits."""
    using = [one for group in groups if group.first.object.spec.volumes for one in group.pods if not one.pod.finished]
    unknown = sorted({claim for pod in using for claim in _used(pod)} - claims.keys())
    if unknown:
        words = f"{len(unknown)} volume claims of pods are not there, such as {'/'.join(unknown[0])}"
        yield f"{words}: which nodes reach their volumes is not asked; `kubectl get pvc,pv,storageclasses` has them"
    names = {volume for _, volume in volumes}
    lost = sorted({name for one in claims.values() if (name := one.spec.volume_name) and name not in names})
    if lost:
        yield f"{len(lost)} volumes of claims are not there, such as {lost[0]}: which nodes reach them is not asked"


def _used(pod: PodView) -> Iterator[tuple[str, str]]:
    for volume in pod.object.spec.volumes or ():
        name = (volume.persistent_volume_claim or {}).get("claimName")
        if name:
            yield pod.pod.namespace, name


def _of_volume(volume: wire_volumes.PersistentVolumeObject) -> Iterator[objects.NodeSelector]:
    affinity = volume.spec.node_affinity
    if affinity and affinity.required:
        yield affinity.required
    labels = volume.metadata.labels or {}
    lines = [
        objects.LabelRequirement(key=key, operator="In", values=tuple(labels[key].split(_SEPARATOR)))
        for key in _ZONES
        if key in labels
    ]
    if lines:
        yield objects.NodeSelector(node_selector_terms=(objects.NodeSelectorTerm(match_expressions=tuple(lines)),))


def _of_class(found: wire_volumes.StorageClassObject) -> Iterator[objects.NodeSelector]:
    """A volume that is made where the pod starts is made only where its class allows."""
    if found.volume_binding_mode == "WaitForFirstConsumer" and found.allowed_topologies:
        yield objects.NodeSelector(node_selector_terms=tuple(map(_term, found.allowed_topologies)))


def _term(topology: wire_volumes.TopologyTerm) -> objects.NodeSelectorTerm:
    wanted = topology.match_label_expressions or ()
    lines = (objects.LabelRequirement(key=line.key, operator="In", values=line.values) for line in wanted)
    return objects.NodeSelectorTerm(match_expressions=tuple(lines))
