"""Live pages in a real browser: they change in place, and what a reader opened, typed, chose and scrolled to stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import slices
from apibench import until
from chromium import Browser

from koordlite.http.answers import Answer, plain
from koordlite.http.server import Server
from koordlite.report.html import page
from koordlite.report.html.page import FILTER_SCRIPT, Markup, el

pytestmark = pytest.mark.xdist_group("browser")
AT = "document.querySelector('h1').textContent"


class Changing:
    """A server whose page counts how often it was asked for, and which can go away and come back."""

    groups = ("one", "two")
    refresh_seconds = 3600
    """Only `ask` makes it ask, and nothing changes between two looks at the page; a test of the timer sets it."""

    def __init__(self) -> None:
        self.asked, self.status, self.above = 0, 200, 0
        self.port = 0
        self.start()

    def start(self) -> None:
        """Listen, on the port of the last time."""
        self.server = Server("127.0.0.1", self.port, self.answer)
        self.port = self.server.port
        self.server.start()

    def answer(self, path: str, query: Mapping[str, str], accept: str) -> Any:
        if path != "/":
            return plain(404, "nothing")
        self.asked += 1
        if self.status != 200:
            return plain(self.status, "not now", {"Connection": "close"})
        every = self.refresh_seconds
        made = page.strict(page.page(f"at {self.asked}", *self.body(), refresh_seconds=every, script=FILTER_SCRIPT))
        # A server that is closed here still serves the connections that it has; a process that ended would not.
        return Answer(200, "text/html", made.text.encode(), {**made.headers, "Connection": "close"})

    def body(self) -> Iterator[Markup]:
        """Parts come above others; a row has a colour that no page before had."""
        yield from (page.section(f"new {number}", el("p", "x")) for number in range(self.above))
        colour = el("b", f"{self.asked}", id="coloured", style=f"color:rgb({self.asked}, 0, 0)")
        rows = [(f"row-{number}", f"{number + self.asked}") for number in range(60)]
        groups = [page.filter_group(name, page.table(("a", "b"), rows), note=f"{self.asked}") for name in self.groups]
        yield page.section("A list", colour, page.filter_field("find"), *groups)
        yield page.section("More", page.details(f"{self.asked} more rows", page.table(("a", "b"), rows)))


@pytest.fixture
def served() -> Iterator[Changing]:
    made = Changing()
    yield made
    made.server.close()


def next_answer(chromium: Browser) -> None:
    """Until the page shows another answer of the server than it does."""
    before = chromium.value(AT)
    ask(chromium)
    until(lambda: chromium.value(AT) != before)


def ask(chromium: Browser) -> None:
    """The page asks as it does when a hidden tab is seen again, and not when its time has come."""
    chromium.value("document.dispatchEvent(new Event('visibilitychange'))")


def status(chromium: Browser) -> str:
    return str(chromium.value("document.querySelector('[data-refresh]').textContent"))


def asks_until_it_says(chromium: Browser, words: str) -> None:
    """A connection that the browser opened ahead may serve once more after the server was closed."""
    until(lambda: status(chromium).partition("since ")[:2] == words.partition("since ")[:2] or ask(chromium))


def test_it_changes_in_place_and_keeps_what_is_opened_typed_focused_and_scrolled_to(
    chromium: Browser, served: Changing
) -> None:
    chromium.open(served.server.url, width=1280, height=500)
    chromium.value("window.first = document.querySelector('main section')")
    chromium.value("[...document.querySelectorAll('details')].forEach(each => { each.open = true })")
    chromium.value("document.querySelectorAll('details.group')[0].open = false")
    chromium.value("document.querySelector('input').focus()")
    chromium.value("scrollTo(0, 2000)")
    before = chromium.value("[scrollY, document.querySelector('tr').getBoundingClientRect().top]")
    next_answer(chromium)
    assert chromium.value("first.isConnected"), "the page was not loaded again"
    assert chromium.value("document.querySelector('#coloured').textContent") == str(served.asked)
    assert chromium.value("[...document.querySelectorAll('details')].map(each => each.open)") == [False, True, True]
    assert chromium.value("document.activeElement.tagName") == "INPUT"
    assert chromium.value("[scrollY, document.querySelector('tr').getBoundingClientRect().top]") == before
    assert chromium.value("document.title") == f"at {served.asked}"
    assert chromium.complaints == []


def test_the_style_of_each_answer_comes_through_the_policy(chromium: Browser, served: Changing) -> None:
    chromium.open(served.server.url, width=1280)
    colour = "getComputedStyle(document.querySelector('#coloured')).color"
    assert chromium.value(colour) == f"rgb({served.asked}, 0, 0)"
    next_answer(chromium)
    assert chromium.value(colour) == f"rgb({served.asked}, 0, 0)"
    assert chromium.complaints == []


def test_what_comes_above_and_what_goes_moves_nothing_else(chromium: Browser, served: Changing) -> None:
    chromium.open(served.server.url, width=1280)
    chromium.value("document.querySelectorAll('details.group')[1].open = true")
    chromium.value("document.querySelectorAll('details.group summary')[1].focus()")
    served.above, served.groups = 2, ("zero", "two", "three")
    next_answer(chromium)
    shown = "[...document.querySelectorAll('details.group')].map(g => [g.querySelector('b').textContent, g.open])"
    assert chromium.value(shown) == [["zero", False], ["two", True], ["three", False]]
    assert chromium.value("document.activeElement.querySelector('b').textContent") == "two"
    assert chromium.value("[...document.querySelectorAll('h2')].map(each => each.textContent)") == [
        "new 0", "new 1", "A list", "More",
    ]  # fmt: skip
    served.above = 0
    next_answer(chromium)
    assert chromium.value("document.querySelectorAll('h2').length") == 2


def test_a_typed_filter_stays_and_holds_for_what_comes(chromium: Browser, served: Changing) -> None:
    chromium.open(served.server.url, width=1280)
    chromium.press_in("input", "two row-7")
    said = "document.querySelector('section [role=status]').textContent"
    assert chromium.value(said) == "1 of 120"
    served.groups = ("one", "two", "two again")
    next_answer(chromium)
    assert chromium.value("document.querySelector('input').value") == "two row-7"
    assert chromium.value(said) == "2 of 180"
    assert chromium.value("[...document.querySelectorAll('details.group')].map(group => group.hidden)") == [
        True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("dark", slices.named({"light": False, "dark": True}))
def test_it_says_since_when_the_server_is_gone_and_recovers(chromium: Browser, served: Changing, dark: bool) -> None:
    chromium.open(served.server.url, width=390, dark=dark)
    served.server.close()
    asks_until_it_says(chromium, "Not reachable since ")
    first, shown = status(chromium), chromium.value(AT)
    assert chromium.value("document.documentElement.scrollWidth") <= 390
    assert chromium.inaccessible() == []
    served.status = 503
    served.start()
    asks_until_it_says(chromium, "The server answers 503 since ")
    assert status(chromium).partition("since")[2] == first.partition("since")[2]
    assert chromium.value(AT) == shown
    served.status = 200
    asks_until_it_says(chromium, "")
    until(lambda: chromium.value(AT) == f"at {served.asked}")
    assert chromium.value("getComputedStyle(document.querySelector('[data-refresh]')).display") == "none"


def test_a_hidden_tab_asks_nothing_until_it_is_seen_again(chromium: Browser, served: Changing) -> None:
    served.refresh_seconds = 1
    chromium.open(served.server.url, width=1280)
    until(lambda: chromium.value(AT) != "at 1")
    with chromium.another_tab():
        until(lambda: chromium.value("document.hidden"))
        asked = served.asked
        chromium.value("window.waited = 0; setTimeout(() => { waited = 1 }, 2500)")
        until(lambda: chromium.value("waited"))
        assert served.asked <= asked + 1, "one may have been on its way"
        asked = served.asked
    until(lambda: served.asked > asked)


def test_without_scripts_it_is_loaded_again(chromium: Browser, served: Changing) -> None:
    served.refresh_seconds = 1
    with chromium.without_scripts():
        chromium.open(served.server.url, width=1280)
        until(lambda: served.asked > 2)
