"""The token in the agent's folder."""

from __future__ import annotations

import pathlib
import stat

import pytest

from koordlite.http import local_token


def test_each_start_has_a_new_token_that_only_the_owner_reads(tmp_path: pathlib.Path) -> None:
    first = local_token.make(str(tmp_path / "state"))
    second = local_token.make(str(tmp_path / "state"))
    assert first != second
    assert local_token.read(str(tmp_path / "state")) == second
    place = tmp_path / "state" / local_token.NAME
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert len(second) >= 32


def test_a_link_in_the_way_is_not_followed(tmp_path: pathlib.Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f"{local_token.NAME}.new").symlink_to(victim)
    local_token.make(str(tmp_path))
    assert victim.read_text() == "mine"


def test_a_stop_removes_its_own_token_only(tmp_path: pathlib.Path) -> None:
    old = local_token.make(str(tmp_path))
    fresh = local_token.make(str(tmp_path))
    local_token.forget(str(tmp_path), old)
    assert local_token.read(str(tmp_path)) == fresh
    local_token.forget(str(tmp_path), fresh)
    assert not (tmp_path / local_token.NAME).exists()
    local_token.forget(str(tmp_path), fresh)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        local_token.make(str(tmp_path / "file" / "below"))
