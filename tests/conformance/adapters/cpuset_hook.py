"""The set and the quota of one container, and of host applications."""

from __future__ import annotations

from typing import Any

from koordlite.formulas.cpu import pools
from koordlite.host.cgroups import names
from koordlite.model import keys, node
from koordlite.model.cpuset import CPUSet
from koordlite.model.pod import pod_reader, qos
from koordlite.model.pod.values import ResourceStatus
from koordlite.model.slo.settings import HostApplication
from tests.conformance.adapters import adapter, shapes


@adapter("getContainerCPUSet", "SetContainerCPUSet")
def container(given: Any, expect: Any) -> tuple[Any, Any]:
    # No rule yet and no pools have the same answer: nothing to join.
    rule, request = given.get("rule") or {}, given.get("request") or {}
    try:
        status = _status(request.get("PodAnnotations"))
    except ValueError:
        return {"error": True}, expect
    found = pools.container_cpuset(
        qos=_class((request.get("PodLabels") or {}).get(keys.QOS_CLASS)),
        status=status,
        best_effort_cgroup="besteffort" in request.get("CgroupParent", ""),
        ls_pools=shapes.pools(rule.get("sharePools")),
        be_pools=shapes.pools(rule.get("beSharePools")),
        system_qos=node.SystemQoS(shapes.cpuset(rule.get("systemQOSCPUSet"))),
        kubelet_policy=_policy(rule.get("kubeletPolicy")),
        be_cpu_manager=bool(request.get("beCPUManager")),
    )
    return found, _set(expect)


@adapter("UnsetPodCPUQuota")
def quota(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        status = _status(given.get("annotations"))
    except ValueError:
        return {"error": True}, expect
    # Koordinator does not ask for the limit (deviation pinned-quota): here it is that of the CPUs.
    limit_milli = len(status.cpuset) * 1000
    lifted = pools.lifts_quota(status, limit_milli=limit_milli, enabled=not given.get("disableUnsetCPUQuota"))
    return {"cfsQuota": -1} if lifted else {}, expect


@adapter("SetHostAppCPUSet")
def host_application(given: Any, expect: Any) -> tuple[Any, Any]:
    rule, request = given.get("rule") or {}, given.get("request") or {}
    try:
        found = pools.host_cpuset(_class(request.get("QOSClass")), shapes.pools(rule.get("sharePools")))
    except ValueError:
        return {"error": True}, expect
    return found or None, _set(expect)


@adapter("GetHostAppCgroupRelativePath")
def host_group(given: Any, expect: Any) -> tuple[Any, Any]:
    app, driver = given.get("hostApp"), given.get("cgroupDriver", "systemd")
    layout = names.layout(1, "kubepods.slice" if driver == "systemd" else "kubepods")
    return pools.host_group(_application(app), layout) if app else "", expect


def _application(app: Any) -> HostApplication:
    path = app.get("cgroupPath")
    place = {"base": path.get("base") or "CgroupRoot"} if path is not None else {}
    return HostApplication(
        name=app.get("name", ""),
        qos=_class(app.get("qos")),
        parent_dir=(path or {}).get("parentDir", ""),
        relative_path=(path or {}).get("relativePath", ""),
        **place,
    )


def _status(notes: Any) -> ResourceStatus:
    return pod_reader.parse_resource_status((notes or {}).get(keys.RESOURCE_STATUS) or "{}")


def _class(label: Any) -> qos.QoSClass:
    return qos.QoSClass.of_label(label)


def _policy(given: Any) -> str:
    policy = given.get("policy", "") if isinstance(given, dict) else given
    return policy or ""


def _set(expect: Any) -> Any:
    """The expected set; "" is written by nobody, so it is our "leave alone"; a text that is no set stays text."""
    if not isinstance(expect, dict) or "error" in expect:
        return expect
    text = expect.get("cpuset")
    try:
        return CPUSet.parse(text) if text else None
    except ValueError:
        return text
