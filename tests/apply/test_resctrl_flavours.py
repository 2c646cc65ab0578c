"""The class BE, 30 % of the cache and half of the bandwidth, on every kind of hardware the sandbox has."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import BOOT
from resctrlnode import Node

from koordlite.host.journal.journal import Journal
from koordlite.report.sentence import sentence

TWO, CCDS, GAPS = (0, 1), (0, 1, 4, 5), (0, 1, 8, 9)


def each(caches: tuple[int, ...], value: int) -> dict[int, int]:
    return dict.fromkeys(caches, value)


FLAVOURS = [
    pytest.param("intel-2s-ht", {"L3": each(TWO, 0xF), "MB": each(TWO, 50)}, "30 % of 12 ways is 4 ways", id="Intel"),
    pytest.param(
        "intel-cdp",
        {"L3CODE": each(TWO, 0xF), "L3DATA": each(TWO, 0xF), "MB": each(TWO, 50)},
        "30 % of 12 ways is 4 ways",
        id="code and data apart",
    ),
    pytest.param("intel-mbps", {"L3": each(TWO, 0xF)}, "bandwidth counts in MB/s here", id="bandwidth in MB/s"),
    pytest.param("intel-unmounted", {"L3": each(TWO, 0xF), "MB": each(TWO, 50)}, "mask f", id="mounted by us"),
    pytest.param(
        "intel-1s", {"L3": {0: 0xF}, "MB": {0: 50}}, "30 % of 11 ways is 4 ways: mask f", id="one socket, 5.15"
    ),
    pytest.param("intel-nomba", {"L3": each(TWO, 0x3F)}, "30 % of 20 ways is 6 ways", id="no bandwidth"),
    pytest.param("intel-l2", None, "this machine divides only L2", id="L2 only"),
    pytest.param("intel-snc", {"L3": each(TWO, 0x1F), "MB": each(TWO, 50)}, "30 % of 15 ways is 5 ways", id="SNC"),
    pytest.param("amd-ccd", {"L3": each(CCDS, 0x1F), "MB": each(CCDS, 80)}, "80 eighths of a GB/s", id="AMD"),
    pytest.param("amd-milan", {"L3": each(GAPS, 0x1F), "MB": each(GAPS, 80)}, "80 eighths", id="Milan, gaps, 5.15"),
    pytest.param("amd-genoa", {"L3": each(GAPS, 0x1F), "MB": each(GAPS, 160)}, "160 eighths", id="Genoa, SMBA"),
    pytest.param("arm-mpam", {"L3": {1: 0x1F, 2: 0x1F}, "MB": {1: 50, 2: 50}}, "mask 1f", id="ARM MPAM"),
    pytest.param("small", None, "has no resctrl", id="nothing at all"),
]


def contents(node: Node) -> dict[str, bytes]:
    """Every file of resctrl; none where it is not mounted, or not there at all."""
    paths = node.files.paths("/sys/fs")
    return {path: node.files.read(path) for path in paths if path.startswith("/sys/fs/resctrl/")}


@pytest.mark.parametrize(("shape", "values", "rule"), FLAVOURS)
def test_a_class_is_programmed_explained_quiet_and_given_back(
    tmp_path: Path, shape: str, values: dict[str, dict[int, int]] | None, rule: str
) -> None:
    node = Node(tmp_path, shape)
    before = contents(node)
    node.classes("beClass")
    with Journal.open(tmp_path / "state", boot_id=BOOT) as journal:
        agent = node.run(3, journal)
        tick = agent.tick()
        (told,) = [sentence(decision) for decision in tick.decisions if decision.subject == "resctrl/BE"]
        assert rule in told
        assert [step for step in tick.applied if "resctrl" in str(step.place)] == [], "what holds is not written again"
        if values is not None:
            assert node.tasks("BE") == set(node.tids)
            assert values.items() <= node.schemata("BE").items()
        agent.put_back()
        assert journal.entries == ()
    assert contents(node) == before
