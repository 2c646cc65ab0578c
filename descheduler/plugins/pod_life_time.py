"""Pods must not live longer, or stay longer in a state, than they should.

Old pods keep old leaks, old certificates and old places; pods that hang in a state need someone to end it.
Source: upstream PodLifeTime.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

from descheduler.arguments.common import ANY_NAMESPACE, LabelSelector, Namespaces
from descheduler.framework import Conversation, Finding, Handle, NodeView, PodView, View
from descheduler.picture import pods
from descheduler.rules.pod_filter import ANY_OWNER, OwnerKinds, select
from koordlite.model import duration, times
from koordlite.model.settings import bounded
from koordlite.model.wire import objects

NAME = "PodLifeTime"
POINT = "deschedule"

State = Literal[
    "Running",
    "Pending",
    "Succeeded",
    "Failed",
    "Unknown",
    "NodeAffinity",
    "NodeLost",
    "Shutdown",
    "UnexpectedAdmissionError",
    "PodInitializing",
    "ContainerCreating",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "InvalidImageName",
    "OOMKilled",
    "Error",
    "Completed",
    "DeadlineExceeded",
    "Evicted",
    "ContainerCannotRun",
    "StartError",
]
"""Phases, reasons of a pod, and reasons why a container waits or has ended."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConditionFilter:
    """A condition of the pod to look for; what is given must all match."""

    type: str = ""
    """Such as `Ready`; empty: any."""
    status: Literal["True", "False", "Unknown", ""] = ""
    """Empty: any."""
    reason: str = ""
    """Such as `PodCompleted`; empty: any."""
    min_time_since_last_transition_seconds: int | None = bounded(None, ge=0)
    """Least time for which it has been so; null: does not matter."""

    def __post_init__(self) -> None:
        if not (self.type or self.status or self.reason or self.min_time_since_last_transition_seconds is not None):
            raise ValueError("a condition needs a type, a status, a reason or minTimeSinceLastTransitionSeconds")

    def matches(self, condition: objects.PodCondition, now: float) -> bool:
        """Tell whether it is this condition, for long enough. Without a time of its last change it is not."""
        if self.type not in ("", condition.type) or self.status not in ("", condition.status):
            return False
        if self.reason not in ("", condition.reason or ""):
            return False
        if self.min_time_since_last_transition_seconds is None:
            return True
        since = pods.seconds_since(condition.last_transition_time, now)
        return since is not None and math.floor(since) >= self.min_time_since_last_transition_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Arguments of `PodLifeTime`. A pod must match all that is given; one of the first four is needed."""

    max_pod_life_time_seconds: int | None = bounded(None, ge=0)
    """Older pods match; null: age does not matter."""
    states: tuple[State, ...] = ()
    """Pods match in one of these phases, or that are, or have a container, in a state for one of these reasons; empty:
    any."""
    conditions: tuple[ConditionFilter, ...] = ()
    """Pods match that have one of these conditions; empty: any."""
    exit_codes: tuple[int, ...] = ()
    """Pods match with a container that ended with one of these codes; empty: any."""
    namespaces: Namespaces = ANY_NAMESPACE
    """Namespaces whose pods are judged; empty: all."""
    label_selector: LabelSelector | None = None
    """Only pods with these labels are judged; null: all."""
    owner_kinds: OwnerKinds = ANY_OWNER
    """Only pods with, or without, owners of these kinds are judged; empty: all."""
    including_init_containers: bool = False
    """Include the states and exit codes of init containers."""
    including_ephemeral_containers: bool = False
    """Include the states of ephemeral containers."""

    def __post_init__(self) -> None:
        if self.max_pod_life_time_seconds is None and not (self.states or self.conditions or self.exit_codes):
            raise ValueError("needs maxPodLifeTimeSeconds, states, conditions or exitCodes")


def judge(view: View, config: Config, handle: Handle) -> Conversation:
    """A finding for each pod that matches, the oldest of the cluster first."""
    now = times.parse(view.time)
    matches: list[tuple[float, str, Finding]] = []
    newest = _newest(now, config.max_pod_life_time_seconds)
    zone = newest[_ZONE:]
    for node in handle.nodes:
        if zone == "Z" and newest < _oldest(node):
            continue
        for pod in select(node.all_pods, config.namespaces, config.label_selector):
            created = pod.object.metadata.creation_timestamp
            if created and newest < created and created[_ZONE:] == zone == "Z":
                continue
            age = pods.age_seconds(pod, now)
            finding = _judge_pod(pod, age, now, config) if _too_old(age, config.max_pod_life_time_seconds) else None
            if finding:
                matches.append((age, pod.key, finding))
    yield from (finding for *_, finding in sorted(matches, key=lambda match: (-match[0], match[1])))


def numbers(pod: PodView, view: View, config: Config, _handle: Handle) -> str:
    """Age of most, and what else is asked for."""
    now = times.parse(view.time)
    age = pods.age_seconds(pod, now)
    most = config.max_pod_life_time_seconds
    age_text = "age unknown" if age == float("inf") else duration.age(age)
    words = [age_text if most is None else f"{age_text} of {duration.age(most)}"]
    if config.states:
        words.append(f"states {', '.join(dict.fromkeys(_states(pod, config)))}; asked for {', '.join(config.states)}")
    if config.conditions:
        words.append("a condition matches" if _condition(pod, now, config) else "no condition matches")
    if config.exit_codes:
        words.append(
            f"exit code {_exit_code(pod, config)}" if _exit_code(pod, config) is not None else "no exit code matches"
        )
    return "; ".join(words)


_ZONE = len("2026-01-01T00:00:00")
"""Position from which on `Z` is the rest of a time as the API server writes it."""


def _oldest(node: NodeView) -> str:
    """Creation time of the node's oldest pod; empty where one of them has no time in the form of the API server."""

    def oldest() -> str:
        timestamps = [pod.object.metadata.creation_timestamp or "" for pod in node.all_pods]
        return "" if {text[_ZONE:] for text in timestamps} - {"Z"} else min(timestamps, default="")

    return node.once(NAME, oldest)


def _newest(now: float, most: int | None) -> str:
    """Creation time of the youngest pod that is too old, as the API server writes times: times of this one form sort as
    text, and most pods are younger. Later than all times when age does not matter."""
    return "~" if most is None else times.show(max(0, math.floor(now) - most - 1))


def _too_old(age: float, most: int | None) -> bool:
    """Whole seconds count. A pod that was made in the future has a clock that cannot be relied on: it stays."""
    if most is None:
        return True
    return age == float("inf") or (age >= 0 and math.floor(age) > most)


def _states(pod: PodView, config: Config) -> Iterator[str]:
    yield pod.pod.phase
    if pod.object.status.reason:
        yield pod.object.status.reason
    init, ephemeral = config.including_init_containers, config.including_ephemeral_containers
    yield from pods.reasons(pod, init=init, ephemeral=ephemeral)


def _condition(pod: PodView, now: float, config: Config) -> objects.PodCondition | None:
    conditions = pod.object.status.conditions or ()
    return next((c for c in conditions if any(one.matches(c, now) for one in config.conditions)), None)


def _exit_code(pod: PodView, config: Config) -> int | None:
    codes = pods.exit_codes(pod, init=config.including_init_containers)
    return next((code for code in codes if code in config.exit_codes), None)


def _judge_pod(pod: PodView, age: float, now: float, config: Config) -> Finding | None:
    """The finding for a pod that is old enough; None when it does not match what else is asked for."""
    state = next((state for state in _states(pod, config) if state in config.states), None) if config.states else None
    condition = _condition(pod, now, config) if config.conditions else None
    code = _exit_code(pod, config) if config.exit_codes else None
    if (config.states and not state) or (config.conditions and not condition) or (config.exit_codes and code is None):
        return None
    if not config.owner_kinds.choose(pod):
        return None
    has_age = age != float("inf")
    facts = [f"it was made {duration.age(age)} ago" if has_age else "it is unknown when it was made"]
    evidence: dict[str, int | float | str] = {"ageSeconds": int(age)} if has_age else {}
    if config.max_pod_life_time_seconds is not None:
        facts[0] += f", maxPodLifeTimeSeconds is {config.max_pod_life_time_seconds}"
        evidence["maxPodLifeTimeSeconds"] = config.max_pod_life_time_seconds
    if state:
        facts.append(f"its state is {state}")
        evidence["state"] = state
    if condition:
        facts.append(f"its condition {condition.type} is {condition.status} ({condition.reason or 'no reason given'})")
        evidence["condition"] = condition.type
    if code is not None:
        facts.append(f"a container ended with code {code}")
        evidence["exitCode"] = code
    reason = "PodTooOld" if config.max_pod_life_time_seconds is not None else "PodInState"
    return Finding(pod=pod.uid, reason=reason, fact="; ".join(facts), cure=_CURES[reason], evidence=evidence)


_CURES = {
    "PodTooOld": "its owner starts a younger one",
    "PodInState": "its owner starts another one, if there is to be one",
}
