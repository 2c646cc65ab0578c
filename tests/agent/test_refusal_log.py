"""What the log says of a refusal: which place, and why; a long document in full is for the report."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import Emulated

PLACEMENT = "placement.koordlite.io/containers"


def test_a_refused_document_is_shortened_in_the_log_and_whole_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Emulated("small", tmp_path)
    node.pod("web", "LSR", "1", request="2", status='{"cpuset":"2-3"}')

    def refuse(changes: object) -> None:
        raise PermissionError(13, "forbidden")

    monkeypatch.setattr(node.cluster, "publish", refuse)
    with node.journal() as journal:
        ticks = node.ticks(node.agent(journal), 3)
    lines = [each.getMessage() for each in caplog.records if "refused: " in each.getMessage()]
    steps = [step for tick in ticks for step in tick.applied if str(step.place).endswith(PLACEMENT)]
    assert lines
    assert all(line.startswith("refused: ") and line.endswith("forbidden") and len(line) < 250 for line in lines)
    assert any(len(step.value) > 250 for step in steps)


def test_one_refusal_of_many_places_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Emulated("small", tmp_path)

    def refuse(changes: object) -> None:
        raise PermissionError(13, "cannot set blockOwnerDeletion")

    monkeypatch.setattr(node.cluster, "publish", refuse)
    with node.journal() as journal:
        ticks = node.ticks(node.agent(journal), 1)
    refused = [step for tick in ticks for step in tick.applied if "blockOwnerDeletion" in step.error]
    (line,) = [each.getMessage() for each in caplog.records if "blockOwnerDeletion" in each.getMessage()]
    assert len(refused) > 3
    assert f" and {len(refused) - 1} more: " in line
