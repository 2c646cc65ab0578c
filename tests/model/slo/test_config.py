"""ConfigMap `slo-controller-config` and what holds on a node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model import keys
from koordlite.model.pod.qos import PriorityClass, QoSClass
from koordlite.model.slo import config
from koordlite.model.slo.settings import SLO, Colocation, HostApplication, ResctrlQOS

COLOCATION, THRESHOLD, QOS, HOST = (
    "colocation-config",
    "resource-threshold-config",
    "resource-qos-config",
    "host-application-config",
)
LABELS = {"pool": "batch"}
MINE = {"matchLabels": LABELS}
OTHER = {"matchLabels": {"pool": "web"}}


def effective(
    data: dict[str, Any] | None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    previous: SLO | None = None,
) -> SLO:
    texts = data and {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}
    return config.effective(texts, labels=LABELS | (labels or {}), annotations=annotations or {}, previous=previous)


@pytest.mark.parametrize("text", ["-1", "x", "NaN", "Inf", "0.5 ", "1_0", "1e300", "0x1"])
def test_a_label_that_is_no_ratio_is_reported_and_ignored(text: str) -> None:
    found = effective({}, labels={keys.CPU_RECLAIM_RATIO: text})
    assert found.colocation == Colocation()
    assert [(problem.field, problem.value) for problem in found.problems] == [(keys.CPU_RECLAIM_RATIO, text)]


@pytest.mark.parametrize("text", ["{", '{"degradeTimeMinutes":0}', '{"cpuReclaimThresholdPercent":"70"}', "[]"])
def test_a_bad_annotation_is_reported_and_ignored(text: str) -> None:
    found = effective({}, annotations={keys.COLOCATION_STRATEGY: text})
    assert found.colocation == Colocation()
    assert [problem.object for problem in found.problems] == ["node"]


@pytest.mark.parametrize(
    ("text", "policy", "refused"),
    [
        pytest.param("guided", "guided", False, id="over the ConfigMap's"),
        pytest.param("Guided", "cfsQuota", True, id="a word that is none leaves the ConfigMap's"),
        pytest.param("", "cfsQuota", True, id="and so does no word"),
    ],
)
def test_a_node_may_name_its_own_suppression_policy(text: str, policy: str, refused: bool) -> None:
    cluster = {THRESHOLD: {"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}}
    found = effective(cluster, annotations={keys.CPU_SUPPRESS_POLICY: text})
    assert found.threshold.cpu_suppress_policy == policy
    assert [(p.object, p.field, p.value) for p in found.problems] == (
        [("node", "suppress.koordlite.io/policy", text)] if refused else []
    )


def resctrl(name: str = "beClass", **given: Any) -> dict[str, Any]:
    return {name: {"resctrlQOS": given}}


@pytest.mark.parametrize(
    ("given", "held"),
    [
        pytest.param({"enable": True}, ResctrlQOS(enable=True, cat_range_end_percent=30), id="the default of BE"),
        pytest.param(
            {"enable": True, "mbaPercent": 40},
            ResctrlQOS(enable=True, cat_range_end_percent=30, mba_percent=40),
            id="over it",
        ),
        pytest.param({"enable": False, "catRangeEndPercent": 50}, ResctrlQOS(), id="switched off is everything"),
        pytest.param({"catRangeEndPercent": 50}, ResctrlQOS(), id="not switched on neither"),
    ],
)
def test_resctrl_of_a_class(given: dict[str, Any], held: ResctrlQOS) -> None:
    found = effective({QOS: {"clusterStrategy": resctrl(**given)}})
    assert found.resctrl[QoSClass.BE] == held
    assert not found.problems


def test_resctrl_of_a_group_inherits_setting_by_setting() -> None:
    found = effective(
        {
            QOS: {
                "clusterStrategy": resctrl(enable=True, catRangeEndPercent=40, mbaPercent=50),
                "nodeStrategies": [{"nodeSelector": MINE, **resctrl(mbaPercent=20)}],
            }
        }
    )
    assert found.resctrl[QoSClass.BE] == ResctrlQOS(enable=True, cat_range_end_percent=40, mba_percent=20)
    assert found.origins["resourceQOS.beClass.resctrlQOS.mbaPercent"] == "node strategy nodeStrategies[0]"


GOOD = effective({QOS: {"clusterStrategy": resctrl(enable=True, mbaPercent=70)}})


def test_an_empty_range_in_the_cluster_strategy_refuses_the_document() -> None:
    found = effective({QOS: {"clusterStrategy": resctrl(enable=True, catRangeStartPercent=30)}}, previous=GOOD)
    assert found.resctrl == GOOD.resctrl
    assert "not below" in found.problems[0].why


def test_an_empty_range_in_a_group_leaves_the_cluster_strategy() -> None:
    groups = [{"nodeSelector": MINE, **resctrl(catRangeStartPercent=60)}]
    found = effective({QOS: {"clusterStrategy": resctrl(enable=True, mbaPercent=70), "nodeStrategies": groups}})
    assert found.resctrl == GOOD.resctrl
    assert found.origins["resourceQOS.beClass.resctrlQOS.mbaPercent"] == "cluster"
    assert "the cluster's strategy holds" in found.problems[0].do


APPS = [{"name": "logs", "qos": "LS", "priority": "koord-prod"}]


def test_host_applications() -> None:
    path = {"base": "KubepodsBesteffort", "parentDir": "a/", "relativePath": "b"}
    found = effective({HOST: {"applications": [*APPS, {"name": "crunch", "qos": "BE", "cgroupPath": path}]}})
    assert found.host_applications == (
        HostApplication(name="logs", qos=QoSClass.LS, priority=PriorityClass.PROD),
        HostApplication(name="crunch", qos=QoSClass.BE, base="KubepodsBesteffort", parent_dir="a/", relative_path="b"),
    )
    assert found.host_applications[1].is_best_effort
    assert not found.problems


@pytest.mark.parametrize(
    ("application", "left"),
    [
        ({}, []),
        ({"name": "a", "cgroupPath": {"parentDir": "../../etc"}}, []),
        ({"name": "a", "cgroupPath": {"base": "CgroupRoot"}}, []),
        ({"name": "a", "qos": "be", "priority": "high", "cgroupPath": {"base": "Nowhere", "relativePath": "a"}}, ["a"]),
    ],
    ids=["no name", "leads out", "the root of all cgroups", "unknown words"],
)
def test_a_bad_host_application_is_reported(application: dict[str, Any], left: list[str]) -> None:
    found = effective({HOST: {"applications": [*APPS, application]}})
    assert [app.name for app in found.host_applications] == ["logs", *left]
    assert all("applications[1]" in problem.field for problem in found.problems)
    assert found.problems


LAST_GOOD = effective(
    {
        COLOCATION: {"enable": True, "cpuReclaimThresholdPercent": 71},
        THRESHOLD: {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 72}},
        QOS: {"clusterStrategy": resctrl(enable=True)},
        HOST: {"applications": APPS},
    }
)


@pytest.mark.parametrize("key", [COLOCATION, THRESHOLD, QOS, HOST])
@pytest.mark.parametrize("text", ["{", "[]", '{"nodeStrategies":1,"nodeConfigs":1}'])
def test_a_document_that_cannot_be_used_leaves_the_last_good_values_of_its_key(key: str, text: str) -> None:
    found = effective({key: text}, previous=LAST_GOOD)
    plain = effective({})
    held = {
        COLOCATION: lambda slo: slo.colocation,
        THRESHOLD: lambda slo: slo.threshold,
        QOS: lambda slo: slo.resctrl,
        HOST: lambda slo: slo.host_applications,
    }
    for other, part in held.items():
        assert part(found) == part(LAST_GOOD if other == key else plain)
    assert any("the last good values stay in force" in problem.do for problem in found.problems)
    assert found.problems[0].object == config.OWNER
    assert set(found.origins) <= set(LAST_GOOD.origins)


def test_last_good_survives_a_second_reading_and_ends_with_the_mistake() -> None:
    once = effective({COLOCATION: "{"}, previous=LAST_GOOD)
    twice = effective({COLOCATION: "{"}, previous=once)
    assert (twice.colocation, twice.origins) == (LAST_GOOD.colocation, once.origins)
    assert effective({COLOCATION: "{}"}, previous=twice).colocation == Colocation()
    assert effective(None, previous=twice).colocation == Colocation()


def test_without_a_last_good_value_the_defaults_hold_and_the_message_says_so() -> None:
    found = effective({COLOCATION: '{\n "enable": true,\n}'})
    assert found.colocation == Colocation()
    (problem,) = found.problems
    assert "line 2 column" in problem.why or "line 3 column" in problem.why
    assert "the defaults hold" in problem.do


def test_a_value_out_of_range_refuses_the_document_in_the_cluster_strategy() -> None:
    found = effective({COLOCATION: {"enable": True, "degradeTimeMinutes": 0}}, previous=LAST_GOOD)
    assert found.colocation == LAST_GOOD.colocation
    assert found.problems[0].field == "colocation-config.degradeTimeMinutes"


def test_a_value_out_of_range_in_a_group_leaves_the_cluster_strategy() -> None:
    groups = [{"nodeSelector": MINE, "degradeTimeMinutes": -1, "enable": True}]
    found = effective({COLOCATION: {"cpuReclaimThresholdPercent": 61, "nodeConfigs": groups}}, previous=LAST_GOOD)
    assert found.colocation == Colocation(cpu_reclaim_threshold_percent=61)
    assert found.problems[0].field == "colocation-config.nodeConfigs[0].degradeTimeMinutes"


@pytest.mark.parametrize(
    ("selector", "problems"),
    [(None, 1), ({"matchExpressions": [{"key": "pool", "operator": "out"}]}, 1), (OTHER, 0)],
    ids=["none", "broken", "another pool"],
)
def test_a_group_that_does_not_match(selector: Any, problems: int) -> None:
    groups = [{"nodeSelector": selector, "enable": True}, {"nodeSelector": {}, "degradeTimeMinutes": 3}]
    found = effective({COLOCATION: {"nodeConfigs": groups}})
    assert found.colocation == Colocation(degrade_time_minutes=3)
    assert len(found.problems) == problems


def test_unknown_names_are_reported_and_the_rest_is_used() -> None:
    found = effective(
        {
            "colocation-cofnig": "{}",
            "cpu-burst-config": "{}",
            COLOCATION: {"enable": True, "cpuReclaimThreshold": 10, "midUnallocatedPercent": 5},
            QOS: {"clusterStrategy": {"beClass": {"memoryQOS": {}, "resctrlQoS": {"enable": True}, "rdt": 1}}},
        }
    )
    assert found.colocation.enable
    assert found.resctrl[QoSClass.BE].enable
    assert [(problem.field, problem.do.split("?")[0]) for problem in found.problems] == [
        ("data.colocation-cofnig", "did you mean colocation-config"),
        ("colocation-config.cpuReclaimThreshold", "did you mean cpuReclaimThresholdPercent"),
        ("resource-qos-config.clusterStrategy.beClass.rdt", "it is ignored; remove it"),
    ]


def test_all_mistakes_of_all_keys_at_once() -> None:
    found = effective(
        {
            COLOCATION: {"enable": 1, "degradeTimeMinutes": 0, "nodeConfigs": [{"nodeSelector": 1, "enable": "x"}]},
            THRESHOLD: {"clusterStrategy": {"cpuSuppressThresholdPercent": 101, "cpuSuppressPolicy": "cpusets"}},
            QOS: "nope",
        }
    )
    assert [problem.field for problem in found.problems] == [
        "colocation-config.enable",
        "colocation-config.degradeTimeMinutes",
        "colocation-config.nodeConfigs[0].enable",
        "colocation-config.nodeConfigs[0].nodeSelector",
        "resource-threshold-config.clusterStrategy.cpuSuppressThresholdPercent",
        "resource-threshold-config.clusterStrategy.cpuSuppressPolicy",
        "resource-qos-config",
    ]


NAMES = st.sampled_from(
    [
        *("clusterStrategy", "nodeStrategies", "nodeConfigs", "name", "enable", "applications", "cgroupPath"),
        *("nodeSelector", "matchLabels", "matchExpressions", "key", "operator", "values", "pool"),
        *("beClass", "resctrlQOS", "catRangeStartPercent", "catRangeEndPercent", "mbaPercent"),
        *("cpuReclaimThresholdPercent", "cpuSuppressThresholdPercent"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.integers(0, 100),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(
    data=st.dictionaries(
        st.sampled_from([COLOCATION, THRESHOLD, QOS, HOST]) | st.text(max_size=5),
        JSON.map(json.dumps) | st.text(max_size=20),
    ),
    annotation=JSON.map(json.dumps) | st.text(max_size=10),
    ratio=st.text(alphabet="0123456789.eE+-xNaInf_ ", max_size=6),
)
def test_never_raises_and_never_leaves_the_ranges(data: dict[str, str], annotation: str, ratio: str) -> None:
    found = config.effective(
        data,
        labels={"pool": "batch", keys.CPU_RECLAIM_RATIO: ratio},
        annotations={keys.COLOCATION_STRATEGY: annotation},
        previous=LAST_GOOD,
    )
    assert found.colocation.cpu_reclaim_threshold_percent >= 0
    assert 0 <= found.threshold.cpu_suppress_threshold_percent <= 100
    for wanted in found.resctrl.values():
        assert 0 <= wanted.cat_range_start_percent < wanted.cat_range_end_percent <= 100
    assert all(str(problem).encode() for problem in found.problems)
