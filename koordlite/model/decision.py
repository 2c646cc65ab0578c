"""An answer of a strategy, and the changes it asks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from koordlite.model.change import Change

Verdict = Literal["set", "shrink", "grow", "hold", "release", "evict", "skip", "refuse"]
"""set: a value; shrink/grow: a limit tighter/looser; hold: nothing to do; release: give back; evict: pods have to go;
skip: cannot judge, with the reason; refuse: the input is wrong, the last good state stays."""

Evidence = Mapping[str, int | float | str]


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What a strategy answers for one subject it owns. It always answers: silence is not an answer."""

    subject: str
    """`node`, `besteffort`, `pod/ns/name`, `resctrl/BE`."""
    verdict: Verdict
    reason: str
    """A stable CamelCase word; docs/decisions.md explains each."""
    evidence: Evidence = dataclasses.field(default_factory=dict)
    """The numbers, in the formula's own names; units are in the names or in docs/formulas.md."""
    changes: tuple[Change, ...] = ()
    strategy: str = ""
    """Filled in by `strategies.decide_all`."""
    remember: Mapping[str, float] | None = None
    """What this strategy wants to find in `Snapshot.remembered` next time; None leaves what is there. The last
    decision of a strategy that says something wins."""
