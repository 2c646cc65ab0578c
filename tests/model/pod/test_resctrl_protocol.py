"""Koordinator's resctrl protocol: a pod's annotation, the class it counts with, names of groups."""

from __future__ import annotations

import json

import msgspec
import pytest

from koordlite.model import keys
from koordlite.model.pod import pod_reader
from koordlite.model.pod import resctrl_protocol as protocol
from koordlite.model.pod.values import Pod
from koordlite.model.wire import objects
from koordlite.resctrl import Shares


def read(qos: str, kube: str, annotation: str | None = None) -> Pod:
    labels = {keys.QOS_CLASS: qos} if qos else {}
    annotations = {} if annotation is None else {keys.POD_RESCTRL: annotation}
    metadata = {"namespace": "shop", "name": "cart", "uid": "u1", "labels": labels, "annotations": annotations}
    text = json.dumps({"metadata": metadata, "status": {"phase": "Running", "qosClass": kube}})
    return pod_reader.from_wire(msgspec.json.decode(text, type=objects.PodObject))


@pytest.mark.parametrize(
    ("qos", "kube", "annotation", "expected"),
    [
        pytest.param("LSE", "Guaranteed", None, "LSR", id="LSE shares the group of LSR"),
        pytest.param("", "Guaranteed", None, "LSR", id="guaranteed without a label"),
        pytest.param("", "Burstable", None, "LS", id="burstable without a label"),
        pytest.param("BE", "BestEffort", None, "BE", id="best effort"),
        pytest.param("SYSTEM", "Burstable", None, None, id="SYSTEM has no group"),
        pytest.param("LS", "Burstable", "{}", None, id="an annotation that asks for nothing leaves it in the root"),
        pytest.param("LS", "Burstable", "{", "LS", id="one that cannot be read does not"),
        pytest.param("LS", "Burstable", '{"mb":{"schemata":{"percent":20}}}', "LS", id="one that asks for something"),
    ],
)
def test_class_of_a_pod(qos: str, kube: str, annotation: str | None, expected: str | None) -> None:
    assert protocol.class_of(read(qos, kube, annotation)) == expected


def test_an_annotation_is_shares_of_all_caches_and_of_single_ones() -> None:
    text = json.dumps(
        {
            "llc": {"schemata": {"range": [0, 30]}, "schemataPerCache": [{"cacheID": 1, "range": [50, 100]}]},
            "mb": {"schemata": {"percent": 40}, "schemataPerCache": [{"cacheID": 1, "percent": 60}]},
        }
    )
    assert protocol.parse(text) == Shares((0, 30), {1: (50, 100)}, 40, {1: 60})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"llc":{"schemata":{"range":[30,30]}}}', r"llc.schemata.range: \[30, 30\] is not a start below an end"),
        ('{"llc":{"schemataPerCache":[{"cacheID":2,"range":[0,101]}]}}', "llc of cache 2"),
        ('{"mb":{"schemata":{"percent":101}}}', "mb.schemata.percent: 101 is not within 1 to 100"),
    ],
)
def test_what_an_annotation_gets_wrong_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        protocol.parse(text)
    assert protocol.parse_or_none(text) is None


@pytest.mark.parametrize(
    ("group", "uid", "is_own", "ours"),
    [
        ("koordlet-u1", "u1", True, True),
        ("BE/mon_groups/koordlet-u1", "u1", False, True),
        ("BE", "", False, True),
        ("theirs", "", False, False),
        ("", "", False, False),
    ],
)
def test_names_of_groups(group: str, uid: str, is_own: bool, ours: bool) -> None:
    found = protocol.uid_of(group), protocol.is_pod_group(group), protocol.may_be_ours(group)
    assert found == (uid, is_own, ours)
