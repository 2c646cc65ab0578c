"""The arbitration of waiting jobs: the order in which they are asked whether they may begin.

Source: Koordinator's arbitrator. Unlike there, a waiting job has a time to live too, and one that was deleted is
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from descheduler.framework import PodView
from descheduler.migration import objects
from descheduler.migration.objects import MigrationJob
from descheduler.utilization import koord_order
from koordlite.model import times

_JOB = "Job"


class Waiting(msgspec.Struct, frozen=True):
    """A job that waits, with its pod, if that is there."""

    job: MigrationJob
    pod: PodView | None


def ordered(waiting: Iterable[Waiting], begun: Mapping[str, int]) -> list[Waiting]:
    """In the order in which they are asked. `begun`: jobs under way by the uid of their pods' controller.

    Four sorts one after the other, each keeping the order of the one before where it sees no difference; so the last
    one counts most.
    """
    return begun_first(together(by_pod(newest_first(waiting))), begun)


def newest_first(waiting: Iterable[Waiting]) -> list[Waiting]:
    """The youngest job first, in whole seconds."""
    return sorted(waiting, key=lambda entry: -int(times.parse_or_none(entry.job.metadata.creation_timestamp) or 0.0))


def by_pod(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Jobs without a pod first, then the pod that is most easily evicted."""
    return sorted(waiting, key=pod_key)


def pod_key(entry: Waiting) -> tuple[object, ...]:
    """Sort key of `by_pod`. Names are left out of it: of equal pods the younger job stays first."""
    return (True, *_BY_POD(entry.pod)[:-1]) if entry.pod else (False,)


_BY_POD = koord_order.sort_key(lambda _pod: None)


def together(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Pods of one batch Job gathered where the first of them stands: such a Job is hurt once, or not at all."""
    groups: dict[str, list[Waiting]] = {}
    for number, entry in enumerate(waiting):
        groups.setdefault(_batch_job(entry) or f"#{number}", []).append(entry)
    return [entry for group in groups.values() for entry in group]


def begun_first(waiting: Iterable[Waiting], begun: Mapping[str, int]) -> list[Waiting]:
    """Pods of batch Jobs that have most pods on the move already come first."""
    return sorted(waiting, key=lambda entry: -begun.get(_batch_job(entry), 0))


def _batch_job(entry: Waiting) -> str:
    owner = objects.controller(entry.pod) if entry.pod else None
    return owner.uid if owner and owner.kind == _JOB else ""


def count_begun(jobs: Iterable[MigrationJob], known: Mapping[str, PodView]) -> dict[str, int]:
    """Jobs let through or running, by the uid of their pods' controller. `known`: pods by uid."""
    counts: dict[str, int] = {}
    for pod in _pods_of_begun(jobs, known):
        uid = objects.controller_uid(pod)
        counts[uid] = counts.get(uid, 0) + 1
    return counts


def _pods_of_begun(jobs: Iterable[MigrationJob], known: Mapping[str, PodView]) -> Iterator[PodView]:
    for job in jobs:
        if not job.finished and (job.passed or not job.pending) and job.pod.uid in known:
            yield known[job.pod.uid]
