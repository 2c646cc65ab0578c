"""What pods and the system will need at most, by what they have used: decaying histograms say so."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlite.model.picture.usage import Use


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Peaks: the 95th percentile of CPU and the 98th of memory, without a margin."""

    pods: Mapping[str, Use]
    """By pod uid, of those that are known for long enough."""
    prod: Use | None
    """Of all prod pods together; None until that is known for long enough."""
    system: Use | None
    """Of everything outside pods; None as `prod`."""
    known_seconds: float
    """For how long the node has been observed."""
    margin_percent: int
    """What is added to a peak before it is offered."""
