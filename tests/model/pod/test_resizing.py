"""A pod that is resized in place counts with the most that it has or asks for, and its cgroups with what they have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from descheduler.snapshot.pack import Packer
from koordlite.model.pod import pod_reader
from koordlite.model.wire.objects import PodObject
from koordlite.numa.kubelet import requests
from koordlite.reservation import pods


def pod(
    spec: dict[str, Any], actual: dict[str, Any] | None, allocated: dict[str, Any] | None = None, **status: Any
) -> PodObject:
    """A Guaranteed pod with one container that asks for `spec`, was granted `allocated` and has `actual`."""
    state: dict[str, Any] = {"name": "main", "state": {"running": {}}}
    if actual is not None:
        state |= {"resources": {"requests": actual, "limits": actual}, "allocatedResources": allocated or actual}
    return msgspec.convert(
        {
            "metadata": {"namespace": "shop", "name": "web", "uid": "1"},
            "spec": {"containers": [{"name": "main", "resources": {"requests": spec, "limits": spec}}]},
            "status": {"phase": "Running", "qosClass": "Guaranteed", "containerStatuses": [state], **status},
        },
        PodObject,
    )


def condition(kind: str, reason: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason}]}


SHRINKS = pod({"cpu": "1", "memory": "1Gi"}, {"cpu": "4", "memory": "4Gi"}, {"cpu": "1", "memory": "1Gi"})
GROWS = pod({"cpu": "4"}, {"cpu": "2"}, **condition("PodResizePending", "Deferred"))
NEVER = pod({"cpu": "64"}, {"cpu": "2"}, {"cpu": "3"}, **condition("PodResizePending", "Infeasible"))
IS_GRANTED = pod({"cpu": "4"}, {"cpu": "2"}, {"cpu": "4"}, **condition("PodResizeInProgress"))
AS_ASKED = pod({"cpu": "2"}, {"cpu": "2000m"})


@pytest.mark.parametrize(
    ("obj", "milli"), [(SHRINKS, 4000), (GROWS, 4000), (NEVER, 3000), (IS_GRANTED, 4000), (AS_ASKED, 2000)]
)
def test_every_reader_counts_the_most_that_it_has_or_may_get(obj: PodObject, milli: int) -> None:
    """Source: kube-scheduler's `determineEffectiveRequests`."""
    assert pod_reader.from_wire(obj).requests["cpu"].milli == milli
    assert pods.Shapes().of(obj).total["cpu"] == milli * 10**6
    assert requests.of_pod(obj).cpus == milli // 1000
    packed = Packer().small(obj)
    assert pod_reader.from_wire(packed).requests["cpu"].milli == milli


def test_memory_counts_likewise() -> None:
    assert pod_reader.from_wire(SHRINKS).requests["memory"].value == 4 << 30


@pytest.mark.parametrize(
    ("obj", "milli"),
    [(GROWS, 2000), (NEVER, 2000), (IS_GRANTED, 2000), (AS_ASKED, 2000), (pod({"cpu": "3"}, None), 3000)],
)
def test_the_limit_of_a_container_is_the_one_its_cgroup_has(obj: PodObject, milli: int) -> None:
    (container,) = pod_reader.from_wire(obj).containers
    assert container.limits["cpu"].milli == container.requests["cpu"].milli == milli


def test_what_a_runtime_reports_of_a_pod_that_is_not_resized_is_no_limit_of_its_spec() -> None:
    """A runtime reports the quota that a plugin gave the container: taken for its limit, it would be scaled again."""
    (container,) = pod_reader.from_wire(pod({"cpu": "4"}, {"cpu": "2500m"}, {"cpu": "4"})).containers
    assert container.limits["cpu"].milli == 4000


def test_resources_of_the_whole_pod_are_resized_too() -> None:
    whole: dict[str, Any] = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    obj = msgspec.convert(
        {
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"containers": [{"name": "main"}], "resources": whole},
            "status": {
                "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}},
                "allocatedResources": {"cpu": "1"},
            },
        },
        PodObject,
    )
    assert pod_reader.from_wire(obj).requests["cpu"].milli == 3000


def test_an_amount_that_cannot_be_read_leaves_the_one_of_the_spec() -> None:
    obj = pod({"cpu": "1"}, {"cpu": "many"})
    assert pod_reader.from_wire(obj).requests["cpu"].milli == 1000


def test_a_pod_that_is_not_resized_is_the_same_object() -> None:
    assert pod_reader.counted(AS_ASKED) is AS_ASKED


def test_pods_that_share_a_template_and_are_not_resized_share_their_parts() -> None:
    packer = Packer()
    one, other = (packer.small(pod({"cpu": "2"}, {"cpu": "2"})) for _ in range(2))
    assert one.spec.containers is other.spec.containers
    assert packer.small(SHRINKS).template is not one.template
