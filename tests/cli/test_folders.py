"""Commands find what a running agent keeps, and believe no stranger about the state of this machine."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from koordlite.cli import acting, asking
from koordlite.cli.options import SANDBOX_FOLDER, URL_VARIABLE
from koordlite.host import pause_file
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.model.errors import KoordliteError

Said = dict[str, Any]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[object], None]]:
    """Something that listens where an agent would, and answers what it is given."""
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers[-1])

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    monkeypatch.setenv(URL_VARIABLE, f"http://127.0.0.1:{listening.server_port}")
    yield lambda answer: answers.append(json.dumps(answer).encode())
    listening.socket.shutdown(socket.SHUT_RDWR)  # Wakes the loop.
    listening.shutdown()
    thread.join()
    listening.server_close()


def said(folder: Path, **more: object) -> Said:
    return {"machine": "sandbox small", "emulated": True, "state": str(folder), "record": f"{folder}/record", **more}


def test_an_agent_says_where_its_record_is(server: Callable[[object], None], tmp_path: Path) -> None:
    server(said(tmp_path))
    assert asking.record_folder("/default") == f"{tmp_path}/record"
    server(said(tmp_path, record=""))
    with pytest.raises(KoordliteError, match=r"keeps no flight record; set record\.mode"):
        asking.record_folder("/default")


@pytest.mark.parametrize("answer", [[], {}, {"machine": "x"}, "text", None, 7, {"machine": 1, "emulated": True}])
def test_what_is_no_agent_names_nothing(server: Callable[[object], None], answer: object) -> None:
    server(answer)
    assert asking.folders() is None
    assert asking.record_folder("/default") == "/default"
    assert asking.emulated_node() is None


def test_only_the_users_own_folder_of_an_emulated_node_is_taken(
    server: Callable[[object], None], tmp_path: Path
) -> None:
    folder = tmp_path / f"{SANDBOX_FOLDER}x"
    folder.mkdir()
    server(said(folder))
    assert asking.emulated_node() == asking.Folders("sandbox small", True, str(folder), f"{folder}/record")
    server(said(folder, emulated=False))
    assert asking.emulated_node() is None, "a real agent's state is named by its owner only"
    for elsewhere in (tmp_path, Path("/etc"), tmp_path / f"{SANDBOX_FOLDER}gone"):
        server(said(elsewhere))
        assert asking.emulated_node() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_not_taken(server: Callable[[object], None], tmp_path: Path) -> None:
    folder = tmp_path / f"{SANDBOX_FOLDER}x"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    server(said(folder))
    assert asking.emulated_node() is None


@pytest.mark.parametrize("words", [("pause", "1h", "--because", "x"), ("resume",), ("restore",)])
def test_a_command_that_acts_is_refused_where_two_agents_could_be_meant(
    ask: Any, server: Callable[[object], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    own, emulated = tmp_path / "own", tmp_path / f"{SANDBOX_FOLDER}x"
    emulated.mkdir()
    config = tmp_path / "koordlite.yaml"
    config.write_text(f"agent: {{stateDir: {own}}}\n")
    monkeypatch.setenv("KOORDLITE_CONFIG", str(config))
    server(said(emulated))
    with Journal.open(own):
        answer = ask(*words)
    assert answer.code == 2
    assert f"this machine (process {os.getpid()}, {own}), and sandbox small ({emulated})" in answer.err
    assert "name the one with --state-dir DIR" in answer.err
    assert not pause_file.read(own) and not pause_file.read(emulated)


def test_a_command_that_acts_names_the_emulated_node_it_acts_on(
    ask: Any, server: Callable[[object], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "CONFIRMATION_SECONDS", 0.1)
    emulated = tmp_path / f"{SANDBOX_FOLDER}x"
    server(said(emulated, node="tour-a"))
    with Journal.open(emulated):
        answer = ask("pause", "1h", "--because", "x")
    target = f"sandbox small, an emulated node; node tour-a; agent: process {os.getpid()}; state: {emulated}"
    assert answer.out.splitlines()[0] == target
    assert pause_file.read(emulated)


def test_a_machine_whose_agent_runs_is_not_restored(ask: Any, tmp_path: Path) -> None:
    group, field = "kubepods/besteffort", "cpu.quota"
    path = f"/sys/fs/cgroup/cpu/{group}/cpu.cfs_quota_us"
    entry = FileEntry(path=path, group=group, field=field, text="-1", found_at=0.0)
    with Journal.open(tmp_path) as held:
        held.record([entry])
        answer = ask("restore", "--state-dir", tmp_path)
    assert answer.code == 2
    assert f"agent: process {os.getpid()}; state: {tmp_path}" in answer.out.splitlines()[0]
    assert f"{tmp_path} is held by another agent, process {os.getpid()}" in answer.err
