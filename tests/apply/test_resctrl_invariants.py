"""Whatever hardware, other owners, wishes and failures come: nothing of others is touched, and all is found again."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import slices
from emulated import BOOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resctrlnode import ROOT, Node

from koordlite.host.journal.journal import Journal
from koordlite.lab.machine.machine import RDT, Bandwidth, Cache, amd

CLASSES = ("lsrClass", "lsClass", "beClass")
GROUPS = ("LSR", "LS", "BE", "koordlet-uid-crunch")

intel = st.builds(
    lambda bits, least, closids, step, l3, mb: RDT(
        l3=Cache(bits=bits, min_bits=least, closids=closids) if l3 or not mb else None,
        mb=Bandwidth(closids=closids, minimum=step, granularity=step) if mb else None,
    ),
    st.integers(4, 20),
    st.integers(1, 2),
    st.integers(2, 6),
    st.sampled_from([5, 10, 20]),
    st.booleans(),
    st.booleans(),
)
other_vendor = st.builds(
    lambda bits, top: amd((6, 12), bits=bits, bandwidth=top), st.sampled_from([11, 16]), st.sampled_from([2048, 4096])
)
wishes = st.one_of(
    st.none(),
    st.just("["),
    st.tuples(st.integers(0, 60), st.integers(61, 100), st.integers(0, 100)).map(
        lambda w: json.dumps({"llc": {"schemata": {"range": w[:2]}}, "mb": {"schemata": {"percent": w[2]}}})
    ),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("classes"), st.sets(st.sampled_from(CLASSES)).map(sorted)),
        st.tuples(st.just("wish"), wishes),
        st.tuples(
            st.just("fail"),
            st.tuples(st.sampled_from((*GROUPS, "theirs")), st.sampled_from(["", "/schemata", "/tasks"])),
        ),
        st.tuples(st.just("pod"), st.integers(0, 2)),
        st.tuples(st.just("born"), st.none()),
        st.tuples(st.just("kill"), st.none()),
    ),
    min_size=1,
    max_size=7,
)


@dataclasses.dataclass
class World:
    """A node with somebody else's groups on it, and an agent that may die."""

    node: Node
    journal: Journal
    theirs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    home: dict[int, str] = dataclasses.field(default_factory=dict)
    """Where threads were found, or their makers."""
    faults: dict[str, int] = dataclasses.field(default_factory=dict)
    """How often the next accesses of a path fail, as far as the agent makes them."""

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Failures that were ordered strike in here."""
        self.node.files.trouble = self.trouble
        try:
            yield
        finally:
            self.node.files.trouble = None

    def trouble(self, verb: str, path: str) -> int | None:
        left = self.faults.get(path, 0)
        self.faults[path] = max(0, left - 1)
        return errno.EBUSY if left else None

    def found(self) -> dict[str, Any]:
        """Groups that are not ours, with values and mode."""
        files = self.node.files
        return {
            name: (files.read(f"{ROOT}/{name}/schemata"), files.read(f"{ROOT}/{name}/mode"))
            for name in ("", *self.node.groups())
            if name not in GROUPS or name in self.theirs
        }

    def everywhere(self) -> dict[int, str]:
        """The group of each thread, from the files: KeyError in the test when one is in none."""
        return {tid: name for name in ("", *self.node.groups()) for tid in self.node.tasks(name)}

    def take(self, step: tuple[str, Any], agent: Any) -> Any:
        what, value = step
        match what:
            case "classes":
                self.node.classes(*value)
            case "wish":
                self.node.wish(value)
            case "fail":
                self.faults[f"{ROOT}/{value[0]}{value[1]}"] = 2
            case "pod":
                self.node.emulated.pod(f"late-{value}", "BE", "50m")
            case "born":
                tid = self.node.clone(self.node.tids[0])
                self.home[tid] = self.home.get(self.node.tids[0], "")
            case "kill":
                agent = self.node.agent(self.journal)
                with self.failing():
                    agent.take_over()
        return agent


def world(folder: Path, rdt: RDT, adopted: bool, taken: int) -> World:
    node = Node(folder, rdt=rdt)
    with_others = Journal.open(folder / "state", boot_id=BOOT)
    made = World(node, with_others)
    for name in ("theirs", *(["BE"] if adopted else [])):
        try:
            node.files.mkdir(f"{ROOT}/{name}")
        except OSError:
            continue  # Hardware with fewer groups than that.
        made.theirs = {**made.theirs, name: None}
    if "theirs" in made.theirs:
        for tid in node.tids[:taken]:
            node.files.write(f"{ROOT}/theirs/tasks", b"%d\n" % tid)
    made.home.update(made.everywhere())
    made.theirs = {name: made.found()[name] for name in made.theirs}
    return made


@settings(max_examples=slices.amount(25, 10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(intel, other_vendor), st.booleans(), st.integers(0, 3), steps)
def test_nothing_of_others_is_touched_and_all_is_found_again(
    rdt: RDT, adopted: bool, taken: int, story: list[tuple[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = world(Path(folder), rdt, adopted, taken)
        root = made.found()[""]
        try:
            agent = made.node.agent(made.journal)
            for step in story:
                agent = made.take(step, agent)
                with made.failing():
                    made.node.run(1, made.journal, agent)
                assert made.found()[""] == root, "the root group keeps its values"
                assert {k: v for k, v in made.found().items() if k == "theirs"} == {
                    k: v for k, v in made.theirs.items() if k == "theirs"
                }
                assert set(made.everywhere()) == set(made.node.emulated.sandbox.processes.tids())
            with made.failing():
                agent.put_back()
            for _ in range(2):  # What was refused is in the journal for the next try.
                agent.put_back()
            assert made.journal.entries == ()
            assert made.found() == {"": root, **made.theirs}
            assert made.node.groups() == set(made.theirs)
            wrong = {t: g for t, g in made.everywhere().items() if t in made.home and g != made.home[t]}
            assert wrong == {}
        finally:
            made.journal.close()
