"""The JSON report against its published schema, the same bytes for the same question, and two reports compared."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import zlib
from collections.abc import Callable
from typing import Any

import jsonschema
import msgspec
import pytest

from descheduler.evictors import eviction_api
from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from descheduler.report import diff, document, html, text
from descheduler.serve import report_folder as folder
from descheduler.serve.loop import CycleResult
from koordlite.model.nrt import ContainerPlacement
from tests.descheduler.conftest import RESTARTS

Place = Callable[..., ContainerPlacement]
SCHEMA = json.loads((pathlib.Path(__file__).parents[3] / "docs/schemas/descheduler-report.schema.json").read_text())
MANY = RESTARTS.replace("enabled: [", "enabled: [ReservedCPUs, ")
POLICY = f"{MANY}maxNoOfPodsToEvictTotal: 1\n"


@pytest.fixture
def troubled(cluster: Any, placed: Place) -> Any:
    """A pod on reserved CPUs, two that restart all the time, one of them without an owner, and one that is poison."""
    reserved = {"reservedCPUs": "0-1"}
    cluster.node("a", reservation=reserved)
    mine = placed("on-reserved", source="koordinator", exclusive=True, promised_cpus="0-3", cpuset="0-3")
    cluster.report("a", reservation=reserved, containers=[mine])
    cluster.node("b")
    cluster.report("b")
    cluster.pinned("on-reserved", "a", "0-3", owner="one")
    for name, owner in (("restless", "two"), ("bare", "")):
        cluster.pod(name, "a", owner=owner, restarts=50)
    cluster.add({"kind": "Pod", "metadata": {"name": "poison", "labels": {"a": 1}}})
    return cluster


def as_json(plan: EvictionPlan) -> Any:
    return json.loads(document.encode(plan, eviction_api.prepare(plan)))


def test_the_report_is_what_the_schema_says(troubled: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    report = as_json(troubled.plan(POLICY))
    jsonschema.validate(report, SCHEMA)
    assert report["evict"] and report["kept"] and report["nodes"] and report["snapshot"]["problems"]


@pytest.mark.parametrize("field", ["evict", "plugins", "leftByLimits", "results"])
def test_a_report_without_a_field_is_not(troubled: Any, field: str) -> None:
    report = as_json(troubled.plan(POLICY))
    del report[field]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, SCHEMA)


def restless(cluster: Any, pods: int) -> None:
    """So many pods of two owners that restart all the time, the last one of the second owner more important."""
    cluster.node("a")
    cluster.node("b")
    for number in range(pods):
        pod = cluster.pod(f"p{number:03}", "a", cpu="1m", memory="1Mi", owner=f"o{number % 2}", restarts=50)
        pod["spec"]["priority"] = 7 if number == pods - 1 else number % 2


def test_what_all_findings_or_all_pods_of_an_owner_share_is_said_once(cluster: Any) -> None:
    restless(cluster, 4)
    plan = cluster.plan(MANY)
    report = as_json(plan)
    jsonschema.validate(report, SCHEMA)
    (by_plugin,) = (one for one in report["plugins"] if one["findings"])
    owners = {one["owner"]: one for one in report["owners"]}
    found = {}
    for pod in report["evict"] + report["kept"]:
        own = pod if "qosClass" in pod else owners[pod["owner"]]
        (finding,) = pod["findings"]
        evidence = by_plugin["evidence"][finding["reason"]] | finding.get("evidence", {})
        found[pod["uid"]] = (own["qosClass"], own["priority"], evidence, finding.get("severity", "hard"))
    assert found == {
        o.pod.uid: (str(o.pod.pod.qos_class), o.pod.pod.priority, dict(o.main.evidence), o.main.severity)
        for o in plan.outcomes
    }
    assert sorted(pod["pod"] for pod in report["evict"] + report["kept"] if "qosClass" in pod) == ["default/p003"]


def test_of_many_pods_the_text_has_one_line_each_beyond_the_first(cluster: Any) -> None:
    restless(cluster, text.AT_LENGTH + 50)
    plan = cluster.plan(MANY)
    shown = text.render(plan).splitlines()
    assert sum(line.startswith("    wrong") for line in shown) == text.AT_LENGTH
    listed = [line.split("  on ")[0].split(". ")[1] for line in shown if "  on a" in line]
    assert listed == [outcome.pod.key for outcome in plan.evict]


def test_what_each_plugin_found_and_what_limits_left(troubled: Any) -> None:
    report = as_json(troubled.plan(POLICY))
    by_name = {one["name"]: one for one in report["plugins"]}
    assert by_name["RemovePodsHavingTooManyRestarts"]["findings"] == {"TooManyRestarts": 2}
    assert by_name["ReservedCPUs"]["evict"] + by_name["ReservedCPUs"]["kept"] == 1
    assert report["leftByLimits"] == {"LimitTotal": 1}
    assert report["summary"]["keptBy"]["BarePod"] == 1


def test_the_same_question_gives_the_same_bytes_whatever_was_there_before(
    troubled: Any, tmp_path: pathlib.Path
) -> None:
    written = []
    for _ in range(2):
        folder.Folder(tmp_path).write(troubled.plan(POLICY))
        written.append((tmp_path / "plan.json").read_bytes())
    assert written[0] == written[1]
    changes = json.loads((tmp_path / "changes.json").read_text())
    assert (changes["changes"], changes["unchanged"]) == ([], 3)


def test_a_loop_goes_on_when_its_report_cannot_be_written(
    troubled: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "full").write_text("no folder")
    reports = folder.Folder(tmp_path / "full")
    setup = reader.setup(reader.default())
    told = CycleResult(
        number=1, began=0.0, seconds=0.0, setup=setup, leader=True, dry_run=True, plan=troubled.plan(POLICY)
    )
    reports.tell_on(told)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"the report in {tmp_path / 'full'} was not written: ")
    with pytest.raises(OSError, match="full"):
        reports.tell(told)


def earlier(plan: EvictionPlan) -> diff.Earlier:
    return diff.read(document.encode(plan, eviction_api.prepare(plan)).encode())


def test_each_kind_of_change_is_told(troubled: Any) -> None:
    before = earlier(troubled.plan(POLICY))
    troubled.objects[:] = [o for o in troubled.objects if o["metadata"]["name"] != "bare"]
    fresh = troubled.pod("fresh", "b")
    fresh["status"]["containerStatuses"] = [{"name": "main", "restartCount": 9, "state": {"running": {}}}]
    found = diff.compare(before, troubled.plan(POLICY.replace("Total: 1", "Total: 10")))
    assert {(row.change, row.pod) for row in found.rows} == {
        ("over", "default/bare"),
        ("new", "default/fresh"),
        ("toEvict", "default/restless"),
    }
    assert found.same == 1
    assert [row.text for row in found.rows if row.change == "over"] == ["it is gone from a"]


def test_a_pod_that_was_cured_is_told_from_one_that_is_gone(troubled: Any) -> None:
    before = earlier(troubled.plan(POLICY))
    cured = POLICY.replace("podRestartThreshold: 5", "podRestartThreshold: 500")
    rows = diff.compare(before, troubled.plan(cured)).rows
    assert {(row.pod, row.text) for row in rows if row.change == "over"} == {
        ("default/bare", "nothing is wrong with it on a"),
        ("default/restless", "nothing is wrong with it on a"),
    }


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"{", id="cut off"),
        pytest.param(b"[]", id="something else"),
        pytest.param(b'{"apiVersion":"x/v9","time":"","evict":[],"kept":[]}', id="of another version"),
    ],
)
def test_what_cannot_be_compared_with_is_said_and_replaced(
    troubled: Any, tmp_path: pathlib.Path, content: bytes
) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    folder.Folder(tmp_path).write(troubled.plan(POLICY))
    assert "cannot be compared with" in " ".join((tmp_path / "plan.txt").read_text().split())
    assert json.loads((tmp_path / "changes.json").read_text())["whyNot"]
    jsonschema.validate(json.loads((tmp_path / "plan.json").read_text()), SCHEMA)


def test_text_and_page_tell_what_changed(troubled: Any) -> None:
    plan = troubled.plan(POLICY)
    found = diff.compare(earlier(troubled.plan(POLICY.replace("Total: 1", "Total: 10"))), plan)
    told, page = text.render(plan, found), html.render(plan, found)
    assert "SINCE THE LAST REPORT" in told and "Since the last report" in page
    for words in ("kept, was to be evicted", "LimitTotal"):
        assert words in told and words in page
    assert all(len(line) <= 100 for line in told.splitlines())


def test_a_page_of_thousands_stays_readable(cluster: Any) -> None:
    cluster.node("a")
    cluster.node("b")
    for number in range(html.PODS_SHOWN + 50):
        cluster.pod(f"p{number}", "a", cpu="1m", memory="1Mi", restarts=50)
    page = html.render(cluster.plan(MANY))
    assert "and 50 more: the search above finds them" in page
    assert page.count("<summary>default/") == html.PODS_SHOWN


def test_the_brief_form_is_the_head_the_plugins_and_the_first_evictions(troubled: Any) -> None:
    shown = text.brief(troubled.plan(POLICY)).splitlines()
    assert len(shown) <= 12
    assert "    ReservedCPUs: 1 × UsesReservedCPU; 1 to evict, 0 kept" in shown
    assert shown[-1] == " 1. default/on-reserved on a → b: UsesReservedCPU"


@pytest.mark.parametrize(("pods", "warned"), [(6, True), (60, False)])
def test_a_plan_that_evicts_a_tenth_of_all_pods_says_so(cluster: Any, pods: int, *, warned: bool) -> None:
    cluster.node("a")
    for number in range(pods):
        cluster.pod(f"p{number}", "a", owner=f"o{number}", restarts=50 if number < 6 else 0)
    cluster.node("b")
    plan = cluster.plan(RESTARTS)
    assert len(plan.evict) == 6
    forms = (text.render(plan), text.brief(plan), html.render(plan), document.encode(plan, ()))
    assert [("are to be evicted at once" in form) for form in forms] == [warned] * 4


def test_the_index_of_a_page_is_cut_where_it_grows_too_large(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "PODS_SHOWN", 1)
    monkeypatch.setattr(html, "PACKED_BYTES", 400)
    cluster.node("a")
    cluster.node("b")
    for number in range(60):
        cluster.pod(f"p{number * 7919 % 1000}", "a", cpu="1m", memory="1Mi", owner=f"o{number}", restarts=50)
    page = html.render(cluster.plan(MANY))
    (packed,) = re.findall(r'data-packed="([^"]*)"', page)
    lines = zlib.decompress(base64.b64decode(packed)).decode().split("\n")
    assert len(packed) <= 400 and 10 < len(lines) < 59
    assert "and 59 more: the search above finds them" in page
    assert f"the last {59 - len(lines)} are in the JSON report alone" in page
    assert all(line.count("\t") == 3 for line in lines)


def test_what_could_not_be_judged_is_in_every_form(troubled: Any) -> None:
    plan = msgspec.structs.replace(troubled.plan(POLICY), not_judged=7, not_judged_by={"NUMAAlignment": 7})
    told = text.render(plan)
    assert "kept; 7 not judged\n" in told and "\nunjudged  7 pods by NUMAAlignment; the notes say why\n" in told
    report = json.loads(document.encode(plan, ()))
    jsonschema.validate(report, SCHEMA)
    assert (report["summary"]["notJudged"], report["summary"]["notJudgedBy"]) == (7, {"NUMAAlignment": 7})
    assert "not judged</div><div" in html.render(plan) and "7 by NUMAAlignment" in html.render(plan)
