"""The NUMA pages in a real browser: nothing is cut off, the policy is kept, links lead from cluster to node."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chromium import Browser

from koordlite.http.server import Ask
from koordlite.scheduler.numa_api.service import NumaService
from tests.scheduler import numa_scene

pytestmark = pytest.mark.xdist_group("browser")
Serve = Callable[[Ask], str]


@pytest.fixture
def url(serve: Serve) -> str:
    scene = numa_scene.scene()
    return serve(NumaService(scene.cluster, wall=lambda: scene.clock.wall, not_ready=lambda: "").answer)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("path", ["/numa", "/numa/nodes/good", "/numa/nodes/old", "/numa/nodes/bare"])
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
