"""What koordlet left is recognised by value, noted as if kubelet's values had been found, and can be put back."""

from __future__ import annotations

import pytest
from emulated import Emulated
from koordletnode import same, slo

from koordlite import adopt, config
from koordlite.apply import restore

SHAPES = [("intel-2s-ht", "cpuset"), ("small", "cpuset"), ("anolis", "cpuset"), ("small", "cfsQuota")]


@pytest.mark.parametrize(("shape", "policy"), SHAPES, ids=[f"{shape}-{policy}" for shape, policy in SHAPES])
def test_a_node_that_koordlet_left_is_put_back_byte_for_byte(left, shape, policy):
    made = left(shape, policy=policy)
    assert made.left != made.before, "koordlet wrote something"
    found = adopt.recognise(made.picture(), config.default().strategies)
    assert found.others == (), "all of it is recognised"
    with made.node.journal() as journal:
        fresh = adopt.seed(made.host, journal, found.traces)
        assert len(fresh) == len(found.traces)
        steps = restore(made.host, journal, made.node.cluster)
        assert [str(step.place) for step in steps if not step.ok] == []
        assert journal.entries == ()
    same(made, made.files(), made.before)


def test_the_agent_goes_on_from_what_it_adopted(left):
    """Nothing is given back for a moment, and what a stop puts back is kubelet's."""
    made = left("small")
    found = adopt.recognise(made.picture(), config.default().strategies)
    with made.node.journal() as journal:
        adopt.seed(made.host, journal, found.traces)
        agent = made.node.agent(journal)
        agent.take_over()
        assert made.files() == made.left, "what is enforced stays in force"
        made.node.ticks(agent, 5)
        agent.put_back()
    same(made, made.files(), made.before)


def test_what_no_strategy_enforces_is_put_back_at_the_start(left):
    made = left("small")
    found = adopt.recognise(made.picture(), config.default().strategies)
    with made.node.journal() as journal:
        adopt.seed(made.host, journal, found.traces)
        agent = made.node.agent(journal, mode="observe")
        agent.take_over()
    same(made, made.files(), made.before)


FOREIGN = [
    ("kubepods/besteffort/poduid-crunch/*", "cpuset.cpus", b""),
    ("kubepods/burstable/poduid-web", "cpu.quota", b"12345"),
    ("kubepods/besteffort", "cpu.quota", b"1500"),
    ("kubepods/burstable/poduid-web", "cpu.bvt_warp_ns", b"1"),
    ("kubepods/burstable/poduid-db", "memory.priority", b"7"),
    ("kubepods/burstable/poduid-web", "cpu.burst", b"77"),
]


@pytest.mark.parametrize(("group", "field", "raw"), FOREIGN, ids=[f"{g}-{f}" for g, f, _ in FOREIGN])
def test_a_value_of_another_form_is_listed_and_not_touched(left, group, field, raw):
    made = left("anolis")
    if group.endswith("/*"):
        group = group.replace("*", made.host.cgroups.children(group.removesuffix("/*"))[0])
    raw = raw or str(min(made.host.cgroups.state(group).cpuset)).encode()
    made.node.sandbox.files.write(made.host.cgroups.path(group, field), raw)
    found = adopt.recognise(made.picture(), config.default().strategies)
    place = f"{group}/{field}"
    assert [(str(where), shown) for where, shown, _ in found.others] == [(place, raw.decode())]
    assert place not in {str(trace.place) for trace in found.traces}
    with made.node.journal() as journal:
        adopt.seed(made.host, journal, found.traces)
        restore(made.host, journal, made.node.cluster)
    assert made.host.cgroups.read_raw(group, field).strip() == raw


@pytest.mark.parametrize("with_node", [True, False])
def test_resources_of_the_node_stay_while_the_manager_writes_them(left, with_node):
    made = left("small")
    found = adopt.recognise(made.picture(), config.default().strategies, with_node=with_node)
    of_node = {str(trace.place) for trace in found.traces if str(trace.place).startswith("node/")}
    assert ("node/kubernetes.io/batch-cpu" in of_node) is with_node
    assert all(trace.before is None for trace in found.traces if str(trace.place).startswith("node/"))


@pytest.mark.parametrize("shape", ["intel-2s-ht", "small"])
def test_on_a_node_where_only_kubelet_wrote_nothing_is_found(tmp_path, shape):
    node = Emulated(shape, tmp_path)
    node.raw_slo(slo())
    node.pod("web", "LS", "1", request="500m")
    node.pod("crunch", "BE", "greedy")
    agent = node.agent(None, mode="observe")
    node.ticks(agent, 2)
    assert agent.snapshot is not None
    assert adopt.recognise(agent.snapshot, config.default().strategies) == adopt.Recognition((), ())


def test_what_the_journal_has_already_keeps_its_entry(left):
    made = left("small")
    found = adopt.recognise(made.picture(), config.default().strategies)
    with made.node.journal() as journal:
        first = adopt.seed(made.host, journal, found.traces)
        entries = journal.entries
        assert adopt.seed(made.host, journal, found.traces) == ()
        assert journal.entries == entries
    assert len(first) == len(entries)


class Processes:
    """/proc with these processes."""

    def __init__(self, *stats):
        self.stats = {line.split()[0]: line for line in stats}

    def list(self, path):
        return [f"{pid}/" for pid in self.stats] + ["self", "meminfo"]

    def read(self, path):
        return self.stats[path.split("/")[2]].encode()


@pytest.mark.parametrize(
    ("stats", "pid"),
    [
        pytest.param(("7 (koordlet) S 1 7 7 0", "1 (init) S 0 1 1 0"), 7, id="it runs"),
        pytest.param(("7 (koordlet) Z 1 7 7 0",), None, id="it has ended"),
        pytest.param(("7 (koordlet-sidecar) S 1 7 7 0", "8 (my koordlet) S 1 8 8 0"), None, id="others of such names"),
        pytest.param(("7 garbage",), None, id="what is no process"),
    ],
)
def test_a_running_koordlet_is_found(stats, pid):
    assert adopt.koordlet_pid(Processes(*stats)) == pid
