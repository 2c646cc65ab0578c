"""The CPU QoS of a pod's class."""

from __future__ import annotations

from collections.abc import Mapping

from koordlite.model.pod.qos import KubeQoS, QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.slo.qos import CPUQOS
from koordlite.model.slo.settings import SLO


def is_on(slo: SLO, policy: str) -> bool:
    """Tell whether a class has CPU QoS, carried out by this `cpuPolicy`."""
    qos = slo.resource_qos
    enabled = any(each.cpu_qos.enable for each in (qos.lsr_class, qos.ls_class, qos.be_class))
    return enabled and qos.policies.cpu_policy == policy


def by_label(slo: SLO) -> Mapping[QoSClass, CPUQOS]:
    """LSE has no settings of its own and takes those of LSR."""
    qos = slo.resource_qos
    lsr, ls, be = (each.cpu_qos for each in (qos.lsr_class, qos.ls_class, qos.be_class))
    return {QoSClass.LSE: lsr, QoSClass.LSR: lsr, QoSClass.LS: ls, QoSClass.BE: be}


def of_pod(slo: SLO, pod: Pod) -> CPUQOS:
    """CPU QoS by label; a pod without one by its Kubernetes class. Source: Koordinator `getPodBvtValue`."""
    labelled = by_label(slo)
    if pod.raw_qos in labelled:
        return labelled[pod.raw_qos]
    qos = slo.resource_qos
    guaranteed = qos.lsr_class if qos.lsr_class.cpu_qos.enable else qos.ls_class
    by_kube = {KubeQoS.GUARANTEED: guaranteed, KubeQoS.BURSTABLE: qos.ls_class, KubeQoS.BEST_EFFORT: qos.be_class}
    return by_kube[pod.kube_qos].cpu_qos
