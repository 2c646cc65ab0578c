"""Settings that are read and that nothing acts on are reported where they are given, and nothing else is."""

from __future__ import annotations

import ast
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model.reading import declared
from koordlite.model.slo import config, without_effect
from koordlite.model.slo.settings import SLO

ROOT = pathlib.Path(__file__).parents[3] / "koordlite"


def slo(**documents: Any) -> SLO:
    data = {f"{key.replace('_', '-')}-config": json.dumps(document) for key, document in documents.items()}
    return config.effective(data, labels={}, annotations={})


def told(**documents: Any) -> list[str]:
    return [problem.field for problem in config.unused_problems(slo(**documents))]


def qos(**of_be: Any) -> dict[str, Any]:
    return {"clusterStrategy": {"beClass": of_be}}


@pytest.mark.parametrize(
    ("documents", "fields"),
    [
        ({"resource_qos": qos(networkQOS={"enable": True})}, ["resource-qos-config.beClass.networkQOS.enable"]),
        ({"resource_qos": qos(networkQOS={"enable": False, "egressLimit": 50})}, []),
        (
            {"resource_qos": {"clusterStrategy": {"policies": {"cpuPolicy": "coreSched", "netQOSPolicy": "tc"}}}},
            ["resource-qos-config.policies.cpuPolicy", "resource-qos-config.policies.netQOSPolicy"],
        ),
        ({"resource_qos": {"clusterStrategy": {"policies": {"cpuPolicy": "groupIdentity"}}}}, []),
        (
            {"resource_qos": qos(cpuQOS={"enable": True, "coreExpeller": True})},
            ["resource-qos-config.beClass.cpuQOS.coreExpeller"],
        ),
        ({"resource_qos": qos(cpuQOS={"enable": False, "coreExpeller": True})}, []),
        ({"resource_qos": {"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": True}}}}}, []),
        (
            {"resource_qos": {"clusterStrategy": {"cgroupRoot": {"memoryQOS": {"enable": True}}}}},
            ["resource-qos-config.cgroupRoot.memoryQOS.enable"],
        ),
        (
            {"system": {"clusterStrategy": {"totalNetworkBandwidth": "10G"}}},
            ["system-config.totalNetworkBandwidth"],
        ),
        (
            {"colocation": {"metricMemoryCollectPolicy": "usageWithPageCache"}},
            ["colocation-config.metricMemoryCollectPolicy"],
        ),
        ({"colocation": {"metricMemoryCollectPolicy": "usageWithoutPageCache"}}, []),
        ({"colocation": {"extensions": {"x": {"y": 1}}}}, ["colocation-config.extensions.x"]),
    ],
)
def test_what_has_no_effect_is_told(documents: dict[str, Any], fields: list[str]) -> None:
    assert told(**documents) == fields


@pytest.mark.parametrize(
    ("policy", "off", "fields"),
    [
        ("coreSched", (), []),
        ("coreSched", ("coreSched",), ["policies.cpuPolicy", "beClass.cpuQOS.coreExpeller"]),
        ("groupIdentity", (), ["beClass.cpuQOS.coreExpeller"]),
    ],
)
def test_core_scheduling_has_an_effect_where_strategy_and_policy_are_on(
    policy: str, off: tuple[str, ...], fields: list[str]
) -> None:
    expeller = {"cpuQOS": {"enable": True, "coreExpeller": True}}
    document = {"clusterStrategy": {"policies": {"cpuPolicy": policy}, "beClass": expeller}}
    found = config.unused_problems(slo(resource_qos=document), off=off)
    assert [problem.field for problem in found] == [f"resource-qos-config.{field}" for field in fields]


def test_the_author_is_named_with_the_place() -> None:
    nodes = [{"name": "gpu", "nodeSelector": {}, "beClass": {"networkQOS": {"enable": True}}}]
    found = config.unused_problems(slo(resource_qos={"nodeStrategies": nodes}))
    assert "node strategy gpu" in found[0].why
    notes = {"node.koordinator.sh/network-bandwidth": "10G"}
    of_node = config.effective({}, labels={}, annotations=notes)
    (problem,) = config.unused_problems(of_node, node_owner="node/a")
    assert (problem.object, problem.field) == ("node/a", "node.koordinator.sh/network-bandwidth")


def test_nothing_is_told_of_the_defaults() -> None:
    assert config.unused_problems(config.effective(None, labels={}, annotations={})) == ()


@given(
    st.dictionaries(
        st.sampled_from([section.key for section in config.SECTIONS]),
        st.recursive(
            st.none() | st.booleans() | st.integers(-5, 200) | st.sampled_from(["", "coreSched", "10G"]),
            lambda inner: st.dictionaries(
                st.sampled_from(["clusterStrategy", "beClass", "networkQOS", "enable", "policies", "cpuPolicy"]), inner
            ),
            max_leaves=8,
        ).map(json.dumps),
    )
)
def test_no_document_breaks_it(data: dict[str, str]) -> None:
    for problem in config.unused_problems(config.effective(data, labels={}, annotations={})):
        assert "no effect" in problem.why


def _acted_on() -> set[str]:
    """Every attribute that some code outside the settings themselves reads."""
    files = (path for path in ROOT.rglob("*.py") if "slo" not in path.parts and "lab" not in path.parts)
    trees = (ast.parse(path.read_text()) for path in files)
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _leaves(value: Any, *path: str) -> Iterator[tuple[str, str]]:
    """Path and attribute of every setting."""
    for name, setting in declared.settings(type(value)).items():
        held = getattr(value, setting.attribute)
        if setting.shape.group is not None and held is not None:
            yield from _leaves(held, *path, name)
        else:
            yield ".".join((*path, name)), setting.attribute


BY_COLLECT_POLICY = {"metric_aggregate_duration_seconds", "metric_report_interval_seconds", "durations"}
BY_SECTION = {"applications"}
"""What `effective` itself takes out of its section."""


def test_every_setting_is_acted_on_or_has_a_rule() -> None:
    """A new setting that nobody reads has to be told of as well."""
    used = _acted_on() | BY_COLLECT_POLICY | BY_SECTION
    parts = [rule.path.rpartition(r"\.")[0] for rule in without_effect.RULES]
    for section in config.SECTIONS:
        for path, attribute in _leaves(section.base) if declared.settings(type(section.base)) else ():
            ruled = any(rule.key == section.key and re.fullmatch(rule.path, path) for rule in without_effect.RULES)
            under = any(part and re.match(part + r"\.", path) for part in parts)
            assert attribute in used or ruled or under, f"nothing acts on {section.key} {path}"
