"""The measured load of all nodes, kept up to date by events: NodeMetrics, Nodes, and the pods bound to them."""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from koordlite.fault_guard import SubjectFaults
from koordlite.model import times
from koordlite.model.errors import Problem
from koordlite.model.wire import metrics, objects
from koordlite.scheduler.judgement import load
from koordlite.scheduler.judgement.load import LoadAwareSchedulingArgs, Measurement, NodeLoad, NodeOwn, PodLoad

LOG = logging.getLogger(__name__)
MOST_QUESTIONS = 1000
"""Pods whose question is remembered until they are bound."""


class LoadJudgement:
    """One pod beside the nodes as they were when it was judged, for its answer and for `explain`."""

    def __init__(
        self,
        pod: PodLoad,
        nodes: Mapping[str, NodeLoad],
        args: LoadAwareSchedulingArgs,
        now: float,
        faults: SubjectFaults,
        *,
        version: int = 0,
    ) -> None:
        """`version`: the latest change of any load that it knows of."""
        self.pod, self._nodes, self._args, self._now, self._faults = pod, nodes, args, now, faults
        self.version = version

    def refusals(self, names: Sequence[str]) -> dict[str, str]:
        """Nodes of `names` that are too busy, with the reasons."""
        return {name: why for name in names if (why := self.refusal(name))}

    def refusal(self, name: str) -> str:
        """Reason why the node is too busy; empty for one that is not, or of which nothing is known."""
        node = self._nodes.get(name)
        try:
            return load.refusal(self.pod, node, self._args, self._now) if node is not None else ""
        except Exception as error:  # noqa: BLE001 - one node's fault costs that node
            return self._faults.note(name, error)

    def scored(self, name: str, score: int) -> int:
        """The score with what is left of the node. What is above all others stays there."""
        node = self._nodes.get(name)
        if score > load.MOST:
            return score + load.MOST
        try:
            return score + (load.points(self.pod, node, self._args, self._now) if node is not None else 0)
        except Exception as error:  # noqa: BLE001 - one node's fault costs that node
            self._faults.note(name, error)
            return 0

    def terms(self, name: str) -> dict[str, int | str]:
        """The numbers, for people."""
        node = self._nodes.get(name)
        if node is None:
            return {"LoadAware": 0, "measured": "never"}
        try:
            return load.terms(self.pod, node, self._args, self._now)
        except Exception as error:  # noqa: BLE001 - one node's fault costs that node
            return {"LoadAware": 0, "measured": self._faults.note(name, error)}

    def keep(self, names: set[str]) -> None:
        """Let go of all other nodes."""
        self._nodes = {name: node for name, node in self._nodes.items() if name in names}


class Loads:
    """Safe to use from several threads."""

    def __init__(self, args: LoadAwareSchedulingArgs, *, wall: Callable[[], float], faults: SubjectFaults) -> None:
        """`wall` is compared with what measurements say of their time; `faults` counts nodes that cannot be judged."""
        self.args, self._wall, self._faults = args, wall, faults
        self._lock = threading.Lock()
        self._own: dict[str, NodeOwn] = {}
        self._metrics: dict[str, Measurement] = {}
        self._pods: dict[str, tuple[str, PodLoad]] = {}
        """Node and load of every bound pod, by `namespace/name`."""
        self._of_node: collections.defaultdict[str, dict[str, PodLoad]] = collections.defaultdict(dict)
        self._loads: dict[str, NodeLoad] = {}
        self._questions: collections.OrderedDict[str, PodLoad] = collections.OrderedDict()
        self._version = 0
        self._versions: dict[str, int] = {}
        """The latest change of what a node's load follows from, by name of the node."""
        self._problems: dict[str, list[Problem]] = {}
        """Problems by object: a mistake is logged once."""

    def put_node(self, obj: objects.NodeObject) -> None:
        """A Node came or changed."""
        problems: list[Problem] = []
        own, name = load.node_own(obj, self.args, problems), obj.metadata.name
        self._report(f"node/{name}", problems)
        with self._lock:
            if self._own.get(name) != own:
                self._own[name] = own
                self._count(name)

    def remove_node(self, name: str) -> None:
        """A Node is gone."""
        with self._lock:
            self._own.pop(name, None)
            self._loads.pop(name, None)
            self._versions.pop(name, None)
            self._problems.pop(f"node/{name}", None)

    def put_metric(self, obj: metrics.NodeMetricObject) -> None:
        """A NodeMetric came or changed."""
        problems: list[Problem] = []
        measurement, name = load.Measurement(obj, self.args, problems), obj.metadata.name
        self._report(f"nodemetric/{name}", problems)
        with self._lock:
            self._metrics[name] = measurement
            self._count(name)

    def remove_metric(self, name: str) -> None:
        """A NodeMetric is gone: its node is not measured any more."""
        with self._lock:
            self._metrics.pop(name, None)
            self._loads.pop(name, None)
            self._note(name)
            self._problems.pop(f"nodemetric/{name}", None)

    def put_pod(self, obj: objects.PodObject) -> None:
        """A Pod came or changed."""
        if obj.status.phase in ("Succeeded", "Failed"):
            self.remove_pod(f"{obj.metadata.namespace}/{obj.metadata.name}")
        elif obj.spec.node_name:  # One that we have just bound is still unbound in events from before that.
            self._assign(obj.spec.node_name, load.pod_load(obj, self.args, self._wall()))

    def remove_pod(self, key: str) -> None:
        """The pod `namespace/name` is gone, or its binding failed."""
        with self._lock:
            before = self._pods.pop(key, None)
            if before is not None:
                pods = self._of_node[before[0]]
                pods.pop(key, None)
                self._count(before[0])
                if not pods:
                    del self._of_node[before[0]]

    def bound(self, uid: str, node: str) -> None:
        """The pod of an earlier question is bound to `node` from now on; its event comes later."""
        with self._lock:
            pod = self._questions.get(uid)
        if pod is not None:
            self._assign(node, pod)

    def judge(self, obj: objects.PodObject) -> LoadJudgement:
        """The pod of a question beside all nodes."""
        now = self._wall()
        pod = load.pod_load(obj, self.args, now)
        with self._lock:
            self._questions[obj.metadata.uid] = pod
            self._questions.move_to_end(obj.metadata.uid)
            while len(self._questions) > MOST_QUESTIONS:
                self._questions.popitem(last=False)
            return LoadJudgement(pod, dict(self._loads), self.args, now, self._faults, version=self._version)

    def relieved(self, busy: Mapping[str, tuple[PodLoad, int, frozenset[str]]]) -> tuple[dict[str, str], int]:
        """A node that is no longer too busy for a pod, by uid; and the last change that this counts. `busy`: the pod,
        the last change that its judgement counted, and the nodes that were too busy."""
        now, oldest = self._wall(), min((version for _, version, _ in busy.values()), default=0)
        with self._lock:
            changed = {name: at for name, at in self._versions.items() if at > oldest} if busy else {}
            nodes, latest = {name: self._loads[name] for name in changed if name in self._loads}, self._version
        relieved = {}
        for uid, (pod, version, names) in busy.items():
            present = LoadJudgement(pod, nodes, self.args, now, self._faults)
            recent = (name for name, at in changed.items() if at > version and name in names)
            name = next((name for name in recent if not present.refusal(name)), "")
            if name:
                relieved[uid] = name
        return relieved, latest

    def document(self) -> dict[str, Any]:
        """Sizes, and how old the oldest measurement is, for people."""
        now = self._wall()
        with self._lock:
            ages = [now - each.at for each in self._metrics.values() if each.at is not None]
            expired = sum(load.is_expired(each, self.args, now) for each in self._loads.values())
            nodes, problems = len(self._loads), [str(one) for many in self._problems.values() for one in many]
        oldest = times.show(now - max(ages)) if ages else ""
        return {"measuredNodes": nodes, "expired": expired, "oldest": oldest, "problems": problems[:100]}

    def _assign(self, node: str, pod: PodLoad) -> None:
        with self._lock:
            before = self._pods.get(pod.key)
            if before == (node, pod):
                return
            if before is not None:
                self._of_node[before[0]].pop(pod.key, None)
                if before[0] != node:
                    self._count(before[0])
            self._pods[pod.key] = node, pod
            self._of_node[node][pod.key] = pod
            self._count(node)

    def _count(self, name: str) -> None:
        own, metric = self._own.get(name), self._metrics.get(name)
        if own is not None and metric is not None:
            self._loads[name] = load.NodeLoad(own, metric, self._of_node[name].values(), self.args)
            self._note(name)

    def _note(self, name: str) -> None:
        self._version += 1
        self._versions[name] = self._version

    def _report(self, subject: str, problems: list[Problem]) -> None:
        if problems and self._problems.get(subject) != problems:
            for problem in problems:
                LOG.warning("%s", problem)
        if problems:
            self._problems[subject] = problems
        else:
            self._problems.pop(subject, None)
