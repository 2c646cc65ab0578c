"""Runs on a real kernel with two NUMA nodes: CPU sets are widened by hand; what the agent may repair it repairs, what
it may not is in the descheduler's plan, with a better home.

Prints one line of JSON for each claim: {"claim": …, "ok": …, "detail": …}. The argument is a folder to work in.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from guestclaims import ALL, claim, tell
from realnode.command import Command, soon
from realnode.manifests import NODE, Manifests
from realnode.pods import Pod
from realnode.tree import PREFIX, Tree

"""An emulated machine whose host is busy takes minutes to start Python."""
OURS = Pod("by-koordinator", "Guaranteed", "LSR", pinned="2-3")
KUBELETS = Pod("by-kubelet", "Guaranteed", "LSR")
KUBELET = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "container",
}
PLACEMENT = "placement.koordlite.io/containers"
POLICY = """
profiles:
- name: numa
  pluginConfig:
  - name: NUMAAlignment
    args: {minPodAge: "0", maxReportAge: 10m}
  plugins: {deschedule: {enabled: [NUMAAlignment]}}
"""


class Machine:
    """Two pods with promises, and a second node of the same make that exists only in files."""

    def __init__(self, tree: Tree, work: pathlib.Path) -> None:
        self.tree, self.work = tree, work
        self.manifests = Manifests(work / "cluster")
        self.manifests.node()
        self.manifests.config(threshold={"clusterStrategy": {"enable": False}})
        self._kubelet()
        for pod, cpus in ((OURS, 2), (KUBELETS, 1)):
            self.manifests.pod(pod)
            self._complete(pod, cpus)
            tree.add(pod)
        for pod, cpus in ((OURS, "2-3"), (KUBELETS, "6")):
            for group in reversed(tree.groups_of(pod)):
                self.widen(group, cpus)

    def _kubelet(self) -> None:
        """What kubelet's own files say: CPU 6, of the second NUMA node, is the pod's alone."""
        folder = self.manifests.folder
        config = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **KUBELET}
        (folder / "kubelet.yaml").write_text(json.dumps({**config, "reservedSystemCPUs": "0"}))
        entries = {KUBELETS.uid: {"main": "6"}}
        state = {"policyName": "static", "defaultCpuSet": "0-5,7", "entries": entries, "checksum": 0}
        (folder / "cpu_manager_state").write_text(json.dumps(state))

    def _complete(self, pod: Pod, cpus: int) -> None:
        """An owner, whole CPUs, and for Koordinator's pod the wish for one NUMA node."""
        path = self.manifests.folder / f"pod-{pod.name}.yaml"
        body = json.loads(path.read_text())
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": pod.name, "uid": pod.name, "controller": True}
        body["metadata"] |= {"ownerReferences": [owner], "creationTimestamp": "2020-01-01T00:00:00Z"}
        amounts = {"cpu": str(cpus), "memory": "16Mi"}
        body["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        if pod.pinned:
            wish = json.dumps({"numaTopologyPolicy": "SingleNUMANode"})
            body["metadata"]["annotations"]["scheduling.koordinator.sh/numa-topology-spec"] = wish
        path.write_text(json.dumps(body))

    def widen(self, group: str, cpus: str) -> None:
        """Write a CPU set by hand, as a runbook or another agent would."""
        self.tree.file(group, "cpuset").write_text(cpus)

    def agent(self) -> Command:
        """The agent at work."""
        options = ["--cluster", str(self.manifests.folder), "--state-dir", str(self.work / "state")]
        options += ["--published", str(self.work / "published"), "--kubepods", self.tree.top]
        return Command(
            ["run", *options, "--mode", "enforce", "--no-http", "-q", "--interval", "0.5"], self.work / "log"
        )

    def topology(self) -> dict[str, Any]:
        """What the agent has published about its node; empty before."""
        for path in (self.work / "published").glob("*.json"):
            found: dict[str, Any] = json.loads(path.read_text())
            if PLACEMENT in (found.get("metadata", {}).get("annotations") or {}):
                return found
        return {}

    def placed(self, pod: Pod) -> dict[str, Any]:
        """What the agent says of the pod's container."""
        text = self.topology().get("metadata", {}).get("annotations", {}).get(PLACEMENT, '{"containers":[]}')
        return next((c for c in json.loads(text)["containers"] if c["uid"] == pod.uid), {})

    def cpus(self, pod: Pod) -> set[int]:
        """Where the kernel lets the container run."""
        return self.tree.effective(self.tree.container(pod, "main"))

    def plan(self) -> dict[str, Any]:
        """What the descheduler would do: this node as published, and a spare one of the same make."""
        (self.work / "policy.yaml").write_text(POLICY)
        here = self.topology()
        notes = {key: text for key, text in here["metadata"]["annotations"].items() if key != PLACEMENT}
        spare = {**here, "kind": "NodeResourceTopology", "metadata": {"name": "spare", "annotations": notes}}
        node = json.loads((self.manifests.folder / "node.yaml").read_text())
        other = {**node, "metadata": {"name": "spare"}}
        items = [{**here, "kind": "NodeResourceTopology"}, spare, node, other]
        items += [json.loads(path.read_text()) for path in sorted(self.manifests.folder.glob("pod-*.yaml"))]
        snapshot = self.work / "cluster.json"
        snapshot.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        options = ["--snapshot", str(snapshot), "--policy", str(self.work / "policy.yaml"), "--output", "json"]
        said = subprocess.run(
            [sys.executable, "-m", "descheduler", "plan", *options], capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, said.stderr
        document: dict[str, Any] = json.loads(said.stdout)
        return document


def check(machine: Machine) -> None:
    """Promise, fact, repair, and what only a move cures."""
    tree, agent = machine.tree, machine.agent()
    with claim("the agent publishes where the kernel lets containers run, by NUMA node"):
        soon(lambda: machine.placed(KUBELETS) and machine.placed(OURS), machine.topology, agent)
        ours, kubelets = machine.placed(OURS), machine.placed(KUBELETS)
        assert (ours["cpuset"], ours["cpusByNUMA"], ours["source"]) == ("2-3", {"0": "2-3"}, "koordinator"), ours
        assert (kubelets["cpuset"], kubelets["cpusByNUMA"], kubelets["source"]) == ("6", {"1": "6"}, "kubelet")
        assert kubelets["singleNUMA"]
        assert ours["singleNUMA"]
        assert kubelets["mems"] in ("0-1", "0", "1"), kubelets
    with claim("while all promises hold, nobody goes, and nothing is worse than that memory may come from elsewhere"):
        document = machine.plan()
        assert document["evict"] == [], document
        found = {f["reason"] for o in document["kept"] for f in o["findings"]}
        assert found <= {"MemsSpanNUMA"}, found
    with claim("a set of Koordinator's that was widened over both nodes by hand is written again"):
        for group in tree.groups_of(OURS):
            machine.widen(group, "2-5")
        assert machine.cpus(OURS) == {2, 3, 4, 5}
        soon(lambda: machine.cpus(OURS) == {2, 3}, lambda: machine.cpus(OURS), agent)
    with claim("a set of kubelet's is left alone, and published as it is"):
        for group in tree.groups_of(KUBELETS):
            machine.widen(group, "1,6")
        soon(lambda: machine.placed(KUBELETS)["cpuset"] == "1,6", lambda: machine.placed(KUBELETS), agent)
        assert machine.placed(KUBELETS)["cpusByNUMA"] == {"0": "1", "1": "6"}
        soon(lambda: machine.placed(OURS)["cpuset"] == "2-3", lambda: machine.placed(OURS), agent)
        assert machine.cpus(KUBELETS) == {1, 6}
    with claim("what is hard appears in the plan, with its promise, the fact and a better home"):
        document = machine.plan()
        assert [o["pod"] for o in document["evict"]] == [f"default/{KUBELETS.name}"], document
        (outcome,) = document["evict"]
        found = {f["reason"]: f for f in outcome["findings"]}
        assert {"CPUOutsideAssignment", "CPUSpansNUMA"} <= set(found), found
        assert "severity" not in found["CPUSpansNUMA"], "not hard"
        assert outcome["target"] in ("spare", NODE)
        assert "spare" in [place["node"] for place in outcome["fit"]["places"]], outcome["fit"]
        tell(f"seen: {found['CPUSpansNUMA']['fact']}")
    refused(machine, agent)
    assert agent.stop() == 0, agent.said()[-600:]


def refused(machine: Machine, agent: Command) -> None:
    """The group above the containers has lost the promised CPUs: version 1 refuses the set, version 2 takes it and
    does not honour it."""
    with claim("a repair that comes to nothing is told, and the descheduler takes over"):
        for group in machine.tree.groups_of(OURS)[1:]:
            machine.widen(group, "4")
        for group in machine.tree.groups_of(OURS):
            machine.widen(group, "4")
        soon(lambda: machine.placed(OURS)["fixFailed"], lambda: machine.placed(OURS), agent)
        document = machine.plan()
        outcome = next(o for o in document["evict"] if o["pod"] == f"default/{OURS.name}")
        found = [f for f in outcome["findings"] if f["reason"].startswith("CPU")]
        assert found and all("severity" not in f for f in found), outcome


def main() -> None:
    """All claims."""
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/koordlite-numa")
    work.mkdir(parents=True, exist_ok=True)
    tree = Tree(f"{PREFIX}numa-{os.getpid()}").build()
    with contextlib.closing(tree):
        check(Machine(tree, work))
    tell(ALL)


if __name__ == "__main__":
    main()
