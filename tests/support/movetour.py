"""The tour, last act: the pod of `configs/tour` that runs on reserved CPUs moves by reservation.

Descheduler, reservation controller and extender are the real ones; the API server, kube-scheduler, kubelets and the
controller of replicas are emulated. Prints what each of them did.
"""

from __future__ import annotations

import datetime
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import cyaml
from apiserver import ApiServer, ManualClock
from migrationloop import ROOT, Loop, Object

from koordlite.model import keys
from koordlite.model.pod import pod_reader

MORNING = datetime.datetime(2025, 12, 30, 9, tzinfo=datetime.UTC)
"""Just after the tour's pods were made."""
POLICY = ROOT / "configs/tour-reservation.yaml"
APP, NODE, OTHER = "gateway", "tour-a", "tour-b"


class Tour(Loop):
    """The cluster of a folder, with a line for everything that changes in it."""

    def __init__(self, server: ApiServer, clock: ManualClock, folder: pathlib.Path, manifests: pathlib.Path) -> None:
        self._manifests, self._shown = manifests, dict[str, str]()
        self.lines: list[str] = []
        super().__init__(server, clock, folder, policy=POLICY.read_text(encoding="utf-8"))
        self._began = self.now
        self._shown = dict(self._state())

    def populate(self) -> None:
        """Everything in the folder, and the controller of the pod that moves."""
        listed = [
            each
            for path in sorted(self._manifests.glob("*.yaml"))
            for each in cyaml.safe_load_all(path.read_text(encoding="utf-8"))
            if each["kind"] != "KubeletConfiguration"  # a file of kubelet, which no API server has
        ]
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for each in listed:
            if each["kind"] == "Pod":
                each |= {"status": ready, "spec": {**each["spec"], "terminationGracePeriodSeconds": 0}}
        band = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "koord-prod"}}
        self.server.objects.load(*listed, {**band, "value": 9300})
        (self._pod,) = (each for each in listed if each["metadata"]["name"].startswith(f"{APP}-"))
        (owner,) = self._pod["metadata"]["ownerReferences"]
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": {"app": APP}},
            "template": {"metadata": {"labels": {"app": APP}}},
        }
        meta = {"name": owner["name"], "namespace": "shop", "uid": owner["uid"], "labels": {"app": APP}}
        self.server.objects.load({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec})
        self.replicas = {APP: 1}

    def pod(self, app: str, name: str, node: str = "", cpu: int = 0) -> None:
        """One like that of the folder."""
        meta = self._pod["metadata"]
        kept = {"name": name, "namespace": "shop", "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]}
        spec = {**self._pod["spec"], "terminationGracePeriodSeconds": 0}
        for key in ("nodeName", "priority"):
            spec.pop(key)
        self._post("/api/v1/namespaces/shop/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec})

    def plan(self) -> None:
        """A cycle of the descheduler."""
        super().plan()
        self.changed("descheduler")

    def kubelets(self) -> None:
        """Bound pods run."""
        super().kubelets()
        self.changed("kubelet")

    def changed(self, who: str) -> None:
        """Lines about what is another than before."""
        state = dict(self._state())
        for name, text in state.items():
            if self._shown.get(name) != text:
                self.lines.append(f"{self.now - self._began:4.0f} s  {who:<12}  {name}: {text}")
        for name in sorted(self._shown.keys() - state.keys()):
            self.lines.append(f"{self.now - self._began:4.0f} s  {who:<12}  {name}: gone")
        self._shown = state

    def _state(self) -> Iterator[tuple[str, str]]:
        names: dict[str, str] = {}
        for job in self.all("PodMigrationJob"):
            status = job.get("status") or {}
            words = " ".join(status.get(key, "") for key in ("phase", "status", "reason"))
            yield f"job for {job['spec']['podRef']['name']}", " ".join(words.split()) or "made"
        for place in self.all("Reservation"):
            names[place["metadata"]["uid"]] = name = "reservation"
            status, notes = place.get("status") or {}, place["metadata"].get("annotations") or {}
            where = f" on {status['nodeName']}" if status.get("nodeName") else ""
            taken = "".join(f", taken by {owner['name']}" for owner in status.get("currentOwners") or ())
            yield name, f"{status.get('phase') or 'Pending'}{where}{_cpus(notes)}{taken}"
        for pod in self.all("Pod"):
            meta, labels = pod["metadata"], pod["metadata"].get("labels") or {}
            if labels.get("app") == APP or keys.RESERVATION_UID in labels:
                what = "placeholder" if keys.RESERVATION_UID in labels else f"pod {meta['name']}"
                yield what, _where(pod)


def _where(pod: Object) -> str:
    notes, status = pod["metadata"].get("annotations") or {}, pod.get("status") or {}
    node, nominated = pod["spec"].get("nodeName"), status.get("nominatedNodeName")
    if not node:
        return f"waits{f', room is kept for it on {nominated}' if nominated else ''}"
    return f"{'runs' if status.get('phase') == 'Running' else 'bound'} on {node}{_cpus(notes)}"


def _cpus(notes: dict[str, str]) -> str:
    text = notes.get(keys.RESOURCE_STATUS)
    return f" with CPUs {pod_reader.parse_resource_status(text).cpuset}" if text else ""


def play(manifests: pathlib.Path, show: Callable[[str], Any]) -> Object:
    """The act from the plan to the end, each line shown as it comes; the job as it ended."""
    clock = ManualClock(MORNING)
    with tempfile.TemporaryDirectory() as folder, ApiServer(seed=1, clock=clock, controllers=True) as server:
        tour = Tour(server, clock, pathlib.Path(folder), manifests)
        tour.plan()
        for _ in range(12):
            for line in tour.lines:
                show(line)
            tour.lines.clear()
            job = tour.job()
            if (job.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                return job
            tour.run(1)
        return tour.job()


if __name__ == "__main__":
    print(f"A pod on reserved CPUs of {NODE} moves by reservation (emulated: API server, kube-scheduler, kubelets)")
    play(pathlib.Path(sys.argv[1]), print)
