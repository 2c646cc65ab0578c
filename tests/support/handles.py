"""The handle that the cycle gives to plugins, for tests of one plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from descheduler.arguments.evictor import Args
from descheduler.cycle.handle import ProfileHandle
from descheduler.filters.default_evictor import Guards
from descheduler.fit.search import FitSearch
from descheduler.framework import Finding, NodeGroup, Note, Remember, Verdict, View


def handle(view: View, args: Args | None = None, **changes: Any) -> ProfileHandle:
    """The real thing, for all ready nodes; `changes` replace its parts."""
    ready = NodeGroup(node for node in view.nodes.values() if node.ready)
    args = args or Args()
    parts: dict[str, Any] = {"fit": FitSearch(view), "nodes": ready, "evictions": set[str](), **changes}
    return ProfileHandle(view=view, args=args, guards=Guards(view, (args,)), **parts)


def said(plugin: Any, view: View, **config: Any) -> list[Finding | Note]:
    """Everything a plugin says when nobody answers."""
    return list(plugin.judge(view, plugin.Config(**config), handle(view)))


def talk(
    plugin: Any, view: View, config: Any, answers: Mapping[str, Verdict] | None = None, remembered: object = None
) -> tuple[list[str], list[str], object]:
    """Names of the pods that go, the words of the notes, and what is to be remembered. All that have to go do so but
    where `answers` has another verdict of a pod by name."""
    conversation = plugin.judge(view, config, handle(view, remembered=remembered))
    gone, notes = list[str](), list[str]()
    memory, verdict = None, None
    while True:
        try:
            entry = conversation.send(verdict)
        except StopIteration:
            return gone, notes, memory
        verdict = None
        if isinstance(entry, Finding):
            name, hard = entry.pod.removeprefix("uid-"), entry.severity == "hard"
            verdict = (answers or {}).get(name, Verdict(evicted=hard))
            gone += [name] if verdict.evicted or not hard else []
        elif isinstance(entry, Note):
            notes.append(entry.reason)
        elif isinstance(entry, Remember):
            memory = entry.value
