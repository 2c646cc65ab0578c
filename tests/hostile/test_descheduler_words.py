"""What strangers write is words for the report, and never a template."""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import descheduler
import koordlite
from descheduler.cycle import planner
from descheduler.metrics_sources import gather
from descheduler.policy import reader
from descheduler.report import explain
from descheduler.snapshot import node_state
from koordlite.changes import cgroup
from koordlite.model.errors import ConfigError
from koordlite.model.place import Place, PlaceKind
from koordlite.model.reading import yaml_bounds
from tests.descheduler.conftest import Cluster

PACKAGES = [pathlib.Path(package.__file__ or "").parent for package in (koordlite, descheduler)]
NAMES = ["{a}", "{limit:>3000000000}", "{", "}", "{0.__class__}", "%s", "%(a)s"]


POLICY = """
maxNoOfPodsToEvictPerOwner: 1
profiles:
- name: test
  pluginConfig:
  - name: ReservedCPUs
    args: {byQuantity: false}
  plugins: {deschedule: {enabled: [ReservedCPUs]}}
"""


@pytest.mark.parametrize("name", NAMES)
def test_an_owner_is_called_what_it_likes(name: str) -> None:
    cluster = Cluster()
    for node in ("a", "b"):
        cluster.node(node, reservation={"reservedCPUs": "0-1"})
        cluster.report(node)
    for number in range(2):
        cluster.pinned(f"p-{number}", "a", f"{number},{number + 4}", owner=name)
    plan = cluster.plan(POLICY)
    texts = [reason.text for outcome in plan.outcomes for reason in outcome.reasons]
    assert any(f"so many of ReplicaSet/default/{name} go before it" in text for text in texts)


def test_nothing_is_a_template_for_format() -> None:
    """`str.format` obeys whatever braces are in its text: nobody calls it."""
    found = [
        f"{path}:{call.lineno}"
        for package in PACKAGES
        for path in package.rglob("*.py")
        if ".format" in path.read_text() or ".vformat" in path.read_text()
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("format", "format_map", "vformat")
        and not (isinstance(call.func.value, ast.Attribute) and call.func.value.attr == "json")
    ]
    assert found == []


def test_a_place_prints_its_parts_whatever_they_are() -> None:
    kinds = [kind for kind in vars(cgroup).values() if isinstance(kind, PlaceKind)]
    assert [str(Place(kind, ("{a}%s{0}", "cpu.max"))) for kind in kinds] == ["{a}%s{0}/cpu.max"]


@pytest.mark.parametrize("text", ["[" * 200_000, "{a: " * 50_000, "- " * 50_000 + "x", "a:\n" + " " * 300 + "b: 1\n"])
def test_a_policy_nested_deeper_than_anybody_writes_is_an_error_and_no_crash(text: str) -> None:
    if text.startswith("a:"):  # Deep to the eye only.
        yaml_bounds.checked(text)
        return
    with pytest.raises(ConfigError, match="nested deeper than 100"):
        reader.parse(text, "policy.yaml")


def test_explain_answers_about_a_pod_whose_node_counts_for_no_domain() -> None:
    cluster = Cluster()
    for node in ("a", "b"):
        cluster.node(node)
    cluster.objects[1]["metadata"]["labels"] = {}
    made = cluster.pod("p", "b", labels={"app": "x"})
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname", "maxSkew": 1}
    made["spec"]["topologySpreadConstraints"] = [{"whenUnsatisfiable": "DoNotSchedule", **term}]
    text = """
profiles:
- name: test
  plugins: {balance: {enabled: [RemovePodsViolatingTopologySpreadConstraint]}}
"""
    plan = planner.plan(cluster.view(), reader.setup(reader.parse(text, "p.yaml")), explained="p")
    assert "its node counts for no kubernetes.io/hostname" in " ".join(explain.render(plan, "p").split())


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"status": "\xff"}', b'{"status":"success","data":{"result":1e9999}}']
)
def test_nonsense_from_prometheus_is_no_measurement(body: bytes) -> None:
    assert gather.read(body).absent


def _pinned() -> Cluster:
    cluster = Cluster()
    for node in ("a", "b"):
        cluster.node(node, reservation={"reservedCPUs": "0-1"})
        cluster.report(node)
    for number in range(2):
        cluster.pinned(f"p-{number}", "a", f"{number},{number + 4}")
    return cluster


PLAIN = POLICY.replace("maxNoOfPodsToEvictPerOwner: 1\n", "")


def test_one_pod_that_cannot_be_decided_on_costs_that_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = planner._Draft._decide

    def fails(draft: Any, asked: Any, guards: Any) -> Any:
        return _fails() if asked.pod.pod.name == "p-0" else decide(draft, asked, guards)

    monkeypatch.setattr(planner._Draft, "_decide", fails)
    plan = _pinned().plan(PLAIN)
    assert [outcome.pod.pod.name for outcome in plan.evict] == ["p-1"]
    ((reason,),) = [outcome.reasons for outcome in plan.kept]
    assert reason.reason == planner.FAULT and "OverflowError" in reason.text


def test_one_plugin_that_fails_costs_that_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PLAIN.replace("[ReservedCPUs]", "[NUMAAlignment, ReservedCPUs]")
    setup = reader.setup(reader.parse(text, "p.yaml"))

    def broken(*_: Any) -> Any:
        yield from ()
        raise ZeroDivisionError

    (profile,) = setup.profiles
    replace = msgspec.structs.replace
    plugins = [(replace(p, judge=broken) if p.name == "NUMAAlignment" else p, c) for p, c in profile.plugins]
    failing = replace(profile, plugins=tuple(plugins))
    plan = planner.plan(_pinned().view(), msgspec.structs.replace(setup, profiles=(failing,)))
    assert len(plan.evict) == 2
    assert [(note.plugin, note.reason) for note in plan.notes] == [("NUMAAlignment", planner.PLUGIN_FAULT)]


def _plan_with(judge: Callable[[Callable[..., Any], Any, Any, Any], Any], cluster: Cluster | None = None) -> Any:
    """The plan of `ReservedCPUs` with a fault: `judge` stands before the plugin's own, which it is given."""
    setup = reader.setup(reader.parse(PLAIN, "p.yaml"))
    (profile,) = setup.profiles
    ((plugin, config),) = profile.plugins
    replace = msgspec.structs.replace
    failing = replace(plugin, judge=functools.partial(judge, plugin.judge))
    profiles = (replace(profile, plugins=((failing, config),)),)
    return planner.plan((cluster or _pinned()).view(), replace(setup, profiles=profiles))


def _fails(*_: Any) -> Any:
    raise OverflowError("int too large to convert to float")


def test_one_pod_on_which_a_plugin_fails_costs_that_pod() -> None:
    def judge(own: Any, view: Any, config: Any, handle: Any) -> Any:
        for message in own(view, config, handle):
            verdict = yield message
            assert verdict is None or verdict.evicted or verdict.reason
        if any(pod.pod.name == "p-0" for pod in view.pods()):
            _fails()

    plan = _plan_with(judge)
    (note,) = plan.notes
    assert note.reason == planner.PLUGIN_FAULT and note.node
    assert "pod default/p-0 is left out" in note.text and "OverflowError" in note.text
    assert plan.evict and {outcome.pod.pod.name for outcome in plan.evict} == {
        outcome.pod.pod.name for outcome in _pinned().plan(PLAIN).evict
    }


def test_a_plugin_that_fails_before_it_says_anything_of_a_pod_judges_the_others() -> None:
    def judge(own: Any, view: Any, config: Any, handle: Any) -> Any:
        if any(pod.pod.name == "p-0" for pod in view.pods()):
            _fails()
        yield from own(view, config, handle)

    plan = _plan_with(judge)
    assert [outcome.pod.pod.name for outcome in plan.evict] == ["p-1"]
    assert ["p-0 is left out" in note.text for note in plan.notes] == [True]


@pytest.mark.parametrize("bad", ["p-1-", "p-"], ids=["every pod of a node", "every pod"])
def test_what_a_plugin_fails_on_is_told_of_once(bad: str) -> None:
    cluster = Cluster()
    for node in range(30):
        cluster.node(f"n-{node}")
        for pod in range(4):
            cluster.pod(f"p-{node}-{pod}", f"n-{node}")
    judged: set[str] = set()

    def judge(own: Any, view: Any, config: Any, handle: Any) -> Any:
        yield from own(view, config, handle)
        if any(pod.pod.name.startswith(bad) for pod in view.pods()):
            _fails()
        judged.update(pod.pod.name for pod in view.pods())

    plan = _plan_with(judge, cluster)
    (note,) = [note for note in plan.notes if note.reason == planner.PLUGIN_FAULT]
    assert "are left out: " in note.text and len(note.text) < 500
    assert len(judged) == (0 if bad == "p-" else 116)


def test_one_report_that_cannot_be_read_costs_that_node(monkeypatch: pytest.MonkeyPatch) -> None:
    read = node_state.read

    def fails(obj: Any, problems: Any) -> Any:
        if obj.metadata.name == "b":
            raise KeyError("zones")
        return read(obj, problems)

    monkeypatch.setattr(node_state, "read", fails)
    plan = _pinned().plan(PLAIN)
    assert len(plan.evict) == 2
    assert "noderesourcetopology/b" in [problem.object for problem in plan.view.problems]
