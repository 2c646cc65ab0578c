"""A local user without rights gains nothing by what he leaves where the agent keeps its state."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlite.host import kept_file, pause_file
from koordlite.host.journal import file, journal
from koordlite.host.journal.journal import Journal
from koordlite.model.errors import InputError, JournalError
from koordlite.model.slo.settings import GoodDocument
from koordlite.model.status import Pause

BOOT = "b"
NOBODY = 65534
GOOD = {"resource-qos-config": GoodDocument("{}")}
PAUSE = Pause(until=2_000_000_000.0, because="x", release=False, by="command")
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: Journal.open(folder, boot_id=BOOT).close(),
        lambda folder: pause_file.write(folder, PAUSE),
    ],
    ids=["journal", "pause"],
)
def test_a_folder_that_was_open_is_closed(tmp_path: Path, use: Callable[[Path], None]) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    use(folder)
    assert _mode(folder) == 0o700


def test_every_file_in_it_is_the_agents_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        pause_file.write(tmp_path, PAUSE)
        kept_file.good_settings(tmp_path).keep(GOOD)
        file.store(tmp_path / file.NAME, BOOT, ())
        Journal.open(tmp_path, boot_id=BOOT).close()
    finally:
        os.umask(before)
    assert {path.name for path in tmp_path.iterdir()} == {"pause.json", "good-settings.json", "journal.json", "lock"}
    assert {_mode(path) for path in tmp_path.iterdir()} == {0o600}


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "real")
    with pytest.raises(JournalError, match="symbolic link"):
        Journal.open(tmp_path / "state", boot_id=BOOT)


@pytest.mark.parametrize("name", ["lock", "journal.json"])
def test_a_link_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / name).symlink_to(target)
    with pytest.raises(JournalError, match="symbolic link"):
        Journal.open(folder, boot_id=BOOT)
    assert target.read_text() == "theirs"


@pytest.mark.parametrize("name", ["pause.new", "journal.new", "good-settings.new"])
def test_a_link_where_a_file_is_prepared_is_not_followed(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / name).symlink_to(target)
    pause_file.write(folder, PAUSE)
    kept_file.good_settings(folder).keep(GOOD)
    file.store(folder / file.NAME, BOOT, ())
    assert target.read_text() == "theirs"


@root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(JournalError, match=f"belongs to user {NOBODY}"):
        Journal.open(folder, boot_id=BOOT)


@root
@pytest.mark.parametrize("name", ["lock", "journal.json"])
def test_a_file_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    Journal.open(tmp_path, boot_id=BOOT).close()
    file.store(tmp_path / file.NAME, BOOT, ())
    os.chown(tmp_path / name, NOBODY, NOBODY)
    with pytest.raises(JournalError, match=f"belongs to user {NOBODY}"):
        Journal.open(tmp_path, boot_id=BOOT)


@root
def test_a_journal_or_a_pause_of_another_user_is_not_read(tmp_path: Path) -> None:
    file.store(tmp_path / file.NAME, BOOT, ())
    pause_file.write(tmp_path, PAUSE)
    for name in (file.NAME, pause_file.NAME):
        os.chown(tmp_path / name, NOBODY, NOBODY)
    with pytest.raises(JournalError, match=f"belongs to user {NOBODY}"):
        journal.read(tmp_path, boot_id=BOOT)
    with pytest.raises(InputError, match=f"belongs to user {NOBODY}"):
        pause_file.read(tmp_path)
