"""`koordlite top` in a real terminal: it fits each size, takes keys, and gives the terminal back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering import answering
from emulated import Emulated
from terminal import terminal

from koordlite.http.server import Server

COMMAND = [sys.executable, "-m", "koordlite", "top"]
SIZES = ((80, 24), (60, 15), (120, 40))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An agent that observes an emulated node."""
    node = Emulated("intel-2s-ht", tmp_path_factory.mktemp("cluster"))
    node.pod("web", "LS", "2")
    node.pod("crunch", "BE", "greedy")
    server = Server("127.0.0.1", 0, answering(node, ticks=20).answer)
    server.start()
    yield server.url
    server.close()


def test_it_fits_every_size_takes_keys_and_gives_the_terminal_back(url: str) -> None:
    width, height = SIZES[0]
    with terminal([*COMMAND, "--url", url], width=width, height=height) as shown:
        for width, height in SIZES:
            shown.resize(width, height)
            lines = shown.until(_whole)
            assert len(lines) == height
        shown.type("/web\r")
        shown.until(_filtered)
        shown.type("\r")
        shown.until(lambda found: any(line.strip() == "pod ns/web" for line in found))
        shown.type("q")
        shown.until(_filtered)
        shown.type("q")
        shown.read(1.0)
        assert shown.process.wait(timeout=20) == 0
        shown.read(0.2)
        assert shown.left_alternate


def _filtered(lines: list[str]) -> bool:
    return any("1 of 2 pods have 'web'" in line for line in lines)


def _whole(lines: list[str]) -> bool:
    """The node at the top, both pods, keys at the bottom."""
    shown = "\n".join(lines)
    edges = lines[0].startswith("node-a  ") and lines[1].startswith("CPU") and "q quit" in lines[-1]
    return edges and all(part in shown for part in (" class ", "ns/web", "ns/crunch"))


@pytest.mark.parametrize(("stdin", "options"), [("piped", []), ("terminal", ["--once"])])
def test_one_frame_where_there_is_no_terminal_or_once(url: str, stdin: str, options: list[str]) -> None:
    if stdin == "piped":
        done = subprocess.run([*COMMAND, "--url", url], capture_output=True, text=True, timeout=60, check=True)
        lines = done.stdout.splitlines()
        assert "\x1b" not in done.stdout
    else:
        with terminal([*COMMAND, "--url", url, *options], width=100, height=60) as shown:
            shown.process.wait(timeout=60)
            shown.read(0.5)
            lines = shown.lines
    assert any(line.startswith("pod ") and "decided last" in line for line in lines)
    assert any(line.startswith("ns/crunch") for line in lines)


def test_without_an_agent_the_terminal_stays_as_it_is(tmp_path: Path) -> None:
    with terminal([*COMMAND, "--url", "http://127.0.0.1:1"], width=100, height=10) as shown:
        assert shown.process.wait(timeout=60) == 2
        shown.read(0.5)
        assert "no agent answers" in "".join(shown.lines)
        assert not shown.left_alternate


def test_ctrl_c_ends_it_at_once(url: str) -> None:
    with terminal([*COMMAND, "--url", url], width=80, height=24) as shown:
        shown.until(_whole)
        shown.type("\x03")
        shown.read(0.5)
        assert shown.process.wait(timeout=20) == 0
        shown.read(0.2)
        assert shown.left_alternate


def test_an_explanation_has_bold_headings_and_goes_to_the_pager_where_it_is_long(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED; cat >/dev/null\n")
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", str(pager))
    monkeypatch.delenv("NO_COLOR", raising=False)
    command = [sys.executable, "-m", "koordlite", "explain", "--url", url]
    with terminal([*command, "node"], width=80, height=10) as shown:
        shown.until(lambda lines: "PAGED" in lines[0])
    with terminal([*command, "cpu", "3"], width=160, height=60) as shown:
        shown.until(lambda lines: any(line.startswith("CPU 3: NUMA node 0") for line in lines))
