"""`explain config`: every setting with its origin and what could not be used, in text, JSON and over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from reported import tick_of

from koordlite.model import keys
from koordlite.model.slo import config
from koordlite.model.slo.settings import SLO, GoodDocument
from koordlite.report.explain import settings
from koordlite.report.explain.subject import explain
from koordlite.report.json.run_report import encode, state
from koordlite.report.tick import Tick
from koordlite.report.web.endpoints import Endpoints

DATA = {
    "colocation-config": json.dumps(
        {"enable": True, "nodeConfigs": [{"name": "batch", "nodeSelector": {}, "midUnallocatedPercent": 5}]}
    ),
    "resource-qos-config": json.dumps({"clusterStrategy": {"beClass": {"cpuQOS": {"groupIdentity": -1}}}}),
    "resource-threshold-config": "{",
    "host-application-config": json.dumps({"applications": [{"name": "logs", "qos": "LS"}]}),
    "system-config": json.dumps({"clusterStrategy": {"schedFeatures": {"A": False}}}),
}
PREVIOUS = SLO(
    good={"resource-threshold-config": GoodDocument('{"clusterStrategy":{"cpuSuppressThresholdPercent":50}}')}
)


@pytest.fixture(scope="module")
def tick() -> Tick:
    """A node with something from every layer."""
    held = config.effective(
        DATA,
        labels={keys.CPU_RECLAIM_RATIO: "0.7"},
        annotations={keys.NETWORK_BANDWIDTH: "10G"},
        previous=PREVIOUS,
        node_owner="node/n1",
    )
    return tick_of(time=0.0, node="n1", slo=held)


@pytest.mark.parametrize(
    ("name", "value", "origin"),
    [
        ("config.colocation.enable", True, "cluster"),
        ("config.colocation.midUnallocatedPercent", 5, "node strategy batch"),
        ("config.colocation-config.cpuReclaimThresholdPercent", 70, f"label {keys.CPU_RECLAIM_RATIO}"),
        ("config.colocation.degradeTimeMinutes", 15, "default"),
        ("config.colocation.batchCPUThresholdPercent", None, "default"),
        ("config.colocation.metricAggregatePolicy", ["5m0s", "10m0s", "30m0s"], "default"),
        ("config.threshold.cpuSuppressThresholdPercent", 50, "cluster"),
        ("config.resourceQOS.beClass.cpuQOS.groupIdentity", 0, "off: enable is false"),
        ("config.system.totalNetworkBandwidth", "10G", f"annotation {keys.NETWORK_BANDWIDTH}; no effect here"),
        ("config.system.schedFeatures.A", False, "cluster"),
        ("config.hostApplications", {"name": "logs", "qos": "LS"}, "cluster"),
    ],
)
def test_a_setting_with_its_origin(tick: Tick, name: str, value: Any, origin: str) -> None:
    (line,) = settings.lines(tick.snapshot.slo, name)
    assert (line.value, line.origin) == (value, origin)


def test_the_text_says_what_became_of_each_document(tick: Tick) -> None:
    shown = explain("config", tick)
    assert "resource-threshold-config: cannot be used, the last good values stay in force\n" in shown
    assert "colocation-config: as written\n" in shown
    assert "cpu-burst-config: not given, the defaults hold\n" in shown
    assert "not JSON" in shown.split("problems\n")[1]
    rows = {row.split()[0]: row.split(maxsplit=2) for row in shown.splitlines() if row.startswith("  ")}
    assert rows["midUnallocatedPercent"][1:] == ["5", "node strategy batch"]


def test_one_key_alone(tick: Tick) -> None:
    shown = explain("config.colocation-config", tick)
    assert "cpuReclaimThresholdPercent" in shown
    assert "resource-qos-config:" not in shown


def test_a_name_that_is_none_lists_the_keys(tick: Tick) -> None:
    with pytest.raises(ValueError, match=r"'nope'.*cpu-burst-config"):
        explain("config.nope", tick)


def test_no_host_application_is_an_answer() -> None:
    assert settings.lines(SLO(), "config.host-application-config") == ()


def test_json(tick: Tick) -> None:
    found = json.loads(explain("config", tick, output="json"))
    assert (found["kind"], found["node"]) == ("koordlite-config", "n1")
    assert {"key": "colocation-config", "name": "enable", "value": True, "origin": "cluster"} in found["settings"]
    assert found["problems"][0]["field"] == "resource-threshold-config"


def test_over_http_in_both_forms(tick: Tick) -> None:
    served = Endpoints(period_seconds=1.0, registry=CollectorRegistry())
    served.publish(tick)
    plain = served.answer("/explain", {"subject": "config.colocation"}, "")
    assert (plain.status, plain.body.decode()) == (200, explain("config.colocation", tick))
    asked = served.answer("/explain", {"subject": "config.colocation", "output": "json"}, "")
    assert (asked.status, asked.content_type) == (200, "application/json")
    assert json.loads(asked.body)["kind"] == "koordlite-config"
    assert served.answer("/explain", {"subject": "config.nope"}, "").status == 404


def test_decisions_as_json(ticks: tuple[Tick, ...]) -> None:
    found = json.loads(explain("besteffort", ticks[-1], output="json"))
    assert [decision["subject"] for decision in found["decisions"]] == ["besteffort"]


def test_the_state_stays_small(tick: Tick) -> None:
    assert "slo" not in json.loads(encode(state(tick)))
