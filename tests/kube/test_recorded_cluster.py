"""A cluster from a captured folder."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from koordlite.changes.published import NodeResourceChange
from koordlite.kube.folder.recorded import RecordedCluster
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.topology import CPU, NUMANode, Topology

TWO = Topology((CPU(0, 0, 0, 0), CPU(1, 1, 0, 0)), (NUMANode(0, CPUSet({0, 1}), 0),))


def plant(folder: Path, **files: Any) -> Path:
    (folder / "var_lib_kubelet").mkdir()
    for name, content in files.items():
        path = folder / ("var_lib_kubelet/cpu_manager_state" if name == "state" else f"{name}.json")
        path.write_text(json.dumps(content))
    return folder


def test_the_recorded_moment(tmp_path: Path) -> None:
    folder = plant(
        tmp_path,
        pods={"items": [{"metadata": {"name": "p", "uid": "u"}}]},
        apiserver_node={"metadata": {"name": "n"}},
        configz={"kubeletconfig": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}},
        state={"policyName": "static", "defaultCpuSet": "0", "entries": {"u": {"main": "1"}}},
    )
    cluster = RecordedCluster(folder, TWO, config={"colocation-config": "{}"})
    view = cluster.view()
    assert view is cluster.view()
    assert [pod.metadata.name for pod in view.pods] == ["p"]
    assert view.node is not None
    assert view.node.metadata.name == "n"
    assert view.kubelet.reserved_cpus == CPUSet({0})
    assert [pod.cpus for pod in view.kubelet.pod_cpus] == [CPUSet({1})]
    assert view.config == {"colocation-config": "{}"}


def test_what_was_not_recorded_is_not_known(tmp_path: Path) -> None:
    view = RecordedCluster(tmp_path, TWO).view()
    assert (view.node, view.pods, view.config, view.kubelet.cpu_manager_policy) == (None, (), None, "")


def test_a_kubelet_without_pods_prints_null(tmp_path: Path) -> None:
    assert RecordedCluster(plant(tmp_path, pods={"items": None}), TWO).view().pods == ()


@pytest.mark.parametrize("files", [{"pods": [1]}, {"apiserver_node": 3}, {"configz": {}}, {"state": 5}])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RecordedCluster(plant(tmp_path, **files), TWO)


def test_a_recording_cannot_be_published_to(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        RecordedCluster(tmp_path, TWO).publish([NodeResourceChange("r", 1)])
    assert caught.value.errno == errno.EROFS


@pytest.mark.parametrize(("run", "policy", "reserved"), [("static", "static", "0"), ("none", "none", "")])
def test_a_captured_kubelet(run: str, policy: str, reserved: str) -> None:
    """The folder named by KUBELET_CAPTURES holds static/ and none/ of a real kubelet."""
    if "KUBELET_CAPTURES" not in os.environ:
        pytest.skip("KUBELET_CAPTURES does not name a folder of captures")
    view = RecordedCluster(Path(os.environ["KUBELET_CAPTURES"]) / run, TWO).view()
    assert len(view.pods) == 8
    assert (view.kubelet.cpu_manager_policy, str(view.kubelet.reserved_cpus)) == (policy, reserved)
    assert view.problems == ()
