"""Pods whose containers were started again too often may fare better elsewhere.

Kubernetes restarts a container on the same node for ever. Where a disk, a device or a neighbour is the cause, another
node is the cure. Source: upstream RemovePodsHavingTooManyRestarts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
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
    """From how many restarts on, all containers of the pod together and since it was made. Must be given, at least
    1."""
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
        restarted = node.those((NAME, init), _RESTARTED[init])
        most = node.once((NAME, init), functools.partial(_most, restarted, init))
        if most < least:
            continue
        counts = (
            (pods.restarts(pod, init=init), pod)
            for pod in select(restarted, config.namespaces, config.label_selector)
            if _in_states(pod, config)
        )
        for count, pod in sorted(counts, key=lambda entry: (-entry[0], entry[1].key)):
            if count < least:
                break
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


def _most(restarted: Iterable[PodView], init: bool) -> int:
    return max([pods.restarts(pod, init=init) for pod in restarted], default=0)


_RESTARTED: Mapping[bool, Callable[[PodView], bool]] = {
    False: lambda pod: pods.restarts(pod) > 0,
    True: lambda pod: pods.restarts(pod, init=True) > 0,
}
"""Whether a pod was restarted at all, without and with its init containers."""


def _in_states(pod: PodView, config: Config) -> bool:
    waiting = pods.reasons(pod, ended=False, init=config.including_init_containers)
    return not config.states or pod.pod.phase in config.states or any(reason in config.states for reason in waiting)
