"""Tenants who write as much as the API server takes: log, tick, picture and what is published stay small."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import tenants
from emulated import Emulated

from koordlite import strategies
from koordlite.model import keys, nrt
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod import pod_reader
from koordlite.model.settings import Mode
from koordlite.report.history import History
from koordlite.report.terminal import decision_log
from koordlite.report.terminal.decision_log import DecisionLog, Levels
from koordlite.report.tick import Tick

LONG = "x" * 250_000
ALL = (
    keys.RESOURCE_STATUS,
    keys.RESOURCE_SPEC,
    keys.NUMA_TOPOLOGY_SPEC,
    keys.POD_RESCTRL,
    keys.CPU_BURST,
    keys.MEMORY_QOS,
    keys.BLKIO_QOS,
    keys.OOM_SCORE_ADJ,
    keys.OOM_SCORE_ADJ_SPEC,
    keys.EVICTION_POLICY,
    keys.EVICTION_PRIORITY,
)
CPU_LIST = ",".join(str(2 * cpu) for cpu in range(40_000))
MOST_EACH = 64 * 1024


@pytest.fixture
def node(tmp_path: Path) -> Emulated:
    return Emulated("intel-2s-ht", tmp_path)


def play(node: Emulated, mode: Mode, count: int = 20) -> list[Tick]:
    with node.journal() as journal:
        return node.ticks(node.agent(journal if mode == "enforce" else None, mode), count)


def logged(ticks: list[Tick], caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the decision log at its default level."""
    caplog.clear()
    history, clock = History({}, {}), [0.0]
    log = DecisionLog(Levels([s.name for s in strategies.discover()], now=lambda: clock[0]))
    with caplog.at_level(logging.DEBUG):
        for tick in ticks:
            log.write(tick, history.add(tick))
            clock[0] += 1.0
    return [record.getMessage() for record in caplog.records if record.name == "koordlite.decisions"]


@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LONG, id="250 KB"),
        pytest.param("x" * 4000, id="as long as is read"),
        pytest.param(json.dumps({f"{'k' * 50}{n}": [] for n in range(60)}), id="many wrong names"),
    ],
)
def test_bad_annotations_fill_no_log(node: Emulated, caplog: pytest.LogCaptureFixture, mode: Mode, text: str) -> None:
    for number in range(5):
        tenants.create(node, f"p{number}", "BE", annotations=dict.fromkeys(ALL, text))
    ticks = play(node, mode)
    lines = [line for line in logged(ticks, caplog) if "tenant/" in line]
    assert sum(map(len, lines)) < 5 * MOST_EACH / 4
    assert len(lines) <= 5 * len(ALL)
    problems = [str(problem) for tick in ticks for problem in tick.problems]
    assert max(map(len, problems), default=0) < 2000


def test_two_answers_about_one_pod_are_news_once(node: Emulated) -> None:
    """Each of them was new in every tick, since only the last one was remembered."""
    blocks = [{"name": "/dev/none", "type": "device", "ioCfg": {"readBPS": 1}}]
    tenants.create(
        node, "two", "LS", annotations={keys.BLKIO_QOS: json.dumps({"blocks": blocks})}, requests={"cpu": "1"}
    )
    history = History({}, {})
    news = [history.add(tick) for tick in play(node, "observe", 6)]
    about = [
        [e for e in events if e.decision.subject == "pod/tenant/two" and e.decision.strategy == "blkio"]
        for events in news
    ]
    assert [len(events) for events in about[1:]] == [0] * 5
    assert len(about[0]) == 2


def test_evidence_about_a_pod_is_short(node: Emulated) -> None:
    for number in range(5):
        tenants.create(node, f"p{number}", "LS", annotations=dict.fromkeys(ALL, "x" * 4000), requests={"cpu": "1"})
    decisions = [d for tick in play(node, "observe", 3) for d in tick.decisions if d.subject.startswith("pod/")]
    assert decisions
    texts = [text for d in decisions for text in d.evidence.values() if isinstance(text, str)]
    assert max(map(len, texts)) <= 200


def test_a_long_annotation_is_not_read_not_kept_and_told(node: Emulated) -> None:
    notes = {keys.RESOURCE_STATUS: json.dumps({"cpuset": CPU_LIST}), "kubectl.kubernetes.io/last-applied": LONG}
    tenants.create(node, "long", "LSE", annotations=notes, requests={"cpu": "1"})
    tick = play(node, "observe", 1)[-1]
    (pod,) = (pod for pod in tick.snapshot.pods if pod.name == "long")
    assert max(map(len, pod.annotations.values())) <= pod_reader.LONGEST_ANNOTATION
    assert not pod.resource_status.cpuset
    (said,) = [problem for problem in tick.problems if problem.field == keys.RESOURCE_STATUS]
    assert "4096 are read at most" in said.why


def test_a_cpu_list_costs_no_more_than_the_cpus_there_are() -> None:
    assert CPUSet.parse("0-4096," * 1000 + "7", CPUSet.parse("0-7,4000")) == CPUSet.parse("0-7,4000")
    assert CPUSet.parse("5-3,100-200", CPUSet.parse("0-7")) == CPUSet()
    with pytest.raises(ValueError, match="neither a CPU id"):
        CPUSet.parse("0,x", CPUSet.parse("0-7"))


def test_a_promise_of_cpus_that_are_not_there_is_cut_to_the_machine(node: Emulated) -> None:
    notes = {keys.RESOURCE_STATUS: '{"cpuset":"30-4096"}'}
    tenants.create(node, "wide", "LSR", annotations=notes, requests={"cpu": "2"}, limits={"cpu": "2"})
    tick = play(node, "observe", 1)[-1]
    (pod,) = (pod for pod in tick.snapshot.pods if pod.name == "wide")
    assert str(pod.resource_status.cpuset) in ("30-31", "")


# ── what is published ──


def container(number: int, cpus: str) -> nrt.ContainerPlacement:
    name = f"p{number:04}"
    return nrt.ContainerPlacement(
        namespace="tenant",
        pod=name,
        uid=name,
        container="c" * 63,
        promised_cpus=CPUSet.parse(cpus),
        cpuset=CPUSet((1,)),
    )


def test_the_placement_is_smaller_than_the_api_server_takes_and_says_what_is_left_out() -> None:
    wide = ",".join(str(2 * cpu) for cpu in range(512))
    every = (*(container(n, wide) for n in range(200)), *(container(900 + n, "1") for n in range(20)))
    shown = nrt.fitting(every)
    text = nrt.encode(nrt.Placement(observed_at="", generation=1, containers=shown, more=len(every) - len(shown)))
    assert len(text) < 256 * 1024 / 2 + 1024
    assert {c.pod for c in shown} >= {f"p{900 + n:04}" for n in range(20)}
    assert json.loads(text)["more"] == len(every) - len(shown) > 0


def test_a_few_containers_are_published_as_they_are() -> None:
    few = tuple(container(n, "0-3") for n in range(50))
    assert nrt.fitting(few) == few
    assert "more" not in json.loads(nrt.encode(nrt.Placement(observed_at="", generation=1, containers=few)))


# ── log lines ──


def test_a_subject_fills_so_many_lines_and_the_rest_is_counted() -> None:
    now = [0.0]
    limit = decision_log.LineLimit(lambda: now[0])
    taken = [limit.take("pod/a") for _ in range(30)]
    assert taken == [0] * decision_log.MOST_LINES + [None] * (30 - decision_log.MOST_LINES)
    assert limit.take("pod/b") == 0
    now[0] = decision_log.WINDOW_SECONDS
    assert limit.take("pod/a") == 30 - decision_log.MOST_LINES
    assert limit.take("pod/a") == 0


def test_subjects_that_come_and_go_are_forgotten() -> None:
    limit: Any = decision_log.LineLimit(lambda: 0.0)
    for number in range(3 * decision_log.MOST_SUBJECTS):
        limit.take(f"pod/{number}")
    assert len(limit._windows) <= decision_log.MOST_SUBJECTS
