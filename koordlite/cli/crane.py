"""`crane assign`: the topology result that Crane's scheduler would have written for a pod that is bound already."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from pathlib import Path

import msgspec

from koordlite import commandline
from koordlite.kube.client import access, answers
from koordlite.kube.client.access import Api, ApiError
from koordlite.kube.folder import manifest_files
from koordlite.model import keys, printable
from koordlite.model.errors import InputError, Problem, refusing
from koordlite.model.pod.pod_reader import from_wire
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity
from koordlite.model.wire import crane as wire
from koordlite.model.wire import objects
from koordlite.model.wire.crane import TopologyObject
from koordlite.numa.crane import scheduling
from koordlite.numa.crane.scheduling import CraneVerdict

_GONE = ("Succeeded", "Failed")


class Scene(msgspec.Struct, frozen=True):
    """The pod, the others on its node, and Crane's object of the node."""

    pod: objects.PodObject
    others: tuple[objects.PodObject, ...]
    topology: TopologyObject | None


def assign(args: argparse.Namespace) -> int:
    """`crane assign NS/POD`: print the result, and with --write put it on the pod. 1: there is none for this pod."""
    namespace, _, name = args.pod.partition("/")
    if not (namespace and name):
        raise InputError(Problem("command line", "NS/POD", args.pod, "not a pod", "write namespace/name"))
    api = None
    if args.cluster:
        scene = of_folder(Path(args.cluster), namespace, name)
    else:
        api = access.connect(args.kubeconfig or None, args.context or None, user_agent="koordlite-crane")
        scene = of_api(api, namespace, name)
    verdict, pod = judge(scene), from_wire(scene.pod)
    node, present = scene.pod.spec.node_name, pod.annotations.get(keys.CRANE_TOPOLOGY_RESULT)
    document = {"pod": pod.key, "node": node, "present": present, "verdict": verdict}
    commandline.print_answer(args.output, "koordlite-crane", document, lines(pod, node, verdict))
    if keys.CRANE_TOPOLOGY_RESULT in pod.annotations:
        return 0
    if not verdict.annotation:
        return 1
    if args.write:
        if api is None:
            why = "a folder of manifests is only read"
            raise InputError(Problem("command line", "--write", args.cluster, why, "leave --cluster out"))
        write(api, scene.pod, verdict.annotation)
        print(printable.one_line(f"written to {namespace}/{name}"), file=sys.stderr)
    return 0


def judge(scene: Scene) -> CraneVerdict:
    """Answer of Crane's scheduler about the pod on its own node."""
    pod = from_wire(scene.pod)
    there = (from_wire(other) for other in scene.others if other.status.phase not in _GONE)
    allocations = [
        {wire.zone_name(node): {"cpu": Quantity.of(cpus)} for node, cpus in other.crane.zones} for other in there
    ]
    request = scheduling.CranePod(
        containers=[(c.name, c.requests, c.limits) for c in pod.containers if not c.init],
        policy=pod.crane.policy,
        only=pod.crane.containers,
        aware=pod.crane.aware,
        of_daemon_set=any(owner.kind == "DaemonSet" for owner in scene.pod.metadata.owner_references or ()),
    )
    return scheduling.verdict(request, scene.topology, allocations)


def lines(pod: Pod, node: str, verdict: CraneVerdict) -> Sequence[str]:
    """The answer in lines."""
    present = pod.annotations.get(keys.CRANE_TOPOLOGY_RESULT)
    if present is not None:
        return (f"{pod.key} has a topology result, which stays: {present}",)
    if verdict.text:
        return (f"{pod.key} gets no CPUs on {node}: {verdict.text}", verdict.detail)
    if not verdict.annotation:
        return (f"{pod.key} gets no CPUs on {node}: {verdict.detail}",)
    return (f"{pod.key} on {node}: {verdict.detail}", f"{keys.CRANE_TOPOLOGY_RESULT}: {verdict.annotation}")


def write(api: Api, pod: objects.PodObject, annotation: str) -> None:
    """Put the result on the pod, if it is still the same one. InputError when the server refuses."""
    meta = pod.metadata
    body = {"metadata": {"uid": meta.uid, "annotations": {keys.CRANE_TOPOLOGY_RESULT: annotation}}}
    try:
        api.request("PATCH", f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}", body=body)
    except ApiError as error:
        do = "allow this identity to patch pods; where tenant-guard is applied, its policy has to name it"
        where = f"pod/{meta.namespace}/{meta.name}"
        raise InputError(Problem(where, keys.CRANE_TOPOLOGY_RESULT, annotation, str(error), do)) from error


def of_api(api: Api, namespace: str, name: str) -> Scene:
    """The scene as the API server has it. InputError when the pod is not there, or not bound."""
    try:
        pod = api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").read(objects.PodObject)
        node = _node_of(pod)
        page = api.collect("/api/v1/pods", query=(("fieldSelector", f"spec.nodeName={node}"),))
        pods = [answers.read(item, objects.PodObject) for item in page.items]
        try:
            topology = api.request("GET", f"{wire.PATH}/{node}").read(TopologyObject)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            topology = None
        return _scene(pod, pods, topology)
    except ApiError as error:
        kind = "noderesourcetopologies.topology.crane.io"
        do = f"check the name, and that this identity may get and list pods and get {kind}"
        raise InputError(Problem(f"pod/{namespace}/{name}", "$", "", str(error), do)) from error


def of_folder(folder: Path, namespace: str, name: str) -> Scene:
    """The scene as a folder of manifests has it. InputError when the pod is not there, or not bound."""
    pods: list[objects.PodObject] = []
    topologies: dict[str, TopologyObject] = {}
    for place, content in manifest_files.contents_of_folder(folder):
        with refusing(place, "$", "", "correct the manifest"):
            if content["kind"] == "Pod":
                pods.append(manifest_files.completed(msgspec.convert(content, objects.PodObject, strict=False)))
            elif content["kind"] == wire.KIND and content.get("apiVersion") == wire.API_VERSION:
                topology = msgspec.convert(content, TopologyObject, strict=False)
                topologies[topology.metadata.name] = topology
    pod = next((each for each in pods if (each.metadata.namespace, each.metadata.name) == (namespace, name)), None)
    if pod is None:
        do = "check the name"
        raise InputError(Problem(str(folder), "Pod", f"{namespace}/{name}", "there is no such pod", do))
    return _scene(pod, pods, topologies.get(_node_of(pod)))


def _node_of(pod: objects.PodObject) -> str:
    if pod.spec.node_name:
        return pod.spec.node_name
    why, do = "it is on no node yet", "let the scheduler bind it: the extender writes the result with the Binding"
    raise InputError(Problem(f"pod/{pod.metadata.namespace}/{pod.metadata.name}", "spec.nodeName", "", why, do))


def _scene(pod: objects.PodObject, pods: Iterable[objects.PodObject], topology: TopologyObject | None) -> Scene:
    node, key = pod.spec.node_name, (pod.metadata.namespace, pod.metadata.name)
    others = (each for each in pods if (each.metadata.namespace, each.metadata.name) != key)
    return Scene(pod, tuple(each for each in others if each.spec.node_name == node), topology)
