"""Use of the node over longer times and by NUMA node, as a NodeMetric reports it. Kept only while one is reported."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.picture.usage import Use


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How use was distributed over a time."""

    mean: Use
    percentiles: Mapping[int, Use]
    """Percent → what so many percent of the samples do not exceed."""


class NodeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One duration of `metricAggregatePolicy`."""

    length_ns: int
    node: Spread | None
    """None while the samples cover less than half of the time."""
    system: Spread | None
    """Use beside pods and host applications; None as `node`."""


class NumaUse(msgspec.Struct, frozen=True, kw_only=True):
    """Means of one NUMA node over the aggregation time."""

    node: Use
    system_memory: int | None
    """Bytes in use on it beside pods; None where the kernel does not say what pods have there."""
