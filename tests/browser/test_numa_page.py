"""The NUMA pages in a real browser: nothing is cut off, the policy is kept, links lead from cluster to node."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import slices
from apibench import until
from chromium import Browser, has_axe, looks

from koordlite.http.answers import Answer, plain
from koordlite.http.server import Ask, Server
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.report.night import Night
from koordlite.scheduler.numa_api.charts import Agents, Charts, Series
from koordlite.scheduler.numa_api.rest import RestGuard
from koordlite.scheduler.numa_api.service import NumaService
from koordlite.scheduler.numa_api.switches import Policy, Status, Switches
from tests.scheduler import numa_scene
from tests.scheduler.builders import Scene

pytestmark = pytest.mark.xdist_group("browser")
Serve = Callable[[Ask], str]
NEEDS_AXE = pytest.mark.skipif(not has_axe(), reason="axe-core-python is not installed: make test")
FOUR = ((10, 32, 12, 32), (32, 10, 32, 32), (12, 32, 10, 32), (32, 32, 32, 10))


PATHS = (
    "/numa",
    "/numa/nights",
    "/numa/nodes/good",
    "/numa/nodes/wide",
    "/numa/nodes/old",
    "/numa/nodes/bare",
    "/numa/policies",
)


class Hour(Agents):
    """Charts of two NUMA nodes, with a gap; none of the node `old`."""

    def __init__(self) -> None:
        pass

    def addresses(self, node: str = "") -> dict[str, list[str]]:
        return {"good": ["10.0.0.1"], "old": ["10.0.0.2"], "wide": ["10.0.0.3"]}

    def ask(self, address: str, path: str) -> bytes:
        if address == "10.0.0.2":
            raise OSError("timed out")
        held = 1500.0 if address == "10.0.0.3" else 0.0
        return msgspec.json.encode(
            Night("enforcing", 1.8e9, 1.8e9 + 43200, 43190.0, held, 2000, 1.8e9, 31.25, 4.5, 1.2)
        )

    def charts(self, node: str) -> Charts:
        if node == "old":
            return Charts(why="the NUMA exporter at 10.0.0.1:9201 cannot be asked: timed out")
        values = {"0": [None if 5 < n < 9 else n / 10 for n in range(30)], "1": [1.0] * 30}
        series = Series([1.8e9 + 30 * n for n in range(30)], values)
        return Charts(series, series, source="the NUMA exporter of the node")


class Held(Switches):
    """Policies that are switched in memory."""

    def __init__(self) -> None:
        self.now: Status = "close"

    def status(self, policy: Policy) -> Status:
        return self.now

    def put(self, policy: Policy, status: Status) -> bool:
        self.now = status
        return True


def service(switches: Switches | None = None) -> NumaService:
    scene = numa_scene.scene()
    scene.node("wide", *[{"cpu": "2", "memory": "4Gi"}] * 4, distances=FOUR, annotations=numa_scene.four(scene.clock))
    scene.cluster.switch(NUMAPolicy(distance=True))
    return NumaService(
        scene.cluster,
        wall=lambda: scene.clock.wall,
        not_ready=lambda: "",
        agents=Hour(),
        switches=switches,
        may_switch=switches is not None,
    )


@pytest.fixture
def url(serve: Serve) -> str:
    return serve(service(Held()).answer)


@pytest.mark.parametrize("width", slices.first([390, 1280, 820, 1920], 2))
@pytest.mark.parametrize("path", PATHS)
def test_it_fits_its_window_and_keeps_the_policy(chromium: Browser, url: str, path: str, width: int):
    chromium.open(url + path, width=width, dark=width == 390)
    assert chromium.complaints == []
    assert chromium.value("document.documentElement.scrollWidth") <= width


def test_last_night_leads_from_the_worst_node_to_its_page_and_is_sorted_by_the_form(chromium: Browser, url: str):
    chromium.open(url + "/numa/nights", width=1280)
    first = "document.querySelector('tbody tr').innerText"
    assert chromium.value(first).split()[:5] == ["wide", "enforcing", "25", "min", "720"]
    assert chromium.value("document.querySelector('tbody a').href") == f"{url}/numa/nodes/wide"
    shown = chromium.value("document.body.innerText")
    assert "the agent at 10.0.0.2 cannot be asked: timed out" in shown
    chromium.open(url + "/numa/nights?sort=name&show=silent", width=1920, dark=True)
    assert chromium.value("document.querySelector('select[name=sort]').value") == "name"
    assert "wide" not in chromium.value("document.querySelector('tbody').innerText")


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


@NEEDS_AXE
@pytest.mark.parametrize(("path", "width", "dark"), looks(PATHS))
def test_people_who_see_little_or_use_no_mouse_can_use_it(
    chromium: Browser, url: str, path: str, width: int, dark: bool
):
    chromium.open(url + path, width=width, dark=dark)
    assert chromium.inaccessible() == []


@NEEDS_AXE
def test_what_is_empty_out_of_date_or_forbidden_is_a_page_of_its_own(chromium: Browser, serve: Serve):
    empty = NumaService(Scene().cluster, wall=lambda: 0.0, not_ready=lambda: "older than 300 s")
    chromium.open(serve(empty.answer) + "/numa", width=390)
    assert "older than 300 s" in chromium.value("document.body.innerText")
    assert chromium.value("document.querySelectorAll('.good').length") == 0, "nothing is praised that is not known"
    assert chromium.inaccessible() == []
    guard = RestGuard(exposed=True, review=lambda token, verb, path, address: plain(403, "may not"))
    server = Server("127.0.0.1", 0, service().answer, guard=guard)
    server.start()
    try:
        chromium.open(server.url + "/numa", width=390)
        assert chromium.value("document.querySelector('h1').textContent") == "Not allowed"
        assert chromium.inaccessible() == []
    finally:
        server.close()


def test_charts_have_a_line_for_each_numa_node_and_distances_name_the_nearest(chromium: Browser, url: str):
    chromium.open(f"{url}/numa/nodes/wide", width=820)
    assert chromium.value("document.querySelectorAll('path.series').length") == 4
    shown = chromium.value("document.body.innerText")
    assert "From the NUMA exporter of the node." in shown and "Optimal NUMA distance is open" in shown
    nearest = "[...document.querySelectorAll('h3 + .scroll td')].map(cell => cell.textContent)"
    assert chromium.value(nearest)[:3] == ["2", "0, 2", "11.0"]
    assert "mean distance 21.0" in shown, "shop/spread could be nearer together"


def test_the_button_switches_with_a_token_and_shows_why_it_may_not(chromium: Browser):
    asked: list[bytes] = []
    made = service(Held())

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
