"""The extender's pages in a real browser: bars of refusals and of free CPUs, light and dark, on any width."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chromium import Browser, has_axe, looks
from slices import long

from koordlite.http.server import Ask
from koordlite.report.log_levels import LogLevels
from koordlite.scheduler.service import Service
from tests.scheduler import test_making_room
from tests.scheduler.builders import pod

pytestmark = pytest.mark.xdist_group("browser")
PATHS = ("/", "/explain/ns/w", "/explain/ns/w?make-room=1", "/explain/ns/later?make-room=1", "/state/b", "/state/bare")


WINDOWS = [(390, True), (1920, False), long(1280, False), long(1280, True), long(1920, True)]


@pytest.fixture
def url(serve: Callable[[Ask], str]) -> str:
    """Two nodes on which pods have to move for `ns/w`, one without a report, and a pod that nobody asked about."""
    placed = {"x": ("a", 0), "y": ("a", 1), "z": ("b", 0), "v": ("b", 1)}
    scene = test_making_room.world(("a", "b"), placed, dict.fromkeys(placed, 4))
    scene.node("bare")
    scene.put(pod("w", "8"))
    scene.put(pod("later", "65"))
    scene.filter(pod("w", "8"), "a", "b")
    return serve(Service(scene.extender, LogLevels(now=lambda: scene.clock.now)).answer)


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
@pytest.mark.parametrize("path", PATHS)
def test_it_fits_its_window_and_keeps_the_policy(chromium: Browser, url: str, path: str, width: int, dark: bool):
    chromium.open(url + path, width=width, dark=dark)
    assert chromium.complaints == []
    assert chromium.value("document.documentElement.scrollWidth") <= width
    if width == 1920:
        assert chromium.value("document.querySelector('main').getBoundingClientRect().width") > 1500


def test_bars_are_as_long_as_what_they_show(chromium: Browser, url: str) -> None:
    chromium.open(f"{url}/explain/ns/w", width=1280)
    drawn = "[...document.querySelectorAll('h3')].map(h => [...h.parentElement.querySelectorAll('svg')].map(s => "
    assert chromium.value(f"{drawn}+s.children[1].getAttribute('width')))") == [[50, 50], [50, 50]], (
        "4 of 8 CPUs are free"
    )
    line = f"{drawn}+s.children[2].getAttribute('x')))"
    assert chromium.value(line) == [[99, 99], [99, 99]], "it asks all 8"
    words = chromium.value("document.body.innerText")
    assert "cannot align container" in words and "NUMA 0: 4 of 8 CPUs free" in words
    chromium.open(chromium.value("document.querySelector('a[href*=make-room]').href"), width=1280)
    words = chromium.value("document.body.innerText")
    assert "after 1 move; highest priority 0" in words
    assert chromium.value("document.querySelector('[data-refresh]')") is None, (
        "a search is not asked for again and again"
    )
    chromium.open(chromium.value("document.querySelector('h3 a').href"), width=1280)
    assert "NUMA 0: 4 of 8 CPUs free" in chromium.value("document.body.innerText")


@pytest.mark.skipif(not has_axe(), reason="axe-core-python is not installed: make test")
@pytest.mark.parametrize(("path", "width", "dark"), looks(PATHS))
def test_people_who_see_little_or_use_no_mouse_can_use_it(
    chromium: Browser, url: str, path: str, width: int, dark: bool
) -> None:
    chromium.open(url + path, width=width, dark=dark)
    assert chromium.inaccessible() == []
