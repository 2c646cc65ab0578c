"""NodeMetric: means of use, in the shape Koordinator's controller reads."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from apibench import Bench
from tinyapi import Reply
from tinyapi import status as refusal

from koordlite.kube.publish.node_metric import NodeMetricReport, status
from koordlite.model.cpuset import EMPTY
from koordlite.model.node import ResolvedReservation, SystemQoS
from koordlite.model.picture.groups import Layout
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.slo.settings import SLO, HostApplication
from koordlite.model.snapshot import Snapshot
from koordlite.model.topology import Topology
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
    made = status(_seen(), wall=1e9)
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
    usage = dataclasses.replace(USAGE, node=Use(1, 1))
    made = status(_seen(usage), wall=1e9)
    assert made is not None
    assert made["nodeMetric"]["systemUsage"] == {"resources": {"cpu": "0m", "memory": "0"}}


def test_without_a_sample_there_is_nothing_to_tell() -> None:
    assert status(_seen(Usage(None, {}, {})), wall=1e9) is None


def test_it_is_told_every_so_often(serve: Any) -> None:
    server, api = serve(lambda request: Reply())
    report = NodeMetricReport(api, "n1", every_seconds=60.0)
    for second in range(181):
        report.observe(_seen(), monotonic=float(second), wall=1e9)
    report.stop()
    assert len(server.requests) == 3
    assert server.requests[0].path == "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n1/status"
    assert server.requests[0].body["status"]["nodeMetric"]["aggregatedSystemUsages"] is None


@pytest.mark.parametrize(
    ("samples", "names"),
    [
        pytest.param(150, {"avg", "p50", "p99"}, id="half of the time was seen"),
        pytest.param(149, set(), id="not yet: no numbers rather than wrong ones"),
    ],
)
def test_percentiles_of_the_node_are_told_with_their_time(samples: int, names: set[str]) -> None:
    usage = dataclasses.replace(USAGE, samples=samples)
    seen = dataclasses.replace(_seen(usage), node_percentiles={50: Use(4000, GIB), 99: Use(9000, 2 * GIB)})
    made = status(seen, wall=1e9)
    assert made is not None
    (found,) = made["nodeMetric"]["aggregatedNodeUsages"]
    assert found["duration"] == "5m0s"
    assert set(found["usage"]) == names
    if names:
        assert found["usage"]["p99"] == {"resources": {"cpu": "9000m", "memory": str(2 * GIB)}}


CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodemetrics.slo.koordinator.sh"},
    "spec": {
        "group": "slo.koordinator.sh",
        "names": {"kind": "NodeMetric", "plural": "nodemetrics", "listKind": "NodeMetricList"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def test_an_api_server_takes_the_status_and_keeps_what_the_controller_wrote(bench: Bench) -> None:
    version = "slo.koordinator.sh/v1alpha1"
    held = {"apiVersion": version, "kind": "NodeMetric", "metadata": {"name": "n1"}, "spec": {"x": 1}}
    bench.server.objects.load(CRD)
    bench.server.objects.load(held)
    report = NodeMetricReport(bench.api(), "n1", every_seconds=60.0)
    report.send({"status": status(_seen(), wall=1e9)}, patience_seconds=5.0)
    report.stop()
    assert report.error == ""
    found = bench.server.objects.get("NodeMetric", "n1", api_version=version)
    assert found is not None
    assert found["spec"] == {"x": 1}
    assert found["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "5000m"
    assert "aggregatedSystemUsages" not in found["status"]["nodeMetric"]


@pytest.mark.parametrize(("code", "words"), [(404, "controller makes this object"), (403, "no")])
def test_a_refusal_is_kept_in_words(serve: Any, code: int, words: str) -> None:
    _, api = serve(lambda request: refusal(code))
    report = NodeMetricReport(api, "n1", every_seconds=60.0)
    report.send({}, patience_seconds=5.0)
    assert words in report.error
    report.stop()
