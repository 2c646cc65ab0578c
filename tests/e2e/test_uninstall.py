"""The commands of docs/install.md on a real API server: what is there after the last one was there before the first."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from control_plane import ControlPlane, control_plane

from koordlite import cli
from tests.manifests.conftest import MANIFESTS, rendered
from tests.manifests.test_install_page import OPERATOR, commands, operator_kind

CONTROLLERS = ("serviceaccount-controller", "garbage-collector-controller", "namespace-controller")
PASSING = ("events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io")
"""Kinds that the cluster itself writes all the time."""


@pytest.fixture
def plane(tmp_path: pathlib.Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path, controllers=CONTROLLERS, admission=True) as made:
        yield made


def names(plane: ControlPlane) -> set[str]:
    """Every object of the cluster, by kind, namespace and name."""
    kinds = plane.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    listed = ",".join(kind for kind in kinds if kind not in PASSING)
    path = '{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\\n"}{end}'
    return set(plane.kubectl("get", listed, "-A", "-o", f"jsonpath={path}").stdout.split())


def the_node(plane: ControlPlane) -> dict[str, Any]:
    """The whole Node, less what counts its changes."""
    node: dict[str, Any] = json.loads(plane.kubectl("get", "node", "n1", "-o", "json").stdout)
    node["metadata"] = {key: each for key, each in node["metadata"].items() if key != "resourceVersion"}
    return node


def enforce(plane: ControlPlane) -> None:
    """Run an agent that enforces everything on an emulated machine, until it has written to its Node; put all back."""
    options = [f"--kubeconfig={plane.kubeconfig()}", f"--state-dir={plane.folder / 'state'}", "--sandbox", "small"]
    settings = plane.folder / "koordlite.yaml"
    settings.write_text("cluster: {kubelet: 'off'}\npublish: {nodeResources: agent}\n")
    words = [
        *options,
        "--node-name=n1",
        "--no-http",
        "--for",
        "100",
        "--speed",
        "10",
        "--mode",
        "enforce",
        "--on-stop",
        "restore",
    ]
    command = [sys.executable, "-m", "koordlite", "run", "--quiet", *words, f"--config={settings}"]
    before = the_node(plane)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as agent:
        changed = False
        while agent.poll() is None:
            changed = changed or the_node(plane) != before
            time.sleep(0.2)
        assert agent.returncode == 0, agent.stderr and agent.stderr.read()
    assert changed, "it wrote to its Node"


def apply(plane: ControlPlane, item: dict[str, Any]) -> None:
    path = plane.folder / "item.json"
    path.write_text(json.dumps(item))
    plane.kubectl("apply", "-f", str(path))


@pytest.mark.timeout(300)
def test_after_the_uninstall_nothing_is_left(
    plane: ControlPlane, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    for plural, kind in OPERATOR:
        apply(plane, operator_kind(plural, kind))
    words = ["verify", "--kubeconfig", str(plane.kubeconfig()), "--config", str(nothing_here(tmp_path))]
    before, seen, node = names(plane), set[str](), the_node(plane)
    for line in commands():
        # There is no kubelet and no controller of workloads to wait for.
        if "rollout status" in line or " wait " in line:
            continue
        run(plane, line)
        seen |= names(plane) if " apply " in line else set()
        if line == "kubectl apply -k manifests/overlays/enforce":
            leave_traces(plane)
            enforce(plane)
            assert cli.main(words) == 1
    assert len(seen - before) > 50, "it was installed"
    end = time.monotonic() + 60.0
    while (left := names(plane) - before) and time.monotonic() < end:
        time.sleep(0.5)  # Namespaces end in their own time.
    assert left == set()
    assert before - names(plane) == set()
    assert the_node(plane) == node
    listed = capsys.readouterr().out
    for what in ("leases descheduler: ", "configmaps descheduler-memory: ", "namespaces koordlite-system: "):
        assert what in listed
    assert cli.main(words) == 0
    assert capsys.readouterr().out.startswith("nothing left on this machine and https://")


def nothing_here(folder: pathlib.Path) -> pathlib.Path:
    """Settings by which the folders of this machine's agent, if it has one, are not looked at."""
    path = folder / "koordlite.yaml"
    path.write_text(f"agent: {{stateDir: {folder / 'state'}}}\nrecord: {{folder: {folder / 'record'}}}\n")
    return path


def leave_traces(plane: ControlPlane) -> None:
    """What the processes make themselves: a lease, a memory, a report."""
    space = {"namespace": "koordlite-system"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "descheduler", **space}}
    memory = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "descheduler-memory", **space}}
    report = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "zones": []}
    for item in (lease, memory, {**report, "metadata": {"name": "n1"}}):
        apply(plane, item)


def run(plane: ControlPlane, line: str) -> None:
    done = subprocess.run(
        shlex.split(line),
        capture_output=True,
        text=True,
        check=False,
        cwd=MANIFESTS.parent,
        timeout=120,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig())},
    )
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_the_scheduler_is_validated_deployed_and_removed(plane: ControlPlane, tmp_path: pathlib.Path) -> None:
    kinds, scheduler = tmp_path / "kinds.yaml", tmp_path / "scheduler.yaml"
    folders = [MANIFESTS / name for name in ("crds", "crds/koordinator", "settings")]
    kinds.write_text("\n---\n".join(plane.kubectl("kustomize", str(each)).stdout for each in folders))
    objects = rendered("namespace", "scheduler-extender", "reservation-controller")
    scheduler.write_text("\n---\n".join(json.dumps(each) for each in objects))
    before = names(plane)

    def ask(action: str, *words: str) -> list[str]:
        options = [str(kinds), str(scheduler), "--kubeconfig", str(plane.kubeconfig()), *words]
        command = [sys.executable, "-m", "koordlite", "scheduler", action, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    ask("validate")
    assert names(plane) == before
    first = ask("deploy")
    installed = names(plane)
    assert len([line for line in first if line.endswith(": created")]) == len(first)
    time.sleep(1.0)
    again = ask("deploy")
    assert [line for line in again if not line.endswith((": unchanged", ": configured"))] == []
    assert names(plane) == installed
    # What one of the two adds, the other takes away again: a capability of a container, for example.
    deployment = next(each for each in objects if each["kind"] == "Deployment")
    added = copy.deepcopy(deployment)
    added["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = ["SYS_RESOURCE"]
    added["metadata"]["annotations"] = {"note": "1"}
    scheduler.write_text("\n---\n".join(json.dumps(added if each is deployment else each) for each in objects))
    ask("deploy")
    (tmp_path / "list.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    applied = plane.kubectl("apply", "-f", str(tmp_path / "list.json"))
    assert "Warning" not in applied.stderr
    path = [deployment["kind"], deployment["metadata"]["name"], "-n", "koordlite-system"]
    template = "{.metadata.annotations.note}{.spec.template.spec.containers[*].securityContext.capabilities.add}"
    assert not plane.kubectl("get", *path, "-o", f"jsonpath={template}").stdout
    ask("remove", "--dry-run")
    assert names(plane) == installed
    ask("remove")
    end = time.monotonic() + 30.0
    kept = re.compile("(CustomResourceDefinition|Namespace|APIService)/|ServiceAccount/.*/default$")
    while (left := {each for each in names(plane) - before if not kept.match(each)}) and time.monotonic() < end:
        time.sleep(0.5)
    assert left == set()
