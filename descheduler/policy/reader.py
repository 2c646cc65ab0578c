"""A policy file → `Setup`. Read strictly: all mistakes at once, each with file:line:column.

Two kinds of file are understood; `kind` says which: upstream's DeschedulerPolicy and Koordinator's
DeschedulerConfiguration. What upstream drops in silence is an error here: an unknown key at the top. What it refuses
for no reason works: a plugin without an entry in pluginConfig (docs/compatibility.md).
"""

from __future__ import annotations

import dataclasses
import pathlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from descheduler import plugins
from descheduler.arguments.evictor import Args
from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.arguments.pacing import Pacing
from descheduler.filters.limits import Limits
from descheduler.plan import Profile, Setup
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
from koordlite.model.errors import ConfigError, Problem, reason
from koordlite.model.reading import documented, strict, yaml_bounds

__all__ = ["Configuration", "PluginConfig", "Policy", "PolicyDocument", "default", "load", "notices", "parse", "setup"]

PolicyDocument = Policy | Configuration
"""Either kind of file."""
ON_BY_DEFAULT = ("NUMAAlignment", "ReservedCPUs", "TopologyAffinityErrors")
"""Plugins that judge without a policy file: rules that a cluster breaks only by mistake, whatever its operator
prefers."""


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


def load(path: str, notes: list[Problem] | None = None) -> PolicyDocument:
    """The policy in the file at `path`; ConfigError lists every mistake in it. `notes` receives the notices."""
    return parse(text_of(path), path, notes)


def text_of(path: str) -> str:
    """The text of a policy file; ConfigError when it cannot be read."""
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(path, "$", "", reason(error), "name a readable YAML file")) from error


def parse(text: str, source: str, notes: list[Problem] | None = None) -> PolicyDocument:
    """The policy that `text` writes; `notes` receives what is no mistake but worth checking."""
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
    if notes is not None:
        notes += [*aliases.notices, *notices(document, source)]
    return document


def _missing_arguments(document: PolicyDocument, source: str) -> Iterator[Problem]:
    for i, profile in enumerate(_profiles(document)):
        configured = {entry.name for entry in profile.plugin_config if entry.args is not None}
        for plugin in plugins_of(profile.plugins.judging):
            missing = "" if plugin.name in configured else missing_args(plugin.config)
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
    profiles = []
    for one in policy.profiles:
        args = _args_by_plugin(one.plugin_config)
        plugins = _plugins(one.plugins.judging, args)
        profiles.append(Profile(one.name or "unnamed", plugins, args.get(EVICTOR) or Args()))
    return Setup(
        profiles=tuple(profiles),
        limits=msgspec.structs.replace(_limits(policy), per_owner=policy.max_no_of_pods_to_evict_per_owner),
        node_selector=label_selectors.parse(policy.node_selector) if policy.node_selector else None,
        grace_period_seconds=policy.grace_period_seconds,
        eviction_requests=policy.eviction_requests,
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


def _koordinator_profile(profile: ProfileConfiguration) -> Profile:
    args, (evictor,) = _args_by_plugin(profile.plugin_config), profile.plugins.evictors
    migration = args.get(MIGRATION) or MigrationControllerArgs()
    guards = {MIGRATION: migration.evictor_args(), EVICTOR: args.get(EVICTOR) or Args()}
    filters = profile.plugins.filters or (MIGRATION,)
    selector = profile.node_selector
    return Profile(
        name=profile.name or PROFILE,
        plugins=_plugins(profile.plugins.judging, args),
        args=guards[filters[0]],
        more_args=tuple(guards[name] for name in filters[1:]),
        node_selector=selector.compiled if selector else None,
        migration=migration if evictor == MIGRATION else None,
    )


def _args_by_plugin(entries: Iterable[PluginConfig]) -> dict[str, Any]:
    return {entry.name: entry.args for entry in entries}


def _plugins(names: Sequence[str], args: dict[str, Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple((plugin, args.get(plugin.name) or plugin.config()) for plugin in plugins_of(names))


_POINTS: Mapping[str, str] = {"preEvictionFilter": "preevictionfilter", "preSort": "presort"}
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "PodLifeTime": {"maxPodLifetimeSeconds": "maxPodLifeTimeSeconds"},
    "RemoveFailedPods": {"minPodLifeTimeSeconds": "minPodLifetimeSeconds"},
    "DefaultEvictor": {"ignorePVCPods": "ignorePvcPods", "ignorePodsWithoutPdb": "ignorePodsWithoutPDB"},
    "MigrationController": {"ignorePVCPods": "ignorePvcPods", "defaultJobTtl": "defaultJobTTL", "evictQps": "evictQPS"},
}
_CONNECTION: Mapping[str, str] = {"qPS": "qps", "QPS": "qps"}


class Aliases:
    """Rewrites one document; `notices` tells which keys were rewritten."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.notices: list[Problem] = []

    def prepare(self, root: yaml.Node) -> None:
        """Rewrite the parsed document in place; what has another shape than expected is left for the reader."""
        self._rename(yaml_bounds.child(root, "clientConnection"), _CONNECTION, "$.clientConnection")
        for i, profile in enumerate(_items(yaml_bounds.child(root, "profiles"))):
            path = f"$.profiles[{i}]"
            self._rename(yaml_bounds.child(profile, "plugins"), _POINTS, f"{path}.plugins")
            for _, point in _pairs(yaml_bounds.child(profile, "plugins")):
                _flatten(yaml_bounds.child(point, "enabled"))
                _flatten(yaml_bounds.child(point, "disabled"))
            for j, entry in enumerate(_items(yaml_bounds.child(profile, "pluginConfig"))):
                self._entry(entry, f"{path}.pluginConfig[{j}].args")

    def _entry(self, entry: yaml.Node, path: str) -> None:
        name = yaml_bounds.child(entry, "name")
        args = yaml_bounds.child(entry, "args")
        if not isinstance(name, yaml.ScalarNode) or not isinstance(args, yaml.MappingNode):
            return
        self._rename(args, _ARGUMENTS.get(name.value, {}), path)
        args.value = [pair for pair in args.value if not _is_type_meta(pair, name.value)]

    def _rename(self, node: yaml.Node | None, names: Mapping[str, str], path: str) -> None:
        for key, _ in _pairs(node):
            if key.value not in names:
                continue
            where, right = yaml_bounds.place(self._source, key), names[key.value]
            why = "upstream writes this key in another way and drops it like this"
            self.notices.append(Problem(where, f"{path}.{key.value}", "", why, f"taken as {right}; write it so"))
            key.value = right


def kind_of(text: str) -> tuple[str, str, str]:
    """(apiVersion, kind, line:column of the former) as far as the text has them; the reader tells what is wrong."""
    try:
        root = yaml.compose(yaml_bounds.checked(text), Loader=yaml_bounds.LOADER)
    except yaml.YAMLError:
        return "", "", ""
    nodes = yaml_bounds.child(root, "apiVersion"), yaml_bounds.child(root, "kind")
    version, kind = (node.value if isinstance(node, yaml.ScalarNode) else "" for node in nodes)
    mark = nodes[0].start_mark if nodes[0] else None
    return version, kind, f"{mark.line + 1}:{mark.column + 1}" if mark else ""


def _is_type_meta(pair: tuple[yaml.Node, yaml.Node], plugin: str) -> bool:
    """`kind` and `apiVersion` inside of args say nothing that the plugin's name does not."""
    key, value = pair
    words = {"kind": f"{plugin}Args", "apiVersion": "descheduler/v1alpha2"}
    return (
        isinstance(key, yaml.ScalarNode)
        and isinstance(value, yaml.ScalarNode)
        and words.get(str(key.value)) == value.value
    )


def _flatten(node: yaml.Node | None) -> None:
    """`[{name: X}]`, as Koordinator writes it, becomes `[X]`."""
    if not isinstance(node, yaml.SequenceNode):
        return
    for place, item in enumerate(node.value):
        names = [child for key, child in _pairs(item) if key.value == "name"]
        if len(names) == 1 and len(item.value) == 1:
            node.value[place] = names[0]


def _pairs(node: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((key, child) for key, child in node.value if isinstance(key, yaml.ScalarNode))


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


_WIDTH = 118
_HEAD = """\
# The policy that `descheduler plan` uses when it is given none: every option, with what it does.
# Generated by `descheduler default-config`. Options that are left out have the value null or the one shown here,
# except for the limits (left out: no limit) and nodeFit (left out: false).
"""


def default_policy() -> str:
    """configs/descheduler.yaml."""
    return "\n".join([_HEAD, *_fields(default(), "")]) + "\n"


def _fields(value: object, indent: str) -> Iterator[str]:
    # The shape of one plugin's entry is made at run time and has no source: its docstrings are its base's.
    shape = PluginConfig if isinstance(value, PluginConfig) else type(value)
    docs = documented.field_docs(shape)
    for key, (field, _) in strict.fields(type(value)).items():
        if field.name in docs:
            yield from textwrap.wrap(
                docs[field.name], _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
            )
        yield from _entry(key, getattr(value, field.name), indent)


def _entry(key: str, value: object, indent: str) -> Iterator[str]:
    if dataclasses.is_dataclass(value):
        yield f"{indent}{key}:"
        yield from _fields(value, f"{indent}  ")
    elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        yield f"{indent}{key}:"
        for item in value:
            # A list item starts with a bare dash, so that its fields and comments line up as everywhere else.
            yield f"{indent}  -"
            yield from _fields(item, f"{indent}    ")
    else:
        yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: object) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
