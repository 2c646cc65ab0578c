"""A policy file → `Setup`. Read strictly: all mistakes at once, each with file:line:column.

Two kinds of file are understood; `kind` says which: upstream's DeschedulerPolicy and Koordinator's
DeschedulerConfiguration. What upstream drops in silence is an error here: an unknown key at the top. What it refuses
for no reason works: a plugin without an entry in pluginConfig (docs/compatibility.md).
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from descheduler import plugins
from descheduler.arguments.evictor import Args
from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.arguments.pacing import Pacing
from descheduler.filters.limits import Limits
from descheduler.plan import Profile, Setup
from descheduler.policy.aliases import Aliases, kind_of
from descheduler.policy.koordinator import PROFILE, Configuration, ProfileConfiguration
from descheduler.policy.upstream import (
    EVICTOR,
    MIGRATION,
    DeschedulePlugins,
    PluginConfig,
    PluginSets,
    Policy,
    ProfilePolicy,
    default_args,
    missing_args,
    plugins_of,
    shapes,
)
from koordlite.model import duration, label_selectors
from koordlite.model.errors import ConfigError, Problem
from koordlite.model.reading import strict

__all__ = ["Configuration", "PluginConfig", "Policy", "PolicyDocument", "default", "load", "notices", "parse", "setup"]

PolicyDocument = Policy | Configuration
"""Either kind of file."""
ON_BY_DEFAULT = ("NUMAAlignment", "ReservedCPUs", "TopologyAffinityErrors")
"""What judges without a policy file: rules that a cluster breaks only by mistake, whatever its operator prefers."""


_FEW = "the requests of a cycle are few, and the API server paces them"
_IDLE_SETTINGS = {
    "qps": _FEW,
    "burst": _FEW,
    "content_type": "this program speaks JSON",
    "accept_content_types": "this program speaks JSON",
    "enable_profiling": "there is no profiling over HTTP",
    "enable_contention_profiling": "there is no profiling over HTTP",
}
"""Settings of a DeschedulerConfiguration that change nothing here, each with the reason."""


def default() -> Policy:
    """The policy that holds without a file: few plugins, pods must fit elsewhere, and few go at a time."""
    entries = [shapes()[EVICTOR](name=EVICTOR, args=Args(node_fit=True))]
    entries += [shapes()[name](name=name) for name, p in plugins.discover().items() if not missing_args(p.config)]
    on = PluginSets(deschedule=DeschedulePlugins(enabled=ON_BY_DEFAULT))
    return Policy(
        max_no_of_pods_to_evict_total=10,
        max_no_of_pods_to_evict_per_node=2,
        max_no_of_pods_to_evict_per_namespace=5,
        max_no_of_pods_to_evict_per_owner=1,
        profiles=(ProfilePolicy(name="default", plugin_config=tuple(entries), plugins=on),),
    )


def kubeconfig(document: PolicyDocument) -> str:
    """Path of the kubeconfig that the policy names; empty when it names none."""
    return document.client_connection.kubeconfig if isinstance(document, Configuration) else ""


def load(path: str, found_notices: list[Problem] | None = None) -> PolicyDocument:
    """The policy in the file at `path`; ConfigError lists every mistake in it. `found_notices` receives the notices."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(path, "$", "", str(error), "name a readable YAML file")) from error
    return parse(text, path, found_notices)


def parse(text: str, source: str, found_notices: list[Problem] | None = None) -> PolicyDocument:
    """The policy that `text` writes; `found_notices` receives what is no mistake but worth checking."""
    version, kind, place = kind_of(text)
    if version == "descheduler/v1alpha1":
        why = "this version is no longer understood, upstream dropped it in 0.30"
        do = "write descheduler/v1alpha2: every strategy becomes a plugin of a profile, its params become args"
        raise ConfigError(Problem(f"{source}:{place}", "$.apiVersion", version, why, do))
    aliases = Aliases(source)
    shape: type[PolicyDocument] = Configuration if kind == "DeschedulerConfiguration" else Policy
    document = strict.load(text, shape, source, aliases.prepare)
    mistakes = list(_missing_arguments(document, source))
    if mistakes:
        raise ConfigError(mistakes)
    if found_notices is not None:
        found_notices += [*aliases.notices, *notices(document, source)]
    return document


def _missing_arguments(document: PolicyDocument, source: str) -> Iterator[Problem]:
    for i, profile in enumerate(_profiles(document)):
        given = {entry.name for entry in profile.plugin_config if entry.args is not None}
        for plugin in plugins_of(profile.plugins.judging):
            missing = "" if plugin.name in given else missing_args(plugin.config)
            if missing:
                do = f"add an entry for {plugin.name} with args"
                yield Problem(source, f"$.profiles[{i}].pluginConfig", plugin.name, missing, do)


def notices(document: PolicyDocument, source: str) -> Iterator[Problem]:
    """Notices of what is no mistake but hardly meant: nothing to judge, arguments that nobody reads, limits that limit
    nothing."""
    if isinstance(document, Configuration):
        yield from _without_effect(document, source)
    if not any(profile.plugins.judging for profile in document.profiles):
        do = f"enable one of {', '.join(plugins.discover())} at profiles[].plugins"
        yield Problem(source, "$.profiles", "", "no plugin is enabled, so nothing is judged", do)
    for i, profile in enumerate(_profiles(document)):
        for entry in profile.plugin_config:
            # Someone took the trouble to give arguments to a plugin that is not enabled.
            plugin = None if entry.name in profile.plugins.judging else plugins.discover().get(entry.name)
            if plugin is not None and entry.args != default_args(plugin.config):
                do = "enable the plugin, or remove the entry"
                yield Problem(source, f"$.profiles[{i}].pluginConfig", entry.name, "the plugin is not enabled", do)
            if isinstance(entry.args, Args) and entry.args.min_replicas == 1:
                why = "a workload always has one pod: 1 protects nothing"
                yield Problem(source, f"$.profiles[{i}].pluginConfig", "minReplicas: 1", why, "write 2 or more, or 0")


def _without_effect(document: Configuration, source: str) -> Iterator[Problem]:
    """Settings that differ from their defaults and change nothing here."""
    for holder, path in ((document.client_connection, "$.clientConnection."), (document, "$.")):
        for field in dataclasses.fields(holder):
            why = _IDLE_SETTINGS.get(field.name)
            value = getattr(holder, field.name)
            if why is not None and value != field.default:
                yield Problem(source, path + strict.camel(field.name), str(value), f"no effect: {why}", "remove it")


def _profiles(document: PolicyDocument) -> Sequence[ProfilePolicy | ProfileConfiguration]:
    return document.profiles


def setup(document: PolicyDocument) -> Setup:
    """The policy as a cycle needs it."""
    return _of_policy(document) if isinstance(document, Policy) else _of_configuration(document)


def _of_policy(policy: Policy) -> Setup:
    delay = policy.min_delay_per_owner
    seconds = duration.seconds(delay) if delay else 0.0
    return Setup(
        profiles=tuple(_profile(profile) for profile in policy.profiles),
        limits=msgspec.structs.replace(_limits(policy), per_owner=policy.max_no_of_pods_to_evict_per_owner),
        node_selector=label_selectors.parse(policy.node_selector) if policy.node_selector else None,
        grace_period_seconds=policy.grace_period_seconds,
        fit=policy.fit,
        pacing=Pacing(windows=policy.windows, loops=policy.loops, owner_delay_seconds=seconds),
        failure_events=policy.eviction_failure_event_notification,
        spare_the_only_node=True,
    )


def _of_configuration(document: Configuration) -> Setup:
    selector = document.node_selector
    return Setup(
        profiles=tuple(_koordinator_profile(profile) for profile in document.profiles),
        limits=msgspec.structs.replace(_limits(document), total_first=False),
        node_selector=selector.compiled if selector else None,
        spare_the_only_node=True,
    )


def _limits(document: PolicyDocument) -> Limits:
    return Limits(
        total=document.max_no_of_pods_to_evict_total,
        per_node=document.max_no_of_pods_to_evict_per_node,
        per_namespace=document.max_no_of_pods_to_evict_per_namespace,
    )


def _profile(policy: ProfilePolicy) -> Profile:
    given = _given(policy.plugin_config)
    return Profile(policy.name or "unnamed", _chosen(policy.plugins.judging, given), given.get(EVICTOR) or Args())


def _koordinator_profile(profile: ProfileConfiguration) -> Profile:
    given, (evictor,) = _given(profile.plugin_config), profile.plugins.evictors
    migration = given.get(MIGRATION) or MigrationControllerArgs()
    guards = {MIGRATION: migration.evictor_args(), EVICTOR: given.get(EVICTOR) or Args()}
    filters = profile.plugins.filters or (MIGRATION,)
    selector = profile.node_selector
    return Profile(
        name=profile.name or PROFILE,
        plugins=_chosen(profile.plugins.judging, given),
        args=guards[filters[0]],
        more_args=tuple(guards[name] for name in filters[1:]),
        node_selector=selector.compiled if selector else None,
        migration=migration if evictor == MIGRATION else None,
    )


def _given(entries: Iterable[PluginConfig]) -> dict[str, Any]:
    return {entry.name: entry.args for entry in entries}


def _chosen(names: Sequence[str], given: dict[str, Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple((plugin, given.get(plugin.name) or plugin.config()) for plugin in plugins_of(names))
