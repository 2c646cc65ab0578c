"""Every command that a document shows and that needs neither a cluster nor root answers; the others have a reason."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import cyaml
import pytest
import slices

from descheduler import cli as descheduler_cli
from koordlite import cli
from tests.docs.conftest import beside
from tests.docs.test_commands import LINES, words

pytestmark = pytest.mark.xdist_group("commands")
ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = {"koordlite": cli.main, "descheduler": descheduler_cli.main}
NOT_RUN = {
    r"descheduler (plan --brief|explain NAMESPACE/POD|run .*)$": "asks a cluster; tests/descheduler/cli runs them",
    r"descheduler explain shop/big": "a pod that waits; tests/descheduler/fit/test_make_room.py",
    r"koordlite (adopt koordlet|restore) --cluster ": "this machine: root, and what koordlet left on it; tests/adopt",
    r"koordlite run --cluster ": "this machine, by root; the same is run here with --sandbox",
    r"koordlite run --quiet --cluster /etc": "a unit of systemd; as above",
    r"koordlite run --recorded DIR": "a capture of the reader's own; the one of record.md is run",
    r"koordlite crane assign": "a cluster with Crane; tests/cli/test_crane.py",
    r"koordlite numa-api ": "serves a cluster until it is stopped; tests/scheduler",
    r"koordlite reservation ": "a cluster with Reservations; tests/reservation",
    r"koordlite scheduler (deploy|remove|validate|explain|state|log-level)": "a cluster or a running extender",
    r"koordlite verify --kubeconfig": "a cluster; tests/cli/test_verify.py, tests/e2e/test_uninstall.py",
    r"koordlite simulate ": "some ten seconds each; test_quick_start.py and tests/lab/simulation play them",
    r"koordlite record --for 1h": "takes an hour; tests/cli/test_record_commands.py",
    r".*--(at|since) 2026-01-31": "a moment of the reader's own record; tests/cli/test_explain_record.py",
}
"""Command lines that are parsed only (test_commands.py), and why."""
ON_A_MACHINE = ("check-node", "resctrl", "kubelet", "verify", "capture")
HERE = {
    "NAMESPACE/NAME": "shop/cache-0",
    "NAMESPACE/POD": "shop/gateway-7d4f",
    "flight.record": "night.record",
    "PATH": "besteffort/cpuset.cpus",
    "DIR": "configs/tour",
    "cluster": "configs/tour",
    "/sys/fs/cgroup/kubepods/besteffort/cpuset.cpus": "/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus",
    "/tmp/picture": "picture",
    "node-a": "tour-a",
    "shop/big": "shop/cache-0",
    "240": "20",
}
"""What a reader puts in place of these words, or what a test need not wait for."""
LAST = ("resume", "restore", "pause")
"""They change what the agent does: after all questions, a pause before its end."""


def order(line: str) -> tuple[int, str]:
    """Replays first, while the record is short."""
    command = line.split()[1]
    return LAST[::-1].index(command) + 1 if command in LAST else -(command == "replay"), line


# test_quick_start.py runs those of the quick start, in their order.
SHOWN = sorted({line for page, line in LINES if page.name != "quick-start.md"}, key=order)
RUN = [line for line in SHOWN if not any(re.match(pattern, line) for pattern in NOT_RUN)]


@pytest.fixture(scope="module")
def folder(agent: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the reader is: a checkout, with the files that pages speak of, and what earlier commands wrote."""
    made = tmp_path_factory.mktemp("reader")
    for name in ("configs", "manifests"):
        (made / name).symlink_to(ROOT / name)
    items = [
        item
        for path in sorted((ROOT / "configs" / "tour").glob("*.yaml"))
        for item in cyaml.safe_load_all(path.read_text())
        if item and item["kind"] != "KubeletConfiguration"
    ]
    (made / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, default=str))
    (made / "policy.yaml").write_text((ROOT / "configs" / "descheduler.yaml").read_text())
    (made / "koordlite.yaml").write_text((ROOT / "configs" / "koordlite.yaml").read_text())
    emulated = ["--sandbox", "intel-2s-ht", "--cluster", "configs/tour", "--node", "tour-a"]
    for earlier in (["record", "--last", "8h", "-o", "night.record"], ["capture", "-o", "picture", *emulated]):
        command = [sys.executable, "-m", "koordlite", *earlier]
        environment = {**agent, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=made, env=environment, check=True, capture_output=True, timeout=100)
    return made


def as_here(line: str) -> list[str]:
    """The command for the emulated machine, where it would look at this one."""
    program, command, *rest = [HERE.get(word, word) for word in words(line)]
    if program == "koordlite" and command == "check-config":
        return [program, command, *rest, "--node", "tour-a"]
    if program == "koordlite" and "--sandbox" not in rest and (command in ON_A_MACHINE or "--cluster" in rest):
        rest += ["--sandbox", "intel-2s-ht", *([] if "--node" in rest else ["--node", "tour-a"])]
        rest += [] if "--cluster" in rest else ["--cluster", "configs/tour"]
    if command == "verify":
        rest += ["--state-dir", "gone"]
    return [program, command, *rest]


def test_every_reason_is_of_a_line_that_a_page_shows() -> None:
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, line) for line in SHOWN)] == []
    assert len(RUN) > 50


SLOW = re.compile(r"koordlite (replay |record .*--mask|run )")
"""Some seconds each; `make test` runs the like of them in test_questions.py and test_quick_start.py."""


@pytest.mark.parametrize("line", [slices.long(line) if SLOW.match(line) else line for line in RUN])
def test_a_shown_command_answers(
    agent: dict[str, str],
    folder: pathlib.Path,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    beside(agent, monkeypatch)
    program, *rest = as_here(line)
    if rest[0] in ("record", "capture"):
        rest[rest.index("-o") + 1] += f"-{len(line)}"
    if rest[0] == "run":
        command = [sys.executable, "-m", program, *rest, "--port", "0"]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        code, (out, err) = PROGRAMS[program](rest), capsys.readouterr()
    assert code == 0, f"{out[-1500:]}\n{err[-1500:]}"
    assert out or "-o" in rest or "--report" in rest
