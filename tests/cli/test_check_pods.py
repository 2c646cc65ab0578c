"""`koordlite check-config --cluster`: mistakes of the node's annotations, and pods that Koordinator would refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlite import cli

NODE = "kind: Node\nmetadata: {{name: n1, annotations: {{{notes}}}}}\nstatus: {{capacity: {{cpu: 8}}}}\n"
POD = """
kind: Pod
metadata: {name: crunch, namespace: ns, labels: {koordinator.sh/qosClass: LS}}
spec: {containers: [{name: main, resources: {requests: {kubernetes.io/batch-cpu: 1000}}}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "node.yaml").write_text(NODE.format(notes=""))
    return tmp_path


def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    return cli.main(["check-config", "--cluster", str(folder)]), capsys.readouterr().out


def test_a_pod_the_webhook_would_refuse_is_a_warning_and_no_mistake(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pod.yaml").write_text(POD)
    code, text = check(folder, capsys)
    assert "warning: pod/ns/crunch" in text
    assert "labels.koordinator.sh/qosClass: Required value" in text
    assert (code, text.splitlines()[-1]) == (0, "no problems")


def test_a_pod_that_is_fine_is_not_mentioned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pod.yaml").write_text(
        POD.replace("qosClass: LS", "qosClass: BE, koordinator.sh/priority-class: koord-batch")
    )
    assert check(folder, capsys) == (0, "no problems\n")


def test_a_misspelt_name_in_the_reservation_is_a_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "node.yaml").write_text(NODE.format(notes="""node.koordinator.sh/reservation: '{"reservedCpu":"0"}'"""))
    code, text = check(folder, capsys)
    assert code == 1
    assert "did you mean reservedCPUs?" in text


@pytest.mark.parametrize("key", ["reservation", "system-qos-resource", "thirdPartyAllocations", "raw-allocatable"])
def test_annotations_of_the_node_are_checked(folder: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "node.yaml").write_text(NODE.format(notes=f"node.koordinator.sh/{key}: '{{'"))
    code, text = check(folder, capsys)
    assert code == 1
    assert f"node/n1: node.koordinator.sh/{key}" in text
