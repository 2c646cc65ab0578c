"""Resources that kubelet may give out and has given, by its pod-resources socket: read after changes, and at times.

Where it does not answer, kubelet's checkpoints say the same less well: they keep a deleted pod for some seconds, and
do not know devices that nobody uses.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import msgspec

from koordlite.kube.client import backoff
from koordlite.kube.kubelet import pod_resources
from koordlite.kube.kubelet.checkpoints import ByContainer, MemoryManagerState
from koordlite.kube.kubelet.configz import STATIC, CPUManagerState
from koordlite.kube.kubelet.pod_resources import PodResourcesClient
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.errors import Problem
from koordlite.model.picture.kubelet import Devices, Kubelet, KubeletResources, PodResources, ResourceSet
from koordlite.model.topology import Topology

PERIOD_SECONDS = 60.0
"""Time after which changes without a trace in a checkpoint are seen, as by other reporters."""
AT_MOST_EVERY_SECONDS = 1.0
"""Kubelet writes one checkpoint after the other while it admits a pod: after a change it is asked twice, so long apart,
and never more often."""
_LONGEST_PAUSE_SECONDS = 30.0


class PodResourcesPoller:
    """Asks one socket. `round` belongs to one thread; `poke`, `answer` and `age` may be called from any."""

    def __init__(
        self,
        source: PodResourcesClient | None,
        *,
        socket: str,
        monotonic: Callable[[], float],
        cdi_folder: str = pod_resources.CDI_FOLDER,
    ) -> None:
        """Remember the source; without one nothing is ever requested."""
        self._cdi_folder = cdi_folder
        self._source, self._socket, self._monotonic = source, socket, monotonic
        self._pods: tuple[PodResources, ...] | None = None
        self._allocatable: ResourceSet | None = None
        self._due, self._repeat_at, self._requested_at = float("-inf"), float("inf"), float("-inf")
        self._failures = 0
        self._answered_at: float | None = None
        self.problems: tuple[Problem, ...] = ()
        """Reason why the last request failed."""

    def poke(self) -> None:
        """Something has changed that the answer depends on: ask in the next round, and in the one after."""
        first = max(self._monotonic(), self._requested_at + AT_MOST_EVERY_SECONDS)
        self._due, self._repeat_at = min(self._due, first), first + AT_MOST_EVERY_SECONDS

    @property
    def due(self) -> float:
        """Time of the next request, on the monotonic clock."""
        return min(self._due, self._repeat_at)

    @property
    def age(self) -> float:
        """Seconds since the last answer while requests fail; 0 otherwise, and where there never was one."""
        failing = self._failures and self._answered_at is not None
        return self._monotonic() - (self._answered_at or 0.0) if failing else 0.0

    def round(self) -> bool:
        """Ask if it is time to; True when the answer differs from the last one."""
        now = self._monotonic()
        if self._source is None or now < self.due:
            return False
        self._requested_at = now
        self._due, self._repeat_at = now + PERIOD_SECONDS, self._repeat_at if now < self._repeat_at else float("inf")
        before = self._pods, self._allocatable
        try:
            pods, unknown = self._with_claims(self._source.list())
            self._allocatable, problems = self._ask_allocatable(self._source)
            self.problems = (*problems, *unknown)
        except (OSError, ValueError) as error:
            self._failures += 1
            self._due = now + backoff.pause(self._failures, backoff.uniform, last=_LONGEST_PAUSE_SECONDS)
            self.problems = (_problem(self._socket, error, answered=self._answered_at is not None),)
            return False
        self._pods, self._failures, self._answered_at = pods, 0, now
        return (self._pods, self._allocatable) != before

    def _with_claims(self, pods: tuple[PodResources, ...]) -> tuple[tuple[PodResources, ...], tuple[Problem, ...]]:
        """The pods with the CPUs of their ResourceClaims. The files are looked at only where a pod has such a claim."""
        names = {name for pod in pods for resources in pod.containers.values() for name in resources.claims}
        if not names:
            return pods, ()
        cpus, wrong = pod_resources.read_claims(self._cdi_folder, names)
        before = (resources for pod in self._pods or () for resources in pod.containers.values())
        last = {resources.claims: resources.claimed for resources in before}

        def with_cpus(resources: ResourceSet) -> ResourceSet:
            if not resources.claims:
                return resources
            whole = all(name in cpus for name in resources.claims)
            claimed = union(cpus[name] for name in resources.claims) if whole else last.get(resources.claims, EMPTY)
            return msgspec.structs.replace(resources, claimed=claimed)

        filled = [pod.each(with_cpus) for pod in pods]
        problems = [
            _unknown_claim(pod, name, resources, self._cdi_folder, wrong)
            for pod in filled
            for name, resources in pod.containers.items()
            if resources.claims and not resources.claimed
        ]
        return tuple(filled), tuple(problems)

    def _ask_allocatable(self, source: PodResourcesClient) -> tuple[ResourceSet | None, tuple[Problem, ...]]:
        """None and the reason where kubelet does not know the question."""
        try:
            return source.allocatable(), ()
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            why = "this kubelet has no GetAllocatableResources: Kubernetes before 1.23, or its feature gate is off"
            do = (
                "what may be given out is taken from its checkpoints and configuration; upgrade kubelet for exact zones"
            )
            return None, (Problem("kubelet", self._socket, "", why, do),)

    def answer(self, checkpoints: KubeletResources) -> KubeletResources:
        """Kubelet's last answer, completed from its `checkpoints` where it has not answered."""
        if self._pods is None:
            return checkpoints
        allocatable = checkpoints.allocatable if self._allocatable is None else self._allocatable
        return KubeletResources("pod-resources", allocatable, self._pods)


def from_checkpoints(
    kubelet: Kubelet,
    cpus: CPUManagerState,
    memory: MemoryManagerState,
    devices: ByContainer[Devices],
    topology: Topology,
) -> KubeletResources:
    """The same from the checkpoints, with pods by uid. Devices are known only while a container has them, so none is
    said to be allocatable."""
    static = kubelet.cpu_manager_policy == STATIC
    alone = cpus.pod_cpus if static else ()
    exclusive = {(pod.uid, name): cpus_of for pod in alone for name, cpus_of in pod.containers.items()}
    pods: dict[str, dict[str, ResourceSet]] = {}
    for uid, name in sorted({*exclusive, *memory.blocks, *devices}):
        key = uid, name
        resources = ResourceSet(
            exclusive.get(key, EMPTY), tuple(devices.get(key, ())), tuple(memory.blocks.get(key, ()))
        )
        pods.setdefault(uid, {})[name] = resources
    free = topology.cpuset - kubelet.reserved_cpus if static else EMPTY
    allocatable = ResourceSet(cpus=free, memory=memory.allocatable)
    listed = tuple(PodResources("", "", containers, uid) for uid, containers in pods.items())
    return KubeletResources("checkpoints", allocatable, listed)


def without_shared(resources: KubeletResources, shared: CPUSet) -> KubeletResources:
    """Old kubelets list the CPUs of the shared pool for containers that have none of their own."""
    if not any(container.cpus & shared for pod in resources.pods for container in pod.containers.values()):
        return resources

    def own(container: ResourceSet) -> ResourceSet:
        return msgspec.structs.replace(container, cpus=container.cpus - shared)

    return msgspec.structs.replace(resources, pods=tuple(pod.each(own) for pod in resources.pods))


def contradictions(resources: KubeletResources, topology: Topology) -> Iterator[Problem]:
    """CPUs and NUMA nodes in kubelet's answer that this machine does not have. They are left out of the zones."""
    parts = [resources.allocatable, *(part for pod in resources.pods for part in pod.containers.values())]
    cpus = CPUSet(cpu for part in parts for cpu in part.cpus if cpu not in topology.cpuset)
    node_ids = {node.id for node in topology.nodes}
    nodes = {node for part in parts for node in part.nodes} - node_ids
    do = "see whether some went offline since kubelet started, and restart it; they are left out of the zones"
    if cpus:
        yield Problem("kubelet", "CPU ids", str(cpus), f"this machine has only the CPUs {topology.cpuset}", do)
    if nodes:
        listed, has = ", ".join(map(str, sorted(nodes))), ", ".join(map(str, sorted(node_ids)))
        yield Problem("kubelet", "NUMA nodes", listed, f"this machine has only the NUMA nodes {has}", do)


def _unknown_claim(pod: PodResources, container: str, resources: ResourceSet, folder: str, wrong: str) -> Problem:
    why = wrong or f"no specification in {folder} says which CPUs it is"
    do = "apply manifests/components/dra-cpus, which mounts that folder; until then these CPUs count as shared"
    owner = f"pod/{pod.namespace}/{pod.name}"
    return Problem(owner, f"ResourceClaim of container {container}", ", ".join(resources.claims), why, do)


def _problem(socket: str, error: OSError | ValueError, *, answered: bool) -> Problem:
    holds = "what it said last stays" if answered else "until then its checkpoints say what is given out"
    if not isinstance(error, OSError):
        return Problem("kubelet", socket, "", str(error), f"check what listens there; {holds}")
    match error.errno:
        case errno.ENOENT:
            do = "start kubelet, or mount its folder pod-resources, or set cluster.kubeletPodResources to ''"
        case errno.ENOSYS:
            do = "upgrade kubelet: pod-resources v1 came with Kubernetes 1.20; or set cluster.kubeletPodResources to ''"
        case _:
            do = "check whether kubelet runs and whether the agent may connect there"
    return Problem("kubelet", socket, "", error.strerror or str(error), f"{do}; {holds}")
