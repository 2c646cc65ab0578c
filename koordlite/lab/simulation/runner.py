"""Plays a scenario from its first tick to its last: the emulated node with its agent, and what the scenario's events do
to both."""

from __future__ import annotations

import collections
import dataclasses
import errno
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from koordlite.agent import Agent
from koordlite.host import bundle, pause_file, procfs
from koordlite.host.journal.journal import Journal
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.lab import Sandbox
from koordlite.lab.cluster import scenario, scenario_cluster
from koordlite.lab.cluster.cluster import SandboxCluster
from koordlite.lab.cluster.scenario import Event
from koordlite.lab.cluster.scenario_cluster import ScenarioCluster
from koordlite.lab.pods import kubelet
from koordlite.lab.simulation import measures, reading
from koordlite.lab.simulation.measures import Sample
from koordlite.lab.simulation.reading import Play
from koordlite.model import cpuset
from koordlite.model.errors import InputError
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.status import Pause
from koordlite.ports import ClusterView
from koordlite.report.history import History
from koordlite.report.simulation import Happening, Simulated

_SETS = ("cpuset.cpus", "cpuset.cpus.effective")
_PROGRAMMED = (
    *_SETS,
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.idle",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.swap.max",
    "schemata",
)
_RESCTRL = "/sys/fs/resctrl/"


class Stage:
    """Machine, cluster and agent. The agent may be dead for a while; its state folder outlives it."""

    def __init__(self, play: Play, *, seed: int, state: Path) -> None:
        written = play.scenario
        self.sandbox = Sandbox(written.machine, seed=seed, longest_step=written.step_seconds)
        self.settings = reading.in_force(play)
        if play.manifests is None:
            node = kubelet.registered_node(self.sandbox.machine, written.node.name)
            first = ClusterView(node=node, pods=(), config=None, topology=None, kubelet=Kubelet())
        else:
            first = ManifestCluster(play.manifests, clock=self.sandbox.clock, node_name=written.node.name).view()
        if first.node is None or first.problems:
            raise InputError(first.problems)
        self._cluster = ScenarioCluster(first, scenario_cluster.node(written.node, first.node))
        self._node_name = first.node.metadata.name
        self._cluster.configure(written.config)
        for pod in written.pods:
            self._cluster.run(scenario_cluster.pods(pod, self._node_name))
        self._joined = SandboxCluster(self._cluster, self.sandbox)
        self._joined.view()  # Its kubelet makes the groups that are read next.
        kubepods = self.settings.agent.kubepods
        self._host = bundle.bind(self.sandbox.files, self.sandbox.clock, kubepods=kubepods, cores=self.sandbox.cores)
        self._originals = self._programmed()
        self._state = state
        self._journal: Journal | None = None
        self.agent: Agent | None = None
        self._back_at: float | None = None

    def start(self) -> Agent:
        """Start the agent; what an earlier one left is undone first."""
        self._journal = Journal.open(self._state, boot_id=procfs.boot_id(self.sandbox.files))
        agent = self.agent = Agent(self._host, self._joined, self.settings, self._journal)
        agent.take_over()
        self._back_at = None
        return agent

    def stop(self) -> int:
        """Let the agent put everything back; how many files hold something else than they held at the start."""
        agent = self.agent or self.start()
        agent.put_back()
        self.close()
        present = self._programmed()
        new = sum(path.startswith(_RESCTRL) and path not in self._originals for path in present)
        return new + sum(present[path] != text for path, text in self._originals.items() if path in present)

    def close(self) -> None:
        """The agent is gone, without a word."""
        if self._journal:
            self._journal.close()
        self._journal, self.agent = None, None

    def wake(self) -> Iterator[str]:
        """Start the agent when it is due again."""
        if self._back_at is not None and self.sandbox.clock.seconds >= self._back_at:
            self.start()
            yield "the agent starts again"

    def happen(self, event: Event) -> Iterator[str]:
        """Let it happen; what it was, in words."""
        yield from self._objects(event)
        for path, text in event.write.items():
            yield f"another program writes {path} = {text}{self._write(path, text)}"
        if event.pause:
            seconds = scenario.seconds(event.pause.duration)
            until = self.sandbox.clock.wall() + seconds
            pause_file.write(self._state, Pause(until=until, because=event.pause.because, release=event.pause.release))
            yield f"koordlite pause {event.pause.duration}{' --release' if event.pause.release else ''}"
        if event.kill_agent is not None:
            self._back_at = self.sandbox.clock.seconds + scenario.seconds(event.kill_agent)
            self.close()
            yield f"the agent is killed, for {event.kill_agent}"

    def read(self, path: str) -> str:
        """A file's text, or the kernel's word why there is none."""
        try:
            return self.sandbox.files.read(path).decode(errors="replace").strip()
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, "error")

    def cpus(self, beginning: str) -> str:
        """The CPUs on which pods NAMESPACE/NAME that begin so may run; nothing for pods that are not there."""
        cgroups, pods = self.sandbox.cgroups, self.sandbox.kubelet.running.values()
        running = [workload for pod in pods if pod.described.key.startswith(beginning) for workload in pod.workloads]
        return str(cpuset.union(cgroups.allowed(cgroups.cpuset.home(each.process.tids[0])) for each in running))

    def _objects(self, event: Event) -> Iterator[str]:
        for written in event.pods:
            self._cluster.run(scenario_cluster.pods(written, self._node_name))
            many = f" × {written.count}" if written.count > 1 else ""
            yield f"pod {written.namespace}/{written.name}{many} ({written.qos or 'no class'}) arrives"
        for beginning in event.remove:
            count = self._cluster.remove(beginning)
            yield f"pods {beginning}… go: {count}"
        if event.config:
            self._cluster.configure(event.config)
            yield f"the ConfigMap changes: {', '.join(event.config)}"
        if event.annotate:
            self._cluster.annotate(event.annotate)
            yield f"annotations of the Node change: {', '.join(event.annotate)}"

    def _write(self, path: str, text: str) -> str:
        try:
            self.sandbox.files.write(path, f"{text}\n".encode())
        except OSError as error:
            return f", in vain: {error.strerror or error}"
        return ""

    def _programmed(self) -> Mapping[str, str]:
        """Files the agent programs. A set that was inherited takes no other value back while threads are in it: there
        the CPUs it may really use count."""
        paths = [path for path in self.sandbox.files.paths("/sys/fs") if path.rpartition("/")[2] in _PROGRAMMED]
        texts = {path: self.read(path) for path in paths}
        return {path: text for path, text in texts.items() if text or not path.endswith("/cpuset.cpus")}


_ALMOST_NOTHING = 1e-6


def play(scene: Play, *, seed: int | None = None) -> Simulated:
    """The whole scenario; `seed` in place of that of the file."""
    written, seed = scene.scenario, scene.scenario.seed if seed is None else seed
    samples, happenings = list[Sample](), list[Happening]()
    history, restarts, texts = History({}, {}), dict[str, int](), dict[int, str]()
    due = collections.deque(sorted(written.events, key=lambda event: event.seconds))
    with tempfile.TemporaryDirectory(prefix="koordlite-simulation-") as state:
        stage = Stage(scene, seed=seed, state=Path(state))
        interval = stage.settings.agent.interval_seconds
        read = {"file": stage.read, "cpus": stage.cpus}
        try:
            stage.start()
            for _ in range(math.ceil(written.seconds / interval)):
                now = stage.sandbox.clock.seconds
                happenings += [Happening(now, words) for words in stage.wake()]
                while due and due[0].seconds <= now + _ALMOST_NOTHING:
                    happenings += [Happening(now, words) for words in stage.happen(due.popleft())]
                tick = stage.agent.tick() if stage.agent else None
                if tick:
                    history.add(dataclasses.replace(tick, time=now, tick_seconds=0.0))
                samples.append(measures.take(stage.sandbox, tick, restarts))
                # The last text before the end of an expectation's time counts.
                for number, expected in enumerate(written.expect):
                    if expected.is_text and (expected.to is None or now <= scenario.seconds(expected.to)):
                        texts[number] = read[expected.measure](expected.of)
                stage.sandbox.advance(interval)
            not_put_back = stage.stop()
        finally:
            stage.close()
    workloads = measures.workloads(samples)
    return Simulated(
        name=scene.name,
        about=written.about,
        label=scene.label or scene.name,
        machine=written.machine,
        seconds=written.seconds,
        seed=seed,
        history=history,
        workloads=workloads,
        happenings=tuple(happenings),
        checks=tuple(
            measures.check(expected, samples, text=texts.get(number, ""), not_put_back=not_put_back)
            for number, expected in enumerate(written.expect)
        ),
        figures=measures.figures(samples, frozenset(each.pod for each in workloads if each.qos == "BE")),
    )
