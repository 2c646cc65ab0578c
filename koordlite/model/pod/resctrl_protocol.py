"""Koordinator's protocol for resctrl: annotation `node.koordinator.sh/resctrl` of a pod, and the names of groups.

Source: Koordinator's runtime hook `resctrl` (`ResctrlConfig`) and its constants for the groups of classes.
"""

from __future__ import annotations

import functools

import msgspec

from koordlite.model import keys
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.reading import declared
from koordlite.resctrl.shares import Range, Shares
from koordlite.resctrl.values import MON_GROUPS, PERCENT

CLASS_GROUPS = ("LSR", "LS", "BE")
_POD_PREFIX = "koordlet-"


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Shares:
    """The shares in the pod's annotation, read as Go reads JSON; ValueError says what is wrong with it.
    A percent of 0 counts as not given, as in Koordinator. There a bad range silently drops what follows it; here the
    whole annotation is refused, so that its author learns of the mistake."""
    read = declared.decode(_Annotation, text)
    caches, bandwidths = read.llc.schemata_per_cache, read.mb.schemata_per_cache
    ranges = ((each.cache_id, _range(each.range, f"llc of cache {each.cache_id}")) for each in caches)
    percents = ((each.cache_id, _percent(each.percent, f"mb of cache {each.cache_id}")) for each in bandwidths)
    return Shares(
        cache=_range(read.llc.schemata.range, "llc.schemata.range"),
        cache_by_id={cache: ends for cache, ends in ranges if ends},
        bandwidth=_percent(read.mb.schemata.percent, "mb.schemata.percent"),
        bandwidth_by_id={cache: percent for cache, percent in percents if percent is not None},
    )


def parse_or_none(text: str) -> Shares | None:
    """`parse`, or None for an annotation that cannot be read."""
    try:
        return parse(text)
    except ValueError:
        return None


def class_of(pod: Pod) -> QoSClass | None:
    """The class whose group a pod's threads belong to; None for SYSTEM, and for a pod whose annotation asks for
    nothing: it stays in the root group, which is not limited."""
    text = pod.annotations.get(keys.POD_RESCTRL)
    if text is not None and parse_or_none(text) == Shares():
        return None
    return group_class(pod.qos_class)


def group_class(qos: QoSClass) -> QoSClass | None:
    """LSE and LSR share group LSR; classes without a group have none."""
    qos_class = QoSClass.LSR if qos is QoSClass.LSE else qos
    return qos_class if qos_class in CLASS_GROUPS else None


def pod_group(uid: str) -> str:
    """The group of a pod that asks for its own."""
    return f"{_POD_PREFIX}{uid}"


def pod_monitor(control: str, uid: str) -> str:
    """The monitoring group of a pod inside a control group."""
    return f"{control}{MON_GROUPS}{_POD_PREFIX}{uid}"


def is_pod_group(group: str) -> bool:
    """Tell whether a control group is a pod's own, by its name."""
    return group.startswith(_POD_PREFIX) and MON_GROUPS not in group


def uid_of(group: str) -> str:
    """The pod whose control or monitoring group it is; empty for others."""
    last = group.rpartition("/")[2]
    return last.removeprefix(_POD_PREFIX) if last.startswith(_POD_PREFIX) else ""


def may_be_ours(group: str) -> bool:
    """Tell whether the protocol knows groups of this name: no other is ever made or removed."""
    return group in CLASS_GROUPS or bool(uid_of(group))


class _CacheRange(msgspec.Struct, frozen=True):
    cache_id: int = 0
    range: tuple[int, ...] = ()


class _Percent(msgspec.Struct, frozen=True):
    cache_id: int = 0
    percent: int = 0


class _CacheRanges(msgspec.Struct, frozen=True):
    schemata: _CacheRange = _CacheRange()
    schemata_per_cache: tuple[_CacheRange, ...] = ()


class _Percents(msgspec.Struct, frozen=True):
    schemata: _Percent = _Percent()
    schemata_per_cache: tuple[_Percent, ...] = ()


class _Annotation(msgspec.Struct, frozen=True):
    llc: _CacheRanges = _CacheRanges()
    mb: _Percents = _Percents()


def _range(ends: tuple[int, ...], where: str) -> Range | None:
    if not ends:
        return None
    if len(ends) != 2 or not 0 <= ends[0] < ends[1] <= PERCENT:
        raise ValueError(f"{where}: {list(ends)} is not a start below an end, both within 0 to 100")
    return ends[0], ends[1]


def _percent(percent: int, where: str) -> int | None:
    if not 0 <= percent <= PERCENT:
        raise ValueError(f"{where}: {percent} is not within 1 to 100")
    return percent or None
