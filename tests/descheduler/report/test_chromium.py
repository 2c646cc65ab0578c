"""The page in a real browser: nothing is cut off or scrolls sideways, on a phone and on a desk, light and dark."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import slices

from descheduler.report import html
from koordlite.model.nrt import ContainerPlacement
from koordlite.report.html.page import FILTER_SCRIPT

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
maxNoOfPodsToEvictTotal: 2
profiles:
  - name: p
    pluginConfig:
      - {name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 5}}
    plugins: {deschedule: {enabled: [ReservedCPUs, RemovePodsHavingTooManyRestarts]}}
"""
PROBE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, svg") &&
    e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className);
  const style = getComputedStyle(document.body);
  parent.postMessage(JSON.stringify([innerWidth, document.documentElement.scrollWidth, wide.length, wide.slice(0, 3),
    style.backgroundColor, style.color]), "*");
});</script>"""
FRAME = """<!doctype html><script>addEventListener("message", e => {{ document.title = e.data; }});</script>
<iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>"""
"""Windows of a headless browser are never as narrow as a phone; frames are."""
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom", "--virtual-time-budget=2000")


@pytest.fixture
def page(cluster: Any, placed: Callable[..., ContainerPlacement]) -> str:
    """A report with long names, pods of every kind of answer, bars and a map."""
    name = "node-with-a-long-name-0123456789.eu-west-1.compute.internal"
    reserved = {"reservedCPUs": "0-1"}
    cluster.node(name, reservation=reserved)
    mine = placed("on-reserved", source="koordinator", exclusive=True, promised_cpus="0-3", cpuset="0-3")
    cluster.report(name, reservation=reserved, containers=[mine])
    cluster.node("b")
    cluster.report("b")
    cluster.pinned("on-reserved", name, "0-3", owner="one")
    for number in range(4):
        state = {"name": "main", "restartCount": 50, "state": {"running": {}}}
        obj = cluster.pod(f"checkout-service-with-a-long-name-7d4b9c6f5-{number:05}", name, owner=f"rs-{number}")
        obj["status"]["containerStatuses"] = [state]
    return html.render(cluster.plan(POLICY))


def probed(page: str, width: int, scheme: str, folder: pathlib.Path) -> list[Any]:
    """What the page measures of itself. It allows no scripts, so the probe comes with leave of its own."""
    import json

    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    file = folder / "page.html"
    file.write_text(open_page.replace("</head>", f"{PROBE}</head>"), encoding="utf-8")
    frame = folder / "frame.html"
    frame.write_text(FRAME.format(width=width), encoding="utf-8")
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    command = [CHROMIUM, *FLAGS, *dark, "--window-size=1400,1000", f"--user-data-dir={folder}/profile"]
    done = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=100, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title
    found: list[Any] = json.loads(title[1].replace("&amp;", "&"))
    return found


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine")
@pytest.mark.parametrize("scheme", slices.first(["light", "dark"]))
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
def test_nothing_sticks_out(page: str, width: int, scheme: str, tmp_path: pathlib.Path) -> None:
    inner, whole, outside, which, ground, ink = probed(page, width, scheme, tmp_path)
    assert (inner, whole, outside) == (width, width, 0), which
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ground, ink)]
    assert (bright[0] > bright[1]) == (scheme == "light")


def test_the_page_needs_nothing_from_elsewhere(page: str) -> None:
    assert page.count("<script") == 1 and f"<script>{FILTER_SCRIPT}{html._SEARCH}</script>" in page
    assert not re.search(r"<link|<iframe|https?://|url\(", page)
    assert "default-src &#x27;none&#x27;" in page


def test_pods_are_counted_by_namespace_owner_and_node_and_can_be_looked_for(page: str) -> None:
    groups = page.partition("<h2>By namespace, owner and node</h2>")[2].partition("</section>")[0]
    assert "1 namespace<" in groups and "5 owners<" in groups
    assert page.count("data-item") >= 2 and "data-filter" in page
