"""NodeMetric: means of use, in the shape Koordinator's controller reads."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import cyaml
import msgspec
import pytest
from apibench import Bench
from tinyapi import Reply
from tinyapi import status as refusal

from koordlite.kube.publish.node_metric import NodeMetricReport, metric_spec, metric_status
from koordlite.model.cpuset import EMPTY
from koordlite.model.duration import SECOND
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Layout
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import NodeWindow, NumaUse, Spread, Usage, Use
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.slo.settings import SLO, Colocation, HostApplication
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import Topology
from koordlite.model.wire.objects import NodeObject, ObjectMeta
from koordlite.resctrl.values import Resctrl

GIB = 1 << 30
USAGE = Usage(Use(5000, 8 * GIB), {"u1": Use(1500, GIB), "u2": Use(200, GIB), "gone": Use(1, 1)}, {"yarn": Use(300, 5)})


def _seen(usage: Usage = USAGE) -> Snapshot:
    pods = (
        Pod(namespace="ns", name="z", uid="u1", raw_qos=QoSClass.LS),
        Pod(namespace="ns", name="b", uid="u2", raw_qos=QoSClass.BE),
        Pod(namespace="ns", name="c", uid="u3"),
    )
    apps = (HostApplication(name="yarn", priority=PriorityClass.BATCH, qos=QoSClass.BE), HostApplication(name="idle"))
    return Snapshot(
        time=1.0,
        taken_at="2026-01-01T00:00:00Z",
        node=None,
        slo=SLO(host_applications=apps),
        topology=Topology((), ()),
        reserved=ResolvedReservation(),
        system_qos=SystemQoS(),
        kubelet=Kubelet(reserved_cpus=EMPTY),
        layout=Layout(1, "cgroupfs", "kubepods", "kubepods/burstable", "kubepods/besteffort"),
        pods=pods,
        places={},
        cgroups={},
        usage=usage,
        average=usage,
        resctrl=Resctrl(absent="none"),
        published=Published({}, {}),
    )


def test_the_status_is_what_koordinator_reads() -> None:
    made = metric_status(_seen(), wall=1e9)
    assert made is not None
    assert made["updateTime"] == "2001-09-09T01:46:40Z"
    assert made["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "5000m", "memory": str(8 * GIB)}}
    assert made["nodeMetric"]["systemUsage"]["resources"]["cpu"] == "2999m"
    assert [(pod["name"], pod["qos"], pod["priority"]) for pod in made["podsMetric"]] == [
        ("b", "BE", "koord-batch"),
        ("z", "LS", "koord-prod"),
    ]
    assert made["hostApplicationMetric"] == [
        {
            "name": "yarn",
            "usage": {"resources": {"cpu": "300m", "memory": "5"}},
            "priority": "koord-batch",
            "qos": "BE",
        }
    ]


def test_parts_of_another_moment_never_make_the_system_negative() -> None:
    usage = msgspec.structs.replace(USAGE, node=Use(1, 1))
    made = metric_status(_seen(usage), wall=1e9)
    assert made is not None
    assert made["nodeMetric"]["systemUsage"] == {"resources": {"cpu": "0m", "memory": "0"}}


def test_without_a_sample_there_is_nothing_to_tell() -> None:
    assert metric_status(_seen(Usage(None, {}, {})), wall=1e9) is None


def test_it_is_told_every_so_often(serve: Any) -> None:
    server, api = serve(lambda request: Reply())
    report = NodeMetricReport(api, "n1", every_seconds=60.0)
    for second in range(181):
        report.observe(_seen(), monotonic=float(second), wall=1e9, node=None)
    report.stop()
    assert len(server.requests) == 3
    assert server.requests[0].path == "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n1/status"
    for name in ("prodReclaimableMetric", "prodPeakMetric"):  # An earlier koordlet's would never change again.
        assert server.requests[0].body["status"][name] is None


def test_each_duration_has_its_percentiles_or_none_yet() -> None:
    spread = Spread(mean=Use(3000, GIB), percentiles={50: Use(2900, GIB), 99: Use(9000, 2 * GIB)})
    windows = (
        NodeWindow(length_ns=300 * SECOND, node=spread, system=spread),
        NodeWindow(length_ns=1800 * SECOND, node=None, system=None),
    )
    made = metric_status(dataclasses.replace(_seen(), node_windows=windows), wall=1e9)
    assert made is not None
    short, long = made["nodeMetric"]["aggregatedNodeUsages"]
    assert (short["duration"], long["duration"]) == ("5m0s", "30m0s")
    assert set(short["usage"]) == {"avg", "p50", "p99"}
    assert short["usage"]["p99"] == {"resources": {"cpu": "9000m", "memory": str(2 * GIB)}}
    assert long["usage"] == {}
    assert [each["duration"] for each in made["nodeMetric"]["aggregatedSystemUsages"]] == ["5m0s", "30m0s"]


def test_numa_nodes_share_the_systems_cpu_as_they_share_the_nodes() -> None:
    by_numa = {
        0: NumaUse(node=Use(3000, 5 * GIB), system_memory=GIB),
        3: NumaUse(node=Use(1000, 2 * GIB), system_memory=None),
    }
    made = metric_status(dataclasses.replace(_seen(), numa_use=by_numa), wall=1e9)
    assert made is not None
    first, second = made["nodeMetric"]["numaUsages"]
    assert first["numaNodeID"] == 0
    assert first["systemUsage"] == {"resources": {"cpu": "2249m", "memory": str(GIB)}}  # 2999 × 3000 ÷ 4000
    assert second == {"numaNodeID": 3, "nodeUsage": {"resources": {"cpu": "1000m", "memory": str(2 * GIB)}}}


CRD = cyaml.safe_load((pathlib.Path(__file__).parents[2] / "manifests/crds/koordinator/nodemetrics.yaml").read_text())


def test_an_api_server_takes_the_status_and_keeps_what_the_controller_wrote(bench: Bench) -> None:
    version = "slo.koordinator.sh/v1alpha1"
    held = {"apiVersion": version, "kind": "NodeMetric", "metadata": {"name": "n1"}, "spec": {"x": 1}}
    bench.server.objects.load(CRD)
    bench.server.objects.load(held)
    report = NodeMetricReport(bench.api(), "n1", every_seconds=60.0)
    report.send(metric_status(_seen(), wall=1e9) or {}, Colocation(), None, patience_seconds=5.0)
    report.stop()
    assert report.error == ""
    found = bench.server.objects.get("NodeMetric", "n1", api_version=version)
    assert found is not None
    assert found["spec"] == {"x": 1}
    assert found["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "5000m"
    assert "prodPeakMetric" not in found["status"]


@pytest.mark.parametrize(("code", "words"), [(404, "install the CRD"), (403, "no")])
def test_a_refusal_is_kept_in_words(serve: Any, code: int, words: str) -> None:
    _, api = serve(lambda request: refusal(code))
    report = NodeMetricReport(api, "n1", every_seconds=60.0)
    report.send({}, Colocation(), None, patience_seconds=5.0)
    assert words in report.error
    report.stop()


VERSION = "slo.koordinator.sh/v1alpha1"


def _held(bench: Bench) -> dict[str, Any] | None:
    found: dict[str, Any] | None = bench.server.objects.get("NodeMetric", "n1", api_version=VERSION)
    return found


def _reported(bench: Bench, report: NodeMetricReport, seen: Snapshot) -> None:
    """One report, and its answer."""
    owner = NodeObject(metadata=ObjectMeta(name="n1", uid=bench.node()["metadata"]["uid"]))
    status = metric_status(seen, wall=1e9)
    assert status is not None
    report.send(status, seen.slo.colocation, owner, patience_seconds=10.0)
    assert report.error == ""


def test_a_missing_object_is_made_for_the_node_and_follows_the_configuration(bench: Bench) -> None:
    bench.server.objects.load(CRD)
    report = NodeMetricReport(bench.api(), "n1", create=True)
    _reported(bench, report, _seen())
    made = _held(bench)
    assert made is not None
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "n1", bench.node()["metadata"]["uid"])
    assert made["spec"]["metricCollectPolicy"] == {
        "aggregateDurationSeconds": 300,
        "reportIntervalSeconds": 60,
        "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }
    assert made["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "5000m"
    colocation = Colocation(enable=True, metric_report_interval_seconds=90)
    other = dataclasses.replace(_seen(), slo=SLO(colocation=colocation))
    _reported(bench, report, other)
    changed = _held(bench)
    assert changed is not None
    assert changed["spec"] == metric_spec(colocation)
    asked = bench.asked("patch", "nodemetrics")
    _reported(bench, report, other)
    assert bench.asked("patch", "nodemetrics") == asked, "a spec that stands is not written again"
    report.stop()


def test_the_spec_of_an_object_that_the_manager_made_stays_its(bench: Bench) -> None:
    bench.server.objects.load(CRD)
    bench.server.objects.load(
        {"apiVersion": VERSION, "kind": "NodeMetric", "metadata": {"name": "n1"}, "spec": {"x": 1}}
    )
    report = NodeMetricReport(bench.api(), "n1", create=True)
    _reported(bench, report, _seen())
    report.stop()
    held = _held(bench)
    assert held is not None
    assert held["spec"] == {"x": 1}
    assert "updateTime" in held["status"]


def test_without_permission_to_make_it_the_report_says_what_to_set(bench: Bench) -> None:
    bench.server.objects.load(CRD)
    report = NodeMetricReport(bench.api(), "n1")
    report.send({}, Colocation(), None, patience_seconds=5.0)
    report.stop()
    assert "publish.nodeMetric to create" in report.error
    (problem,) = report.problems
    assert problem.object == "nodemetric/n1"
    assert _held(bench) is None


def test_the_configuration_says_how_often(serve: Any) -> None:
    server, api = serve(lambda request: Reply(body={"spec": {}}))
    report = NodeMetricReport(api, "n1")
    seen = dataclasses.replace(_seen(), slo=SLO(colocation=Colocation(enable=True, metric_report_interval_seconds=1)))
    for second in range(121):
        report.observe(seen, monotonic=float(second), wall=1e9, node=None)
    report.stop()
    assert len(server.requests) == 4, "never more often than every 30 seconds"
