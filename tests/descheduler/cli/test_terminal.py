"""The plan as a person sees it: how much is listed, where the answer is, colours and the pager."""

from __future__ import annotations

import os
import pathlib
import pty
import re
import subprocess
import sys
from typing import Any

import pytest

from descheduler import cli
from tests.descheduler.conftest import RESTARTS as POLICY

ANSWER = "answer    50 pods with findings: 30 to evict, 20 kept"
LONG = "node-with-a-name-of-more-than-thirty-six-letters"


@pytest.fixture
def words(cluster: Any, tmp_path: pathlib.Path) -> list[str]:
    """A plan that evicts 30 pods and keeps 20, which have no owner."""
    cluster.node(LONG)
    cluster.node("b")
    for number in range(50):
        owner = f"o{number}" if number < 30 else ""
        cluster.pod(f"p{number}", LONG, owner=owner, cpu="1m", memory="1Mi", restarts=50)
    picture, policy = tmp_path / "c.json", tmp_path / "policy.yaml"
    picture.write_text(cluster.json, encoding="utf-8")
    policy.write_text(POLICY, encoding="utf-8")
    return ["plan", "--snapshot", str(picture), "--policy", str(policy)]


@pytest.mark.parametrize(
    ("more", "evict", "kept"),
    [([], 20, 20), (["--limit", "3"], 3, 3), (["--limit", "0"], 0, 0), (["--limit", "all"], 30, 20)],
)
def test_some_pods_are_listed_and_all_are_counted(
    words: list[str], capsys: pytest.CaptureFixture[str], more: list[str], evict: int, kept: int
) -> None:
    assert cli.main([*words, *more]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"^ ?\d+\. default/p", shown, re.MULTILINE)) == evict
    assert len(re.findall(r"^ -  default/p", shown, re.MULTILINE)) == kept
    assert shown.index(ANSWER) > shown.index("BY PLUGIN")
    assert ("--limit all lists every pod" in shown) is (evict < 30)
    assert "1 × 30" not in shown and "50 × TooManyRestarts; 30 to evict, 20 kept" in shown


def test_the_last_block_is_the_answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    block = capsys.readouterr().out.rstrip().split("\n\n")[-1].splitlines()
    assert [line[:10].rstrip() for line in block if line[0] != " "] == ["answer", "kept", "warning", "shown"]
    assert block[-1] == "shown     20 of 30 to evict; --limit all lists every pod"


def test_a_long_name_of_a_node_is_whole(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0
    table = capsys.readouterr().out.split("NODES, before → after")[1]
    assert f"    {LONG}\n" in table


def on_a_terminal(words: list[str], **environment: str) -> str:
    """What a terminal of 24 lines gets."""
    ours, theirs = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "PAGER", "LESS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "descheduler", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=known | {"TERM": "xterm", "COLUMNS": "100", "LINES": "24"} | environment,
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # EIO: the last process that had the terminal open is gone.
            break
        parts.append(part)
        if not part:
            break
    os.close(ours)
    assert process.wait(60) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.fixture
def pager(tmp_path: pathlib.Path) -> tuple[str, pathlib.Path]:
    """A pager that keeps what it is given, and the file it keeps it in."""
    program, kept = tmp_path / "pager", tmp_path / "paged.txt"
    program.write_text(f"#!/bin/sh\ncat >{kept}\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program), kept


def test_a_long_plan_is_paged_with_the_answer_first_and_below(
    words: list[str], pager: tuple[str, pathlib.Path]
) -> None:
    shown = on_a_terminal(words, PAGER=pager[0])
    paged = re.sub(r"\x1b\[[0-9;]*m", "", pager[1].read_text(encoding="utf-8"))
    assert paged.splitlines()[3] == ANSWER
    assert "\x1b[1;36manswer    \x1b[0m50 pods with findings" in shown
    assert "BY PLUGIN" not in shown


def test_a_short_answer_and_a_terminal_without_colours(words: list[str], pager: tuple[str, pathlib.Path]) -> None:
    short = on_a_terminal([*words, "--brief"], PAGER=pager[0])
    assert ANSWER in short and "\x1b" not in on_a_terminal([*words, "--limit", "0"], PAGER="cat", NO_COLOR="1")
    assert "\x1b[1mBY PLUGIN\x1b[0m" in on_a_terminal([*words, "--limit", "0"], PAGER="cat")
    assert not pager[1].exists()


def test_a_pager_that_the_reader_leaves_early_ends_nothing_badly(words: list[str]) -> None:
    assert ANSWER in on_a_terminal([*words, "--limit", "all"], PAGER="true", NO_COLOR="1")
