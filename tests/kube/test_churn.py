"""A cache against a server whose objects come and go while its answers fail: at the end both are the same."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from apibench import Bench, pod, until
from apiserver import Fault

from koordlite.kube.watch.reflector import Reflector, Source
from koordlite.kube.watch.watcher import Watching
from koordlite.model.wire import objects

SOURCE = Source(name="pods", kind="pod", shape=objects.PodObject, paths=("/api/v1/pods",))
FAULTS = (
    Fault(verb="watch", cut_after_lines=7, half_line=True),
    Fault(verb="watch", gone=True),
    Fault(verb="list", status=503),
    Fault(verb="watch", status=429, retry_after_seconds=1),
    Fault(verb="watch", poison=True),
)


def _held(watching: Watching[objects.PodObject]) -> dict[str, str]:
    found = watching.view().objects.values()
    return {each.metadata.name: each.metadata.resource_version for each in found}


def _stored(bench: Bench) -> dict[str, str]:
    items: list[dict[str, Any]] = bench.server.objects.all("Pod", api_version="v1")
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in items}


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("streams", [True, False], ids=["lists as streams", "lists"])
def test_after_churn_and_faults_the_cache_equals_the_server(bench: Bench, streams: bool) -> None:
    chance = random.Random(7)
    bench.server.objects.load(*(pod(f"p{number}") for number in range(100)))
    # A list that comes as a stream is a watch: nothing is listed that could be refused.
    bench.server.faults.add(*(fault for fault in FAULTS if fault.verb == "watch" or not streams))
    reflector = Reflector(SOURCE, uniform=chance.uniform, streams=streams)
    watching = Watching(bench.api(), reflector, monotonic=time.monotonic)
    watching.start()
    assert watching.wait(10)
    started = time.monotonic()

    def churned() -> bool:
        """50 changes a second or so, until every fault has struck."""
        name = f"p{chance.randrange(150)}"
        if chance.random() < 0.5:
            bench.server.objects.remove("Pod", name, "default", api_version="v1")
        else:
            bench.server.objects.load(pod(name, labels={"step": str(chance.random())}))
        return not bench.server.faults.waiting

    until(churned, 60.0)
    until(lambda: _held(watching) == _stored(bench), 60.0)
    seconds = time.monotonic() - started
    watching.stop()
    requests = bench.asked("list", "pods") + bench.asked("watch", "pods")
    print(f"{requests} requests in {seconds:.1f} s")
    assert requests <= 2 * seconds + 6
