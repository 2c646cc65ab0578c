"""Names of pods' and containers' groups."""

from __future__ import annotations

import pytest

from koordlite.host.cgroups import names as cgroup_names
from koordlite.model.picture.groups import Layout
from koordlite.model.pod.qos import KubeQoS

UID = "6c3a-01"
SYSTEMD = cgroup_names.layout(2, "kubepods.slice")
CGROUPFS = cgroup_names.layout(1, "kubepods")
BURSTABLE = "kubepods.slice/kubepods-burstable.slice"


@pytest.mark.parametrize(
    ("kubepods", "driver", "burstable", "besteffort"),
    [
        pytest.param("kubepods", "cgroupfs", "kubepods/burstable", "kubepods/besteffort", id="cgroupfs"),
        pytest.param("kubepods.slice", "systemd", BURSTABLE, "kubepods.slice/kubepods-besteffort.slice", id="systemd"),
        pytest.param("a/kubepods", "cgroupfs", "a/kubepods/burstable", "a/kubepods/besteffort", id="cgroup root"),
        pytest.param(
            "a.slice/a-kubepods.slice",
            "systemd",
            "a.slice/a-kubepods.slice/a-kubepods-burstable.slice",
            "a.slice/a-kubepods.slice/a-kubepods-besteffort.slice",
            id="systemd repeats the path in each name",
        ),
    ],
)
def test_layout(kubepods: str, driver: str, burstable: str, besteffort: str) -> None:
    found = cgroup_names.layout(2, kubepods)
    assert (found.driver, found.kubepods, found.burstable, found.besteffort) == (
        driver,
        kubepods,
        burstable,
        besteffort,
    )


@pytest.mark.parametrize(
    ("names", "qos", "expected"),
    [
        (CGROUPFS, KubeQoS.GUARANTEED, "kubepods/pod6c3a-01"),
        (CGROUPFS, KubeQoS.BURSTABLE, "kubepods/burstable/pod6c3a-01"),
        (CGROUPFS, KubeQoS.BEST_EFFORT, "kubepods/besteffort/pod6c3a-01"),
        (SYSTEMD, KubeQoS.GUARANTEED, "kubepods.slice/kubepods-pod6c3a_01.slice"),
        (SYSTEMD, KubeQoS.BURSTABLE, f"{BURSTABLE}/kubepods-burstable-pod6c3a_01.slice"),
        (
            SYSTEMD,
            KubeQoS.BEST_EFFORT,
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod6c3a_01.slice",
        ),
    ],
)
def test_pod_group(names: Layout, qos: KubeQoS, expected: str) -> None:
    assert cgroup_names.pod_group(names, UID, qos) == expected


@pytest.mark.parametrize(
    ("runtime", "scope"),
    [("containerd", "cri-containerd"), ("docker", "docker"), ("cri-o", "crio"), ("pouch", "pouch")],
)
def test_container_group(runtime: str, scope: str) -> None:
    assert cgroup_names.container_group(SYSTEMD, "p.slice", f"{runtime}://ab12") == f"p.slice/{scope}-ab12.scope"
    assert cgroup_names.container_group(CGROUPFS, "p", f"{runtime}://ab12") == "p/ab12"


def test_a_container_that_was_not_made_has_no_group() -> None:
    assert cgroup_names.container_group(CGROUPFS, "p", "") is None


@pytest.mark.parametrize("text", ["crio://ab", "ab12", "containerd://", "containerd:ab", "docker://../ab"])
def test_an_unknown_runtime_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="container id"):
        cgroup_names.container_group(CGROUPFS, "p", text)


@pytest.mark.parametrize("top", ["kubepods", "kubepods.slice"])
@pytest.mark.parametrize("runtime", ["containerd", "docker", "cri-o", "pouch"])
def test_the_id_of_a_container_is_found_in_its_group(top: str, runtime: str) -> None:
    names = cgroup_names.layout(1, top)
    group = cgroup_names.container_group(names, f"{names.burstable}/pod1", f"{runtime}://0123abc")
    assert group is not None
    assert cgroup_names.container_id(names, group) == "0123abc"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("zun-abc.scope", "abc", id="a runtime we do not know"),
        pytest.param("cri-containerd-abc.scope", "abc", id="a runtime with a dash"),
        pytest.param("docker-web-1.scope", "web-1", id="an id with a dash"),
        pytest.param("crio-conmon-abc.scope", "conmon-abc", id="CRI-O's monitor is not the container"),
    ],
)
def test_any_runtime_of_the_systemd_driver_will_do(name: str, found: str) -> None:
    assert cgroup_names.container_id(cgroup_names.layout(2, "kubepods.slice"), f"kubepods.slice/x/{name}") == found


@pytest.mark.parametrize("name", ["abc", "abc.scope", "-abc.scope", "docker-.scope", "docker-abc.slice"])
def test_what_no_runtime_of_the_systemd_driver_makes_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"RUNTIME-ID\.scope"):
        cgroup_names.container_id(cgroup_names.layout(2, "kubepods.slice"), name)
