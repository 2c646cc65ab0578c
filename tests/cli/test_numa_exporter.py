"""What probes hear of the exporter that runs alone."""

from __future__ import annotations

import contextlib
import urllib.request

import pytest

from koordlite.cli.serving import Loop, exporter_listener, exporter_pages
from koordlite.report.metrics.numa import NumaMetrics
from koordlite.report.web.numa_history import NumaHistory


def _metrics() -> NumaMetrics:
    return NumaMetrics(lambda topology: (), lambda: None, node="node-a")  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_loop_that_stands_still_fails_its_probes(path: str) -> None:
    """A tick is due every 5 s: after half a minute without one something holds the loop."""
    now = [100.0]
    loop = Loop(5.0, lambda: now[0])
    pages = exporter_pages(loop, _metrics(), NumaHistory())
    before = pages.answer(path, {}, "")
    assert (before.status, before.body) == (503, b"no tick has ended yet\n")
    loop.turned()
    now[0] = 104.0
    assert pages.answer(path, {}, "").status == 200
    now[0] = 200.0
    stopped = pages.answer(path, {}, "")
    assert (stopped.status, stopped.body) == (503, b"the last tick ended 100.0 s ago; one is due every 5 s\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_beside_an_agent_the_agents_own_probes_speak_of_its_loop(path: str) -> None:
    assert exporter_pages(Loop(None), _metrics(), NumaHistory()).answer(path, {}, "").status == 200


def test_others_read_it_by_the_address_of_the_pod() -> None:
    server = exporter_listener(":0", exporter_pages(Loop(None), _metrics(), NumaHistory()))
    server.start()
    with contextlib.closing(server):
        asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/history", headers={"Host": "10.1.2.3:9201"})
        with urllib.request.urlopen(asked, timeout=5) as answer:
            assert answer.status == 200
