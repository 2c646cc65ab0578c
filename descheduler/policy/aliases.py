"""Spellings of policy files that their authors could not know better: rewritten before the file is read strictly.

Upstream's documents and its decoder disagree about the case of some keys, and drops the wrong one in silence; the
two products write the same list in two shapes. Each rewriting of a key is reported as a notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from koordlite.model.errors import Problem
from koordlite.model.reading import yaml_bounds

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
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
        self._rename(_child(root, "clientConnection"), _CONNECTION, "$.clientConnection")
        for i, profile in enumerate(_items(_child(root, "profiles"))):
            path = f"$.profiles[{i}]"
            self._rename(_child(profile, "plugins"), _POINTS, f"{path}.plugins")
            for _, point in _pairs(_child(profile, "plugins")):
                _flatten(_child(point, "enabled"))
                _flatten(_child(point, "disabled"))
            for j, entry in enumerate(_items(_child(profile, "pluginConfig"))):
                self._entry(entry, f"{path}.pluginConfig[{j}].args")

    def _entry(self, entry: yaml.Node, path: str) -> None:
        name = _child(entry, "name")
        args = _child(entry, "args")
        if not isinstance(name, yaml.ScalarNode) or not isinstance(args, yaml.MappingNode):
            return
        self._rename(args, _ARGUMENTS.get(name.value, {}), path)
        args.value = [pair for pair in args.value if not _is_type_meta(pair, name.value)]

    def _rename(self, node: yaml.Node | None, names: Mapping[str, str], path: str) -> None:
        for key, _ in _pairs(node):
            if key.value not in names:
                continue
            mark, right = key.start_mark, names[key.value]
            where = f"{self._source}:{mark.line + 1}:{mark.column + 1}"
            why = "upstream writes this key in another way and drops it like this"
            self.notices.append(Problem(where, f"{path}.{key.value}", "", why, f"taken as {right}; write it so"))
            key.value = right


def kind_of(text: str) -> tuple[str, str, str]:
    """(apiVersion, kind, line:column of the former) as far as the text has them; the reader tells what is wrong."""
    try:
        root = yaml.compose(yaml_bounds.checked(text), Loader=_LOADER)
    except yaml.YAMLError:
        return "", "", ""
    found = _child(root, "apiVersion"), _child(root, "kind")
    version, kind = (node.value if isinstance(node, yaml.ScalarNode) else "" for node in found)
    mark = found[0].start_mark if found[0] else None
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


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    return next((child for key, child in _pairs(node) if key.value == name), None)
