"""Where we answer differently on purpose: which cases, and the rule (docs/compatibility.md has the reasons)."""

from __future__ import annotations

from typing import Any

from koordlite.model.errors import KoordliteError
from tests.conformance import (
    apiserver_deviations,
    batch_deviations,
    crane_deviations,
    descheduler_deviations,
    eviction_deviations,
    koordinator_deviations,
    limit_deviations,
    machine_deviations,
    nrt_deviations,
    offer_deviations,
    profile_deviations,
)
from tests.conformance.deviation import Deviation

DEVIATIONS: tuple[Deviation, ...] = (
    *eviction_deviations.DEVIATIONS,
    *offer_deviations.DEVIATIONS,
    *limit_deviations.DEVIATIONS,
    *batch_deviations.DEVIATIONS,
    *machine_deviations.DEVIATIONS,
    *descheduler_deviations.DEVIATIONS,
    *apiserver_deviations.DEVIATIONS,
    *profile_deviations.DEVIATIONS,
    *koordinator_deviations.DEVIATIONS,
    *crane_deviations.DEVIATIONS,
    *nrt_deviations.DEVIATIONS,
)
"""The first that explains a case is told."""


def rule_for(function: str, given: Any, wanted: Any, found: Any) -> str:
    """The rule that explains why this case differs; empty when none does."""
    candidates = (d for d in DEVIATIONS if function in d.functions)
    return next((d.rule for d in candidates if _applies(d, given, wanted, found)), "")


def _applies(deviation: Deviation, given: Any, wanted: Any, found: Any) -> bool:
    try:
        return deviation.applies(given, wanted, found)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, KoordliteError):
        # A rule explains nothing about a case that has not what the rule speaks of.
        return False
