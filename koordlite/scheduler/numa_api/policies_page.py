"""The page that shows and switches policies. It has one small script: a form of HTML can send neither PUT nor a token,
and a switch that a form could send, a page elsewhere could send as well."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from koordlite.report.html import page
from koordlite.report.html.page import Child, el

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
"""Name of each policy, and what it does where it is open."""
SCRIPT = "\n" + pathlib.Path(__file__).with_name("policies.js").read_text(encoding="utf-8")
"""The token stays in the field: it is neither stored nor put into an address."""


def document(statuses: Mapping[str, str], *, may_switch: bool) -> str:
    """`statuses`: of each policy `open`, `close`, or why that is unknown."""
    rows = []
    for name, status in statuses.items():
        title, does = NAMES[name]
        state: Child = status
        button = None
        if status in ("open", "close"):
            state = page.badge("open", "good") if status == "open" else page.badge("closed")
            other = "close" if status == "open" else "open"
            words = {"data_policy": name, "data_status": other, "aria_label": f"{other} {title}"}
            button = el("button", other, type="button", **words) if may_switch else None
        rows.append((title, does, state, button or "–"))
    heads = ("policy", "what it does", "status", "switch")
    table = page.table(heads, rows, empty="there are no policies here", stacked=True)
    # The field has no name: a form that is sent by the Enter key carries nothing.
    field = el("input", type="password", id="token", autocomplete="off", aria_label="bearer token")
    note = "Whoever switches a policy shows a bearer token with permission to put the path /rest. It is not stored."
    closed = el("p", "This server switches nothing: it runs without --allow-policy-changes.")
    return page.page(
        "Policies",
        el("p", el("a", "all nodes", href="../numa")),
        page.section("Policies", table, el("p", id="said", role="status")),
        page.section("Token", el("form", field), note=note) if may_switch else page.section("Read-only", closed),
        foot=f"The same is below /rest/scheduling/v1/: {', '.join(NAMES)}.",
        script=SCRIPT if may_switch else "",
    )
