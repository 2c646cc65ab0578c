"""Real files: one system call a write, kept descriptors, errors with their path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from koordlite.host.files import RealFiles


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 16384, 20000])
@pytest.mark.parametrize("name", ["memory.stat", "schemata"], ids=["kept open", "opened each time"])
def test_a_file_is_read_whole(tmp_path: Path, name: str, size: int) -> None:
    (tmp_path / name).write_bytes(b"x" * size)
    with RealFiles() as files:
        assert files.read(f"{tmp_path}/{name}") == b"x" * size


def test_a_kept_file_shows_what_was_written_since(tmp_path: Path) -> None:
    path = tmp_path / "cpu.cfs_quota_us"
    path.write_text("-1\n")
    with RealFiles() as files:
        assert files.read(str(path)) == b"-1\n"
        files.write(str(path), b"20000")
        assert files.read(str(path)) == b"20000"


def test_only_hot_files_stay_open_and_no_more_than_allowed(tmp_path: Path) -> None:
    for group in range(5):
        (tmp_path / str(group)).mkdir()
        (tmp_path / str(group) / "cpu.stat").write_text("a 1")
        (tmp_path / str(group) / "tasks").write_text("1")
    before = open_descriptors()
    files = RealFiles(most_open=3)
    for group in range(5):
        files.read(f"{tmp_path}/{group}/cpu.stat")
        files.read(f"{tmp_path}/{group}/tasks")
    assert open_descriptors() == before + 3
    files.close()
    assert open_descriptors() == before


def test_files_of_resctrl_are_never_kept_open(tmp_path: Path) -> None:
    (tmp_path / "schemata").write_text("MB:0=100\n")
    before = open_descriptors()
    with RealFiles() as files:
        files.read(f"{tmp_path}/schemata")
        assert open_descriptors() == before


def test_a_write_adds_no_newline_and_leaves_nothing_of_the_old_value(tmp_path: Path) -> None:
    path = tmp_path / "cpuset.cpus"
    path.write_text("0-127\n")
    RealFiles().write(str(path), b"0")
    assert path.read_bytes() == b"0"


def test_a_write_never_makes_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        RealFiles().write(f"{tmp_path}/cpu.max", b"max")
    assert caught.value.filename == f"{tmp_path}/cpu.max"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["cpu.stat", "tasks"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with RealFiles() as files, pytest.raises(FileNotFoundError) as caught:
        files.read(f"{tmp_path}/{name}")
    assert caught.value.filename == f"{tmp_path}/{name}"


@pytest.mark.parametrize("name", ["cpu.stat", "tasks"])
def test_reading_a_folder_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with RealFiles() as files, pytest.raises(IsADirectoryError) as caught:
        files.read(f"{tmp_path}/{name}")
    assert caught.value.filename == f"{tmp_path}/{name}"


def test_folders_and_links_to_folders_end_with_a_slash(tmp_path: Path) -> None:
    (tmp_path / "cpu,cpuacct").mkdir()
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "tasks").write_text("")
    files = RealFiles()
    assert files.list(str(tmp_path)) == ["cpu,cpuacct/", "cpu/", "tasks"]
    files.mkdir(f"{tmp_path}/new")
    assert "new/" in files.list(str(tmp_path))
    files.rmdir(f"{tmp_path}/new")
    assert "new/" not in files.list(str(tmp_path))


def test_an_unwritable_descriptor_error_names_the_file() -> None:
    with pytest.raises(OSError) as caught:
        RealFiles().write("/proc/self/oom_score_adj", b"not a number")
    assert caught.value.filename == "/proc/self/oom_score_adj"
