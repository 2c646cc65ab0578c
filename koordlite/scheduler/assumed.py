"""Pods assumed to be on a node that no report counts yet. Nobody tells an extender of an end, so each has one of its
own: the watch, or time, and always a reason."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from koordlite.model import keys
from koordlite.model.wire.reservation import AllocatedText
from koordlite.reservation.pods import KnownPod

Stage = Literal["nominated", "tentative", "binding", "bound"]
End = Literal[
    "seen bound",
    "bound elsewhere",
    "deleted",
    "ended",
    "bind failed",
    "attempted again",
    "chosen elsewhere",
    "expired",
    "node gone",
]
REMEMBERED = 512


class AssumedPod(msgspec.Struct, frozen=True):
    """A pod on its way to a node."""

    pod: KnownPod
    node: str
    stage: Stage
    """nominated: victims are leaving for it; tentative: rated best, not bound yet; binding: the request is under way;
    bound: the API server has agreed."""
    since: float
    until: float
    annotations: tuple[tuple[str, str], ...] = ()
    """The allocation that its Binding carries."""

    @property
    def took(self) -> str:
        """uid of Koordinator's Reservation that it takes; empty for none."""
        text = dict(self.annotations).get(keys.RESERVATION_ALLOCATED)
        return msgspec.json.decode(text, type=AllocatedText).uid if text else ""


class Ended(msgspec.Struct, frozen=True):
    """An assumption that is over."""

    assumed: AssumedPod
    why: End
    at: float


class AssumedPods:
    """By pod uid. `changed` is called with the node of every one that begins or ends. Not locked: its owner
    is."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._held: dict[str, AssumedPod] = {}
        self._by_node: dict[str, dict[str, AssumedPod]] = {}
        self._changed = changed
        self.ended: collections.deque[Ended] = collections.deque(maxlen=REMEMBERED)
        self.ends: collections.Counter[str] = collections.Counter()
        """How many ended, by reason."""

    def of_pod(self, uid: str) -> AssumedPod | None:
        """The pod's, if it has one."""
        return self._held.get(uid)

    def of_node(self, node: str) -> Iterator[AssumedPod]:
        """Pods assumed on a node."""
        return iter(tuple(self._by_node.get(node, {}).values()))

    def __len__(self) -> int:
        return len(self._held)

    def put(self, made: AssumedPod) -> None:
        """Begin, or replace the pod's earlier one."""
        held = self._held.get(made.pod.uid)
        if held is not None and held.node != made.node:
            self.end(made.pod.uid, "chosen elsewhere", made.since)
        self._held[made.pod.uid] = made
        self._by_node.setdefault(made.node, {})[made.pod.uid] = made
        self._changed(made.node)

    def end(self, uid: str, why: End, now: float) -> None:
        """It is over; nothing when there is none."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        of_node = self._by_node[held.node]
        del of_node[uid]
        if not of_node:
            del self._by_node[held.node]
        self.ended.append(Ended(held, why, now))
        self.ends[why] += 1
        self._changed(held.node)

    def expire(self, now: float) -> None:
        """End those whose time is over."""
        for held in [held for held in self._held.values() if held.until <= now]:
            self.end(held.pod.uid, "expired", now)
