"""Kubelet and its groups are gone, and what was found elsewhere on the machine is put back all the same."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from emulated import Emulated
from hooked_files import HookedFiles, refusing

from koordlite import cli
from koordlite.apply import Applier, restore, undo_list
from koordlite.changes.system import SystemFileChange
from koordlite.host import bundle, procfs, system_files
from koordlite.host.journal.journal import Journal
from koordlite.model.errors import HardwareAbsent
from koordlite.observe import Observer
from koordlite.plan import Plan

Make = Callable[..., Emulated]


NAME = "vm.watermark_scale_factor"
BOOT_ID = b"0b0f3c1e-6a52-4d0c-9a71-5f6f0f6f2c11\n"
WITHOUT_KUBELET = refusing("kubepods", errno.ENOENT)


def own_boot_id(path: str, content: bytes) -> bytes:
    """A random boot id, as a kernel makes it: the command restores nothing of an emulated node."""
    return BOOT_ID if path == "/proc/sys/kernel/random/boot_id" else content


def enforced(node: Emulated, journal: Journal) -> None:
    """Everything is set: cgroups, resctrl, and a setting of the kernel."""
    node.pod("web", "LS", "2000m")
    node.pod("crunch", "BE", "greedy")
    node.ticks(node.agent(journal), 5)
    host = node.host()
    seen = Observer(host, node.cluster, tasks_seconds=1.0).observe()
    change = SystemFileChange(NAME, "99")
    Applier(host, node.cluster, journal).apply(Plan((change,), owners={change.place: "systemConfig"}), seen)
    kinds = {str(entry.place).partition("/")[0] for entry in journal.entries}
    assert {"resctrl", "system"} < kinds
    assert any(kind.startswith("kubepods") for kind in kinds)


@pytest.mark.parametrize("named", ["", "kubepods"], ids=["kubelet's group found", "kubelet's group named"])
@pytest.mark.parametrize("shape", ["intel-2s-ht", "amd-ccd"], ids=["v1", "v2"])
def test_resctrl_and_settings_of_the_kernel_are_put_back(emulate: Make, shape: str, named: str) -> None:
    node = emulate(shape)
    before = node.host().resctrl.group_names()
    with node.journal() as journal:
        enforced(node, journal)
        files = HookedFiles(node.sandbox.files, WITHOUT_KUBELET, WITHOUT_KUBELET)
        with pytest.raises(HardwareAbsent):
            bundle.bind(files, node.sandbox.clock, kubepods=named)
        host = bundle.bind(files, node.sandbox.clock, kubepods=named, required=False)
        listed = {present for place, present, _ in undo_list(host, journal.entries) if place.startswith("kubepods")}
        assert listed == {"gone meanwhile"}
        steps = restore(host, journal)
        assert [step for step in steps if not step.ok] == []
        assert {step.value for step in steps if str(step.place).startswith("kubepods")} == {"gone meanwhile"}
        assert {str(entry.place).partition("/")[0] for entry in journal.entries} <= {"node", "noderesourcetopology"}
    assert host.resctrl.group_names() == before
    assert system_files.read(files, NAME) == "10"


def test_the_command_does_so_as_well(
    emulate: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = emulate("intel-2s-ht")
    files = HookedFiles(node.sandbox.files, WITHOUT_KUBELET, WITHOUT_KUBELET, own_boot_id)
    with Journal.open(node.state, boot_id=procfs.boot_id(files)) as journal:
        enforced(node, journal)
    monkeypatch.setattr("koordlite.cli.undo.RealFiles", lambda: files)
    assert cli.main(["restore", "--state-dir", str(node.state), "--dry-run"]) == 0
    assert f"system/{NAME}" in capsys.readouterr().out
    cli.main(["restore", "--state-dir", str(node.state)])
    assert f"system/{NAME}: 10" in capsys.readouterr().out
    assert system_files.read(files, NAME) == "10"
