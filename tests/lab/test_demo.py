"""The demonstration cluster fits every machine the sandbox can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlite.cli import main
from koordlite.lab import demo, shapes
from koordlite.lab.machine.shapes import machine

ROOT = Path(__file__).parents[2]


def test_the_tours_machine_gets_the_tours_manifests(tmp_path: Path) -> None:
    demo.write(tmp_path, machine("intel-2s-ht"))
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in (ROOT / "configs" / "tour").iterdir()}


@pytest.mark.parametrize("shape", shapes())
def test_a_shape_alone_is_a_node_with_work_and_without_problems(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--sandbox", shape]) == 0
    shown = capsys.readouterr()
    assert "tour-a: observing" in shown.out
    assert "problem" not in shown.out
    assert not shown.err
