"""How far best effort makes services wait, and the limit that follows: formulas.cpu.contention."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.cpu import contention
from koordlite.formulas.cpu.contention import Guidance, Guided, Service

FLOOR, CEILING = 4000, 31_360
HALF_WAY = (CEILING + FLOOR) // 2


def guided(*services: Service, guidance: Guidance | None = None, **given: Any) -> Guided:
    """On a node of 32 CPUs where the formula gives 4, at second 1000, best effort using all it may have."""
    present = given.pop("present_milli", CEILING)
    facts = {"time": 1000.0, "floor_milli": FLOOR, "capacity_milli": 32_000, "used_milli": present}
    return contention.guided(services, guidance or Guidance(), present_milli=present, **{**facts, **given})


def learned(learned_at: float = 900, cut_at: float | None = None, **own: float) -> Guidance:
    """What services wait by themselves, by name."""
    return Guidance(own=own, learned_at=learned_at, cut_at=cut_at)


def cut(at: float) -> Guidance:
    return learned(cut_at=at, web=0.5)


def web(share: float, since: float = 995.0) -> Service:
    return Service("web", share, since, 0.1)


@pytest.mark.parametrize(
    ("services", "guidance", "present", "limit", "verdict"),
    [
        pytest.param((), Guidance(), FLOOR, CEILING, "calm", id="nobody to wait for: 98 % of the node"),
        pytest.param((web(0.05),), Guidance(), FLOOR, CEILING, "calm", id="1 / 0.95 − 1 = 5 % slower is let pass"),
        pytest.param((web(0.2),), Guidance(), CEILING, FLOOR, "learning", id="25 % slower: whose fault is it?"),
        pytest.param(
            (web(0.52),),
            learned(web=0.5),
            CEILING,
            CEILING,
            "calm",
            id="waits 50 % by itself: 0.5 / 0.48 − 1 = 4 % slower",
        ),
        pytest.param(
            (web(0.6),),
            learned(web=0.5),
            CEILING,
            HALF_WAY,
            "caused",
            id="0.5 / 0.4 − 1 = 25 % slower: half the way down",
        ),
        pytest.param(
            (web(0.6),), cut(996), 9000, 9000, "caused", id="what was seen from before the last cut takes nothing away"
        ),
        pytest.param((web(0.6),), cut(990), 5000, FLOOR, "caused", id="near the formula's limit it is the formula's"),
        pytest.param((web(0.5),), cut(990), 5000, 5640, "calm", id="after a cut 2 % of the node a round: 5 + 0.64"),
        pytest.param((web(0.5),), cut(930), 5000, CEILING, "calm", id="a minute after the last cut as far as it goes"),
        pytest.param(
            (web(0.6),),
            learned(300, web=0.5),
            CEILING,
            FLOOR,
            "learning",
            id="what was learned more than ten minutes ago is learned again",
        ),
        pytest.param(
            (web(0.1), Service("db", 0.3, 995, 0.1)),
            learned(web=0.1, db=0.1),
            CEILING,
            HALF_WAY,
            "caused",
            id="the service that is delayed most decides",
        ),
        pytest.param(
            (Service("small", 0.9, 995, 0.1, part=0.05),),
            learned(small=0.8),
            CEILING,
            CEILING,
            "calm",
            id="others keep it waiting: 100 % slower × 5 % of their CPU time",
        ),
        pytest.param(
            (Service("small", 0.9, 995, 0.1, part=0.05), Service("web", 0.6, 995, 0.1, part=0.5)),
            learned(small=0.8, web=0.5),
            CEILING,
            HALF_WAY,
            "caused",
            id="25 % slower × 50 % counts for more than 100 % × 5 %",
        ),
        pytest.param(
            (Service("web", 0.6, 995, 0.1, part=0.0),),
            cut(996),
            9000,
            9000,
            "caused",
            id="what it has after a cut does not excuse what was seen before",
        ),
    ],
)
def test_the_limit_follows_what_best_effort_makes_services_wait(
    services: tuple[Service, ...], guidance: Guidance, present: int, limit: int, verdict: str
) -> None:
    answer = guided(*services, guidance=guidance, present_milli=present)
    assert (answer.limit_milli, answer.verdict) == (limit, verdict)


def test_what_a_service_waits_by_itself_is_learned_at_the_formulas_limit_and_only_from_a_window_within_it() -> None:
    asked = guided(web(0.5))
    assert (asked.verdict, asked.guidance.kept_since) == ("learning", 1000)
    early = guided(web(0.5, since=999.0), guidance=asked.guidance, present_milli=FLOOR, time=1003.0)
    assert (early.verdict, early.guidance.kept_since, dict(early.guidance.own)) == ("learning", 1000, {})
    learned = guided(web(0.45, since=1000.5), guidance=early.guidance, present_milli=FLOOR, time=1006.0)
    assert (learned.verdict, learned.limit_milli, dict(learned.guidance.own)) == ("calm", CEILING, {"web": 0.45})
    assert learned.slower == 0


def test_half_a_window_at_the_formulas_limit_ends_no_trial() -> None:
    asked = guided(web(0.5))
    soon = guided(web(0.05, since=997), guidance=asked.guidance, present_milli=FLOOR, time=1002.0)
    assert (soon.verdict, soon.limit_milli) == ("learning", FLOOR)
    never = guided(web(0.05, since=997), guidance=asked.guidance, present_milli=FLOOR, time=1020.0)
    assert never.verdict == "calm", "a service that is not seen any more holds nobody down"


def test_what_is_seen_after_the_limit_has_grown_again_is_not_the_services_own() -> None:
    held = Guidance(own={"web": 0.5}, learned_at=999, kept_since=990, floor_at=999, known_at=999)
    grown = guided(web(0.5), guidance=held, present_milli=FLOOR)
    assert grown.verdict == "calm"
    later = guided(web(0.53), guidance=grown.guidance, present_milli=7200, time=1001.0)
    assert dict(later.guidance.own) == {"web": 0.5}


def test_a_limit_that_moves_with_the_formula_still_counts_as_the_formulas() -> None:
    asked = guided(web(0.5))
    moved = guided(web(0.5, since=999.0), guidance=asked.guidance, present_milli=FLOOR, floor_milli=3000, time=1003.0)
    assert (moved.limit_milli, moved.guidance.kept_since) == (3000, 1000)


def test_while_best_effort_uses_little_nothing_has_to_be_tried_out() -> None:
    idle = guided(web(0.5), used_milli=100)
    assert idle.guidance.kept_since == 1000
    later = guided(web(0.5, since=1001), guidance=idle.guidance, used_milli=100, time=1006.0)
    assert (later.verdict, dict(later.guidance.own)) == ("calm", {"web": 0.5})


def test_each_service_is_measured_by_what_it_tolerates() -> None:
    known = learned(web=0.0, db=0.0)
    strict, easy = Service("web", 0.08, 995, 0.05), Service("db", 0.3, 995, 1.0)
    cut = guided(strict, easy, guidance=known)
    assert (cut.verdict, cut.worst, cut.limit_milli) == ("caused", strict, (CEILING + FLOOR) // 2)
    assert guided(easy, guidance=known).verdict == "calm"
    assert guided(Service("web", 0.01, 995, 0.0), guidance=known).verdict == "caused"


def test_a_service_that_ended_is_forgotten() -> None:
    gone = guided(web(0.1), guidance=learned(web=0.1, db=0.5))
    assert dict(gone.guidance.own) == {"web": 0.1}


@given(st.data())
def test_the_limit_is_never_below_the_formulas_nor_above_the_nodes(data: st.DataObject) -> None:
    number, milli = st.floats(0, 2000), st.integers(0, 40_000)
    shares = st.floats(0, 1)
    uids = map(str, range(data.draw(st.integers(0, 3))))
    services = [Service(uid, data.draw(shares), data.draw(number), data.draw(shares)) for uid in uids]
    guidance = Guidance(
        own={s.uid: data.draw(shares) for s in services if data.draw(st.booleans())},
        learned_at=data.draw(st.none() | number),
        kept_since=data.draw(st.none() | number),
        learning_since=data.draw(st.none() | number),
        cut_at=data.draw(st.none() | number),
    )
    floor = data.draw(milli)
    answer = guided(
        *services,
        guidance=guidance,
        time=data.draw(number),
        floor_milli=floor,
        present_milli=data.draw(milli),
        used_milli=data.draw(milli),
    )
    assert floor <= answer.limit_milli <= max(floor, CEILING)
    assert answer.slower >= 0


@pytest.mark.parametrize(
    ("ran", "waited", "share", "delayed"),
    [
        pytest.param(8, 0, 0.0, False, id="it found a free CPU, or preempted at once"),
        pytest.param(8, 2, 0.0, True, id="25 % longer"),
        pytest.param(4, 4, 0.5, False, id="it waits half its time anyhow"),
        pytest.param(4, 6, 0.5, True, id="0.5 / 0.4 − 1 = 25 % longer than usual"),
        pytest.param(0, 0, 0.5, True, id="who uses the CPU is not known"),
    ],
)
def test_a_surge_is_one_when_services_wait_longer_than_usual(
    ran: int, waited: int, share: float, delayed: bool
) -> None:
    assert contention.is_delayed(ran=ran, waited=waited, share=share) is delayed


def test_what_is_usual_follows_a_fifth_of_the_way_and_stays_where_nothing_ran() -> None:
    assert contention.usual_share(0.0, ran=1, waited=1) == 0.1
    assert contention.usual_share(0.3, ran=0, waited=0) == 0.3
