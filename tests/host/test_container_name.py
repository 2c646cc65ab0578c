"""Which container a process belongs to, by its mounts; whatever stands there, no error but that of a missing file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.observe.places import container_of_process

MOUNTS = b"""\
22 1 8:1 / / rw - ext4 /dev/root rw
31 22 8:1 /var/lib/kubelet/pods/uid-1/containers/main/0a1b /dev/termination-log rw - ext4 /dev/root rw
"""


def named(raw: bytes, uid: str) -> str | None:
    """The name by these mounts."""
    files: Any = SimpleNamespace(read=lambda path: raw if path == "/proc/77/mountinfo" else b"")
    return container_of_process(files, 77, uid)


@pytest.mark.parametrize(("uid", "name"), [("uid-1", "main"), ("uid-2", None)], ids=["the pod's own", "another pod's"])
def test_a_container_is_known_by_its_termination_log(uid: str, name: str | None) -> None:
    assert named(MOUNTS, uid) == name


def test_a_folder_of_kubelet_on_a_disk_of_its_own_does_as_well() -> None:
    assert named(b"31 22 8:1 /pods/uid-1/containers/side/0a1b /dev/log rw - ext4 /dev/sda rw", "uid-1") == "side"


@pytest.mark.parametrize("raw", [b"", b"\n", b"a b c d\n", b"1 2 3 /pods/uid-1/containers/ x\n", b"\xff / / / / /\n"])
def test_mounts_that_say_nothing_name_nobody(raw: bytes) -> None:
    assert named(raw, "uid-1") is None


@given(st.binary(max_size=400))
def test_any_bytes_are_taken(raw: bytes) -> None:
    found = named(MOUNTS.replace(b"uid-1", raw), "uid-1")
    assert found is None or found == "main"
