"""The messages of NRI (`nri.pkg.api.v1alpha1`) and of ttrpc, as far as a plugin that sets resources needs them.

Left out are mounts, devices, hooks, namespaces and the like: a plugin that does not name them leaves them alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.nri.protobuf import BOOL, BYTES, INT, MAP, STRING, UINT, declared, message, wire, wrapper

_INT, _UINT, _BOOL, _STRING = wrapper(INT), wrapper(UINT), wrapper(BOOL), wrapper(STRING)


@declared
class LinuxMemory:
    """Memory, in bytes."""

    limit: int | None = wire(1, _INT)
    swap: int | None = wire(3, _INT)


@declared
class LinuxCPU:
    """CPU. At creation a wrapper that is present with 0 is applied; in what kubelet asks for it means "not named"."""

    shares: int | None = wire(1, _UINT)
    quota: int | None = wire(2, _INT)
    period: int | None = wire(3, _UINT)
    cpus: str = wire(6, STRING)
    mems: str = wire(7, STRING)


@declared
class LinuxResources:
    """Resources of a container."""

    memory: LinuxMemory | None = wire(1, message(lambda: LinuxMemory))
    cpu: LinuxCPU | None = wire(2, message(lambda: LinuxCPU))
    rdt_class: str | None = wire(5, _STRING)
    unified: Mapping[str, str] = wire(6, MAP)


@declared
class LinuxPodSandbox:
    """The pod's part of the machine."""

    cgroup_parent: str = wire(3, STRING)
    """Group in which kubelet has put the pod: a path from the cgroup root, or the name of a slice."""
    cgroups_path: str = wire(4, STRING)
    """Group of the pause container."""


@declared
class PodSandbox:
    """A pod. Its labels and annotations hold some of containerd's own."""

    id: str = wire(1, STRING)
    name: str = wire(2, STRING)
    uid: str = wire(3, STRING)
    namespace: str = wire(4, STRING)
    labels: Mapping[str, str] = wire(5, MAP)
    annotations: Mapping[str, str] = wire(6, MAP)
    runtime_handler: str = wire(7, STRING)
    linux: LinuxPodSandbox | None = wire(8, message(lambda: LinuxPodSandbox))
    pid: int = wire(9, UINT)


@declared
class LinuxContainer:
    """The container's part of the machine."""

    resources: LinuxResources | None = wire(3, message(lambda: LinuxResources))
    oom_score_adj: int | None = wire(4, _INT)
    cgroups_path: str = wire(5, STRING)
    """Path from the cgroup root, or `SLICE:cri-containerd:ID`."""


@declared
class Container:
    """A container. Koordinator's labels are those of its pod."""

    id: str = wire(1, STRING)
    pod_sandbox_id: str = wire(2, STRING)
    name: str = wire(3, STRING)
    state: int = wire(4, INT)
    linux: LinuxContainer | None = wire(11, message(lambda: LinuxContainer))
    pid: int = wire(12, UINT)


@declared
class LinuxRdt:
    """The class of RDT: a group of resctrl."""

    clos_id: str | None = wire(1, _STRING)


@declared
class LinuxContainerAdjustment:
    """Changes to a container that is created. Unset fields keep the pod's values."""

    resources: LinuxResources | None = wire(2, message(lambda: LinuxResources))
    oom_score_adj: int | None = wire(4, _INT)
    rdt: LinuxRdt | None = wire(11, message(lambda: LinuxRdt))


@declared
class ContainerAdjustment:
    """The answer's part about the container that is created."""

    linux: LinuxContainerAdjustment | None = wire(6, message(lambda: LinuxContainerAdjustment))


@declared
class LinuxContainerUpdate:
    """Changes to a container that is there."""

    resources: LinuxResources | None = wire(1, message(lambda: LinuxResources))


@declared
class ContainerUpdate:
    """A change of a container that is there."""

    container_id: str = wire(1, STRING)
    linux: LinuxContainerUpdate | None = wire(2, message(lambda: LinuxContainerUpdate))
    ignore_failure: bool = wire(3, BOOL)


@declared
class RegisterPluginRequest:
    """The first call of a plugin. The index is two digits, and no name has a slash."""

    plugin_name: str = wire(1, STRING)
    plugin_idx: str = wire(2, STRING)
    nri_version: str = wire(3, STRING)


@declared
class ConfigureRequest:
    """The runtime, and the time for which it waits, in milliseconds; 0 where an old one does not say."""

    config: str = wire(1, STRING)
    runtime_name: str = wire(2, STRING)
    runtime_version: str = wire(3, STRING)
    registration_timeout: int = wire(4, INT)
    request_timeout: int = wire(5, INT)
    nri_version: str = wire(6, STRING)


@declared
class ConfigureResponse:
    """Events that a plugin wants. 0 would be all of them, also those whose failure stops containers."""

    events: int = wire(2, INT)


@declared
class SynchronizeRequest:
    """Pods and containers that are there, in pieces while `more`; a piece may hold containers of pods of another."""

    pods: tuple[PodSandbox, ...] = wire(1, message(lambda: PodSandbox, repeated=True))
    containers: tuple[Container, ...] = wire(2, message(lambda: Container, repeated=True))
    more: bool = wire(3, BOOL)


@declared
class SynchronizeResponse:
    """Updates, with the last piece only; `more` repeats that of the request."""

    update: tuple[ContainerUpdate, ...] = wire(1, message(lambda: ContainerUpdate, repeated=True))
    more: bool = wire(2, BOOL)


@declared
class ContainerEvent:
    """The request of every call about one container; of calls about pods it has the pod alone."""

    pod: PodSandbox | None = wire(1, message(lambda: PodSandbox))
    container: Container | None = wire(2, message(lambda: Container))
    linux_resources: LinuxResources | None = wire(3, message(lambda: LinuxResources))


@declared
class StateChange:
    """One event of the runtimes that have no method for each."""

    event: int = wire(1, INT)
    pod: PodSandbox | None = wire(2, message(lambda: PodSandbox))
    container: Container | None = wire(3, message(lambda: Container))


@declared
class CreateContainerResponse:
    """Changes at creation. Empty: none."""

    adjust: ContainerAdjustment | None = wire(1, message(lambda: ContainerAdjustment))


@declared
class UpdateContainerResponse:
    """Changes that are merged over the runtime's update. Empty: none."""

    update: tuple[ContainerUpdate, ...] = wire(1, message(lambda: ContainerUpdate, repeated=True))


@declared
class Status:
    """An error of ttrpc: a code of gRPC and its text."""

    code: int = wire(1, INT)
    message: str = wire(2, STRING)


@declared
class Request:
    """The envelope of a call."""

    service: str = wire(1, STRING)
    method: str = wire(2, STRING)
    payload: bytes = wire(3, BYTES)
    timeout_nano: int = wire(4, INT)


@declared
class Response:
    """The envelope of an answer. A good and empty one has no bytes at all."""

    status: Status | None = wire(1, message(lambda: Status))
    payload: bytes = wire(2, BYTES)
