"""Differences between what is published on the NodeResourceTopology and what it should say.

Texts are compared by what they mean: order of names, blanks and the way numbers are written do not count. Source:
Koordinator `nodeTopologyStatus.isChanged`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from koordlite.formulas.topology import zones
from koordlite.model import keys
from koordlite.model.errors import UNREADABLE
from koordlite.model.picture.published import Published
from koordlite.model.quantity import Quantity
from koordlite.model.wire.objects import Zone

ANNOTATIONS = (
    keys.CPU_BASIC_INFO,
    keys.CPU_MANAGER_POLICY,
    keys.LS_SHARED_POOLS,
    keys.BE_SHARED_POOLS,
    keys.CPU_TOPOLOGY,
    keys.POD_CPU_ALLOCS,
    keys.RESERVATION,
    keys.SYSTEM_QOS,
)
"""The annotations Koordinator's scheduler reads there, in the order they are compared."""

RESOURCES = ("cpu", "memory", *zones.HUGE_PAGES)
"""Resources of a zone that are ours; other resources have other owners."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The value to publish; None: not to be there."""

    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None]
    policies: tuple[str, ...] = ()
    zones: Sequence[Zone] | None = None
    """None: zones, policies and attributes stay as they are."""
    attributes: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    """Resources that no zone has any more."""
    zone_attributes: frozenset[str] = frozenset()
    """Names of the attributes of zones that are ours."""
    tells_available: bool = False
    """True where `available` of a resource is its free amount. Koordinator's zones only repeat `allocatable` there."""


def difference(published: Published, target: Report) -> str:
    """The first thing that differs, in words; empty when all is as wanted."""
    if not published.topology:
        return "metadata changed"
    if target.zones is not None and published.topology_policies != target.policies:
        return "TopologyPolicies changed"
    for key, text in target.annotations.items():
        if not same_text(published.topology.get(key), text):
            return f"annotations changed, key {key}"
    for key, label in target.labels.items():
        if published.topology_labels.get(key) != label:
            return f"labels changed, key {key}"
    return _zones_difference(published, target)


def zones_differ(published: Published, target: Report) -> bool:
    """Tell whether zones, policies or attributes have to be written."""
    return published.topology_policies != target.policies or bool(_zones_difference(published, target))


def _zones_difference(published: Published, target: Report) -> str:
    if target.zones is None:
        return ""
    for name, value in target.attributes.items():
        if published.topology_attributes.get(name) != value:
            return f"attributes changed, name {name}"
    item = _zone_difference(published.zones, target.zones, target)
    return f"Zones changed, item: {item}" if item else ""


def same_text(published: str | None, target: str | None) -> bool:
    """Tell whether two annotations mean the same JSON; two that cannot be read are the same."""
    if published is None or target is None:
        return published == target
    return published == target or _meaning(published) == _meaning(target)


def _zone_difference(published: Sequence[Zone], target: Sequence[Zone], report: Report) -> str:
    """The first thing that differs between the zones; empty when nothing of ours does."""
    if len(published) != len(target):
        return "zones number"
    pairs = list(zip(published, target, strict=True))
    for index, (old, new) in enumerate(pairs):
        if old.name != new.name:
            return f"zone {index} name"
        if old.type != new.type:
            return f"zone {index} type"
        if any(_attribute(old, name) != _attribute(new, name) for name in report.zone_attributes):
            return f"zone {index} attributes"
    for old, new in pairs:
        was, now = _amounts(old, report), _amounts(new, report)
        if report.gone & was.keys() or any(was.get(name) != now.get(name) for name in (*RESOURCES, *now)):
            return "resources"
    return ""


def _attribute(zone: Zone, name: str) -> str | None:
    return next((each.get("value") for each in zone.attributes or () if each.get("name") == name), None)


def _amounts(zone: Zone, report: Report) -> dict[str, list[Quantity | str]]:
    """Amounts by resource; one that cannot be read differs from every one that can."""
    amounts: dict[str, list[Quantity | str]] = {}
    for each in zone.resources or ():
        texts = [each.capacity, each.allocatable, *([each.available] if report.tells_available else [])]
        for text in texts:
            try:
                amount: Quantity | str = Quantity.parse(text)
            except ValueError:
                amount = str(text)
            amounts.setdefault(each.name, []).append(amount)
    return amounts


def _meaning(text: str) -> str | None:
    try:
        # Go knows one kind of number.
        return json.dumps(json.loads(text, parse_int=float), sort_keys=True)
    except UNREADABLE:
        return None
