"""A descheduler that ends in the middle of a cycle: what it did is remembered by the one that comes after it."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from apiserver import ApiServer, Fault
from realnode.waiting import until

from descheduler.arguments.pacing import LOOPS
from descheduler.cycle import planner
from descheduler.history import configmap, past_evictions
from descheduler.history.past_evictions import CycleMemory, Intent
from descheduler.plan import Attempt, EvictionPlan
from descheduler.policy import reader
from koordlite.kube.client import access

POLICY = """
profiles:
- name: p
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
"""
SETUP = reader.setup(reader.parse(POLICY, "policy"))
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}


def node(name: str, taints: list[dict[str, str]]) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": taints},
        "status": status,
    }


def pod(name: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"rs-{name}", "uid": f"rs-{name}"}
    meta = {"name": name, "namespace": "default", "ownerReferences": [owner | {"controller": True}]}
    spec = {"nodeName": "a", "containers": [{"name": "main", "image": "x"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}


@pytest.fixture
def view(cluster: Any) -> Any:
    """Three pods that have to leave."""
    cluster.node("a")["spec"]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    cluster.node("b")
    for name in ("p", "q", "r"):
        cluster.pod(name, "a", owner=f"app-{name}")
    return cluster.view()


def test_a_killed_process_leaves_word_of_what_it_evicted(tmp_path: pathlib.Path) -> None:
    with ApiServer() as server:
        server.objects.load(NAMESPACE, node("a", [{"key": "broken", "effect": "NoSchedule"}]), node("b", []))
        server.objects.load(*(pod(f"p-{number}") for number in range(3)))
        (tmp_path / "kubeconfig").write_text(server.kubeconfig())
        (tmp_path / "policy.yaml").write_text(POLICY)
        options = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--policy", str(tmp_path / "policy.yaml")]
        command = [sys.executable, "-m", "descheduler", "run", *options, "--dry-run=false", "--no-events"]
        # The first eviction is carried out; the others were heard by nobody.
        server.faults.add(Fault(verb="create", resource="pods/eviction", skip=1, times=None, hang=True))
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            until(lambda: sum(asked.resource == "pods/eviction" for asked in server.requests) == 3)
            process.kill()
        gone = {f"default/p-{n}" for n in range(3)} - {f"default/{name}" for name in staying(server)}
        api = access.connect(str(tmp_path / "kubeconfig"), None, user_agent="test")
        assert len(configmap.ConfigMapStore(api, "kube-system").load().pending) == 3
        server.faults.clear()
        server.faults.add(Fault(verb="create", resource="pods/eviction", status=500, times=None))
        subprocess.run(command, stderr=subprocess.DEVNULL, timeout=60, check=True)
        kept = configmap.ConfigMapStore(api, "kube-system").load()
    assert len(gone) == 1
    assert {move.pod for past in kept.history.values() for move in past.moves} == gone
    assert kept.pending == ()


def staying(server: ApiServer) -> set[str]:
    pods = server.objects.all("Pod", api_version="v1")
    return {one["metadata"]["name"] for one in pods if not one["metadata"].get("deletionTimestamp")}


def test_of_intended_evictions_those_count_whose_pods_go(view: Any) -> None:
    made = planner.plan(view, SETUP)
    pending = past_evictions.intents({}, made)
    assert [one.move.pod for one in pending] == ["default/p", "default/q", "default/r"]
    uids = [one.uid for one in pending]
    assert past_evictions.resume({}, pending, view) == {}
    assert owners(past_evictions.resume({}, pending, without(view, uids[0]))) == {"app-p"}
    assert owners(past_evictions.resume({}, pending, with_pod(view, uids[1], deleting=True))) == {"app-q"}
    notes = {past_evictions.IN_PROGRESS: "true"}
    assert owners(past_evictions.resume({}, pending, with_pod(view, uids[2], annotations=notes))) == {"app-r"}
    assert owners(past_evictions.resume({}, pending, msgspec.structs.replace(view, moving={uids[0]: "a job"}))) == {
        "app-p"
    }


def owners(history: past_evictions.History) -> set[str]:
    return {owner.rpartition("/")[2] for owner in history}


def without(view: Any, uid: str) -> Any:
    return msgspec.structs.replace(view, by_uid={key: one for key, one in view.by_uid.items() if key != uid})


def with_pod(view: Any, uid: str, **parts: Any) -> Any:
    one = view.by_uid[uid]
    changed = msgspec.structs.replace(one, pod=msgspec.structs.replace(one.pod, **parts))
    return msgspec.structs.replace(view, by_uid={**view.by_uid, uid: changed})


def test_what_was_resumed_is_what_the_end_of_the_cycle_would_have_kept(view: Any) -> None:
    made = planner.plan(view, SETUP)
    empty = msgspec.structs.replace(view, by_uid={})
    assert past_evictions.resume({}, past_evictions.intents({}, made), empty) == past_evictions.after(
        {}, made, evicted(made), LOOPS
    )


def test_so_many_intents_are_kept_as_fit_beside_the_history(view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_evictions, "MOST_INTENTS", 2)
    assert len(past_evictions.intents({}, planner.plan(view, SETUP))) == 2


def evicted(plan: EvictionPlan) -> list[Attempt]:
    return [Attempt(o.pod.key, "Evicted", {}, uid=o.pod.uid) for o in plan.evict]


class StoredMemory:
    """A store that keeps every version."""

    def __init__(self) -> None:
        self.saved: list[past_evictions.StoredMemory] = []

    def load(self) -> past_evictions.StoredMemory:
        return self.saved[-1] if self.saved else past_evictions.StoredMemory()

    def save(self, kept: past_evictions.StoredMemory) -> None:
        self.saved.append(kept)


def test_a_cycle_that_evicts_is_written_twice_and_one_that_does_not_once(view: Any) -> None:
    store = StoredMemory()
    recall = CycleMemory(store)
    recall.begin(view, leads=True)
    made = planner.plan(view, SETUP)
    recall.intend(made, keep=True)
    recall.end(made, evicted(made), LOOPS, keep=True)
    assert [len(kept.pending) for kept in store.saved] == [3, 0]
    idle = msgspec.structs.replace(made, evict=())
    recall.intend(idle, keep=True)
    recall.end(idle, [], LOOPS, keep=True)
    assert len(store.saved) == 3
    recall.intend(made, keep=False)
    assert len(store.saved) == 3, "a dry run intends nothing"


def test_intents_are_written_and_read_again_however_long_the_history_is(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Intent("u", "ReplicaSet/default/app", past_evictions.Move(1.0, "default/p", "a"), {"P": 1})
    past = {f"ReplicaSet/ns/{n}": past_evictions.Past(float(n)) for n in range(100)}
    kept = past_evictions.StoredMemory(past, {}, (one,))
    assert configmap.decode(configmap.encode(kept), "x") == kept
    monkeypatch.setattr(configmap, "MOST_BYTES", len(configmap.encode(kept)) // 2)
    assert configmap.decode(configmap.encode(kept), "x").pending == (one,)


@pytest.mark.parametrize("kept", [True, False], ids=["with a store", "without"])
def test_a_cycle_that_breaks_in_a_process_that_goes_on_is_remembered_too(view: Any, kept: bool) -> None:
    recall = CycleMemory(StoredMemory() if kept else None)
    recall.begin(view, leads=True)
    made = planner.plan(view, SETUP)
    recall.intend(made, keep=True)
    recall.begin(without(view, made.evict[0].pod.uid), leads=True)
    assert owners(recall.history) == {"app-p"}
