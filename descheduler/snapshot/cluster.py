"""Objects from an API server: every list in parts, each object made small before the next part is asked for.

Nodes and pods have to be readable. Of the rest, what may not be read or does not exist is reported, and the rules that
would ask for it know that it is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from descheduler.snapshot import files
from descheduler.snapshot.files import Objects
from descheduler.snapshot.pack import Packer
from descheduler.snapshot.watches import Watches
from koordlite.kube.client import backoff
from koordlite.kube.client.answers import ApiError
from koordlite.kube.watch.store import is_older
from koordlite.model.errors import Problem
from koordlite.model.wire import numatopology

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api


PATHS: Mapping[str, str] = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Namespace": "/api/v1/namespaces",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "NodeResourceTopology": "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    files.CRANE_KIND: "/apis/topology.crane.io/v1alpha1/noderesourcetopologies",
    numatopology.KIND: numatopology.PATH,
    "NodeMetric": "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
}
"""Where each kind is listed."""
OLDER: Mapping[str, str] = {
    "NodeResourceTopology": "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
}
"""Where it is listed on a server that has no newer version: Koordinator's CRD, without attributes."""
NEEDED = ("Node", "Pod")
"""Without these there is no picture."""
_CUSTOM = ("NodeResourceTopology", files.CRANE_KIND, numatopology.KIND, "NodeMetric")
"""Not every cluster has these: their absence is no problem."""


TRIES = 3
"""How often a list is asked for that a busy server refuses: a cycle is too dear to end at the first 429."""


def read(
    api: Api,
    wait: Callable[[float], object] = time.sleep,
    before: Objects | None = None,
    watches: Watches | None = None,
) -> Objects:
    """All objects that rules ask for. ApiError or ApiUnreachable when nodes or pods cannot be listed.

    A list that is refused with 429 or a fault of the server is asked for again, no sooner than the server wants;
    `wait` passes the seconds. `before`: what was read in the last cycle of this process, or `nothing_yet()`; objects
    that have not changed since stay the same objects, which takes a fraction of the time and no further memory.
    `watches` know what changed since `before`: then only what they do not know is listed. A kind that the server does
    not have is asked for again after five minutes.
    """
    objects = before.successor() if before else Objects()
    listed: dict[str, str] = {}
    for kind in files.SHAPES:
        if kind in PATHS and not (watches and watches.is_absent(kind)):
            changes = watches.changes(kind) if watches and before else None
            if changes and before:
                objects.change(kind, before, changes.objects)
                objects.versions[kind] = before.versions[kind] = changes.version
            else:
                listed[kind] = _read_kind(api, objects, kind, wait, absent=watches.lacks if watches else None)
    if watches:  # Not earlier: had one of the lists failed, the watches of the others would go on from what was lost.
        for kind, path in listed.items():
            if path:
                watches.follow(kind, path, objects)
    objects.known.clear()
    return objects


def nothing_yet() -> Objects:
    """Empty objects for a process that will make one picture after the other."""
    return Objects(packer=Packer(lasting=True))


def _list_patiently(api: Api, objects: Objects, kind: str, path: str, wait: Callable[[float], object]) -> None:
    for failures in range(1, TRIES):
        try:
            return _list(api, objects, kind, path)
        except ApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            _forget(objects, kind, path)
            wait(backoff.pause(failures, backoff.uniform, asked=error.retry_after_seconds))
    return _list(api, objects, kind, path)


def _read_kind(
    api: Api,
    objects: Objects,
    kind: str,
    wait: Callable[[float], object],
    *,
    paths: Mapping[str, str] = PATHS,
    absent: Callable[[str], object] | None = None,
) -> str:
    """Read a list; returns its path when all of it could be read, and may be watched from there on. `absent` is told
    of a kind that the server does not have."""
    path, found = paths[kind], len(objects.problems)
    try:
        _list_patiently(api, objects, kind, path, wait)
        return path if len(objects.problems) == found else ""
    except ApiError as error:
        unserved = error.status == HTTPStatus.NOT_FOUND and kind in _CUSTOM
        if unserved and paths is PATHS and kind in OLDER:
            return _read_kind(api, objects, kind, wait, paths=OLDER, absent=absent)
        if kind in NEEDED:
            raise
        objects.by_kind[kind].clear()
        if unserved and absent:
            absent(kind)
        if not unserved:
            where = f"{api.url}{path}"
            do = f"let the service account list {kind} objects; rules that need them say so"
            objects.problems.append(Problem(where, kind, "", str(error), do))
        return ""


def _list(api: Api, objects: Objects, kind: str, path: str) -> None:
    version, where = "", f"{api.url}{path}"
    for page in api.listed(path):
        if page.restarted:
            _forget(objects, kind, path)
        version = page.resource_version
        if objects.known.get(kind) and is_older(version, objects.versions.get(kind, "")):
            # A server that was restored from a backup gives versions a second time: nothing known may be kept.
            objects.known[kind] = {}
            if objects.by_kind[kind]:
                _forget(objects, kind, path)
                _list(api, objects, kind, path)
                return
        for item in page.items:
            if not objects.kept(kind, item):
                files.keep(objects, item, kind, where)
    objects.versions[kind] = version


def _forget(objects: Objects, kind: str, path: str) -> None:
    """The list began again: what came before is of an older state."""
    objects.by_kind[kind].clear()
    del objects.repeated[kind]
    objects.problems[:] = [p for p in objects.problems if path not in p.object]
