"""A tick says what holds after its writes: only writes that went well count."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from reported import tick_built

from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.published import NodeResourceChange, TopologyChange
from koordlite.changes.resctrl import SchemataChange
from koordlite.model import keys
from koordlite.model.change import Change
from koordlite.model.cpuset import CPUSet
from koordlite.model.decision import CPULimit, Decision
from koordlite.model.node import SystemQoS
from koordlite.model.picture.groups import Cgroup
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.pod.qos import QoSClass
from koordlite.model.slo.settings import HostApplication
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import AppliedStep

ROOT, POD = "kubepods/besteffort", "kubepods/besteffort/podb1"
MODES = {"cpuSuppress": "enforce"}


def narrow(cpus: str, *groups: str) -> Decision:
    changes = tuple(CgroupChange(group, "cpuset.cpus", CPUSet.parse(cpus)) for group in groups)
    limit = CPULimit(budget_milli=2300, present_milli=4000, limit_milli=2000, by_quota=False)
    return Decision("besteffort", "shrink", "BECPUBudget", {}, changes, "cpuSuppress", outcome=limit)


def ok(*decisions: Decision) -> tuple[AppliedStep, ...]:
    return tuple(AppliedStep(change.place, "x") for decision in decisions for change in decision.changes)


def test_use_limit_and_budget_come_from_the_picture_and_the_decisions(picture: Snapshot) -> None:
    made = tick_built(picture, [narrow("4-5")], modes=MODES, started=100.0)
    assert (made.time, made.node, made.status) == (10.0, "node-a", "enforcing")
    figures = made.figures
    assert (figures.node_cpu, figures.prod_cpu, figures.be_cpu, figures.be_budget) == (
        5000,
        2000,
        2400,
        2300,
    )
    assert (made.figures.capacity_milli, made.figures.threshold_milli) == (8000, 5200)
    assert (made.figures.be_limit, str(made.best_effort)) == (4000, "4-7"), "nothing was written"
    assert (made.figures.batch_cpu, made.figures.batch_memory) == (3000, None)


def test_a_limit_holds_once_its_write_went_well(picture: Snapshot) -> None:
    decision = narrow("4-5", ROOT, POD, f"{POD}/main")
    assert tick_built(picture, [decision], applied=ok(decision), modes=MODES).figures.be_limit == 2000


def test_what_is_only_observed_is_shown_as_what_would_hold(picture: Snapshot) -> None:
    limit = narrow("4-5", ROOT, POD, f"{POD}/main")
    offer = Decision("node", "set", "X", {}, (NodeResourceChange(keys.BATCH_CPU, 1500),), "beAllocatable")
    modes = {"cpuSuppress": "observe", "beAllocatable": "observe"}
    made = tick_built(picture, [limit, offer], modes=modes)
    assert (made.figures.be_limit, made.figures.would_limit) == (4000, 2000)
    assert (made.figures.batch_cpu, made.figures.would_batch_cpu) == (3000, 1500)
    half = tick_built(picture, [limit, offer], applied=ok(limit), modes={**modes, "cpuSuppress": "enforce"})
    assert (half.figures.be_limit, half.figures.would_limit, half.figures.would_batch_cpu) == (2000, None, 1500)
    off = tick_built(picture, [], modes={"cpuSuppress": "off", "beAllocatable": "off"})
    assert (off.figures.would_limit, off.figures.would_batch_cpu, off.figures.would_batch_memory) == (None, None, None)


def test_a_refused_write_changes_nothing(picture: Snapshot) -> None:
    decision = narrow("4-5", ROOT)
    refused = AppliedStep(decision.changes[0].place, "4-5", ok=False, error="EBUSY")
    made = tick_built(picture, [decision], applied=[refused], modes=MODES)
    assert str(made.best_effort) == "4-7"


def test_the_last_step_of_a_place_decides(picture: Snapshot) -> None:
    decision = narrow("4-5", ROOT)
    place = decision.changes[0].place
    steps = [AppliedStep(place, "4-7"), AppliedStep(place, "4-5", ok=False, error="EBUSY")]
    assert str(tick_built(picture, [decision], applied=steps, modes=MODES).best_effort) == "4-7"


def test_containers_that_inherit_follow_the_root_at_once(picture: Snapshot) -> None:
    inherits = Cgroup(CPUSet(), CPUSet.parse("4-7"))
    groups = {ROOT: picture.cgroups[ROOT], POD: inherits, f"{POD}/main": inherits}
    seen, decision = dataclasses.replace(picture, cgroups=groups), narrow("2-6", ROOT)
    assert str(tick_built(seen, [decision], applied=ok(decision), modes=MODES).best_effort) == "2-6"


def test_under_static_policy_the_containers_count(picture: Snapshot) -> None:
    decision = narrow("4-5", f"{POD}/main")
    assert str(tick_built(picture, [decision], applied=ok(decision), modes=MODES).best_effort) == "4-5"


@pytest.mark.parametrize(
    ("quota_us", "limit"),
    [
        pytest.param(-1, 4000, id="no quota leaves the CPUs"),
        pytest.param(150_000, 1500, id="a tighter quota wins"),
        pytest.param(900_000, 4000, id="a wider quota does not"),
        pytest.param(None, 4000, id="an unreadable quota does not count"),
    ],
)
def test_limit_is_the_tighter_of_cpus_and_quota(picture: Snapshot, quota_us: int | None, limit: int) -> None:
    root = msgspec.structs.replace(picture.cgroups[ROOT], quota_us=quota_us)
    seen = dataclasses.replace(picture, cgroups={**picture.cgroups, ROOT: root})
    assert tick_built(seen, [], modes=MODES).figures.be_limit == limit


def test_a_quota_that_was_written_counts(picture: Snapshot) -> None:
    decision = Decision(
        "besteffort", "shrink", "BECPUBudget", {}, (CgroupChange(ROOT, "cpu.quota", 250_000),), "cpuSuppress"
    )
    assert tick_built(picture, [decision], applied=ok(decision), modes=MODES).figures.be_limit == 2500


def test_without_node_and_samples_everything_unknown_is_none(picture: Snapshot) -> None:
    seen = dataclasses.replace(picture, node=None, usage=Usage(None, {}, {}), cgroups={}, places={})
    made = tick_built(seen, [], modes={"cpuSuppress": "observe"}, because="no metrics since 40 s")
    assert (
        made.figures.node_cpu,
        made.figures.prod_cpu,
        made.figures.be_cpu,
        made.figures.be_limit,
        made.figures.be_budget,
    ) == (None,) * 5
    assert (made.node, made.figures.capacity_milli) == ("", 8000), "the machine's own CPUs when the Node is unknown"
    assert (made.status, made.because) == ("degraded", "no metrics since 40 s")


def test_an_unreadable_group_on_v2_falls_back_to_what_is_configured(picture: Snapshot) -> None:
    seen = dataclasses.replace(picture, cgroups={ROOT: Cgroup(CPUSet.parse("6"))}, places={})
    assert str(tick_built(seen, [], modes=MODES).best_effort) == "6"


def test_host_applications_count_as_protected_unless_they_are_best_effort(picture: Snapshot) -> None:
    apps = (
        HostApplication(name="db", qos=QoSClass.LS),
        HostApplication(name="scan", qos=QoSClass.BE, base="KubepodsBesteffort"),
    )
    usage = msgspec.structs.replace(picture.usage, host_apps={"db": Use(300, 0), "scan": Use(700, 0)})
    seen = dataclasses.replace(picture, usage=usage, slo=msgspec.structs.replace(picture.slo, host_applications=apps))
    assert tick_built(seen, [], modes=MODES).figures.prod_cpu == 2300


POOL = '[{"socket":0,"node":0,"cpuset":"1-3"},{"socket":1,"node":1,"cpuset":"4-5"}]'


@pytest.mark.parametrize(
    ("published", "decided", "shown"),
    [
        pytest.param("", (), "", id="nothing published, nothing shown"),
        pytest.param(POOL, (), "1-5", id="zones are joined"),
        pytest.param("", (TopologyChange(keys.LS_SHARED_POOLS, POOL),), "1-5", id="what is decided shows at once"),
        pytest.param("null", (), "", id="null is no pool"),
        pytest.param("{broken", (), "?", id="a spoiled annotation is not guessed"),
        pytest.param('[{"cpuset":"9-"}]', (), "?", id="nor is a spoiled CPU list"),
    ],
)
def test_shared_pool(picture: Snapshot, published: str, decided: tuple[Change, ...], shown: str) -> None:
    held = msgspec.structs.replace(picture.published, topology={keys.LS_SHARED_POOLS: published})
    seen = dataclasses.replace(picture, published=held)
    assert tick_built(seen, [Decision("pools", "set", "SharedPools", changes=decided)], modes=MODES).ls_pool == shown


def test_schemata_are_shown_as_the_kernel_has_them_after_the_writes(picture: Snapshot) -> None:
    changes = (SchemataChange("BE", "MB", {0: 50}), SchemataChange("LS", "L3", {0: 0x7FF}))
    decision = Decision("resctrl/BE", "set", "ClassSchemata", {}, changes, "cpuSuppress")
    made = tick_built(picture, [decision], applied=ok(decision), modes=MODES)
    assert made.schemata == {"(root)": "L3:0=fff", "BE": "L3:0=f MB:0=50", "LS": "L3:0=7ff"}


def test_offered_resources_follow_the_write(picture: Snapshot) -> None:
    changes = (NodeResourceChange(keys.BATCH_CPU, None), NodeResourceChange(keys.BATCH_MEMORY, 1 << 30))
    decision = Decision("node", "set", "BatchAllocatable", {}, changes, "cpuSuppress")
    made = tick_built(picture, [decision], applied=ok(decision), modes=MODES)
    assert (made.figures.batch_cpu, made.figures.batch_memory) == (None, 1 << 30)


def test_the_first_claim_of_a_place_is_the_one_that_was_carried_out(picture: Snapshot) -> None:
    first, second = narrow("4-5", ROOT), narrow("6-7", ROOT)
    assert str(tick_built(picture, [first, second], applied=ok(first), modes=MODES).best_effort) == "4-5"


def test_what_another_strategy_only_wishes_for_is_not_what_holds(picture: Snapshot) -> None:
    wish, done = msgspec.structs.replace(narrow("6-7", ROOT), strategy="idle"), narrow("4-5", ROOT)
    made = tick_built(picture, [wish, done], applied=ok(done), modes={**MODES, "idle": "observe"})
    assert str(made.best_effort) == "4-5"


def test_every_cpu_has_one_owner(picture: Snapshot) -> None:
    seen = dataclasses.replace(picture, system_qos=SystemQoS(CPUSet([3]), exclusive=True))
    made = tick_built(seen, [], modes=MODES)
    assert [cell.owner for cell in made.cpus] == ["reserved", "LSR", "LSR", "system", "LS", "LS", "LS", "LS"]
    assert [cell.best_effort for cell in made.cpus] == [False] * 4 + [True] * 4
    assert [cell.node for cell in made.cpus] == [0] * 4 + [1] * 4


def test_a_shared_system_set_owns_no_cpu(picture: Snapshot) -> None:
    seen = dataclasses.replace(picture, system_qos=SystemQoS(CPUSet([3]), exclusive=False))
    assert tick_built(seen, [], modes=MODES).cpus[3].owner == "LS"
