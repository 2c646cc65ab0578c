"""What a plan found by namespace, owner and node: pods that the page does not list count as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from descheduler.plan import EvictionPlan, Outcome
from koordlite.report.html import filter as filters
from koordlite.report.html import page
from koordlite.report.html.page import Markup, el

GROUPS_SHOWN = 40
EVICT, KEPT = "evict", "kept"
"""Ids of the lists of pods."""
_BY: dict[str, Callable[[Outcome], str]] = {
    "namespace": lambda outcome: outcome.pod.key.partition("/")[0],
    "owner": lambda outcome: outcome.pod.owner or "none",
    "node": lambda outcome: outcome.pod.node,
}


def tags(outcome: Outcome) -> str:
    """Words by which the filter finds the pods of one group and no others: `namespace:shop owner:… node:…`."""
    return " ".join(f"{what}:{of(outcome)}" for what, of in _BY.items())


def section(plan: EvictionPlan, listed: Sequence[Outcome]) -> Markup | None:
    """One table to open for each; None where nothing was found. Groups with pods in `listed` lead to them."""
    if not plan.outcomes:
        return None
    note = "A name shows its pods in the lists below; one without a link has none there."
    return page.section("By namespace, owner and node", [_table(plan, what, listed) for what in _BY], note=note)


def _table(plan: EvictionPlan, what: str, listed: Sequence[Outcome]) -> Markup:
    of = _BY[what]
    evict, kept, found = Counter(map(of, plan.evict)), Counter(map(of, plan.spare)), set(map(of, listed))
    names = sorted({*evict, *kept}, key=lambda name: (-evict[name], -kept[name], name))
    shown = [
        filters.link(name, f"{what}:{name}", EVICT if evict[name] else KEPT) if name in found else name
        for name in names[:GROUPS_SHOWN]
    ]
    rows = [(cell, evict[name], kept[name]) for cell, name in zip(shown, names, strict=False)]
    left = len(names) - len(rows)
    more = el("p", f"and {left} more with fewer pods", class_="note") if left else None
    table = page.table((what, "to evict#", "kept#"), rows)
    plural = f"{what}s" if len(names) > 1 else what
    return page.details(f"{len(names)} {plural}", table, more)
