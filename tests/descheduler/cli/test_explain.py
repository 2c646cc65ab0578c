"""`descheduler explain POD`: what each plugin goes by; and `plan` with a part of it shown."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from descheduler import cli, plugins
from descheduler.cycle import planner
from descheduler.plan import PluginAnswer
from descheduler.policy import reader
from descheduler.snapshot import assemble, files
from koordlite.model import duration

ROOT = pathlib.Path(__file__).parents[3]
PERF = ROOT / "tests" / "perf" / "descheduler"
POLICY = PERF / "policy.yaml"
Plan = Callable[[str], dict[str, PluginAnswer]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Twelve nodes of great variety."""
    sys.path.insert(0, str(PERF))
    try:
        import varied  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(PERF))
    folder = tmp_path_factory.mktemp("varied")
    varied.write(folder, 12)
    return folder


@pytest.fixture(scope="module")
def every(folder: pathlib.Path) -> list[PluginAnswer]:
    """What every plugin that has numbers says of some pods."""
    setup = reader.setup(reader.load(str(POLICY), []))
    view = assemble.view(files.read([str(folder)]), "")
    asked = list(view.by_uid.values())[::17]
    said = [planner.plan(view, setup, explained=pod.key).explained for pod in asked]
    return [one for answers in said for answer in answers for one in answer.plugins]


def test_every_plugin_of_the_policy_answers_for_every_pod(every: list[PluginAnswer]) -> None:
    asked = {name for name, plugin in plugins.discover().items() if plugin.numbers}
    assert len(asked) >= 13
    assert {one.plugin for one in every} <= asked and len({one.plugin for one in every}) == 12
    assert all(one.text for one in every)


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        ("PodLifeTime", " of 90d"),
        ("RemovePodsHavingTooManyRestarts", " of 100 restarts"),
        ("RemoveDuplicates", " pods of "),
        ("HighNodeUtilization", "nearly empty up to cpu 15.0%"),
        ("LowNodeUtilization", "too full above cpu 80.0%"),
        ("ReservedCPUs", "kept on "),
    ],
)
def test_the_answer_has_the_numbers(every: list[PluginAnswer], plugin: str, words: str) -> None:
    assert any(words in one.text for one in every if one.plugin == plugin and one.kind == "fine")


def test_a_pod_that_nothing_is_wrong_with_is_still_explained(folder: pathlib.Path, capsys: Any) -> None:
    view = assemble.view(files.read([str(folder)]), "")
    name = next(iter(view.by_uid.values())).key
    words = ["explain", name, "--snapshot", str(folder), "--policy", str(POLICY)]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "PLUGINS of profile all" in shown and "PLUGINS of profile pack" in shown
    assert cli.main([*words, "-o", "json"]) == 0
    (pod,) = json.loads(capsys.readouterr().out)["pods"]
    assert pod["pod"] == name and [one["profile"] for one in pod["profiles"]] == ["all", "pack"]
    assert {one["kind"] for one in pod["profiles"][0]["plugins"]} <= {"found", "fine", "not judged", "not chosen"}


def test_a_node_that_is_not_ready_is_not_judged(cluster: Any, tmp_path: pathlib.Path, capsys: Any) -> None:
    cluster.node("sick")["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    cluster.pod("ill", "sick", owner="app")
    path = tmp_path / "c.json"
    path.write_text(cluster.json, encoding="utf-8")
    assert cli.main(["explain", "ill", "--snapshot", str(path), "--policy", str(POLICY)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("NOT JUDGED") and "not chosen PodLifeTime" in shown


def test_a_plan_can_be_shown_in_part(folder: pathlib.Path, capsys: Any) -> None:
    words = ["plan", "--snapshot", str(folder), "--policy", str(POLICY)]
    assert cli.main(words) == 0
    whole = capsys.readouterr().out
    assert cli.main([*words, "--only", "RemoveDuplicates", "--limit", "2"]) == 0
    part = capsys.readouterr().out
    assert len(part) < len(whole) and "TooManyReplicasOnNode" in part
    assert "\nshown     only RemoveDuplicates: " in part
    assert part.count("TooManyReplicasOnNode (RemoveDuplicates") <= 4
    assert cli.main([*words, "--only", "zebra"]) == 2
    assert "no plugin, namespace or node has this name" in capsys.readouterr().err
    assert cli.main([*words, "--limit", "-1"]) == 2


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (150, "2m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (15_000, "4h10m"),
        (100_000, "27h"),
        (180_000, "2d2h"),
        (700_000, "8d"),
        (30 * 86400, "30d"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_those_of_kubectl(seconds: int, shown: str) -> None:
    assert duration.age(seconds) == shown
