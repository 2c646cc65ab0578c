"""`koordlite top` in a terminal: the node above, its pods below, and keys. What is shown comes from a running agent."""

from __future__ import annotations

from typing import ClassVar, Protocol

from rich.text import Text
from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from koordlite.model import printable
from koordlite.model.errors import KoordliteError
from koordlite.report import pod_rows
from koordlite.report.pod_rows import PodRow

HELP = """\
↑ ↓ PgUp PgDn  choose a pod; j k as well, g G the first and the last
← →            move the table sideways
Enter          explain the chosen pod
/              filter by words of any column; Esc ends it
s  S           sort by the next column, the one before
r              reverse the order
v              node and pods, pods alone, node alone
?              this help
q  Ctrl-C      quit

A click on a heading sorts by it, a second one reverses it.
Threshold: the use of the node above which best effort is limited.
Dashed: the limit that best effort would have while
cpuSuppress only observes. Limit: the pod's own quota; its
CPUs limit it as well. Pressure: the part of the last ten
seconds in which some task of the pod waited.
"""
_VIEWS = ("both", "pods", "node")
_LEAST_TABLE = 6
"""Lines of the table where there is little room: its heading and five pods."""


class Source(Protocol):
    """A running agent. Each may raise KoordliteError when it does not answer."""

    def frame(self, width: int, height: int) -> str:
        """The node without its pods, as text with colours."""

    def pods(self) -> tuple[PodRow, ...]:
        """The rows of the table."""

    def explain(self, subject: str) -> str:
        """The answer as text."""


class Words(ModalScreen[None]):
    """A text over the whole screen, to scroll in."""

    CSS = "Words { background: $background; } Words VerticalScroll { padding: 0 1; }"
    BINDINGS: ClassVar = [Binding("escape,q,enter,question_mark", "dismiss", "back", key_display="Esc")]

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    def compose(self) -> ComposeResult:
        """The text above, the keys below."""
        with VerticalScroll():
            yield Static(Text(self._words), id="words")
        yield Footer(show_command_palette=False)


class Table(DataTable[Text]):
    """The pods. Rows are filled in place, so that nothing jumps when they change."""

    BINDINGS: ClassVar = [
        Binding("enter", "select_cursor", "explain", key_display="Enter"),
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("g", "scroll_top", show=False),
        Binding("G", "scroll_bottom", show=False),
    ]

    def on_mount(self) -> None:
        """The columns that every medium has."""
        for column in pod_rows.COLUMNS:
            self.add_column(Text(column.title, justify="right" if column.is_number else "left"), key=column.key)
        self._names: list[str] = []

    @property
    def selected(self) -> str:
        """The name of the pod under the cursor; empty where there is none."""
        return self._names[self.cursor_row] if 0 <= self.cursor_row < len(self._names) else ""

    def fill(self, rows: tuple[PodRow, ...]) -> None:
        """Show `rows`; the cursor stays with its pod."""
        selected = self.selected
        for row in rows[self.row_count :]:
            self.add_row(*_cells(row))
        while self.row_count > len(rows):
            self.remove_row(self.coordinate_to_cell_key(Coordinate(self.row_count - 1, 0)).row_key)
        for line, row in enumerate(rows):
            for place, cell in enumerate(_cells(row)):
                at = Coordinate(line, place)
                if self.get_cell_at(at) != cell:
                    self.update_cell_at(at, cell, update_width=True)
        self._names = [row.name for row in rows]
        if selected in self._names and self.selected != selected:
            self.move_cursor(row=self._names.index(selected), animate=False)


class TopApp(App[None]):
    """Keys and layout; `seconds` between two looks."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #node { width: 100%; text-wrap: nowrap; text-overflow: clip; }
    #note { height: 1; width: 100%; text-style: bold; }
    #note.bad { color: $error; }
    Table { height: 1fr; width: 100%; scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar = [
        Binding("slash", "filter", "filter", key_display="/", priority=True),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", show=False),
        Binding("r", "reverse", "reverse", show=False),
        Binding("v", "view", "view"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("escape", "unfilter", show=False),
    ]

    def __init__(self, source: Source, seconds: float) -> None:
        # With NO_COLOR there are no colours at all then, instead of greys.
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"  # The terminal's own colours, dark or light.
        self._source, self._seconds = source, seconds
        self._rows: tuple[PodRow, ...] = ()
        self._key, self._backwards, self._filter, self._view, self._why = "cpu", False, "", "both", ""

    def compose(self) -> ComposeResult:
        """The node, a line about the table, the table, the filter, the keys."""
        yield Static(id="node")
        yield Static(id="note")
        yield Table(cursor_type="row")
        yield Input(placeholder="words that a pod has in its columns", id="filter", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Look at once, and then again and again."""
        self.query_one(Table).focus()
        self.set_interval(self._seconds, self.look)
        self.look()

    def on_resize(self, _event: events.Resize) -> None:
        """The node is drawn for the size there is."""
        self.look()

    @work(thread=True, exclusive=True)
    def look(self) -> None:
        """Ask the agent, off the thread that answers keys."""
        width, height = self.size.width, self._height_of_node()
        try:
            frame = self._source.frame(width, height) if height else ""
            rows = self._source.pods() if self._view != "node" else self._rows
        except KoordliteError as error:
            self.call_from_thread(self._fail, printable.one_line(str(error)))
        else:
            self.call_from_thread(self._show, frame, rows)

    def _height_of_node(self) -> int:
        """Lines for the node: all but those of the table that it needs, or may have."""
        free = self.size.height - 2
        if self._view == "pods":
            return 0
        if self._view == "node":
            return max(3, free + 1)
        table = min(max(2, len(self._rows) + 1), max(_LEAST_TABLE, free * 9 // 20))
        return max(3, free - table)

    def _show(self, frame: str, rows: tuple[PodRow, ...]) -> None:
        self._why, grown = "", len(rows) != len(self._rows)
        self._rows = rows
        node = self.query_one("#node", Static)
        lines = printable.lines(frame, colors=True).split("\n")
        node.update(Text.from_ansi("\n".join(lines[: self._height_of_node()]), no_wrap=True, overflow="crop"))
        self._fill()
        if grown:
            self.look()  # The node may have more lines now, or fewer.

    def _fail(self, why: str) -> None:
        """The last look stays, with the reason why there is none since."""
        self._why = why
        self._note()

    def _fill(self) -> None:
        rows = pod_rows.matching(self._rows, self._filter)
        table = self.query_one(Table)
        table.display = self._view != "node"
        self.query_one("#node").display = self._view != "pods"
        table.fill(pod_rows.ordered(rows, self._key, backwards=self._backwards))
        self._note()

    def _note(self) -> None:
        note = self.query_one("#note", Static)
        note.display = bool(self._why) or self._view != "node"
        note.set_class(bool(self._why), "bad")
        note.update(Text(self._why or self._about_table(), no_wrap=True, overflow="ellipsis"))

    def _about_table(self) -> str:
        count = self.query_one(Table).row_count
        column = next(column for column in pod_rows.COLUMNS if column.key == self._key)
        many = f"{count} pods" if not self._filter else f"{count} of {len(self._rows)} pods have {self._filter!r}"
        order = "the newest first" if column.key == "decided" else "A to Z"
        order = "the largest first" if column.is_number else order
        return f"{many}, by {column.title}, {'reversed' if self._backwards else order}"

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the one before."""
        keys = [column.key for column in pod_rows.COLUMNS]
        self._key, self._backwards = keys[(keys.index(self._key) + step) % len(keys)], False
        self._fill()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._backwards = not self._backwards
        self._fill()

    @on(DataTable.HeaderSelected)
    def sort_by_heading(self, event: DataTable.HeaderSelected) -> None:
        """A click on a heading sorts by it, a second one reverses the order."""
        key = str(event.column_key.value)
        self._key, self._backwards = key, key == self._key and not self._backwards
        self._fill()

    def action_view(self) -> None:
        """Node and pods, pods alone, node alone."""
        self._view = _VIEWS[(_VIEWS.index(self._view) + 1) % len(_VIEWS)]
        self._fill()
        self.look()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A `/` is a letter in the filter, and nothing above another text."""
        if action == "filter":
            return not isinstance(self.focused, Input) and not isinstance(self.screen, Words)
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        """Let the words be typed."""
        field = self.query_one("#filter", Input)
        field.display = True
        self.screen.set_focus(field)  # At once, so that keys that are already on their way are its.

    def action_unfilter(self) -> None:
        """Show every pod again."""
        self.query_one("#filter", Input).value = ""
        self.end_filter()

    @on(Input.Changed, "#filter")
    def narrow(self, event: Input.Changed) -> None:
        """The table follows each key."""
        self._filter = event.value.strip()
        self._fill()

    @on(Input.Submitted, "#filter")
    def end_filter(self) -> None:
        """The words stay in force, the keys go to the table again."""
        self.query_one("#filter", Input).display = False
        self.screen.set_focus(self.query_one(Table))

    @on(DataTable.RowSelected)
    def explain(self) -> None:
        """Decisions about the chosen pod."""
        pod = self.query_one(Table).selected
        if pod:
            self._explain(pod)

    @work(thread=True, exclusive=True, group="explain")
    def _explain(self, name: str) -> None:
        try:
            answer = self._source.explain(f"pod {name}")
        except KoordliteError as error:
            answer = str(error)
        self.call_from_thread(self.push_screen, Words(printable.lines(answer)))

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(Words(HELP))


def _cells(row: PodRow) -> list[Text]:
    """Convert to texts: a string would be read as markup."""
    return [Text(column.show(row), justify="right" if column.is_number else "left") for column in pod_rows.COLUMNS]
