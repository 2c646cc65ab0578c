"""The page of every node's last night: asked of the agents, the worst first, in bounded time."""

from __future__ import annotations

import json
import pathlib
import socket
import threading
import time
from typing import Any

import msgspec
import pytest
from tinyapi import Reply, serving

from koordlite.cli.serving import exported
from koordlite.config import NumaExporter
from koordlite.host.files import RealFiles
from koordlite.model.snapshot import Snapshot
from koordlite.report.night import Night, NightLog
from koordlite.report.tick import Tick
from koordlite.scheduler.numa_api import nights_page
from koordlite.scheduler.numa_api.charts import Agents
from koordlite.scheduler.numa_api.nights_page import Nights, NodeNight
from koordlite.scheduler.numa_api.overview_page import Selection
from koordlite.scheduler.numa_api.service import NumaService
from tests.report.conftest import picture
from tests.scheduler import numa_scene
from tests.scheduler.test_numa_charts import agents as agents_of
from tests.scheduler.test_numa_charts import exporter, server

__all__ = ["picture", "server"]
V1 = "/rest/scheduling/v1"


class Played(Agents):
    """Agents whose answers are at hand: by the name of a node, which is its address as well."""

    def __init__(self, answers: dict[str, bytes | OSError]) -> None:
        self.answers, self.lists, self.questions = answers, 0, 0

    def addresses(self, node: str = "") -> dict[str, list[str]]:
        self.lists += 1
        return {name: [name] for name in self.answers}

    def ask(self, address: str, path: str) -> bytes:
        assert path == "/night"
        self.questions += 1
        answer = self.answers[address]
        if isinstance(answer, OSError):
            raise answer
        return answer


def night(**fields: Any) -> bytes:
    return msgspec.json.encode(Night(**fields))


def rows(answers: dict[str, bytes | OSError], *more: str) -> tuple[NodeNight, ...]:
    return Nights(Played(answers), monotonic=lambda: 0.0).rows([*answers, *more])


def select(nights: tuple[NodeNight, ...], **query: str) -> list[str]:
    return [row.node for row in nights_page.select(nights, Selection.of(query, nights_page.SHOW, nights_page.SORT))]


def test_the_worst_is_first_and_what_does_not_answer_is_a_row_with_its_reason() -> None:
    nights = rows(
        {
            "calm": night(status="enforcing", seconds=3600.0),
            "deep": night(held_back_seconds=60.0, deepest_milli=500, lost_core_hours=9.0, seconds=3600.0),
            "long": night(held_back_seconds=600.0, deepest_milli=2000, lost_core_hours=1.0, evictions=3),
            "down": OSError("timed out"),
        },
        "bare",
    )
    assert select(nights) == ["long", "deep", "calm", "bare", "down"]
    assert select(nights, sort="lost")[:2] == select(nights, sort="deepest")[:2] == ["deep", "long"]
    assert select(nights, sort="name") == sorted(row.node for row in nights)
    assert select(nights, show="limited") == ["long", "deep"] and select(nights, q="ee") == ["deep"]
    assert select(nights, show="silent") == ["bare", "down"]
    page = nights_page.document(nights, Selection.of({}, nights_page.SHOW, nights_page.SORT))
    assert "the agent at down cannot be asked: timed out" in page
    assert "no agent runs there, or its numaExporter.listen is not set" in page
    assert '<a href="nodes/long">long</a>' in page and ">10 min<" in page


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(b"404 page", "it is no night", id="no JSON"),
        pytest.param(b'{"heldBackSeconds": -1}', "a number that no night has", id="a negative number"),
        pytest.param(b'{"evictions": 1e300}', "it is no night", id="no count"),
        pytest.param(b'{"lostCoreHours": 1e13}', "a number that no night has", id="a large number"),
        pytest.param(b'{"restores": %s}' % (b"9" * 400), "a number that no night has", id="no float holds it"),
        pytest.param(b'{"status": "' + b"x" * 99 + b'"}', "a number that no night has", id="a long word"),
    ],
)
def test_an_answer_that_is_none_costs_its_own_row(answer: bytes, why: str) -> None:
    bad, good = rows({"bad": answer, "good": night()})
    assert bad.night is None and why in bad.why
    assert good.night == Night()


def test_an_answer_serves_for_a_minute() -> None:
    now, agents = [0.0], Played({"a": night()})
    nights = Nights(agents, monotonic=lambda: now[0])
    for now[0] in (0.0, 30.0, 59.9):
        nights.rows(["a"])
    assert (agents.lists, agents.questions) == (1, 1)
    now[0] = 60.0
    nights.rows(["a"])
    assert (agents.lists, agents.questions) == (2, 2)


def test_agents_that_never_answer_hold_up_the_page_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nights_page, "PATIENCE_SECONDS", 0.2)
    release = threading.Event()

    class Stuck(Played):
        def ask(self, address: str, path: str) -> bytes:
            if address != "good":
                release.wait(60)
            return super().ask(address, path)

    names = ["good", *(f"n{number}" for number in range(500))]
    nights = Nights(Stuck({name: night() for name in names}), monotonic=lambda: 0.0)
    began = time.monotonic()
    try:
        answers = nights.rows(names)
    finally:
        release.set()
    assert time.monotonic() - began < 10
    assert len(answers) == 501 and [row.node for row in answers if row.night] == ["good"]
    assert {row.why for row in answers if not row.night} == {"no answer within 0.2 s"}


def test_five_hundred_nodes_are_a_page_of_a_hundred_rows() -> None:
    nights = rows({f"n{number:03}": night(held_back_seconds=float(number)) for number in range(500)})
    page = nights_page.document(nights, Selection.of({"page": "2"}, nights_page.SHOW, nights_page.SORT))
    assert page.count("<tr>") == 101 and "Page 2 of 5" in page and ">n399<" in page
    assert len(page) < 100_000


def test_an_agent_that_trickles_is_given_up(
    server: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koordlite.scheduler.numa_api.charts.LONGEST_ANSWER_SECONDS", -1.0)
    with serving(lambda request: Reply(body={})) as tiny:
        agents = agents_of(server, tmp_path, int(tiny.url.rpartition(":")[2]))
        with pytest.raises(OSError, match="its answer takes longer than"):
            agents.ask("127.0.0.1", "/night")


def test_an_agents_own_answer_is_the_row_of_its_node(server: Any, tmp_path: pathlib.Path, picture: Snapshot) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    server.objects.load(exporter("agent"))
    agent = NumaExporter(listen=f"127.0.0.1:{port}")
    with exported(RealFiles(), agent, node="good", night=NightLog()) as listen:
        listen(Tick(time=1.0, wall=1e9, snapshot=picture, because="a test", restored=4), ())
        scene = numa_scene.scene()
        api = NumaService(
            scene.cluster,
            wall=lambda: scene.clock.wall,
            not_ready=lambda: "",
            agents=agents_of(server, tmp_path, port),
        )
        answer = json.loads(api.answer(f"{V1}/numa/nights", {}, "").body)["data"]
        page = api.answer("/numa/nights", {}, "").body.decode()
    row = next(row for row in answer if row["node"] == "good")
    assert (row["night"]["status"], row["night"]["restores"], row["why"]) == ("degraded", 4, "")
    assert all(each["night"] is None and each["why"] for each in answer if each["node"] != "good")
    assert "degraded" in page and "kubectl koordlite explain NODE besteffort --since 12h" in page
