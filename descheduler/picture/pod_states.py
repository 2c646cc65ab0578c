"""What a pod's status says: states of its containers, their exit codes and restarts, and its age."""

from __future__ import annotations

from collections.abc import Iterator

from descheduler.picture.pods import PodView
from koordlite.model import times
from koordlite.model.wire import objects


def statuses(pod: PodView, *, init: bool = False, ephemeral: bool = False) -> Iterator[objects.ContainerStatus]:
    """Statuses of the app containers; of init and ephemeral containers only when asked for."""
    status = pod.object.status
    yield from status.container_statuses or ()
    if init:
        yield from status.init_container_statuses or ()
    if ephemeral:
        yield from status.ephemeral_container_statuses or ()


def reasons(pod: PodView, *, ended: bool = True, init: bool = False, ephemeral: bool = False) -> Iterator[str]:
    """Why containers wait or, with `ended`, have ended: `CrashLoopBackOff`, `OOMKilled` …"""
    for status in statuses(pod, init=init, ephemeral=ephemeral):
        state = status.state or {}
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            yield waiting["reason"]
        if ended and terminated and terminated.get("reason"):
            yield terminated["reason"]


def exit_codes(pod: PodView, *, init: bool = False) -> Iterator[int]:
    """Codes with which containers have ended; what an earlier run ended with does not count."""
    for status in statuses(pod, init=init):
        terminated = (status.state or {}).get("terminated")
        if terminated is not None:
            yield terminated.get("exitCode", 0)


def restarts(pod: PodView, *, init: bool = False) -> int:
    """How often the containers were started again, since the pod was made."""
    status = pod.object.status
    count = 0
    for one in status.container_statuses or ():
        count += one.restart_count
    if init:
        for one in status.init_container_statuses or ():
            count += one.restart_count
    return count


def seconds_since(text: str | None, now: float) -> float | None:
    """Seconds between an RFC 3339 time and `now`, negative when it lies ahead; None without a readable time."""
    moment = times.parse_or_none(text)
    return None if moment is None else now - moment


def age_seconds(pod: PodView, now: float) -> float:
    """Seconds since the pod was made; infinite when nobody knows, as upstream has it."""
    age = seconds_since(pod.object.metadata.creation_timestamp, now)
    return float("inf") if age is None else age
