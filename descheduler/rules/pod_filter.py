"""The pods that a plugin looks at: by namespace, labels and kinds of owners, alike in all plugins."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from descheduler.arguments.common import LabelSelector, MovingPods, Namespaces
from descheduler.framework import Handle, NodeView, PodView, View
from descheduler.picture import templates
from descheduler.picture.templates import LabelIndex, SpecGroup
from koordlite.model import label_selectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnerKinds:
    """Kinds of owners, such as `Job`: those to judge, or those to leave out."""

    include: tuple[str, ...] = ()
    """Only pods that have an owner of one of these kinds; empty: all."""
    exclude: tuple[str, ...] = ()
    """Only pods that have no owner of these kinds."""

    def __post_init__(self) -> None:
        if self.include and self.exclude:
            raise ValueError("ownerKinds takes include or exclude, not both")

    def choose(self, pod: PodView) -> bool:
        """Tell whether the pod is to be judged."""
        if self.include:
            return owned_by(pod, self.include)
        return not (self.exclude and owned_by(pod, self.exclude))


ANY_OWNER = OwnerKinds()
"""Pods of any owner, and of none."""


def owned_by(pod: PodView, kinds: Collection[str]) -> bool:
    """Tell whether it has an owner of one of these kinds. All owners count, not only the controller."""
    return any(owner.kind in kinds for owner in pod.object.metadata.owner_references or ())


def select(pods: Sequence[PodView], namespaces: Namespaces, selector: LabelSelector | None) -> Sequence[PodView]:
    """Filter `pods` by `namespaces` and `selector`, in their order."""
    if namespaces.include:
        included = frozenset(namespaces.include)
        pods = [pod for pod in pods if pod.pod.namespace in included]
    elif namespaces.exclude:
        excluded = frozenset(namespaces.exclude)
        pods = [pod for pod in pods if pod.pod.namespace not in excluded]
    if selector is None:
        return pods
    compiled = selector.compiled
    return [pod for pod in pods if label_selectors.labels_match(compiled, pod.pod.labels)]


def select_groups(
    view: View, nodes: Sequence[NodeView], namespaces: Namespaces, selector: LabelSelector | None
) -> Sequence[SpecGroup]:
    """The pods that stand on `nodes` and that `namespaces` and `selector` leave, by what they share."""
    groups: Sequence[SpecGroup] = view.groups
    if namespaces.include or namespaces.exclude:
        groups = [group for group in groups if namespaces.chosen(group.namespace)]
    if selector is None and len(nodes) == len(view.nodes):
        return groups
    names = frozenset(node.name for node in nodes)
    return [group for one in groups if (group := _narrow(one, names, selector))]


def _narrow(group: SpecGroup, names: Collection[str], selector: LabelSelector | None) -> SpecGroup | None:
    """The group without pods that stand elsewhere or have other labels; None when no pod is left."""
    pods = [
        pod
        for template in group.templates
        if selector is None or selector.matches(template.labels)
        for pod in template.pods
        if pod.node in names
    ]
    return SpecGroup.of(pods) if pods else None


def indices(view: View, groups: Sequence[SpecGroup]) -> Mapping[str, LabelIndex]:
    """`select_groups` by label, by namespace; shared by all who look at all pods of the picture."""
    return view.indices if groups is view.groups else templates.indices(groups)


def leaving(pods: Iterable[PodView], config: MovingPods, handle: Handle) -> list[PodView]:
    """The pods that a plugin may move: it is to look at them, they do not go already, and no guard protects them."""
    return [pod for pod in pods if config.may_leave(pod) and not handle.going(pod) and handle.evictable(pod)]


def staying_requests(node: NodeView, handle: Handle, resources: Collection[str]) -> dict[str, int]:
    """Nano-units that the pods which stay on the node take."""
    staying = [pod for pod in node.pods if not handle.going(pod)]
    return {name: sum(pod.taken_nano(name) for pod in staying) for name in resources}
