"""Masked records: no name is left, what rules need stays, and judged again they give what they hold."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from emulated import Emulated

from koordlite.record import store
from koordlite.record.mask import Mask, Names
from koordlite.record.reader import Record
from koordlite.record.round_record import RoundRecord
from koordlite.record.segment import Head
from koordlite.replay import verify

NAMES = ("payments-api", "secret-batch", "node-a", "team-blue", "owner")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> list[RoundRecord]:
    """Moments of pods with telling names and labels."""
    node = Emulated("small", tmp_path_factory.mktemp("named"))
    for name, qos, cpu in (("payments-api", "LS", "1"), ("secret-batch", "BE", "greedy"), ("ab", "BE", "1")):
        node.pod(name, qos, cpu, uid=str(uuid.uuid5(uuid.NAMESPACE_DNS, name)))
        path = node.folder / f"pod-{name}.yaml"
        path.write_text(path.read_text().replace("labels:", "labels:\n    acme.example/owner: team-blue"))
    found = []
    with node.at_work() as agent:
        for _ in range(5):
            agent.tick()
            assert agent.last_round
            found.append(agent.last_round)
            node.sandbox.advance(1.0)
    return found


@pytest.fixture(scope="module")
def masked(named: list[RoundRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("masked") / "a.record"
    head = Head(koordlite="1", node="node-a", machine="host-7")
    assert store.masked(path, head, lambda: named, decide=verify.decided_again()) == len(named)
    return path


def test_no_name_is_left_in_any_field(masked: Path) -> None:
    moments = list(Record(masked).rounds())
    left = [name for name in (*NAMES, "acme.example") if name in repr(moments)]
    assert left == []
    assert {pod.name for pod in moments[0].snapshot.pods} == {"pod-1", "pod-2", "pod-3"}


def test_the_head_says_that_it_is_masked_and_names_no_machine(masked: Path) -> None:
    record = Record(masked)
    list(record.rounds())
    assert record.head == Head(koordlite="1", node="node-1", machine="", masked=True)


def test_what_rules_read_stays(named: list[RoundRecord], masked: Path) -> None:
    before, after = named[-1].snapshot, list(Record(masked).rounds())[-1].snapshot
    assert [pod.uid for pod in after.pods] == [pod.uid for pod in before.pods]
    assert [pod.labels["koordinator.sh/qosClass"] for pod in after.pods] == ["BE", "LS", "BE"]
    assert (after.usage, after.cgroups, after.topology) == (before.usage, before.cgroups, before.topology)


def test_judged_again_it_gives_the_decisions_it_holds(named: list[RoundRecord], masked: Path) -> None:
    assert verify.check(Record(masked).rounds()).same
    reasons = [[d.reason for d in moment.decisions] for moment in Record(masked).rounds()]
    assert reasons == [[d.reason for d in moment.decisions] for moment in named]


def test_the_same_name_has_the_same_pseudonym_everywhere(masked: Path) -> None:
    for moment in Record(masked).rounds():
        known = {f"pod/{pod.namespace}/{pod.name}" for pod in moment.snapshot.pods}
        assert {d.subject for d in moment.decisions if d.subject.startswith("pod/")} <= known


def test_pseudonyms_sort_as_the_names_do(named: list[RoundRecord]) -> None:
    names = Names(pod={f"app-{number}" for number in range(12)} | {"zebra", "ant"})
    mask = Mask(names)
    ordered = sorted(names.pod)
    assert sorted(map(mask.text, ordered)) == [mask.text(name) for name in ordered]


def test_unchanged_parts_stay_the_same_objects(named: list[RoundRecord]) -> None:
    names = Names()
    names.take_in(named[-1].snapshot)
    mask = Mask(names)
    first, second = mask.apply(named[3]), mask.apply(named[4])
    assert first.snapshot.pods is second.snapshot.pods
    assert first.snapshot.topology is second.snapshot.topology


def test_a_file_that_is_there_is_not_overwritten(named: list[RoundRecord], tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("content")
    with pytest.raises(FileExistsError):
        store.write(path, Head(koordlite="1"), named)
    assert path.read_text() == "content"
