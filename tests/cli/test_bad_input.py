"""What a new user gets wrong: every command says what is wrong, what there is, and what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koordlite import cli
from koordlite.changes.published import NodeResource
from koordlite.cli import check, options
from koordlite.cli import machine as machines
from koordlite.host.journal.journal import Journal
from koordlite.lab import Sandbox
from koordlite.model.errors import InputError
from koordlite.model.node import Node
from koordlite.model.quantity import Quantity

Ask = Callable[..., Any]
SANDBOX = ("--sandbox", "small", "--cluster")
EMULATED_BOOT = "6fa459ea-ee8a-5ca4-894e-db77e160355e"
"""A UUID of version 5, as emulated nodes have."""


def test_a_run_over_a_folder_that_is_not_there_is_an_error(run: Ask, tmp_path: Path) -> None:
    answer = run("run", *SANDBOX, tmp_path / "nope", "--for", "1")
    assert (answer.code, answer.out) == (2, "")
    assert f"{tmp_path / 'nope'}" in answer.err
    assert "there is no such folder" in answer.err


def test_a_run_for_a_node_that_is_not_in_the_folder_lists_those_that_are(run: Ask, manifests: Path) -> None:
    answer = run("run", *SANDBOX, manifests, "--for", "1", "--node", "elsewhere")
    assert answer.code == 2
    assert "no Node manifest is called elsewhere" in answer.err
    assert "name one of the nodes in the folder (node-a) with --node" in answer.err


def test_a_run_among_two_nodes_needs_a_name(run: Ask, manifests: Path) -> None:
    (manifests / "other.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: node-b}\n")
    answer = run("run", *SANDBOX, manifests, "--for", "1")
    assert answer.code == 2
    assert "(node-a, node-b)" in answer.err


def test_a_node_of_another_size_than_the_machine_is_reported() -> None:
    files = Sandbox("small").files
    node = Node(name="n", capacity={"cpu": Quantity.parse("96"), "memory": Quantity.parse("1Gi")})
    found = [str(problem) for problem in machines.contradictions(node, files)]
    assert len(found) == 2
    assert "node/n: status.capacity.cpu" in found[0]
    assert "this machine has 4 CPUs" in found[0]
    assert "status.capacity.memory" in found[1]


def test_a_node_of_the_right_size_is_not_reported(ask: Ask, manifests: Path) -> None:
    assert "Node capacity" not in ask("check-node", *SANDBOX, manifests).out


@pytest.mark.parametrize("main", ["koordlite", "descheduler"])
def test_an_interrupted_command_says_so_in_one_line(
    main: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    if main == "koordlite":
        monkeypatch.setattr(cli, "_command", interrupted)
        code = cli.main(["default-config"])
    else:
        from descheduler import cli as descheduler

        monkeypatch.setattr(descheduler, "_run_plan", interrupted)
        code = descheduler.main(["plan"])
    assert code == 130
    assert capsys.readouterr().err == f"{main}: interrupted\n"


def test_a_run_that_ends_says_what_is_in_force_and_how_to_undo_it(run: Ask, manifests: Path, tmp_path: Path) -> None:
    enforce = ("--mode", "enforce", "--for", "5", "--no-http", "--state-dir", tmp_path)
    kept = run("run", *SANDBOX, manifests, *enforce)
    assert kept.code == 0, kept.err
    assert "in force when the emulated node ended: " in kept.out
    given_back = run("run", *SANDBOX, manifests, *enforce, "--on-stop", "restore")
    assert "nothing stays in force: every value is as it was found" in given_back.out


def test_on_a_real_machine_the_command_that_undoes_a_run_is_named(tmp_path: Path) -> None:
    from koordlite.cli import run as runs

    args = cli.parser().parse_args(["run", "--cluster", "my manifests", "--state-dir", str(tmp_path)])
    with Journal.open(tmp_path) as held:
        held.record([NodeResource(resource="kubernetes.io/batch-cpu", previous=None)])
        said = runs.in_force(held, args, emulated=False)
    assert said.startswith("still in force: ")
    assert f"koordlite restore --state-dir {tmp_path} --cluster 'my manifests'" in said


def test_restore_over_a_folder_that_is_not_there_is_an_error(ask: Ask, tmp_path: Path) -> None:
    answer = ask("restore", "--dry-run", "--state-dir", tmp_path, "--cluster", tmp_path / "nope")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith(f"{tmp_path / 'nope'}: there is no such folder; name a folder of manifests\n")


def test_restore_offers_nothing_of_an_emulated_node(ask: Ask, tmp_path: Path) -> None:
    with Journal.open(tmp_path, boot_id=EMULATED_BOOT) as held:
        held.record([NodeResource(resource="kubernetes.io/batch-cpu", previous=None)])
    (tmp_path / "lock").write_text("0\n")  # The process that held it has ended; this one has not.
    answer = ask("restore", "--dry-run", "--state-dir", tmp_path)
    assert answer.code == 1
    assert f"{tmp_path} is the journal of an emulated node: this machine has nothing to restore" in answer.out
    assert "batch-cpu" not in answer.out
    assert "--cluster or --kubeconfig" in answer.out


def test_an_emulated_node_names_its_boot_by_a_uuid_of_version_5(run: Ask, manifests: Path, tmp_path: Path) -> None:
    run("run", *SANDBOX, manifests, "--mode", "enforce", "--for", "2", "-q", "--no-http", "--state-dir", tmp_path)
    assert json.loads((tmp_path / "journal.json").read_text())["boot_id"][14] == "5"


def test_check_node_answers_everything_where_the_first_answer_is_no(
    ask: Ask, manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine on which kubelet has made no groups yet."""
    monkeypatch.setattr(machines, "files", lambda args: Sandbox("small").files)
    answer = ask("check-node", "--cluster", manifests, "--kubepods", "nosuch")
    assert answer.code == 1
    assert answer.out.startswith("NO   kubelet's cgroup")
    for word in ("processors", "NUMA nodes", "resctrl", "pressure", "writable cgroups", "yes  Node object"):
        assert word in answer.out, answer.out


@pytest.mark.parametrize(("uid", "answer"), [(0, "yes"), (1000, "no")])
def test_limits_can_be_written_by_root_only(uid: int, answer: str) -> None:
    (found,) = check.writable(Sandbox("small").files, uid=uid)
    assert found.answer == answer


def test_a_broken_manifest_is_named_where_the_node_may_be_in_it(run: Ask, tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("kind: Node\nmetadata: {name: a\n")
    answer = run("run", *SANDBOX, tmp_path, "--once")
    assert answer.code == 2
    assert "node.yaml:3:1: not YAML" in answer.err
    assert f"{tmp_path}: no Node manifest; name one" in answer.err


def test_check_node_answers_for_the_machine_where_the_cluster_cannot_be_asked(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "files", lambda args: Sandbox("small").files)
    monkeypatch.delenv("NODE_NAME", raising=False)
    answer = ask("check-node")
    assert answer.code == 1
    assert "processors" in answer.out
    assert "NO   cluster" in answer.out
    assert "which Node is this machine?" in answer.out


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1m", 60), ("1h30m", 5400), ("0.5", 0.5), ("250ms", 0.25)])
def test_a_duration_is_a_number_of_seconds_or_has_units(text: str, seconds: float) -> None:
    assert options.seconds("--for")(text) == seconds


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--for", "soon"],
        ["run", "--interval", "soon"],
        ["record", "--for", "soon", "-o", "x"],
        ["record", "--last", "soon", "-o", "x"],
        ["log-level", "debug", "--for", "soon"],
        ["top", "--interval", "soon"],
        ["pause", "soon", "--because", "x"],
    ],
)
def test_every_duration_option_says_how_to_write_one(ask: Ask, words: list[str]) -> None:
    answer = ask(*words)
    assert answer.code == 2
    assert "'soon'" in answer.err
    assert "write 90s, 30m, 1h30m, or a number of seconds" in answer.err


def test_a_moment_is_neither(ask: Ask) -> None:
    with pytest.raises(InputError, match="neither a duration nor a time"):
        options.time_of("noon", "--at", now=0.0)


def test_a_folder_is_no_configuration(ask: Ask, tmp_path: Path) -> None:
    answer = ask("check-config", tmp_path)
    assert answer.code == 1
    assert "this is a folder, not a file" in answer.out
    assert "--cluster" in answer.out
    assert "Errno" not in answer.out


def test_ctrl_c_during_a_simulation_leaves_no_traceback() -> None:
    """The signal comes while the process works, at whatever line that is."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from koordlite.lab.simulation import runner\n"
        "runner.play = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)\n"
        "from koordlite import cli\n"
        "sys.exit(cli.main(['simulate', *sys.argv[1:]]))"
    )
    scenario = next(Path("configs/scenarios").glob("*.yaml"))
    done = subprocess.run(
        [sys.executable, "-c", code, str(scenario)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, "koordlite: interrupted\n")
