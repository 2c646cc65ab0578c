"""`koordlite profile apply`, and what `check-config --cluster` says about profiles."""

from __future__ import annotations

from pathlib import Path

import cyaml
import pytest

from koordlite import cli

PROFILE = """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: night-batch}
spec:
  namespaceSelector: {matchLabels: {colocation: "true"}}
  qosClass: BE
  priorityClassName: koord-batch
---
kind: Namespace
metadata: {name: night, labels: {colocation: "true"}}
"""
POD = """
kind: Pod
metadata: {name: crunch, namespace: night, annotations: {a: "two\\nlines"}}
spec:
  containers: [{name: main, image: "crunch:1", resources: {limits: {cpu: 250m, memory: 1Gi}}}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "profile.yaml").write_text(PROFILE)
    (tmp_path / "pod.yaml").write_text(POD)
    return tmp_path


def apply(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli.main(["profile", "apply", "--profile", str(folder / "profile.yaml"), str(folder / "pod.yaml")])
    return code, *capsys.readouterr()


def test_the_pod_is_printed_as_it_would_be_admitted_and_why(folder, capsys):
    code, out, _ = apply(folder, capsys)
    assert code == 0
    assert cyaml.safe_load(out)["spec"]["containers"][0]["resources"] == {
        "limits": {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "1Gi"},
        "requests": {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "1Gi"},
    }
    assert "# taken by profile night-batch\n" in out
    assert "# metadata.labels[koordinator.sh/qosClass]: none -> BE (profile night-batch)\n" in out
    assert "# note: no PriorityClass koord-batch was given; 5500 is assumed\n" in out


def test_a_given_priority_class_counts(folder, capsys):
    with (folder / "profile.yaml").open("a") as file:
        file.write("---\nkind: PriorityClass\nmetadata: {name: koord-batch}\nvalue: 5001\n")
    _, out, _ = apply(folder, capsys)
    assert cyaml.safe_load(out)["spec"]["priority"] == 5001
    assert "assumed" not in out


def test_a_pod_that_no_profile_takes_is_printed_as_it_is(folder, capsys):
    (folder / "pod.yaml").write_text(POD.replace("night", "day"))
    code, out, _ = apply(folder, capsys)
    assert code == 0
    assert cyaml.safe_load(out) == cyaml.safe_load(POD.replace("night", "day"))
    assert out.startswith("# taken by no profile")


def test_a_line_end_in_a_value_does_not_end_the_comment(folder, capsys):
    (folder / "profile.yaml").write_text(
        PROFILE
        + "---\n"
        + PROFILE.replace("night-batch", "other").replace("qosClass: BE", 'annotations: {a: "one\\nkind: Service"}')
    )
    _, out, _ = apply(folder, capsys)
    assert cyaml.safe_load(out)["kind"] == "Pod"
    assert "two\\nlines -> one\\nkind: Service" in out


@pytest.mark.parametrize(
    ("file", "edit", "words"),
    [
        ("profile.yaml", ("qosClass: BE", "qosClas: BE"), ["Profile night-batch", "unknown field qosClas"]),
        ("profile.yaml", ("koord-batch", "gone"), ["spec.priorityClassName", "gone", "koord-batch"]),
        ("pod.yaml", ("250m", "much"), ["Pod crunch", "resources.limits.cpu", "much"]),
        ("pod.yaml", ("containers: [", "containers: 7 #"), ["Pod crunch", "spec.containers"]),
        ("pod.yaml", ("kind: Pod", "kind: Service"), ["there is no Pod in it"]),
        ("pod.yaml", ("kind: Pod", "kind: ["), ["not YAML"]),
    ],
)
def test_bad_input_is_named_with_file_and_field(folder, capsys, file, edit, words):
    path = folder / file
    path.write_text(path.read_text().replace(*edit))
    code, _, err = apply(folder, capsys)
    assert code == 2
    assert all(word in err for word in words), err


def test_a_file_that_is_not_there_is_named(folder, capsys):
    (folder / "pod.yaml").unlink()
    code, _, err = apply(folder, capsys)
    assert (code, "pod.yaml" in err) == (2, True)


def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    (folder / "node.yaml").write_text("kind: Node\nmetadata: {name: n1}\nstatus: {capacity: {cpu: 8}}\n")
    return cli.main(["check-config", "--cluster", str(folder)]), capsys.readouterr().out


def test_check_config_says_which_profile_would_take_which_pod(folder, capsys):
    code, text = check(folder, capsys)
    assert (code, text.splitlines()) == (
        0,
        ["pod/night/crunch would be taken by profile night-batch", "no problems"],
    )


def test_check_config_says_when_the_labels_of_a_namespace_are_missing(folder, capsys):
    (folder / "profile.yaml").write_text(PROFILE.partition("---")[0])
    code, text = check(folder, capsys)
    assert code == 0
    assert "pod/night/crunch: profile night-batch asks for labels of the namespace" in text


def test_a_profile_that_cannot_be_read_is_a_problem_for_check_config(folder, capsys):
    (folder / "profile.yaml").write_text(PROFILE.replace("qosClass: BE", "probability: often"))
    code, text = check(folder, capsys)
    assert code == 1
    assert "profile.yaml:" in text
    assert "spec.probability = 'often'" in text


CONFIGS = Path(__file__).parents[2] / "configs"


def test_the_tour_holds_the_pod_of_its_deployment_as_admitted(capsys):
    colocated = str(CONFIGS / "colocated.yaml")
    assert cli.main(["profile", "apply", "--profile", colocated, colocated]) == 0
    made = cyaml.safe_load(capsys.readouterr().out)
    held = cyaml.safe_load((CONFIGS / "tour/7-admitted.yaml").read_text())
    for placed in ("uid", "creationTimestamp"):
        del held["metadata"][placed]
    assert held.pop("status") == {"phase": "Running"}
    assert held["spec"].pop("nodeName") == "tour-a"
    assert made == held


def test_a_workload_without_a_template_is_named(folder, capsys):
    (folder / "pod.yaml").write_text("kind: Deployment\nmetadata: {name: d}\nspec: {replicas: 1}\n")
    code, _, err = apply(folder, capsys)
    assert code == 2
    assert "Deployment d" in err and "template" in err


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"])
def test_the_pod_of_a_workload_is_admitted(folder, capsys, kind):
    pod = cyaml.safe_load(POD)
    owner = {"kind": kind, "metadata": {"name": "d", "namespace": "night"}, "spec": {"template": {"spec": pod["spec"]}}}
    (folder / "pod.yaml").write_text(cyaml.safe_dump(owner))
    code, out, _ = apply(folder, capsys)
    made = cyaml.safe_load(out)
    assert code == 0
    assert (made["metadata"]["name"], made["metadata"]["labels"]) == ("d-1", {"koordinator.sh/qosClass": "BE"})
