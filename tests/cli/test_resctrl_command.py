"""`koordlite resctrl show` and `plan` on machines that have it, or have not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated import Emulated

Ask = Callable[..., Any]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Manifests for the Intel machine, all three classes enabled."""
    node = Emulated("intel-2s-ht", tmp_path)
    node.pod("web", "LS", "1")
    node.pod("crunch", "BE", "1")
    return node.folder


def test_show_needs_no_cluster_and_draws_the_ways(ask: Ask) -> None:
    answer = ask("resctrl", "show", "--sandbox", "amd-ccd")
    assert answer.code == 0
    assert "16 ways in caches 0-1,4-5" in answer.out
    assert "no limit is at least 2048" in answer.out
    assert answer.out.count("·") > 16


@pytest.mark.parametrize("action", ["show", "plan"])
def test_a_machine_without_resctrl_says_so(ask: Ask, manifests: Path, action: str) -> None:
    answer = ask("resctrl", action, "--sandbox", "small", "--cluster", manifests)
    assert answer.code == 1
    assert "has no resctrl" in " ".join(answer.out.split())


def test_plan_says_what_would_be_programmed_and_by_which_rule(ask: Ask, cluster: Path) -> None:
    answer = ask("resctrl", "plan", "--sandbox", "intel-2s-ht", "--cluster", cluster)
    assert answer.code == 0
    words = " ".join(answer.out.split())
    assert "30 % of 12 ways is 4 ways: mask f" in words
    assert "make group BE" in words
    assert "3 of 7 made: BE, LS, LSR" in words


def test_what_would_be_refused_is_listed_and_ends_with_1(ask: Ask, cluster: Path) -> None:
    file = cluster / "pod-web.yaml"
    note = "    node.koordinator.sh/resctrl: '{\"mb\":7}'\n"
    file.write_text(file.read_text().replace("  annotations:\n", f"  annotations:\n{note}"))
    answer = ask("resctrl", "plan", "--sandbox", "intel-2s-ht", "--cluster", cluster)
    assert answer.code == 1
    refused = answer.out.partition("refused or not possible:")[2]
    assert "pod/ns/web: the annotation cannot be read" in refused


@pytest.mark.parametrize(("action", "kind"), [("show", "koordlite-resctrl"), ("plan", "koordlite-resctrl-plan")])
def test_as_json(ask: Ask, cluster: Path, action: str, kind: str) -> None:
    answer = ask("resctrl", action, "--sandbox", "intel-2s-ht", "--cluster", cluster, "-o", "json")
    found = json.loads(answer.out)
    assert found["kind"] == kind
    assert found["machine"]["caches"]["L3"]["ways"] == 12
    assert ("BE" in found["machine"]["groups"]) == (action == "plan")


def test_an_unknown_machine_is_named(ask: Ask) -> None:
    answer = ask("resctrl", "show", "--sandbox", "nope")
    assert answer.code == 2
    assert "no such machine" in answer.err
