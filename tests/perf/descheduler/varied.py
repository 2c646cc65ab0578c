"""Clusters with as much variety as real ones have, as `kubectl get -o json` would write them.

    python tests/perf/descheduler/varied.py --nodes 1000 --into DIR

Two owners for five nodes, of 1 to some hundred pods each. Every pod has a label, an environment and annotations of its
own, so no two pods are equal. One owner in five has anti-affinity, one in five spread constraints, over zones or over
nodes. 3 % of the nodes are tainted, 2 % have a reservation, and nodes of three sizes are 10 to 95 % full.

With `--each` every pod also has amounts of its own, as an autoscaler of requests leaves them, a label by which others
could select it, and a toleration: no two pods share what is decided by.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import pathlib
import random
from collections.abc import Iterator

import clusters
from clusters import Object

NODE_SIZES = ((16, "65536Mi"), (32, "131072Mi"), (64, "262144Mi"))
REQUESTS = ((50, 64), (100, 256), (250, 512), (500, 1024), (1000, 2048), (2000, 4096))
"""CPU in milli and memory in MiB."""
WEIGHTS = (10, 25, 25, 20, 15, 5)
MISPLACED = 0.01
KINDS = (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job"))


@dataclasses.dataclass(frozen=True)
class Owner:
    """A workload."""

    number: int
    pods: int
    cpu_milli: int
    memory_mib: int

    @property
    def app(self) -> str:
        """Its name."""
        return f"app-{self.number}"

    @property
    def namespace(self) -> str:
        """Where it is."""
        return f"team-{self.number % 97}"

    @property
    def kind(self) -> tuple[str, str]:
        """API version and kind."""
        return KINDS[(0, 0, 0, 0, 1, 1, 2)[self.number % 7]]

    @property
    def alone(self) -> bool:
        """Its pods may not share a node."""
        return self.number % 5 == 1

    @property
    def spread(self) -> bool:
        """Its pods are spread."""
        return self.number % 5 == 3


class Nodes:
    """Nodes and how much of each is taken."""

    def __init__(self, count: int, chance: random.Random) -> None:
        self.cpu_milli = [NODE_SIZES[number % 3][0] * 1000 for number in range(count)]
        self._chance = chance
        self._left = [int(whole * chance.uniform(0.10, 0.95)) for whole in self.cpu_milli]
        self._open = [number for number in range(count) if not tainted(number)]

    def take(self, cpu_milli: int, elsewhere: set[int]) -> int:
        """A node with so much left below its own mark, none of `elsewhere` if one is found soon."""
        for _ in range(40):
            place = self._chance.randrange(len(self._open))
            node = self._open[place]
            if self._left[node] < 50:
                self._open[place] = self._open[-1]
                self._open.pop()
            elif self._left[node] >= cpu_milli and node not in elsewhere:
                self._left[node] -= cpu_milli
                return node
        return node


def tainted(number: int) -> bool:
    """3 % of the nodes."""
    return number * 3 % 100 < 3


def write(folder: pathlib.Path, nodes: int, *, each: bool = False) -> None:
    """Write one file a kind; `each`: every pod with amounts, a label and a toleration of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(nodes)
    owners = list(_owners(nodes, chance))
    clusters.write_list(folder / "nodes.json", "Node", (json.dumps(_node(number)) for number in range(nodes)))
    clusters.write_list(folder / "topologies.json", "NodeResourceTopology", map(clusters.topology, range(nodes)))
    clusters.write_list(folder / "pods.json", "Pod", _pods(owners, nodes, chance, each=each))
    budgets = (json.dumps(_budget(owner)) for owner in owners if owner.number % 3 == 0)
    clusters.write_list(folder / "budgets.json", "PodDisruptionBudget", budgets)
    names = sorted({owner.namespace for owner in owners})
    clusters.write_list(folder / "namespaces.json", "Namespace", (json.dumps(clusters.named(name)) for name in names))


def _owners(nodes: int, chance: random.Random) -> Iterator[Owner]:
    """Many small ones and a few large ones, with 30 pods a node in all."""
    count = max(1, nodes * 2 // 5)
    shares = [chance.lognormvariate(0, 0.9) for _ in range(count)]
    left, whole = nodes * clusters.PODS_A_NODE, sum(shares)
    for number, share in enumerate(shares):
        pods = left if number == count - 1 else max(1, int(share / whole * nodes * clusters.PODS_A_NODE))
        left -= pods
        cpu, memory = chance.choices(REQUESTS, WEIGHTS)[0]
        yield Owner(number, pods, cpu, memory)


def _node(number: int) -> Object:
    node = clusters.node(number)
    cpus, memory = NODE_SIZES[number % 3]
    amounts = {"cpu": str(cpus), "memory": memory, "pods": "110", "ephemeral-storage": "200Gi"}
    node["status"] |= {"capacity": amounts, "allocatable": amounts}
    node["metadata"]["labels"] |= {"pool": "special" if tainted(number) else "general", "rack": f"rack-{number // 40}"}
    node["metadata"]["annotations"] = {f"note.example/{key}": f"{key}-{number}" for key in ("serial", "slot")}
    if number % 50 == 7:
        node["metadata"]["annotations"]["node.koordinator.sh/reservation"] = '{"resources":{"cpu":"2"}}'
    node["spec"] = {"taints": [{"key": "pool", "value": "special", "effect": "NoSchedule"}]} if tainted(number) else {}
    return node


def _budget(owner: Owner) -> Object:
    meta = {"name": owner.app, "namespace": owner.namespace}
    spec = {"minAvailable": "80%", "selector": {"matchLabels": {"app": owner.app}}}
    status = {"disruptionsAllowed": max(1, owner.pods // 5), "currentHealthy": owner.pods}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec, "status": status}


def _pods(owners: list[Owner], nodes: int, chance: random.Random, *, each: bool) -> Iterator[str]:
    places = Nodes(nodes, chance)
    for owner in owners:
        text = json.dumps(_template(owner), separators=(",", ":"))
        used: set[int] = set()
        for number in range(owner.pods):
            if each:
                text = json.dumps(_own(owner, number, chance), separators=(",", ":"))
            odd = chance.random()
            node = chance.randrange(nodes) if odd < MISPLACED else places.take(owner.cpu_milli, used)
            used |= {node} if owner.alone else set()
            yield clusters.filled(text, owner.number, number, node, chance)


def _template(owner: Owner) -> Object:
    version, kind = owner.kind
    reference = {"apiVersion": version, "kind": kind, "name": owner.app, "uid": f"owner-{owner.number}"}
    meta = {
        "name": "@POD@",
        "namespace": owner.namespace,
        "uid": "@UID@",
        "labels": {"app": owner.app, "tier": f"tier-{owner.number % 5}", "instance": "@POD@"},
        "annotations": {
            "cni.projectcalico.org/podIP": "@IP@/32",
            "example.com/configuration": f"checksum-@UID@-{owner.number}",
            "example.com/started-by": "controller-@TOKEN@",
        },
        "creationTimestamp": "@STARTED@",
        "resourceVersion": "1@TOKEN@",
        "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
    }
    status = clusters.status(owner.number)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": _spec(owner), "status": status}


def _own(owner: Owner, number: int, chance: random.Random) -> Object:
    """The template with what is this pod's own."""
    cpu, memory = (int(amount * chance.uniform(0.8, 1.2)) for amount in (owner.cpu_milli, owner.memory_mib))
    pod = _template(dataclasses.replace(owner, cpu_milli=cpu, memory_mib=memory))
    pod["metadata"]["labels"]["shard"] = f"{owner.app}-{number}"
    pod["spec"]["tolerations"] = [{"key": "shard", "value": f"{number}", "effect": "NoSchedule"}]
    return pod


def _spec(owner: Owner) -> Object:
    spec = clusters.spec(owner.number) | {"priority": 1000 * (owner.number % 4), "containers": [_container(owner)]}
    spec.pop("affinity", None)
    spec.pop("topologySpreadConstraints", None)
    selector = {"labelSelector": {"matchLabels": {"app": owner.app}}}
    if owner.alone:
        term = {**selector, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if owner.spread:
        key = ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone", "kubernetes.io/hostname")[owner.number % 3]
        constraint = {"maxSkew": 1 + owner.number % 4, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**constraint, **selector}]
    return spec


def _container(owner: Owner) -> Object:
    container = clusters.container(owner.number, "main")
    amounts = {"cpu": f"{owner.cpu_milli}m", "memory": f"{owner.memory_mib}Mi"}
    own = ({"name": f"OWN_{number}", "value": f"@POD@-@TOKEN@-{number}"} for number in range(6))
    container["env"] = list(itertools.chain(container["env"][:6], own))
    container["resources"] = {"requests": amounts, "limits": {"memory": amounts["memory"]}}
    return container


def main() -> None:
    """Write one cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument(
        "--each", action="store_true", help="every pod with amounts, a label and a toleration of its own"
    )
    args = parser.parse_args()
    write(args.into, args.nodes, each=args.each)


if __name__ == "__main__":
    main()
