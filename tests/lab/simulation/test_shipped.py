"""The scenarios that ship do what they say, and the same in every run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import slices

from koordlite.lab.simulation import reading, runner

FOLDER = Path(__file__).parents[3] / "configs" / "scenarios"
SHIPPED = sorted(FOLDER.glob("*.yaml"))


QUICK = "reservation-added"
"""The scenario of every run, beside the spike that docs/quick-start.md plays."""


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem) if p.stem == QUICK else slices.long(p, id=p.stem) for p in SHIPPED]
)
def test_everything_comes_out_as_expected(path: Path) -> None:
    run = runner.play(reading.load(path))
    assert run.checks
    assert [check for check in run.checks if not check.ok] == []


def test_the_classic_situations_are_there() -> None:
    assert {
        "daily-wave",
        "spike",
        "noisy-best-effort",
        "reservation-added",
        "lse-arrives",
        "config-edited",
        "agent-killed",
        "resctrl-squeeze",
    } <= {path.stem for path in SHIPPED}


def simulated(tmp_path: Path, hashes: str, *words: str) -> tuple[bytes, bytes]:
    page = tmp_path / f"{hashes}.html"
    command = [sys.executable, "-m", "koordlite", "simulate", *words, "-o", "json", "--html", str(page)]
    environment = {**os.environ, "PYTHONHASHSEED": hashes}
    done = subprocess.run(command, capture_output=True, timeout=120, check=True, env=environment)
    return done.stdout, page.read_bytes()


@pytest.mark.sliced
@pytest.mark.parametrize("name", slices.first(["reservation-added", "noisy-best-effort"]))
def test_two_processes_give_the_same_bytes_and_another_seed_gives_others(tmp_path: Path, name: str) -> None:
    scenario = str(FOLDER / f"{name}.yaml")
    if not slices.WHOLE:
        text = Path(scenario).read_text(encoding="utf-8").partition("expect:")[0]
        scenario = str(tmp_path / "short.yaml")
        Path(scenario).write_text(text.replace("duration: 5m", "duration: 1m").replace("at: 2m", "at: 30s"))
    first = simulated(tmp_path, "1", scenario, "--seed", "3")
    assert first == simulated(tmp_path, "2", scenario, "--seed", "3")
    assert first[0] != simulated(tmp_path, "1", scenario, "--seed", "4")[0]
