"""The handle that the cycle gives to plugins, for tests of one plugin."""

from __future__ import annotations

from typing import Any

from descheduler.arguments.evictor import Args
from descheduler.cycle.handle import ProfileHandle
from descheduler.filters.default_evictor import Guards
from descheduler.fit.search import FitSearch
from descheduler.framework import Finding, NodeGroup, Note, View


def handle(view: View, args: Args | None = None, **changes: Any) -> ProfileHandle:
    """The real thing, for all ready nodes; `changes` replace its parts."""
    ready = NodeGroup(node for node in view.nodes.values() if node.ready)
    args = args or Args()
    parts: dict[str, Any] = {"fit": FitSearch(view), "nodes": ready, "evictions": set[str](), **changes}
    return ProfileHandle(view=view, args=args, guards=Guards(view, (args,)), **parts)


def said(plugin: Any, view: View, **config: Any) -> list[Finding | Note]:
    """Everything a plugin says when nobody answers."""
    return list(plugin.judge(view, plugin.Config(**config), handle(view)))
