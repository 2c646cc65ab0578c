"""MigrationController: arguments, steps of jobs, filters, the order of waiting jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.framework import PodView
from descheduler.migration import filters, objects, reconcile
from descheduler.migration.filters import Traffic, Waiting, Workload
from descheduler.migration.objects import MigrationJob, Reservation
from descheduler.migration.reconcile import ClusterState, Step
from koordlite.model import times
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict
from koordlite.model.wire import objects as wire
from tests.conformance.adapters import NotCovered, adapter
from tests.conformance.descheduler_view import picture, written
from tests.support.handles import handle


@adapter("ValidateMigrationControllerArgs")
def validated(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        strict.load(json.dumps(written(given["args"])), MigrationControllerArgs, "args")
    except ConfigError as error:
        return (False, str(error)) if expect["valid"] else False, expect["valid"]
    return True, expect["valid"]


RESERVATION = "test-reservation"
"""What the fake of the originals calls every reservation it makes."""
_IGNORED = frozenset(("resourceVersion", "lastTransitionTime", "lastProbeTime"))
_ORDER = "scheduling.koordinator.sh/reservation-order"


@adapter("reconcileStep")
def stepped(given: Any, expect: Any) -> tuple[Any, Any]:
    before, args = given["before"], _args(given["args"])
    job = msgspec.convert(before["job"], MigrationJob)
    pod = before.get("pod")
    seen = ClusterState(
        now=times.parse(given["now"]),
        pod=msgspec.convert(pod, wire.PodObject, strict=False) if pod else None,
        pod_raw=pod,
        reservation=_reservation(before.get("reservation")),
        default_mode=args.default_job_mode,
    )
    step = reconcile.step(job, seen)
    told = {"job": _plain(_renamed(step)), "again": step.again_seconds, "error": bool(step.error)}
    wanted = {
        "job": _plain(expect["after"]["job"]),
        "again": expect["requeueAfterSeconds"],
        "error": bool(expect["error"]),
    }
    return told, wanted


def _reservation(compact: Any) -> Reservation | None:
    if not compact:
        return None
    status = {
        "phase": compact.get("phase", ""),
        "nodeName": compact.get("scheduledNode", ""),
        "conditions": compact.get("conditions"),
        "currentOwners": [compact["boundPod"]] if compact.get("boundPod") else None,
    }
    whole = {"metadata": {"name": RESERVATION}, "spec": {"owners": compact.get("owners")}, "status": status}
    return msgspec.convert(whole, Reservation)


def _renamed(step: Step) -> Any:
    """The job as JSON, with the name that the fake would have given to its reservation."""
    job = msgspec.to_builtins(step.job)
    if step.create is not None:
        options = job["spec"]["reservationOptions"]
        options["reservationRef"] = {"name": RESERVATION}
    return job


def _plain(value: Any) -> Any:
    """Without what the cases do not fix: times, versions, the moment in the order label, empty fields."""
    if isinstance(value, Mapping):
        kept = {key: _plain(part) for key, part in value.items() if key not in _IGNORED}
        if _ORDER in kept:
            kept[_ORDER] = "a time"
        return {key: part for key, part in kept.items() if part not in (None, "", {}, [], False) or key == "status"}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


@adapter("getMaxUnavailable")
def allowed(given: Any, expect: Any) -> tuple[Any, Any]:
    return {"result": filters.allowed(given["replicas"], given.get("value")), "error": False}, expect


@adapter("filterPodWithMaxEvictionCost")
def cost(given: Any, expect: Any) -> tuple[Any, Any]:
    owner = {"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
    meta = {
        "name": "p",
        "namespace": "default",
        "annotations": given.get("annotations") or {},
        "ownerReferences": [owner],
    }
    view = picture({"nodes": [{"metadata": {"name": "n"}}], "pods": [{"metadata": meta, "spec": {"nodeName": "n"}}]})
    said = handle(view).refusals(next(view.pods()))
    return {"result": not any(refusal.reason == "EvictionCostIsNever" for refusal in said)}, expect


@adapter("migrationFilter")
def filtered(given: Any, expect: Any) -> tuple[Any, Any]:
    args = _args({**(given.get("args") or {}), "skipEvictionGates": given.get("skipEvictionGates") or []})
    pod = _pod(given["pod"])
    others = {view.uid: view for view in map(_pod, given.get("pods") or ())}
    jobs = [msgspec.convert(job, MigrationJob) for job in given.get("jobs") or ()]
    arbitrating = (given["pod"]["metadata"].get("annotations") or {}).get(_ARBITRATING) == "true"
    traffic = Traffic.of(jobs, others.values(), arbitrating=arbitrating)
    load = given.get("workload")
    workload = Workload(load.get("replicas", 0), tuple(map(_pod, load.get("pods") or ()))) if load else None
    if given["filter"] not in _FILTERS:
        raise NotCovered
    rule = _FILTERS[given["filter"]]
    return {"result": not rule(pod, traffic, workload, args)}, expect


_ARBITRATING = "descheduler.koordinator.sh/pod-arbitrating"
_Rule = Callable[[PodView, Traffic, Workload | None, MigrationControllerArgs], str]
_FILTERS: dict[str, _Rule] = {
    "filterExistingPodMigrationJob": lambda pod, traffic, _workload, _args: filters.job_exists(pod, traffic),
    "filterMaxMigratingGlobally": filters.globally,
    "filterMaxMigratingPerNode": filters.per_node,
    "filterMaxMigratingPerNamespace": filters.per_namespace,
    "filterMaxMigratingOrUnavailablePerWorkload": filters.per_workload,
    "filterExpectedReplicas": filters.expected_replicas,
    "reservationFilter": filters.scheduler,
}


@adapter("sortJobs")
def ordered(given: Any, expect: Any) -> tuple[Any, Any]:
    waiting = [_waiting(entry) for entry in given["jobs"]]
    counts = given.get("migratingNumByOwnerUID") or {}
    sorts: dict[str, Callable[[list[Waiting]], Any]] = {
        "SortJobsByCreationTime": filters.newest_first,
        "SortJobsByPod": filters.by_pod,
        "SortJobsByController": filters.together,
        "SortJobsByMigratingNum": lambda jobs: filters.begun_first(jobs, counts),
    }
    if given["fn"] not in sorts:
        raise NotCovered
    found = [entry.job.name for entry in sorts[given["fn"]](waiting)]
    if given["fn"] != "SortJobsByPod":
        return {"order": found}, expect
    # Equal pods may stand in any order: what is compared is how evictable each place is.
    keys = {entry.job.name: filters.pod_key(entry) for entry in waiting}
    return [keys[name] for name in found], [keys.get(name) for name in expect["order"]]


def _waiting(entry: Any) -> Waiting:
    pod = entry.get("pod")
    return Waiting(msgspec.convert(entry["job"], MigrationJob), _pod(pod) if pod else None)


def _pod(raw: Any) -> PodView:
    return objects.pod_view(msgspec.convert(raw, wire.PodObject, strict=False))


def _args(written: Any) -> MigrationControllerArgs:
    known = {key: value for key, value in written.items() if value is not None}
    limiters = known.get("objectLimiters")
    if limiters:
        known["objectLimiters"] = {name: _given(limiter) for name, limiter in limiters.items()}
    return strict.load(json.dumps(known), MigrationControllerArgs, "args")


def _given(limiter: Any) -> Any:
    return {key: value for key, value in limiter.items() if value is not None}
