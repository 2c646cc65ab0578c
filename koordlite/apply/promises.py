"""What was promised on the Node and in its zones: noted before the first time, and taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordlite.apply import writer
from koordlite.changes.node_annotation import NodeAnnotation, NodeAnnotationChange
from koordlite.changes.node_resource import NodeResource, NodeResourceChange
from koordlite.changes.zone_resource import ZoneAmount, ZoneResourceChange
from koordlite.model.change import Change, ClusterChange, NodeChange
from koordlite.model.errors import InputError
from koordlite.model.place import Place
from koordlite.model.snapshot import Snapshot
from koordlite.model.status.outcome import AppliedStep
from koordlite.ports import Cluster

ClusterEntry = NodeResource | NodeAnnotation | ZoneAmount


def found(change: Change, strategy: str, seen: Snapshot) -> Iterator[ClusterEntry]:
    """What the cluster holds where `change` is about to promise something; descriptions are not undone."""
    match change:
        case NodeResourceChange(resource):
            amount = seen.published.node_resources.get(resource)
            yield NodeResource(resource=resource, previous=amount, strategy=strategy)
        case NodeAnnotationChange(key):
            text = seen.node.annotations.get(key) if seen.node else None
            yield NodeAnnotation(key=key, previous=text, strategy=strategy)
        case ZoneResourceChange(zone, resource):
            part = seen.published.zone_resource(zone, resource)
            yield ZoneAmount(zone=zone, resource=resource, previous=part, strategy=strategy)


def publish(cluster: Cluster, changes: Sequence[ClusterChange]) -> dict[Place, str]:
    """Publish, and say by place why what was not published was not.

    The Node and its topology each in one go and by itself: what is refused of one is not reported for the other, which
    stands then, and is not due again.
    """
    node = [change for change in changes if isinstance(change, NodeChange)]
    topology = [change for change in changes if not isinstance(change, NodeChange)]
    return {**_together(cluster, node), **_together(cluster, topology)}


def _together(cluster: Cluster, changes: Sequence[ClusterChange]) -> dict[Place, str]:
    try:
        if changes:
            cluster.publish(changes)
    except OSError as refused:
        return {change.place: writer.words(refused) for change in changes}
    except InputError as refused:
        return {change.place: str(refused) for change in changes}
    return {}


def take_back(cluster: Cluster, entries: Sequence[ClusterEntry]) -> list[AppliedStep]:
    """Publish what stood there before us."""
    errors = publish(cluster, [_undoing(entry) for entry in entries])
    found = [(entry, errors.get(entry.place, "")) for entry in entries]
    return [AppliedStep(entry.place, describe(entry), not error, error) for entry, error in found]


def describe(entry: ClusterEntry) -> str:
    """What comes back, in one line."""
    if entry.previous is None:
        return "(removed)"
    return str(entry.previous.allocatable if isinstance(entry, ZoneAmount) else entry.previous)


def _undoing(entry: ClusterEntry) -> ClusterChange:
    match entry:
        case NodeResource(resource=resource, previous=amount):
            return NodeResourceChange(resource, amount)
        case NodeAnnotation(key=key, previous=text):
            return NodeAnnotationChange(key, text)
        case ZoneAmount(zone=zone, resource=resource, previous=part):
            return ZoneResourceChange(zone, resource, part)
