"""The page of an eviction plan in a real browser: its filter, the links of its groups, the node that receives pods."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chromium import VIEWS, Browser, has_axe

from descheduler.report import html
from koordlite.model.cpuset import CPUSet
from koordlite.model.nrt import ContainerPlacement
from koordlite.report.html.page import FILTER_SCRIPT
from tests.descheduler.conftest import RESTARTS, Cluster

pytestmark = pytest.mark.xdist_group("browser")
POLICY = RESTARTS.replace("enabled: [", "enabled: [ReservedCPUs, ")
SHOWN = "[...document.querySelectorAll('#evict [data-item]')].filter(each => !each.hidden).length"
SAID = "document.querySelector('#evict [role=status]').textContent"


WIDER = """(width => [...document.querySelectorAll('body *')].filter(each => !each.closest('.scroll, svg') &&
    each.getBoundingClientRect().right > width + 1).map(each => `${each.tagName}.${each.className}`))"""
"""What is cut off or sticks out, in a window of a width."""
COLOURS = "(style => [style.backgroundColor, style.color])(getComputedStyle(document.body))"


def made(more: str = "") -> Cluster:
    """A pod on reserved CPUs of n-1 that has to move to n-10, and eleven restarting pods of owners rs-0 to rs-10.
    `more` makes names of nodes and pods longer."""
    cluster, reserved = Cluster(), {"reservedCPUs": "0-1"}
    first, second = f"n-1{more}", f"n-10{more}"
    cluster.node(first, reservation=reserved)
    cpus = CPUSet.parse("0-3")
    placed = ContainerPlacement(
        "default", "db-0", "uid-db-0", "main", source="koordinator", exclusive=True, promised_cpus=cpus, cpuset=cpus
    )
    cluster.report(first, reservation=reserved, containers=[placed])
    cluster.node(second, cpu="64")
    cluster.report(second)
    cluster.pinned("db-0", first, "0-3", owner="db")
    for number in range(11):
        node = second if number % 2 else first
        cluster.pod(f"checkout{more}-{number:05}", node, cpu="1", owner=f"rs-{number}", restarts=50)
    return cluster


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("plan") / "plan.html"
    path.write_text(html.render(made().plan(POLICY)), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_it_fits_and_everyone_can_use_it(chromium: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    path = tmp_path / "plan.html"
    limited = POLICY.replace("profiles:", "maxNoOfPodsToEvictTotal: 2\nprofiles:")
    path.write_text(html.render(made("-with-a-long-name.eu-west-1.compute.internal").plan(limited)), encoding="utf-8")
    chromium.open(path.as_uri(), width=width, dark=dark)
    chromium.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value(f"{WIDER}({width})") == []
    ground, ink = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in chromium.value(COLOURS))
    assert (ground < ink) == dark
    assert chromium.complaints == []
    if has_axe():
        assert chromium.inaccessible() == []


def test_what_is_typed_into_the_filter_hides_the_rest(chromium: Browser, page: str) -> None:
    chromium.open(page, width=1280)
    assert chromium.value(SHOWN) == 12
    chromium.press_in("#evict input", "RS-1")
    assert (chromium.value(SHOWN), chromium.value(SAID)) == (2, "2 of 12"), "rs-1 and rs-10"
    chromium.press_in("#evict input", "0 checkout")
    assert (chromium.value(SHOWN), chromium.value(SAID)) == (1, "1 of 12")


MORE = "[...document.querySelectorAll('#evict [data-packed] li')].map(each => each.textContent)"


def until(chromium: Browser, expression: str, wanted: object) -> None:
    """Unpacking takes a few turns of the browser."""
    turn = "new Promise(done => setTimeout(done, 20))"
    for _ in range(100):
        if chromium.value(expression) == wanted:
            return
        chromium.value(turn)
    assert chromium.value(expression) == wanted


def test_pods_beyond_those_listed_are_found_too(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "PODS_SHOWN", 2)
    path = tmp_path / "plan.html"
    path.write_text(html.render(made().plan(POLICY)), encoding="utf-8")
    chromium.open(path.as_uri(), width=1280)
    assert "and 10 more: the search above finds them" in chromium.value(f"{SAID} + document.body.textContent")
    chromium.press_in("#evict input", "rs-7")
    found = "default/checkout-00007 on n-10, ReplicaSet/default/rs-7: TooManyRestarts, to n-1"
    until(chromium, MORE, [found])
    chromium.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
    chromium.click("a[data-find='node:n-1']")
    until(chromium, f"{MORE}.length", 5)
    until(chromium, "document.querySelector('#evict [data-packed] p').textContent", "5 more of 10")
    assert chromium.complaints == []


def test_a_group_leads_to_its_pods_and_to_no_others(chromium: Browser, page: str) -> None:
    chromium.open(page, width=1280, height=500)
    chromium.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
    chromium.click("a[data-find='owner:ReplicaSet/default/rs-1']")
    assert chromium.value("document.querySelector('#evict input').value") == "owner:ReplicaSet/default/rs-1"
    assert chromium.value(SHOWN) == 1
    assert chromium.value("location.hash") == "#evict"
    assert -1 < chromium.value("document.querySelector('#evict').getBoundingClientRect().top") < 500
    chromium.click("a[data-find='node:n-1']")
    assert chromium.value(SAID) == "7 of 12", "n-10 is another node"
    chromium.click("a[data-find='namespace:default']")
    assert chromium.value(SAID) == "12 of 12"
    assert chromium.complaints == []


def test_the_receiving_node_is_drawn_as_the_plan_leaves_it(chromium: Browser, page: str) -> None:
    chromium.open(page, width=1280)
    drawn = "document.querySelector('svg[aria-label=\"number of CPUs of n-10 by NUMA node after the plan\"]')"
    comes = f"[...{drawn}.querySelectorAll('title')].filter(t => t.textContent === 'comes: default/db-0').length"
    assert chromium.value(comes) == 4
    assert chromium.value(f"{drawn}.querySelectorAll('g').length") == 16
    row = "[...document.querySelectorAll('#nodes tbody tr')].find(row => row.cells[0].textContent === 'n-10')"
    assert "default/db-0: 4.0 CPUs, from n-1" in chromium.value(f"{row}.textContent")


def test_it_needs_nothing_from_elsewhere_and_counts_pods_by_namespace_and_owner() -> None:
    shown = html.render(made().plan(POLICY))
    assert shown.count("<script") == 1 and f"<script>{FILTER_SCRIPT}{html._SEARCH}</script>" in shown
    assert not re.search(r"<link|<iframe|https?://|url\(", shown)
    assert "default-src &#x27;none&#x27;" in shown
    groups = shown.partition("<h2>By namespace, owner and node</h2>")[2].partition("</section>")[0]
    assert "1 namespace<" in groups and "12 owners<" in groups


def test_drawings_of_large_nodes_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "CELLS_SHOWN", 32)
    shown = html.render(made().plan(POLICY))
    assert shown.count("CPUs of n-1 by NUMA node") == 2, "before and after"
    assert "CPUs of n-10 by NUMA node" not in shown and "and 1 more nodes: the JSON report has them all" in shown
