"""Who gets what of disks, what is wrong with what is asked, and what is given back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from koordlite.formulas import blkio as formula
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture.blocks import Blocks
from koordlite.model.picture.groups import PodGroups
from koordlite.model.slo.qos import BlkioQOS, Block, ClassQOS, IOConfig, ResourceQOS
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import blkio

BE = "kubepods/besteffort"
DISK = "254:0"
DEVICES = {"device/vda": (DISK,), "device/gone": (), "volumegroup/pool": (DISK, "254:16"), "podvolume/b/data": (DISK,)}
MODEL = dict.fromkeys(
    (f"model_{which}_{what}" for which in ("read", "write") for what in ("bps", "seq_iops", "rand_iops")), 5
)


def block(name: str = "vda", type: str = "device", **io: Any) -> Block:
    return Block(name=name, type=type, io_cfg=IOConfig(**io))


def qos(*blocks: Block, enable: bool = True, at: str = "be_class") -> SLO:
    return SLO(resource_qos=ResourceQOS(**{at: ClassQOS(blkio_qos=BlkioQOS(enable=enable, blocks=blocks))}))


@pytest.fixture
def node(build: Any) -> Any:
    """A node with one BE pod and a kernel that has every file."""

    def make(slo: SLO | None = None, *, held: Any = None, note: str = "", **more: Any) -> Snapshot:
        groups = ("", BE, f"{BE}/podb")
        values = {group: {field: {} for field in formula.UNSET} | (held or {}) for group in groups}
        values[""]["io.cost.model"] = values[""]["io.cost.model"] or {DISK: "ctrl=auto"}
        pod = build.pod("b", "BE", "BestEffort", annotations={keys.BLKIO_QOS: note} if note else {})
        given = {
            "slo": slo or SLO(),
            "pods": (pod,),
            "places": {"b": PodGroups(f"{BE}/podb", {})},
            "blocks": Blocks(devices=DEVICES, values=values),
        }
        return build.snapshot(**{**given, **more})

    return make


def decide(seen: Snapshot) -> list[Decision]:
    return list(blkio.decide(seen, blkio.Config()))


def changes(seen: Snapshot) -> dict[str, str]:
    return {str(c.place): c.value for d in decide(seen) for c in d.changes}  # type: ignore[union-attr, misc]


def words(seen: Snapshot) -> dict[str, str]:
    return {d.reason: d.verdict for d in decide(seen)}


def test_only_what_is_set_is_written(node: Any) -> None:
    slo = qos(block(read_bps=1048576, write_iops=0, io_weight_percent=60))
    assert changes(node(slo)) == {f"io:{BE}/{DISK}/io.read_bps": "1048576", f"io:{BE}/{DISK}/io.weight": "60"}


def test_what_stands_there_is_not_written_again(node: Any) -> None:
    slo = qos(block(read_bps=1048576))
    assert changes(node(slo, held={"io.read_bps": {DISK: "1048576"}})) == {}
    assert changes(node(slo, held={"io.read_bps": {DISK: "5"}})) == {f"io:{BE}/{DISK}/io.read_bps": "1048576"}
    assert changes(node(slo, held={"io.read_bps": {"8:0": "1048576"}})) == {f"io:{BE}/{DISK}/io.read_bps": "1048576"}


def test_the_root_gets_targets_and_model_only(node: Any) -> None:
    slo = qos(block(read_bps=9, read_latency=2000, enable_user_model=True, **MODEL), at="cgroup_root")
    assert changes(node(slo)) == {
        f"io:/{DISK}/io.cost.model": "ctrl=user rbps=5 rseqiops=5 rrandiops=5 wbps=5 wseqiops=5 wrandiops=5",
        f"io:/{DISK}/io.cost.qos": "enable=1 ctrl=user rpct=95 rlat=2000 wpct=95 wlat=3000",
    }


def test_targets_that_the_kernel_prints_in_its_way_stand(node: Any) -> None:
    printed = "enable=1 ctrl=user rpct=95.00 rlat=2000 wpct=95.00 wlat=3000 min=1.00 max=10000.00"
    slo = qos(block(read_latency=2000), at="cgroup_root")
    assert changes(node(slo, held={"io.cost.qos": {DISK: printed}})) == {}


def test_a_volume_group_stands_for_all_its_disks_and_a_volume_is_its_pod_s(node: Any) -> None:
    note = '{"blocks": [{"name": "pool", "type": "volumegroup", "ioCfg": {"readIOPS": 7}},'
    note += '{"name": "data", "type": "podvolume", "ioCfg": {"writeBPS": 8}}]}'
    pod = f"io:{BE}/podb"
    assert changes(node(note=note)) == {
        f"{pod}/{DISK}/io.read_iops": "7",
        f"{pod}/254:16/io.read_iops": "7",
        f"{pod}/{DISK}/io.write_bps": "8",
    }


@pytest.mark.parametrize(
    ("slo", "note", "word", "verdict"),
    [
        pytest.param(qos(block("gone", read_bps=1)), "", "NoSuchDisk", "skip", id="no such disk"),
        pytest.param(qos(block("vda", "", read_bps=1)), "", "NoSuchDisk", "skip", id="a type that means nothing"),
        pytest.param(
            qos(block("data", "podvolume", read_bps=1)), "", "NoSuchDisk", "skip", id="a class has no volume of a pod"
        ),
        pytest.param(
            qos(block(enable_user_model=True, model_read_bps=5), at="cgroup_root"),
            "",
            "BadBlockSetting",
            "refuse",
            id="half a cost model",
        ),
        pytest.param(qos(block(read_bps=1), at="ls_class"), "", "BlockClassHasNoGroup", "skip", id="LS"),
        pytest.param(SLO(), '{"blocks": [', "BadBlockAnnotation", "refuse", id="broken annotation"),
        pytest.param(
            SLO(),
            '{"blocks": [{"name": "vda", "type": "device", "ioCfg": {"ioWeightPercent": 101}}]}',
            "BadBlockAnnotation",
            "refuse",
            id="out of range",
        ),
    ],
)
def test_what_cannot_be_done_is_told_and_nothing_is_written(
    node: Any, slo: SLO, note: str, word: str, verdict: str
) -> None:
    seen = node(slo, note=note)
    assert words(seen)[word] == verdict
    assert changes(seen) == {}


def test_a_wrong_disk_does_not_stop_the_others(node: Any) -> None:
    slo = qos(block("gone", read_bps=1), block(read_bps=2))
    assert changes(node(slo)) == {f"io:{BE}/{DISK}/io.read_bps": "2"}


def test_a_disk_that_the_kernel_does_not_weigh_gets_no_weight_until_the_root_asks_for_it(node: Any) -> None:
    weight = block("pool", "volumegroup", io_weight_percent=50, read_bps=2)
    seen = node(qos(weight))
    assert [d.evidence["disks"] for d in decide(seen) if d.reason == "DiskNotWeighed"] == ["254:16"]
    assert f"io:{BE}/254:16/io.weight" not in changes(seen)
    assert changes(seen)[f"io:{BE}/254:16/io.read_bps"] == "2"
    both = ResourceQOS(
        be_class=ClassQOS(blkio_qos=BlkioQOS(enable=True, blocks=(weight,))),
        cgroup_root=ClassQOS(blkio_qos=BlkioQOS(enable=True, blocks=(block("pool", "volumegroup", read_latency=9),))),
    )
    assert changes(node(SLO(resource_qos=both)))[f"io:{BE}/254:16/io.weight"] == "50"


def test_files_the_kernel_lacks_are_named_and_the_others_written(node: Any) -> None:
    seen = node(qos(block(read_bps=2, io_weight_percent=50)))
    bare = {group: {"io.read_bps": {}} for group in seen.blocks.values}
    bare[""] = {"io.cost.qos": {DISK: "enable=1"}}  # type: ignore[dict-item]
    seen = dataclasses.replace(seen, blocks=Blocks(devices=DEVICES, values=bare))
    assert [d.evidence["file"] for d in decide(seen) if d.reason == "UnsupportedByKernel"] == ["io.weight"]
    assert changes(seen) == {f"io:{BE}/{DISK}/io.read_bps": "2"}


@pytest.mark.parametrize(
    "slo",
    [
        pytest.param(SLO(), id="nobody asks"),
        pytest.param(qos(block(read_bps=2), enable=False), id="switched off"),
        pytest.param(qos(block(write_bps=2)), id="something else is asked"),
    ],
)
def test_lines_of_ours_that_nobody_asks_for_are_given_back(node: Any, slo: SLO) -> None:
    place = f"io:{BE}/{DISK}/io.read_bps"
    other = "kubepods/besteffort/memory.min"
    found = [c for d in decide(node(slo, ours=frozenset({place, other}))) if d.verdict == "release" for c in d.changes]
    assert [(str(c.place), c.value, c.gives_back) for c in found] == [(place, None, True)]  # type: ignore[union-attr]


def test_the_root_is_found_again_in_its_place(node: Any) -> None:
    place = f"io:/{DISK}/io.cost.qos"
    (change,) = (c for d in decide(node(ours=frozenset({place}))) for c in d.changes)
    assert str(change.place) == place
