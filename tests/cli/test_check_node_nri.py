"""`check-node` about NRI: whether the runtime listens, and how to switch it on."""

from __future__ import annotations

import dataclasses
import pathlib
import socket

import msgspec
import pytest

from koordlite import config
from koordlite.cli import node_check


def finding(path: pathlib.Path, nri: str) -> node_check.Finding:
    settings = config.default()
    agent = dataclasses.replace(settings.agent, nri_socket=str(path), nri=nri)
    return node_check._nri(msgspec.structs.replace(settings, agent=agent))


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
