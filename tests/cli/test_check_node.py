"""`check-node` about the kernel's scheduler, and about NRI: whether the runtime listens, and how to switch it on."""

from __future__ import annotations

import dataclasses
import pathlib
import socket

import msgspec
import pytest

from koordlite import config
from koordlite.cli import check


def finding(path: pathlib.Path, nri: str) -> check.Finding:
    settings = config.default()
    agent = dataclasses.replace(settings.agent, nri_socket=str(path), nri=nri)
    return check._nri(msgspec.structs.replace(settings, agent=agent))


def test_without_a_socket_it_says_how_to_switch_it_on(tmp_path: pathlib.Path) -> None:
    found = finding(tmp_path / "nri.sock", "off")
    assert (found.what, found.answer) == ("NRI", "no")
    assert "No such file" in found.detail
    assert "disable = false" in found.do and "enable_nri = true" in found.do
    (tmp_path / "nri.sock").write_text("")
    assert "is no socket" in finding(tmp_path / "nri.sock", "off").detail


@pytest.mark.parametrize(("nri", "do"), [("off", "agent.nri: auto"), ("auto", "")])
def test_with_a_socket_it_is_never_spoken_to(tmp_path: pathlib.Path, nri: str, do: str) -> None:
    """A plugin that connects and says nothing blocks all others for 5 s."""
    path = tmp_path / "nri.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0.0)
        found = finding(path, nri)
        assert found.answer == "yes"
        assert found.do.startswith(do) and bool(found.do) is bool(do)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    ("release", "answer", "words", "do"),
    [
        pytest.param("6.18.5-cloud", "yes", "EEVDF", "guided lets the weights arbitrate", id="EEVDF"),
        pytest.param("6.6.0", "yes", "EEVDF", "guided", id="the first with EEVDF"),
        pytest.param("6.1.0-22-amd64", "part", "CFS", "no figures of ours", id="CFS"),
        pytest.param("5.10", "part", "CFS", "compare guided with cfsQuota", id="an older one"),
        pytest.param(None, "part", "not known: No such file", "", id="a kernel that is not known"),
    ],
)
def test_the_scheduler_and_the_policy_that_goes_with_it(release: str | None, answer: str, words: str, do: str) -> None:
    class Kernel:
        def read(self, path: str) -> bytes:
            assert path == "/proc/sys/kernel/osrelease"
            if release is None:
                raise FileNotFoundError(2, "No such file or directory", path)
            return f"{release}\n".encode()

    found = check.scheduler(Kernel())  # type: ignore[arg-type]
    assert (found.what, found.answer) == ("CPU scheduler", answer)
    assert words in found.detail
    assert do in found.do
