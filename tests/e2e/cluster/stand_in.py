"""The small scheduler of `tests/support/topocluster` on the wall clock, where no kube-scheduler is to be had.

It asks extenders over HTTP as kube-scheduler 1.36 does: an error or a timeout of an ignorable one is passed over, also
of bind, after which the pod is bound without it; of any other one the attempt is an error, and the pod is tried again.
An attempt that came to nothing is a condition of the pod, and ends its nomination.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import random
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from koordlite.kube.client.access import Api, ApiError, ApiUnreachable
from koordlite.kube.watch.reflector import Reflector, Source
from koordlite.kube.watch.store import Feed
from koordlite.kube.watch.watcher import Watching
from koordlite.model import duration
from koordlite.model.wire import objects
from tests.e2e.cluster.timeline import Timeline
from tests.support.topocluster.scheduler import BACKOFF, MOST_BINDS, Scheduler, Waiting

PODS: Source[objects.PodObject] = Source(name="pods", kind="pod", shape=objects.PodObject, paths=("/api/v1/pods",))
NODES: Source[objects.NodeObject] = Source(
    name="nodes", kind="node", shape=objects.NodeObject, paths=("/api/v1/nodes",)
)


class ExtenderError(Exception):
    """An extender did not answer, or answered with an error."""


class HTTPExtenders:
    """The extenders of a KubeSchedulerConfiguration."""

    def __init__(self, stanzas: Sequence[Mapping[str, Any]], store: ApiStore) -> None:
        self._stanzas, self._store = stanzas, store

    def filter(self, obj: objects.PodObject, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        passed, refused = list(names), dict[str, str]()
        for stanza in self._of(obj, "filterVerb"):
            try:
                answer = _ask(stanza, "filterVerb", {"Pod": _wire(obj), "NodeNames": passed})
            except ExtenderError:
                if stanza.get("ignorable"):
                    continue
                raise
            passed = answer.get("NodeNames") or []
            refused |= (answer.get("FailedNodes") or {}) | (answer.get("FailedAndUnresolvableNodes") or {})
        return passed, refused

    def prioritize(self, obj: objects.PodObject, names: Sequence[str]) -> list[tuple[str, int]]:
        scores = dict.fromkeys(names, 0)
        for stanza in self._of(obj, "prioritizeVerb"):
            with contextlib.suppress(ExtenderError):  # kube-scheduler passes these over, whatever `ignorable` says.
                for each in _ask(stanza, "prioritizeVerb", {"Pod": _wire(obj), "NodeNames": list(names)}):
                    scores[each["Host"]] += each["Score"]
        return list(scores.items())

    def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        obj = self._store.pods.get(f"{namespace}/{name}")
        for stanza in self._of(obj, "bindVerb") if obj is not None else ():
            try:
                _ask(stanza, "bindVerb", {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node})
                return ""
            except ExtenderError as error:
                if not stanza.get("ignorable"):
                    return str(error)
        return self._store.bind(f"{namespace}/{name}", uid, node, {})

    def _of(self, obj: objects.PodObject, verb: str) -> Iterator[Mapping[str, Any]]:
        """Those that have the verb and are interested in the pod."""
        asked = {
            resource
            for container in (*(obj.spec.init_containers or ()), *(obj.spec.containers or ()))
            if container.resources
            for resource in {**(container.resources.requests or {}), **(container.resources.limits or {})}
        }
        for stanza in self._stanzas:
            managed = {each["name"] for each in stanza.get("managedResources", ())}
            if stanza.get(verb) and (not managed or managed & asked):
                yield stanza


class ApiStore:
    """`topocluster.Store`, as far as its scheduler needs one, at an API server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.pods: dict[str, objects.PodObject] = {}

    def bind(self, key: str, uid: str, node: str, annotations: dict[str, str]) -> str:
        """POST of a Binding; the server's refusal, or nothing."""
        namespace, _, name = key.partition("/")
        meta = {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        try:
            self._api.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body=body)
        except (ApiError, ApiUnreachable) as error:
            return str(error)
        return ""

    def unschedulable(self, key: str, uid: str, why: str, reason: str = "Unschedulable") -> None:
        """PATCH of the pod's status; nothing where it says so already."""
        pod = self.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            return
        others = [each for each in pod.status.conditions or () if each.type != "PodScheduled"]
        said = objects.PodCondition(type="PodScheduled", status="False", reason=reason, message=why)
        if said in (pod.status.conditions or ()) and not pod.status.nominated_node_name:
            return
        conditions = [*others, said]
        status = {"conditions": msgspec.to_builtins(conditions), "nominatedNodeName": None}
        namespace, _, name = key.partition("/")
        body = {"metadata": {"uid": uid}, "status": status}
        with contextlib.suppress(ApiError, ApiUnreachable):  # It is gone, bound, or tried again later.
            self._api.request(
                "PATCH",
                f"/api/v1/namespaces/{namespace}/pods/{name}/status",
                body=body,
                content_type="application/merge-patch+json",
            )


class StandIn(Scheduler):
    """One that takes an extender's errors as kube-scheduler does, and binds beside the questions about the next pods:
    the extender waits for a binding before it answers them."""

    def __init__(self, *, timeline: Timeline, **others: Any) -> None:
        super().__init__(events=timeline, **others)  # type: ignore[arg-type]
        self._timeline = timeline
        self._binders = concurrent.futures.ThreadPoolExecutor(MOST_BINDS, "bind")

    def stop(self) -> None:
        """Wait for the bindings that were sent."""
        self._binders.shutdown()

    def _send(self, waiting: Waiting, node: str) -> None:
        self._binders.submit(self._bind, waiting, node).add_done_callback(self._note)

    def _note(self, binding: concurrent.futures.Future[None]) -> None:
        if (failure := binding.exception()) is not None:
            self._timeline.failures.append(failure)

    def _attempt(self, key: str) -> None:
        waiting = self._waiting.get(key)
        try:
            super()._attempt(key)
        except ExtenderError as error:
            assert waiting is not None
            self._store.unschedulable(key, waiting.pod.metadata.uid, str(error), "SchedulerError")  # type: ignore[call-arg]
            self.counts["extender errors"] += 1
            seconds = BACKOFF[min(waiting.errors, len(BACKOFF) - 1)]
            waiting.errors += 1
            self._events.after(seconds, self._wake, key)
            self._go()


@contextlib.contextmanager
def running(api: Api, name: str, stanzas: Sequence[Mapping[str, Any]], chance: random.Random) -> Iterator[None]:
    """Schedule the pods that ask for `name` until the end."""
    timeline, store = Timeline("scheduler"), ApiStore(api)
    extender = HTTPExtenders(stanzas, store)
    scheduler = StandIn(
        timeline=timeline,
        store=store,
        chance=chance,
        extender=extender,
        name=name,
        bind_took=(0.0, 0.001),
        tells=True,
    )

    def put_node(obj: objects.NodeObject) -> None:
        if obj.status.allocatable:
            timeline.after(0.0, scheduler.put_node, obj)

    def gone_node(name: str) -> None:
        timeline.after(0.0, scheduler.remove_node, name)

    def put_pod(obj: objects.PodObject) -> None:
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        store.pods[key] = obj
        timeline.after(0.0, scheduler.put_pod, obj)

    def gone(key: str) -> None:
        store.pods.pop(key, None)
        timeline.after(0.0, scheduler.remove_pod, key)

    nodes: Feed[objects.NodeObject] = Feed(NODES.kind, NODES.shape, put=put_node, removed=gone_node)
    pods: Feed[objects.PodObject] = Feed(PODS.kind, PODS.shape, put=put_pod, removed=gone)
    watches: list[Watching[Any]] = [
        Watching(api, Reflector(NODES, uniform=random.uniform, store=nodes), monotonic=time.monotonic),
        Watching(api, Reflector(PODS, uniform=random.uniform, store=pods), monotonic=time.monotonic),
    ]
    timeline.start()
    for watch in watches:
        watch.start()
    try:
        yield
    finally:
        for watch in watches:
            watch.stop()
        timeline.stop()
        scheduler.stop()
    assert not timeline.failures, timeline.failures


def _ask(stanza: Mapping[str, Any], verb: str, body: Any) -> Any:
    """One question, with the time that the stanza gives."""
    url = urllib.parse.urlsplit(stanza["urlPrefix"])
    seconds = duration.of_option(stanza.get("httpTimeout", "5s"), "httpTimeout")
    connection = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=seconds)
    try:
        head = {"Content-Type": "application/json"}
        connection.request("POST", f"{url.path}/{stanza[verb]}", json.dumps(body), head)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ExtenderError(str(error)) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ExtenderError(f"{answer.status}: {text.decode(errors='replace')[:200]}")
    found = json.loads(text)
    if isinstance(found, dict) and found.get("Error"):
        raise ExtenderError(found["Error"])
    return found


def _wire(obj: objects.PodObject) -> Any:
    return msgspec.to_builtins(obj)
