"""Programs of the same machine: a second agent with its own folder, and one that listens where the agent should."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from realnode.manifests import Manifests
from realnode.tree import Tree
from tinyapi import Reply, Request, serving

from koordlite.cli import asking, main
from koordlite.host.journal import lock
from koordlite.model.errors import JournalError, KoordliteError


def test_two_agents_with_two_state_folders_do_not_write_the_same_groups(
    kubepods: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifests = Manifests(tmp_path / "cluster")
    manifests.node()
    words = [
        "run",
        "--cluster",
        str(manifests.folder),
        "--kubepods",
        kubepods.top,
        "--mode",
        "enforce",
        "--no-http",
        "-q",
    ]
    found = kubepods.content()
    group = kubepods.points["cpu"] / kubepods.top
    first = lock.take_machine(group)
    try:
        assert main([*words, "--once", "--state-dir", str(tmp_path / "second")]) != 0
        assert "another agent writes the groups in" in capsys.readouterr().err
        assert kubepods.changed(found) == {}
        with pytest.raises(JournalError, match="another state folder"):
            lock.take_machine(group)
    finally:
        first.release()
    lock.take_machine(group).release()


def test_where_there_is_no_such_lock_there_is_none(tmp_path: Path) -> None:
    lock.take_machine(tmp_path / "nothing").release()


def endless(_request: Request) -> Reply:
    return Reply(lines=itertools.repeat(b"x" * 65_536))


def test_a_program_that_answers_without_end_is_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_BYTES", 1 << 20)
    with serving(endless) as server, pytest.raises(KoordliteError, match="does not end"):
        asking.get(f"{server.url}/status")


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"\xff\xfe", b'{"status":1e999}', b"null", b'{"machine":[],"state":1}']
)
def test_a_program_that_answers_nonsense_is_no_agent(body: bytes) -> None:
    with serving(lambda request: Reply(body=body)) as server:
        assert asking.folders(server.url) is None
        with pytest.raises(KoordliteError, match="no agent of this version"):
            asking.screen(server.url)


def test_a_refusal_of_any_length_is_cut() -> None:
    with serving(lambda request: Reply(500, body=b"no " * 1_000_000)) as server:
        with pytest.raises(KoordliteError) as refused:
            asking.get(f"{server.url}/status")
        assert len(str(refused.value)) < 70_000
        assert json.dumps(str(refused.value))
