"""Publications on the Node and on its NodeResourceTopology: each in one go and by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Never

from koordlite.apply.kind import C, E, Kind, Undoing, Work
from koordlite.changes import published
from koordlite.changes.published import NodeAnnotation, NodeCondition, NodeResource, ZoneAmount
from koordlite.model.change import Change, ClusterChange
from koordlite.model.errors import InputError, kernel_words
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep
from koordlite.ports import Cluster

Before = Callable[[C, Snapshot, str], E]
"""The entry of what the cluster shows at the place of a change, for the strategy that wants it."""


class Published(Kind[C, E]):
    """A field of one of the two objects. What is refused of one object is not reported of the other, which stands then,
    and is not due again."""

    undo_rank = 50

    def __init__(
        self,
        change: type[C],
        together: str,
        *,
        before: Before[C, E] | None = None,
        is_amount: bool = False,
    ) -> None:
        self.change, self.is_amount, self._before = change, is_amount, before
        self.carried_out_with = self.undone_with = together

    def originals(self, change: C, strategy: str, work: Work) -> Iterator[E]:
        """The present value; nothing of a description, which is not undone."""
        if self._before:
            yield self._before(change, work.snapshot, strategy)

    def carry_out(self, changes: Sequence[C], work: Work) -> Iterator[AppliedStep]:
        """All of them in one go."""
        started = work.host.clock.monotonic()
        error = _publish(work.cluster, changes)
        seconds = work.host.clock.monotonic() - started
        for change in changes:
            if error:
                work.foreign.unsure(change.place)
            else:
                work.foreign.wrote(change)
            yield AppliedStep(change.place, change.describe(), not error, error, seconds)

    def undo(self, entries: Sequence[E], back: Undoing) -> Iterable[AppliedStep]:
        """Publish what stood there before us; without a cluster it stays in the journal."""
        if back.cluster is None:
            return []
        error = _publish(back.cluster, [entry.undoing() for entry in entries])
        return [AppliedStep(entry.place, entry.describe(), not error, error) for entry in entries]


NODE_RESOURCE = Published[published.NodeResourceChange, NodeResource](
    published.NodeResourceChange,
    "node",
    before=lambda change, snapshot, strategy: NodeResource(
        resource=change.resource, previous=change.present(snapshot), strategy=strategy
    ),
    is_amount=True,
)
NODE_ANNOTATION = Published[published.NodeAnnotationChange, NodeAnnotation](
    published.NodeAnnotationChange,
    "node",
    before=lambda change, snapshot, strategy: NodeAnnotation(
        key=change.key, previous=change.present(snapshot), strategy=strategy
    ),
)
NODE_CONDITION = Published[published.NodeConditionChange, NodeCondition](
    published.NodeConditionChange,
    "node",
    before=lambda change, _snapshot, strategy: NodeCondition(type=change.type, strategy=strategy),
)
TOPOLOGY_ANNOTATION = Published[published.TopologyChange, Never](published.TopologyChange, "topology")
TOPOLOGY_LABEL = Published[published.TopologyLabelChange, Never](published.TopologyLabelChange, "topology")
ZONES = Published[published.ZonesChange, Never](published.ZonesChange, "topology")
ZONE_RESOURCE = Published[published.ZoneResourceChange, ZoneAmount](
    published.ZoneResourceChange,
    "topology",
    before=lambda change, snapshot, strategy: ZoneAmount(
        zone=change.zone,
        resource=change.resource,
        previous=snapshot.published.zone_resource(change.zone, change.resource),
        strategy=strategy,
    ),
    is_amount=True,
)


def _publish(cluster: Cluster, changes: Sequence[Change]) -> str:
    """Reason why it was refused; empty when it was not."""
    try:
        cluster.publish([change for change in changes if isinstance(change, ClusterChange)])
    except OSError as refused:
        return kernel_words(refused)
    except InputError as refused:
        return str(refused)
    return ""
