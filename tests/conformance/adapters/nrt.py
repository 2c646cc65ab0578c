"""What a node says on its NodeResourceTopology: the strategies judge a picture, a folder cluster publishes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from koordlite import strategies
from koordlite.changes.published import TopologyChange, TopologyLabelChange, ZonesChange
from koordlite.formulas.cpu import pools
from koordlite.formulas.topology import topology_diff, zones
from koordlite.kube.folder.published import Published
from koordlite.kube.kubelet import configz
from koordlite.model import keys, node, nrt, snapshot
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.picture.published import Published as PublishedTopology
from koordlite.model.quantity import Quantity
from koordlite.model.topology import NUMANode, Topology
from koordlite.model.wire import objects
from koordlite.observe.inputs import Inputs
from koordlite.ports import ClusterView
from tests.conformance.adapters import adapter, shapes

ANNOTATIONS = {key.rpartition("/")[2]: key for key in topology_diff.ANNOTATIONS}
PUBLISHING = (TopologyChange, TopologyLabelChange, ZonesChange)


@adapter("reportNodeTopology")
def report(given: Any, expect: Any) -> tuple[Any, Any]:
    published = Published("node", None)
    seen, described, before = _picture(given)
    changes = [
        change for d in strategies.decide_all(seen, {}) for change in d.changes if isinstance(change, PUBLISHING)
    ]
    published.publish(changes, node=described, topology=before)
    topology = published.topology or objects.NRTObject()
    said = {
        **{name: json.loads(text) for name, key in ANNOTATIONS.items() if (text := _note(topology, key))},
        "topologyPolicies": list(topology.topology_policies or ()),
        "zones": msgspec.to_builtins(topology.zones or ()),
        "labels": _managed(topology.metadata.labels or {}, expect),
    }
    named = [name for name in said if name in expect]
    return _comparable({name: said[name] for name in named}), _comparable(expect)


@adapter("calGuaranteedCpu")
def kept_by_kubelet(given: Any, expect: Any) -> tuple[Any, Any]:
    pods = [shapes.pod_of(item) for item in given["pods"]]
    try:
        state = configz.parse_cpu_manager_state(given["checkpoint"].encode())
    except InputError:
        return {"error": True}, {"error": expect.get("error", False)}
    named = {pod.uid: (pod.namespace, pod.name) for pod in pods}
    found = [
        {"uid": held.uid, "cpuset": str(held.cpus), "managedByKubelet": True, **_named(named.get(held.uid))}
        for held in pools.by_kubelet(state.pod_cpus, pods)
    ]
    return found, expect if "error" in expect else expect.get("podAllocs") or []


@adapter("getTopologyPolicy")
def topology_policy(given: Any, expect: Any) -> tuple[Any, Any]:
    return nrt.topology_policy(given.get("topologyManagerPolicy", ""), given.get("topologyManagerScope", "")), expect


@adapter("divideResourceByCount")
def share(given: Any, expect: Any) -> tuple[Any, Any]:
    return zones.share(Quantity.parse(given["quantity"]), given["count"]), Quantity.parse(expect)


@adapter("applyNUMAReservationToZoneResources")
def numa_reservation(given: Any, expect: Any) -> tuple[Any, Any]:
    reserved = shapes.quantities(given.get("nodeReserved"))
    shares = {name: zones.share(amount, given["numaCount"]) for name, amount in reserved.items()}
    found = {
        name: (shapes.quantities(zone["Capacity"]), zones.without(shapes.quantities(zone["Allocatable"]), shares))
        for name, zone in given["zoneResources"].items()
    }
    wanted = {n: (shapes.quantities(z["Capacity"]), shapes.quantities(z["Allocatable"])) for n, z in expect.items()}
    return found, wanted


@adapter("nodeTopologyStatus.isChanged")
def changed(given: Any, expect: Any) -> tuple[Any, Any]:
    old, new = given.get("oldTopo") or {}, given["newTopoStatus"]
    before = msgspec.convert(old, objects.NRTObject, strict=False)
    notes, labels = new.get("Annotations") or {}, new.get("Labels") or {}
    wanted = topology_diff.Report(
        annotations={key: notes.get(key) for key in topology_diff.ANNOTATIONS},
        labels={keys.NUMA_RESERVATION: labels.get(keys.NUMA_RESERVATION)},
        policies=(new.get("TopologyPolicy", ""),),
        zones=msgspec.convert(new.get("Zones") or (), tuple[objects.Zone, ...], strict=False),
    )
    difference = topology_diff.difference(_published(before), wanted)
    found = {"changed": bool(difference), "reason": difference}
    wanted_answer = expect if isinstance(expect, dict) else {"changed": expect}
    return {name: found[name] for name in wanted_answer}, wanted_answer


def _picture(given: Any) -> tuple[snapshot.Snapshot, objects.NodeObject, objects.NRTObject | None]:
    topology, before = _topology(given), _existing(given)
    described = objects.NodeObject(
        metadata=objects.ObjectMeta(
            name="node", annotations=given.get("nodeAnnotations") or {}, labels=given.get("nodeLabels") or {}
        ),
        status=msgspec.convert(given.get("nodeStatus") or {}, objects.NodeStatus, strict=False),
    )
    pods = msgspec.convert(given.get("pods") or (), tuple[objects.PodObject, ...], strict=False)
    seen_by_kubelet = _kubelet(given, topology)
    view = ClusterView(node=described, pods=pods, config=None, topology=before, kubelet=seen_by_kubelet)
    known = Inputs().read(view, topology)
    seen = shapes.snapshot(
        taken_at="2026-01-01T00:00:00Z",
        node=known.node,
        slo=known.slo,
        topology=topology,
        reserved=known.reserved,
        system_qos=known.system_qos,
        kubelet=known.kubelet,
        pods=known.pods,
        published=_published(before),
        cpu_info=msgspec.convert(given.get("basicInfo") or {}, nrt.CPUBasicInfo),
    )
    return seen, described, before


def _topology(given: Any) -> Topology:
    cpus = tuple(shapes.cpus(given["cpus"]))
    ids = sorted({cpu.node for cpu in cpus})
    memory = dict(zip(ids, given.get("numaMemTotalKiB") or [], strict=False))
    nodes = (NUMANode(n, CPUSet(c.id for c in cpus if c.node == n), memory.get(n, 0) * 1024) for n in ids)
    return Topology(cpus, tuple(nodes))


def _kubelet(given: Any, topology: Topology) -> Kubelet:
    if given.get("disableQueryKubeletConfig"):
        return Kubelet()
    config = configz.parse_configz(json.dumps({"kubeletconfig": given.get("kubelet") or {}}).encode())
    state = configz.parse_cpu_manager_state(_checkpoint(given))
    return configz.combine(config, state, topology)[0]


def _checkpoint(given: Any) -> bytes:
    """The checkpoint file under whatever name it is given, as text, as JSON, or as its entries alone."""
    held = next((v for k, v in given.items() if "state" in k.lower() or "checkpoint" in k.lower()), None)
    if not held:
        return b""
    if isinstance(held, str):
        return held.encode()
    return json.dumps(held if "entries" in held else {"policyName": "static", "entries": held}).encode()


def _existing(given: Any) -> objects.NRTObject | None:
    """What stands on the object before, when the case gives it: the object, or its zones alone."""
    held = next((v for k, v in given.items() if "zone" in k.lower() or (isinstance(v, dict) and "zones" in v)), None)
    if not held:
        return None
    return msgspec.convert({"zones": held} if isinstance(held, list) else held, objects.NRTObject, strict=False)


def _published(before: objects.NRTObject | None) -> PublishedTopology:
    before = before or objects.NRTObject()
    return PublishedTopology(
        node_resources={},
        topology=before.metadata.annotations or {},
        zones=before.zones or (),
        topology_policies=before.topology_policies or (),
        topology_labels=before.metadata.labels or {},
    )


def _managed(labels: Mapping[str, str], expect: Any) -> dict[str, str]:
    """The label that is handed on from the Node, and those that the case names."""
    names = {keys.NUMA_RESERVATION, *(expect.get("labels") or {})}
    return {name: text for name, text in labels.items() if name in names}


def _note(topology: objects.NRTObject, key: str) -> str | None:
    return (topology.metadata.annotations or {}).get(key)


def _named(pod: tuple[str, str] | None) -> dict[str, str]:
    return {"namespace": pod[0], "name": pod[1]} if pod else {}


def _comparable(said: Any) -> Any:
    """Sets as sets, amounts as amounts, and no difference between nothing, `null` and `{}`."""
    shown = {name: value or None for name, value in said.items()}
    for name in ("cpu-shared-pools", "be-cpu-shared-pools"):
        if name in said:
            shown[name] = shapes.written_pools(said[name])
    if said.get("reservation"):
        shown["reservation"] = {**said["reservation"]}
        shown["reservation"]["resources"] = shapes.quantities(said["reservation"].get("resources"))
    if "system-qos-resource" in said:
        shown["system-qos-resource"] = _system_qos(said["system-qos-resource"])
    if said.get("zones"):
        shown["zones"] = [(z["name"], z["type"], _amounts(z.get("resources") or ())) for z in said["zones"]]
    return shown


def _system_qos(said: Any) -> Any:
    """What it means; what cannot be read stays as it is."""
    try:
        return node.parse_system_qos(json.dumps(said), "node")
    except InputError:
        return said


def _amounts(resources: Any) -> dict[str, Any]:
    fields = ("capacity", "allocatable", "available")
    return {r["name"]: tuple(Quantity.parse(r[field]) for field in fields) for r in resources}
