"""The descheduler dies before or after any of its writes, and another process goes on: nothing is lost or left over."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.evictors.migration import Migrations
from koordlite.kube.client.paging import Page

World = Any


class Killed(BaseException):
    """The process is gone; what it had sent has happened."""


class Mortal:
    """An API client whose process dies before, or after, its n-th write."""

    def __init__(self, api: Any, dies_at: int, *, after: bool) -> None:
        self._api, self._left, self._after = api, dies_at, after

    def request(self, method: str, path: str, **more: Any) -> Any:
        """Ask once."""
        last = method != "GET" and self._left == 1
        self._left -= method != "GET"
        if last and not self._after:
            raise Killed
        found = self._api.request(method, path, **more)
        if last:
            raise Killed
        return found

    def collect(self, path: str, query: Any = ()) -> Page:
        """A whole list."""
        found: Page = self._api.collect(path, query)
        return found


def lives(world: World, dies_at: int, *, after: bool, rounds: int = 12) -> bool:
    """A pod is to move; the process dies at that write, if it gets so far, and the next one goes on to the end."""

    def process(api: Any) -> Migrations:
        return Migrations(api, MigrationControllerArgs(), creator="me")

    died = False
    try:
        mortal = process(Mortal(world.api, dies_at, after=after))
        world.ask(mortal)
        world.work(mortal, rounds)
    except Killed:
        died = True
        later = process(world.api)
        if not world.jobs():
            world.ask(later)
        world.around()
        world.clock.advance(3)
        world.work(later, rounds)
    return died


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(1, 10))
def test_the_pod_moves_once_whenever_the_process_dies(world: World, dies_at: int, after: bool) -> None:
    world.deployment("web", 3)
    world.around()
    died = lives(world, dies_at, after=after)
    assert died is (dies_at <= 8), "all of its writes are tried"
    assert collections.Counter(world.places().values()) == {"old": 2, "a": 1}
    (job,) = world.jobs()
    assert (job["status"]["phase"], job["status"]["nodeName"]) == ("Succeeded", "a")
    (place,) = world.server.objects.all("Reservation")
    assert place["status"]["phase"] == "Succeeded"
    assert job["status"]["podRef"]["uid"] == place["status"]["currentOwners"][0]["uid"]
    evicted = [asked for asked in world.server.requests if asked.resource == "pods/eviction" and asked.status < 300]
    assert len(evicted) == 1
    world.clock.advance(600)
    world.work(Migrations(world.api, MigrationControllerArgs(), creator="me"), 1)
    assert (world.jobs(), world.server.objects.all("Reservation")) == ([], [])
