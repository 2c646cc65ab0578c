"""The file of Crane's promises: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from koordlite.host import crane_promises
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.numa.crane.assignments import Entries, Entry, contradiction

NAMES = some.text(min_size=1, max_size=8)


@some.composite
def entries(draw: some.DrawFn) -> Entries:
    """Pods with CPUs of their own, and some that share."""
    free = list(range(64))
    found = {}
    for uid in draw(some.lists(NAMES, unique=True, max_size=5)):
        policy = draw(some.sampled_from(["exclusive", "immovable", "numa"]))
        zones = ((draw(some.integers(0, 3)), draw(some.integers(1, 8))),)
        theirs = {}
        for name in draw(some.lists(NAMES, unique=True, min_size=1, max_size=3)):
            count = 0 if policy == "numa" else draw(some.integers(1, 4))
            theirs[name] = Entry(policy, zones, CPUSet(free[:count]))
            del free[:count]
        found[uid] = theirs
    return found


@given(entries())
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, promised: Entries) -> None:
    folder = tmp_path_factory.mktemp("state")
    crane_promises.write(folder, promised)
    assert crane_promises.read(folder) == (promised, ())


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=8), inner, max_size=3),
)
POD = some.fixed_dictionaries(
    {"policy": some.sampled_from(["exclusive", "numa", "none", ""]), "zones": some.just([[0, 2]])},
    optional={"containers": some.dictionaries(NAMES, some.sampled_from(["0-1", "", "1", "x", "0-99999"]), max_size=2)},
)


DOCUMENTS = some.dictionaries(NAMES, POD, max_size=3).map(lambda pods: {"pods": pods}) | JSON


@given(some.binary(max_size=60) | DOCUMENTS.map(lambda document: json.dumps(document).encode()))
def test_any_other_text_is_read_as_a_whole_or_refused(raw: bytes) -> None:
    try:
        found = crane_promises.parse(raw)
    except ValueError:
        return
    assert contradiction(found) == ""
    assert all(bool(entry.cpus) == (entry.policy != "numa") for theirs in found.values() for entry in theirs.values())


def test_a_file_of_another_user_or_a_link_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text('{"pods": {}}')
    for name in (crane_promises.NAME, crane_promises.COPY):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="remove both files"):
        crane_promises.read(tmp_path)
