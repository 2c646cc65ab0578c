"""Pods that go in the background: their eviction was asked for, and something else carries it out, as live migration of
virtual machines does.

Source: upstream EvictionsInBackground (KEP-1397). Such pods count towards all limits until they are gone, and are not
asked for again. What is remembered is a value: each cycle makes the next one out of it and the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from descheduler.framework import PodView, View

REQUEST_ONLY = "descheduler.alpha.kubernetes.io/request-evict-only"
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"
TRIGGERED = "Eviction triggered evacuation"
"""What the API's refusal says when it started an eviction in the background."""
FORGET_SECONDS = 600.0
"""A request that nobody took up for so long is forgotten, and may be made again."""


class Request(msgspec.Struct, frozen=True):
    """An eviction that was asked for and goes on."""

    namespace: str
    name: str
    uid: str
    node: str
    since: float
    """Seconds since the epoch."""
    confirmed: bool = False
    """The pod says itself that it is being moved."""


class Ended(msgspec.Struct, frozen=True):
    """A request that is over: `Evicted`, or why it was `Forgotten` or `Failed`."""

    request: Request
    result: str
    text: str


Requests = Mapping[str, Request]
"""By pod uid."""


def follow(before: Requests, view: View, now: float) -> tuple[Requests, tuple[Ended, ...]]:
    """Requests that go on according to this picture, and those that have ended since the last one. `now`: seconds since
    the epoch.

    Pods that say they are being moved are taken in whoever asked, so that a restart forgets nothing that was taken up.
    """
    present = {pod.uid: pod for pod in view.everything()}
    ended = [over for request in before.values() if (over := _ended(request, present.get(request.uid), now))]
    done = {one.request.uid for one in ended}
    going: dict[str, Request] = {}
    for uid, request in before.items():
        if uid not in done:
            confirmed = request.confirmed or IN_PROGRESS in present[uid].pod.annotations
            going[uid] = msgspec.structs.replace(request, confirmed=confirmed)
    for pod in present.values():
        if pod.uid not in before and IN_PROGRESS in pod.pod.annotations and pod.pod.active:
            going[pod.uid] = msgspec.structs.replace(requested(pod, now), confirmed=True)
    return going, tuple(ended)


def requested(pod: PodView, now: float) -> Request:
    """The pod's eviction was just asked for."""
    return Request(pod.pod.namespace, pod.pod.name, pod.uid, pod.node, now)


def counted(requests: Iterable[Request]) -> Iterator[tuple[str, str]]:
    """(node, namespace) of each request, for the limits."""
    for request in requests:
        yield request.node, request.namespace


def _ended(request: Request, pod: PodView | None, now: float) -> Ended | None:
    if pod is None:
        return Ended(request, "Evicted", "the pod is gone")
    if pod.pod.phase == "Succeeded":
        return Ended(request, "Evicted", "the pod has succeeded")
    if pod.pod.phase == "Failed":
        return Ended(request, "Failed", "the pod has failed")
    taken_up = IN_PROGRESS in pod.pod.annotations
    if request.confirmed and not taken_up:
        return Ended(request, "Failed", "the pod no longer says that it is being moved")
    if not taken_up and now - request.since > FORGET_SECONDS:
        return Ended(request, "Forgotten", f"it was not taken up for {FORGET_SECONDS:.0f} seconds")
    return None
