"""The keys of `koordlite top`, on what a real agent answers about an emulated node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from answering import answering
from emulated import Emulated
from textual.pilot import Pilot
from textual.widgets import Static

from koordlite.model.errors import KoordliteError
from koordlite.report import pod_rows
from koordlite.report.pod_rows import PodRow
from koordlite.report.terminal.top_app import Table, TopApp, Words
from koordlite.report.web.endpoints import Endpoints

Play = Callable[[Pilot[None]], Awaitable[None]]


class Agent:
    """Answers as over HTTP."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self.down = ""
        self.asked: list[tuple[int, int]] = []

    def frame(self, width: int, height: int) -> str:
        if self.down:
            raise KoordliteError(self.down)
        self.asked.append((width, height))
        return self._get("/status", view="node", width=str(width), height=str(height))

    def pods(self) -> tuple[PodRow, ...]:
        return pod_rows.read(self._get("/pods"))

    def explain(self, subject: str) -> str:
        return self._get("/explain", subject=subject)

    def _get(self, path: str, **query: str) -> str:
        return self._endpoints.answer(path, query, "").body.decode()


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Endpoints:
    node = Emulated("intel-2s-ht", tmp_path_factory.mktemp("cluster"))
    node.pod("web", "LS", "2")
    for number in range(30):
        node.pod(f"crunch-{number}", "BE", "greedy")
    return answering(node, ticks=5)


@pytest.fixture
def agent(endpoints: Endpoints) -> Agent:
    return Agent(endpoints)


def play(agent: Agent, part: Play, size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        async with TopApp(agent, 3600.0).run_test(size=size) as pilot:
            await settled(pilot)
            await part(pilot)

    asyncio.run(run())


async def settled(pilot: Pilot[None]) -> None:
    for _ in range(3):  # Rows that are new ask for another look.
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
    await pilot.pause()


def table(pilot: Pilot[None]) -> Table:
    return pilot.app.query_one(Table)


def note(pilot: Pilot[None]) -> str:
    return str(pilot.app.query_one("#note", Static).render())


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40)])
def test_node_and_pods_share_any_size(agent: Agent, size: tuple[int, int]) -> None:
    async def part(pilot: Pilot[None]) -> None:
        node, rows = pilot.app.query_one("#node"), table(pilot)
        assert node.size.height + rows.size.height + 2 == size[1], "with the note and the keys"
        assert rows.size.height >= 6
        assert agent.asked[-1] == (size[0], node.size.height)
        assert rows.row_count == 31

    play(agent, part, size)


def test_arrows_choose_and_enter_explains(agent: Agent) -> None:
    async def part(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        chosen = table(pilot).selected
        assert chosen.startswith("ns/crunch-")
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(pilot.app.screen, Words)
        said = str(pilot.app.screen.query_one("#words", Static).render())
        assert said.startswith(f"pod {chosen}\n\ndecided about it")
        await pilot.press("q")
        assert not isinstance(pilot.app.screen, Words), "q leads back first"

    play(agent, part)


def test_letters_move_the_cursor_as_in_vi(agent: Agent) -> None:
    async def part(pilot: Pilot[None]) -> None:
        for keys, line in (("j", 1), ("j", 2), ("k", 1), ("G", table(pilot).row_count - 1), ("g", 0)):
            await pilot.press(keys)
            assert table(pilot).cursor_row == line, keys

    play(agent, part)


def test_the_cursor_stays_with_its_pod(agent: Agent) -> None:
    async def part(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "down")
        chosen, line = table(pilot).selected, table(pilot).cursor_row
        await pilot.press("s", "s", "s", "s", "s", "s")
        assert "by pod, A to Z" in note(pilot)
        assert table(pilot).selected == chosen
        assert table(pilot).cursor_row != line
        await pilot.press("r")
        assert "by pod, reversed" in note(pilot)
        assert table(pilot).get_row_at(0)[0].plain == "ns/web"
        assert table(pilot).selected == chosen

    play(agent, part)


def test_a_filter_follows_each_key_and_escape_ends_it(agent: Agent) -> None:
    async def part(pilot: Pilot[None]) -> None:
        await pilot.press("/", *"be crunch-1")
        assert table(pilot).row_count == 11
        assert "11 of 31 pods have 'be crunch-1'" in note(pilot)
        await pilot.press("enter", "s")
        assert "by limit" in note(pilot), "the keys are the table's again"
        await pilot.press("escape")
        assert table(pilot).row_count == 31
        await pilot.press("/", *"nothing-has-this")
        assert table(pilot).row_count == 0
        await pilot.press("enter", "enter")  # Nothing is chosen, so nothing is explained.
        assert not isinstance(pilot.app.screen, Words)

    play(agent, part)


def test_views_and_help(agent: Agent) -> None:
    async def part(pilot: Pilot[None]) -> None:
        await pilot.press("v")
        assert (table(pilot).display, pilot.app.query_one("#node").display) == (True, False)
        await pilot.press("v")
        await settled(pilot)
        assert (table(pilot).display, pilot.app.query_one("#node").display) == (False, True)
        assert agent.asked[-1] == (80, 23)
        await pilot.press("v", "?")
        assert "choose a pod" in str(pilot.app.screen.query_one("#words", Static).render())

    play(agent, part)


def test_an_agent_that_does_not_answer_is_named_over_its_last_look(agent: Agent) -> None:
    async def part(pilot: Pilot[None]) -> None:
        agent.down = "no agent answers\nat all"
        app: Any = pilot.app
        app.look()
        await settled(pilot)
        assert note(pilot) == "no agent answers\\nat all"
        assert table(pilot).row_count == 31
        agent.down = ""
        app.look()
        await settled(pilot)
        assert "31 pods" in note(pilot)

    play(agent, part)
