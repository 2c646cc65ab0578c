"""Walks: how many files of the product a value passes, and how often a call leads back into a file left before.

`PYTHONPATH=tests/support:tests/perf/agent python tests/perf/walks.py` takes a tick of an agent on an emulated node and
follows the use of best effort, read from its cgroup, to the quota written there. On the walk are the calls under way
whenever one of its points is reached: the counter is read, the sample made, the formula asked, the step ordered, the
quota written. A call that returns leads back nowhere: whoever reads has not closed the caller's file.
"""

from __future__ import annotations

import contextlib
import pathlib
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Iterator

import nodes
from emulated import Emulated

import koordlite
from koordlite.agent import Agent

ROOT = pathlib.Path(koordlite.__file__).resolve().parents[1]
Mark = Callable[[types.FrameType], bool]
"""Tells whether a frame that begins is a step of the walk."""


class Walk:
    """Calls that lead to the frames for which `is_point` holds, in their order."""

    def __init__(self, is_point: Mark) -> None:
        self._is_point = is_point
        self._walked: set[types.FrameType] = set()
        self.steps: list[tuple[str, str]] = []
        """File and function of each call."""
        self.returns: list[tuple[str, str]] = []
        """Those from one file into another that was entered before, each function once."""

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the calls of this thread while the block runs."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    @property
    def files(self) -> list[str]:
        """Files in the order in which they are first entered."""
        return list(dict.fromkeys(file for file, _ in self.steps))

    def _profile(self, frame: types.FrameType, event: str, _value: object) -> None:
        if event != "call" or _file(frame) is None or not self._is_point(frame):
            return
        before: str | None = None
        for each in reversed([walked for walked, _ in traceback.walk_stack(frame)]):
            file = _file(each)
            if file is None:
                continue
            if each not in self._walked:
                step = file, each.f_code.co_qualname
                if file != before and file in self.files and step not in self.steps:
                    self.returns.append(step)
                self.steps.append(step)
                self._walked.add(each)
            before = file


def _file(frame: types.FrameType) -> str | None:
    """Path below the root of the product; None for a file of another program."""
    path = pathlib.Path(frame.f_code.co_filename)
    below = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return str(below) if below.parts[0] in ("koordlite", "descheduler") else None


def usage_to_quota() -> Walk:
    """From the CPU time of best effort in its cgroup to the quota of its cgroup."""
    with nodes.emulated(20, front="30", policy="cfsQuota") as (agent, _, step):
        group = agent.tick().snapshot.layout.besteffort
        step()

        def is_point(frame: types.FrameType) -> bool:
            name, values, caller = frame.f_code.co_qualname, frame.f_locals, frame.f_back
            if name == "Cgroups.cpu_usage_ns" or (name == "Cgroups.write" and values["field"] == "cpu.quota"):
                return bool(values["group"] == group)
            if name == "usage" and caller:
                return caller.f_code.co_name == "sample"
            return name in ("be_cpu_budget", "quota_target") or (name, _file(frame)) == ("order", "koordlite/plan.py")

        walk = Walk(is_point)
        with walk.followed():
            agent.tick()
    return walk


def setting_to_strategy() -> Walk:
    """From an edit of the ConfigMap's threshold to the strategy that asks its formula with it."""
    setting, percent = "cpuSuppressThresholdPercent", 55

    def is_point(frame: types.FrameType) -> bool:
        name, values = frame.f_code.co_qualname, frame.f_locals
        if name == "JSONDocument.decode":
            return f'"{setting}": {percent}' in values["text"]
        if name == "_Reader._leaf":
            return bool(values["path"].endswith(setting) and values["value"] == percent)
        if (name, _file(frame)) == ("build", "koordlite/model/reading/declared.py"):
            return values["values"].get((setting,)) == percent
        return name == "be_cpu_budget" and bool(values["threshold_percent"] == percent)

    walk = Walk(is_point)
    with tempfile.TemporaryDirectory() as folder:
        node = Emulated("intel-2s-ht", pathlib.Path(folder))
        node.slo(policy="cfsQuota")
        node.pod("batch", "BE", "1")
        agent = Agent(node.host(), node.cluster, node.settings("observe"))
        agent.tick()
        node.slo(policy="cfsQuota", percent=percent)
        node.sandbox.advance(1.0)
        with walk.followed():
            agent.tick()
    return walk


WALKS = {"usage to BE quota": usage_to_quota, "setting to strategy": setting_to_strategy}


def main() -> None:
    """Print each walk with its files in their order."""
    for title, follow in WALKS.items():
        walk = follow()
        print(f"{title}: {len(walk.files)} files, {len(walk.returns)} returns")
        for file in walk.files:
            print(f"  {file}: {', '.join(dict.fromkeys(name for at, name in walk.steps if at == file))}")
        for file, name in walk.returns:
            print(f"  back into {file} by {name}")


if __name__ == "__main__":
    main()
