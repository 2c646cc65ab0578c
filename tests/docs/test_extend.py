"""The rules that docs/extend.md shows are found and judge like those of the product."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable, Iterator

import pytest

from descheduler import plugins
from descheduler.framework import NodeView, PodView, View
from koordlite import strategies
from koordlite.cli import machine as machines
from koordlite.cli import parser
from koordlite.model import times
from koordlite.model.decision import Decision
from koordlite.model.node import Node
from koordlite.model.pod.values import Pod
from koordlite.model.reading import documented
from koordlite.model.snapshot import Snapshot
from koordlite.model.wire import objects
from koordlite.observe import Observer
from tests.support.handles import handle

Blocks = Callable[[pathlib.Path, str], list[tuple[int, str]]]
DAY_SECONDS = 86400.0
NOON = times.parse("2026-06-01T12:00:00Z")


@pytest.fixture
def added(
    root: pathlib.Path, blocks: Blocks, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Both files of the page, in folders that belong to the packages while the test runs."""
    strategies.discover()  # Its answer is kept: it must not be the one with the strategy of the page.
    texts = [text for _, text in blocks(root / "docs" / "extend.md", "python")]
    names = [("strategies", "count_pods", strategies), ("plugins", "old_pods", plugins)]
    for text, (folder, name, package) in zip(texts, names, strict=True):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / folder)])
    yield
    for _, name, package in names:
        sys.modules.pop(f"{package.__name__}.{name}", None)
        vars(package).pop(name, None)


@pytest.fixture
def seen(root: pathlib.Path) -> Snapshot:
    """A picture of the emulated node of the tour."""
    line = ["run", "--sandbox", "intel-2s-ht", "--cluster", str(root / "configs" / "tour"), "--node", "tour-a"]
    args = parser().parse_args(line)
    machine = machines.machine(args, machines.settings(args))
    return Observer(machine.host, machine.cluster, tasks_seconds=5).observe()


def count_pods() -> strategies.Strategy:
    found = {strategy.name: strategy for strategy in strategies.discover.__wrapped__()}
    assert len(found) > 1
    return found["countPods"]


@pytest.mark.usefixtures("added")
def test_the_strategy_is_found_and_answers(seen: Snapshot) -> None:
    expected = Decision("node", "hold", "FewPods", {"pods": len(seen.pods)}, strategy="countPods")
    assert strategies.judge(count_pods(), seen, {}) == (expected,)
    assert seen.pods


@pytest.mark.usefixtures("added")
def test_the_strategy_s_section_is_printed_with_its_comments() -> None:
    found = count_pods()
    lines = documented.section(found.name, found.config(), about=found.doc)
    assert lines[:2] == ["# Say how many pods there are.", "countPods:"]
    assert lines[-2:] == ["  # From how many pods on the node counts as full.", "  many: 100"]


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize(("days", "reasons"), [(29, []), (31, ["PodTooOld"])])
def test_the_plugin_is_found_and_names_only_old_pods(days: int, reasons: list[str]) -> None:
    pod = PodView(Pod(namespace="shop", name="web", uid="u"), objects.PodObject(), "n", NOON - days * DAY_SECONDS)
    view = View(times.show(NOON), "", {"n": NodeView(Node(name="n"), objects.NodeObject(), (pod,))})
    plugin = plugins.discover.__wrapped__()["OldPods"]
    assert [answer.reason for answer in plugin.judge(view, plugin.config(), handle(view))] == reasons
