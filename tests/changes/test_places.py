"""Places as values: every kind prints, is read back, and counts under a closed set of words."""

import importlib
import pkgutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite import changes, plan
from koordlite.changes.block_device import BlockChange
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.core_cookie import CoreCookieChange
from koordlite.changes.eviction import EvictPod, KillContainer
from koordlite.changes.published import (
    NodeAnnotationChange,
    NodeConditionChange,
    NodeResourceChange,
    TopologyChange,
    TopologyLabelChange,
    ZoneResourceChange,
    ZonesChange,
)
from koordlite.changes.resctrl import (
    THREAD,
    ResctrlGroupChange,
    ResctrlMountChange,
    ResctrlReturn,
    SchemataChange,
    TasksChange,
)
from koordlite.changes.system import OOM_SCORE_AT_CREATION, IRQChange, OOMScoreChange, SystemFileChange
from koordlite.formulas.system_settings import FEATURES
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.place import OTHER, Place

GROUPS = ["", "BE", "mount", "tasks", "BE/mon_groups/koordlet-1", "/mon_groups/koordlet-1"]
EXAMPLES: list[Change] = [
    CgroupChange("kubepods/besteffort", "cpuset.cpus", 1),
    CgroupChange("kubepods.slice/kubepods-pod1.slice/cri-containerd-0.scope", "memory.oom.group", 1),
    CgroupChange("system", "cpu.quota", 1),
    CgroupChange("resctrl/BE", "cpu.quota", 1),
    BlockChange("kubepods/besteffort", "8:0", "io.weight", "1"),
    BlockChange("", "253:16", "io.cost.qos", "1"),
    ResctrlMountChange(),
    *(ResctrlGroupChange(group) for group in GROUPS),
    *(ResctrlReturn(group) for group in GROUPS),
    *(TasksChange(group, ()) for group in GROUPS),
    *(SchemataChange(group, resource, {}) for group in GROUPS for resource in ("L3", "L3CODE", "MB")),
    NodeResourceChange("kubernetes.io/batch-cpu", 1),
    NodeAnnotationChange("node.koordinator.sh/a", "1"),
    NodeConditionChange("CPUContention", "True"),
    TopologyChange("node.koordinator.sh/a", "1"),
    TopologyChange("zones", "1"),
    TopologyLabelChange("zones/a", "1"),
    ZonesChange((), ()),
    ZoneResourceChange("node-0", "kubernetes.io/batch-cpu", None),
    EvictPod("ns", "name", "uid-1", ""),
    KillContainer("ns", "name", "uid-1", "main", "kubepods/besteffort/pod1/c", ""),
    SystemFileChange("vm.min_free_kbytes", "1"),
    SystemFileChange(f"{FEATURES}/ID_ABSOLUTE_EXPEL", "1"),
    OOMScoreChange(77, 1234, 0),
    CoreCookieChange("kubepods/besteffort/pod1/c", "ns/db:expeller"),
    IRQChange("30", "PCI-MSI eth0", CPUSet([1])),
    IRQChange("default", "default", CPUSet([1])),
]
AMBIGUOUS = [TopologyChange("zones", "1")]
"""An annotation must not be called so: keys of annotations have a domain before the slash."""


@pytest.mark.parametrize("change", [c for c in EXAMPLES if c not in AMBIGUOUS], ids=lambda change: str(change.place))
def test_a_place_is_read_back_as_it_prints(change: Change) -> None:
    assert changes.parse(str(change.place)) == change.place


def test_every_kind_is_among_the_examples() -> None:
    assert {type(change) for change in EXAMPLES} == changes.classes()


def test_every_kind_has_its_rank_in_a_plan_and_says_its_value() -> None:
    assert all(isinstance(change.rank, int) and isinstance(change.describe(), str) for change in EXAMPLES)


def test_no_two_places_are_the_same() -> None:
    assert len({change.place for change in EXAMPLES}) == len(EXAMPLES)


def test_the_mount_is_not_a_group_called_mount() -> None:
    mount, group = ResctrlMountChange().place, ResctrlGroupChange("mount").place
    assert (mount == group, str(mount) == str(group)) == (False, False)


def test_a_container_created_with_our_oom_score_has_a_place_beside_its_processes() -> None:
    place = OOM_SCORE_AT_CREATION.place("kubepods/podu/77")
    assert changes.parse(str(place)) == place != OOMScoreChange(77, 1234, 0).place
    assert (place.part("cgroup"), place.metric) == ("kubepods/podu/77", "oom_score_adj")


def test_a_thread_has_a_place_of_its_own() -> None:
    place = THREAD.place("BE/mon_groups/koordlet-1", "7", "1234")
    assert (changes.parse(str(place)), place.part("tid")) == (place, "7")


@given(st.text(), st.text(), st.text(), st.integers(1), st.integers(0))
def test_words_of_metrics_are_a_closed_set(first: str, second: str, third: str, pid: int, started: int) -> None:
    """Whatever pods, processes and groups are called: each new word would be a time series that never ends."""
    known = {word for kind in changes.place_kinds() for word in kind.metrics} | {OTHER}
    for kind in changes.place_kinds():
        parts = (first, second, third)[: kind.pattern.groups]
        assert Place(kind, parts).metric in known
    assert EvictPod(first, second, third, "").place.metric == "eviction"
    assert OOMScoreChange(pid, started, 0).place.metric == "oom_score_adj"


def test_every_word_of_metrics_is_used_and_names_no_pod() -> None:
    for change in EXAMPLES:
        assert change.place.metric in change.place.kind.metrics
        assert "uid-1" not in change.place.metric


def test_evictions_and_settings_are_no_cgroups_in_koordinators_histogram() -> None:
    kinds = {kind.name: kind.update for kind in changes.place_kinds()}
    assert {name for name, update in kinds.items() if update == "cgroup"} == {"cgroup", "disk"}
    assert (kinds["eviction"], kinds["system"], kinds["oom_score_adj"]) == ("", "default", "default")


def test_a_text_of_no_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'what/ever' is no place of any kind"):
        changes.parse("what/ever")


def test_places_never_change() -> None:
    with pytest.raises(AttributeError, match="never changes"):
        ResctrlMountChange().place.parts = ("a",)


NEW_KIND = """
import dataclasses, re
from typing import ClassVar
from koordlite.model.change import KernelChange
from koordlite.model.place import Place, PlaceKind

PLACE = PlaceKind(
    name="swap", form="swap/%s", pattern=re.compile("swap/(?P<name>.+)"),
    metric=lambda parts: "swap", metrics=frozenset({"swap"}), update="default",
)

@dataclasses.dataclass(frozen=True, slots=True)
class SwapChange(KernelChange):
    rank: ClassVar[int] = 60
    name: str

    @property
    def place(self) -> Place:
        return PLACE.place(self.name)
"""


def test_a_new_kind_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "swap.py").write_text(NEW_KIND)
    monkeypatch.setattr(changes, "__path__", [*changes.__path__, str(tmp_path)])
    for known in (changes.modules, changes.classes, changes.place_kinds, changes.parse):
        known.cache_clear()
    try:
        assert "swap" in {found.name for found in pkgutil.iter_modules(changes.__path__)}
        swap = importlib.import_module("koordlite.changes.swap")
        assert swap.SwapChange in changes.classes()
        made, eviction = swap.SwapChange("zram0"), EvictPod("ns", "name", "uid-1", "")
        assert changes.parse("swap/zram0") == made.place
        assert plan.order((eviction, made), {}) == (made, eviction)
    finally:
        sys.modules.pop("koordlite.changes.swap", None)
        for known in (changes.modules, changes.classes, changes.place_kinds, changes.parse):
            known.cache_clear()
