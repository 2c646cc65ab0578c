"""Settings of the agent's connections to the cluster and kubelet, and of what it publishes besides its decisions."""

from __future__ import annotations

import dataclasses
import urllib.parse
from collections.abc import Mapping
from typing import Literal

from koordlite.kube.client import prometheus
from koordlite.model.settings import bounded

MOST_QUERIES = 16
MOST_UNIT = 16
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Section `cluster`: the API server and kubelet. Not used with a folder of manifests."""

    kubeconfig: str = ""
    """File with the API server and credentials. Empty: the service account of this pod, else the file that the
    environment variable KUBECONFIG names."""
    context: str = ""
    """Context of the kubeconfig. Empty: its current one."""
    config_namespace: str = "koordinator-system"
    """Namespace of the ConfigMap with the settings of the whole cluster."""
    config_name: str = "slo-controller-config"
    """Name of that ConfigMap. Koordinator's."""
    pods: Literal["apiserver", "kubelet"] = "apiserver"
    """Source of the pods of this node. apiserver: a watch. kubelet: its list, asked for every other second."""
    kubelet: Literal["off", "direct", "proxy"] = "direct"
    """Way to ask kubelet for its policies. direct: at its own port. proxy: through the API server, which needs
    permission for nodes/proxy. off: what its checkpoint file says has to do."""
    kubelet_address: str = ""
    """Host name or address of kubelet. Empty: InternalIP of the Node."""
    kubelet_port: int = bounded(10250, ge=1, le=65535)
    """Kubelet's port with TLS."""
    kubelet_read_only_port: int = bounded(0, ge=0, le=65535)
    """Kubelet's port without TLS and credentials, asked for pods when the other refuses; most clusters close it. 0
    never asks there."""
    kubelet_ca_file: str = ""
    """Certificates that kubelet's own must be signed by. Empty: the cluster's. Kubelet signs its certificate itself
    unless serverTLSBootstrap is set in its configuration. It must be for the node's name or for kubelet's address."""
    kubelet_verify: bool = True
    """Verify kubelet's certificate. Without it anybody on the node's network can answer for kubelet."""
    kubelet_token_file: str = f"{SERVICE_ACCOUNT}/token"
    """Bearer token for kubelet; read again every minute. Where this default is not there, as outside a pod, kubelet is
    asked with the credentials for the API server."""
    kubelet_folder: str = "/var/lib/kubelet"
    """Kubelet's folder with cpu_manager_state."""
    kubelet_pod_resources: str = "pod-resources/kubelet.sock"
    """Socket below kubeletFolder that says which CPUs, memory and devices kubelet may give out, and has given. Empty:
    it is not asked, its checkpoints have to do."""
    cdi_folder: str = "/var/run/cdi"
    """Folder with the specifications of the Container Device Interface. Where pods have CPUs by ResourceClaims, the DRA
    driver says there which ones. Needs `manifests/components/dra-cpus`."""

    affinity_namespace: str = ""
    """Namespace of the resources Oenuma `podafi` and Whitelist `whitelist` (resource.sop.huawei.com/v1alpha1), which
    `numaAffinity` then follows; numaadj's is tcs. Empty: they are not read. Needs
    `manifests/components/pod-affinity`."""

    @property
    def cpu_manager_state(self) -> str:
        """Checkpoint of kubelet's CPU manager."""
        return f"{self.kubelet_folder.rstrip('/')}/cpu_manager_state"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """Section `publish`: what is published to the cluster besides the decisions that are enforced."""

    events: bool = True
    """Events about evictions and refused configuration."""
    node_resources: Literal["agent", "manager"] = "agent"
    """Writer of `batch-*`, `mid-*` and the ratios of CPU normalization and amplification on the Node. agent: the
    strategies beAllocatable, midAllocatable, cpuNormalization and resourceAmplification, where they enforce. manager:
    Koordinator's, which reconciles every node; these strategies then observe, whatever their mode."""
    node_metric: Literal["off", "on", "create"] = "off"
    """The node's NodeMetric (slo.koordinator.sh/v1alpha1), which Koordinator's scheduler and controller and the
    descheduler's LowNodeLoad read. on: keep the status of the object that Koordinator's manager makes. create: make the
    object as well where it is missing, owned by the Node, and keep its spec as `colocation-config` says; for clusters
    without that manager."""
    node_metric_seconds: float = bounded(0.0, ge=0, le=3600)
    """Time between two such reports. 0: `metricReportIntervalSeconds` of `colocation-config`. Less than 30 counts as
    30, as in Koordinator."""
    numatopology: Literal["off", "on"] = "off"
    """The node's Numatopology (nodeinfo.volcano.sh/v1alpha1), for clusters whose scheduler is Volcano's and where its
    resource-exporter does not run. Needs `manifests/components/volcano-numatopology`."""
    pod_affinity: Literal["off", "on"] = "off"
    """The node's PodAffinity (numa.koordlite.io/v1alpha1), for `kubectl get podafi`: pods that talk to each other, as
    `numaAffinity` counted them, with their CPUs. Needs `manifests/components/pod-affinity-report`."""
    crane_topology: Literal["off", "on", "parts"] = "off"
    """The node's NodeResourceTopology of Crane (topology.crane.io/v1alpha1), for clusters whose scheduler goes by it,
    and where crane-agent does not run. parts: with its sockets and cores too. Needs
    `manifests/components/crane-topology`."""


def _url_or_nothing(text: str) -> None:
    if text:
        prometheus.check_url(text)
        if urllib.parse.urlsplit(text).username is not None:
            raise ValueError("a user in the URL is not sent: put a token into tokenFile")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveQuery:
    """One measurement of services, and how far pods may set their own objective."""

    query: str = ""
    """PromQL of an instant query that gives a vector with the labels `namespace` and `pod`. `$node` stands for the name
    of this node, `$pods` for a regular expression of the pods that ask."""
    most: float = bounded(0.0, ge=0, le=1e15)
    """The objective, in the unit of the query. A pod may ask for less, never for more."""
    least: float = bounded(0.0, ge=0)
    """The least that a pod may ask for: a strict objective costs best effort nearly all."""
    unit: str = ""
    """Word behind the numbers in sentences: ms, for example."""
    window_seconds: float = bounded(30.0, ge=1, le=3600)
    """Time over which the query measures, as its `[30s]` says. The limit moves once in it."""

    def __post_init__(self) -> None:
        if not self.query or self.most <= 0 or self.least > self.most:
            raise ValueError("a query is needed, and `most` above 0, not below `least`")
        if len(self.unit) > MOST_UNIT or not self.unit.isprintable():
            raise ValueError(f"a unit is a printable word of at most {MOST_UNIT} characters")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveSettings:
    """Section `objectives`: where the objectives of services are measured, for the policy `guided`."""

    prometheus_url: str = dataclasses.field(default="", metadata={"check": _url_or_nothing})
    """Address of a Prometheus, `https://prometheus.monitoring:9090` for example. Empty: nothing is asked, and services
    are judged by what they wait."""
    token_file: str = ""
    """File with the bearer token for it; read again for each query. Empty: none is sent."""
    ca_file: str = ""
    """Certificates that its own must be signed by. Empty: the system's."""
    interval_seconds: float = bounded(5.0, ge=1, le=300)
    """Time from one question to the next."""
    stale_seconds: float = bounded(30.0, ge=1, le=600)
    """Time for which an answer holds. After that a service is judged by what it waits."""
    queries: Mapping[str, ObjectiveQuery] = dataclasses.field(default_factory=dict)
    """Queries by the name that pods use in their annotation `suppress.koordlite.io/objective`: `query`, `most`,
    `least`, `unit`, `windowSeconds`, as docs/operate.md shows them."""

    def __post_init__(self) -> None:
        if len(self.queries) > MOST_QUERIES:
            raise ValueError(f"at most {MOST_QUERIES} queries are asked")
        if self.queries and not self.prometheus_url:
            raise ValueError("queries need a prometheusUrl")
