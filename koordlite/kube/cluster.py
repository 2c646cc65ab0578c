"""The cluster through its API server: watches for what concerns this node, and few, small writes."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from koordlite.changes.eviction import EvictPod
from koordlite.kube.client import backoff
from koordlite.kube.client.access import Api
from koordlite.kube.client.answers import RequestTimes
from koordlite.kube.client.background import BackgroundRequests
from koordlite.kube.kubelet import http, static_pods
from koordlite.kube.kubelet.http import KubeletHttp
from koordlite.kube.kubelet.pod_resources import PodResourcesClient
from koordlite.kube.kubelet.resources import PodResourcesPoller
from koordlite.kube.kubelet.state import KubeletState
from koordlite.kube.kubelet.static_pods import PodsOnNode
from koordlite.kube.publish import evictions
from koordlite.kube.publish.background_report import BackgroundReport
from koordlite.kube.publish.events import Event, Events, EventType
from koordlite.kube.publish.evictions import EvictionClient
from koordlite.kube.publish.node_metric import NodeMetricReport
from koordlite.kube.publish.node_writers import NodeWriters
from koordlite.kube.publish.publisher import AT_MOST_EVERY_SECONDS, Publisher
from koordlite.kube.settings import ClusterSettings
from koordlite.kube.watch import sources
from koordlite.kube.watch.reflector import Reflector, Source
from koordlite.kube.watch.watcher import Watching
from koordlite.model.change import ClusterChange
from koordlite.model.errors import EvictionRefused, Problem
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import WatchState
from koordlite.model.topology import Topology
from koordlite.model.wire import objects
from koordlite.model.wire.reservation import ObjectReference
from koordlite.ports import Clock, ClusterView, Files

PATIENCE_SECONDS = 0.5
"""Time for which a tick waits for the answer to a write; a healthy server takes some 10 ms."""
LAST_PATIENCE_SECONDS = 15.0
"""The same once the run was asked to stop: then nothing else is waiting."""
_OPTIONAL = ("topology", "oenuma", "whitelist")
"""Inputs that a cluster may do without: their age says nothing."""


class KubeCluster:
    """`ports.Cluster` over an API server. Between `start` and `stop` it works in threads of its own."""

    def __init__(
        self,
        api: Api,
        settings: ClusterSettings,
        *,
        node_name: str,
        files: Files,
        topology: Topology,
        clock: Clock,
        user_agent: str,
        events: Events | None = None,
        reports: Sequence[BackgroundReport | NodeMetricReport] = (),
        published: Sequence[str] = (),
        pod_resources: bool = False,
        stop: threading.Event | None = None,
    ) -> None:
        """`published`: the fields of the Node that this run writes and that Koordinator's manager may write too.
        `pod_resources`: this is the machine that kubelet runs on, so its socket may be asked."""
        self._api, self._settings, self._name, self._clock = api, settings, node_name, clock
        self._agent, self._events, self._stop = user_agent, events, stop or threading.Event()
        self._reports = tuple(reports)
        self._writers = NodeWriters(published)
        self.kubelet_times = RequestTimes()
        """Time that kubelet takes to answer."""
        named = settings.affinity_namespace
        pods: list[Source[Any]] = [] if settings.pods == "kubelet" else [sources.pods(node_name)]
        affinities: list[Source[Any]] = [sources.oenuma(named), sources.whitelist(named)] if named else []
        config = sources.config_map(settings.config_namespace, settings.config_name)
        watched = (sources.node(node_name), *pods, config, sources.topology(node_name), *affinities)
        self._watches: dict[str, Watching[Any]] = {
            source.name: Watching(api, Reflector(source, uniform=backoff.uniform), monotonic=clock.monotonic)
            for source in watched
        }
        self._node, self._topology = self._watches["node"], self._watches["topology"]
        socket = f"{settings.kubelet_folder.rstrip('/')}/{settings.kubelet_pod_resources}"
        poller = PodResourcesPoller(
            PodResourcesClient(socket) if settings.kubelet_pod_resources else None,
            socket=socket,
            monotonic=clock.monotonic,
            cdi_folder=settings.cdi_folder.rstrip("/"),
        )
        self._kubelet = KubeletState(
            self._kubelet_http,
            files=files,
            folder=settings.kubelet_folder,
            topology=topology,
            with_pods=settings.pods == "kubelet",
            monotonic=clock.monotonic,
            poller=poller if pod_resources else None,
            notices=pod_resources,
        )
        self._publisher = Publisher(api, node_name, node=self._node, topology=self._topology, monotonic=clock.monotonic)
        self._evictions = EvictionClient(api)
        self._writes, self._requests = BackgroundRequests("publish"), BackgroundRequests("evict")
        self._on_node = PodsOnNode()
        self._last_pods: tuple[objects.PodObject, ...] | None = None
        self._started = clock.monotonic()

    @property
    def api(self) -> Api:
        """The API server, for questions of others."""
        return self._api

    def start(self, wait_seconds: float = 0.0) -> None:
        """Begin to watch; wait at most so long for the first answers, so that the first tick sees something."""
        for each in self._watches.values():
            each.start()
        if self._events:
            self._events.start()
        until = self._clock.monotonic() + wait_seconds
        for each in self._watches.values():
            each.wait(max(0.0, until - self._clock.monotonic()))
        # Only now: the Node says where kubelet is.
        self._kubelet.start()
        self._kubelet.wait(max(0.0, until - self._clock.monotonic()))

    def stop(self) -> None:
        """End all of it."""
        for each in (*self._watches.values(), self._kubelet, self._writes, self._requests, *self._reports):
            each.stop()
        if self._events:
            self._events.stop()

    def published(self) -> ClusterView:
        """The Node and its topology alone, whatever else is not known: for who undoes, and judges nothing."""
        return ClusterView(
            node=self._node.view().objects.get(self._name),
            pods=(),
            config=None,
            topology=self._topology.view().objects.get(self._name),
            kubelet=Kubelet(cpu_manager_policy=""),
        )

    def view(self) -> ClusterView:
        """The newest state; never waits for the network.
        Until node, pods and configuration have all been listed, the node is missing: half a picture would be judged
        as if it were whole, and no configuration as if everything were switched off."""
        views = {name: watch.view() for name, watch in self._watches.items()}
        node, config, topology, listed = views["node"], views["config"], views["topology"], views.get("pods")
        oenuma, whitelist = views.get("oenuma"), views.get("whitelist")
        kubelet = self._kubelet.view()
        pods = kubelet.pods if listed is None else self._on_node.of(listed.objects) if listed.listed else None
        problems = [problem for view in views.values() for problem in (*view.problems, *_failing(view.state))]
        if node.listed and self._name not in node.objects and not node.problems:
            do = "register it, as kubelet does when it starts, or name it as the cluster does (--node-name, NODE_NAME)"
            problems.append(Problem("API server", "node", self._name, "there is no such node", do))
        config_map = next(iter(config.objects.values()), None)
        states = (*(view.state for view in views.values()), *kubelet.states)
        if listed is not None and pods is not self._last_pods:
            self._last_pods = pods
            self._kubelet.pods_changed()
        return ClusterView(
            node=node.objects.get(self._name) if pods is not None and config.listed else None,
            pods=pods or (),
            config=config_map and (config_map.data or {}),
            topology=topology.objects.get(self._name),
            kubelet=kubelet.kubelet,
            ages=self._ages(states, resources=kubelet.resources_age),
            problems=(
                *problems,
                *self._on_node.problems,
                *kubelet.problems,
                *(problem for report in self._reports for problem in report.problems),
                *self._writers.problems,
            ),
            watches=states,
            config_version=config_map.metadata.resource_version if config_map else "",
            oenuma=next(iter(oenuma.objects.values()), None) if oenuma else None,
            whitelist=next(iter(whitelist.objects.values()), None) if whitelist else None,
            whitelist_known=whitelist is None or whitelist.listed or whitelist.state.absent,
        )

    def take_changes(self) -> bool:
        """Tell if kubelet has given out something else since the last call, and that may be written by now."""
        return self._publisher.topology_age >= AT_MOST_EVERY_SECONDS and self._kubelet.take_changes()

    def publish(self, changes: Sequence[ClusterChange]) -> None:
        """Write what differs. Errors as of `Publisher.publish`; ApiUnreachable (EINPROGRESS) while there is no answer
        yet: the write goes on, and the same changes asked again get its answer."""
        if changes:
            batch, patience = tuple(changes), self._patience
            self._writes.send("API server", batch, lambda: self._publisher.publish(batch), patience_seconds=patience)

    def evict(self, pod: EvictPod) -> None:
        """Ask for one eviction. Errors as of `evictions.evict`, and EINPROGRESS as in `publish`; a static pod is
        refused here, since the API server would only delete what shows it.

        While one has no answer no other is begun: nothing waits in line to be carried out when nobody wants it.
        """
        by_kubelet, named = "pods" not in self._watches, (p for p in self.view().pods if p.metadata.uid == pod.uid)
        if any(static_pods.is_static(each, by_kubelet=by_kubelet) for each in named):
            raise EvictionRefused(f"pod/{pod.namespace}/{pod.name}", static_pods.WHY)
        self._requests.send("Eviction API", pod.uid, lambda: self._evict(pod), patience_seconds=self._patience)

    def saw(self, snapshot: Snapshot) -> None:
        """Take a picture into the NodeMetric and the objects for other schedulers, where they are reported; look who
        else writes the Node when it is time."""
        now, node = self._clock.monotonic(), self._node.view().objects.get(self._name)
        self._writers.observe(node, now)
        for report in self._reports:
            report.observe(snapshot, monotonic=now, wall=self._clock.wall(), node=node)

    def tell(self, problems: Sequence[Problem]) -> None:
        """Events about configuration that was refused; the same one again is counted."""
        for problem in problems:
            self.announce("ConfigurationRefused", str(problem), "ReadConfiguration", warning=True)

    def announce(self, reason: str, note: str, action: str, *, warning: bool = False) -> None:
        """An Event about the Node."""
        node = self._node.view().objects.get(self._name)
        # kubectl describe finds events of a node by its name in place of the uid, as kubelet writes them.
        about = ObjectReference(kind="Node", name=self._name, uid=self._name if node is None else node.metadata.uid)
        self._tell(about, reason, note, action, warning=warning)

    def killed(self, *, namespace: str, pod: str, uid: str, note: str) -> None:
        """An Event about a pod whose containers were killed as a last resort."""
        about = ObjectReference(kind="Pod", namespace=namespace, name=pod, uid=uid)
        self._tell(about, "ContainersKilled", note, "Kill", warning=True)

    def _evict(self, pod: EvictPod) -> None:
        about = ObjectReference(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
        try:
            outcome = evictions.evict(self._evictions, pod)
        except EvictionRefused as refused:
            self._tell(about, "EvictionRefused", refused.why, "Evict", warning=True)
            raise
        if outcome == "accepted":
            self._tell(about, "Evicted", pod.reason, "Evict", warning=True)

    def _tell(self, about: ObjectReference, reason: str, note: str, action: str, *, warning: bool) -> None:
        if self._events:
            kind: EventType = "Warning" if warning else "Normal"
            self._events.tell(Event(regarding=about, reason=reason, note=note, action=action, type=kind))

    @property
    def _patience(self) -> float:
        return LAST_PATIENCE_SECONDS if self._stop.is_set() else PATIENCE_SECONDS

    def _kubelet_http(self) -> KubeletHttp | None:
        node = self._node.view().objects.get(self._name)
        addresses = (node.status.addresses or ()) if node else ()
        internal = next((each.address for each in addresses if each.type == "InternalIP"), "")
        return http.connect(
            self._settings,
            self._settings.kubelet_address or internal,
            node_name=self._name,
            api=self._api,
            user_agent=self._agent,
            times=self.kubelet_times,
        )

    def _ages(self, states: Sequence[WatchState], *, resources: float) -> Mapping[str, float]:
        """Age by input; an input that was never confirmed is as old as this run. Kubelet's allocations age only while
        it does not answer."""
        running = self._clock.monotonic() - self._started
        named = {"kubelet pods": "pods"}
        ages = {named.get(s.name, s.name): running if s.age_seconds is None else s.age_seconds for s in states}
        ages |= {"pod resources": resources} if resources else {}
        written = self._publisher.topology_age
        ages |= {"topology write": written} if math.isfinite(written) else {}
        asks_kubelet = self._settings.kubelet != "off"
        return {
            name: age for name, age in ages.items() if name not in _OPTIONAL and (asks_kubelet or name != "kubelet")
        }


def _failing(state: WatchState) -> Iterator[Problem]:
    """A kind that the server does not have is no problem until something is to be published there."""
    if state.error and not state.absent:
        what = f"allow this identity to list and watch {state.name}" if state.denied else "check the API server"
        do = f"{what}; what is known stays"
        yield Problem("API server", f"watch of {state.name}", "", state.error, do)
