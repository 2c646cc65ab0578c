"""A new kind of change is one file of values and one file for the machine: journaled, written, told apart from what
others write, and undone, without an edit anywhere else."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulated import Emulated

from koordlite import changes
from koordlite.apply import Applier, kinds, restore, undo_list
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import FileTrouble
from koordlite.observe import Observer
from koordlite.plan import Plan, order

VALUES = """
import re
from typing import ClassVar
import msgspec
from koordlite.model.change import Entry, KernelChange, Standing
from koordlite.model.place import PlaceKind
from koordlite.model.status import ForeignWrite

PLACE = PlaceKind(
    name="dirt", form="dirt/%s", pattern=re.compile("dirt/(?P<name>.+)"),
    metric=lambda parts: "dirt", metrics=frozenset({"dirt"}), update="default",
)

class DirtChange(KernelChange, msgspec.Struct, frozen=True):
    place_kind: ClassVar[PlaceKind] = PLACE
    rank: ClassVar[int] = 65
    watched: ClassVar[bool] = True
    name: str
    value: int

    def compare(self, seen):
        present = seen.dirt[self.name]
        return Standing.OURS if present == self.value else ForeignWrite(self.place, str(self.value), str(present))

class DirtFound(Entry, frozen=True, kw_only=True, tag="dirt"):
    name: str
    value: int
    strategy: str = ""

    def undoing(self) -> DirtChange:
        return DirtChange(self.name, self.value)
"""
MACHINE = """
from koordlite.apply.kind import Kind
from koordlite.changes.dirt import DirtChange, DirtFound

class Dirt(Kind[DirtChange, DirtFound]):
    change = DirtChange

    def originals(self, change, strategy, work):
        if change.place not in work.noted:
            yield DirtFound(name=change.name, value=int(work.host.files.read(change.name)), strategy=strategy)

    def set(self, host, change):
        host.files.write(change.name, b"%d" % change.value)

    def present(self, entry, host):
        return host.files.read(entry.name).decode().strip()

KIND = Dirt()
"""
FILE = "/proc/sys/vm/watermark_scale_factor"
LISTED = (
    *(changes.modules, changes.classes, changes.entry_types, changes.place_kinds, changes.parse),
    *(kinds.every, kinds._by_change, kinds._by_place),
)


@pytest.fixture
def dirt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the new kind's values, with the kind in both rooms."""
    for room, text in ((changes, VALUES), (kinds, MACHINE)):
        folder = tmp_path / room.__name__
        folder.mkdir()
        (folder / "dirt.py").write_text(text)
        monkeypatch.setattr(room, "__path__", [*room.__path__, str(folder)])
    _forget()
    try:
        yield importlib.import_module("koordlite.changes.dirt")
    finally:
        for room in (changes, kinds):
            sys.modules.pop(f"{room.__name__}.dirt", None)
        _forget()


def _forget() -> None:
    for listing in LISTED:
        listing.cache_clear()


class Seen:
    """A picture that shows the new kind as well."""

    def __init__(self, seen: Snapshot, present: int) -> None:
        self._seen, self.dirt = seen, {FILE: present}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seen, name)


def planned(dirt: Any, value: int, seen: Any) -> Plan:
    change = dirt.DirtChange(FILE, value)
    return Plan(order([change], seen.cgroups), owners={change.place: "cleaner"})


def test_a_new_kind_is_journaled_written_watched_and_undone(emulate: Callable[[str], Emulated], dirt: Any) -> None:
    node = emulate("small")
    host = node.host()
    found = host.files.read(FILE)
    look = Observer(host, node.cluster, tasks_seconds=1.0).observe
    with node.journal() as journal:
        applier = Applier(host, node.cluster, journal)
        seen: Any = Seen(look(), 10)
        (step,) = applier.apply(planned(dirt, 99, seen), seen)
        assert (step.ok, step.value, host.files.read(FILE).strip()) == (True, "99", b"99")
        applier.apply(planned(dirt, 98, seen), seen)
    (written,) = json.loads((node.state / "journal.json").read_text())["entries"]
    assert written == {"kind": "dirt", "name": FILE, "value": 10, "strategy": "cleaner"}

    assert applier.foreign_writes(Seen(look(), 98)) == ()  # type: ignore[arg-type]
    (foreign,) = applier.foreign_writes(Seen(look(), 55))  # type: ignore[arg-type]
    assert (str(foreign.place), foreign.ours, foreign.found) == (f"dirt/{FILE}", "98", "55")
    assert applier.trouble(seen.time) == (FileTrouble(foreign.place, 0, "", 1, 0.0),)

    with node.journal() as journal:
        assert undo_list(host, journal.entries) == [(f"dirt/{FILE}", "98", "10")]
        assert restore(host, journal, staying=["cleaner"]) == ()
        (back,) = restore(host, journal)
        assert (back.ok, host.files.read(FILE), journal.entries) == (True, found, ())


def test_what_of_it_cannot_be_read_is_not_written(emulate: Callable[[str], Emulated], dirt: Any) -> None:
    node = emulate("small")
    host = node.host()
    with node.journal() as journal:
        seen = Observer(host, node.cluster, tasks_seconds=1.0).observe()
        change = dirt.DirtChange("/proc/sys/vm/none", 1)
        (step,) = Applier(host, node.cluster, journal).apply(Plan((change,)), seen)
        assert not step.ok
        assert step.error.startswith("ENOENT")
        assert journal.entries == ()


def test_without_the_new_kind_its_entry_is_told_and_kept_and_the_others_are_restored(
    emulate: Callable[[str], Emulated], dirt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = emulate("small")
    node.pod("web", "LS", "3")
    node.pod("batch", "BE", "64")
    node.host()
    found = node.programmed()
    with node.journal() as journal:
        node.ticks(node.agent(journal), 3)
        journal.record([dirt.DirtFound(name=FILE, value=10)])
    assert node.changed(found)
    monkeypatch.undo()
    _forget()
    with node.journal() as journal:
        (damage,) = journal.damaged
        assert damage.why.startswith("Invalid value 'dirt'")
        assert damage.why.endswith("restore with the program that wrote it")
        assert all(step.ok for step in restore(node.host(), journal, node.cluster))
    assert node.changed(found) == []
    assert b'"dirt"' in (node.state / "journal-damaged.txt").read_bytes()


def test_every_kind_of_change_has_one_handler() -> None:
    assert {kind.change for kind in kinds.every()} == changes.classes()
    places = [place for kind in kinds.every() for place in (kind.change.place_kind, *kind.entry_places)]
    assert sorted(place.name for place in places) == sorted(
        {place.name for place in changes.place_kinds()} - {"journal"}
    )
    assert len(places) == len(set(places))


def test_the_loops_know_no_kind() -> None:
    """The applier, restore and the rest ask kinds, and never which one it is."""
    room = Path(kinds.__file__).parent.parent
    for name in ("applier", "restore", "foreign", "kind"):
        text = (room / f"{name}.py").read_text()
        known = {each.__name__ for each in (*changes.classes(), *changes.entry_types())}
        assert [each for each in known if each in text] == [], name
