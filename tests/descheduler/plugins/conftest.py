"""One plugin at work on a small cluster, through the real reader and the real cycle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from descheduler import plugins
from descheduler.arguments.evictor import Args
from descheduler.cycle import planner
from descheduler.filters.limits import Limits
from descheduler.framework import Plugin
from descheduler.plan import EvictionPlan, Profile, Setup
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict

Work = Callable[..., EvictionPlan]
Entries = tuple[tuple[str, object], ...]


@pytest.fixture
def work(cluster: Any) -> Work:
    """`work("PodLifeTime", {"maxPodLifeTimeSeconds": 600})`: the plan of this plugin alone.

    `evictor` are arguments of DefaultEvictor, `limits` those of a cycle, `before` plugins that judge first.
    """

    def entry(name: str, args: object) -> tuple[Plugin, object]:
        plugin = plugins.discover()[name]
        return plugin, strict.load(json.dumps(args or {}), plugin.config, "args")

    def make(
        name: str, args: object = None, *, evictor: object = None, before: Entries = (), **limits: int
    ) -> EvictionPlan:
        entries = tuple(entry(one, given) for one, given in (*before, (name, args)))
        rules = strict.load(json.dumps(evictor or {}), Args, "evictor")
        profile = Profile("test", entries, rules)
        return planner.plan(cluster.view(), Setup(profiles=(profile,), limits=Limits(**limits)))

    return make


@pytest.fixture
def evicted(work: Work) -> Callable[..., list[str]]:
    """The same, as the names of the pods that go, in their order."""
    return lambda name, args=None, **more: [o.pod.pod.name for o in work(name, args, **more).evict]


@pytest.fixture
def refused() -> Callable[[str, object], str]:
    """What the strict reader says against arguments; empty when nothing."""

    def read(name: str, args: object) -> str:
        try:
            strict.load(json.dumps(args), plugins.discover()[name].config, "args")
        except ConfigError as error:
            return str(error)
        return ""

    return read
