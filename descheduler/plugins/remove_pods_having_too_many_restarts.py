"""Pods whose containers were started again too often may fare better elsewhere.

Kubernetes restarts a container on the same node for ever. Where a disk, a device or a neighbour is the cause, another
node is the cure. Source: upstream RemovePodsHavingTooManyRestarts.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from descheduler.arguments.common import PodChoice
from descheduler.framework import Conversation, Finding, Handle, PodView, View
from descheduler.picture import pods
from descheduler.rules.pod_filter import select

NAME = "RemovePodsHavingTooManyRestarts"
POINT = "deschedule"
READS = ("statuses",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(PodChoice):
    """Arguments of `RemovePodsHavingTooManyRestarts`."""

    pod_restart_threshold: int = 0
    """Least number of restarts of all containers of the pod together since it was made. Must be given, at least 1."""
    including_init_containers: bool = False
    """Include init containers."""
    states: tuple[Literal["Running", "CrashLoopBackOff"], ...] = ()
    """Only pods in this phase, or with a container that waits for this reason; empty: all."""

    def __post_init__(self) -> None:
        if self.pod_restart_threshold < 1:
            raise ValueError("podRestartThreshold is needed, and at least 1")


def judge(_view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod with too many restarts; on each node those with most come first."""
    init, least = config.including_init_containers, config.pod_restart_threshold
    for node in handle.nodes:
        often = node.those((NAME, init, least), lambda pod: pods.restarts(pod, init=init) >= least)
        chosen = [pod for pod in select(often, config.namespaces, config.label_selector) if _in_states(pod, config)]
        counts = [(pods.restarts(pod, init=init), pod) for pod in chosen]
        for count, pod in sorted(counts, key=lambda entry: (-entry[0], entry[1].key)):
            yield Finding(
                pod=pod.uid,
                reason="TooManyRestarts",
                fact=f"its containers{' and init containers' if init else ''} were restarted {count} times, "
                f"the threshold is {least}",
                cure="restarts, elsewhere if it can; read the logs of its last run first",
                evidence={"restarts": count, "threshold": least},
                weight=count,
            )


def numbers(pod: PodView, _view: View, config: Config, _handle: Handle) -> str:
    """Restarts of the threshold."""
    count = pods.restarts(pod, init=config.including_init_containers)
    states = "" if _in_states(pod, config) else f"; in none of the states {', '.join(config.states)}"
    return f"{count} of {config.pod_restart_threshold} restarts{states}"


def _in_states(pod: PodView, config: Config) -> bool:
    waiting = pods.reasons(pod, ended=False, init=config.including_init_containers)
    return not config.states or pod.pod.phase in config.states or any(reason in config.states for reason in waiting)
