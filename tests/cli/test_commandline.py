"""What the parsers say of a slip of the pen, and what is made of them: completion for shells, and manual pages."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import slices
import yaml

import descheduler.cli
import koordlite.cli
from koordlite import commandline
from tests.cli.conftest import Answer

ROOT = Path(__file__).parents[2]
PROGRAMS = [pytest.param(koordlite.cli, id="koordlite"), pytest.param(descheduler.cli, id="descheduler")]


@pytest.mark.parametrize(
    ("words", "usage", "said"),
    [
        pytest.param("statu", "koordlite [-h]", "there is no 'statu'; did you mean status?", id="a command"),
        pytest.param("zzz", "koordlite [-h]", "`koordlite --help` lists them", id="a command like no other"),
        pytest.param("status --ouput json", "koordlite status", "did you mean --output?", id="an option"),
        pytest.param(
            "status --zzz", "koordlite status", "unrecognized arguments: --zzz\n", id="an option like no other"
        ),
        pytest.param("scheduler explane a/b", "koordlite scheduler", "did you mean explain?", id="an action"),
        pytest.param("scheduler state --ulr x", "koordlite scheduler state", "did you mean --url?", id="of an action"),
        pytest.param(
            "run --mode enfroce", "koordlite run", "there is no 'enfroce'; did you mean enforce?", id="a value"
        ),
        pytest.param("completion elvish7", "koordlite completion", "bash or zsh or tcsh or fish", id="one of few"),
        pytest.param("sta\x1b[2J", "koordlite [-h]", "there is no 'sta\\\\x1b[2J'", id="an escape sequence"),
    ],
)
def test_a_slip_is_answered_with_the_usage_of_its_command(
    words: str, usage: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        koordlite.cli.main(words.split(" "))
    shown = capsys.readouterr().err
    assert ended.value.code == commandline.REFUSED
    assert shown.startswith(f"usage: {usage}") and said in shown


def test_the_descheduler_answers_alike(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        descheduler.cli.main(["plan", "--snapshto", "x"])
    assert "usage: descheduler plan" in (shown := capsys.readouterr().err) and "did you mean --snapshot?" in shown


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        pytest.param(BrokenPipeError(), 0, "", id="the reader went away"),
        pytest.param(KeyboardInterrupt(), 130, "x: interrupted\n", id="Ctrl-C"),
        pytest.param(OSError(28, "No space left on device"), 2, "x: No space left on device\n", id="kernel"),
    ],
)
def test_what_ends_a_command_has_its_code(
    raised: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def carry_out() -> int:
        raise raised

    assert commandline.exit_code("x", carry_out) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("program", "words", "kind"),
    [
        (koordlite.cli, "check-node --sandbox small --cluster {0}", "koordlite-check-node"),
        (koordlite.cli, "check-config --cluster {0}", "koordlite-check-config"),
        (koordlite.cli, "adopt koordlet --dry-run --sandbox small --cluster {0}", "koordlite-adopt"),
        (koordlite.cli, "restore --dry-run --config {1}", "koordlite-restore-list"),
        (koordlite.cli, "resctrl show --sandbox small", "koordlite-resctrl"),
        (koordlite.cli, "profile apply --profile configs/colocated.yaml configs/colocated.yaml", "koordlite-profile"),
        (descheduler.cli, "list-plugins", "descheduler-plugins"),
        (descheduler.cli, "check-config configs/descheduler.yaml", "descheduler-check-config"),
    ],
)
def test_what_only_asks_can_answer_in_json(
    *, program, words: str, kind: str, manifests: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    config = tmp_path / "koordlite.yaml"
    config.write_text(f"agent: {{stateDir: {tmp_path / 'state'}}}\n", encoding="utf-8")
    program.main([*words.format(manifests, config).split(), "-o", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["kind"]) == (1, kind)
    assert any(isinstance(value, list | dict) for value in found.values())


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["koordlite", "sta"], {"status"}),
        (["koordlite", "run", "--sand"], {"--sandbox"}),
        (["koordlite", "run", "--mode", ""], {"off", "observe", "enforce"}),
    ],
)
def test_bash_completes(words: list[str], expected: set[str], tmp_path: Path) -> None:
    script = tmp_path / "koordlite.bash"
    script.write_text(commandline.completion(koordlite.cli.parser(), "bash"), encoding="utf-8")
    ask = f"""
        source {script}
        COMP_WORDS=({" ".join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}
        _shtab_koordlite; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    made = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, timeout=20)
    assert set(made.stdout.split()) == expected


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("shell", commandline.SHELLS)
def test_every_shell_gets_a_script_with_every_command(program, shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    if shell == "fish":
        assert f"{program.parser().prog} complete --" in shown, "the command proposes all of it"
        return
    assert all(name in shown for name in commandline.subcommands(program.parser()).choices)


def in_terminal(code: str) -> str:
    """What a terminal shows of a program's standard error."""
    terminal, end = os.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stderr=end, stdout=subprocess.DEVNULL)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # The other end is closed: EIO.
        while more := os.read(terminal, 4096):
            shown += more
    os.close(terminal)
    assert process.wait(timeout=20) == 0
    return shown.decode()


WORK = """
import threading
from koordlite import commandline
with commandline.progress("working", after_seconds={after}):
    threading.Event().wait({takes})
"""


def test_what_takes_long_says_so_on_a_terminal_and_cleans_up() -> None:
    shown = in_terminal(WORK.format(after=0.05, takes=1.3))
    assert shown.startswith("\rworking, 0 s … \rworking, 1 s … ") and shown.endswith("\r\x1b[K")


def test_what_is_quick_or_in_a_pipe_says_nothing() -> None:
    assert in_terminal(WORK.format(after=5, takes=0)) == ""
    command = [sys.executable, "-c", WORK.format(after=0.01, takes=0.1)]
    assert subprocess.run(command, capture_output=True, check=True, timeout=20).stderr == b""


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, ROOT / "scripts" / "man", folder], check=True, capture_output=True, timeout=60)
    return folder


def test_the_manual_has_every_command_and_option(manual: Path) -> None:
    for parser in (koordlite.cli.parser(), descheduler.cli.parser()):
        page = (manual / f"{parser.prog}.1").read_text(encoding="utf-8").replace("\\-", "-")
        for each in commandline.every_parser(parser):
            hidden = each.prog.endswith(" complete")
            assert each is parser or hidden or f".SS {each.prog}\n" in page
            if hidden:
                continue
            listed = [action for action in each._actions if action.help != argparse.SUPPRESS]
            assert all(text in page for action in listed for text in action.option_strings), each.prog


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed (Debian: apt-get install groff-base)")
def test_groff_has_nothing_to_say_against_the_manual(manual: Path) -> None:
    for page in manual.iterdir():
        made = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, check=True, timeout=60)
        assert made.stderr == b""


ENTRIES = {
    "koordlite": "koordlite.__main__:main",
    "descheduler": "descheduler.__main__:main",
    "kubectl": "koordlite.__main__:kubectl",
}
BEGUN = """
import importlib, sys
load = importlib.import_module
importlib.import_module = lambda name: (print(flush=True), load(name))[1]
sys.exit(getattr(load(sys.argv.pop(1)), sys.argv.pop(1))())
"""


@pytest.mark.parametrize("milliseconds", slices.first([15, 60, 130, 0, 3, 8, 25, 40, 90, 200], 3))
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_ctrl_c_at_any_moment_of_a_command_gives_no_traceback(entry: str, milliseconds: int) -> None:
    module, function = entry.split(":")
    words = ["--help"] if "kubectl" in function else ["default-config"]
    command = [sys.executable, "-c", BEGUN, module, function, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "\n"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(milliseconds / 1000)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert "Traceback" not in said and "KeyboardInterrupt" not in said, said
    assert process.returncode in (0, 130)


def test_the_installed_commands_begin_there() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts.values()) == set(ENTRIES.values())


EXAMPLES = [example for group in koordlite.cli.COMMANDS.values() for each in group for example in each.examples]


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_help_is_a_command(example: str) -> None:
    words = shlex.split(example)
    args = koordlite.cli.parser().parse_args(words)
    assert args.command == words[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {"status", "explain", "completion"}),
        ("sta", {"status"}),
        ("explain ", {"node", "besteffort", "cpuSuppress"}),
        ("run --sandbox intel-s", {"intel-snc"}),
        ("run --mode ", {"off", "observe", "enforce"}),
        ("run --st", {"--strategy", "--state-dir"}),
        ("run --strategy cpuSuppress=e", {"cpuSuppress=enforce"}),
        ("scheduler l", {"log-level"}),
        ("scheduler log-level d", {"debug"}),
        ("resctrl ", {"show", "plan"}),
        ("explain pod ", set()),
        ("simulate ", set()),
    ],
)
def test_what_may_come_next_is_proposed(
    line: str, expected: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KOORDLITE_URL", "http://127.0.0.1:1")
    assert koordlite.cli.main(["complete", "--", *line.split(" ")]) == 0
    said = set(capsys.readouterr().out.split())
    assert said == expected if len(expected) < 3 and expected else expected <= said
    assert expected or not said


def test_pods_of_the_running_agent_are_proposed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("koordlite.cli.asking.get", lambda url: '{"pods": [{"name": "shop/web"}, {"name": "lab/x"}]}')
    for line in ("explain pod shop", "numa explain shop"):
        assert koordlite.cli.main(["complete", "--", *line.split(" ")]) == 0
        assert capsys.readouterr().out == "shop/web\n", line


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path: Path) -> None:
    script = tmp_path / "koordlite.fish"
    script.write_text(commandline.completion(koordlite.cli.parser(), "fish"), encoding="utf-8")
    program = tmp_path / "koordlite"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m koordlite "$@"\n')
    program.chmod(0o755)
    ask = f"source {script}; complete -C 'koordlite run --mode e'; complete -C 'koordlite resctrl sh'"
    here = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    made = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, check=True, timeout=60, env=here)
    assert made.stdout.split() == ["enforce", "show"]


@pytest.mark.parametrize("command", [f"{words} --sandbox small" for words in ("check-node", "status", "explain node")])
def test_yaml_is_the_same_document_as_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for form, read in (("yaml", yaml.safe_load), ("json", json.loads)):
        code = koordlite.cli.main([*command.split(), "-o", form])
        found.append((code, list(read(capsys.readouterr().out))))
    assert found[0] == found[1] and found[0][1]


RUN = (
    "status --sandbox small",
    "resctrl show --sandbox intel-2s-ht",
    "check-node --sandbox amd-ccd",
    "check-config configs/koordlite.yaml --cluster configs/tour --node tour-a",
    "default-config",
    "kubelet plan --sandbox small --policy static --reserved-cpus 0",
    "profile apply --profile configs/colocated.yaml configs/colocated.yaml",
    "explain --why-pending shop/report --cluster configs/tour-scheduling",
    "scheduler try configs/tour-scheduling shop/solver",
    "completion bash",
    "run --sandbox small --once",
)
"""Examples that need neither a cluster nor root nor a running agent."""


@pytest.mark.parametrize("example", RUN)
def test_examples_that_need_nothing_answer(
    example: str, run: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert example in EXAMPLES
    monkeypatch.chdir(ROOT)
    answer = run(*shlex.split(example))
    assert answer.code in (0, 1) and answer.out, answer.err
    assert "Traceback" not in answer.err
