"""An answer of a strategy, and the changes it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from koordlite.model.change import Change
from koordlite.model.settings import Memory

Verdict = Literal["set", "shrink", "grow", "hold", "release", "evict", "skip", "refuse"]
"""set: a value; shrink/grow: a limit tighter/looser; hold: nothing to do; release: give back; evict: pods have to go;
skip: cannot judge, with the reason; refuse: the input is wrong, the last good state stays."""

Evidence = Mapping[str, int | float | str]


class CPULimit(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rule that limits the CPU of best effort, in millicores. Waking before the tick stands on it."""

    budget_milli: int
    """Budget of best effort by the rule's formula."""
    present_milli: int
    """Limit when the picture was taken."""
    limit_milli: int
    """Limit after the changes of the decision."""
    by_quota: bool
    """Held by a quota; otherwise by a set of CPUs."""
    owed_milli_seconds: int = 0
    """CPU time that the limit owes to best effort, so that it gets its budget on average; below zero it had too much.
    """


class Lacking(msgspec.Struct, frozen=True):
    """The result of a rule that the configuration requires and that this machine cannot carry out: it is degraded."""

    why: str


class Decision(msgspec.Struct, frozen=True):
    """Answer of a strategy for one subject it owns. It always answers: silence is not an answer."""

    subject: str
    """`node`, `besteffort`, `pod/ns/name`, `resctrl/BE`: `kind`, and `name` where it has one."""
    verdict: Verdict
    reason: str
    """A stable CamelCase word; docs/decisions.md explains each."""
    evidence: Evidence = msgspec.field(default_factory=dict)
    """The numbers, in the formula's own names; units are in the names or in docs/formulas.md. They explain: nothing is
    decided by them."""
    changes: tuple[Change, ...] = ()
    strategy: str = ""
    """Filled in by `strategies.decide_all`."""
    remember: Memory | None = None
    """Memory of the strategy in the next `Snapshot.remembered`; None leaves it as it is. The last decision of a
    strategy that gives one wins."""
    outcome: CPULimit | Lacking | None = None
    """Result that the agent itself acts on, where the rule has one."""

    @property
    def kind(self) -> str:
        """Kind of the subject: `pod` of `pod/ns/name`, `node` of `node`. Besides this property and `name` nobody takes
        a subject apart."""
        return self.subject.partition("/")[0]

    @property
    def name(self) -> str:
        """Name of the subject among its kind: `ns/name` of `pod/ns/name`, a resource of `node/kubernetes.io/batch-cpu`;
        empty where there is one of its kind."""
        return self.subject.partition("/")[2]

    @property
    def explained(self) -> Evidence:
        """All numbers that reports show: the result, and the evidence for it."""
        if isinstance(self.outcome, CPULimit):
            budget_milli = self.outcome.budget_milli
            lacking = {"lacking_milli": -budget_milli} if budget_milli < 0 else {}
            return {"budget_milli": max(0, budget_milli), **lacking, **self.evidence}
        return self.evidence
