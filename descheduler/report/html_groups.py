"""What a plan found by namespace, owner and node, as numbers: pods that the page does not list count as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from descheduler.plan import EvictionPlan, Outcome
from koordlite.report.html import page
from koordlite.report.html.page import Markup, el

GROUPS_SHOWN = 40
_BY: tuple[tuple[str, Callable[[Outcome], str]], ...] = (
    ("namespace", lambda outcome: outcome.pod.key.partition("/")[0]),
    ("owner", lambda outcome: outcome.pod.owner or "no owner"),
    ("node", lambda outcome: outcome.pod.node),
)


def section(plan: EvictionPlan) -> Markup | None:
    """One table to open for each; None where nothing was found."""
    if not plan.outcomes:
        return None
    note = "Names from here can be looked for in the lists below."
    return page.section("By namespace, owner and node", [_table(plan, *by) for by in _BY], note=note)


def _table(plan: EvictionPlan, what: str, of: Callable[[Outcome], str]) -> Markup:
    evict, kept = Counter(map(of, plan.evict)), Counter(map(of, plan.spare))
    names = sorted({*evict, *kept}, key=lambda name: (-evict[name], -kept[name], name))
    rows = [(name, evict[name], kept[name]) for name in names[:GROUPS_SHOWN]]
    left = len(names) - len(rows)
    more = el("p", f"and {left} more with fewer pods", class_="note") if left else None
    table = page.table((what, "to evict#", "kept#"), rows)
    plural = f"{what}s" if len(names) > 1 else what
    return page.details(f"{len(names)} {plural}", table, more)
