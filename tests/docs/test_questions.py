"""The README's five questions: each answer stands there as a command or two, and the commands answer."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable

import pictured
import pytest

from descheduler import cli as descheduler_cli
from koordlite import cli
from tests.docs.conftest import beside

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| ([A-Z][^|]+[?.]) \| (.+) \|$", re.MULTILINE)
_COMMAND = re.compile(r"`((?:koordlite|descheduler) [^`]+)`")
TABLE = README.partition("## Ask it")[2].partition("\n## ")[0]
QUESTIONS = {question: _COMMAND.findall(answer) for question, answer in _ROW.findall(TABLE)}
WORDS = {
    "koordlite explain allocatable": "Koordinator's messages",
    "koordlite explain batch-cpu --since 24h": "then: ",
    "koordlite replay --since 12h --set cpuSuppressThresholdPercent=70": "BE was allowed",
    "koordlite explain file shop/cache-0/cpu.max": "cpu.",
    "koordlite explain pod shop/cache-0": "decided about it",
    "koordlite explain --why-pending shop/report --cluster configs/tour-scheduling": "room on    sched-b, after 1 move",
    "descheduler plan": "evict",
    "descheduler explain shop/cache-0": "ok         NUMAAlignment",
    "koordlite restore --dry-run": "places would be restored",
    "koordlite restore": "places restored",
}
"""What an answer has to say."""

pytestmark = pytest.mark.xdist_group("questions")


def as_here(line: str) -> tuple[Callable[[list[str]], int], list[str]]:
    """The command as it stands there; the descheduler has no cluster but the folder that README names for it."""
    program, *words = shlex.split(line)
    if program == "descheduler":
        return descheduler_cli.main, [*words, "--snapshot", "configs/tour"]
    return cli.main, words


def test_there_are_six_with_at_most_two_commands_each() -> None:
    assert len(QUESTIONS) == 6
    assert all(1 <= len(commands) <= 2 for commands in QUESTIONS.values())
    assert sorted(line for commands in QUESTIONS.values() for line in commands) == sorted(WORDS)


def test_the_picture_of_top_has_its_labels(agent: dict[str, str]) -> None:
    shown = json.loads(pictured.SHOWN.read_text())["live.png"]
    assert pictured.top(agent["TOP"]) == shown, "stale: run `make pictures` and commit docs/images"


@pytest.mark.parametrize("line", [line for commands in QUESTIONS.values() for line in commands])
def test_the_command_answers(
    agent: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    beside(agent, monkeypatch)
    main, words = as_here(line)
    code = main(words)
    said = capsys.readouterr()
    assert code == 0, said.err
    assert WORDS[line] in said.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every journal")
def test_a_journal_of_this_machine_that_only_root_may_read_does_not_stand_in_the_way(
    agent: dict[str, str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "journal.json").touch(mode=0)
    (tmp_path / "koordlite.yaml").write_text(f"agent: {{stateDir: {tmp_path}}}\n")
    here = {**agent, "KOORDLITE_CONFIG": str(tmp_path / "koordlite.yaml")}
    command = [sys.executable, "-m", "koordlite", "restore", "--dry-run"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False, env=here)
    assert done.returncode == 0, done.stderr
    assert "sandbox intel-2s-ht, an emulated node" in done.stdout
