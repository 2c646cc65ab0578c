"""State of kubelet at each moment: its policies, its exclusive CPUs, and its pods if they are asked for."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from koordlite.kube.client import backoff
from koordlite.kube.client.access import ApiError, ApiUnreachable
from koordlite.kube.kubelet import checkpoints
from koordlite.kube.kubelet import configz as kubelet
from koordlite.kube.kubelet.checkpoints import CheckpointNotices, MemoryManagerState
from koordlite.kube.kubelet.configz import CPUManagerState
from koordlite.kube.kubelet.http import KubeletHttp
from koordlite.kube.kubelet.resources import PodResourcesPoller, contradictions, from_checkpoints, without_shared
from koordlite.kube.watch.store import Store
from koordlite.model.errors import InputError, Problem
from koordlite.model.nrt import Device
from koordlite.model.picture.kubelet import Devices, Kubelet, KubeletResources
from koordlite.model.status import WatchState
from koordlite.model.topology import Topology
from koordlite.model.wire import objects as wire
from koordlite.ports import Files
from koordlite.threads import Worker

LOG = logging.getLogger(__name__)
T = TypeVar("T")
CONFIG_SECONDS = 60.0
"""Kubelet's configuration changes when it restarts."""
HURRIED_SECONDS = 2.0
"""Longest wait for a kubelet that restarts with another policy."""
PODS_SECONDS = 2.0
ROUND_SECONDS = 1.0
_JOIN_SECONDS = 2.0


class _Checkpoint(Generic[T]):
    """One file of kubelet's, and its last content that could be read."""

    def __init__(self, path: str, parse: Callable[[bytes], T], value: T) -> None:
        self.path, self.parse, self.value = path, parse, value
        self.raw: bytes | None = None


class _Request(msgspec.Struct):
    """One thing kubelet is asked for, again and again."""

    every_seconds: float
    due: float = float("-inf")
    confirmed_at: float | None = None
    failures: int = 0
    requests: int = 0
    error: str = ""


class KubeletView(msgspec.Struct, frozen=True):
    """Kubelet at one moment."""

    kubelet: Kubelet
    pods: tuple[wire.PodObject, ...] | None
    """None while they are not asked for, or were never answered."""
    states: tuple[WatchState, ...]
    problems: tuple[Problem, ...]
    resources_age: float = 0.0
    """Seconds since kubelet last said what it has given out, while it does not say so."""


class KubeletState:
    """Asks kubelet in a thread from `start` to `stop`, and reads its checkpoint."""

    def __init__(
        self,
        connect: Callable[[], KubeletHttp | None],
        *,
        files: Files,
        folder: str,
        topology: Topology,
        with_pods: bool,
        monotonic: Callable[[], float],
        poller: PodResourcesPoller | None = None,
        notices: bool = False,
    ) -> None:
        """`connect` gives None as long as kubelet cannot be asked. `poller` asks its pod-resources socket.
        `notices`: the checkpoints are files of this machine, and are read as soon as they are written."""
        self._connect, self._files, self._topology, self._monotonic = connect, files, topology, monotonic
        folder = folder.rstrip("/")
        self._cpus = _Checkpoint(f"{folder}/cpu_manager_state", kubelet.parse_cpu_manager_state, CPUManagerState())
        self._memory = _Checkpoint(f"{folder}/memory_manager_state", checkpoints.parse_memory, MemoryManagerState())
        no_devices: checkpoints.ByContainer[Devices] = {}
        self._devices = _Checkpoint(
            f"{folder}/device-plugins/kubelet_internal_checkpoint", checkpoints.parse_devices, no_devices
        )
        # Of this one only matters that it changed: kubelet has admitted a pod.
        self._admitted = _Checkpoint(f"{folder}/allocated_pods_state", lambda _: None, None)
        self._poller = poller
        watched = (self._cpus.path, self._memory.path, self._devices.path, self._admitted.path)
        self._notices = CheckpointNotices(watched) if notices else None
        self._http: KubeletHttp | None = None
        self._config: Kubelet | None = None
        self._pods = Store("pod", wire.PodObject)
        self._requests = {"kubelet": _Request(CONFIG_SECONDS)} | (
            {"kubelet pods": _Request(PODS_SECONDS)} if with_pods else {}
        )
        self._policy_changed_at = float("-inf")
        """Time at which the CPU checkpoint last named another policy than before."""
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._changed = threading.Event()
        self._lock, self._stop, self._complete = threading.Lock(), threading.Event(), threading.Event()
        self._thread = Worker("kubelet", self._run)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End; a request under way is not waited for long."""
        self._stop.set()
        if self._notices:
            self._notices.end()
        self._thread.join(_JOIN_SECONDS)
        if self._notices and not self._thread.is_alive():
            self._notices.close()
            self._notices = None

    def wait(self, seconds: float) -> bool:
        """Wait until everything was asked for once; False when that took too long."""
        return self._complete.wait(seconds)

    def round(self) -> None:
        """Ask for what is due. Only one thread may do so."""
        self._look(self._cpus)
        self._look(self._memory)
        self._look(self._devices)
        if self._poller:
            self._look(self._admitted)
            if self._poller.round():
                self._changed.set()
        if self._http is None:
            self._http = self._connect()
        if self._http is None:
            return
        for what, request in self._requests.items():
            if self._monotonic() >= request.due:
                self._ask(what, request, self._http)

    def view(self) -> KubeletView:
        """The present state; never waits."""
        with self._lock:
            state = self._cpus.value
            config = self._config or state.as_config
            if self._is_older_than_checkpoint:
                config = msgspec.structs.replace(config, cpu_manager_policy=state.policy)
            current, wrong = kubelet.combine(config, state, self._topology)
            current = msgspec.structs.replace(
                current,
                # A device of several NUMA nodes, or of none that is known, has none of its own (-1).
                devices={
                    key: tuple(
                        Device(id=name, numa=each.nodes[0] if len(each.nodes) == 1 else -1)
                        for each in devices
                        for name in each.ids
                    )
                    for key, devices in self._devices.value.items()
                },
                # NUMA nodes promised to containers; those of huge pages are among them.
                memory_nodes={
                    key: tuple(sorted({node for block in blocks for node in block.nodes}))
                    for key, blocks in self._memory.value.blocks.items()
                },
            )
            resources = self._resources(current)
            current = msgspec.structs.replace(current, resources=resources)
            contradict = contradictions(resources, self._topology) if resources else ()
            problems = [*wrong, *(self._poller.problems if self._poller else ()), *contradict]
            problems += [problem for each in self._problems.values() for problem in each]
            answered = "kubelet pods" in self._requests and self._requests["kubelet pods"].confirmed_at is not None
            pods = tuple(self._pods.objects.values()) if answered else None
            states = tuple(self._shown(what, request) for what, request in self._requests.items())
            age = self._poller.age if self._poller else 0.0
            return KubeletView(current, pods, states, (*problems, *self._pods.problems), age)

    def take_changes(self) -> bool:
        """Tell if kubelet has given out something else since the last call."""
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    def pods_changed(self) -> None:
        """Note that the resources kubelet has given out may have changed as well."""
        if self._poller:
            self._poller.poke()

    def _resources(self, config: Kubelet) -> KubeletResources | None:
        """None where kubelet is not asked what it gives out."""
        if self._poller is None:
            return None
        cpus = self._cpus.value
        own = from_checkpoints(config, cpus, self._memory.value, self._devices.value, self._topology)
        resources = self._poller.answer(own)
        return without_shared(resources, cpus.shared) if config.cpu_manager_policy == kubelet.STATIC else resources

    def _run(self) -> None:
        while not self._stop.is_set():
            self._thread.beat()
            self.round()
            self._complete.set()
            if self._notices is None:
                self._stop.wait(ROUND_SECONDS)
                continue
            # Until the next round, or until kubelet writes a checkpoint.
            due = self._poller.due - self._monotonic() if self._poller else ROUND_SECONDS
            self._notices.wait(min(ROUND_SECONDS, due))

    def _look(self, checkpoint: _Checkpoint[Any]) -> None:
        """Read a checkpoint if it changed. Kubelet may be writing it at this moment: what was read before holds."""
        path, policy = checkpoint.path, self._cpus.value.policy
        try:
            raw = self._files.read(path)
        except OSError as error:
            why, do = error.strerror or str(error), "make it readable; what was read before holds"
            # Kubelet without the static policy may never have written one.
            missing = error.errno == errno.ENOENT
            self._note(path, () if missing else (Problem(path, "file", "", why, do),))
            return
        if checkpoint.raw != raw:
            try:
                value = checkpoint.parse(raw)
            except InputError as error:
                self._note(path, error.problems)
                return
            with self._lock:
                checkpoint.raw, checkpoint.value = raw, value
                if self._cpus.value.policy != policy:
                    # Kubelet has restarted with another policy, and its configuration is another one.
                    self._policy_changed_at = self._monotonic()
                    self._requests["kubelet"].due = float("-inf")
            self.pods_changed()
        self._note(path, ())

    @property
    def _is_older_than_checkpoint(self) -> bool:
        """Tell if the CPU checkpoint names a policy since kubelet last answered with its configuration."""
        confirmed = self._requests["kubelet"].confirmed_at
        return bool(self._cpus.value.policy) and confirmed is not None and confirmed < self._policy_changed_at

    def _ask(self, what: str, request: _Request, http: KubeletHttp) -> None:
        request.requests += 1
        try:
            fresh = http.config() if what == "kubelet" else http.pods()
        except InputError as error:
            self._failed(request, what, error.problems, str(error))
        except (ApiError, ApiUnreachable) as error:
            problem = Problem("kubelet", what, "", str(error), f"{_do(error)}; what is known of it stays")
            self._failed(request, what, (problem,), str(error))
        else:
            now = self._monotonic()
            with self._lock:
                if isinstance(fresh, Kubelet):
                    self._config = fresh
                else:
                    self._pods.replace(fresh)
                request.confirmed_at, request.due = now, now + request.every_seconds
                request.failures, request.error = 0, ""
            self._note(what, ())

    def _failed(self, request: _Request, what: str, problems: tuple[Problem, ...], error: str) -> None:
        if request.error != error:
            LOG.warning("asking for %s: %s", what, error)
        with self._lock:
            request.failures, request.error = request.failures + 1, error
            last = HURRIED_SECONDS if self._is_older_than_checkpoint else CONFIG_SECONDS
            pause = backoff.pause(request.failures, backoff.uniform, last=last)
            patient = request.failures == 1 and not self._is_older_than_checkpoint
            request.due = self._monotonic() + max(pause, request.every_seconds if patient else 0.0)
        self._note(what, problems)

    def _note(self, about: str, problems: tuple[Problem, ...]) -> None:
        with self._lock:
            self._problems[about] = problems

    def _shown(self, what: str, request: _Request) -> WatchState:
        age = None if request.confirmed_at is None else self._monotonic() - request.confirmed_at
        objects = len(self._pods.objects) if what == "kubelet pods" else int(self._config is not None)
        return WatchState(name=what, age_seconds=age, objects=objects, requests=request.requests, error=request.error)


def _do(error: ApiError | ApiUnreachable) -> str:
    match getattr(error, "status", 0):
        case HTTPStatus.UNAUTHORIZED:
            return "check the token in cluster.kubeletTokenFile, and whether kubelet asks the API server about tokens"
        case HTTPStatus.FORBIDDEN:
            return "allow this identity to get nodes/proxy, see cluster.kubelet… in koordlite.yaml"
    return "check whether kubelet answers there, and who signed its certificate: cluster.kubeletCaFile"
