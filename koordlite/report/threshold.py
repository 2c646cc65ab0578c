"""Excess of a node over the threshold above which best effort is limited.

Best effort gets whole CPUs: its budget is rounded up (`formulas.cpu.suppress`, Koordinator `calculateBESuppressCPU`),
so a node that is full is above its threshold by less than one CPU, by the rule. Only what is beyond that points to a
limit that came too late or could not be low enough.
"""

from __future__ import annotations

ROUNDING_MILLI = 1000
"""The rounding adds less than this."""
WELL = "by a CPU or more"
WHY = "less is rounding: limits are whole CPUs"
"""Words of reports for the two."""


def above(use: int | None, threshold: int | None) -> bool:
    """Tell whether `use` exceeds `threshold`, in millicores; False where either is unknown."""
    return use is not None and threshold is not None and use > threshold


def well_above(use: int | None, threshold: int | None) -> bool:
    """Tell whether it is above by more than the rounding can explain."""
    return threshold is not None and above(use, threshold + ROUNDING_MILLI - 1)
