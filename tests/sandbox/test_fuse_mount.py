"""The emulated resctrl mounted for other programs: shell tools and system calls see what the emulation answers."""

from __future__ import annotations

import errno
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from koordlite.sandbox import fuse_mount
from koordlite.sandbox.machine import shapes
from koordlite.sandbox.machine.processes import Processes
from koordlite.sandbox.machine.tree import Tree
from koordlite.sandbox.resctrl.filesystem import POINT, Resctrl

SHAPE = "amd-genoa"
SECONDS = 20


def missing() -> str:
    """Why nothing can be mounted here; empty when it can."""
    if importlib.util.find_spec(fuse_mount.BINDING) is None:
        return f"{fuse_mount.BINDING} is not installed (extra sandbox-mount)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is not there or not ours to use"
    if os.getuid() != 0 and not (shutil.which("fusermount3") or shutil.which("fusermount")):
        return "fusermount3 is not on PATH (Debian: fuse3)"
    return ""


pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(3 * SECONDS)]


def start(folder: pathlib.Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "koordlite", "sandbox", "mount", str(folder), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_mounted(folder: pathlib.Path) -> bool:
    return any(line.split()[1] == str(folder) for line in pathlib.Path("/proc/mounts").read_text().splitlines())


@pytest.fixture
def mounted(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A served folder; it is unmounted by ending the command."""
    folder = tmp_path / "resctrl"
    folder.mkdir()
    process = start(folder, "--machine", SHAPE)
    late = threading.Timer(SECONDS, process.kill)
    late.start()
    try:
        assert process.stdout is not None
        assert "is mounted on" in process.stdout.readline()
        yield folder
    finally:
        process.terminate()
        _, complaints = process.communicate(timeout=SECONDS)
        late.cancel()
    assert (process.returncode, complaints) == (0, "")
    assert not is_mounted(folder)


def shell(folder: pathlib.Path, script: str) -> str:
    """What a shell prints, errors included."""
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={"LC_ALL": "C"},
    )
    return done.stdout + done.stderr


def test_plain_tools_can_use_it(mounted: pathlib.Path) -> None:
    said = shell(mounted, "mkdir BE && echo 'L3:0=f;1=ff' > BE/schemata && cat BE/schemata && ls BE | tr '\\n' ' '")
    assert "    L3:0=000f;1=00ff;8=ffff;9=ffff\n" in said
    assert said.endswith("cpus cpus_list mode mon_data mon_groups schemata size tasks ")
    assert "Invalid argument" in shell(mounted, "env printf 'L3:0=10000\\n' > BE/schemata")
    assert shell(mounted, "cat info/last_cmd_status") == "Mask out of range\n"
    assert "File exists" in shell(mounted, "mkdir BE")
    assert "Operation not permitted" in shell(mounted, "mkdir BE/x")
    assert "Permission denied" in shell(mounted, "echo 1 > BE/newfile")
    assert "Operation not permitted" in shell(mounted, "rm BE/tasks")
    assert shell(mounted, "rmdir BE; ls | wc -l").strip() == "9"


def test_threads_of_this_machine_can_be_moved(mounted: pathlib.Path) -> None:
    moved = shell(mounted, "mkdir BE; echo $$ > BE/tasks; echo $$; cat BE/tasks").split()
    assert moved[0] == moved[1]
    assert "No such process" in shell(mounted, "env printf 4194303 > BE/tasks")


def test_files_of_a_removed_group_are_dead(mounted: pathlib.Path) -> None:
    (mounted / "BE").mkdir()
    descriptor = os.open(mounted / "BE" / "schemata", os.O_RDWR)
    (mounted / "BE").rmdir()
    for action in (lambda: os.pread(descriptor, 100, 0), lambda: os.write(descriptor, b"L3:0=1\n")):
        with pytest.raises(OSError, match="No such device"):
            action()
    os.close(descriptor)


def test_a_small_reader_is_given_one_content(mounted: pathlib.Path) -> None:
    whole = (mounted / "schemata").read_bytes()
    descriptor = os.open(mounted / "schemata", os.O_RDONLY)
    pieces = list(iter(lambda: os.read(descriptor, 7), b""))
    os.close(descriptor)
    assert b"".join(pieces) == whole
    assert len(pieces) > 10


OPERATIONS = [
    ("mkdir", "a", ""),
    ("mkdir", "a", ""),
    ("mkdir", "mon_groups/m", ""),
    ("mkdir", "info/x", ""),
    ("write", "a/schemata", "L3:0=ff;1=0\n"),
    ("write", "a/schemata", "MB:0=4096;8=17\nSMBA:0=1\n"),
    ("write", "a/schemata", "MB:0=4097\n"),
    ("write", "a/schemata", "L3:0=zz\n"),
    ("write", "a/schemata", "L3:2=f\n"),
    ("write", "a/schemata", "L3:0=1"),
    ("write", "a/schemata", "L3:0=" + "0" * 4100 + "1\n"),
    ("write", "a/mode", "exclusive\n"),
    ("write", "a/cpus_list", "0-3\n"),
    ("write", "a/cpus", "zz\n"),
    ("write", "size", "1\n"),
    ("rename", "mon_groups/m", "a/mon_groups/n"),
    ("rename", "a", "b"),
    ("write", "info/L3_MON/mbm_total_bytes_config", "0=30;8=1\n"),
    ("write", "info/L3_MON/max_threshold_occupancy", "1000\n"),
    ("rmdir", "a/mon_data", ""),
    ("rmdir", "nothing", ""),
    ("rmdir", "a", ""),
]


def play(read: object, act: object) -> list[tuple[str, str, str]]:
    """(answer, status, what stands in the file) of each operation."""
    heard = []
    for verb, path, more in OPERATIONS:
        try:
            act(verb, path, more)  # type: ignore[operator]
            answer = "ok"
        except OSError as error:
            answer = errno.errorcode[error.errno or 0]
        shown = read(path) if verb == "write" else ""  # type: ignore[operator]
        heard.append((answer, read("info/last_cmd_status"), shown))  # type: ignore[operator]
    return heard


def test_system_calls_answer_as_the_emulation_does(mounted: pathlib.Path) -> None:
    machine = shapes.machine(SHAPE)
    assert machine.rdt is not None
    tree = Tree()
    tree.place(POINT, Resctrl(machine, machine.rdt, Processes(1)).folder)

    def emulated(verb: str, path: str, more: str) -> None:
        arguments = {"write": [more.encode()], "rename": [f"{POINT}/{more}"]}.get(verb, [])
        getattr(tree, verb)(f"{POINT}/{path}", *arguments)

    def real(verb: str, path: str, more: str) -> None:
        if verb == "write":
            descriptor = os.open(mounted / path, os.O_WRONLY)
            try:
                os.write(descriptor, more.encode())
            finally:
                os.close(descriptor)
        else:
            getattr(os, verb)(mounted / path, *([mounted / more] if more else []))

    wanted = play(lambda path: tree.read(f"{POINT}/{path}").decode(), emulated)
    assert play(lambda path: (mounted / path).read_text(), real) == wanted
    assert {answer for answer, *_ in wanted} >= {"ok", "EEXIST", "EPERM", "EINVAL", "E2BIG", "EACCES", "ENOENT"}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        pytest.param(["--machine", "toaster"], "no such machine", id="a machine that is not there"),
        pytest.param(["--machine", "small"], "has no resctrl", id="a machine without it"),
        pytest.param(["--options", "cdpl2"], "refuses the mount options 'cdpl2'", id="options it has not"),
    ],
)
def test_what_cannot_be_mounted(tmp_path: pathlib.Path, more: list[str], why: str) -> None:
    process = start(tmp_path, *more)
    _, complaints = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert why in complaints
    assert not is_mounted(tmp_path)
