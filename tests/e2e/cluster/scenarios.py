"""What happens to a cluster while pods come: processes die, hang and slow down. Each returns numbers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Literal

from koordlite.model import keys
from tests.e2e.cluster.bench import Bench
from tests.e2e.cluster.processes import Command
from tests.e2e.cluster.workload import NAMESPACE

Trouble = Literal["none", "killed", "hung", "slow"]
LSR = {keys.QOS_CLASS: "LSR", keys.PRIORITY_CLASS: "koord-prod"}


def burst(bench: Bench, count: int, seconds: float) -> dict[str, object]:
    """That many mixed pods at once; how long until all of them run, and how many were refused on the way."""
    bench.pods.burst(count)
    took = bench.until(lambda: bench.accounting.running >= count, seconds, what=f"{count} pods run")
    return {"seconds": round(took, 1), "refused": dict(bench.accounting.refused)}


def promised(bench: Bench, count: int, extender: Command, trouble: Trouble, *, replica: bool) -> dict[str, object]:
    """Pods that need a promise come, twenty a second, while something happens to the extender, or only to that replica
    behind its front which answers. What was bound without its promise, then and in the end."""
    start = time.monotonic()
    with happening(extender, trouble, replica=replica):
        for _ in range(count):
            bench.pods.create(("2", "1Gi"), labels=LSR)
            time.sleep(0.05)
        came = time.monotonic() - start
        placed = bench.accounting.placed
    took = bench.until(lambda: bench.accounting.running >= count, 120.0, what=f"{count} pods run")
    accounts = bench.accounting
    with contextlib.suppress(AssertionError):
        bench.until(lambda: len(accounts.promised_late) >= len(accounts.without_promise), 20.0)
    return {
        "bound without a promise": len(accounts.without_promise),
        "of these promised later": len(accounts.promised_late),
        "latest promise": round(max(accounts.promised_late.values(), default=0.0), 1),
        "CPUs promised twice": len(accounts.twice),
        "placed while they came": f"{placed} of {count} in {came:.1f} s",
        "seconds until all ran": round(came + took, 1),
    }


def taken_over(bench: Bench, controllers: list[Command], rounds: int) -> dict[str, object]:
    """One Reservation controller after the other is killed, at the moment when somebody reserves; how long until what
    was reserved is available, at most."""
    took = []
    for number in range(rounds):
        controller = controllers[number % len(controllers)]
        controller.kill()
        bench.pods.reserve(f"r{number}", "2")
        took.append(bench.until(lambda: bench.pods.phase(f"r{number}") == "Available", 30.0, what="available"))  # noqa: B023
        controller.start(wait=False)
        time.sleep(2.0)
    return {"seconds": [round(each, 1) for each in took]}


def owned(bench: Bench, count: int) -> dict[str, object]:
    """That many Reservations of two sizes, the large ones first so that they fit, and then the owner of each, all at
    once. How many owners run in the room that was reserved for them, and how long it took."""
    names = [f"r{number}" for number in range(count)]
    sizes = {name: "42"[number >= count // 2] for number, name in enumerate(names)}
    for name, cpu in sizes.items():
        bench.pods.reserve(name, cpu)
    reserved = bench.until(
        lambda: bench.pods.phases().count("Available") >= count, 120.0, what=f"{count} Reservations are available"
    )
    for name, cpu in sizes.items():
        bench.pods.create((cpu, "1Gi"), name=f"owner-{name}", labels={"app": name})
    owners = {f"{NAMESPACE}/owner-{name}" for name in names}

    def at_home() -> int:
        pods = bench.accounting.pods.copy()
        return sum(
            1
            for key in owners & pods.keys()
            if pods[key].status.phase == "Running"
            and keys.RESERVATION_ALLOCATED in (pods[key].metadata.annotations or {})
        )

    start = time.monotonic()
    with contextlib.suppress(AssertionError):
        bench.until(lambda: at_home() >= count, 120.0)
    return {
        "owners in their room": at_home(),
        "seconds until they ran": round(time.monotonic() - start, 1),
        "seconds until all was reserved": round(reserved, 1),
        "refused": dict(bench.accounting.refused),
    }


@contextlib.contextmanager
def happening(extender: Command, trouble: Trouble, *, replica: bool) -> Iterator[None]:
    """`trouble` from half a second on; whoever is killed is started again after three seconds, as kubelet does."""
    over = threading.Event()

    def trouble_it() -> None:
        if over.wait(0.5):
            return
        target = replicas(extender)[0] if replica else extender.pid
        if trouble == "killed" and replica:
            os.kill(target, signal.SIGKILL)
        elif trouble == "killed":
            extender.kill()
            over.wait(3.0)
            extender.start(wait=False)
        elif trouble == "hung":
            os.kill(target, signal.SIGSTOP)
            over.wait(6.0)
            with contextlib.suppress(ProcessLookupError):  # Its front has killed it.
                os.kill(target, signal.SIGCONT)
        elif trouble == "slow":
            while not over.is_set():
                os.kill(target, signal.SIGSTOP)
                over.wait(0.3)
                os.kill(target, signal.SIGCONT)
                over.wait(0.02)

    thread = threading.Thread(target=trouble_it, name="trouble")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def replicas(extender: Command) -> list[int]:
    """Process ids of the extenders behind a front, in their order."""
    found = subprocess.run(["pgrep", "-P", str(extender.pid)], capture_output=True, text=True, check=False)
    return sorted(int(pid) for pid in found.stdout.split())
