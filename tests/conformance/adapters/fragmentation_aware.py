"""FragmentationAware: whole runs, and arguments that are refused."""

from __future__ import annotations

from typing import Any

from tests.conformance import descheduler_cases
from tests.conformance.adapters import adapter

ZERO = {"nodeFit": False, "imbalanceThreshold": 0, "minImprovementThreshold": 0}
"""Arguments of a case are complete: what they leave out is zero, where the plugin has defaults."""


@adapter("run FragmentationAware")
def run(given: Any, expect: Any) -> tuple[Any, Any]:
    return descheduler_cases.run(given, expect, ZERO)


@adapter("ValidateFragmentationAwareArgs")
def validate(given: Any, expect: Any) -> tuple[Any, Any]:
    return descheduler_cases.validated("FragmentationAware", given, expect)


@adapter("run CustomPriority")
def run_custom_priority(given: Any, expect: Any) -> tuple[Any, Any]:
    return descheduler_cases.run(given, expect)


@adapter("ValidateCustomPriorityArgs")
def validate_custom_priority(given: Any, expect: Any) -> tuple[Any, Any]:
    return descheduler_cases.validated("CustomPriority", given, expect)
