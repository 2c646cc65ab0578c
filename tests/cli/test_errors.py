"""Errors of commands that are given something that is not there: in words, with its name, without template leaks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import descheduler.cli
import koordlite.cli

COMMANDS = """
koordlite simulate NONE
koordlite simulate FOLDER
koordlite simulate FOLDER/scenario.txt --html NONE/x
koordlite check-node --recorded NONE
koordlite check-node --recorded FILE
koordlite resctrl show --recorded NONE
koordlite run --recorded NONE --once
koordlite run --cluster NONE --once
koordlite run --cluster FILE --once
koordlite run --config NONE --once
koordlite run --config FOLDER --once
koordlite kubelet plan --cluster NONE
koordlite adopt koordlet --cluster NONE --dry-run
koordlite restore --cluster NONE
koordlite restore --sandbox small
koordlite profile apply --profile NONE NONE
koordlite profile apply --profile configs/colocated.yaml FOLDER
koordlite replay NONE
koordlite replay FOLDER
koordlite explain node --record NONE
koordlite explain node --url http://127.0.0.1:1
koordlite status --url http://127.0.0.1:1
koordlite top --once --url http://127.0.0.1:1
koordlite log-level --url http://127.0.0.1:1
koordlite scheduler state --url http://127.0.0.1:1
koordlite scheduler try NONE a/b
koordlite scheduler validate FILE --kubeconfig NONE
koordlite scheduler-extender --load-aware NONE --kubeconfig NONE
koordlite numa-api --kubeconfig NONE
koordlite reservation list --kubeconfig FOLDER
koordlite crane assign a/b --cluster NONE
koordlite crane assign a/b --kubeconfig NONE
koordlite record --last 5m --from NONE -o FOLDER/x
koordlite record --for 1 --sandbox small -o NONE/x
koordlite capture --sandbox small -o NONE/x/y
koordlite pause 1h --because x --config NONE
descheduler check-config NONE
descheduler check-config FOLDER
descheduler plan --policy NONE --snapshot configs/tour
descheduler plan --snapshot NONE
descheduler plan --snapshot ''
descheduler plan --kubeconfig NONE
descheduler explain a/b --snapshot NONE
"""
ROOT = Path(__file__).parents[2]
MAINS = {"koordlite": koordlite.cli.main, "descheduler": descheduler.cli.main}


@pytest.mark.parametrize("line", COMMANDS.strip().splitlines())
def test_what_is_not_there_is_named_in_words(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("KOORDLITE_URL", raising=False)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "scenario.txt").write_text("machine: small\nduration: 2s\n")
    (tmp_path / "file").write_text("")
    places = {"NONE": tmp_path / "none", "FOLDER": tmp_path / "folder", "FILE": tmp_path / "file"}
    program, *words = shlex.split(line)
    code = MAINS[program]([_filled(word, places) for word in words])
    said = capsys.readouterr()
    assert code in (1, 2), said
    told = said.err or said.out
    assert not re.search(r"Errno|= ''|\$ =|Traceback|\?output", told), told
    named = [str(places[word.partition("/")[0]]) for word in words if word.partition("/")[0] in places]
    assert not named or any(name in told for name in named) or "127.0.0.1" in told, told


def _filled(word: str, places: dict[str, Any]) -> str:
    first, slash, rest = word.partition("/")
    return f"{places[first]}{slash}{rest}" if first in places else word
