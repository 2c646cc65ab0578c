"""The eviction of a pod: asked of the cluster, never undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Never

from koordlite.apply.kind import Kind, Work
from koordlite.changes.eviction import PLACE, EvictPod
from koordlite.model.status import AppliedStep


class Eviction(Kind[EvictPod, Never]):
    """Whoever is silent is not asked for the next pod."""

    change = EvictPod
    places = (PLACE,)

    def carry_out(self, changes: Sequence[EvictPod], work: Work) -> Iterator[AppliedStep]:
        """Ask for each pod."""
        yield from work.evictions.take(changes, time=work.seen.time)


KIND = Eviction()
