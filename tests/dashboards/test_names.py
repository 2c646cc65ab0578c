"""Dashboards, alerts and the page of metrics name what the programs export, and nothing else."""

from __future__ import annotations

import functools
import pathlib
import re

import dashboards
import metricnames
import pytest

ROOT = pathlib.Path(__file__).parents[2]
_PARTS = ("_bucket", "_sum", "_count")


@functools.cache
def exported() -> dict[str, metricnames.Exported]:
    """By name as scraped; a histogram by each of its three."""
    found = {}
    for each in (
        *metricnames.agent(),
        *metricnames.descheduler(),
        *metricnames.extender(),
        *metricnames.numa_exporter(),
    ):
        names = [f"{each.name}{part}" for part in _PARTS] if each.kind == "histogram" else [each.name]
        found |= dict.fromkeys(names, each)
    return found


def test_every_metric_that_is_asked_for_is_exported():
    asked = {name for question in dashboards.questions() for name in question.metrics}
    assert len(asked) > 30
    assert asked - exported().keys() - {"up"} == set()


def test_the_page_lists_every_metric_with_its_labels():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == metricnames.page().rstrip("\n") + "\n", "run tests/support/metricnames.py > docs/metrics.md"


@pytest.mark.parametrize(("name", "board"), dashboards.boards().items())
def test_a_dashboard_is_laid_out_without_overlaps(name, board):
    taken = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for place in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert place not in taken, f"{panel['title']} covers {taken.get(place)}"
            taken[place] = panel["title"]


@pytest.mark.parametrize(("name", "board"), dashboards.boards().items())
def test_a_dashboard_takes_its_data_source_from_a_variable(name, board):
    assert board["templating"]["list"][0]["type"] == "datasource"
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert len({each["uid"] for each in dashboards.boards().values()}) == len(dashboards.boards())


def test_every_alert_says_what_it_means_and_how_bad_it_is():
    for group in dashboards.rule_groups()["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
            assert rule["for"]


def test_every_alert_leads_to_its_section_of_the_page_and_every_section_is_of_an_alert():
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    rules = [rule for group in dashboards.rule_groups()["groups"] for rule in group["rules"]]
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in rules]
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"https://koordlite.example/alerts.html#{rule['alert'].lower()}"


def test_what_the_cluster_shows_by_node_leads_to_the_dashboard_of_that_node():
    boards = {board["uid"]: board for board in dashboards.boards().values()}
    by_node = [
        panel
        for panel in boards["koordlite-cluster"]["panels"]
        if any("{{node}}" in target["legendFormat"] for target in panel.get("targets", ()))
    ]
    assert len([panel for panel in by_node if panel["targets"][0]["expr"].startswith("topk(10, ")]) >= 3
    for panel in by_node:
        (link,) = panel["fieldConfig"]["defaults"]["links"]
        found = re.fullmatch(r"/d/([\w-]+)\?var-node=\$\{__field\.labels\.node\}&\$\{__url_time_range\}", link["url"])
        assert found and any(each["name"] == "node" for each in boards[found[1]]["templating"]["list"]), panel["title"]


def test_a_panel_about_cpu_says_in_which_unit():
    counts = ("cpu_cores", "cpu_used_seconds", "cpus_count")
    for name, board in dashboards.boards().items():
        for panel in board["panels"]:
            if any(part in target["expr"] for target in panel.get("targets", ()) for part in counts):
                assert panel["fieldConfig"]["defaults"]["unit"] != "short", f"{name}: {panel['title']}"
