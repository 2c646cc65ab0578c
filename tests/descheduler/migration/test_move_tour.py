"""The last act of the tour: the pod on reserved CPUs moves by reservation, and gets the CPUs that were held for it."""

from __future__ import annotations

from movetour import APP, NODE, OTHER, ROOT, play

CPUS = "with CPUs 0-1,16-17"


def test_the_pod_on_reserved_cpus_moves_to_cpus_that_were_held_for_it() -> None:
    said: list[str] = []
    job = play(ROOT / "configs/tour", said.append)
    told = [line.split(None, 3)[2:] for line in said]
    steps = [f"{who} {what}" for who, what in told]
    wanted = [
        f"descheduler job for {APP}-7d4f: made",
        "controller placeholder: waits",
        f"scheduler placeholder: bound on {OTHER} {CPUS}",
        f"controller reservation: Available on {OTHER} {CPUS}",
        f"descheduler pod {APP}-7d4f: gone",
        f"controller pod {APP}-new-1: waits, room is kept for it on {OTHER}",
        "controller placeholder: gone",
        f"scheduler pod {APP}-new-1: bound on {OTHER} {CPUS}",
        f"controller reservation: Succeeded on {OTHER} {CPUS}, taken by {APP}-new-1",
        f"descheduler job for {APP}-7d4f: Succeeded Complete",
    ]
    assert [step for step in steps if step in wanted] == wanted
    assert (job["status"]["nodeName"], job["status"]["podRef"]["name"]) == (OTHER, f"{APP}-new-1")
    assert NODE not in {line.split(" on ")[-1].split()[0] for line in said[2:] if " on " in line}
    assert "tests/support/movetour.py configs/tour" in (ROOT / "scripts/tour").read_text(encoding="utf-8")
