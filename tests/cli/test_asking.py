"""`status`, `explain` and `top` against a running agent, over its HTTP server."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from emulated import Emulated

from tests.cli.conftest import Answer, running_agent

COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:[34][0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
"""A colour other than the terminal's own, which is 39 and 49."""
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen, and back with the cursor shown."""
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# One worker makes what they share: each would have to make it for itself.
pytestmark = pytest.mark.xdist_group("a running agent")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an agent that has ended its first ticks."""
    node = Emulated("small", tmp_path_factory.mktemp("cluster"))
    node.node(reservation='{"reservedCPUs":"0"}')
    node.pod("web", "LS", "1")
    node.pod("crunch", "BE", "greedy")
    with running_agent(node.folder, speed=4) as (_, address):
        wait_for(f"{address}/readyz")
        wait_for(f"{address}/explain/file/besteffort/cpuset.cpus", "last write at")
        yield address


def wait_for(address: str, words: str = "") -> None:
    """Until it answers with 200, and with these words."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(address, timeout=5) as answer:
            if words in answer.read().decode():
                return
        time.sleep(0.05)
    raise AssertionError(f"{address} never answered with {words!r}")


def test_a_running_agent_answers_every_kind_of_question(ask: Callable[..., Answer], url: str) -> None:
    for subject, words in {
        "node": "best effort may use [cpuSuppress, enforce]",
        "cpu 0": "is reserved for the system",
        "file besteffort/cpuset.cpus": "last write at",
        "pod web": "decided about it",
        "allocatable": "Koordinator's messages",
        "config": "problems: none",
        "resctrl": "groups as they are",
    }.items():
        said = ask("explain", *subject.split(), "--url", url)
        assert (said.code, words in said.out) == (0, True), f"{subject}: {said.out}{said.err}"
        found = json.loads(ask("explain", *subject.split(), "--url", url, "-o", "json").out)
        assert found["version"] == 1


LIGHT = """
import sys
from koordlite.cli import main
code = main(sys.argv[1:])
loaded = sorted(name for name in sys.modules if name.split(".")[0] in ("koordlite", "msgspec", "yaml", "rich"))
print(*loaded, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "words", ["explain node", "explain besteffort -o json", "status", "status -o json", "top --once", "log-level"]
)
def test_to_ask_the_running_agent_imports_next_to_nothing(url: str, words: str) -> None:
    """On a small node the CPU of a question is taken from best effort: what judges and reads stays unloaded."""
    command = [sys.executable, "-c", LIGHT, *words.split(), "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    loaded = done.stderr.split()
    ours = {"koordlite", "koordlite.cli", "koordlite.http", "koordlite.model"}
    rest = [name for name in loaded if name not in ours and name.rpartition(".")[0] not in ours]
    assert not rest
    assert len(loaded) < 20


def test_a_subject_nobody_knows_is_an_error_that_lists_them(ask: Callable[..., Answer], url: str) -> None:
    said = ask("explain", "nonsense", "--url", url)
    assert (said.code, said.out) == (2, "")
    assert "nothing was decided about 'nonsense'; there are decisions about" in said.err


def test_status_is_one_screen_without_colours_and_ends_with_0(ask: Callable[..., Answer], url: str) -> None:
    said = ask("status", "--url", url)
    assert (said.code, said.err) == (0, "")
    assert "enforcing" in said.out.splitlines()[0]
    assert len(said.out.splitlines()) <= 40
    assert not ANSI.search(said.out)
    assert json.loads(ask("status", "--url", url, "-o", "json").out)["kind"] == "koordlite-state"


def test_top_prints_one_frame_where_there_is_no_terminal(ask: Callable[..., Answer], url: str) -> None:
    said = ask("top", "--url", url)
    assert (said.code, said.err) == (0, "")
    for part in ("NUMA 0", "reserved", "BE may use", "LS shared pool", "resctrl"):
        assert part in said.out
    assert not ANSI.search(said.out)


@pytest.mark.parametrize(("columns", "colours"), [(80, True), (160, True), (80, False)])
def test_top_fills_a_terminal_and_leaves_it_on_ctrl_c(url: str, columns: int, colours: bool) -> None:
    screen = watch(["top", "--url", url, "--interval", "0.3"], columns=columns, lines=30, colours=colours)
    shown = ANSI.sub("", screen)
    for part in ("enforcing", "NUMA 0", "BE may request"):
        assert part in shown
    assert bool(COLOUR.search(screen)) is colours, "the letters carry it all without colours"
    before, first, _ = screen.split(ENTER, 2)
    assert before == "" and "NUMA 0" in first, "the agent's frame is there before the library has loaded"
    assert len(first.splitlines()) <= 30


def test_ctrl_c_while_the_library_loads_leaves_the_terminal_as_it_was(url: str) -> None:
    screen = watch(["top", "--url", url], columns=80, lines=30, colours=True, frames=1)
    assert screen.startswith(ENTER) and screen.endswith(LEAVE)


@contextlib.contextmanager
def heard(number: signal.Signals) -> Iterator[None]:
    """Who runs the tests in the background hands down that Ctrl-C is ignored; a terminal does not."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def watch(words: list[str], *, columns: int, lines: int, colours: bool, frames: int = 2) -> str:
    """What the command writes to a terminal of this size until Ctrl-C, after so many frames."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": str(lines), "TERM": "xterm-256color"}
    environment |= {} if colours else {"NO_COLOR": "1"}
    command = [sys.executable, "-m", "koordlite", *words]
    with (
        heard(signal.SIGINT),
        subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process,
    ):
        os.close(theirs)
        screen = b""
        while screen.count(b"NUMA 0") < frames and select.select([ours], [], [], 20)[0]:
            screen += os.read(ours, 1 << 16)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # When the command has ended there is nothing to read from.
            while more := os.read(ours, 1 << 16):
                screen += more
        assert process.wait(timeout=20) == 0
    os.close(ours)
    return screen.decode(errors="replace")


@pytest.mark.parametrize(
    "wrong",
    ["localhost", "127.0.0.1:9316", "ftp://127.0.0.1", "http://", "http://127.0.0.1:port", "http://[::1", "http://a:0"],
)
def test_an_address_that_is_none_is_said(ask: Callable[..., Answer], wrong: str) -> None:
    for command in (["status"], ["explain", "node"], ["top"], ["log-level"]):
        said = ask(*command, "--url", wrong)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"koordlite: command line: --url = '{wrong.rstrip('/')}/")
        assert "write it like http://127.0.0.1:9316" in said.err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no agent answers at"),
        (b"HTTP/1.0 200 OK\r\n\r\n[1]", "is no agent"),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "is no agent"),
        (b"HTTP/1.0 404 Nope\r\n\r\n<!DOCTYPE HTML>", "answers HTTP Error 404: Nope"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{", "no agent answers at"),
        (b"", "no agent answers at"),
    ],
    ids=["another protocol", "another list", "another page", "no such page", "half an answer", "no answer"],
)
def test_who_else_listens_is_no_agent(ask: Callable[..., Answer], answer: bytes, words: str) -> None:
    commands = (["status"], ["status", "-o", "json"], ["top"], ["log-level"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server, answer), daemon=True).start()
        for command in commands:
            said = ask(*command, "--url", f"http://127.0.0.1:{server.getsockname()[1]}")
            assert (said.code, said.out) == (2, "")
            assert words in said.err


def serve(server: socket.socket, answer: bytes) -> None:
    """Say the same to every caller, whatever is asked, until the server is closed."""
    with contextlib.suppress(OSError):
        while True:
            caller, _ = server.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(answer)


@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "86401", "inf"])
def test_a_level_is_for_a_time_within_bounds(ask: Callable[..., Answer], seconds: str) -> None:
    said = ask("log-level", "debug", "--for", seconds)
    assert (said.code, said.out) == (2, "")
    assert "--for = " in said.err and "at most 86400" in said.err


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    ask: Callable[..., Answer], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert ask("status", "--url", url).code == 0


@pytest.mark.parametrize("command", [["status"], ["explain", "node"], ["top"]])
def test_no_agent_is_said_with_what_to_do(ask: Callable[..., Answer], command: list[str]) -> None:
    said = ask(*command, "--url", "http://127.0.0.1:9")
    assert said.code == 2
    assert "no agent answers" in said.err and "koordlite run" in said.err


def test_something_else_that_answers_is_not_taken_for_an_agent(ask: Callable[..., Answer], url: str) -> None:
    said = ask("status", "--url", f"{url}/recent?x=")
    assert said.code == 2


def test_too_short_an_interval_is_refused(ask: Callable[..., Answer], url: str) -> None:
    said = ask("top", "--url", url, "--interval", "0")
    assert (said.code, "too often" in said.err) == (2, True)


def test_every_question_that_an_answer_proposes_is_answered(ask: Callable[..., Answer], url: str) -> None:
    arrows = re.findall(r"→ explain (.+)", ask("explain", "node", "--url", url).out)
    assert arrows
    for subject in arrows:
        said = ask("explain", *subject.split(), "--url", url)
        assert said.code == 0, f"{subject}: {said.err}"


def test_a_second_emulated_node_takes_a_free_port_and_says_which(
    own_process: Callable[..., Answer], tmp_path: pathlib.Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "koordlite.yaml"
        config.write_text(f"http: {{port: {port}}}\n")
        refused = own_process("run", "--sandbox", "small", "--for", "1", "--config", config)
        assert refused.code == 2
        assert f"{config}: http.port = '127.0.0.1:{port}': another process listens there; choose another" in refused.err
        refused = own_process("run", "--sandbox", "small", "--for", "1", "--port", port)
        assert f"koordlite run: --port = '127.0.0.1:{port}': another process listens there" in refused.err
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 9316)):
        said = own_process("run", "--sandbox", "small", "--for", "1", "--quiet")
        assert said.code == 0, said.err
        assert re.search(
            r"port 9316 is taken, so this agent listens on http://127\.0\.0\.1:\d+: export KOORD", said.err
        )


def test_the_undo_list_of_an_emulated_node_is_a_document_for_programs(
    ask: Callable[..., Answer], url: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "koordlite.yaml"
    config.write_text(f"agent: {{stateDir: {tmp_path / 'own'}}}\n")
    monkeypatch.setenv("KOORDLITE_CONFIG", str(config))
    monkeypatch.setenv("KOORDLITE_URL", url)
    said = ask("restore", "--dry-run", "-o", "json")
    found = json.loads(said.out)
    assert (said.code, found["kind"]) == (0, "koordlite-restore-list")
    assert {"place", "found"} == set(found["places"][0])
    target, folder = said.err.split("; state: ")
    assert target.startswith("sandbox small, an emulated node; node ")
    own = ask("restore", "--dry-run", "--state-dir", folder.strip())
    assert own.code == 0
    assert f"{len(found['places'])} places would be restored" in own.out, "its own folder leads to it as well"
