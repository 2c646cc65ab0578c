"""The pods that each PodDisruptionBudget covers, kept up to date with the pods that come and go."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from descheduler.framework import DisruptionBudget, PodView
from descheduler.picture import templates
from descheduler.picture.templates import SpecGroup
from koordlite.model import label_selectors
from koordlite.model.wire import objects as wire


class CoveredPods(msgspec.Struct, frozen=True):
    """A budget, and what it was made of."""

    object: wire.PodDisruptionBudgetObject
    budget: DisruptionBudget


def covered(
    objects: Iterable[wire.PodDisruptionBudgetObject],
    everything: Iterable[SpecGroup],
    before: Mapping[str, CoveredPods],
    left: Iterable[PodView],
    came: Iterable[PodView],
) -> dict[str, CoveredPods]:
    """The budgets by `namespace/name`. `before`: those of the last picture, since when pods `left` and `came`;
    `everything`: all pods that there are now."""
    gone, new = _by_namespace(left), _by_namespace(came)
    indices = functools.cache(lambda: templates.indices(everything))
    found: dict[str, CoveredPods] = {}
    for obj in objects:
        meta = obj.metadata
        key = f"{meta.namespace}/{meta.name}"
        known = before.get(key)
        if known is None or known.object.spec != obj.spec:
            index = indices().get(meta.namespace)
            pods = frozenset([one.uid for one in index.select(obj.spec.selector)] if index else ())
        else:
            pods = _followed(known, gone.get(meta.namespace, ()), new.get(meta.namespace, ()))
        budget = DisruptionBudget(key, obj.status.disruptions_allowed, pods)
        found[key] = CoveredPods(obj, known.budget if known and known.budget == budget else budget)
    return found


def _by_namespace(pods: Iterable[PodView]) -> Mapping[str, list[PodView]]:
    found: dict[str, list[PodView]] = defaultdict(list)
    for one in pods:
        found[one.pod.namespace].append(one)
    return found


def _followed(known: CoveredPods, left: Iterable[PodView], came: Iterable[PodView]) -> frozenset[str]:
    selector, pods = known.object.spec.selector, known.budget.pods
    if selector is None:
        return pods
    gone = [one.uid for one in left if label_selectors.labels_match(selector, one.pod.labels)]
    new = [one.uid for one in came if label_selectors.labels_match(selector, one.pod.labels)]
    return pods.difference(gone).union(new) if gone or new else pods
