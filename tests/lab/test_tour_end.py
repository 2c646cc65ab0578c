"""The end of the tour: ten lines made of the reports that its acts left."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from descheduler import cli as descheduler
from koordlite import cli

ROOT = pathlib.Path(__file__).parents[2]
MOVE = "  12 s  descheduler   job for gateway-7d4f: Succeeded Complete\n"


def end(out: pathlib.Path) -> list[str]:
    """What the tour ends in."""
    command = [sys.executable, "scripts/tour-end", "bin", str(out)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    return ran.stdout.splitlines()


@pytest.fixture
def out(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> pathlib.Path:
    """The acts' reports, of a run of half a minute."""
    node = ["--sandbox", "intel-2s-ht", "--cluster", "configs/tour", "--node", "tour-a", "--mode", "enforce"]
    assert cli.main(["run", *node, "--no-http", "--for", "30", "--speed", "1000", "--report", str(tmp_path)]) == 0
    assert descheduler.main(["plan", "--snapshot", "configs/tour", "--report", str(tmp_path)]) == 0
    capsys.readouterr()
    assert cli.main(["scheduler", "try", "configs/tour-scheduling", "shop/solver"]) == 0
    (tmp_path / "scheduler.txt").write_text(capsys.readouterr().out, encoding="utf-8")
    (tmp_path / "move.txt").write_text(MOVE, encoding="utf-8")
    return tmp_path


def changed(path: pathlib.Path, **summary: Any) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    document["summary"] |= summary
    path.write_text(json.dumps(document), encoding="utf-8")


def test_it_ends_in_ten_lines_and_says_so_when_something_went_wrong(
    out: pathlib.Path,
) -> None:
    lines = end(out)
    assert len(lines) <= 10
    assert lines[0].startswith("Batch work got ")
    assert "  plan       2 to evict, 0 kept: shop/gateway-7d4f, shop/search-5c9b" in lines
    admission = "without the extender: sched-a, kubelet refuses it; with the extender: sched-b, kubelet admits the pod"
    assert f"  scheduler  {admission}" in lines
    assert "  move       gateway-7d4f: Succeeded Complete after 12 s, its new place held before it went" in lines
    changed(out / "run.json", refusals=1)
    assert end(out)[0] == "The tour did not come out as it should: see below."
    changed(out / "run.json", refusals=0, secondsLate=10.0)
    assert end(out)[0] == "The tour did not come out as it should: see below."


def test_the_tour_ends_in_it() -> None:
    tour = (ROOT / "scripts/tour").read_text(encoding="utf-8")
    assert tour.rindex('"$out/move.txt"') < tour.index('scripts/tour-end "$bin" "$out"')
