"""Pods that a report has counted, and what is to be taken from it, or given back, for those it has not.

Source of the cache modes: scheduler-plugins NodeResourceTopologyMatch, cache (overreserve, discardReserved,
passthrough) and its resync by the fingerprint of the node's pods. Ours: which pods a fingerprint counted is worked out,
so that only those it has not counted are reserved on top.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping

import msgspec

from koordlite.numa.nrt import fingerprint
from koordlite.numa.nrt.filter import Amounts, Zones
from koordlite.reservation.pods import KnownPod
from koordlite.scheduler.judgement.reports import Report

_NOTHING: Mapping[int, Amounts] = {}
MOST_TRIES = 4
"""Pods that are tried in any combination."""
MOST_LATE = 16
"""Pods that came, and that went, that are tried in their order."""


class Coverage(msgspec.Struct, frozen=True):
    """Coverage of the known pods by a report."""

    is_known: bool
    """Whether it could be worked out. If not, every pod that came since it last could is taken for not counted."""
    uncounted: tuple[KnownPod, ...] = ()
    """Alive, and not in the report."""
    outlived: tuple[KnownPod, ...] = ()
    """In the report, and gone."""
    how: str = ""


def coverage(
    report: Report, alive: Collection[KnownPod], gone: Collection[KnownPod], fresh: Collection[str]
) -> Coverage:
    """Coverage by `report` of the pods `alive` on the node and of those recently `gone`.

    `fresh` are the uids of those that the report was not known to count so far. Without a fingerprint, all others are
    taken for counted, and those that it places by name.
    """
    if not report.fingerprint:
        uncounted = tuple(pod for pod in alive if pod.uid in fresh and not report.places(pod.namespace, pod.name))
        return Coverage(not uncounted, uncounted, (), "the report carries no fingerprint of its pods")
    old = [pod for pod in alive if pod.uid not in fresh]
    new = [pod for pod in alive if pod.uid in fresh]
    for with_new, with_gone in _guesses(report, new, list(gone)):
        if fingerprint.sign(_names(report, [*old, *with_new, *with_gone])) == report.fingerprint:
            uncounted = tuple(pod for pod in new if pod not in with_new)
            return Coverage(True, uncounted, tuple(with_gone), "by fingerprint")
    if fingerprint.sign(_names(report, [pod for pod in alive if pod.started])) == report.fingerprint:
        return Coverage(True, tuple(pod for pod in alive if not pod.started), (), "by fingerprint of the pods started")
    # What it places by name it has counted, whatever else it signed; of two pods of one name nobody knows which.
    names, before = {pod.key for pod in alive}, {pod.key for pod in gone}
    uncounted = tuple(pod for pod in new if pod.key in before or not report.places(pod.namespace, pod.name))
    outlived = tuple(pod for pod in gone if pod.key not in names and report.places(pod.namespace, pod.name))
    return Coverage(False, uncounted, outlived, "the report's fingerprint is that of other pods")


def _guesses(
    report: Report, new: list[KnownPod], gone: list[KnownPod]
) -> Iterable[tuple[list[KnownPod], list[KnownPod]]]:
    """Likely ones first: all is counted, nothing is, what the report places by name; then new pods in any combination,
    or, where those are too many, as they came and went one after the other."""
    for with_gone in ([], gone) if gone else ([],):
        yield new, with_gone
        yield [], with_gone
    placed = [pod for pod in new if report.places(pod.namespace, pod.name)]
    yield placed, [pod for pod in gone if report.places(pod.namespace, pod.name)]
    if len(new) + len(gone) <= MOST_TRIES:
        for with_gone in _subsets(gone):
            for with_new in _subsets(new):
                yield with_new, with_gone
    else:
        for went in range(min(len(gone), MOST_LATE) + 1):
            for came in range(min(len(new), MOST_LATE) + 1):
                yield new[:came], gone[len(gone) - went :]


def _subsets(pods: list[KnownPod]) -> Iterable[list[KnownPod]]:
    for size in range(len(pods) + 1):
        yield from map(list, itertools.combinations(pods, size))


def _names(report: Report, pods: Iterable[KnownPod]) -> Iterable[tuple[str, str]]:
    listed, every = report.resources, not report.only_exclusive
    counted = (pod for pod in pods if every or has_exclusive(pod.shape.exclusive, listed))
    return ((pod.namespace, pod.name) for pod in counted)


def has_exclusive(exclusive: Amounts, listed: Collection[str]) -> bool:
    """Tell whether any of a pod's exclusive resources counts on a node that lists these: a device has to be listed.

    Source: scheduler-plugins resourcerequests/exclusive.go.
    """
    return any(name in listed or name in ("cpu", "memory") or name.startswith("hugepages-") for name in exclusive)


def on_top(report: Report, reserved: Iterable[Amounts], returned: Mapping[int, Amounts]) -> Zones:
    """Available amounts when `reserved` is taken from every NUMA node, since nobody knows yet from which it will be
    taken, and `returned` is given back to the NUMA nodes it was on. Below nothing where more is taken than there is:
    `settled` tells both apart."""
    total: dict[str, int] = {}
    for amounts in reserved:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    if not total and not returned:
        return report.available
    return {
        node: {
            name: min(left + returned.get(node, {}).get(name, 0), most) - total.get(name, 0)
            for name, left, most in ((n, a, report.totals[node].get(n, a)) for n, a in zone.items())
        }
        for node, zone in report.available.items()
    }


def settled(zones: Zones) -> tuple[Zones, Zones]:
    """(What is available, by how much less than nothing)."""
    if all(left >= 0 for zone in zones.values() for left in zone.values()):
        return zones, _NOTHING
    available = {node: {name: max(0, left) for name, left in zone.items()} for node, zone in zones.items()}
    owed = {node: {name: -left for name, left in zone.items() if left < 0} for node, zone in zones.items()}
    return available, owed
