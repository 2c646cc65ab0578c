"""Every value that may stand in a record comes back as it was; what another version wrote is refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import slices
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlite import strategies
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.eviction import EvictPod
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import Decision
from koordlite.model.picture.usage import Pressure, Stall
from koordlite.model.pod.qos import QoSClass
from koordlite.model.quantity import Quantity
from koordlite.model.settings import StrategySettings
from koordlite.model.snapshot import Snapshot
from koordlite.ports import ClusterView
from koordlite.record import codec, difference
from koordlite.record.round_record import Damage, RecordError, RoundRecord
from koordlite.strategies.cpu_suppress import SuppressMemory
from koordlite.strategies.shared.evict import EvictionMemory

NUMBERS = st.integers(min_value=-(2**70), max_value=2**70)
FLOATS = st.floats(allow_nan=False)
TEXT = st.text(max_size=6)
SETS = st.sets(st.integers(0, 300)).map(CPUSet)
STALLS = st.builds(Stall, avg10=FLOATS, avg60=FLOATS, avg300=FLOATS, total_us=st.integers(0, 2**63))
CHANGES = st.one_of(
    st.builds(CgroupChange, TEXT, st.just("cpuset.cpus"), SETS),
    st.builds(CgroupChange, TEXT, st.just("cpu.quota"), NUMBERS),
    st.builds(EvictPod, TEXT, TEXT, TEXT, TEXT),
)
MEMORIES = st.builds(SuppressMemory, followed_milli=NUMBERS, shrunk_at=FLOATS) | st.builds(
    EvictionMemory, started=FLOATS, asked=st.dictionaries(TEXT, FLOATS, max_size=2)
)
DECISIONS = st.builds(
    Decision,
    subject=TEXT,
    verdict=st.sampled_from(["set", "hold", "evict"]),
    reason=TEXT,
    evidence=st.dictionaries(TEXT, st.one_of(NUMBERS, FLOATS, TEXT), max_size=3),
    changes=st.lists(CHANGES, max_size=3).map(tuple),
    strategy=st.sampled_from(["cpuSuppress", "memoryEvict"]),
    remember=st.none() | MEMORIES,
)
VALUES = st.one_of(
    st.tuples(st.just(tuple[Decision, ...]), st.lists(DECISIONS, max_size=4).map(tuple)),
    st.tuples(st.just(Mapping[str, Pressure]), st.dictionaries(TEXT, st.builds(Pressure, STALLS, st.none() | STALLS))),
    st.tuples(st.just(Quantity), st.builds(Quantity, NUMBERS)),
    st.tuples(st.just(CPUSet | int | None), st.none() | SETS | NUMBERS),
    st.tuples(st.just(frozenset[str]), st.frozensets(TEXT)),
    st.tuples(st.just(Mapping[QoSClass, CPUSet]), st.dictionaries(st.sampled_from(QoSClass), SETS)),
    st.tuples(
        st.just(Mapping[tuple[str, str], tuple[int, ...]]),
        st.dictionaries(st.tuples(TEXT, TEXT), st.lists(st.integers(0, 9)).map(tuple)),
    ),
    st.tuples(st.just(int | float | str), NUMBERS | FLOATS | TEXT),
)


def through(hint: Any, value: Any) -> Any:
    return codec.loader(hint)(codec.decode(codec.encode(value, codec.dumper(hint))))


@given(typed=VALUES)
@settings(max_examples=slices.amount(200, 40))
def test_what_comes_back_is_what_went_in(typed: tuple[Any, Any]) -> None:
    hint, value = typed
    back = through(hint, value)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, frozenset)


def test_the_settings_of_each_strategy_come_back_as_its_own_class() -> None:
    given_settings = {rule.name: rule.config() for rule in strategies.discover()}
    back = through(Mapping[str, StrategySettings], given_settings)
    assert back == given_settings
    assert [type(section) for section in back.values()] == [type(section) for section in given_settings.values()]


@pytest.mark.parametrize("cls", [RoundRecord, Snapshot, ClusterView])
def test_every_field_has_a_way_to_be_written_and_read(cls: type) -> None:
    for hint in codec.field_types(cls).values():
        codec.dumper(hint)
        codec.loader(hint)
    for known in codec.vocabulary():
        for hint in codec.field_types(known).values():
            codec.loader(hint)


@given(chain=st.lists(st.lists(DECISIONS, max_size=4).map(tuple), min_size=2, max_size=4), data=st.data())
@settings(max_examples=slices.amount(100, 25))
def test_moments_follow_from_those_before_them(
    moments: list[RoundRecord], chain: list[tuple[Decision, ...]], data: st.DataObject
) -> None:
    writer, reader = difference.DifferenceWriter(), difference.DifferenceReader()
    keys = st.dictionaries(TEXT, st.sampled_from([1.0, 2.0]), max_size=4)
    for decisions in chain:
        seen = dataclasses.replace(moments[0].snapshot, evicted=data.draw(keys))
        moment = msgspec.structs.replace(moments[0], decisions=decisions, snapshot=seen)
        back = reader.read(writer.frame(moment))
        assert back == moment
        assert list(back.snapshot.evicted) == list(moment.snapshot.evicted)
        assert repr(back.decisions) == repr(moment.decisions)


def test_equal_numbers_of_another_kind_and_another_order_are_changes(moments: list[RoundRecord]) -> None:
    writer, reader = difference.DifferenceWriter(), difference.DifferenceReader()
    for evidence in ({"a": 1, "b": 2}, {"a": 1.0, "b": 2}, {"b": 2, "a": 1.0}, {"b": 2, "a": True}):
        moment = msgspec.structs.replace(moments[0], decisions=(Decision("node", "hold", "X", evidence),))
        back = reader.read(writer.frame(moment))
        assert repr(back.decisions) == repr(moment.decisions)


def test_a_moment_that_is_the_same_takes_one_byte(moments: list[RoundRecord]) -> None:
    writer = difference.DifferenceWriter()
    writer.frame(moments[0])
    assert writer.frame(moments[0]) == b"\x80"
    assert writer.frame(msgspec.structs.replace(moments[0], decisions=tuple(moments[0].decisions))) == b"\x80"


def test_an_object_of_a_foreign_class_is_refused_when_it_is_written() -> None:
    with pytest.raises(TypeError, match="object cannot stand in a record"):
        codec.encode(object())


@pytest.mark.parametrize(
    ("hint", "written", "why"),
    [
        (Stall, {"avg10": 1.0, "colour": 3}, "usage.Stall has no field colour"),
        (CgroupChange, {"group": "g", "field": "cpu.quota"}, "cgroup.CgroupChange lacks value"),
        (tuple[Decision, ...], [{"subject": "node", "changes": [["cgroup.Gone", {}]]}], "no class cgroup.Gone"),
    ],
    ids=["a field this version does not have", "a field without a default", "a class this version does not have"],
)
def test_what_another_version_wrote_is_refused_by_name(hint: Any, written: Any, why: str) -> None:
    with pytest.raises(RecordError, match=why):
        codec.loader(hint)(codec.decode(codec.encode(written)))


@pytest.mark.parametrize(
    ("former", "cls"),
    [
        ("node_resource.NodeResourceChange", "NodeResourceChange"),
        ("zone_resource.ZoneResourceChange", "ZoneResourceChange"),
        ("resctrl_tasks.TasksChange", "TasksChange"),
        ("system_file.SystemFileChange", "SystemFileChange"),
        ("container_kill.KillContainer", "KillContainer"),
    ],
)
def test_a_class_that_moved_is_read_from_earlier_records(former: str, cls: str) -> None:
    moved = codec.class_named(former)
    assert moved is not None
    assert moved.__name__ == cls


def test_a_former_name_that_several_classes_might_have_is_none_of_them() -> None:
    assert codec.class_named("strategy_that_is_gone.Config") is None


def test_a_field_that_a_later_version_added_has_its_default() -> None:
    written = {"subject": "node", "verdict": "hold", "reason": "X"}
    assert through(Decision, Decision("node", "hold", "X")) == codec.loader(Decision)(written)


def test_a_field_of_a_moment_or_picture_that_is_gone_is_named(moments: list[RoundRecord]) -> None:
    for name, owner in (
        ("snapshot.colour", "snapshot.Snapshot has no field colour"),
        ("mood", "round_record.RoundRecord has no"),
    ):
        with pytest.raises(RecordError, match=owner):
            difference.DifferenceReader().read(codec.encode({name: [1]}))
    with pytest.raises(RecordError, match=r"snapshot.Snapshot in the record lacks"):
        difference.DifferenceReader().read(codec.encode({"wall": [1.0]}))


@pytest.mark.parametrize(
    ("hint", "written"),
    [(int, "5"), (Stall, []), (tuple[int, ...], 5), (Mapping[str, int], [1]), (QoSClass, "XX"), (frozenset[int], 1)],
)
def test_what_nobody_wrote_is_an_error(hint: Any, written: Any) -> None:
    with pytest.raises((Damage, ValueError)):
        codec.loader(hint)(written)


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x91", b"\xc7\x01\x09x", b"\xc7\x02\x012-"])
def test_bytes_that_are_no_message_are_damage(raw: bytes) -> None:
    with pytest.raises(Damage):
        codec.decode(raw)
