"""Publications on the Node and on its NodeResourceTopology: each in one go and by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from koordlite.apply.kind import Kind, Undoing, Work
from koordlite.changes import published
from koordlite.model.change import Change, ClusterChange, Entry
from koordlite.model.errors import InputError, kernel_words
from koordlite.model.status import AppliedStep
from koordlite.ports import Cluster


class Published(Kind[ClusterChange, Entry]):
    """A field of one of the two objects. What is refused of one object is not reported of the other, which stands then,
    and is not due again."""

    undo_rank = 50

    def __init__(self, change: type[ClusterChange], together: str, *, is_amount: bool = False) -> None:
        self.change, self.is_amount = change, is_amount
        self.carried_out_with = self.undone_with = together

    def originals(self, change: ClusterChange, strategy: str, work: Work) -> Iterator[Entry]:
        """The present value; nothing of a description, which is not undone."""
        entry = change.before(work.snapshot, strategy)
        if entry is not None:
            yield entry

    def carry_out(self, changes: Sequence[ClusterChange], work: Work) -> Iterator[AppliedStep]:
        """All of them in one go."""
        started = work.host.clock.monotonic()
        error = _publish(work.cluster, changes)
        seconds = work.host.clock.monotonic() - started
        for change in changes:
            if error:
                work.foreign.forget_value(change.place)
            else:
                work.foreign.wrote(change)
            yield AppliedStep(change.place, change.describe(), not error, error, seconds)

    def undo(self, entries: Sequence[Entry], back: Undoing) -> Iterable[AppliedStep]:
        """Publish what stood there before us; without a cluster it stays in the journal."""
        if back.cluster is None:
            return []
        error = _publish(back.cluster, [entry.undoing() for entry in entries])
        return [AppliedStep(entry.place, entry.describe(), not error, error) for entry in entries]


NODE_RESOURCE = Published(published.NodeResourceChange, "node", is_amount=True)
NODE_ANNOTATION = Published(published.NodeAnnotationChange, "node")
NODE_CONDITION = Published(published.NodeConditionChange, "node")
TOPOLOGY_ANNOTATION = Published(published.TopologyChange, "topology")
TOPOLOGY_LABEL = Published(published.TopologyLabelChange, "topology")
ZONES = Published(published.ZonesChange, "topology")
ZONE_RESOURCE = Published(published.ZoneResourceChange, "topology", is_amount=True)


def _publish(cluster: Cluster, changes: Sequence[Change]) -> str:
    """Reason why it was refused; empty when it was not."""
    try:
        cluster.publish([change for change in changes if isinstance(change, ClusterChange)])
    except OSError as refused:
        return kernel_words(refused)
    except InputError as refused:
        return str(refused)
    return ""
