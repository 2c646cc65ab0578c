"""Triggers on this machine's own pressure files."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest

from koordlite.host.sentinel import PressureTrigger

CPU = pathlib.Path("/proc/pressure/cpu")


def _opens() -> bool:
    try:
        os.close(os.open(CPU, os.O_RDWR | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_a_kernel_without_the_file_is_an_error_that_names_it(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        PressureTrigger(str(tmp_path / "cpu.pressure"))
    assert caught.value.filename == str(tmp_path / "cpu.pressure")


@pytest.mark.skipif(not _opens(), reason="needs a kernel with PSI whose pressure file may be opened for writing")
class TestOnThisKernel:
    """What the kernel takes and refuses."""

    def test_a_window_that_is_too_short_is_refused_with_the_kernels_reason(self) -> None:
        with pytest.raises(OSError, match=str(CPU)) as caught:
            PressureTrigger(str(CPU), stall_us=1, window_us=100)
        assert caught.value.errno == errno.EINVAL

    def test_a_window_of_two_seconds_needs_no_privilege_and_stays_quiet_until_it_is_told(self) -> None:
        trigger = PressureTrigger(str(CPU), stall_us=2_000_000, window_us=2_000_000)
        assert trigger.wait(0.0) == "quiet"
        trigger.close()

    def test_refused_triggers_leave_no_descriptor_behind(self) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with pytest.raises(OSError, match=str(CPU)):
                PressureTrigger(str(CPU), stall_us=1, window_us=100)
        assert len(os.listdir("/proc/self/fd")) == before
