"""`koordlite kubelet plan` on an emulated node and on a recorded one: read-only, with clear refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated import Emulated

Ask = Callable[..., Any]
STATIC = ("--policy", "static", "--reserved-cpus", "0")


@pytest.fixture
def node(tmp_path: Path) -> tuple[object, ...]:
    """A node of shape `small` with a service that asks for two CPUs, and best-effort work."""
    emulated = Emulated("small", tmp_path)
    emulated.node()
    emulated.pod("pinned", "LS", "1", request="2", memory="1Gi", guaranteed=True)
    emulated.pod("crunch", "BE", "greedy")
    return "--sandbox", "small", "--cluster", emulated.folder


def test_the_plan_says_all_that_a_person_needs(ask: Ask, node: tuple[object, ...]) -> None:
    answer = ask("kubelet", "plan", *STATIC, "--options", "full-pcpus-only=false", *node)
    assert answer.code == 0
    for line in (
        "ns/pinned  gets own CPUs  shared → 1,3",
        "ns/crunch  shared",
        'configured policy "static" differs from state checkpoint policy "none"',
        "1. ns/crunch",
        "cpuManagerPolicy: static",
        'full-pcpus-only: "false"',
        'reservedSystemCPUs: "0"',
        "kubectl drain node-a --ignore-daemonsets",
        "How to go back:",
    ):
        assert line in answer.out, line


def test_programs_read_the_same(ask: Ask, node: tuple[object, ...]) -> None:
    document = json.loads(ask("kubelet", "plan", *STATIC, *node, "-o", "json").out)
    assert document["kind"] == "koordlite-kubelet-plan"
    plan = document["plan"]
    assert {effect["pod"]: effect["outcome"] for effect in plan["change"]["effects"]} == {
        "ns/pinned": "gets own CPUs",
        "ns/crunch": "shared",
    }
    backup = "/var/lib/kubelet/cpu_manager_state.before-koordlite-plan"
    assert f"mv /var/lib/kubelet/cpu_manager_state {backup}" in plan["commands"]
    assert "rm -f /var/lib/kubelet/cpu_manager_state" in plan["way_back"]


def test_the_state_file_is_in_the_folder_that_kubelet_has(ask: Ask, node: tuple[object, ...], tmp_path: Path) -> None:
    config = tmp_path / "koordlite.yaml"
    config.write_text("cluster: {kubeletFolder: /data/kubelet/}\n")
    answer = ask("kubelet", "plan", *STATIC, *node, "--config", config)
    assert "rm -f /data/kubelet/cpu_manager_state" in answer.out
    assert "/var/lib/kubelet/cpu_manager_state" not in answer.out


def test_a_refused_pod_is_the_exit_code(ask: Ask, node: tuple[object, ...]) -> None:
    answer = ask("kubelet", "plan", "--policy", "static", "--reserved-cpus", "0-2", *node)
    assert answer.code == 1
    assert "refused  OutOfcpu" in answer.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--options", "full-pcpu-only=true"), "unknown CPU Manager Policy option: 'full-pcpu-only'"),
        (("--options", "full-pcpus-only"), "write full-pcpus-only=true"),
        (("--options", "full-pcpus-only=maybe"), "bad value for a CPU Manager Policy option"),
        (("--reserved-cpus", "a-b"), "--reserved-cpus"),
        (("--reserved-cpus", "99"), "CPUs 99 are not on this machine"),
        (("--reserved-cpus", ""), "greater than zero"),
        (("--policy", "none", "--options", "full-pcpus-only=true"), "the policy none takes no options"),
        (("--policy", "dynamic"), "there is no 'dynamic'"),
    ],
)
def test_what_kubelet_would_not_start_with_is_refused_clearly(
    ask: Ask, node: tuple[object, ...], words: tuple[str, ...], says: str
) -> None:
    answer = ask("kubelet", "plan", *STATIC, *words, *node)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err


def test_a_recorded_node_answers_with_its_own_checkpoint(ask: Ask, tmp_path: Path) -> None:
    cpus = tmp_path / "sys/devices/system/cpu"
    for cpu in (0, 1):
        (cpus / f"cpu{cpu}/topology").mkdir(parents=True)
        for name, text in {"core_id": cpu, "physical_package_id": 0}.items():
            (cpus / f"cpu{cpu}/topology/{name}").write_text(f"{text}\n")
    (cpus / "online").write_text("0-1\n")
    node = tmp_path / "sys/devices/system/node/node0"
    node.mkdir(parents=True)
    (node / "cpulist").write_text("0-1\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "var_lib_kubelet").mkdir()
    state = {"policyName": "static", "defaultCpuSet": "0", "entries": {"u": {"c": "1"}}}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
        },
    }
    for name, content in {
        "configz.json": {"kubeletconfig": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}},
        "var_lib_kubelet/cpu_manager_state": state,
        "apiserver_node.json": {"metadata": {"name": "node-r"}},
        "pods.json": {"items": [pod]},
    }.items():
        (tmp_path / name).write_text(json.dumps(content))
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    answer = ask("kubelet", "plan", "--options", "strict-cpu-reservation=true", "--recorded", tmp_path)
    assert answer.code == 0, answer.err
    assert 'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0"' in answer.out
    assert "ns/p  keeps its CPUs  1 → 1" in answer.out
    assert before == sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
