"""Pods in groups by the pod template they were made from: what that says is worked out once for all of them.

A cluster has tens of pods of each template. So a rule about labels, owners or affinity is applied to thousands of
templates, not to hundreds of thousands of pods.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from descheduler.picture.pods import PodView, TemplateKey
from koordlite.model.wire import objects


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """Pods with the same `TemplateKey`. Annotations, priority, status and the rest may differ."""

    pods: list[PodView]
    """At least one; in the order of the picture: by node, namespace and name."""
    namespace: str = dataclasses.field(init=False)
    """Of all of them."""
    labels: Mapping[str, str] = dataclasses.field(init=False)
    """Of all of them."""

    def __post_init__(self) -> None:
        first = self.pods[0].pod
        object.__setattr__(self, "namespace", first.namespace)
        object.__setattr__(self, "labels", first.labels)

    @property
    def first(self) -> PodView:
        """The pod that speaks for all of them."""
        return self.pods[0]

    @property
    def spec(self) -> objects.PodSpec:
        """The first pod's; of the others only the parts that make a template are the same."""
        return self.pods[0].object.spec


def gather(pods: Iterable[PodView], before: Iterable[Template] = ()) -> tuple[Template, ...]:
    """The templates of `pods`, which come in the order of the picture; in the order of their first pods. One of
    `before` that still has the same pods stays the same object."""
    found: dict[TemplateKey, list[PodView]] = defaultdict(list)
    for pod in pods:
        found[pod.template].append(pod)
    known = {template.first.template: template for template in before}
    if not known:
        return tuple(map(Template, found.values()))
    kept = [(known.get(key), several) for key, several in found.items()]
    return tuple([one if one and one.pods == several else Template(several) for one, several in kept])


def pods_of(templates: Iterable[Template]) -> list[PodView]:
    """Their pods in the order of the picture."""
    lists = [template.pods for template in templates]
    if len(lists) == 1:
        return list(lists[0])
    return sorted((pod for pods in lists for pod in pods), key=place)


def place(pod: PodView) -> tuple[str, str, str]:
    """Sort key for the order of the picture."""
    return pod.node, pod.pod.namespace, pod.pod.name
