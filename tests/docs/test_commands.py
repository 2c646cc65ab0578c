"""Command lines that documents show are ones the commands accept."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import re
import shlex
from collections.abc import Callable, Iterator

import pytest

from koordlite.cli import kubectl_plugin

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
COMMANDS = ("koordlite", "descheduler")
_FENCE = re.compile(r"^```(?:sh|console|ini)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown(text: str) -> Iterator[str]:
    """Command lines of ours in the fenced blocks of a page: alone, after a prompt, or started by a unit."""
    for block in _FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.sub(r"^\s*(?:\$ )?(?:ExecStart=\S*/(?=koordlite |descheduler ))?", "", line)
            if command.split(" ", 1)[0] in COMMANDS:
                yield command


def plugin_lines() -> Iterator[tuple[pathlib.Path, str]]:
    """Lines of `kubectl koordlite`, in blocks of any language."""
    for page in PAGES:
        for line in re.findall(r"^kubectl koordlite (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            yield page, line


def words(command: str) -> list[str]:
    """The arguments, without comment and redirection."""
    split = shlex.split(command, comments=True)
    return split[: split.index(">")] if ">" in split else split


LINES = [(page, line) for page in PAGES for line in dict.fromkeys(shown(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page.name}: {line}" for page, line in LINES])
def test_a_shown_command_line_is_accepted(page: pathlib.Path, line: str) -> None:
    program, *arguments = words(line)
    parser: Callable[[], argparse.ArgumentParser] = importlib.import_module(f"{program}.cli").parser
    parser().parse_args(arguments)


def test_both_pages_that_show_commands_are_read() -> None:
    assert {"README.md", "operate.md"} <= {page.name for page, _ in LINES}


def test_command_lines_are_found_in_every_form() -> None:
    shell = "```sh\nkoordlite status   # why\nls\n$ descheduler plan > x\n```\n"
    unit = "```ini\nExecStart=/opt/koordlite run\n```\n"
    found = [" ".join(words(line)) for line in shown(shell + unit)]
    assert found == ["koordlite status", "descheduler plan", "koordlite run"]


def test_what_the_tour_says_to_try_next_is_accepted() -> None:
    (line,) = re.findall(r"To try next: \{bin\}/koordlite ([^\"]+)", (ROOT / "scripts" / "tour-end").read_text())
    importlib.import_module("koordlite.cli").parser().parse_args(shlex.split(line))


@pytest.mark.parametrize("line", [line for _, line in plugin_lines()])
def test_a_shown_line_of_the_plugin_is_accepted(line: str) -> None:
    kubectl_plugin.parser().parse_args(words(line))
