"""The shape of upstream's policy file, `DeschedulerPolicy` of descheduler/v1alpha2, under its names."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import Any, Literal

from descheduler import plugins
from descheduler.arguments import pacing
from descheduler.arguments.evictor import NOT_ASKED, Args, EvictionRequests
from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.arguments.pacing import LOOPS, Loops, Window
from descheduler.framework import Plugin, Point
from koordlite.kube.client import prometheus
from koordlite.model import duration, label_selectors
from koordlite.model.settings import bounded

EVICTOR = "DefaultEvictor"
MIGRATION = "MigrationController"


def _names(point: Point) -> Any:
    """The plugins of one point, as the words that may stand there."""
    names = tuple(p.name for p in plugins.discover().values() if p.point == point)
    return Literal.__getitem__(names) if names else Literal["no plugin works at this point"]


def enabled(words: Any) -> Any:
    """A list of plugins."""
    return dataclasses.field(default=(), metadata={"yaml": tuple[words, ...]})


_ANY: Any = Literal.__getitem__((EVICTOR, MIGRATION, *plugins.discover()))


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
        return shapes().get(name, PluginConfig)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("an entry of pluginConfig needs a name")


@functools.cache
def shapes() -> dict[str, type[PluginConfig]]:
    """The shape of every plugin's entry in pluginConfig, by name."""
    configs: dict[str, type[Any]] = {name: plugin.config for name, plugin in plugins.discover().items()}
    configs[EVICTOR] = Args
    configs[MIGRATION] = MigrationControllerArgs
    return {name: _shape(name, config) for name, config in configs.items()}


def _shape(name: str, config: type[Any]) -> type[PluginConfig]:
    fields = [("args", config, dataclasses.field(default=default_args(config)))]
    return dataclasses.make_dataclass(f"{name}Config", fields, bases=(PluginConfig,), frozen=True, kw_only=True)


def default_args(config: type[Any]) -> Any:
    """A plugin's arguments when none are given; None when it cannot do without."""
    return None if missing_args(config) else config()


def missing_args(config: type[Any]) -> str:
    """A plugin's complaint when it is given no arguments; empty when it works without."""
    try:
        config()
    except ValueError as error:
        return str(error)
    return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeschedulePlugins:
    """Plugins that name pods."""

    enabled: tuple[str, ...] = enabled(_names("deschedule"))
    """Names in the order in which they judge."""
    disabled: tuple[str, ...] = ()
    """Without effect: nothing is enabled that is not listed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BalancePlugins:
    """Plugins that even out nodes; they work when all of `deschedule` are done."""

    enabled: tuple[str, ...] = enabled(_names("balance"))
    """Names in the order in which they judge."""
    disabled: tuple[str, ...] = ()
    """Without effect: nothing is enabled that is not listed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterPlugins:
    """Plugins that protect pods; DefaultEvictor always does, listed or not."""

    enabled: tuple[str, ...] = enabled(Literal["DefaultEvictor"])
    """Names of evictors."""
    disabled: tuple[str, ...] = ()
    """Without effect: DefaultEvictor stays."""


def _none_of_these(names: tuple[str, ...]) -> None:
    if names:
        raise ValueError("no plugin works at this point")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherPlugins:
    """A point of the upstream framework where no plugin works, there or here."""

    enabled: tuple[str, ...] = dataclasses.field(default=(), metadata={"check": _none_of_these})
    """Must be empty."""
    disabled: tuple[str, ...] = ()
    """Without effect."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgingPlugins:
    """The plugins of a profile that name pods, by the point at which they work."""

    deschedule: DeschedulePlugins = DeschedulePlugins()
    """Plugins that name pods to evict."""
    balance: BalancePlugins = BalancePlugins()
    """Plugins that even out nodes."""

    @property
    def judging(self) -> tuple[str, ...]:
        """All plugins that name pods, each once."""
        return tuple(dict.fromkeys((*self.deschedule.enabled, *self.balance.enabled)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PluginSets(JudgingPlugins):
    """The plugins of a profile by the point at which they work."""

    filter: FilterPlugins = FilterPlugins()
    """Plugins that protect pods."""
    preevictionfilter: FilterPlugins = FilterPlugins()
    """Plugins that are asked last; `nodeFit` of DefaultEvictor is. `preEvictionFilter` is understood too."""
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
    """Plugins that are on."""

    def __post_init__(self) -> None:
        one_entry_each(self.plugin_config)


def one_entry_each(entries: Iterable[PluginConfig]) -> None:
    """ValueError when a plugin has two entries: which one holds would be a guess."""
    names = [entry.name for entry in entries if entry]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"pluginConfig has more than one entry for {', '.join(twice)}")


def limit() -> Any:
    """A field that holds a limit: None means none."""
    return bounded(None, ge=0)


def _number_or_percent(value: object) -> None:
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not number and not re.fullmatch(r"[0-9]{1,2}%|100%", str(value), re.ASCII):
        raise ValueError("neither a number from 0 on nor a percentage like 10%")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricsCollector:
    """Upstream's older way to ask for measured usage."""

    enabled: bool = False
    """Deprecated upstream; true is `metricsProviders: [{source: KubernetesMetrics}]`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecretReference:
    """A Secret with the token under the key `prometheusAuthToken`."""

    namespace: str = ""
    """metadata.namespace of the Secret."""
    name: str = ""
    """metadata.name of the Secret."""

    def __post_init__(self) -> None:
        if not self.namespace or not self.name:
            raise ValueError("secretReference needs a namespace and a name")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuthToken:
    """The source of the token for Prometheus."""

    secret_reference: SecretReference | None = None
    """The Secret that holds it."""

    def __post_init__(self) -> None:
        if self.secret_reference is None:
            raise ValueError("authToken needs a secretReference")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrometheusProvider:
    """A Prometheus server."""

    url: str = dataclasses.field(default="", metadata={"check": prometheus.check_url})
    """Address, like `https://prometheus.monitoring:9090`."""
    auth_token: AuthToken | None = None
    """null: the token of the pod's service account."""

    def __post_init__(self) -> None:
        if not self.url:
            raise ValueError("prometheus needs a url")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricsProvider:
    """A source of measured usage."""

    source: Literal["KubernetesMetrics", "Prometheus"] = "KubernetesMetrics"
    """The metrics server, or Prometheus."""
    prometheus: PrometheusProvider | None = None
    """Settings of the source Prometheus."""

    def __post_init__(self) -> None:
        if (self.source == "Prometheus") != (self.prometheus is not None):
            raise ValueError("the source Prometheus, and no other, needs the block prometheus")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """A DeschedulerPolicy."""

    api_version: Literal["descheduler/v1alpha2"] = "descheduler/v1alpha2"
    """The one version that is understood."""
    kind: Literal["DeschedulerPolicy"] = "DeschedulerPolicy"
    """Koordinator's `DeschedulerConfiguration` is understood too, and has other keys."""
    node_selector: str = dataclasses.field(default="", metadata={"check": label_selectors.parse})
    """Only pods of nodes that match are judged, like `role=worker`; empty: all nodes."""
    max_no_of_pods_to_evict_total: int | None = limit()
    """Maximum number of evictions of one cycle; null: no limit, 0: none."""
    max_no_of_pods_to_evict_per_node: int | None = limit()
    """Maximum number of evictions of one cycle from one node; null: no limit."""
    max_no_of_pods_to_evict_per_namespace: int | None = limit()
    """Maximum number of evictions of one cycle in one namespace; null: no limit."""
    max_no_of_pods_to_evict_per_owner: int | str | None = dataclasses.field(
        default=None, metadata={"yaml": Any, "check": _number_or_percent}
    )
    """Maximum number of evictions of one cycle among the pods of one ReplicaSet, StatefulSet, …, as a number or as a
    part of its pods like `10%` (rounded down, at least one); null: no limit. Not in upstream."""
    min_delay_per_owner: str | None = dataclasses.field(default=None, metadata={"check": duration.seconds})
    """Least time between evictions of two pods of one ReplicaSet, StatefulSet, …, like `5m`; null: none. Not in
    upstream."""
    windows: tuple[Window, ...] = ()
    """Times in which pods may be evicted; plans are made and reported at all times. Empty: always. Not in upstream."""
    schedule: str = ""
    """Schedule of `descheduler run` as a cron expression like `0 3 * * 1-5`, in place of an interval. A start that was
    missed is made up for once. Not in upstream."""
    time_zone: str = dataclasses.field(default="UTC", metadata={"check": pacing.zone})
    """Time zone of the schedule: a name in the tz database, like `Europe/Berlin`. Not in upstream."""
    loops: Loops = LOOPS
    """Limits of moving pods that come back wrong. Not in upstream."""
    fit: Literal["plan", "snapshot"] = "plan"
    """State of the nodes that `nodeFit` counts on. plan: nodes as the evictions before leave them. snapshot: nodes as
    they were when the cycle began, so that many pods may count on one free place; upstream does so. Not in upstream."""
    grace_period_seconds: int | None = limit()
    """Time that evicted pods get to stop; null: what the pod says."""
    eviction_requests: EvictionRequests = NOT_ASKED
    """Requests to pods before they are evicted. Not in upstream."""
    eviction_failure_event_notification: bool = False
    """Write an Event when an eviction fails. A dry run evicts nothing, and so never does."""
    metrics_collector: MetricsCollector = MetricsCollector()
    """Deprecated upstream: see metricsProviders."""
    metrics_providers: tuple[MetricsProvider, ...] = ()
    """Sources of measured usage, each once."""
    profiles: tuple[ProfilePolicy, ...] = ()
    """Rules by profile. Profiles work one after the other on the same picture."""

    def __post_init__(self) -> None:
        if self.schedule:
            pacing.parse(self.schedule, self.time_zone)
        sources = [provider.source for provider in self.metrics_providers if provider]
        if len(set(sources)) < len(sources):
            raise ValueError("metricsProviders lists a source twice")
        if self.metrics_collector.enabled and "KubernetesMetrics" in sources:
            raise ValueError("metricsCollector and the provider KubernetesMetrics are the same: keep the provider")


def plugins_of(names: Iterable[str]) -> list[Plugin]:
    """The plugins with these names, each once, in this order."""
    return [plugins.discover()[name] for name in dict.fromkeys(names)]
