"""`explain` out of a flight record: as it was at a time, and what differs since then."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated import Emulated

from koordlite.cli import options, recorded
from koordlite.model.errors import InputError

Answer = Any
BEGAN = 1767225600.0
"""The emulated clock begins with 2026."""

# One worker makes what they share: each would have to make it for itself.
pytestmark = pytest.mark.xdist_group("a record")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ninety seconds of an emulated node whose service wakes up after forty."""
    return recorded_run(tmp_path_factory, "small", "steps(0:0.2,40:2)")


def recorded_run(tmp_path_factory: pytest.TempPathFactory, shape: str, demand: str) -> Path:
    """The record of ninety seconds in which a batch pod takes all it gets beside a service with that demand."""
    node = Emulated(shape, tmp_path_factory.mktemp("cluster"))
    node.node(reservation='{"reservedCPUs":"0"}')
    node.pod("web", "LS", demand)
    node.pod("crunch", "BE", "greedy")
    folder = tmp_path_factory.mktemp("record") / "flight"
    words = ["run", "--sandbox", shape, "--cluster", str(node.folder), "--mode", "enforce", "--for", "90"]
    command = [sys.executable, "-m", "koordlite", *words, "--record", str(folder), "--quiet", "--no-http"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder


def test_the_last_moment_answers_as_a_running_agent_would(ask: Callable[..., Answer], record: Path) -> None:
    said = ask("explain", "file", "besteffort/cpuset.cpus", "--record", record)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("as recorded at 2026-01-01 00:01:")
    assert "last write at" in said.out and "because of besteffort: " in said.out


def test_an_earlier_time_answers_as_it_was_then(ask: Callable[..., Answer], record: Path) -> None:
    then = ask("explain", "besteffort", "--record", record, "--at", "2026-01-01T00:00:30Z", "-o", "json")
    now = ask("explain", "besteffort", "--record", record, "-o", "json")
    before, after = (json.loads(said.out)["decisions"][0]["evidence"] for said in (then, now))
    assert before["prod_milli"] < 500
    assert after["prod_milli"] > 1500
    assert before["budget_milli"] > after["budget_milli"]


def test_what_differs_since_then_names_the_terms_that_made_it(ask: Callable[..., Answer], record: Path) -> None:
    said = ask("explain", "besteffort", "--record", record, "--since", "60s")
    assert said.code == 0
    rows = [line.split("  ")[2].strip() for line in said.out.splitlines() if " → " in line]
    assert {"prod", "budget"} <= set(rows)
    assert "capacity" not in rows, "what stayed is not told"
    found = json.loads(ask("explain", "besteffort", "--record", record, "--since", "60s", "-o", "json").out)
    assert found["now"] - found["then"] == pytest.approx(60.0, abs=1.5)
    assert "prod_milli" in found["decisions"][0]["different"]


def test_a_pod_since_then_is_told_by_what_was_decided_about_it(ask: Callable[..., Answer], record: Path) -> None:
    said = ask("explain", "pod", "ns/crunch", "--record", record, "--since", "60s")
    assert (said.code, said.err) == (0, "")
    assert "pod/ns/crunch  (" in said.out and "then  " in said.out and "now   " in said.out
    nobody = ask("explain", "pod", "nobody", "--record", record, "--since", "60s")
    assert nobody.code != 0 and "nothing was decided about pod nobody" in nobody.err


def test_allocatable_since_then_is_about_every_offer(ask: Callable[..., Answer], record: Path) -> None:
    said = ask("explain", "allocatable", "--record", record, "--since", "60s")
    assert "node/kubernetes.io/batch-cpu" in said.out and "node/kubernetes.io/mid-memory" in said.out
    assert "no number differs" in said.out or "hp" in said.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["--at", "2020-01-01T00:00:00Z"], "it has no moment of that time", id="before the record"),
        pytest.param(["--at", "yesterday"], "neither a duration nor a time", id="a word"),
        pytest.param(["--since", "soon"], "neither a duration nor a time", id="another word"),
    ],
)
def test_a_time_that_cannot_be_answered_is_a_clear_error(
    ask: Callable[..., Answer], record: Path, words: list[str], why: str
) -> None:
    said = ask("explain", "besteffort", "--record", record, *words)
    assert (said.code, said.out) == (2, "")
    assert why in said.err


def test_no_record_is_a_clear_error(ask: Callable[..., Answer], tmp_path: Path) -> None:
    said = ask("explain", "besteffort", "--record", tmp_path)
    assert said.code == 2
    assert "no record" in said.err


def test_a_subject_nobody_knows_is_an_error_in_a_record_too(ask: Callable[..., Answer], record: Path) -> None:
    assert "nothing was decided about 'x'" in ask("explain", "x", "--record", record).err


def test_writes_of_others_are_found_in_a_record_as_the_agent_finds_them(record: Path) -> None:
    _, past = recorded.at(str(record), None)
    assert past.foreign == {}, "nobody else wrote there"
    assert any(write.cause and write.cause.reason == "BECPUBudget" for write in past.writes.values())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", BEGAN - 60),
        ("1h30m", BEGAN - 5400),
        ("2025-12-31T23:00:00Z", BEGAN - 3600),
        ("2026-01-01T01:00:00+01:00", BEGAN),
        ("2026-01-01", BEGAN),
    ],
)
def test_moments_are_durations_ago_or_times(text: str, seconds: float) -> None:
    assert options.time_of(text, "--at", now=BEGAN) == seconds


def test_a_moment_that_is_neither_says_what_to_write() -> None:
    with pytest.raises(InputError, match="write 24h or 90m"):
        options.time_of("noon", "--at", now=0.0)


def test_a_shorter_record_is_used_whole_and_says_so(ask: Callable[..., Answer], record: Path) -> None:
    said = ask("explain", "besteffort", "--record", record, "--since", "24h")
    assert said.code == 0
    assert said.out.startswith("the record begins at 2026-01-01 00:00:00 UTC, 89.0 s before its end: all of it is used")
    assert "then: 2026-01-01 00:00:10 UTC" in said.out, "use is a rate: the first moment has none"
    played = ask("replay", record, "--since", "24h", "--set", "cpuSuppressThresholdPercent=70")
    assert "all of it is used" in played.out
    assert "90 rounds" in played.out


@pytest.mark.parametrize("words", [("explain", "besteffort", "--record"), ("replay",)])
def test_a_time_after_the_record_is_an_error_with_the_period(
    ask: Callable[..., Answer], record: Path, words: tuple[str, ...]
) -> None:
    said = ask(*words, record, "--since", "2030-01-01T00:00:00Z")
    assert said.code == 2
    assert "the record covers 2026-01-01 00:00:00 UTC to 2026-01-01 00:01:29 UTC" in said.err


def test_the_pods_whose_use_changed_most_are_named(ask: Callable[..., Answer], record: Path) -> None:
    said = ask("explain", "besteffort", "--record", record, "--since", "60s")
    found = next(line for line in said.out.splitlines() if "use that changed most" in line)
    assert found.strip().startswith("use that changed most: ns/web +1.")
    assert "crunch" not in found, "best effort is what is limited, not why"


def test_the_time_in_between_is_told_of_best_effort(
    ask: Callable[..., Answer], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`crunch` takes all it gets, and `web` wakes up after forty seconds: it leaves less, and nobody else does."""
    record = recorded_run(tmp_path_factory, "intel-2s-ht", "steps(0:2,40:14)")
    said = ask("explain", "besteffort", "--record", record, "--since", "24h")
    lines = said.out.splitlines()
    assert lines[1].startswith("best effort was held back for ")
    assert next(line for line in lines if line.startswith("  caused by")).startswith("  caused by  ns/web 100 % (")
    assert "  evicted    no pod" in lines
    found = json.loads(ask("explain", "besteffort", "--record", record, "--since", "24h", "-o", "json").out)["heldBack"]
    assert found["deepest_at"] >= BEGAN + 40
    assert found["deepest_milli"] < found["quiet_limit_milli"]
    assert 0 < found["held_back_seconds"] <= found["seconds"]
    assert [each["name"] for each in found["causes"]] == ["ns/web"]
    assert "held back" not in ask("explain", "pools", "--record", record, "--since", "24h").out
