"""Swap by class end to end: an emulated node with swap, a service, a batch pod, and an agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from emulated import Emulated

from koordlite.lab.machine import shapes
from koordlite.model.settings import Mode
from koordlite.record.reader import Record
from koordlite.record.segment import Head
from koordlite.record.store import Recorder
from koordlite.replay import text, verify
from koordlite.report.sentence import sentence

FILE = "memory.swap.max"
GIB = 2**30


def emulated(folder: Path, *, shape: str = "arm", swap: int | None = 8 * GIB) -> Emulated:
    node = Emulated(msgspec.structs.replace(shapes.machine(shape), swap=swap), folder)
    ask(node, ls=0, be=25)
    node.pod("web", "LS", "500m", memory="1Gi")
    node.pod("batch", "BE", "500m", memory="2Gi", limited=True)
    return node


def ask(node: Emulated, **percents: int) -> None:
    classes = {
        f"{name}Class": {"memoryQOS": {"enable": True, "swapMaxPercent": value}} for name, value in percents.items()
    }
    node.raw_slo({"resource-qos-config": {"clusterStrategy": classes}})


def swap_files(node: Emulated) -> Mapping[str, str]:
    """By group below kubepods."""
    paths = [path for path in node.sandbox.files.paths("/sys/fs/cgroup") if path.endswith(f"/{FILE}")]
    return {path.removesuffix(f"/{FILE}"): node.sandbox.files.read(path).decode().strip() for path in paths}


def containers(files: Mapping[str, str]) -> dict[str, str]:
    """Limits that are not the kernel's first value, by pod."""
    return {("web" if "web" in group else "batch"): value for group, value in files.items() if value != "max"}


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_classes_share_swap_and_a_stop_gives_it_back(tmp_path: Path, mode: Mode) -> None:
    node = emulated(tmp_path)
    node.host()
    found = swap_files(node)
    assert len(found) > 4
    with node.journal() as journal:
        agent = node.agent(journal if mode == "enforce" else None, mode)
        (tick, *_) = node.ticks(agent, 2)
        sentences = {d.subject: sentence(d) for d in tick.decisions if d.reason == "SwapLimit"}
        assert sentences == {
            "pod/ns/web": "its containers may have 0 B of swap together: 0 % of their memory limits",
            "pod/ns/batch": "its containers may have 512.0 MiB of swap together: 25 % of their memory limits",
        }
        wanted = {"web": "0", "batch": str(GIB // 2)} if mode == "enforce" else {}
        assert containers(swap_files(node)) == wanted
        if mode == "enforce":
            assert all(step.ok for step in agent.put_back())
            assert not journal.entries
    assert swap_files(node) == found


def test_without_the_key_what_was_found_comes_back(tmp_path: Path) -> None:
    node = emulated(tmp_path)
    with node.at_work() as agent:
        node.ticks(agent, 2)
        ask(node, be=25)
        node.ticks(agent, 2)
        assert containers(swap_files(node)) == {"batch": str(GIB // 2)}


@pytest.mark.parametrize(
    ("shape", "swap", "reason"),
    [
        pytest.param("arm", 0, "NoSwap", id="/proc/swaps is empty"),
        pytest.param("arm", None, "SwapUnsupported", id="a kernel without swap"),
        pytest.param("small", 8 * GIB, "SwapUnsupported", id="cgroup v1"),
    ],
)
def test_nothing_is_written_where_there_is_nothing_to_share(
    tmp_path: Path, shape: str, swap: int | None, reason: str
) -> None:
    node = emulated(tmp_path, shape=shape, swap=swap)
    with node.journal() as journal:
        tick = node.ticks(node.agent(journal), 1)[0]
        assert [d.subject for d in tick.decisions if "Swap" in d.reason] == ["node"]
        assert reason in {d.reason for d in tick.decisions}
        assert not [place for place in journal.places if FILE in str(place)]
    assert set(swap_files(node).values()) <= {"max"}


def test_who_sets_it_back_again_and_again_is_left_alone_for_longer_and_longer(tmp_path: Path) -> None:
    node = emulated(tmp_path)
    with node.at_work() as agent:
        node.ticks(agent, 2)
        (group,) = (group for group, value in swap_files(node).items() if value == str(GIB // 2))
        corrected = 0
        for _ in range(40):
            corrected += swap_files(node)[group] != "max"
            node.host().files.write(f"{group}/{FILE}", b"max")
            node.ticks(agent, 1)
        (trouble,) = (each for each in agent.tick().troubles if FILE in str(each.place))
        assert 3 <= corrected <= 7
        assert trouble.kept_off_seconds > 0
        assert trouble.foreign >= corrected - 1


def test_a_recorded_round_comes_out_the_same(tmp_path: Path) -> None:
    node = emulated(tmp_path)
    recorder = Recorder(tmp_path / "record", Head(koordlite="test", node="node-a"), max_bytes=8 << 20)
    with node.at_work() as agent:
        for percent in (25, 25, 50, 0):
            ask(node, be=percent)
            node.ticks(agent, 1)
            assert agent.last_round
            recorder.add(agent.last_round)
    recorder.close()
    moments = list(Record(tmp_path / "record").rounds())
    assert [moment.snapshot.swap_bytes for moment in moments] == [8 * GIB] * 4
    decisions = [d for moment in moments for d in moment.decisions if d.subject == "pod/ns/batch"]
    limits = [d.evidence["swap_bytes"] for d in decisions if d.reason == "SwapLimit"]
    assert limits == [GIB // 2, GIB // 2, GIB, 0]
    checked = verify.check(moments)
    assert (checked.wrong, checked.rounds) == (0, 4), text.text(checked)
