"""The front pages of both products in a real browser: nothing is cut off, the policy is kept, the colours are there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from apibench import until
from chromium import VIEWS, Browser, has_axe, looks
from emulated import Emulated
from prometheus_client import CollectorRegistry

from descheduler.cycle import planner
from descheduler.policy import reader
from descheduler.serve.endpoints import Endpoints as ClusterEndpoints
from descheduler.serve.loop import CycleResult
from descheduler.snapshot import assemble, files
from koordlite.agent import Agent
from koordlite.cli import machine as machines
from koordlite.cli import parser
from koordlite.http.answers import Answer
from koordlite.http.server import Ask
from koordlite.report.history import History
from koordlite.report.html import agent_page as agent_page_module
from koordlite.report.html import page
from koordlite.report.html.page import FILTER_SCRIPT
from koordlite.report.web.endpoints import Endpoints

pytestmark = pytest.mark.xdist_group("browser")
WIDTHS = [pytest.param(390, id="phone"), pytest.param(1280, id="desktop"), pytest.param(1920, id="wide")]
Serve = Callable[[Ask], str]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Endpoints, Callable[[], None]]:
    """An agent that has looked at an emulated node for ten seconds, and what makes it look once more."""
    node = Emulated("intel-2s-ht", tmp_path_factory.mktemp("cluster"))
    node.node(reservation='{"reservedCPUs":"0"}')
    node.pod("web", "LS", "2")
    node.pod("db", "LSR", "2", request="2", status='{"cpuset":"2-3"}')
    node.pod("crunch", "BE", "greedy")
    # A run that ends by itself keeps no pace with the clock on the wall.
    args = parser().parse_args(["run", "--sandbox", "intel-2s-ht", "--cluster", str(node.folder), "--for", "60"])
    settings = machines.settings(args)
    machine = machines.machine(args, settings)
    agent, run = Agent(machine.host, machine.cluster, settings), History({}, {})
    endpoints = Endpoints(period_seconds=1.0, registry=CollectorRegistry())

    def look() -> None:
        tick = agent.tick()
        run.add(tick)
        machine.host.clock.wait(1.0)
        endpoints.publish(tick, run.remembered())

    for _ in range(10):
        look()
    return endpoints, look


@pytest.fixture
def agent_page(endpoints: tuple[Endpoints, Callable[[], None]], serve: Serve) -> str:
    return serve(endpoints[0].answer)


@pytest.fixture
def cluster_page(tour: str, serve: Serve) -> str:
    """A descheduler that has judged the cluster of the tour."""
    setup = reader.setup(reader.default())
    plan = planner.plan(assemble.view(files.read([tour]), ""), setup)
    told = CycleResult(number=1, began=0.0, seconds=0.1, setup=setup, leader=True, dry_run=True, plan=plan)
    endpoints = ClusterEndpoints(CollectorRegistry(), interval_seconds=300.0, monotonic=lambda: 0.0)
    endpoints.publish(told)
    return serve(endpoints.answer)


@pytest.fixture
def tour(pytestconfig: pytest.Config) -> str:
    """The manifests of the tour."""
    return str(pytestconfig.rootpath / "configs" / "tour")


def is_fit(chromium: Browser) -> None:
    """Nothing is wider than the window, and the browser has nothing to complain of."""
    assert chromium.value("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert chromium.complaints == []
    assert chromium.value("document.querySelectorAll('[style], [onclick], [onload]').length") == 0
    scripts = chromium.value("[...document.scripts].map(each => each.textContent)")
    assert set(scripts) <= {FILTER_SCRIPT, page.LIVE_SCRIPT}


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_the_agents_page_fits_and_obeys_its_policy(chromium: Browser, agent_page: str, width: int, dark: bool) -> None:
    chromium.open(agent_page, width=width, dark=dark)
    is_fit(chromium)
    assert chromium.value("document.querySelectorAll('.cpus li').length") > 8
    ground = chromium.value("getComputedStyle(document.querySelector('.cpus li')).backgroundColor")
    assert ground not in ("rgba(0, 0, 0, 0)", "transparent"), "the styles came through the policy"


@pytest.mark.sliced
@pytest.mark.skipif(not has_axe(), reason="axe-core-python is not installed: make test")
@pytest.mark.parametrize(("of", "width", "dark"), looks(["agent_page", "cluster_page"]))
def test_people_who_see_little_or_use_no_mouse_can_use_them_while_they_refresh(
    chromium: Browser, request: pytest.FixtureRequest, of: str, width: int, dark: bool
) -> None:
    chromium.open(request.getfixturevalue(of), width=width, dark=dark)
    assert chromium.value("document.querySelectorAll('[data-refresh]').length") == 1
    assert chromium.inaccessible() == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_cluster_page_fits_and_obeys_its_policy(chromium: Browser, cluster_page: str, width: int) -> None:
    chromium.open(f"{cluster_page}/", width=width)
    is_fit(chromium)
    assert "shop/gateway" in chromium.value("document.body.innerText")
    assert chromium.value("document.querySelectorAll('svg rect').length") > 8


def test_an_inline_style_would_be_seen(chromium: Browser, serve: Serve) -> None:
    loose = Answer(200, "text/html", b"<p style='color:red'>x</p>", {"Content-Security-Policy": "default-src 'none'"})
    chromium.open(serve(lambda path, query, accept: loose), width=390)
    assert any("style" in said for said in chromium.complaints)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        pytest.param(".cpus a", "is reserved for the system", id="CPU"),
        pytest.param("td[data-label=pod] a", "decided about it", id="pod"),
    ],
)
def test_links_lead_to_explanations(chromium: Browser, agent_page: str, link: str, said: str) -> None:
    chromium.open(f"{agent_page}/?refresh=off", width=390)
    chromium.open(chromium.value(f"document.querySelector('{link}').href"), width=390)
    assert said in chromium.value("document.body.innerText")
    assert chromium.value("document.querySelector('header a').href") == f"{agent_page}/", "the way back"


def test_a_wide_screen_is_used(chromium: Browser, agent_page: str) -> None:
    chromium.open(f"{agent_page}/?refresh=off", width=1920)
    assert chromium.value("document.querySelector('main').clientWidth") > 1700


def test_what_is_only_observed_is_dashed(chromium: Browser, agent_page: str) -> None:
    chromium.open(f"{agent_page}/?refresh=off", width=1280)
    assert chromium.value("document.querySelectorAll('path.series[stroke-dasharray]').length") == 1
    assert "would limit BE to" in chromium.value("document.body.innerText")


def test_the_agents_page_keeps_what_is_open_and_looked_for_while_it_changes(
    chromium: Browser,
    endpoints: tuple[Endpoints, Callable[[], None]],
    agent_page: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_page_module, "REFRESH_SECONDS", 1)
    chromium.open(agent_page, width=390)
    chromium.value("window.first = document.querySelector('main section')")
    chromium.press_in("input[data-filter]", "besteffort")
    groups = "[...document.querySelectorAll('details.group')].map(g => [g.hidden, g.open])"
    before, shown = chromium.value(groups), chromium.value("document.querySelector('.lead').textContent")
    assert [False, True] in before and [True, False] in before
    chromium.value("scrollTo(0, 3000)")
    endpoints[1]()
    until(lambda: chromium.value("document.querySelector('.lead').textContent") != shown)
    assert chromium.value("first.isConnected")
    assert chromium.value(groups) == before
    assert chromium.value("[scrollY, document.activeElement.value]") == [3000, "besteffort"]
    assert chromium.complaints == []
