"""The front page of a running descheduler: how full zones are, misplaced pods, distances, the last cycles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from descheduler.framework import Finding, Refusal
from descheduler.plan import Outcome
from descheduler.policy import reader
from descheduler.report import numa_map
from descheduler.serve import page
from descheduler.serve.endpoints import Endpoints
from descheduler.serve.loop import CycleResult
from koordlite.model import keys
from koordlite.model.errors import Problem
from koordlite.report.html.page import LIVE_SCRIPT, digest

Cluster = Any


@pytest.fixture
def full(cluster: Cluster, placed: Callable[..., Any]) -> Cluster:
    """Node a: CPU 0 reserved, a pod on it; node b: empty; node c: nobody reports anything."""
    cluster.node("a", reservation={"reservedCPUs": "0"})
    report = cluster.report("a", containers=[placed("db-0", cpuset="0-3", exclusive=True)])
    report["metadata"]["annotations"][keys.BE_SHARED_POOLS] = json.dumps([{"socket": 0, "node": 0, "cpuset": "4-7"}])
    report["zones"][0]["costs"] = [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 21}]
    report["zones"][1]["costs"] = [{"name": "node-0", "value": 21}, {"name": "node-1", "value": 10}]
    cluster.pinned("db-0", "a", "0-3")
    cluster.node("b")
    cluster.report("b")
    cluster.node("c")
    return cluster


def told(cluster: Cluster, **fields: Any) -> CycleResult:
    plan = cluster.plan()
    given = {"number": 3, "began": 0.0, "seconds": 0.5, "leader": True, "dry_run": True, "plan": plan, **fields}
    return CycleResult(setup=reader.setup(reader.default()), **given)


def test_the_page_has_zones_violations_distances_and_cycles(full: Cluster) -> None:
    this = told(full)
    past = [page.Cycle.of(msgspec.structs.replace(this, number=2, plan=None, error="the API server is away"))]
    text = re.sub(r"<[^>]+>", " ", page.document(this, [*past, page.Cycle.of(this)]))
    for part in ("leader", "dry run", "default/db-0", "50 %", "21", "the API server is away", "4-7", "not reported"):
        assert part in text, part


def test_nothing_inline_and_a_policy_that_allows_our_script_alone(full: Cluster) -> None:
    made = page.strict(told(full), ())
    assert "style=" not in made.text
    assert made.text.count("<script") == 1 and f"<script>{LIVE_SCRIPT}</script>" in made.text
    assert made.policy.startswith("default-src 'none'; style-src 'sha256-")
    assert f"script-src 'sha256-{digest(LIVE_SCRIPT)}'; connect-src 'self'" in made.policy


def test_it_stops_refreshing_when_asked_and_keeps_what_was_looked_for(full: Cluster) -> None:
    made = page.strict(told(full), (), "db-0", refresh=False)
    assert "<script" not in made.text and "script-src" not in made.policy
    assert 'href="?node=db-0"' in made.text, "the link that makes it refresh"
    assert 'href="?node=db-0&amp;refresh=off"' in page.document(told(full), (), "db-0")


def test_how_full_a_zone_is(full: Cluster) -> None:
    nodes = full.view().nodes
    assert numa_map.share_in_use(nodes["a"], 0) == pytest.approx(4 / 8)
    assert numa_map.share_in_use(nodes["a"], 1) == 0
    assert numa_map.share_in_use(nodes["c"], 0) is None


def test_what_the_report_says_is_taken_counts_where_it_is_more(full: Cluster) -> None:
    report = next(
        obj for obj in full.objects if obj["kind"] == "NodeResourceTopology" and obj["metadata"]["name"] == "b"
    )
    report["zones"][1]["resources"][0]["available"] = "2"
    assert numa_map.share_in_use(full.view().nodes["b"], 1) == pytest.approx(0.75)


def test_best_effort_cpus_and_distances_are_read_from_the_report(full: Cluster) -> None:
    node = full.view().nodes["a"]
    assert str(node.be_pool) == "4-7"
    assert node.distances == {0: {0: 10, 1: 21}, 1: {0: 21, 1: 10}}


@pytest.mark.parametrize(
    "cost", [{}, {"name": "socket-0", "value": 1}, {"name": "node-1", "value": "far"}, {"name": 7}]
)
def test_a_distance_that_makes_no_sense_is_left_out(cluster: Cluster, cost: dict[str, Any]) -> None:
    cluster.node("a")
    cluster.report("a")["zones"][0]["costs"] = [cost]
    assert cluster.view().nodes["a"].distances == {}


def test_a_spoiled_pool_is_a_problem_and_the_node_is_judged(cluster: Cluster) -> None:
    cluster.node("a")
    cluster.report("a")["metadata"]["annotations"][keys.BE_SHARED_POOLS] = "[{"
    view = cluster.view()
    assert not view.nodes["a"].be_pool
    assert [problem.field for problem in view.problems] == [keys.BE_SHARED_POOLS]


def test_a_cluster_without_reports_says_so(cluster: Cluster) -> None:
    cluster.node("a")
    assert "nothing is known of NUMA zones" in page.document(told(cluster), ())


def listed(text: str, heading: str) -> str:
    """The section with this heading, without tags."""
    part = text.partition(f"<h2>{heading}</h2>")[2].partition("</section>")[0]
    return re.sub(r"<[^>]+>", " ", part)


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [("", "abc"), ("a", "a"), ("db-0", "a"), ("b", "ab")],
    ids=["all", "a node", "a misplaced pod", "part of either"],
)
def test_names_are_looked_for_when_asked(full: Cluster, asked: str, nodes: str) -> None:
    text = page.document(told(full), (), asked)
    rows = listed(text, "Nodes by NUMA zone")
    assert [name for name in "abc" if re.search(rf"\s{name}\s", rows)] == list(nodes)
    assert "default/db-0" in listed(text, "Misplaced pods")


def test_pods_of_other_nodes_are_left_out_when_asked(full: Cluster) -> None:
    text = page.document(told(full), (), "c")
    assert "no misplaced pods" in listed(text, "Misplaced pods")
    assert "None of these nodes has" in listed(text, "Nodes by NUMA zone")


def test_who_looks_for_a_name_that_nobody_has_is_told_so(full: Cluster) -> None:
    assert "There is no such node." in page.document(told(full), (), "zebra")


def test_the_searched_name_comes_from_the_address_and_stays_text(full: Cluster) -> None:
    endpoints = Endpoints(CollectorRegistry(), interval_seconds=300.0, monotonic=lambda: 0.0)
    endpoints.publish(told(full))
    answer = endpoints.answer("/", {"node": '"><img src=x>'}, "")
    assert "<img" not in answer.body.decode() and "There is no such node." in answer.body.decode()
    assert "form-action 'self'" in answer.headers["Content-Security-Policy"]


def test_every_link_of_a_large_cluster_leads_somewhere(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa_map, "MAX_DETAILS", 2)
    for name in ("n1", "n2", "n3", "n4"):
        cluster.node(name)
        cluster.report(name)
    text = page.document(told(cluster), ())
    links, ids = re.findall(r'href="([^"]*#[^"]*)"', text), set(re.findall(r'id="([^"]+)"', text))
    assert links == ["#node-n1", "#node-n2", "?node=n3#node-n3", "?node=n4#node-n4"]
    assert ids == {"node-n1", "node-n2"} and "2 of 4 nodes" in listed(text, "CPUs by owner")
    assert 'id="node-n3"' in page.document(told(cluster), (), "n3")


def test_a_finding_without_a_promise_has_only_its_fact(cluster: Cluster) -> None:
    cluster.node("a")
    cluster.pod("p", "a", owner="app")
    this = told(cluster)
    pod = next(iter(cluster.view().pods()))
    finding = Finding(pod=pod.uid, container="*", plugin="X", reason="Odd", severity="hard", promise="", fact="is odd")
    assert this.plan is not None
    plan = msgspec.structs.replace(this.plan, kept=(Outcome(pod, (finding,), "kept", "p", (Refusal("No", "no"),)),))
    wrong = listed(page.document(msgspec.structs.replace(this, plan=plan), ()), "Misplaced pods")
    assert "is odd" in wrong and "promised" not in wrong


def test_what_is_left_out_is_counted(full: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_OUTCOMES", 1)
    problems = tuple(Problem("policy", "$", str(n), "is odd", "look") for n in range(3))
    noted = listed(page.document(told(full, problems=problems), ()), "Notes and problems")
    assert re.search(r"\d+ more are in the report", noted)


def test_names_from_the_cluster_are_text(cluster: Cluster) -> None:
    cluster.node("a")
    cluster.report("a", reservation='{"reservedCPUs": "<img src=x>"}')
    assert "<img" not in page.document(told(cluster), ())


def test_the_server_answers_with_the_page_once_a_cycle_has_ended(full: Cluster) -> None:
    endpoints = Endpoints(CollectorRegistry(), interval_seconds=300.0, monotonic=lambda: 0.0)
    assert endpoints.answer("/", {}, "").status == 503
    endpoints.publish(told(full))
    answer = endpoints.answer("/", {}, "")
    assert (answer.status, "Content-Security-Policy" in answer.headers) == (200, True)
    endpoints.publish(msgspec.structs.replace(told(full), plan=None, error="refused"))
    body = endpoints.answer("/", {}, "").body.decode()
    assert "refused" in body and "default/db-0" in body, "the last good report stays, and what went wrong is listed"
