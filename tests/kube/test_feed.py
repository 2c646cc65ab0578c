"""Objects that are handed on and not kept: each once, also over a list that is read again."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koordlite.kube.watch.reflector import Reflector, Source
from koordlite.kube.watch.store import Feed
from koordlite.model.wire import objects


def pod(name: str, version: int, **more: Any) -> msgspec.Raw:
    return msgspec.Raw(
        json.dumps({"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version), **more}}).encode()
    )


class Listener:
    """What came and what went, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.feed: Feed[objects.PodObject] = Feed(
            "pod", objects.PodObject, put=lambda obj: self.heard.append(f"+{obj.metadata.name}"), removed=self._gone
        )

    def _gone(self, key: str) -> None:
        self.heard.append(f"-{key}")

    def take(self) -> list[str]:
        heard, self.heard = self.heard, []
        return heard


def test_a_list_that_is_read_again_hands_on_what_changed_and_what_went() -> None:
    made = Listener()
    made.feed.replace([pod("a", 1), pod("b", 1)])
    assert made.take() == ["+a", "+b"]
    made.feed.replace([pod("a", 1), pod("c", 2)])
    assert made.take() == ["+c", "-ns/b"]
    assert len(made.feed) == 2


def test_events_older_than_what_was_handed_on_are_left_out() -> None:
    made = Listener()
    made.feed.put(pod("a", 5))
    made.feed.put(pod("a", 4))
    made.feed.remove(pod("a", 3))
    assert made.take() == ["+a"]
    made.feed.remove(pod("a", 6))
    assert made.take() == ["-ns/a"]


def test_of_a_broken_object_nothing_is_handed_on_and_it_is_a_problem() -> None:
    made = Listener()
    made.feed.put(pod("a", 1))
    made.feed.put(pod("a", 2, labels=5))
    assert made.take() == ["+a"]
    assert [problem.object for problem in made.feed.problems] == ["pod/ns/a"]
    made.feed.put(pod("a", 3))
    assert made.take() == ["+a"]
    assert made.feed.problems == ()


def test_an_empty_feed_is_the_store_of_its_reflector() -> None:
    made = Listener()
    source = Source(name="pods", kind="pod", shape=objects.PodObject, paths=("/api/v1/pods",))
    reflector = Reflector(source, uniform=lambda low, high: low, store=made.feed)
    reflector.on_list("7", [pod("a", 1)], 0.0)
    assert made.take() == ["+a"]
    assert reflector.view(0.0).state.objects == 1


def test_a_streamed_list_hands_on_what_is_new_and_what_is_gone_at_its_end() -> None:
    made = Listener()
    source = Source(name="pods", kind="pod", shape=objects.PodObject, paths=("/api/v1/pods",))
    reflector = Reflector(source, uniform=lambda low, high: low, store=made.feed)
    reflector.on_list("7", [pod("a", 1), pod("b", 2)], 0.0)
    assert made.take() == ["+a", "+b"]
    made.feed.begin()
    made.feed.arrive(pod("b", 2))
    made.feed.arrive(pod("c", 9))
    assert made.take() == ["+c"]
    made.feed.complete()
    assert made.take() == ["-ns/a"]
