"""Scenario files: every mistake at once, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordlite.lab.simulation import reading
from koordlite.model.errors import ConfigError


def wrong(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        reading.parse(text, "s.yaml")
    return str(refused.value)


@pytest.mark.parametrize("text", ["", "# to be written", "---\n", "{}", "null"])
def test_a_file_that_writes_nothing_is_no_scenario(text: str) -> None:
    assert "s.yaml: the file describes no scenario: there is no work and no event; write at least" in wrong(text)


def test_what_is_not_written_is_ten_quiet_minutes() -> None:
    play = reading.parse("about: Nobody works here.", "s.yaml")
    assert play.scenario.seconds == 600
    assert play.name == "s"
    assert reading.in_force(play).strategies["cpuSuppress"].mode == "enforce"


def test_all_mistakes_are_told_at_once_with_their_places() -> None:
    said = wrong(
        """
machine: vax
duration: soon
pods:
  - {name: web, cpu: lots}
  - {nmae: web}
settings: {agent: {intervalSecond: 1}, strategies: {cpuSuppress: {mode: never}}}
events:
  - {at: 1m}
expect:
  - {measure: happiness, least: 1}
  - {measure: writes}
"""
    )
    for place in (
        "s.yaml:2:10: $.machine",
        "s.yaml:3:11: $.duration",
        "s.yaml:5:22: $.pods[0].cpu",
        "s.yaml:6:6: $.pods[1]",
        "$.settings.agent",
        "$.settings.strategies.cpuSuppress.mode",
        "$.events[0]",
        "$.expect[0].measure",
        "$.expect[1]",
    ):
        assert place in said, place


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("events: [{at: 11m, remove: [x]}]", "after the end"),
        ("expect: [{measure: writes, most: 1, from: 10m}]", "after the end"),
        ("expect: [{measure: unmetPercent, most: 1}]", "of whom"),
        ("expect: [{measure: ticksWith, most: 1}]", "of whom"),
        ("expect: [{measure: writes, equals: x}]", "least and most are for numbers"),
        ("expect: [{measure: file, of: /x, most: 1}]", "equals is for file"),
        ("expect: [{measure: cpus, of: a/b, equals: x, least: 1}]", "equals is for file"),
        ("duration: 8d", "duration"),
        ("duration: 200h", "to a week"),
        ("stepSeconds: 2", "out of range"),
        ("manifests: nowhere", "no such folder"),
        ("pods: [{name: x, count: 0}]", "out of range"),
        ("mode: force", "accepted words"),
        ("events: [{at: 1m, pause: {for: ever}}]", "for"),
        ("machine: [", "not YAML"),
    ],
)
def test_what_can_never_come_about_is_refused(text: str, why: str) -> None:
    assert why in wrong(text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5", 1.5), ("90s", 90), ("1h30m", 5400), ("0s", 0)])
def test_times_are_durations_or_seconds(text: str, seconds: float) -> None:
    play = reading.parse(f"events: [{{at: {text}, remove: [x]}}]\nduration: 2h", "s.yaml")
    assert play.scenario.events[0].seconds == seconds


def test_a_variant_is_a_koordlite_yaml(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text("agent: {intervalSeconds: 7}\n")
    play = reading.variant(reading.parse("about: x", "s.yaml"), tmp_path / "slow.yaml")
    assert (play.label, play.settings.agent.interval_seconds) == ("slow", 7)


def test_a_variant_is_a_config_map_over_that_of_the_scenario(tmp_path: Path) -> None:
    names = "{name: slo-controller-config, namespace: koordinator-system}"
    manifest = f'apiVersion: v1\nkind: ConfigMap\nmetadata: {names}\ndata: {{b: "2"}}\n'
    (tmp_path / "b.yaml").write_text(manifest)
    play = reading.variant(reading.parse('config: {a: "1", b: "1"}', "s.yaml"), tmp_path / "b.yaml")
    assert play.scenario.config == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Pod\napiVersion: v1\nmetadata: {name: x}\n", "0 ConfigMaps"),
        ("agnet: {}\n", "unknown key"),
        ("a: [", "YAML"),
    ],
)
def test_a_variant_that_is_neither_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "v.yaml").write_text(text)
    with pytest.raises(ConfigError, match=why):
        reading.variant(reading.parse("about: x", "s.yaml"), tmp_path / "v.yaml")


def test_what_is_off_stays_off_and_modes_can_be_taken_as_written() -> None:
    settings = "settings: {strategies: {resctrl: {mode: 'off'}}}\n"
    assert reading.in_force(reading.parse(settings, "s.yaml")).strategies["resctrl"].mode == "off"
    chosen = reading.in_force(reading.parse(f"{settings}mode: asWritten\n", "s.yaml")).strategies
    assert (chosen["resctrl"].mode, chosen["cpuSuppress"].mode) == ("off", "observe")
