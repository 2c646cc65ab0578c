"""Lists that come as streams (WatchList): from the tests' API server, and from a real one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apibench import until

from descheduler.snapshot import cluster
from koordlite.kube.client import backoff
from koordlite.kube.client.access import Api
from koordlite.kube.client.paging import Page
from koordlite.kube.watch import sources
from koordlite.kube.watch.reflector import Reflector, Source
from koordlite.kube.watch.sources import NODES
from koordlite.kube.watch.watcher import Watching

MERGE = "application/merge-patch+json"


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"capacity": {"cpu": "8"}}}


@pytest.fixture
def watched(api: Api) -> Iterator[Callable[[Source[Any]], Watching[Any]]]:
    made: list[Watching[Any]] = []

    def begin(source: Source[Any]) -> Watching[Any]:
        made.append(Watching(api, Reflector(source, uniform=backoff.uniform), monotonic=time.monotonic))
        made[-1].start()
        assert made[-1].wait(20.0)
        return made[-1]

    yield begin
    for each in made:
        each.stop()


def test_a_watch_begins_with_its_list_in_one_request(
    api: Api, put: Callable[[dict[str, Any]], None], watched: Callable[[Source[Any]], Watching[Any]]
) -> None:
    put(node("a"))
    put(node("b"))
    for source, names in ((NODES, {"a", "b"}), (sources.node("b"), {"b"}), (sources.pods("b"), set[str]())):
        watching = watched(source)
        view = watching.view()
        assert (set(view.objects), view.listed, view.state.requests, view.problems) == (names, True, 1, ())
        if "b" in names:
            label = {"metadata": {"labels": {"of": source.name}}}
            api.request("PATCH", "/api/v1/nodes/b", body=label, content_type=MERGE)
            until(lambda w=watching, of=source.name: (w.view().objects["b"].metadata.labels or {}).get("of") == of)
            assert watching.state().requests == 1, "changes come by the same stream"


def test_the_descheduler_reads_its_lists_as_streams(
    api: Api, put: Callable[[dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(node("a"))
    put(node("b"))

    def pages(*request: Any) -> Iterator[Page]:
        raise AssertionError(f"{request} was asked for page by page")

    monkeypatch.setattr(api, "pages", pages)
    objects = cluster.read(api)
    assert [each.metadata.name for each in objects.of("Node")] == ["a", "b"]
    assert {kind for kind in ("Node", "Pod", "Namespace") if objects.versions.get(kind)} == {"Node", "Pod", "Namespace"}
