"""What was promised on the Node and in its zones: noted before the first time, and taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordlite.apply import writer
from koordlite.host.journal import ClusterEntry, NodeAnnotation, NodeResource, ZoneAmount
from koordlite.model.decision import (
    Change,
    ClusterChange,
    NodeAnnotationChange,
    NodeResourceChange,
    ZoneResourceChange,
)
from koordlite.model.errors import InputError
from koordlite.model.outcome import AppliedStep
from koordlite.model.snapshot import Snapshot
from koordlite.ports import Cluster


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


def take_back(cluster: Cluster, entries: Sequence[ClusterEntry]) -> list[AppliedStep]:
    """Publish what stood there before us; one refusal is every entry's, since they go in one go."""
    if not entries:
        return []
    error = ""
    try:
        cluster.publish([_undoing(entry) for entry in entries])
    except OSError as refused:
        error = writer.words(refused)
    except InputError as refused:
        error = str(refused)
    return [AppliedStep(entry.place, describe(entry), not error, error) for entry in entries]


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
