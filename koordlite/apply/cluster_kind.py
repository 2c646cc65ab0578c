"""What kinds of changes of the Node and of its NodeResourceTopology have in common: they are published together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from koordlite.apply import writer
from koordlite.apply.kind import C, E, Kind, Undoing, Work
from koordlite.model.change import Change, ClusterChange
from koordlite.model.errors import InputError
from koordlite.model.status import AppliedStep
from koordlite.ports import Cluster


class ClusterKind(Kind[C, E]):
    """The Node and its topology are published each in one go and by itself: what is refused of one is not reported of
    the other, which stands then, and is not due again."""

    undo_rank = 50

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


class NodeKind(ClusterKind[C, E]):
    """A field of the Node."""

    carried_out_with = undone_with = "node"


class TopologyKind(ClusterKind[C, E]):
    """A part of the node's NodeResourceTopology."""

    carried_out_with = undone_with = "topology"


def _publish(cluster: Cluster, changes: Sequence[Change]) -> str:
    """Why it was refused; empty when it was not."""
    try:
        cluster.publish([change for change in changes if isinstance(change, ClusterChange)])
    except OSError as refused:
        return writer.words(refused)
    except InputError as refused:
        return str(refused)
    return ""
