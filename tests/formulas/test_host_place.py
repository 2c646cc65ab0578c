"""Where host applications live, and on which CPUs."""

from __future__ import annotations

import pytest

from koordlite.formulas.cpu import host_place
from koordlite.formulas.cpu.pools import Pool
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.picture.groups import Layout
from koordlite.model.pod.qos import QoSClass
from koordlite.model.slo.settings import HostApplication

LAYOUT = Layout(1, "systemd", "kubepods.slice", "kubepods.slice/burstable", "kubepods.slice/besteffort")
POOLS = (Pool(0, 0, CPUSet.parse("0-3")), Pool(1, 1, CPUSet.parse("8-11")))


@pytest.mark.parametrize(
    ("qos", "place", "group"),
    [
        ("LSE", (), "host-latency-sensitive/app"),
        ("LSR", (), "host-latency-sensitive/app"),
        ("LS", (), "host-latency-sensitive/app"),
        ("BE", (), "host-best-effort/app"),
        ("SYSTEM", (), "app"),
        ("", (), "app"),
        ("LS", ("CgroupRoot", "a/b", "c"), "a/b/c"),
        ("LS", ("CgroupRoot", "/a//b/", ""), "a/b"),
        ("LS", ("CgroupRoot", ".", "./c/."), "c"),
        ("LS", ("Kubepods", "a", ""), "kubepods.slice/a"),
        ("LS", ("KubepodsBurstable", "", "a"), "kubepods.slice/burstable/a"),
        ("BE", ("KubepodsBesteffort", "", "a"), "kubepods.slice/besteffort/a"),
        ("BE", ("CgroupRoot", "", ""), ""),
    ],
)
def test_group(qos: str, place: tuple[str, ...], group: str) -> None:
    words = dict(zip(("base", "parent_dir", "relative_path"), place, strict=False))
    assert host_place.group(HostApplication(name="app", qos=QoSClass(qos), **words), LAYOUT) == group  # type: ignore[arg-type]


def test_latency_sensitive_applications_share_all_pools() -> None:
    assert host_place.cpuset(QoSClass.LS, POOLS) == CPUSet.parse("0-3,8-11")
    assert host_place.cpuset(QoSClass.LS, ()) == EMPTY


@pytest.mark.parametrize("qos", [q for q in QoSClass if q is not QoSClass.LS])
def test_the_other_classes_have_no_rule(qos: QoSClass) -> None:
    with pytest.raises(ValueError, match="only LS"):
        host_place.cpuset(qos, POOLS)
