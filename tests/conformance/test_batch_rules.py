"""Batch resources of random pods: ours is what all rules come to, and each difference from Koordinator has its rule."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from koordlite.model import keys
from tests.conformance import adapters, batch_rules, deviations
from tests.conformance.adapters import batch_resource

QUOTA_OFF = {"cfsQuotaEnabled": False}


def container(name: str, draw: random.Random) -> dict[str, Any]:
    cpu, limit = (str(draw.choice([20, 250, 1000, 2500])) for _ in range(2))
    memory = str(draw.choice([2**20, 2**30]))
    both = {keys.BATCH_CPU: cpu, keys.BATCH_MEMORY: memory}
    limits = {keys.BATCH_CPU: limit, keys.BATCH_MEMORY: memory}
    native = {"cpu": draw.choice(["20m", "1"]), "memory": "1Gi"}
    kinds = [
        *([{"requests": both, "limits": limits}] * 3),
        {"requests": both},
        {"limits": limits},
        {"requests": native, "limits": native},
        {},
    ]
    return {"name": name, "resources": draw.choice(kinds)}


def case(draw: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [container(f"c{n}", draw) for n in range(draw.choice([1, 1, 2, 3]))]}
    if draw.random() < 0.3:
        more = {"restartPolicy": "Always"} if draw.random() < 0.5 else {}
        spec["initContainers"] = [container("first", draw) | more]
    if draw.random() < 0.1:
        spec["overhead"] = {keys.BATCH_CPU: "100", keys.BATCH_MEMORY: "1Mi"}
    metadata: dict[str, Any] = {"namespace": "d", "name": "p", "uid": "u", "labels": {keys.QOS_CLASS: "BE"}}
    if draw.random() < 0.3:
        entry = {which: {keys.BATCH_CPU: str(draw.choice([10, 600, 5000]))} for which in ("limits", "requests")}
        note = {"containers": {draw.choice(["c0", "z"]): entry}}
        metadata["annotations"] = {keys.EXTENDED_RESOURCE_SPEC: json.dumps(note)}
    return {
        "from": draw.choice(["reconciler", "reconciler", "proxy"]),
        "pod": {"metadata": metadata, "spec": spec},
        "cfsQuotaEnabled": draw.random() < 0.6,
        "cpuNormalizationRatio": draw.choice([None, None, 0.5, 1.25, 4]),
    }


@pytest.mark.parametrize("seed", range(200))
def test_rules_meet_in_one_pod(seed: int) -> None:
    adapters.load()
    given = case(random.Random(seed))
    theirs = batch_rules.values(given, frozenset())
    ours, _ = batch_resource.values(given, theirs)
    assert ours == batch_rules.values(given, batch_rules.ALL)
    rule = deviations.rule_for("BatchResource", given, theirs, ours)
    assert bool(rule) == (ours != theirs)
    assert not deviations.rule_for("BatchResource", given, {**theirs, "pod": {"cpuShares": 3}}, ours)


def test_where_the_node_has_no_quotas_all_are_unlimited() -> None:
    draw = random.Random(1)
    quotas = [
        values["cfsQuota"]
        for _ in range(200)
        for given in (case(draw) | QUOTA_OFF,)
        for found in (batch_resource.values(given, None)[0],)
        for values in (found["pod"], *found["containers"].values())
        if values
    ]
    assert set(quotas) == {-1}
