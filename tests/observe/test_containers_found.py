"""Containers are found by their ids also where the runtime is none we know the name of."""

from __future__ import annotations

import msgspec
import pytest
from memory_files import MemoryFiles

from koordlite.host.cgroups import names as cgroup_names
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.model.picture.groups import PodGroups
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects
from koordlite.observe.places import Places

UID = "11111111-2222-3333-4444-555555555555"


def found(driver: str, runtime: str) -> PodGroups:
    """Where a best-effort pod of one container of `runtime` is found."""
    systemd = driver == "systemd"
    top = "kubepods.slice" if systemd else "kubepods"

    names = cgroup_names.layout(1, top)
    obj = msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": UID},
            "spec": {"containers": [{"name": "main"}]},
            "status": {
                "phase": "Running",
                "qosClass": "BestEffort",
                "containerStatuses": [{"name": "main", "containerID": f"{runtime}://abc"}],
            },
        },
        objects.PodObject,
    )
    seen = pod_reader.from_wire(obj)
    group = cgroup_names.pod_group(names, UID, seen.kube_qos)
    children = [f"{runtime}-abc.scope", f"{runtime}-pause.scope"] if systemd else ["abc", "pause"]
    files = MemoryFiles({}, [f"/c/{group}/{child}" for child in children])
    places = Places(Cgroups(files, names, dict.fromkeys(("cpu", "cpuset", "cpuacct", "memory"), "/c")))
    places.begin(0.0)
    return places.find((seen,))[UID]


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_a_container_of_an_unknown_runtime_is_found_by_its_id(driver: str) -> None:
    place = found(driver, "zun")
    assert set(place.containers) == {"main"}
    assert place.containers["main"].endswith("abc" if driver == "cgroupfs" else "zun-abc.scope")
    assert len(place.sandboxes) == 1
