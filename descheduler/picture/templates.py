"""Pods in groups that share, object for object, what their owner wrote: what that says is asked once for all of them.

A cluster has tens of pods of each template, and the snapshot keeps equal parts once. So a rule about labels, owners or
affinity is put to thousands of templates, not to hundreds of thousands of pods. Where nothing is shared each pod is a
template of its own: the answers are the same and only take longer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from koordlite.model.wire import objects

if TYPE_CHECKING:
    from descheduler.picture.cluster import PodView


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """Pods with the same namespace, labels, owners, containers, affinity, node selector, tolerations and spread
    constraints. Annotations, priority, status and the rest may differ."""

    pods: list[PodView]
    """At least one; in the order of the picture: by node, namespace and name."""

    @property
    def first(self) -> PodView:
        """The pod that speaks for all of them."""
        return self.pods[0]

    @property
    def namespace(self) -> str:
        """Of all of them."""
        return self.pods[0].pod.namespace

    @property
    def labels(self) -> Mapping[str, str]:
        """Of all of them."""
        return self.pods[0].pod.labels

    @property
    def spec(self) -> objects.PodSpec:
        """The first pod's; of the others only the parts that make a template are the same."""
        return self.pods[0].object.spec


def gather(pods: Iterable[PodView]) -> tuple[Template, ...]:
    """The templates of `pods`, which come in the order of the picture; in the order of their first pods.

    Identities serve as keys while `pods` keep their parts alive, that is, until this returns.
    """
    found: dict[tuple[int, ...], list[PodView]] = {}
    for pod in pods:
        meta, spec = pod.object.metadata, pod.object.spec
        key = (
            id(meta.namespace),
            id(meta.labels),
            id(meta.owner_references),
            id(spec.containers),
            id(spec.affinity),
            id(spec.node_selector),
            id(spec.tolerations),
            id(spec.topology_spread_constraints),
        )
        alike = found.get(key)
        if alike is None:
            found[key] = [pod]
        else:
            alike.append(pod)
    return tuple(map(Template, found.values()))


def pods_of(templates: Iterable[Template]) -> list[PodView]:
    """Their pods in the order of the picture."""
    lists = [template.pods for template in templates]
    if len(lists) == 1:
        return list(lists[0])
    return sorted((pod for pods in lists for pod in pods), key=place)


def place(pod: PodView) -> tuple[str, str, str]:
    """Sort key for the order of the picture."""
    return pod.node, pod.pod.namespace, pod.pod.name
