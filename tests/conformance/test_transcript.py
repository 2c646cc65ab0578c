"""Transcripts of resctrl as cases: what passes, what differs, and that a difference is seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import __main__ as command
from tests.conformance import recorded_machine

CPUS = [
    {"cpu": cpu, "package": "0", "core": str(cpu // 2), "l3_id": str(cpu // 2), "l2_id": str(cpu // 2)}
    for cpu in range(4)
]
MOUNTED = ["resctrl /sys/fs/resctrl resctrl rw,relatime 0 0"]


def op(number: int, kind: str, path: str, data: Any, *, readback: Any, status: str | None = "ok\n") -> dict[str, Any]:
    """One operation that succeeded, as a transcript writes it."""
    return {
        "n": number,
        "section": "made up",
        "op": kind,
        "path": path,
        "data": data,
        "result": "ok",
        "last_cmd_status": status,
        "readback": readback,
    }


def recording(keys: str, *operations: dict[str, Any], flavour: str = "intel", kernel: str = "6.1.5") -> dict[str, Any]:
    """A transcript of a machine with these hardware keys."""
    line = f"quiet fake_rdt={keys}"
    return {"flavour": flavour, "kernel": kernel, "cmdline": line, "cpus": CPUS, "ops": list(operations)}


def outcome(folder: Path, document: Any, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    file = folder / "made-up.json"
    file.write_text(json.dumps(document))
    return command.main([str(file)]), capsys.readouterr().out


WRITE = op(1, "write", "schemata", "L3:0=1\n", readback="    MB:0=100;1=100\n    L3:0=001;1=01f\n")
MOUNT = op(0, "mount", "", "", readback=MOUNTED)


def test_every_operation_is_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = outcome(tmp_path, recording("l3:5", MOUNT, WRITE), capsys)
    assert "2 passed, 0 failed" in text
    assert code == 0


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"result": "EINVAL"}, id="another answer"),
        pytest.param({"last_cmd_status": "Mask out of range\n"}, id="another status"),
        pytest.param({"readback": "    MB:0=100;1=100\n    L3:0=003;1=01f\n"}, id="another content"),
        pytest.param({"also": {"mode": "exclusive\n"}}, id="another file that differs"),
    ],
)
def test_a_difference_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: dict[str, Any]) -> None:
    code, text = outcome(tmp_path, [recording("l3:5", MOUNT, {**WRITE, **wrong})], capsys)
    assert "1 passed, 1 failed" in text
    assert "#1 made up: write schemata" in text
    assert code == 1


def test_registers_are_compared_but_not_how_often_they_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "L3 0 cfg=0 writes=9",
        "L3 0 cbm 1 1f",
        "L3 0 mba 0",
        "L3 1 cfg=0 writes=2",
        "L3 1 cbm 1f 1f",
        "L3 1 mba 0",
    ]
    document = recording("l3:5,l3clos:2,mbaclos:1", MOUNT, WRITE, op(2, "registers", "/proc/x", None, readback=lines))
    assert "1 deviating" in outcome(tmp_path, document, capsys)[1]
    document["ops"][2]["readback"] = [line.replace("cbm 1 1f", "cbm 3 1f") for line in lines]
    assert "1 failed" in outcome(tmp_path, document, capsys)[1]


def test_a_picture_of_the_tree_is_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = recording("l3:5", MOUNT, op(1, "umount", "", None, readback=[], status=None))
    document["snapshots"] = {"end": [{"path": ".", "type": "dir", "mode": "0o555", "nlink": 5, "size": 0}]}
    assert "2 passed, 1 failed" in outcome(tmp_path, document, capsys)[1], "the picture lacks all files"


@pytest.mark.parametrize(
    ("keys", "flavour", "kernel", "shown"),
    [
        pytest.param("on", "intel", "6.1.0", (12, 16, 1, 100, 32), id="Intel as it comes"),
        pytest.param("on", "amd", "6.12.3", (16, 16, 0, 2048, 32), id="AMD as it comes"),
        pytest.param("l3:20,l3clos:4,mincbm:2,rmids:7", "intel", "6.1.0", (20, 4, 2, 100, 7), id="keys"),
        pytest.param("mbaexp:13", "amd", "6.12.3", (16, 16, 0, 8192, 32), id="AMD's maximum"),
    ],
)
def test_the_machine_comes_out_of_the_hardware_keys(
    keys: str, flavour: str, kernel: str, shown: tuple[int, ...]
) -> None:
    found = recorded_machine.hardware(recording(keys, flavour=flavour, kernel=kernel))
    assert found is not None
    assert found.l3 is not None
    assert found.mb is not None
    assert found.monitoring is not None
    assert (found.l3.bits, found.l3.closids, found.l3.min_bits, found.mb.full, found.monitoring.rmids) == shown


def test_a_machine_without_the_hardware() -> None:
    plain = {**recording("on"), "cmdline": "quiet"}
    assert recorded_machine.machine(plain).rdt is None
    with_none = recorded_machine.hardware(recording("l3:0,mba:0,mon:0,l2:8"))
    assert with_none is not None
    assert (with_none.l3, with_none.mb, with_none.monitoring) == (None, None, None)
