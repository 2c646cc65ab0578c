"""record, replay and capture as commands."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from emulated import Emulated
from reported import tick_of

from koordlite import config
from koordlite.cli import main
from koordlite.cli import record as commands
from koordlite.cli.machine import Machine
from koordlite.clock import RealClock
from koordlite.host.bundle import Host
from koordlite.host.files import RealFiles

Out = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Manifests of a service and best-effort work."""
    node = Emulated("small", tmp_path_factory.mktemp("cluster"))
    node.pod("web", "LS", "wave(low=500m,high=4,period=10)")
    node.pod("crunch", "BE", "greedy")
    return node.folder


@pytest.fixture(scope="module")
def record(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run's flight record."""
    folder = tmp_path_factory.mktemp("run") / "record"
    command = ["run", "--sandbox", "small", "--cluster", str(cluster), "--mode", "enforce", "--for", "20", "-q"]
    assert main([*command, "--no-http", "--record", str(folder)]) == 0
    return folder


def test_a_run_on_an_emulated_node_records_only_where_a_folder_is_named(cluster: Path, tmp_path: Path) -> None:
    command = ["run", "--sandbox", "small", "--cluster", str(cluster), "--for", "2", "-q", "--no-http"]
    assert main([*command, "--state-dir", str(tmp_path)]) == 0
    assert not (tmp_path / "record").exists()


def test_replay_says_that_all_comes_out_the_same(record: Path, capsys: Out) -> None:
    assert main(["replay", str(record)]) == 0
    assert "every decision is the same as recorded" in capsys.readouterr().out


def test_without_an_agent_replay_takes_the_folder_of_koordlite_yaml(
    record: Path, tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "koordlite.yaml"
    settings.write_text(f"record: {{folder: {record}}}\n")
    monkeypatch.setenv("KOORDLITE_CONFIG", str(settings))
    monkeypatch.setenv("KOORDLITE_URL", "http://127.0.0.1:9")
    assert main(["replay"]) == 0
    assert capsys.readouterr().out.startswith(f"{record}: ")


def test_replay_with_one_field_otherwise(record: Path, capsys: Out) -> None:
    assert main(["replay", str(record), "--set", "cpuSuppressThresholdPercent=90", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["other"]["beCpuSecondsAllowed"] > found["recorded"]["beCpuSecondsAllowed"]


def test_replay_with_a_configmap_and_with_settings(record: Path, cluster: Path, tmp_path: Path, capsys: Out) -> None:
    assert main(["replay", str(record), "--config", str(cluster / "config.yaml")]) == 0
    assert "gained 0 CPU-s" in capsys.readouterr().out
    settings = tmp_path / "koordlite.yaml"
    settings.write_text("strategies:\n  cpuSuppress: {mode: observe}\n")
    assert main(["replay", str(record), "--config", str(settings), "-o", "html"]) == 0
    assert "<svg" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "threshold=70"], "no field of resource-threshold-config"),
        (["--set", "cpuSuppressThresholdPercent=170"], "cpuSuppressThresholdPercent"),
        (["--strategy", "magic=enforce"], "no such strategy"),
        (["--since", "yesterday"], "neither a duration nor a time"),
    ],
    ids=["no such field", "out of range", "no such strategy", "no such time"],
)
def test_replay_refuses_what_it_cannot_understand(record: Path, options: list[str], told: str, capsys: Out) -> None:
    assert main(["replay", str(record), *options]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("manifest", "told"),
    [("data: {a: 1}\n", "Expected `str`"), ("", "")],
    ids=["a ConfigMap with a mistake", "a ConfigMap without data"],
)
def test_a_manifest_for_replay_is_never_taken_for_settings(
    record: Path, tmp_path: Path, manifest: str, told: str, capsys: Out
) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: slo-controller-config}}\n{manifest}")
    assert main(["replay", str(record), "--config", str(file)]) == (2 if told else 0)
    err = capsys.readouterr().err
    assert told.replace("`", "") in err
    assert "unknown key" not in err


def test_replay_of_no_record_is_an_error(tmp_path: Path, capsys: Out) -> None:
    assert main(["replay", str(tmp_path / "nothing")]) == 2
    assert "no such record" in capsys.readouterr().err


def test_record_takes_the_past_out_of_a_record_masked(record: Path, tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "past.record"
    assert main(["record", "--last", "200000h", "--from", str(record), "-o", str(path), "--mask"]) == 0
    assert "20 moments" in capsys.readouterr().out
    assert main(["replay", str(path)]) == 0
    assert main(["record", "--last", "1h", "--from", str(record), "-o", str(path)]) == 2
    assert "the file exists" in capsys.readouterr().err


@pytest.mark.parametrize("mask", [[], ["--mask"]], ids=["as it is", "masked"])
def test_the_last_seconds_are_those_before_the_end_of_the_record(
    record: Path, tmp_path: Path, mask: list[str], capsys: Out
) -> None:
    path = tmp_path / "end.record"
    assert main(["record", "--last", "3s", "--from", str(record), "-o", str(path), *mask]) == 0
    assert "4 moments" in capsys.readouterr().out


@pytest.mark.parametrize("mask", [[], ["--mask"]], ids=["as it is", "masked"])
def test_record_looks_on_for_a_while(cluster: Path, tmp_path: Path, mask: list[str], capsys: Out) -> None:
    path = tmp_path / "now.record"
    options = ["--sandbox", "small", "--cluster", str(cluster), "-o", str(path), *mask]
    assert main(["record", "--for", "10s", *options]) == 0
    assert "10 moments" in capsys.readouterr().out
    assert main(["replay", str(path)]) == 0


def test_record_wants_a_duration(cluster: Path, tmp_path: Path, capsys: Out) -> None:
    assert main(["record", "--for", "soon", "--cluster", str(cluster), "-o", str(tmp_path / "x")]) == 2
    assert "not a duration" in capsys.readouterr().err
    for none in ("0s", "-5m"):
        assert main(["record", f"--for={none}", "--cluster", str(cluster), "-o", str(tmp_path / "x")]) == 2
        assert "write more than 0, as in 30m" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("mask", [[], ["--mask"]], ids=["as it is", "masked"])
def test_a_capture_is_a_machine_to_run_over(cluster: Path, tmp_path: Path, mask: list[str], capsys: Out) -> None:
    folder = tmp_path / "captured"
    assert main(["capture", "--sandbox", "small", "--cluster", str(cluster), "-o", str(folder), *mask]) == 0
    assert main(["replay", str(folder / "moment.record")]) == 0
    capsys.readouterr()
    assert main(["run", "--recorded", str(folder), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "BE is limited above" in shown
    assert shown.startswith("node-1:" if mask else "node-a:")
    if mask:
        assert b"\xa6crunch" not in (folder / "cluster.msgpack").read_bytes()


def test_a_capture_of_a_later_format_is_refused(cluster: Path, tmp_path: Path, capsys: Out) -> None:
    folder = tmp_path / "captured"
    assert main(["capture", "--sandbox", "small", "--cluster", str(cluster), "-o", str(folder)]) == 0
    path = folder / "cluster.msgpack"
    path.write_bytes(path.read_bytes().replace(b"\x92\x02", b"\x92\x09", 1))
    assert main(["run", "--recorded", str(folder), "--once"]) == 2
    assert "format 9" in capsys.readouterr().err


def test_a_capture_never_overwrites(cluster: Path, tmp_path: Path, capsys: Out) -> None:
    assert main(["capture", "--sandbox", "small", "--cluster", str(cluster), "-o", str(tmp_path)]) == 2
    assert "it exists" in capsys.readouterr().err


class Failing:
    """A recorder on a disk that is full at times."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    def add(self, moment: object) -> None:
        if self.error:
            raise self.error


def test_a_gap_of_the_record_is_logged_when_it_comes_up_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Failing()
    keep = commands.keeper(recorder)  # type: ignore[arg-type]
    full = OSError(28, "No space left on device", "/var/lib/koordlite/record")
    for error in (None, full, full, None, full):
        recorder.error = error
        keep(None)  # type: ignore[arg-type]
    assert len(caplog.messages) == 2
    assert "No space left on device" in caplog.messages[0]


@pytest.mark.parametrize("mode", ["automatic", "required"])
def test_a_folder_that_cannot_be_written_matters_only_where_it_is_required(
    tmp_path: Path, mode: Literal["automatic", "required"], caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.touch()
    record = dataclasses.replace(config.FlightRecord(), mode=mode, folder=str(blocked))
    settings = msgspec.structs.replace(config.default(), record=record)
    host = Host(RealFiles(), RealClock(), None, None, None)  # type: ignore[arg-type]
    machine = Machine(host, None, "this machine")  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack:
        if mode == "required":
            stack.enter_context(pytest.raises(FileExistsError))
        with commands.recording(None, machine, settings, named=None) as made:  # type: ignore[arg-type]
            made.listen(tick_of(time=0.0), ())
    assert ("there is no flight record" in caplog.text) == (mode == "automatic")
