"""The reservation controller of the product in the simulated cluster: it sees late, and each request takes its time."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import msgspec
from msgspec import structs

from koordlite.model import times
from koordlite.model.wire import objects
from koordlite.model.wire.reservation import ReservationObject
from koordlite.reservation import step
from koordlite.reservation.placeholder import PlaceholderSettings
from koordlite.reservation.step import (
    Action,
    Annotate,
    AnnotatePod,
    CreatePlaceholder,
    DeletePlaceholder,
    Nominate,
    Step,
    WriteStatus,
)
from koordlite.reservation.world import World
from tests.support.topocluster.events import Events
from tests.support.topocluster.store import Store

START = 1_800_000_000.0
HIGHEST = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class Pace:
    """Seconds, least and most."""

    request: tuple[float, float] = (0.002, 0.010)
    between: float = 0.02
    """From news to a round."""
    idle: float = 3.0


class ReservationSide:
    """A watcher with the product's rules."""

    def __init__(self, settings: PlaceholderSettings, *, events: Events, store: Store, chance: random.Random) -> None:
        self.world, self._settings, self._pace = World(), settings, Pace()
        self._events, self._store, self._chance = events, store, chance
        self._actions: Iterator[tuple[Step, Action]] | None = None
        self._made, self._due = 0, False
        self.freed: dict[str, float] = {}
        """When the placeholder of a Reservation was deleted, by its uid."""
        events.after(self._pace.idle, self._tick)

    # ── what it sees ──

    def put_node(self, obj: objects.NodeObject) -> None:
        self.world.put_node(obj)
        self._news()

    def put_report(self, obj: objects.NRTObject) -> None: ...

    def put_pod(self, obj: objects.PodObject) -> None:
        if self.world.put_pod(obj):
            self._news()

    def remove_pod(self, key: str) -> None:
        if self.world.remove_pod(key):
            self._news()

    def put_reservation(self, obj: ReservationObject) -> None:
        self.world.put_reservation(obj)
        self._news()

    # ── what it does ──

    def _tick(self) -> None:
        self._news()
        self._events.after(self._pace.idle, self._tick)

    def _news(self) -> None:
        if not self._due and self._actions is None:
            self._due = True
            self._events.after(self._pace.between, self._begin)

    def _begin(self) -> None:
        self._due = False
        self._actions = self._planned()
        self._next()

    def _planned(self) -> Iterator[tuple[Step, Action]]:
        for each in step.plan(self.world, self._settings, START + self._events.now):
            yield from ((each, action) for action in each.actions)

    def _next(self) -> None:
        assert self._actions is not None
        found = next(self._actions, None)
        if found is None:
            self._actions = None
        else:
            self._events.after(self._chance.uniform(*self._pace.request), self._do, *found)

    def _do(self, of: Step, action: Action) -> None:
        store = self._store
        match action:
            case CreatePlaceholder():
                self._create(action)
            case Nominate():
                store.nominate(f"{action.namespace}/{action.name}", action.uid, action.node)
            case DeletePlaceholder():
                self.freed[of.uid] = self._events.now
                store.remove(f"{action.namespace}/{action.name}", action.uid)
                self.world.removed(action.uid)
            case AnnotatePod():
                store.annotate(f"{action.namespace}/{action.name}", action.uid, action.annotations)
            case Annotate():
                obj = store.reservations[of.name]
                merged = {**(obj.metadata.annotations or {}), **action.annotations}
                notes = {key: text for key, text in merged.items() if text is not None}
                self._put(structs.replace(obj, metadata=structs.replace(obj.metadata, annotations=notes)))
            case WriteStatus():
                self._put(structs.replace(store.reservations[of.name], status=action.after))
            case _:
                pass  # Events are nobody's business here.
        self._next()

    def _put(self, obj: ReservationObject) -> None:
        self._store.put_reservation(obj)
        self.world.put_reservation(obj)

    def _create(self, action: CreatePlaceholder) -> None:
        made = msgspec.convert(msgspec.to_builtins(action.body), objects.PodObject, strict=False)
        key = f"{made.metadata.namespace}/{made.metadata.name}"
        if key in self._store.pods:
            return
        self._made += 1
        moment = times.show(START + self._events.now)
        meta = structs.replace(made.metadata, uid=f"held-{self._made}", creation_timestamp=moment)
        status = objects.PodStatus(phase="Pending", nominated_node_name=action.node or None)
        spec = structs.replace(made.spec, priority=HIGHEST)
        self._store.create(structs.replace(made, metadata=meta, spec=spec, status=status))
