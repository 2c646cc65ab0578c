"""An emulated node with a folder of manifests as its cluster: what a test of the whole agent starts from."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cyaml
from kernel_resctrl import KernelSandbox

from koordlite import config
from koordlite.agent import Agent
from koordlite.host import bundle
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import Journal
from koordlite.kube.folder.manifests import ManifestCluster
from koordlite.lab.cluster.cluster import SandboxCluster
from koordlite.lab.machine.machine import Machine
from koordlite.model.cpuset import CPUSet
from koordlite.model.settings import Mode
from koordlite.ports import Files
from koordlite.report.tick import Tick

SHAPES = ("intel-2s-ht", "amd-ccd", "arm", "small")
EFFECTIVE = "cpuset.cpus.effective"
BOOT = "11111111-2222-4333-8444-555555555555"
RESCTRL = {
    name: {"resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": end, "mbaPercent": mba}}
    for name, end, mba in (("lsrClass", 100, 100), ("lsClass", 100, 100), ("beClass", 30, 50))
}
CORE_SCHED = {"cpuQOS": {"enable": True}}


class Emulated:
    """A machine of a shape, its manifests in `folder`, and an agent on it."""

    longest_step = 0.5
    """Seconds that pass at once; the product's own sandbox is finer than most tests look."""

    def __init__(self, shape: str | Machine, folder: Path) -> None:
        self.folder = folder / "manifests"
        self.folder.mkdir(exist_ok=True)
        self.state = folder / "state"
        self.sandbox = KernelSandbox(shape, longest_step=self.longest_step)
        self.cpus = len(self.sandbox.machine.cpus)
        self._written = 0
        manifests = ManifestCluster(self.folder, clock=self.sandbox.clock)
        self.cluster = SandboxCluster(manifests, self.sandbox)
        self.node()
        self.slo()

    # ── the cluster ──

    def node(self, *, labels: Mapping[str, str] | None = None, **annotations: str) -> None:
        """The Node object with these labels and annotations (`reservation`, `system_cpu`)."""
        names = {
            "reservation": "node.koordinator.sh/reservation",
            "system_cpu": "sandbox.koordlite.io/system-cpu",
            "cpu_manager": "sandbox.koordlite.io/cpu-manager-policy",
            "system_qos": "node.koordinator.sh/system-qos-resource",
        }
        amounts = {"cpu": str(self.cpus), "memory": f"{self.sandbox.machine.memory // 1024}Ki"}
        notes = {names[key]: text for key, text in annotations.items()}
        meta = {"name": "node-a", "annotations": notes, "labels": dict(labels or {})}
        self._write("node", "v1", "Node", meta, status={"capacity": amounts, "allocatable": amounts})

    def slo(
        self,
        *,
        policy: str = "cpuset",
        enable: bool = True,
        percent: int = 65,
        resctrl: bool = True,
        core_sched: bool = False,
    ) -> None:
        """The ConfigMap: suppression, resctrl classes, and core scheduling of these classes."""
        qos: dict[str, object] = dict(RESCTRL) if resctrl else {}
        if core_sched:
            qos = {name: {**RESCTRL[name], **CORE_SCHED} for name in RESCTRL} | {"policies": {"cpuPolicy": "coreSched"}}
        threshold = {"enable": enable, "cpuSuppressThresholdPercent": percent, "cpuSuppressPolicy": policy}
        self.raw_slo(
            {
                "colocation-config": {"enable": True, "metricAggregateDurationSeconds": 10},
                "resource-threshold-config": {"clusterStrategy": threshold},
                "resource-qos-config": {"clusterStrategy": qos},
            }
        )

    def raw_slo(self, data: Mapping[str, object]) -> None:
        """The ConfigMap with this data; text is taken as it is."""
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}
        names = {"name": "slo-controller-config", "namespace": "koordinator-system"}
        self._write("config", "v1", "ConfigMap", names, data=texts)

    def pod(
        self,
        name: str,
        qos: str,
        cpu: str,
        *,
        uid: str = "",
        request: str = "",
        memory: str = "",
        batch_cpu: str = "1000",
        labels: Mapping[str, str] | None = None,
        guaranteed: bool = False,
        limited: bool = False,
        created: str = "",
        sidecar: bool = False,
        static_cpus: str = "",
        **annotations: str,
    ) -> None:
        """A pod of a class with a demand; `request` makes it burstable, a BE pod asks for batch-cpu and -memory;
        `limited`: its limits are its requests; a sidecar asks for the same again. `static_cpus`: what kubelet gives its
        first container under the static policy."""
        if static_cpus:
            self.sandbox.managers.given[uid or f"uid-{name}"] = CPUSet.parse(static_cpus)
        keys = {
            "objective": "suppress.koordlite.io/objective",
            "oom_score": "koordinator.sh/oom-score-adj",
            "status": "scheduling.koordinator.sh/resource-status",
        }
        notes = {keys[key]: text for key, text in annotations.items()} | {"sandbox.koordlite.io/cpu": cpu}
        wanted = {"kubernetes.io/batch-cpu": batch_cpu} if qos == "BE" else {"cpu": request or "500m"}
        wanted |= {"kubernetes.io/batch-memory" if qos == "BE" else "memory": memory} if memory else {}
        names = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "annotations": notes}
        names["labels"] = ({"koordinator.sh/qosClass": qos} if qos else {}) | dict(labels or {})
        names |= {"creationTimestamp": created} if created else {}
        if guaranteed:
            wanted |= {"memory": "16Mi"}
        resources = {"requests": wanted} | ({"limits": wanted} if guaranteed or limited else {})
        containers = [{"name": each, "resources": resources} for each in ("main", *["sidecar"] * sidecar)]
        spec = {"nodeName": "node-a", "containers": containers}
        self._write(f"pod-{name}", "v1", "Pod", names, spec=spec, status={"phase": "Running"})

    def remove(self, name: str) -> None:
        """The pod is gone."""
        (self.folder / f"pod-{name}.yaml").unlink()

    def _write(self, file: str, version: str, kind: str, metadata: Mapping[str, Any], **rest: Any) -> None:
        # A comment of growing length: two writes within one tick of the file system's clock must not look the same.
        self._written += 1
        content = {"apiVersion": version, "kind": kind, "metadata": dict(metadata), **rest}
        text = f"{cyaml.safe_dump(content)}#{'.' * self._written}\n"
        (self.folder / f"{file}.yaml").write_text(text)

    # ── the agent ──

    def host(self, files: Files | None = None) -> Host:
        """The machine; its kubelet has made the groups of the pods."""
        self.cluster.view()
        return bundle.bind(files or self.sandbox.files, self.sandbox.clock, cores=self.sandbox.cores)

    def journal(self) -> Journal:
        """The undo journal, held."""
        return Journal.open(self.state, boot_id=BOOT)

    def settings(self, mode: Mode = "enforce", **agent: Any) -> config.Settings:
        """Defaults with this mode for every strategy."""
        chosen = config.with_modes(config.default(), mode)
        made = config.Agent(**{"tasks_seconds": 1.0, **agent})
        return config.Settings(agent=made, http=chosen.http, strategies=chosen.strategies)

    def agent(
        self,
        journal: Journal | None,
        mode: Mode = "enforce",
        files: Files | None = None,
        *,
        unjournaled: str = "",
        open_journal: Callable[[], Journal] | None = None,
        **more: Any,
    ) -> Agent:
        """An agent in this mode."""
        return Agent(
            self.host(files),
            self.cluster,
            self.settings(mode, **more),
            journal,
            unjournaled=unjournaled,
            open_journal=open_journal,
        )

    @contextlib.contextmanager
    def at_work(self, mode: Mode = "enforce", files: Files | None = None, **more: Any) -> Iterator[Agent]:
        """An agent in this mode, whose journal is held while the block runs."""
        with self.journal() as journal:
            yield self.agent(journal, mode, files, **more)

    def ticks(self, agent: Agent, count: int) -> list[Tick]:
        """That many ticks, a second apart."""
        seen = []
        for _ in range(count):
            seen.append(agent.tick())
            self.sandbox.advance(1.0)
        return seen

    # ── the machine's files ──

    def programmed(self) -> dict[str, bytes]:
        """Every file the agent may write, with what it holds."""
        wanted = ("cpuset.cpus", EFFECTIVE, "cpu.cfs_quota_us", "cpu.max", "schemata", "tasks", "cgroup.procs")
        names = (path for path in self.sandbox.files.paths("/sys/fs") if path.rpartition("/")[2] in wanted)
        return {path: self.sandbox.files.read(path) for path in names}

    def changed(self, found: Mapping[str, bytes]) -> list[str]:
        """Files that do not hold what was found. On v2 no kernel takes an empty set back while a group has tasks: there
        the CPUs it may really use count."""
        present = self.programmed()
        inherited = {path for path in found if path.endswith("/cpuset.cpus") and not found[path].strip()}
        differ = [path for path in found.keys() | present.keys() if present.get(path) != found.get(path)]
        return sorted(path for path in differ if path not in inherited)

    def best_effort_cpus(self) -> str:
        """What the besteffort group holds now."""
        host = self.host()
        state = host.cgroups.state(host.cgroups.layout.besteffort)
        return str(state.effective)
