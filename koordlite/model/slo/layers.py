"""One document of `slo-controller-config` as layers: the cluster's strategy and that of the first matching group."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from koordlite.model import label_selectors
from koordlite.model.errors import Problem
from koordlite.model.reading import declared
from koordlite.model.reading.declared import Path, Values
from koordlite.model.reading.lenient_json import JSONDocument, printable
from koordlite.model.slo.settings import SLO, GoodDocument


class Layer(msgspec.Struct, frozen=True):
    """Settings and where they come from."""

    origin: str
    values: Values


Read = Callable[[JSONDocument, Mapping[str, Any], str, str], tuple[Values, bool]]
"""Settings among the members of a strategy at a path, given what holds in place of bad ones; and whether all
are usable."""


def _as_it_is(value: Any) -> tuple[Any, tuple[Path, ...]]:
    return value, ()


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Structure of one key's document, and its meaning."""

    key: str
    attribute: str
    """Of `SLO`."""
    base: Any
    """What the given settings are laid over."""
    cluster: str = ""
    """Member that holds the cluster's strategy; empty when it is the document itself."""
    entries: str = "nodeConfigs"
    """Member that lists the strategies for groups of nodes."""
    blank_is_unset: bool = False
    """Empty text counts as no text; else it is broken JSON, as Koordinator has it."""
    settle: Callable[[Any], tuple[Any, tuple[Path, ...]]] = _as_it_is
    """The value as it takes effect, and the paths of settings that do not count."""
    read: Read | None = None
    """In place of the declared settings of `base`."""

    @property
    def name(self) -> str:
        """Name in `SLO.origins`."""
        return declared.camel(self.attribute)

    @property
    def settings(self) -> Read:
        """Reader of a strategy."""
        return self.read or functools.partial(_declared, type(self.base))

    @property
    def names(self) -> tuple[str, ...]:
        """Members of a strategy."""
        return tuple(declared.settings(type(self.base)))

    def value(self, layers: list[Layer]) -> Any:
        """Merge the layers, the later ones on top."""
        merged = {path: value for layer in layers for path, value in layer.values.items()}
        return self.settle(declared.build(self.base, merged))[0]


class Reading:
    """One pass over the ConfigMap: what it is read for, and what comes up on the way."""

    def __init__(
        self,
        data: Mapping[str, str],
        labels: Mapping[str, str],
        previous: SLO | None,
        owner: str,
        now: GoodDocument | None = None,
    ) -> None:
        """`now` says when and at which version `data` was taken."""
        self.data, self.labels, self.owner, self.now = data, labels, owner, now or GoodDocument("")
        self.last_good = previous.good if previous else {}
        self.problems: list[Problem] = []
        self.origins: dict[str, str] = {}
        self.good: dict[str, GoodDocument] = {}
        self.kept: dict[str, str] = {}

    def layers(self, section: Section) -> list[Layer]:
        """Cluster and matching group of one key, from its last good document if the present one cannot be used."""
        text = self.data.get(section.key)
        if text is None or (text == "" and section.blank_is_unset):
            return []
        held = self.last_good.get(section.key)
        since = f" ({held.origin})" if held and held.origin else ""
        meanwhile = "the defaults hold" if held is None else f"the last good values stay in force{since}"
        found = _Strategies(self, section, meanwhile, self.problems).layers(text)
        if found is not None:
            same = held is not None and held.text == text
            self.good[section.key] = held if held and same else msgspec.structs.replace(self.now, text=text)
            return found
        self.kept[section.key] = meanwhile
        if held is None:
            return []
        self.good[section.key] = held
        # It was judged, and its mistakes were reported, when it came.
        return _Strategies(self, section, meanwhile, [], judged=True).layers(held.text) or []

    def overlay(self, section: Section, layers: list[Layer]) -> Any:
        """Merge the layers and remember the origin of each value."""
        merged: Values = {}
        origins: dict[Path, str] = {}
        for layer in layers:
            merged |= layer.values
            origins |= dict.fromkeys(layer.values, layer.origin)
        value, unused = section.settle(declared.build(section.base, merged))
        for path, origin in origins.items():
            counts = path[-1] == "enable" or not any(path[: len(off)] == off for off in unused)
            self.origins[".".join((section.name, *path))] = origin if counts else "off: enable is false"
        return value


class _Strategies:
    """The strategies of one document."""

    def __init__(
        self, reading: Reading, section: Section, meanwhile: str, problems: list[Problem], *, judged: bool = False
    ) -> None:
        self.labels, self.section, self.judged, self.meanwhile = reading.labels, section, judged, meanwhile
        self.document = JSONDocument(reading.owner, section.key, meanwhile)
        self.document.problems = problems

    def layers(self, text: str) -> list[Layer] | None:
        """None when the document cannot be used."""
        document, section = self.document, self.section
        own = () if section.cluster else section.names
        root = document.object(document.decode(text), "", (*own, *filter(None, [section.cluster]), section.entries))
        strategy = (
            document.object(root.get(section.cluster), section.cluster, section.names) if section.cluster else root
        )
        values, usable = section.settings(document, strategy, section.cluster, self.meanwhile)
        cluster = Layer("cluster", values)
        usable = usable and not self._crossed([cluster], section.cluster, self.meanwhile)
        groups = list(self._matching(root.get(section.entries), cluster))
        if document.broken or not (usable or self.judged):
            return None
        return [cluster, *groups[:1]]

    def _matching(self, listed: Any, cluster: Layer) -> Iterator[Layer]:
        """The groups this node is in. More than one is a mistake: the first counts."""
        first = ""
        for index, item in enumerate(self.document.items(listed, self.section.entries)):
            path = f"{self.section.entries}[{index}]"
            group = self._group(item, path, cluster)
            if group and first:
                do = f"make the selectors differ; {first} counts, it comes first"
                self.document.note(f"{path}.nodeSelector", group.origin, f"selects the nodes of {first} too", do)
            elif group:
                first = group.origin
                yield group

    def _group(self, item: Any, path: str, cluster: Layer) -> Layer | None:
        """The settings of a group of nodes; None when this node is not in it."""
        document, meanwhile = self.document, "the cluster's strategy holds for these nodes"
        members = document.object(item, path, (*self.section.names, "name", "nodeSelector"))
        values, usable = self.section.settings(document, members, path, meanwhile)
        name = printable(document.text(members, "name", path)) or path
        usable = usable and not self._crossed([cluster, Layer(name, values)], path, meanwhile)
        return Layer(f"node strategy {name}", values if usable else {}) if self._selected(members, path) else None

    def _selected(self, members: Mapping[str, Any], path: str) -> bool:
        where = f"{path}.nodeSelector"
        if "nodeSelector" not in members:
            self.document.note(where, "", "no selector", "write one, or {}; it matches no node")
            return False
        chosen = label_selectors.read(self.document, members["nodeSelector"], where)
        try:
            return label_selectors.matches(chosen, self.labels)
        except ValueError as error:
            self.document.note(where, members["nodeSelector"], str(error), "fix it; the strategy is skipped")
            return False

    def _crossed(self, layers: list[Layer], path: str, meanwhile: str) -> bool:
        """Tell whether an upper end is not above its lower one; only of these layers, the values below them are
        fine."""
        found = list(declared.crossed(self.section.value(layers))) if layers[-1].values else []
        for where, why in found:
            self.document.note(".".join(filter(None, (path, where))), "", why, f"fix it; {meanwhile}")
        return bool(found)


def _declared(
    shape: type, document: JSONDocument, members: Mapping[str, Any], path: str, meanwhile: str
) -> tuple[Values, bool]:
    return declared.read(document, shape, members, path, meanwhile)
