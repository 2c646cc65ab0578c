"""A policy that changes while the descheduler runs: the last good one holds."""

from __future__ import annotations

import os
import pathlib
import re

import pytest

from descheduler.policy.watched_file import PolicyFile
from koordlite.model.errors import ConfigError

GOOD = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nmaxNoOfPodsToEvictTotal: {limit}\n"
KOORDINATOR = (
    "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\ndeschedulingInterval: 90s\ndryRun: true\n"
)


def limit(file: PolicyFile) -> object:
    return file.document.max_no_of_pods_to_evict_total


def test_a_change_is_taken_and_no_change_is_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD.format(limit=1))
    file = PolicyFile(str(path))
    assert not file.refresh()
    path.write_text(GOOD.format(limit=2))
    assert file.refresh() and limit(file) == 2


@pytest.mark.parametrize("broken", ["kind: Nonsense", "{", GOOD.format(limit=-1)])
def test_a_broken_one_is_told_and_the_last_good_one_holds(tmp_path: pathlib.Path, broken: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD.format(limit=1))
    file = PolicyFile(str(path))
    path.write_text(broken)
    assert not file.refresh() and file.problems and limit(file) == 1
    assert not file.refresh() and file.problems, "the problem stays while the file does"
    path.write_text(GOOD.format(limit=3))
    assert file.refresh() and not file.problems and limit(file) == 3


def test_the_good_text_again_ends_the_problem(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD.format(limit=1))
    file = PolicyFile(str(path))
    path.write_text("{")
    file.refresh()
    path.write_text(GOOD.format(limit=1))
    file.refresh()
    assert not file.problems


def test_a_file_that_went_away_is_told_and_one_that_came_back_is_taken(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD.format(limit=1))
    file = PolicyFile(str(path))
    path.unlink()
    assert not file.refresh() and "No such file" in str(file.problems[0])
    path.write_text(GOOD.format(limit=1))
    file.refresh()
    assert not file.problems and limit(file) == 1


def test_a_config_map_swapped_by_kubelet_is_seen(tmp_path: pathlib.Path) -> None:
    for name, most in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text(GOOD.format(limit=most))
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "policy.yaml").symlink_to("data/policy.yaml")
    file = PolicyFile(str(tmp_path / "policy.yaml"))
    (tmp_path / "data.new").symlink_to("two")
    os.replace(tmp_path / "data.new", tmp_path / "data")
    assert file.refresh() and limit(file) == 2


def test_there_has_to_be_a_good_one_at_the_start(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError):
        PolicyFile(str(tmp_path / "none.yaml"))


def test_what_koordinators_file_says_of_the_run(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(KOORDINATOR)
    file = PolicyFile(str(path))
    assert (file.interval_seconds, file.dry_run) == (90.0, True)
    assert (PolicyFile(None).interval_seconds, PolicyFile(None).dry_run) == (0.0, False)


def test_a_start_with_a_broken_one_goes_on_with_the_one_that_was_kept(tmp_path: pathlib.Path) -> None:
    path, state = tmp_path / "policy.yaml", tmp_path / "state"
    state.mkdir()
    path.write_text(GOOD.format(limit=1))
    PolicyFile(str(path), str(state))
    path.write_text("kind: Nonsense")
    file = PolicyFile(str(path), str(state))
    assert limit(file) == 1
    assert re.search(r"the last good one of \d{4}-\d\d-\d\dT.* holds", file.problems[0].do)
    assert not file.refresh() and file.problems
    path.write_text(GOOD.format(limit=2))
    assert file.refresh() and not file.problems
    path.unlink()
    assert limit(PolicyFile(str(path), str(state))) == 2


def test_without_a_kept_one_a_broken_one_ends_the_start(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("kind: Nonsense")
    with pytest.raises(ConfigError, match="Nonsense"):
        PolicyFile(str(path), str(tmp_path))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD.format(limit=1))
    notices = PolicyFile(str(path), str(tmp_path / "absent")).notices
    assert next(each.why for each in notices if "good-policy" in each.object).count("No such file") == 1
