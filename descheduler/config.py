"""DeschedulerPolicy v1alpha2 → `Setup`. Read strictly: all mistakes at once, each with file:line:column.

Names and shapes are upstream's. What upstream drops in silence is an error here: an unknown key at the top. What it
refuses for no reason works: a plugin without an entry in pluginConfig (docs/compatibility.md).
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Iterable
from typing import Any, Literal

from descheduler import plugins, selectors
from descheduler.evictor_args import Args
from descheduler.limits import Limits
from descheduler.outcome import Profile, Setup
from koordlite.model import strict
from koordlite.model.errors import ConfigError, Problem
from koordlite.model.settings import bounded

EVICTOR = "DefaultEvictor"
_PLUGIN: Any = Literal.__getitem__(tuple(plugins.discover()))
_ANY: Any = Literal.__getitem__((EVICTOR, *plugins.discover()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PluginConfig:
    """Arguments of one plugin."""

    name: str = dataclasses.field(default="", metadata={"yaml": _ANY})
    """DefaultEvictor, or a plugin that `descheduler list-plugins` names."""
    args: Any = None
    """Its arguments; what is left out keeps its default."""

    @staticmethod
    def variant(name: str) -> type[PluginConfig]:
        """The shape whose `args` are those of plugin `name`."""
        return _shapes().get(name, PluginConfig)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("an entry of pluginConfig needs a name")


def _none_of_these(names: tuple[str, ...]) -> None:
    if names:
        raise ValueError("no plugin works at this point")


def _enabled(words: Any) -> Any:
    return dataclasses.field(default=(), metadata={"yaml": tuple[words, ...]})


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeschedulePlugins:
    """Plugins that name pods."""

    enabled: tuple[str, ...] = _enabled(_PLUGIN)
    """By name, in the order in which they judge."""
    disabled: tuple[str, ...] = _enabled(_PLUGIN)
    """Without effect: nothing is enabled that is not listed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterPlugins:
    """Plugins that protect pods; DefaultEvictor always does, listed or not."""

    enabled: tuple[str, ...] = _enabled(Literal["DefaultEvictor"])
    """By name."""
    disabled: tuple[str, ...] = _enabled(Literal["DefaultEvictor"])
    """Without effect: DefaultEvictor stays."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherPlugins:
    """A point of the upstream framework where none of our plugins works."""

    enabled: tuple[str, ...] = dataclasses.field(default=(), metadata={"check": _none_of_these})
    """Must be empty."""
    disabled: tuple[str, ...] = ()
    """Without effect."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PluginSets:
    """Which plugins of the profile work at which point."""

    deschedule: DeschedulePlugins = DeschedulePlugins()
    """Plugins that name pods to evict."""
    balance: OtherPlugins = OtherPlugins()
    """Plugins that even out nodes: none."""
    filter: FilterPlugins = FilterPlugins()
    """Plugins that protect pods."""
    preevictionfilter: FilterPlugins = FilterPlugins()
    """Plugins that are asked last; `nodeFit` of DefaultEvictor is."""
    sort: OtherPlugins = OtherPlugins()
    """Accepted for upstream's sake: none."""
    presort: OtherPlugins = OtherPlugins()
    """Accepted for upstream's sake: none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfilePolicy:
    """A profile: plugins, their arguments, and what protects pods from them."""

    name: str = ""
    """Stands in reports and in the reason that is given for an eviction."""
    plugin_config: tuple[PluginConfig, ...] = ()
    """Arguments; a plugin without an entry has its defaults."""
    plugins: PluginSets = PluginSets()
    """Which plugins are on."""

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.plugin_config if entry]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"pluginConfig has more than one entry for {', '.join(twice)}")


def _limit() -> Any:
    return bounded(None, ge=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """A DeschedulerPolicy."""

    api_version: Literal["descheduler/v1alpha2"] = "descheduler/v1alpha2"
    """The one version that is understood."""
    kind: Literal["DeschedulerPolicy"] = "DeschedulerPolicy"
    """The one kind that is understood."""
    node_selector: str = dataclasses.field(default="", metadata={"check": selectors.parse})
    """Only pods of nodes that match are judged, like `role=worker`; empty: all nodes."""
    max_no_of_pods_to_evict_total: int | None = _limit()
    """Most evictions of one cycle; null: no limit, 0: none."""
    max_no_of_pods_to_evict_per_node: int | None = _limit()
    """Most evictions of one cycle from one node; null: no limit."""
    max_no_of_pods_to_evict_per_namespace: int | None = _limit()
    """Most evictions of one cycle in one namespace; null: no limit."""
    max_no_of_pods_to_evict_per_owner: int | None = _limit()
    """Most evictions of one cycle among the pods of one ReplicaSet, StatefulSet, …; null: no limit. Not in upstream."""
    grace_period_seconds: int | None = _limit()
    """How long evicted pods get to stop; null: what the pod says."""
    eviction_failure_event_notification: bool = False
    """Write an Event when an eviction fails. A dry run evicts nothing, and so never does."""
    profiles: tuple[ProfilePolicy, ...] = ()
    """What is judged. Profiles work one after the other on the same picture."""


@functools.cache
def _shapes() -> dict[str, type[PluginConfig]]:
    configs: dict[str, type[Any]] = {name: plugin.config for name, plugin in plugins.discover().items()}
    configs[EVICTOR] = Args
    return {name: _shape(name, config) for name, config in configs.items()}


def _shape(name: str, config: type[Any]) -> type[PluginConfig]:
    fields = [("args", config, dataclasses.field(default=config()))]
    return dataclasses.make_dataclass(f"{name}Config", fields, bases=(PluginConfig,), frozen=True, kw_only=True)


def default() -> Policy:
    """What holds without a policy file: every plugin, pods must fit elsewhere, and few go at a time."""
    names = tuple(plugins.discover())
    entries = [_shapes()[EVICTOR](name=EVICTOR, args=Args(node_fit=True))]
    entries += [_shapes()[name](name=name) for name in names]
    on = PluginSets(deschedule=DeschedulePlugins(enabled=names))
    return Policy(
        max_no_of_pods_to_evict_total=10,
        max_no_of_pods_to_evict_per_node=2,
        max_no_of_pods_to_evict_per_namespace=5,
        max_no_of_pods_to_evict_per_owner=1,
        profiles=(ProfilePolicy(name="default", plugin_config=tuple(entries), plugins=on),),
    )


def load(path: str) -> Policy:
    """The policy in the file at `path`; ConfigError lists every mistake in it."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(path, "$", "", str(error), "name a readable YAML file")) from error
    return parse(text, path)


def parse(text: str, source: str) -> Policy:
    """The policy that `text` writes."""
    policy = strict.load(text, Policy, source)
    if not any(profile.plugins.deschedule.enabled for profile in policy.profiles):
        do = f"enable one of {', '.join(plugins.discover())} at profiles[].plugins.deschedule.enabled"
        raise ConfigError(Problem(source, "$.profiles", "", "no plugin is enabled, so nothing would be judged", do))
    return policy


def setup(policy: Policy) -> Setup:
    """What the policy asks of a cycle."""
    return Setup(
        profiles=tuple(_profile(profile) for profile in policy.profiles),
        limits=Limits(
            total=policy.max_no_of_pods_to_evict_total,
            per_node=policy.max_no_of_pods_to_evict_per_node,
            per_namespace=policy.max_no_of_pods_to_evict_per_namespace,
            per_owner=policy.max_no_of_pods_to_evict_per_owner,
        ),
        node_selector=policy.node_selector,
        grace_period_seconds=policy.grace_period_seconds,
    )


def _profile(policy: ProfilePolicy) -> Profile:
    given = {entry.name: entry.args for entry in policy.plugin_config}
    enabled: Iterable[str] = dict.fromkeys(policy.plugins.deschedule.enabled)
    found = [(plugins.discover()[name]) for name in enabled]
    chosen = tuple((plugin, given.get(plugin.name) or plugin.config()) for plugin in found)
    return Profile(policy.name or "unnamed", chosen, given.get(EVICTOR) or Args())
