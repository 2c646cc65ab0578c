"""Texts of a pod's owner, of a server and of other programs reach terminals, logs, Events and reports harmlessly."""

from __future__ import annotations

import ast
import io
import json
import logging
import pathlib
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reported import tick_of
from rich.console import Console

from descheduler.plan import EvictionPlan
from descheduler.policy import reader
from descheduler.report import document, explain, html, text
from koordlite import changes
from koordlite.changes.cgroup import CgroupChange
from koordlite.kube.publish.events import Event, Events
from koordlite.model import printable
from koordlite.model.decision import Decision, Verdict
from koordlite.model.errors import Problem
from koordlite.model.status import AppliedStep, FileTrouble, ForeignWrite, Pause, WatchState
from koordlite.model.wire.reservation import ObjectReference
from koordlite.report.explain import subject
from koordlite.report.history import History
from koordlite.report.html import run_report as run_page
from koordlite.report.json import run_report
from koordlite.report.log_format import Fields, JsonFormatter, LineFormatter
from koordlite.report.terminal import screen, status
from koordlite.report.terminal.live import LiveView
from koordlite.report.tick import Tick

FORGED = "2026-01-01T00:00:00.000Z INFO all is well"
ATTACK = f"\x1b]0;owned\x07\x1b[2J\x1b[32menforcing\x9b31m\r\x08\u202e\u2028\x85\n{FORGED}\nx"
"""Sets the title, clears the screen, colours, turns the direction, and begins lines in four ways."""
PLACE = changes.parse("kubepods/burstable/poda/cpuset.cpus")
ROOT = pathlib.Path(__file__).parents[2]


def hostile_tick() -> Tick:
    wanted = (CgroupChange("kubepods/burstable/poda", "cpu.shares", 2),)
    kinds: tuple[tuple[str, Verdict, str], ...] = (
        (ATTACK, "refuse", "InvalidAnnotation"),
        ("web", "hold", "NoSuchReason"),
    )
    decisions = tuple(
        Decision(f"pod/ns/{name}", verdict, reason, {"cpuset": ATTACK, "why": ATTACK}, wanted, "cpusetPools")
        for name, verdict, reason in kinds
    )
    return tick_of(
        time=1.0,
        node=ATTACK,
        status="degraded",
        because=ATTACK,
        decisions=decisions,
        modes={"cpusetPools": "enforce"},
        applied=(AppliedStep(PLACE, ATTACK, error=ATTACK),),
        foreign=(ForeignWrite(PLACE, ATTACK, ATTACK),),
        troubles=(FileTrouble(PLACE, refused=1, foreign=1, kept_off_seconds=1.0, last_error=ATTACK),),
        problems=(Problem("pod/ns/a", "annotation", ATTACK, ATTACK, ATTACK),),
        pause=Pause(until=9.0, because=ATTACK),
        watches=(WatchState(name="pods", age_seconds=1.0, error=ATTACK),),
    )


def assert_harmless(found: str, *, page: bool = False) -> None:
    """`page`: a browser takes a line end for a space."""
    bad = {char for char in found if not char.isprintable() and unicodedata.category(char) != "Zs"} - {"\n"}
    assert not bad, [hex(ord(char)) for char in bad]
    begun = [line for line in found.split("\n") if line.startswith(FORGED)]
    assert page or not begun, "a line that the attacker began"
    assert "owned" in found or "all is well" in found, "the text is there, or nothing was tried"


def published(tick: Tick) -> History:
    history = History({}, {"machine": ATTACK})
    history.add(tick)
    return history


@pytest.mark.parametrize("asked", ["pod web", "node", "cpusetPools", "file kubepods/burstable/poda/cpuset.cpus"])
def test_explanations(asked: str) -> None:
    tick = hostile_tick()
    past = published(tick).remembered()
    assert_harmless(subject.explain(asked, tick, past))
    assert_harmless(subject.explain(asked, tick, past, output="json"))


def test_the_screen_keeps_its_colours_and_loses_those_of_others() -> None:
    assert_harmless(status.screen(hostile_tick()))
    colored = status.screen(hostile_tick(), color=True)
    assert "\x1b[1;31mdegraded\x1b[0m" in colored
    assert "\x1b[32m" not in colored
    assert_harmless(colored.replace("\x1b[1;31m", "").replace("\x1b[0m", ""))


def test_the_live_view() -> None:
    tick = hostile_tick()
    history = published(tick)
    lines, console = io.StringIO(), Console(file=io.StringIO(), width=160, height=60, color_system=None)
    LiveView(history, lines).update(tick, tuple(history.decisions))
    assert_harmless(lines.getvalue())
    console.print(screen.render(ATTACK, tick, history.remembered(), width=160, height=60))
    assert isinstance(console.file, io.StringIO)
    assert_harmless(console.file.getvalue())


def test_reports_of_a_run() -> None:
    history = published(hostile_tick())
    assert_harmless(run_report.encode(run_report.document(history)).decode())
    assert_harmless(run_page.document(history), page=True)


def test_a_problem_is_one_line() -> None:
    assert_harmless(shown := str(Problem(ATTACK, ATTACK, ATTACK, ATTACK, ATTACK)))
    assert "\n" not in shown


def test_the_log_has_one_line_a_record_and_indents_tracebacks() -> None:
    try:
        raise ValueError(ATTACK)
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("x", logging.ERROR, "x", 1, "pod %s refused", (ATTACK,), info)
    found = LineFormatter().format(record)
    assert_harmless(found)
    first, *rest = found.split("\n")
    assert "pod \\x1b]0;owned" in first
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_both_forms_of_the_deschedulers_log() -> None:
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s", (Fields(event="decision", text=ATTACK),), None)
    assert_harmless(LineFormatter().format(record))
    found = JsonFormatter().format(record)
    assert_harmless(found)
    assert json.loads(found)["text"] == ATTACK, "JSON loses nothing"


def test_an_event() -> None:
    sent: list[str] = []

    class Api:
        def request(self, verb: str, path: str, *, body: dict[str, str], **_: object) -> None:
            sent.append(body["note"])

    events = Events(Api(), controller="c", instance="i", monotonic=lambda: 0.0, wall=lambda: 0.0)  # type: ignore[arg-type]
    events.write(
        Event(regarding=ObjectReference(kind="Pod", name="a", namespace="b"), reason="R", note=ATTACK, action="A")
    )
    assert len(sent) == 1
    assert_harmless(sent[0])
    assert "\n" not in sent[0]


def test_the_deschedulers_report(hostile_plan: EvictionPlan) -> None:
    assert_harmless(text.render(hostile_plan, failure=ATTACK))
    assert_harmless(html.render(hostile_plan, failure=ATTACK), page=True)
    assert_harmless(document.encode(hostile_plan, (), failure=ATTACK))
    name = next(pod.key for node in hostile_plan.view.nodes.values() for pod in node.all_pods)
    assert_harmless(explain.render(hostile_plan, name))


@pytest.fixture
def hostile_plan() -> EvictionPlan:
    from descheduler.cycle import planner
    from descheduler.snapshot import assemble, files

    objects = files.Objects()
    files.take(objects, json.dumps(_pod()).encode(), ATTACK)
    files.take(objects, json.dumps(_node()).encode(), ATTACK)
    return planner.plan(assemble.view(objects, "2026-01-01T00:00:00Z"), reader.setup(reader.default()))


def _node() -> dict[str, object]:
    return {
        "kind": "Node",
        "metadata": {"name": ATTACK, "annotations": {"node.koordinator.sh/cpu-topology": ATTACK}},
        "status": {"allocatable": {"cpu": ATTACK}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _pod() -> dict[str, object]:
    notes = {"scheduling.koordinator.sh/resource-status": ATTACK}
    meta = {"name": ATTACK, "namespace": "ns", "uid": ATTACK, "annotations": notes}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": ATTACK, "containers": [{"name": "a"}]}}


@pytest.mark.parametrize("folder", ["koordlite/cli", "descheduler/cli"])
def test_commands_print_through_one_function(folder: str) -> None:
    """Every `print` prints words of ours alone, or what `printable` made."""
    calls = [(path, call) for path in (ROOT / folder).glob("*.py") for call in _prints(ast.parse(path.read_text()))]
    assert calls
    bad = [f"{path.name}:{call.lineno}" for path, call in calls if not _is_safe(call.args[0])]
    assert not bad


def _prints(tree: ast.AST) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def _is_safe(made: ast.expr) -> bool:
    if isinstance(made, ast.IfExp):
        return _is_safe(made.body) and _is_safe(made.orelse)
    return isinstance(made, ast.Constant) or ast.unparse(made).startswith("printable.")


@given(st.text())
def test_what_is_printable_stays_and_the_rest_is_shown(text: str) -> None:
    line = printable.one_line(text)
    assert printable.one_line(line) == line
    assert not set(line) & set("\n\r\x1b\x9b\u202e\u2028\x00")
    assert printable.lines(text).count("\n") == text.count("\n")
    if text.isprintable():
        assert line == text


MAKERS: list[Callable[[object], str]] = [
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, ensure_ascii=False, indent=2),
]


@pytest.mark.parametrize("make", MAKERS)
@given(st.lists(st.text()))
def test_json_means_the_same(make: Callable[[object], str], values: list[str]) -> None:
    made = printable.in_json(make(values))
    assert json.loads(made) == values
    assert_harmless(f"owned{made}")
