"""The shape of Koordinator's configuration file, `DeschedulerConfiguration` of descheduler/v1alpha2."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
from typing import Any, Literal
from urllib.parse import urlsplit

from descheduler.arguments.common import LabelSelector
from descheduler.policy import upstream
from descheduler.policy.upstream import JudgingPlugins, PluginConfig, limit
from koordlite.model import duration
from koordlite.model.settings import bounded, duration_text

PROFILE = "koord-descheduler"
_PORT = 10251
"""Port on which koord-descheduler serves health and metrics."""
_EVICTORS: Any = Literal["MigrationController", "DefaultEvictor"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaderElection:
    """One of several copies works at a time."""

    leader_elect: bool = True
    """Take part."""
    lease_duration: str = duration_text("15s")
    """Time without a sign of life after which another copy takes over."""
    renew_deadline: str = duration_text("10s")
    """The leader gives up when it could not renew for so long."""
    retry_period: str = duration_text("2s")
    """Pause between two attempts."""
    resource_lock: Literal["leases"] = "leases"
    """The kind of object that holds the lock."""
    resource_name: str = PROFILE
    """Its name."""
    resource_namespace: str = "koordinator-system"
    """Its namespace."""

    def __post_init__(self) -> None:
        if not self.leader_elect:
            return
        lease, renew = duration.seconds(self.lease_duration), duration.seconds(self.renew_deadline)
        retry = duration.seconds(self.retry_period)
        if not lease > renew > retry > 0:
            raise ValueError("leaseDuration must be above renewDeadline, that above retryPeriod, and that above 0")
        if not self.resource_name or not self.resource_namespace:
            raise ValueError("resourceName and resourceNamespace must not be empty")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientConnection:
    """The connection to the API server."""

    kubeconfig: str = ""
    """Path of a kubeconfig; empty: the pod's service account."""
    accept_content_types: str = "application/vnd.kubernetes.protobuf,application/json"
    """Without effect: this program speaks JSON."""
    content_type: str = "application/vnd.kubernetes.protobuf"
    """Without effect: this program speaks JSON."""
    qps: float = bounded(50.0, ge=0)
    """Without effect: the requests of a cycle are few, and the API server paces them."""
    burst: int = bounded(100, ge=0)
    """Without effect, as qps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvictPlugins:
    """The plugin that carries evictions out."""

    enabled: tuple[str, ...] = upstream.enabled(_EVICTORS)
    """MigrationController (the default) or DefaultEvictor, which uses the Eviction API."""
    disabled: tuple[str, ...] = ()
    """Defaults that are dropped, by name; `*` drops all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterPlugins:
    """The plugins that protect pods."""

    enabled: tuple[str, ...] = upstream.enabled(_EVICTORS)
    """MigrationController (the default) or DefaultEvictor."""
    disabled: tuple[str, ...] = ()
    """Defaults that are dropped, by name; `*` drops all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PluginSets(JudgingPlugins):
    """The plugins of a profile by the point at which they work."""

    evict: EvictPlugins = EvictPlugins()
    """Plugin that carries evictions out."""
    filter: FilterPlugins = FilterPlugins()
    """Plugins that protect pods."""
    preevictionfilter: FilterPlugins = FilterPlugins()
    """Accepted for upstream's sake: in Koordinator every filter is asked last as well."""

    @property
    def evictors(self) -> tuple[str, ...]:
        """Plugins that carry evictions out, defaults included."""
        return with_default(self.evict.enabled, self.evict.disabled)

    @property
    def filters(self) -> tuple[str, ...]:
        """Plugins that protect pods, defaults included."""
        return with_default(self.filter.enabled, self.filter.disabled)


def with_default(enabled: tuple[str, ...], disabled: tuple[str, ...]) -> tuple[str, ...]:
    """MigrationController is on where it is not disabled, by its name or by `*`, before what is listed.

    Source: Koordinator `mergePluginSet`.
    """
    defaults = () if {"*", upstream.MIGRATION} & set(disabled) else (upstream.MIGRATION,)
    return tuple(dict.fromkeys((*defaults, *enabled)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileConfiguration:
    """A profile: plugins, their arguments, and on which nodes they judge."""

    name: str = ""
    """Stands in reports and in the reason that is given for an eviction."""
    node_selector: LabelSelector | None = None
    """Only pods of nodes that match are judged; null: of all nodes that the file selects."""
    plugin_config: tuple[PluginConfig, ...] = ()
    """Arguments; a plugin without an entry has its defaults."""
    plugins: PluginSets = PluginSets()
    """Plugins that are on."""

    def __post_init__(self) -> None:
        upstream.one_entry_each(self.plugin_config)
        evictors = self.plugins.evictors
        if len(evictors) != 1:
            listed = ", ".join(evictors) or "none"
            raise ValueError(
                f"plugins.evict needs exactly one plugin, there are: {listed}; disable MigrationController"
            )


def _is_address(text: str) -> None:
    try:
        _host_and_port(text)
    except ValueError as error:
        raise ValueError("not an address like 0.0.0.0:10251, or a host without a port") from error


def _host_and_port(text: str) -> tuple[str, int]:
    """Split a host, an IP address of either kind, or one of them with a port (IPv6 in brackets then)."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(text)), _PORT
    parts = urlsplit(f"//{text}")
    return parts.hostname or "", _PORT if parts.port is None else parts.port


def _address() -> Any:
    return dataclasses.field(default="", metadata={"check": _is_address})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
    """A DeschedulerConfiguration."""

    api_version: Literal["descheduler/v1alpha2"] = "descheduler/v1alpha2"
    """The one version that is understood."""
    kind: Literal["DeschedulerConfiguration"] = "DeschedulerConfiguration"
    """Upstream's `DeschedulerPolicy` is understood too, and has other keys."""
    leader_election: LeaderElection = LeaderElection()
    """One of several copies works at a time."""
    client_connection: ClientConnection = ClientConnection()
    """Connection to the API server."""
    enable_profiling: bool = True
    """Without effect: there is no profiling over HTTP."""
    enable_contention_profiling: bool = True
    """Without effect: there is no profiling over HTTP."""
    healthz_bind_address: str = _address()
    """Address of health, metrics and report unless an option says; empty: the default of `--listen`."""
    metrics_bind_address: str = _address()
    """The same, for a second address."""
    descheduling_interval: str = duration_text("0")
    """Pause between the starts of two cycles; 0: one cycle only."""
    dry_run: bool = False
    """Evict nothing, only say what would go."""
    node_selector: LabelSelector | None = None
    """Only pods of nodes that match are judged; null: of all nodes."""
    max_no_of_pods_to_evict_total: int | None = limit()
    """Maximum number of evictions of one cycle; null: no limit, 0: none."""
    max_no_of_pods_to_evict_per_node: int | None = limit()
    """Maximum number of evictions of one cycle from one node; null: no limit."""
    max_no_of_pods_to_evict_per_namespace: int | None = limit()
    """Maximum number of evictions of one cycle in one namespace; null: no limit."""
    profiles: tuple[ProfileConfiguration, ...] = (ProfileConfiguration(name=PROFILE),)
    """Rules by profile. Profiles work one after the other on the same picture."""

    def __post_init__(self) -> None:
        names = [profile.name or (PROFILE if len(self.profiles) == 1 else "") for profile in self.profiles if profile]
        if not names:
            raise ValueError("there is no profile")
        if "" in names:
            raise ValueError("of several profiles each needs a name")
        if len(set(names)) < len(names):
            raise ValueError("two profiles have one name")

    @property
    def bind_addresses(self) -> tuple[tuple[str, int], ...]:
        """Addresses to serve on, each once; an address without a port has Koordinator's, 10251."""
        texts = dict.fromkeys(filter(None, (self.healthz_bind_address, self.metrics_bind_address)))
        return tuple(_host_and_port(text) for text in texts)
