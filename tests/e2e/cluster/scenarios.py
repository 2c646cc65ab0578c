"""What happens to a cluster while pods come: processes die, hang and slow down. Each returns numbers."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from koordlite.model import keys
from tests.e2e.cluster.bench import Bench
from tests.e2e.cluster.processes import Command
from tests.e2e.cluster.workload import NAMESPACE, Replicas, priority_class

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


def migrated(bench: Bench, replicas: Replicas, mortals: list[Command], deaths: int) -> dict[str, object]:
    """The pods of `replicas` have to leave their node; these processes die in turn, each without a word, while jobs are
    under way, and are started again. How many pods have moved a minute after the last death, and what became of the
    jobs in the end."""
    source = bench.taint(replicas)
    bench.until(bench.jobs, 60.0, what="there are jobs")
    under_way = 0
    for number in range(deaths):
        time.sleep(4.0)
        under_way += bool([job for job in bench.jobs() if phase(job) not in ENDED])
        mortals[number % len(mortals)].kill()
        mortals[number % len(mortals)].start(wait=False)
    with contextlib.suppress(AssertionError):
        bench.until(lambda: moved(bench, replicas, source) >= replicas.count, 60.0)
    elsewhere = moved(bench, replicas, source)
    with contextlib.suppress(AssertionError):
        bench.until(lambda: settled(bench), 90.0)
    return {
        "jobs": dict(collections.Counter(phase(job) for job in bench.jobs())),
        "deaths while jobs were under way": under_way,
        "pods elsewhere": elsewhere,
        "settled": settled(bench),
        "refused": dict(bench.accounting.refused),
    }


def blocked_and_lost(bench: Bench, replicas: Replicas) -> dict[str, object]:
    """A budget lets no pod of `replicas` leave its node; then a node goes on which a place is held; then the budget
    goes. What was evicted under the budget, and where the pods are in the end."""
    source = bench.taint(replicas)
    spec = {"minAvailable": replicas.count, "selector": {"matchLabels": {"app": replicas.name}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"}, "spec": spec}
    budgets = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
    # The plan leaves alone what a budget protects; this one comes between the plan and the first eviction.
    bench.until(bench.jobs, 60.0, what="there are jobs")
    bench.api.request("POST", budgets, body=budget)

    def held() -> list[str]:
        """Nodes with places that are held for jobs that may not evict."""
        waiting = [job for job in bench.jobs() if reason(job) in ("FailedEvict", "Evicting")]
        return [job["status"]["nodeName"] for job in waiting if job["status"].get("nodeName")]

    bench.until(held, 60.0, what="a place is held, and the budget refuses")
    lost = held()[0]
    bench.nodes.lose(lost)
    bench.until(
        lambda: any(reason(job) in ("ReservationExpired", "MissingReservation") for job in bench.jobs()),
        60.0,
        what=f"a job fails by the loss of {lost}",
    )
    evicted = [key for key in bench.accounting.deleted if key.startswith(f"{NAMESPACE}/{replicas.name}-")]
    bench.api.request("DELETE", f"{budgets}/all")
    with contextlib.suppress(AssertionError):
        bench.until(lambda: moved(bench, replicas, source) >= replicas.count and settled(bench), 120.0)
    on_lost = [pod for pod in bench.accounting.pods.values() if replicas.owns(pod) and pod.spec.node_name == lost]
    return {
        "evicted under the budget": evicted,
        "pods elsewhere": moved(bench, replicas, source),
        "on the lost node": len(on_lost),
        "settled": settled(bench),
    }


def room_made(bench: Bench, movable: Sequence[Replicas], rivals: int) -> dict[str, object]:
    """Pods of `movable` leave their node so that a large pod fits there, while others as large come one a second. Where
    the large pod is in the end, how many of the others run, and how many pods were evicted."""
    names = tuple(f"{NAMESPACE}/{replicas.name}-" for replicas in movable)
    (source,) = {pod.spec.node_name for key, pod in bench.accounting.pods.items() if key.startswith(names)}
    large = [("7", "1Gi")] * 2
    bench.pods.create(*large, name="big", labels={"app": "big"})
    came: list[str] = []

    def elsewhere() -> int:
        return sum(moved(bench, replicas, source) for replicas in movable)

    def placed() -> bool:
        if bench.jobs() and len(came) < rivals:
            came.append(bench.pods.create(*large, name=f"rival-{len(came)}"))
            time.sleep(1.0)
        return len(came) == rivals and running(bench, f"{NAMESPACE}/big")

    with contextlib.suppress(AssertionError):
        bench.until(placed, 60.0)
    with contextlib.suppress(AssertionError):
        bench.until(lambda: settled(bench) and elsewhere() >= 2, 30.0)
    big = bench.accounting.pods[f"{NAMESPACE}/big"]
    return {
        "the pod is where room was made": big.spec.node_name == source and running(bench, f"{NAMESPACE}/big"),
        "rivals": len(came),
        "rivals that run": sum(running(bench, f"{NAMESPACE}/{name}") for name in came),
        "evicted": sum(key.startswith(names) for key in bench.accounting.deleted),
        "elsewhere": elsewhere(),
        "jobs": dict(collections.Counter(phase(job) for job in bench.jobs())),
        "refused": dict(bench.accounting.refused),
    }


ENDED = ("Succeeded", "Failed")


def phase(job: Any) -> str:
    """How far a PodMigrationJob is."""
    return str(job.get("status", {}).get("phase", ""))


def reason(job: Any) -> str:
    """Why it is no further."""
    return str(job.get("status", {}).get("reason", ""))


def moved(bench: Bench, replicas: Replicas, source: str) -> int:
    """Pods of the workload that run, and not on that node."""
    pods = list(bench.accounting.pods.values())
    return sum(replicas.owns(pod) and pod.status.phase == "Running" and pod.spec.node_name != source for pod in pods)


def settled(bench: Bench) -> bool:
    """Every job has ended, and no placeholder is left where a kubelet could end it."""
    placeholders = [
        pod
        for pod in list(bench.accounting.pods.values())
        if keys.RESERVATION_UID in (pod.metadata.labels or {}) and pod.spec.node_name not in bench.nodes.lost
    ]
    return not placeholders and all(phase(job) in ENDED for job in bench.jobs())


def preempted(bench: Bench, count: int) -> dict[str, object]:
    """The cluster is full of unimportant pods of two CPUs; `count` important ones of four come one after the other. How
    many unimportant ones had to go, of the least that is possible: two each."""
    for name, value in (("low", 1), ("high", 1000)):
        priority_class(bench.api, name, value)
    bench.pods.replaces = False
    # A NUMA node has 15 CPUs for pods: seven of two each.
    whole = len(bench.nodes.kubelets) * 14
    for _ in range(whole):
        bench.pods.create(("2", "1Gi"), priority="low")
    bench.until(lambda: bench.accounting.running >= whole, 120.0, what=f"{whole} pods run")
    for number in range(count):
        bench.pods.create(("4", "1Gi"), name=f"important-{number}", priority="high")
        bench.until(
            lambda: running(bench, f"{NAMESPACE}/important-{number}"),  # noqa: B023
            60.0,
            what=f"important-{number} runs",
        )
    return {"victims": whole - len(live(bench, "pod-")), "least": 2 * count}


def running(bench: Bench, key: str) -> bool:
    """Tell whether the pod runs."""
    pod = bench.accounting.pods.get(key)
    return pod is not None and pod.status.phase == "Running"


def live(bench: Bench, prefix: str) -> list[str]:
    """Pods of the namespace whose names begin so, and which are not about to go."""
    return [
        key
        for key, pod in list(bench.accounting.pods.items())
        if key.startswith(f"{NAMESPACE}/{prefix}") and not pod.metadata.deletion_timestamp
    ]


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
