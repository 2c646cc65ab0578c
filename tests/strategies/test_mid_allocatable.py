"""What is promised to pods of priority mid, and when it is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite import changes
from koordlite.changes.published import NodeResourceChange
from koordlite.model import keys
from koordlite.model.decision import Decision
from koordlite.model.picture.published import Published
from koordlite.model.quantity import Quantity
from koordlite.model.slo.settings import SLO, Colocation
from koordlite.model.snapshot import Snapshot
from koordlite.strategies import discover, mid_allocatable

RULE = next(rule for rule in discover() if rule.module == "mid_allocatable")

GIB = 2**30
CPU, MEMORY = f"node/{keys.MID_CPU}", f"node/{keys.MID_MEMORY}"


def decide(seen: Snapshot) -> dict[str, Decision]:
    return {d.subject: d for d in RULE.answer(seen, mid_allocatable.Config())}


def colocation(**given: Any) -> SLO:
    return SLO(colocation=Colocation(**{"enable": True, **given}))


def test_a_share_of_what_prod_did_not_request_is_promised(build: Any) -> None:
    web = build.pod("web", "LS", priority=9500, requests={"cpu": Quantity.of(2)})
    seen = build.snapshot(pods=(web,), usage=build.used(1500, web=1000), slo=colocation(mid_unallocated_percent=50))
    found = decide(seen)[CPU]
    terms = {"node_capacity": 8000, "prod_reclaimable": 0, "node_unused": 6500, "unallocated": 5500, "mode": "dynamic"}
    assert terms.items() <= dict(found.evidence).items()
    assert (found.verdict, found.reason) == ("set", "MidAllocatable")
    assert found.changes == (NodeResourceChange(keys.MID_CPU, 2750),)


def test_static_mode_promises_a_share_of_the_machine(build: Any) -> None:
    slo = colocation(
        mid_reclaim_mode="static", mid_static_cpu_reserved_percent=25, mid_static_memory_reserved_percent=10
    )
    found = decide(build.snapshot(usage=build.used(8000), slo=slo))
    assert (found[CPU].evidence["result"], found[MEMORY].evidence["result"]) == (2000, int(32 * GIB * 0.1))
    assert found[CPU].evidence["mode"] == "static"


def test_by_default_nothing_is_promised_and_that_is_published_once(build: Any) -> None:
    assert decide(build.snapshot())[CPU].changes == (NodeResourceChange(keys.MID_CPU, 0),)
    there = Published(
        {keys.MID_CPU: 0, keys.MID_MEMORY: 0}, {}, last_sync={changes.parse(CPU): 999.0, changes.parse(MEMORY): 999.0}
    )
    assert {d.verdict for d in decide(build.snapshot(published=there)).values()} == {"hold"}


def test_disabled_takes_the_resources_back(build: Any) -> None:
    there = Published({keys.MID_CPU: 7, keys.MID_MEMORY: None}, {})
    found = decide(build.snapshot(slo=colocation(enable=False), published=there))
    assert (found[CPU].verdict, found[CPU].reason) == ("release", "ColocationDisabled")
    assert found[CPU].changes == (NodeResourceChange(keys.MID_CPU, None),)
    assert found[MEMORY].changes == ()


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({"node": None}, "skip", "NoNode"),
        ({"ages": {"usage": 10.0}}, "hold", "NoMetrics"),
        ({"ages": {"usage": 901.0}}, "hold", "DegradedNoMetrics"),
    ],
    ids=["no node", "no use yet", "no use for long"],
)
def test_when_nothing_is_promised(build: Any, changes: dict[str, Any], verdict: str, reason: str) -> None:
    found = decide(build.snapshot(**{"usage": build.used(None), **changes}))
    assert {(d.verdict, d.reason) for d in found.values()} == {(verdict, reason)}


def test_what_an_earlier_run_published_stays_until_the_use_window_is_filled(build: Any) -> None:
    standing = Published({keys.MID_CPU: 700, keys.MID_MEMORY: GIB}, {})
    found = decide(build.snapshot(published=standing, use_window_left_seconds=120.0))
    assert {(d.verdict, d.reason, d.changes) for d in found.values()} == {("hold", "UseWindowFilling", ())}
    assert (found[CPU].evidence["published"], found[CPU].evidence["atLeastSeconds"]) == (700, 180)
    later = decide(build.snapshot(published=standing))
    assert {d.verdict for d in later.values()} == {"set"}
