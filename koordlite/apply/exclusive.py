"""Sets of containers that are put back leave out what kubelet has given to others alone since they were found."""

from __future__ import annotations

from collections.abc import Sequence

from koordlite.host import sysfs
from koordlite.host.bundle import Host
from koordlite.host.cgroups import names
from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.model.picture.groups import Layout
from koordlite.model.picture.kubelet import PodCPUs
from koordlite.model.pod.qos import KubeQoS


class ExclusiveCPUs:
    """CPUs that kubelet's static policy has given to pods exclusively, as its checkpoint says now."""

    def __init__(self, layout: Layout, held: Sequence[PodCPUs], online: CPUSet) -> None:
        self._layout, self._online = layout, online
        self._all = union(each.cpus for each in held)
        self._own = {names.pod_group(layout, each.uid, qos): each.cpus for each in held for qos in KubeQoS if each.cpus}

    @classmethod
    def of(cls, host: Host, held: Sequence[PodCPUs]) -> ExclusiveCPUs:
        """On this machine; nothing is read where kubelet has given nothing away."""
        return cls(host.cgroups.layout, held, sysfs.online(host.files) if held else EMPTY)

    def put_back(self, group: str, found: CPUSet, present: CPUSet | None) -> CPUSet:
        """The set to put back in `group`, where `found` stood before us and `present` stands now.

        Pods and QoS groups get what was found: kubelet leaves them whole too, and on cgroup v1 a new container starts
        only within them. So do groups outside kubelet's tree. An empty set of v2 stands for all online CPUs.
        """
        tops = (self._layout.besteffort, self._layout.burstable, self._layout.kubepods)
        top = next((each for each in tops if group.startswith(f"{each}/")), None)
        pod, _, container = group.removeprefix(f"{top}/").partition("/") if top else ("", "", "")
        if not container or not self._all:
            return found
        own = self._own.get(f"{top}/{pod}")
        if own and found and found <= own:
            return found
        if own and present and present <= own:
            return present  # Kubelet gave it to this container after we had found something else.
        return (found or self._online) - self._all or self._online - self._all or found
