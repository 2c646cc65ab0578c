"""What whoever holds the token of a descheduler may write: one annotation of pods, the cordon of nodes."""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import admission
import pytest

from descheduler.evictors.marks import COST_MARK, MARK
from descheduler.utilization.levels import DELETION_COST
from koordlite.model.keys import SOFT_EVICTION

COMPONENTS = pathlib.Path(__file__).parents[2] / "manifests/components"
DESCHEDULER = "system:serviceaccount:koordlite-system:descheduler"
Object = dict[str, Any]
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "a"}, "annotations": {"theirs": "1"}},
    "spec": {"containers": [{"name": "c", "image": "good"}], "nodeName": "n"},
    "status": {"phase": "Running"},
}
NODE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"pool": "a"}, "annotations": {"theirs": "1"}},
    "spec": {"podCIDR": "192.0.2.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": "8"}},
}


def changed(item: Object, changes: Object) -> Object:
    """`item` with values put at dotted paths, whose last part may hold dots after a slash; None removes."""
    made = copy.deepcopy(item)
    for path, value in changes.items():
        *parents, last = path.split("|")
        place = made
        for key in parents:
            place = place.setdefault(key, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return made


def refusals(component: str, old: Object, new: Object, user: str = DESCHEDULER) -> list[str]:
    (spec,) = admission.policies(COMPONENTS / component / "guard.yaml").values()
    return admission.refusals(spec, old=old, new=new, user=user)


def test_soft_eviction_is_admitted() -> None:
    assert refusals("descheduler-migrate", POD, changed(POD, {f"metadata|annotations|{SOFT_EVICTION}": "{}"})) == []
    bare = changed(POD, {"metadata|annotations": None})
    assert refusals("descheduler-migrate", bare, changed(bare, {f"metadata|annotations|{SOFT_EVICTION}": "{}"})) == []


@pytest.mark.parametrize(
    "attack",
    [
        {"spec|containers": [{"name": "c", "image": "bad"}]},
        {"spec|activeDeadlineSeconds": 1},
        {"spec|tolerations": [{"operator": "Exists"}]},
        {"metadata|labels|app": "b"},
        {"metadata|labels": None},
        {"metadata|finalizers": ["example.com/mine"]},
        {"metadata|ownerReferences": [{"uid": "gone"}]},
        {"metadata|annotations|theirs": "2"},
        {"metadata|annotations": None},
        {"metadata|annotations|scheduling.koordinator.sh/resource-status": '{"cpuset":"0-31"}'},
        {"status|phase": "Failed"},
        {"invented": 1},
    ],
    ids=lambda attack: next(iter(attack)),
)
def test_everything_else_of_a_pod_is_refused(attack: Object) -> None:
    assert refusals("descheduler-migrate", POD, changed(POD, attack))
    assert refusals("descheduler-migrate", POD, changed(POD, {f"metadata|annotations|{SOFT_EVICTION}": "{}", **attack}))


CORDON = {f"metadata|annotations|{MARK}": "asked", "spec|unschedulable": True}
OURS = changed(NODE, CORDON)
BARE = changed(NODE, {"metadata|annotations": None})
CLOSED = changed(NODE, {"spec|unschedulable": True})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(NODE, OURS, id="closing"),
        pytest.param(BARE, changed(BARE, CORDON), id="closing, the first annotation"),
        pytest.param(OURS, changed(OURS, {f"metadata|annotations|{MARK}": "kept"}), id="giving up"),
        pytest.param(OURS, NODE, id="opening"),
        pytest.param(changed(OURS, {"spec|unschedulable": None}), NODE, id="forgetting, it was opened by a person"),
    ],
)  # fmt: skip
def test_what_the_descheduler_does_with_nodes_is_admitted(old: Object, new: Object) -> None:
    assert refusals("descheduler-cordon", old, new) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(CLOSED, NODE, id="opening what a person closed"),
        pytest.param(CLOSED, OURS, id="marking what a person closed"),
        pytest.param(NODE, CLOSED, id="closing without the mark"),
        pytest.param(NODE, changed(NODE, {f"metadata|annotations|{MARK}": "asked"}), id="the mark alone"),
        pytest.param(NODE, changed(OURS, {f"metadata|annotations|{MARK}": "\x1b[2J"}), id="another mark"),
        pytest.param(NODE, changed(OURS, {"spec|taints": None}), id="taints go"),
        pytest.param(NODE, changed(OURS, {"spec|taints": []}), id="taints change"),
        pytest.param(NODE, changed(OURS, {"spec|providerID": "x"}), id="a provider"),
        pytest.param(NODE, changed(OURS, {"spec|podCIDR": None}), id="the network"),
        pytest.param(NODE, changed(OURS, {"metadata|labels|pool": "secure"}), id="labels draw pods"),
        pytest.param(NODE, changed(OURS, {"metadata|ownerReferences": [{"uid": "gone"}]}), id="an owner that is gone"),
        pytest.param(NODE, changed(OURS, {"metadata|annotations|theirs": None}), id="annotations of others"),
        pytest.param(NODE, changed(OURS, {"status|capacity|cpu": "80"}), id="the status"),
        pytest.param(NODE, changed(OURS, {"invented": 1}), id="a field that nobody knows yet"),
    ],
)
def test_everything_else_of_a_node_is_refused(old: Object, new: Object) -> None:
    assert refusals("descheduler-cordon", old, new)


PRICED = changed(POD, {f"metadata|annotations|{DELETION_COST}": "3", f"metadata|annotations|{COST_MARK}": "3"})
FOREIGN = changed(POD, {f"metadata|annotations|{DELETION_COST}": "-5"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(POD, PRICED, id="a cost"),
        pytest.param(PRICED, POD, id="none any more"),
        pytest.param(
            PRICED,
            changed(POD, {f"metadata|annotations|{DELETION_COST}": "9", f"metadata|annotations|{COST_MARK}": "9"}),
            id="another cost",
        ),
    ],
)
def test_the_order_of_scaling_down_is_admitted(old: Object, new: Object) -> None:
    for component in ("descheduler-deletion-cost", "descheduler-migrate"):  # Both may be installed.
        assert refusals(component, old, new) == []


def test_a_soft_eviction_is_admitted_beside_it() -> None:
    soft = changed(POD, {f"metadata|annotations|{SOFT_EVICTION}": "{}"})
    assert refusals("descheduler-deletion-cost", POD, soft) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(FOREIGN, PRICED, id="a cost of somebody else"),
        pytest.param(FOREIGN, POD, id="removing a cost of somebody else"),
        pytest.param(POD, changed(POD, {f"metadata|annotations|{DELETION_COST}": "3"}), id="a cost without the mark"),
        pytest.param(POD, changed(PRICED, {f"metadata|annotations|{COST_MARK}": "4"}), id="another number in the mark"),
        pytest.param(POD, changed(PRICED, {"metadata|annotations|theirs": "2"}), id="annotations of others"),
        pytest.param(POD, changed(PRICED, {"metadata|labels|app": "b"}), id="labels"),
        pytest.param(POD, changed(PRICED, {"spec|activeDeadlineSeconds": 1}), id="the spec"),
        pytest.param(POD, changed(PRICED, {"status|phase": "Failed"}), id="the status"),
    ],
)
def test_everything_else_about_costs_is_refused(old: Object, new: Object) -> None:
    assert refusals("descheduler-deletion-cost", old, new)


@pytest.mark.parametrize("component", ["descheduler-migrate", "descheduler-cordon", "descheduler-deletion-cost"])
def test_others_are_not_judged(component: str) -> None:
    item = NODE if component.endswith("cordon") else POD
    assert refusals(component, item, changed(item, {"invented": 1}), user="system:node:n") == []
    assert refusals(component, item, changed(item, {"invented": 1}))
