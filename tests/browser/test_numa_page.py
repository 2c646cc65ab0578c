"""The NUMA pages in a real browser: nothing is cut off, the policy is kept, links lead from cluster to node."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from apibench import until
from chromium import Browser

from koordlite.http.answers import Answer
from koordlite.http.server import Ask, Server
from koordlite.scheduler.numa_api.envelope import RestGuard
from koordlite.scheduler.numa_api.service import NumaService
from koordlite.scheduler.numa_api.switches import Policy, Status, Switches
from tests.scheduler import numa_scene

pytestmark = pytest.mark.xdist_group("browser")
Serve = Callable[[Ask], str]


@pytest.fixture
def url(serve: Serve) -> str:
    scene = numa_scene.scene()
    return serve(NumaService(scene.cluster, wall=lambda: scene.clock.wall, not_ready=lambda: "").answer)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("path", ["/numa", "/numa/nodes/good", "/numa/nodes/old", "/numa/nodes/bare", "/numa/policies"])
def test_it_fits_its_window_and_keeps_the_policy(chromium: Browser, url: str, path: str, width: int):
    chromium.open(url + path, width=width, dark=width == 390)
    assert chromium.complaints == []
    assert chromium.value("document.documentElement.scrollWidth") <= width


def test_the_overview_leads_to_a_node_and_back(chromium: Browser, url: str):
    chromium.open(url + "/numa", width=1280)
    to = chromium.value("document.querySelector('tbody a').href")
    assert to == f"{url}/numa/nodes/good"
    chromium.open(to, width=1280)
    assert chromium.value("document.querySelector('main a').href") == f"{url}/numa"
    colours = "new Set([...document.querySelectorAll('.cpus li')].map(c => getComputedStyle(c).backgroundColor)).size"
    assert chromium.value(colours) == 3
    assert (
        chromium.value("document.querySelector('svg[aria-label]').getAttribute('aria-label')") == "Distances: 0 to 1 21"
    )


def test_the_button_switches_with_a_token_and_shows_why_it_may_not(chromium: Browser, serve: Serve):
    asked: list[bytes] = []

    class Held(Switches):
        def __init__(self) -> None:
            self.now: Status = "close"

        def status(self, policy: Policy) -> Status:
            return self.now

        def put(self, policy: Policy, status: Status) -> bool:
            self.now = status
            return True

    scene = numa_scene.scene()
    made = NumaService(
        scene.cluster, wall=lambda: scene.clock.wall, not_ready=lambda: "", switches=Held(), may_switch=True
    )

    def change(path: str, body: bytes) -> Answer:
        asked.append(body)
        return made.put(path, body)

    server = Server("127.0.0.1", 0, made.answer, change=change, guard=RestGuard(exposed=False, local_token="secret"))
    server.start()
    try:
        chromium.open(server.url + "/numa/policies", width=390)
        assert chromium.complaints == []
        press = "document.querySelector('button').click()"
        said = "document.getElementById('said').textContent"
        chromium.value(press)
        until(lambda: str(chromium.value(said)).startswith("401"))
        assert asked == []
        chromium.value("document.getElementById('token').value = 'secret'")
        chromium.value(press)
        until(lambda: chromium.value("document.querySelector('td .badge')?.textContent") == "open")
        assert asked == [b'{"status":"open"}']
    finally:
        server.close()
