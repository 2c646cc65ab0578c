"""Why nodes refuse, by reason: counts and examples follow answers that change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from descheduler.fit import node_rules
from descheduler.fit.node_rules import EXAMPLES, Group, Groups, Tally

NAMES = st.sampled_from("abcdefgh")
ANSWERS = st.lists(st.tuples(NAMES, st.sampled_from(["full", "tainted", "not ready"])))


@given(ANSWERS, NAMES)
def test_groups_are_those_of_the_last_answers(answers: list[tuple[str, str]], without: str) -> None:
    tally = Tally({})
    for name, why in answers:
        tally.note(name, why)
        assert tally.groups("no such node") is tally.groups("nor this one")
    last = {name: why for name, why in dict(answers).items() if name != without}
    found = tally.groups(without)
    assert {why: group.nodes for why, group in found.items()} == Counter(last.values())
    for why, group in found.items():
        assert len(set(group.examples)) == len(group.examples) == min(EXAMPLES, group.nodes)
        assert all(last[name] == why for name in group.examples)


def test_groups_of_disjoint_nodes_are_added_up() -> None:
    one: Groups = {"full": Group(2, ("a", "b"))}
    other: Groups = {"full": Group(5, ("c", "d", "e")), "tainted": Group(1, ("f",))}
    assert node_rules.merge((one, {})) is one
    assert node_rules.merge((one, other)) == {"full": Group(7, ("a", "b", "c")), "tainted": Group(1, ("f",))}
