"""Pods that have failed are cleared away.

A failed pod runs nothing, keeps its name, its logs and its volumes' claims, and hides among the others. Nothing moves:
its owner has made another one long ago, or never will. Source: upstream RemoveFailedPods.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from descheduler.arguments.common import PodChoice
from descheduler.framework import Conversation, Finding, Handle, PodView, View
from descheduler.picture import pods
from descheduler.rules.pod_filter import owned_by, select
from koordlite.model import duration, times
from koordlite.model.settings import bounded

NAME = "RemoveFailedPods"
POINT = "deschedule"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(PodChoice):
    """Arguments of `RemoveFailedPods`."""

    exclude_owner_kinds: tuple[str, ...] = ()
    """Pods with an owner of one of these kinds stay, such as `Job`, which counts its failures by its pods."""
    min_pod_lifetime_seconds: int = bounded(3600, ge=0)
    """Pods that were made more recently stay; 0: any age."""
    reasons: tuple[str, ...] = ()
    """Only pods that failed, or have a container that waits or has ended, for one of these reasons; empty: any."""
    exit_codes: tuple[int, ...] = ()
    """Only pods with a container that ended with one of these codes; empty: any."""
    including_init_containers: bool = False
    """Include init containers."""


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each failed pod that is old enough and matches what is asked for."""
    now = times.parse(view.time)
    for node in handle.nodes:
        failed = [pod for pod in node.ended if pod.pod.phase == "Failed"]
        for pod in select(failed, config.namespaces, config.label_selector):
            age, least = pods.age_seconds(pod, now), config.min_pod_lifetime_seconds
            reasons = dict.fromkeys(_reasons(pod, config))
            codes = dict.fromkeys(pods.exit_codes(pod, init=config.including_init_containers))
            # 0 is any age, also that of a pod whose node's clock is ahead.
            if (least and age < least) or owned_by(pod, config.exclude_owner_kinds):
                continue
            if config.reasons and reasons.keys().isdisjoint(config.reasons):
                continue
            if config.exit_codes and codes.keys().isdisjoint(config.exit_codes):
                continue
            why = f": {', '.join(reasons)}" if reasons else ""
            when = "at an unknown time" if age == float("inf") else f"{duration.age(age)} ago"
            yield Finding(
                pod=pod.uid,
                reason="PodFailed",
                fact=f"it has failed{why}; it was made {when}",
                cure="is deleted: nothing of it runs, its owner decides whether there will be another",
                evidence={
                    "reasons": ",".join(reasons),
                    **({"exitCodes": ",".join(map(str, codes))} if codes else {}),
                },
            )


def numbers(pod: PodView, view: View, config: Config, _handle: Handle) -> str:
    """Phase, and of a failed pod its age and reasons."""
    if pod.pod.phase != "Failed":
        return f"its phase is {pod.pod.phase}, not Failed"
    age, least = pods.age_seconds(pod, times.parse(view.time)), config.min_pod_lifetime_seconds
    age_text = "age unknown" if age == float("inf") else duration.age(age)
    reasons = ", ".join(dict.fromkeys(_reasons(pod, config))) or "none"
    return f"{age_text}, at least {duration.age(least)} asked for; reasons {reasons}"


def _reasons(pod: PodView, config: Config) -> Iterator[str]:
    if pod.object.status.reason:
        yield pod.object.status.reason
    yield from pods.reasons(pod, init=config.including_init_containers)
