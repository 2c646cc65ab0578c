"""Arguments that many plugins take: label selectors and namespaces, checked when they are read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Literal

from descheduler.picture.cluster import NodeView
from descheduler.picture.pods import PodView
from koordlite.model import label_selectors
from koordlite.model.wire import objects


@dataclasses.dataclass(frozen=True, kw_only=True)
class Requirement:
    """One line of matchExpressions."""

    key: str = ""
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = "In"
    """Comparison of the label."""
    values: tuple[str, ...] = ()
    """Values for In and NotIn."""

    def __post_init__(self) -> None:
        label_selectors.check_requirement(self.key, self.operator, self.values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSelector:
    """A label selector as Kubernetes writes it; empty selects everything."""

    match_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Labels that must be equal."""
    match_expressions: tuple[Requirement, ...] = ()
    """Requirements that must all hold."""

    def __post_init__(self) -> None:
        for key, value in self.match_labels.items():
            label_selectors.check_requirement(key, "In", (value,))

    @functools.cached_property
    def compiled(self) -> objects.LabelSelector:
        """The same selector as the API server writes it."""
        lines = (
            objects.LabelRequirement(key=r.key, operator=r.operator, values=r.values) for r in self.match_expressions
        )
        return objects.LabelSelector(match_labels=dict(self.match_labels), match_expressions=tuple(lines))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object has the labels."""
        return label_selectors.labels_match(self.compiled, labels)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodSelector:
    """One group of pods that may leave."""

    name: str = ""
    """Name for people."""
    selector: LabelSelector | None = None
    """Selector of pods; null: the entry says nothing. Where no entry has a selector, all pods may leave."""


def is_selected(selectors: Iterable[PodSelector], labels: Mapping[str, str]) -> bool:
    """Tell whether a selector chooses a pod with these labels; without any selector every pod is chosen.

    Source: Koordinator `podSelectors`.
    """
    present = [entry.selector for entry in selectors if entry.selector is not None]
    return not present or any(selector.matches(labels) for selector in present)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Namespaces:
    """Namespaces by name: those to judge, or those to leave out."""

    include: tuple[str, ...] = ()
    """Only these; empty: all."""
    exclude: tuple[str, ...] = ()
    """All but these."""

    def __post_init__(self) -> None:
        if self.include and self.exclude:
            raise ValueError("namespaces takes include or exclude, not both")

    def chosen(self, namespace: str) -> bool:
        """Tell whether the namespace is to be judged."""
        return namespace in self.include if self.include else namespace not in self.exclude


ANY_NAMESPACE = Namespaces()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodChoice:
    """The pods that a plugin judges; the plugin's own arguments follow."""

    namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods are judged; empty: all."""
    label_selector: LabelSelector | None = None
    """Only pods that match are judged; null: all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MovingPods:
    """Nodes and pods of Koordinator's plugins; the plugin's own arguments follow."""

    paused: bool = False
    """Judge nothing."""
    node_selector: LabelSelector | None = None
    """Only these nodes are looked at, as sources and as places to go; null: all."""
    pod_selectors: tuple[PodSelector, ...] = ()
    """Only pods that one of these selects may leave; without any selector: all. The others still count as requests."""
    evictable_namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods may leave; pods of the others still count as requests."""

    def selects(self, node: NodeView) -> bool:
        """Tell whether the node is one of those that are looked at."""
        return self.node_selector is None or self.node_selector.matches(node.node.labels)

    def may_leave(self, pod: PodView) -> bool:
        """Tell whether the pod is chosen by selectors and namespaces."""
        return self.evictable_namespaces.chosen(pod.pod.namespace) and is_selected(self.pod_selectors, pod.pod.labels)
