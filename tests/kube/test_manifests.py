"""A folder of manifests is a cluster: edits are picked up, mistakes are named, good objects stay."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from koordlite.kube.folder import manifest_files
from koordlite.model.cpuset import CPUSet

POD = "kind: Pod\nmetadata: {name: p, namespace: d}\nspec: {nodeName: n1}\n"


def said(view: Any) -> str:
    """All problems of a view as text."""
    return "\n".join(map(str, view.problems))


def test_a_pod_without_uid_and_status_is_completed(desk: Any) -> None:
    desk.write("pod.yaml", "kind: Pod\nmetadata: {name: p}\n")
    (pod,) = desk.cluster().view().pods
    assert (pod.metadata.namespace, pod.status.phase) == ("default", "Running")
    assert pod.metadata.uid == "984c453f-489b-5596-9e7b-d35c67a10ece", "the same for the same name, for ever"


def test_a_written_uid_and_phase_stay(desk: Any) -> None:
    desk.write("pod.yaml", "kind: Pod\nmetadata: {name: p, uid: u1}\nstatus: {phase: Failed}\n")
    (pod,) = desk.cluster().view().pods
    assert (pod.metadata.uid, pod.status.phase) == ("u1", "Failed")


def test_dates_stay_text(desk: Any) -> None:
    desk.write("pod.yaml", "kind: Pod\nmetadata: {name: p, creationTimestamp: 2025-12-30T08:00:00Z}\n")
    (pod,) = desk.cluster().view().pods
    assert pod.metadata.creation_timestamp == "2025-12-30T08:00:00Z"


def test_only_pods_of_this_node_are_seen(desk: Any) -> None:
    desk.write("other.yaml", "kind: Node\nmetadata: {name: n2}\n")
    desk.write("pods.yaml", POD + "---\n" + POD.replace("n1", "n2").replace("name: p", "name: q"))
    desk.write("free.yaml", "kind: Pod\nmetadata: {name: unbound}\n")
    seen = {name: [pod.metadata.name for pod in desk.cluster(node_name=name).view().pods] for name in ("n1", "n2")}
    assert seen == {"n1": ["p"], "n2": ["q"]}


def test_lists_and_json_are_read(desk: Any) -> None:
    pods = [{"metadata": {"name": name}, "spec": {"nodeName": "n1"}} for name in "ab"]
    desk.write("list.json", json.dumps({"kind": "PodList", "items": pods}))
    desk.write("mixed.yaml", f"kind: List\nitems:\n- {{kind: Service}}\n- {json.dumps({'kind': 'Pod', **pods[0]})}\n")
    view = desk.cluster().view()
    assert [pod.metadata.name for pod in view.pods] == ["a", "b"]
    assert "comes more than once" in said(view), "pod a is in both files"


def test_only_the_slo_config_map_counts(desk: Any) -> None:
    desk.write("other.yaml", "kind: ConfigMap\nmetadata: {name: slo-controller-config}\ndata: {a: b}\n")
    cluster = desk.cluster()
    assert cluster.view().config is None
    desk.write(
        "config.yaml",
        "kind: ConfigMap\nmetadata: {name: slo-controller-config, namespace: koordinator-system}\ndata: {k: v}\n",
    )
    desk.clock.now += 1
    assert cluster.view().config == {"k": "v"}
    (desk.folder / "config.yaml").unlink()
    desk.clock.now += 1
    assert cluster.view().config is None, "a deleted file takes its objects with it"


def test_the_folder_is_looked_at_once_a_second(desk: Any) -> None:
    cluster = desk.cluster()
    assert cluster.view().pods == ()
    desk.write("pod.yaml", POD)
    desk.clock.now += 0.9
    assert cluster.view().pods == ()
    desk.clock.now += 0.1
    assert len(cluster.view().pods) == 1


def test_unchanged_objects_keep_their_identity(desk: Any) -> None:
    desk.write("pods.yaml", POD + "---\n" + POD.replace("name: p", "name: q"))
    cluster = desk.cluster()
    before = cluster.view()
    assert cluster.view().pods is before.pods
    desk.write("pods.yaml", POD + "---\n" + POD.replace("name: p", "name: q, labels: {a: b}"))
    desk.clock.now += 1
    after = cluster.view()
    assert after.pods[0] is before.pods[0]
    assert after.pods[1] is not before.pods[1]
    assert after.node is before.node


def test_a_file_replaced_within_the_same_second_is_noticed(desk: Any) -> None:
    desk.write("pod.yaml", POD)
    cluster = desk.cluster()
    cluster.view()
    stamp = (desk.folder / "pod.yaml").stat()
    fresh = desk.folder / ".pod.yaml.new"
    fresh.write_text(POD.replace("name: p", "name: q"))
    os.utime(fresh, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    fresh.replace(desk.folder / "pod.yaml")
    desk.clock.now += 1
    assert [pod.metadata.name for pod in cluster.view().pods] == ["q"], "same time and size, another inode"


@pytest.mark.parametrize(
    ("name", "text", "place", "why"),
    [
        pytest.param("pod.yaml", "kind: Pod\nmetadata: {name: [", ":3:1", "not YAML", id="YAML that breaks off"),
        pytest.param("pod.yaml", "kind: Pod\n\tmetadata: {}", ":2:1", "not YAML", id="a tab"),
        pytest.param("pod.json", '{"kind": "Pod",\n}', ":2:1", "not JSON", id="JSON with a comma too many"),
        pytest.param("pod.yaml", "- 1\n- 2\n", ":1:1", "a manifest is a mapping, not list", id="no mapping"),
        pytest.param("pod.yaml", "metadata: {name: p}\n", ":1:1", "kind", id="no kind"),
        pytest.param(
            "pod.yaml",
            "kind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: c\n  - name: 7\n",
            ":7:11",
            "spec.containers[1].name = '7': Expected str, got int",
            id="a wrong type, found by its path",
        ),
        pytest.param(
            "pods.yaml",
            "kind: List\nitems:\n- kind: Pod\n  metadata: {name: p, labels: {a: true}}\n",
            ":4:",
            "Expected str, got bool",
            id="a wrong type within a list",
        ),
        pytest.param(
            "pod.json",
            '{"kind": "Pod", "metadata": {"name": 7}}',
            "pod.json: Pod 7",
            "Expected str, got int",
            id="a wrong type in JSON, which has no positions",
        ),
        pytest.param(
            "kubelet.yaml", "kind: KubeletConfiguration\nreservedSystemCPUs: x\n", ":1:1", "'x'", id="kubelet"
        ),
        pytest.param("configz.json", "{", "/configz", "truncated", id="a broken configz"),
    ],
)
def test_a_mistake_is_named_with_its_place(desk: Any, name: str, text: str, place: str, why: str) -> None:
    desk.write(name, text)
    view = desk.cluster().view()
    assert len(view.problems) == 1, said(view)
    assert place in said(view)
    assert why in said(view)
    assert view.node is not None, "the other files count"


def test_all_mistakes_of_a_file_come_at_once(desk: Any) -> None:
    desk.write("pods.yaml", "kind: Pod\nspec: []\n---\nmetadata: {}\n---\nkind: Node\nmetadata: {name: 1}\n")
    assert len(desk.cluster().view().problems) == 3


def test_last_good_objects_of_a_broken_file_stay_and_age(desk: Any) -> None:
    desk.write("pod.yaml", POD)
    cluster = desk.cluster()
    before = cluster.view()
    desk.write("pod.yaml", POD.replace("{nodeName: n1}", "7"))
    desk.clock.now += 5
    broken = cluster.view()
    assert broken.pods[0] is before.pods[0]
    assert "the last good objects of this file stay" in said(broken)
    desk.clock.now += 5
    assert (cluster.view().ages["pods"], cluster.view().ages["node"]) == (10, 0)
    desk.write("pod.yaml", POD)
    desk.clock.now += 1
    mended = cluster.view()
    assert (mended.problems, mended.ages["pods"]) == ((), 0)


@pytest.mark.parametrize(
    ("texts", "name", "why"),
    [
        pytest.param([], None, "no Node manifest", id="no node at all"),
        pytest.param(["a", "b"], None, "several Node manifests", id="two nodes and none chosen"),
        pytest.param(["a"], "c", "no Node manifest is called c", id="a node that is not there"),
    ],
)
def test_without_its_node_the_view_says_so(desk: Any, texts: list[str], name: str | None, why: str) -> None:
    desk.write("node.yaml", "\n---\n".join(f"kind: Node\nmetadata: {{name: {text}}}" for text in texts))
    view = desk.cluster(node_name=name).view()
    assert view.node is None
    assert why in said(view)


def test_a_missing_folder_is_a_problem_until_it_appears(desk: Any, tmp_path: Path) -> None:
    desk.folder = tmp_path / "later"
    cluster = desk.cluster()
    assert "there is no such folder" in said(cluster.view())
    desk.folder.mkdir()
    desk.write("node.yaml", "kind: Node\nmetadata: {name: n1}\n")
    desk.clock.now += 1
    assert cluster.view().problems == ()


def test_kubelet_files_are_read(desk: Any) -> None:
    desk.write(
        "kubelet.yaml",
        "kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n"
        "topologyManagerPolicy: single-numa-node\n",
    )
    desk.write(
        "cpu_manager_state", '{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"2-3"}},"checksum":1}'
    )
    kubelet = desk.cluster().view().kubelet
    assert (kubelet.cpu_manager_policy, kubelet.topology_manager_policy) == ("static", "single-numa-node")
    assert kubelet.reserved_cpus == CPUSet([0])
    assert [(held.uid, held.cpus) for held in kubelet.pod_cpus] == [("u", CPUSet([2, 3]))]


def test_cpus_reserved_by_number_need_the_machine(desk: Any) -> None:
    desk.write("kubelet.yaml", "kind: KubeletConfiguration\ncpuManagerPolicy: static\nkubeReserved: {cpu: 500m}\n")
    view = desk.cluster().view()
    assert not view.kubelet.reserved_cpus
    assert "write reservedSystemCPUs as a list" in said(view)


def test_the_tour_has_no_mistake() -> None:
    folder = Path(__file__).parents[2] / "configs" / "tour"
    found = [obj for path in sorted(folder.iterdir()) for obj in manifest_files.read(path)]
    assert len(found) >= 12
    assert len(list(folder.iterdir())) < 10


@pytest.mark.parametrize("text", ["mode: !!bool x", "agent: {x: 2024-99-99}", "[" * 3000, "agent: [", "mode: off"])
def test_what_holds_no_object_is_no_config_map(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    assert manifest_files.config_map(path) is None


def test_a_config_map_is_read_from_json_as_well(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{\n\t"kind": "ConfigMap",\n\t"metadata": {"name": "c"},\n\t"data": {"a": "b"}\n}')
    assert manifest_files.config_map(path) == {"a": "b"}
