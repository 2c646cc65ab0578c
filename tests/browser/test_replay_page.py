"""The page of a replay in a real browser: nothing is cut off, its policy is kept, both limits are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import Browser
from emulated import Emulated

from koordlite.record.round_record import RoundRecord
from koordlite.replay import compare, html
from koordlite.replay.what_if import Other

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A minute of a wave, judged again without suppression."""
    folder = tmp_path_factory.mktemp("replay")
    node, moments = Emulated("small", folder), list[RoundRecord]()
    node.pod("web", "LS", "wave(low=500m,high=4,period=30)")
    node.pod("a-best-effort-pod-with-a-rather-long-name-as-jobs-have-them-7d9f8c6b5-x2x4z", "BE", "greedy")
    with node.at_work() as agent:
        for _ in range(40):
            agent.tick()
            assert agent.last_round
            moments.append(agent.last_round)
            node.sandbox.advance(1.0)
    path: Path = folder / "replay.html"
    path.write_text(html.document(compare.compare(moments, Other(threshold={"enable": False}))), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", [pytest.param(390, id="phone"), pytest.param(1280, id="desktop")])
def test_it_fits_and_draws_both_limits(chromium: Browser, page: str, width: int) -> None:
    chromium.open(page, width=width)
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height > 100)") == [
        True,
        True,
    ]
    assert chromium.value("document.querySelectorAll('path.series').length") >= 6
    assert chromium.complaints == []
