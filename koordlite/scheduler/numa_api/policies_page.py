"""The page that shows and switches policies. It has one small script: a form of HTML can send neither PUT nor a token,
and a switch that a form could send, a page elsewhere could send as well."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from koordlite.report.html import page
from koordlite.report.html.page import Child, Markup, el

NAMES = {
    "numaaware": ("NUMA affinity", "Volcano's scheduler places pods by its plugin numa-aware"),
    "numadistance": (
        "optimal NUMA distance",
        "the extender prefers nodes where a pod gets NUMA nodes near together, and takes the nearest",
    ),
    "podaffinity": (
        "affinity of pods",
        "agents bring pods that talk to each other onto one NUMA node, where their own mode is enforce",
    ),
}
"""Of each policy its name, and what it does where it is open."""
_SHOWN = {"open": "open", "close": "closed"}
SCRIPT = "\n" + pathlib.Path(__file__).with_name("policies.js").read_text(encoding="utf-8")
"""The token stays in the field: it is neither stored nor put into an address."""


def document(statuses: Mapping[str, str], *, may_switch: bool) -> str:
    """`statuses`: of each policy `open`, `close`, or why that is unknown."""
    rows = [_row(name, status, may_switch=may_switch) for name, status in statuses.items()]
    heads = ("policy", "what it does", "status", "switch")
    table = page.table(heads, rows, empty="there are no policies here", stacked=True)
    return page.page(
        "Policies",
        el("p", el("a", "all nodes", href="../numa")),
        page.section("Policies", table, el("p", id="said", role="status")),
        _token() if may_switch else _read_only(),
        foot=f"The same is below /rest/scheduling/v1/: {', '.join(NAMES)}.",
        script=SCRIPT if may_switch else "",
    )


def _row(name: str, status: str, *, may_switch: bool) -> tuple[Child, ...]:
    can_switch = status in ("open", "close")
    other = "close" if status == "open" else "open"
    title, does = NAMES[name]
    label = f"{other} {title}"
    button = el("button", other, type="button", data_policy=name, data_status=other, aria_label=label)
    state = page.badge(_SHOWN[status], "good" if status == "open" else "") if can_switch else status
    return title, does, state, button if can_switch and may_switch else "–"


def _token() -> Markup:
    field = el("input", type="password", id="token", autocomplete="off", aria_label="bearer token")
    # The field has no name: a form that is sent by the Enter key carries nothing.
    note = "Whoever switches a policy shows a bearer token with permission to put the path /rest. It is not stored."
    return page.section("Token", el("form", field), note=note)


def _read_only() -> Markup:
    return page.section("Read-only", el("p", "This server switches nothing: it runs without --allow-policy-changes."))
