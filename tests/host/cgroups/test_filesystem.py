"""Groups by logical names, on planted trees of both versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from koordlite.host.cgroups.filesystem import Cgroups, vanished
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import HardwareAbsent
from koordlite.model.picture.groups import Cgroup
from koordlite.model.pod.qos import KubeQoS

if TYPE_CHECKING:
    from planted import Rooted

ROOT = "/sys/fs/cgroup"
BE = "kubepods.slice/kubepods-besteffort.slice"


def v2_group(group: str, **files: str) -> dict[str, str]:
    defaults = {
        "cpuset.cpus": "\n",
        "cpuset.cpus.effective": "0-7\n",
        "cpu.max": "max 100000\n",
        "cpu.stat": "usage_usec 5000\nuser_usec 1\n",
        "memory.stat": "inactive_anon 1\nactive_anon 2\nunevictable 4\n",
        "cgroup.threads": "",
        "cgroup.procs": "",
    }
    return {f"{ROOT}/{group}/{name}": text for name, text in {**defaults, **files}.items()}


@pytest.fixture
def v2(machine: Rooted) -> Rooted:
    return machine.plant(
        {
            "/proc/self/mounts": f"cgroup2 {ROOT} cgroup2 rw 0 0\n",
            f"{ROOT}/cgroup.controllers": "cpuset cpu memory\n",
            **v2_group("kubepods.slice"),
            **v2_group(BE, **{"cpuset.cpus": "2-3\n", "cpu.max": "50000 100000\n"}),
        }
    )


def v1_machine(machine: Rooted, *kubepods: str) -> Rooted:
    names = ("cpu", "cpuacct", "cpuset", "memory")
    machine.plant({"/proc/self/mounts": "".join(f"cgroup {ROOT}/{n} cgroup rw,{n} 0 0\n" for n in names)})
    return machine.folder(*(f"{ROOT}/{controller}/{group}" for controller in names for group in kubepods))


def test_v2_state(v2: Rooted) -> None:
    cgroups = Cgroups.detect(v2)
    assert cgroups.state("kubepods.slice") == Cgroup(CPUSet(), CPUSet(range(8)), -1, 100_000)
    assert cgroups.state(BE) == Cgroup(CPUSet({2, 3}), CPUSet(range(8)), 50_000, 100_000)


def test_v2_usage_and_memory(v2: Rooted) -> None:
    cgroups = Cgroups.detect(v2)
    assert (cgroups.cpu_usage_ns(BE), cgroups.memory(BE)) == (5_000_000, 7)


def test_the_root_group_has_no_limits_to_read(v2: Rooted) -> None:
    assert Cgroups.detect(v2).state("") == Cgroup()


def test_v1_state_reads_quota_and_period_apart(machine: Rooted) -> None:
    v1_machine(machine, "kubepods").plant(
        {
            f"{ROOT}/cpuset/kubepods/cpuset.cpus": "0-3\n",
            f"{ROOT}/cpu/kubepods/cpu.cfs_quota_us": "30000\n",
            f"{ROOT}/cpu/kubepods/cpu.cfs_period_us": "50000\n",
        }
    )
    assert Cgroups.detect(machine).state("kubepods") == Cgroup(CPUSet(range(4)), CPUSet(range(4)), 30_000, 50_000)


def test_a_file_that_is_absent_is_none_but_a_group_that_is_gone_is_an_error(machine: Rooted) -> None:
    cgroups = Cgroups.detect(v1_machine(machine, "kubepods"))
    assert cgroups.state("kubepods") == Cgroup()
    with pytest.raises(FileNotFoundError) as caught:
        cgroups.state("kubepods/podgone")
    assert caught.value.filename == f"{ROOT}/cpu/kubepods/podgone"
    assert vanished(caught.value)
    assert not cgroups.exists("kubepods/podgone")
    assert cgroups.exists("kubepods")


def test_a_number_that_cannot_be_read_costs_no_more_than_itself(v2: Rooted) -> None:
    v2.folder(f"{ROOT}/{BE}/memory.high").plant({f"{ROOT}/{BE}/memory.low": "4096\n"})
    state = Cgroups.detect(v2).state(BE, ["memory.high", "memory.low"])
    assert (state.quota_us, state.values) == (50_000, {"memory.low": 4096})


def test_children_are_the_folders_only(v2: Rooted) -> None:
    v2.folder(f"{ROOT}/{BE}/pod2", f"{ROOT}/{BE}/pod10")
    assert Cgroups.detect(v2).children(BE) == ["pod10", "pod2"]


def test_threads_of_groups_a_container_made_inside_count(v2: Rooted) -> None:
    v2.plant(v2_group(f"{BE}/c.scope", **{"cgroup.threads": "\n", "cgroup.procs": ""}))
    v2.plant(v2_group(f"{BE}/c.scope/init", **{"cgroup.threads": "7\n8\n", "cgroup.procs": "7\n"}))
    cgroups = Cgroups.detect(v2)
    assert cgroups.threads(f"{BE}/c.scope") == (7, 8)
    assert cgroups.procs(f"{BE}/c.scope") == (7,)


def test_writes_reach_the_right_file_in_the_right_form(v2: Rooted) -> None:
    cgroups = Cgroups.detect(v2)
    cgroups.write(BE, "cpu.quota", -1)
    cgroups.write(BE, "cpuset.cpus", CPUSet({0, 1}))
    assert v2.writes == [(f"{ROOT}/{BE}/cpu.max", b"max"), (f"{ROOT}/{BE}/cpuset.cpus", b"0-1")]


def test_what_was_found_is_written_back_byte_for_byte(v2: Rooted) -> None:
    cgroups = Cgroups.detect(v2)
    found = cgroups.read_raw(BE, "cpu.quota")
    cgroups.write(BE, "cpu.quota", 1000)
    cgroups.write_raw(BE, "cpu.quota", found)
    assert cgroups.read_raw(BE, "cpu.quota") == b"50000 100000\n"


@pytest.mark.parametrize("field", ["cpu.period", "memory.stat", "procs"])
def test_fields_for_reading_are_not_written(v2: Rooted, field: str) -> None:
    with pytest.raises(ValueError, match="only read"):
        Cgroups.detect(v2).write_raw(BE, field, b"1")
    assert v2.writes == []


def test_an_unknown_field_is_named(v2: Rooted) -> None:
    with pytest.raises(ValueError, match=r"cpu\.colour"):
        Cgroups.detect(v2).path(BE, "cpu.colour")


@pytest.mark.parametrize(
    ("present", "override", "kubepods", "driver"),
    [
        pytest.param(["kubepods"], "", "kubepods", "cgroupfs", id="cgroupfs"),
        pytest.param(["kubepods.slice"], "", "kubepods.slice", "systemd", id="systemd"),
        pytest.param(["kubepods.slice", "kubepods/burstable"], "", "kubepods", "cgroupfs", id="the one that is used"),
        pytest.param(["t/kubepods", "kubepods"], "/t/kubepods", "t/kubepods", "cgroupfs", id="the one that was named"),
    ],
)
def test_kubepods_is_found(machine: Rooted, present: list[str], override: str, kubepods: str, driver: str) -> None:
    layout = Cgroups.detect(v1_machine(machine, *present), kubepods=override).layout
    assert (layout.version, layout.kubepods, layout.driver) == (1, kubepods, driver)


@pytest.mark.parametrize(
    ("override", "why"),
    [("", "neither kubepods nor kubepods.slice"), ("t/kubepods", "there is no group t/kubepods")],
)
def test_without_kubepods_it_says_what_to_do(machine: Rooted, override: str, why: str) -> None:
    with pytest.raises(HardwareAbsent, match=why):
        Cgroups.detect(v1_machine(machine, "system"), kubepods=override)


def test_pods_and_containers_lie_where_kubelet_puts_them(v2: Rooted) -> None:
    cgroups = Cgroups.detect(v2)
    pod = cgroups.pod_group("a-b", KubeQoS.BEST_EFFORT)
    assert pod == f"{BE}/kubepods-besteffort-poda_b.slice"
    assert cgroups.container_group(pod, "containerd://c0") == f"{pod}/cri-containerd-c0.scope"
