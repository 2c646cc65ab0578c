"""Which pods a pod must not be with: its required anti-affinity."""

from __future__ import annotations

from descheduler.picture.cluster import PodView
from koordlite.model.wire import objects


def terms(pod: PodView) -> tuple[objects.PodAffinityTerm, ...]:
    """The required anti-affinity terms of a pod."""
    affinity = pod.object.spec.affinity
    anti = affinity.pod_anti_affinity if affinity else None
    return (anti.required or ()) if anti else ()
