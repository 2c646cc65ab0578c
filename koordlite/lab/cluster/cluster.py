"""The cluster of an emulated node: given objects, the status the sandbox's own kubelet reports, and evictions.

Annotations of a pod tell what an eviction does: `sandbox.koordlite.io/refuse-evictions: "true"` refuses every one, as a
disruption budget that is used up; `sandbox.koordlite.io/disruption-budget: NAME/2` shares a budget with the other pods
of that name, of which two at most may be on their way out at once.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec
from msgspec import structs

from koordlite.changes.eviction import EvictPod
from koordlite.kube.folder.published import LeavingPods
from koordlite.lab.sandbox import Sandbox
from koordlite.model.change import ClusterChange
from koordlite.model.cpuset import EMPTY
from koordlite.model.errors import EvictionRefused
from koordlite.model.picture.kubelet import Kubelet, KubeletResources, PodResources, ResourceSet
from koordlite.model.wire import objects
from koordlite.ports import Cluster, ClusterView

REFUSE = "sandbox.koordlite.io/refuse-evictions"
BUDGET = "sandbox.koordlite.io/disruption-budget"
GRACE_SECONDS = 30.0
"""terminationGracePeriodSeconds of a pod that does not say; it runs to its end."""
SPENT = "Cannot evict pod as it would violate the pod's disruption budget."
"""The API server's words."""


class _Leaving(msgspec.Struct, frozen=True):
    gone_at: float
    """Monotonic seconds."""
    deleted_at: str
    """RFC 3339, as the pod shows it."""


class SandboxCluster:
    """`ports.Cluster`: every view brings the sandbox in line with the pods of `cluster` first."""

    def __init__(self, cluster: Cluster, sandbox: Sandbox, *, evicts: bool = False) -> None:
        """`evicts`: the cluster carries evictions out itself, as an API server does, and says when a pod is gone."""
        self._cluster, self._sandbox, self._evicts = cluster, sandbox, evicts
        self._leaving: dict[str, _Leaving] = {}
        """Evicted pods by uid."""
        self._marks = LeavingPods()

    def view(self) -> ClusterView:
        """The objects of the cluster, with node and pods in the status that the emulated kubelet reports."""
        view = self._cluster.view()
        pods = self._remaining(view.pods)
        problems = self._sandbox.sync(pods, view.node)
        node, wrong = self._sandbox.reported_node(view.node) if view.node else (None, ())
        kubelet = self._sandbox.kubelet_state(view.kubelet)
        if kubelet.cpu_manager_policy == "static":
            # What the socket pod-resources of a real one would say.
            kubelet = structs.replace(kubelet, resources=self._assigned_resources(kubelet, pods))
        return structs.replace(
            view,
            node=node,
            pods=self._marks.marked(
                self._sandbox.reported(pods), {uid: each.deleted_at for uid, each in self._leaving.items()}
            ),
            kubelet=kubelet,
            problems=view.problems + problems + wrong,
        )

    def _assigned_resources(self, kubelet: Kubelet, pods: Sequence[objects.PodObject]) -> KubeletResources:
        own = {each.uid: each.containers for each in kubelet.pod_cpus}
        assigned = (
            PodResources(
                pod.metadata.namespace,
                pod.metadata.name,
                {
                    container.name: ResourceSet(own.get(pod.metadata.uid, {}).get(container.name, EMPTY))
                    for container in pod.spec.containers or ()
                },
                pod.metadata.uid,
            )
            for pod in pods
        )
        free = self._sandbox.machine.cpuset - kubelet.reserved_cpus
        return KubeletResources("pod-resources", ResourceSet(free), tuple(assigned))

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Passed on."""
        self._cluster.publish(changes)

    def evict(self, pod: EvictPod) -> None:
        """The pod goes after its grace period; EvictionRefused when its annotations refuse, or its budget is used up. A
        pod that is gone or on its way is accepted."""
        if self._evicts:
            self._cluster.evict(pod)
            return
        pods = self._remaining(self._cluster.view().pods)
        victim = next((each for each in pods if each.metadata.uid == pod.uid), None)
        if victim is None or pod.uid in self._leaving:
            return
        if self._refuses(victim, pods):
            raise EvictionRefused(f"pod/{pod.namespace}/{pod.name}", SPENT)
        own = victim.spec.termination_grace_period_seconds if victim.spec else None
        grace = GRACE_SECONDS if own is None else max(own, 0)
        deleted_at = datetime.datetime.fromtimestamp(self._sandbox.clock.wall(), tz=datetime.UTC)
        gone_at = self._sandbox.clock.monotonic() + grace
        self._leaving[pod.uid] = _Leaving(gone_at, deleted_at.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def _remaining(self, pods: Sequence[objects.PodObject]) -> tuple[objects.PodObject, ...]:
        """The pods that are still there."""
        now = self._sandbox.clock.monotonic()
        deleted = {uid for uid, leaving in self._leaving.items() if leaving.gone_at <= now}
        return tuple(each for each in pods if each.metadata.uid not in deleted)

    def _refuses(self, pod: objects.PodObject, pods: Sequence[objects.PodObject]) -> bool:
        notes = pod.metadata.annotations or {}
        budget = notes.get(BUDGET)
        if budget is None or notes.get(REFUSE) == "true":
            return notes.get(REFUSE) == "true"
        sharing = [each for each in pods if (each.metadata.annotations or {}).get(BUDGET) == budget]
        going = sum(each.metadata.uid in self._leaving for each in sharing)
        # A budget that cannot be read allows nothing: an eviction too few does no harm.
        allowed = budget.rpartition("/")[2]
        return going >= (int(allowed) if allowed.isdecimal() else 0)
