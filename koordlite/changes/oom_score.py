"""The oom_score_adj of a process."""

from __future__ import annotations

import dataclasses

from koordlite.model.change import KernelChange


@dataclasses.dataclass(frozen=True, slots=True)
class OOMScoreChange(KernelChange):
    """Give the process `pid`, started at `start_time` (clock ticks since boot), this `oom_score_adj`."""

    pid: int
    start_time: int
    value: int
    gives_back: bool = False
    """As in `CgroupChange`."""

    @property
    def place(self) -> str:
        """What is changed; the start tells a process from a later one with the same number."""
        return f"oom_score_adj/{self.pid}/{self.start_time}"
