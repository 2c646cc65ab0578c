"""Two producers of one NodeResourceTopology: koordlet, NFD's topology-updater and resource-topology-exporter write the
same object. Who wrote the zones last is in the object's managedFields."""

from __future__ import annotations

from collections.abc import Iterable

from koordlite.formulas.topology import topology_diff
from koordlite.model.picture.published import OtherWriter
from koordlite.model.wire.objects import ManagedFields

OURS = "koordlite"
"""The API server takes the name from the first word of the user agent."""
_PEOPLE = "kubectl"
"""Manager of edits by hand, which make no producer."""


def last(entries: Iterable[ManagedFields]) -> OtherWriter | None:
    """The program that wrote the zones last; None where it was this one, a person, or nobody."""
    writers = [each for each in entries if "f:zones" in each.fields and not each.manager.startswith(_PEOPLE)]
    newest = max(writers, key=lambda each: (each.time, each.manager.startswith(OURS)), default=None)
    if newest is None or newest.manager.startswith(OURS):
        return None
    annotations = newest.written("metadata", "annotations").intersection(topology_diff.ANNOTATIONS)
    return OtherWriter(manager=newest.manager, time=newest.time, annotations=annotations)


def at_work(current: OtherWriter | None, at_start: OtherWriter | None) -> OtherWriter | None:
    """`current`, unless it stood there when this run first saw the object: that program may be long gone. One at work
    writes again."""
    stays = current and at_start and (current.manager, current.time) == (at_start.manager, at_start.time)
    return None if stays else current
