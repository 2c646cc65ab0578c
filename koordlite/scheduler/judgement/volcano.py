"""Volcano's annotation: a pod that names a topology policy goes only where kubelet runs that policy. Kubelet decides
the rest."""

from __future__ import annotations

from koordlite.model import keys
from koordlite.numa import volcano
from koordlite.reservation.pods import PodShape
from koordlite.scheduler.judgement import kubelet
from koordlite.scheduler.judgement.nodes import JudgeSettings, Promise, Row, Score, Verdict

NAME = "volcano"


def concerns(shape: PodShape, row: Row, settings: JudgeSettings) -> bool:
    """Tell whether a Guaranteed pod names a policy."""
    del row
    return settings.check_volcano and shape.guaranteed and shape.note(keys.VOLCANO_NUMA_POLICY) not in ("", "none")


def verdict(shape: PodShape, row: Row, settings: JudgeSettings) -> Verdict:
    """Volcano's text when kubelet's policy is another one."""
    del settings
    policy, report = shape.note(keys.VOLCANO_NUMA_POLICY), row.report
    if report is None:
        return Verdict(NAME, volcano.policy_mismatch(policy, None, ""))
    cpu_policy: str = row.once(NAME, lambda: report.reader([]).cpu_manager.policy)
    # A report without the CPU manager's policy comes from nodes that align, which kubelet does with static only.
    return Verdict(NAME, volcano.policy_mismatch(policy, cpu_policy or "static", report.policy))


def score(shape: PodShape, row: Row, settings: JudgeSettings) -> Score:
    """Kubelet's, since kubelet decides."""
    return kubelet.score(shape, row, settings)


def promise(shape: PodShape, row: Row, settings: JudgeSettings, uid: str) -> Promise:
    """Nothing is written."""
    del shape, row, settings, uid
    return Promise()
