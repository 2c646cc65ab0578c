"""The report of a run in a real browser: short until something is opened, and its filter works under its policy."""

from __future__ import annotations

from pathlib import Path

import pytest
import slices
from chromium import VIEWS, Browser, has_axe
from emulated import Emulated

from koordlite.report.history import History
from koordlite.report.html import run_report

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A minute and a half of a wave, in a quick run ten seconds."""
    folder = tmp_path_factory.mktemp("run")
    node, run = Emulated("intel-2s-ht", folder), History({"a": {"b": "c"}}, {"machine": "emulated"})
    node.pod("web", "LS", "wave(low=2,high=24,period=60)")
    for number in range(slices.amount(12, 3)):
        node.pod(f"crunch-{number}", "BE", "greedy")
    with node.at_work() as agent:
        for _ in range(slices.amount(90, 10)):
            run.add(agent.tick())
            node.sandbox.advance(1.0)
    path: Path = folder / "run.html"
    path.write_text(run_report.document(run), encoding="utf-8")
    return path.as_uri()


@pytest.mark.sliced
@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_it_fits(chromium: Browser, page: str, width: int, dark: bool) -> None:
    chromium.open(page, width=width, dark=dark)
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.complaints == []
    if width == 1280:
        assert chromium.value("document.documentElement.scrollHeight") <= 3 * 900
    if has_axe():
        assert chromium.inaccessible() == []


def test_the_filter_opens_what_it_finds_and_closes_it_again(chromium: Browser, page: str) -> None:
    chromium.open(page, width=1280)
    shown = "[...document.querySelectorAll('details.group')].filter(g => g.open).length"
    typed = (
        "(text => { const f = document.querySelector('input[data-filter]'); f.value = text;"
        "f.dispatchEvent(new Event('input')); return f.closest('section').querySelector('[role=status]').textContent })"
    )
    assert chromium.value(shown) == 0
    said = chromium.value(f"{typed}('BesteffORT becpubudget')")
    found, _, whole = said.partition(" of ")
    assert 0 < int(found) < int(whole)
    assert chromium.value(shown) == 1
    assert chromium.value(f"{typed}('no such words')").startswith("0 of ")
    assert chromium.value(f"{typed}('')") == ""
    assert chromium.value(shown) == 0
    assert chromium.complaints == []
