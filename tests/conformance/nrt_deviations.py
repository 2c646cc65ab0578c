"""Where pods are matched with NUMA zones otherwise than by scheduler-plugins, on purpose."""

from __future__ import annotations

import copy
from typing import Any

from tests.conformance.adapters import nrt_match
from tests.conformance.deviation import Deviation


def _sidecar_stays(given: Any, wanted: Any, found: Any) -> bool:
    """With its sidecars as init containers that end, the pod gets the answer expected."""
    del found
    case = copy.deepcopy(given)
    sidecars = [c for c in case["pod"].get("initContainers") or () if c.pop("restartPolicy", "") == "Always"]
    return bool(sidecars) and nrt_match.filtered(case) == wanted


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        ("nrt.filter",),
        _sidecar_stays,
        "nrt-sidecars: a sidecar keeps what it takes; what follows and the whole pod have to fit beside it",
    ),
)
