"""Files as kubectl and people make them, and files that are broken."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from descheduler.snapshot import files
from koordlite.model.errors import InputError
from koordlite.model.wire import numatopology

POD = {"kind": "Pod", "metadata": {"namespace": "a", "name": "p"}}
NODE = {"kind": "Node", "metadata": {"name": "n"}}


def write(folder: pathlib.Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("list.json", json.dumps({"kind": "List", "items": [POD, NODE]}), id="kubectl's list"),
        pytest.param("list.yaml", "kind: List\nitems:\n- " + json.dumps(POD) + "\n- " + json.dumps(NODE), id="in YAML"),
        pytest.param("two.yml", f"{json.dumps(POD)}\n---\n{json.dumps(NODE)}\n---\n", id="YAML documents"),
    ],
)
def test_objects_are_found_in_every_form(tmp_path: pathlib.Path, name: str, text: str) -> None:
    found = files.read([write(tmp_path, name, text)])
    assert [len(found.of("Pod")), len(found.of("Node"))] == [1, 1]
    assert not found.problems


def test_items_of_an_api_servers_list_have_no_kind_of_their_own(tmp_path: pathlib.Path) -> None:
    text = json.dumps({"kind": "PodList", "items": [{"metadata": {"name": "p"}}]})
    assert len(files.read([write(tmp_path, "pods.json", text)]).of("Pod")) == 1


def test_a_folder_is_read_with_all_its_files_and_the_last_word_counts(tmp_path: pathlib.Path) -> None:
    write(tmp_path, "1.json", json.dumps(POD))
    write(tmp_path, "2.yaml", json.dumps({**POD, "spec": {"nodeName": "n"}}))
    write(tmp_path, "notes.txt", "not for us")
    found = files.read([str(tmp_path)])
    assert [pod.spec.node_name for pod in found.of("Pod")] == ["n"]
    assert found.repeated == {"Pod": 1}


def test_times_that_yaml_understands_stay_times(tmp_path: pathlib.Path) -> None:
    text = "kind: Pod\nmetadata:\n  name: p\n  creationTimestamp: 2026-01-01T00:00:00Z\n"
    pod = files.read([write(tmp_path, "p.yaml", text)]).of("Pod")[0]
    assert pod.metadata.creation_timestamp == "2026-01-01T00:00:00Z"


def test_kinds_nobody_decides_on_are_counted(tmp_path: pathlib.Path) -> None:
    text = json.dumps({"kind": "List", "items": [{"kind": "Service"}, {"kind": "Service"}, {"metadata": {}}]})
    assert files.read([write(tmp_path, "s.json", text)]).ignored == {"Service": 2, "objects without a kind": 1}


@pytest.mark.parametrize(
    ("poison", "field", "why"),
    [
        pytest.param({"metadata": {"name": "x", "labels": {"a": 1}}}, "$.metadata.labels[...]", "str", id="label"),
        pytest.param({"metadata": {"name": "x"}, "spec": {"priority": "high"}}, "$.spec.priority", "int", id="number"),
        pytest.param({"metadata": {"name": "x"}, "spec": {"containers": {}}}, "$.spec.containers", "array", id="list"),
        pytest.param({"metadata": {}}, "$.metadata.name", "no name", id="nameless"),
        pytest.param({"metadata": []}, "$.metadata", "object", id="metadata that is a list"),
    ],
)
def test_a_poison_object_is_named_and_the_others_stay(
    tmp_path: pathlib.Path, poison: dict[str, object], field: str, why: str
) -> None:
    text = json.dumps({"kind": "List", "items": [{"kind": "Pod", **poison}, POD, NODE]})
    found = files.read([write(tmp_path, "c.json", text)])
    assert [len(found.of("Pod")), len(found.of("Node"))] == [1, 1]
    assert len(found.problems) == 1
    problem = found.problems[0]
    assert problem.field == field
    assert why in problem.why
    assert "c.json: pod" in problem.object


@pytest.mark.parametrize(
    ("name", "text", "where", "why"),
    [
        pytest.param("a.json", '{"kind": "Pod",\n  oops}', "a.json:2:3", "property name", id="JSON, line and column"),
        pytest.param("a.json", "", "a.json:1:1", "Expecting value", id="an empty file"),
        pytest.param("a.yaml", "kind: Pod\nmetadata: [1, 2\n", "a.yaml:3:1", "expected", id="YAML, line and column"),
        pytest.param("a.json", "[1]", "a.json", "not a Kubernetes object", id="no object"),
        pytest.param("a.json", '{"kind":"List","items":5}', "a.json", "array", id="a list without a list"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(
    tmp_path: pathlib.Path, name: str, text: str, where: str, why: str
) -> None:
    with pytest.raises(InputError) as caught:
        files.read([write(tmp_path, name, text)])
    problem = caught.value.problems[0]
    assert problem.object.endswith(where)
    assert why in problem.why


def piped(text: bytes) -> files.Objects:
    """What is read of `text` in the manner of <(...)."""
    reading, writing = os.pipe()
    try:
        os.write(writing, text)
        os.close(writing)
        return files.read([f"/dev/fd/{reading}"])
    finally:
        os.close(reading)


def test_a_pipe_is_read_and_an_empty_one_is_refused() -> None:
    assert list(piped(b"apiVersion: v1\nkind: Node\nmetadata: {name: n}").by_kind["Node"]) == [("", "n")]
    with pytest.raises(InputError, match=r"/dev/fd/[0-9]+: nothing came from the pipe; make one with `kubectl get"):
        piped(b"")


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_input_is_read(tmp_path: pathlib.Path, path: str, kind: str) -> None:
    (tmp_path / "n.json").write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}')
    script = f"from descheduler.snapshot import files; print(*files.read([{path!r}]).by_kind['Node'])"
    words = [sys.executable, "-c", script]
    with (tmp_path / "n.json").open("rb") as file:
        if kind == "file":
            said = subprocess.check_output(words, stdin=file)
        else:
            said = subprocess.run(words, input=file.read(), stdout=subprocess.PIPE, check=True).stdout
    assert said.decode().strip() == "('', 'n')"


def test_every_broken_path_is_named_at_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        files.read([str(tmp_path / "absent"), str(tmp_path / "empty"), write(tmp_path, "b.json", "{")])
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("amount", "counted", "why"),
    [
        pytest.param("1e400", True, "beyond all that can be counted", id="an exponent"),
        pytest.param(10**30, False, "beyond 64 bits", id="a number of JSON"),
    ],
)
def test_a_number_beyond_all_bounds_is_a_problem_of_its_pod(
    cluster: Any, amount: object, counted: bool, why: str
) -> None:
    cluster.node("a")
    cluster.pod("fine", "a")
    cluster.pod("huge", "a")["spec"]["containers"][0]["resources"] = {"requests": {"cpu": amount}}
    plan = cluster.plan()
    assert [pod.pod.name for pod in plan.view.pods()] == (["fine", "huge"] if counted else ["fine"])
    (problem,) = plan.view.problems
    assert problem.object.endswith("pod/default/huge") and why in problem.why


def test_the_command_that_makes_a_snapshot_names_every_kind_that_is_read() -> None:
    short = {"PodDisruptionBudget": "pdb", "PersistentVolumeClaim": "pvc", "PersistentVolume": "pv"}
    plurals = {"PriorityClass": "priorityclasses", "StorageClass": "storageclasses"}
    plurals["NodeResourceTopology"] = "noderesourcetopologies"
    elsewhere = {files.CRANE_KIND, numatopology.KIND, "NodeMetric", "NodeMetrics", "PodMetrics"}
    wanted = {short.get(k) or plurals.get(k) or f"{k.lower()}s" for k in files.SHAPES.keys() - elsewhere}
    assert set(files.KINDS.split(",")) == wanted


@pytest.mark.parametrize("page", ["README.md", "docs/descheduler.md"])
def test_the_pages_make_a_snapshot_by_the_same_command(page: str) -> None:
    text = (pathlib.Path(__file__).parents[3] / page).read_text(encoding="utf-8")
    assert f"kubectl get {files.KINDS} -A -o json > cluster.json" in text
