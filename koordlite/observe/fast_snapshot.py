"""The picture of a round before its time: the last picture with CPU use and best-effort limits as they are right now.

Pods, requests and settings are those of the last tick, at most one tick old. Reading them again would cost more than
the reaction may take, and would put a sample of some hundredths of a second into the windows of the ticks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import msgspec

from koordlite.changes import cgroup, core_cookie
from koordlite.formulas.cpu import reaction
from koordlite.host.cgroups.filesystem import Cgroups
from koordlite.host.files import readable
from koordlite.model.picture.groups import Cgroup
from koordlite.model.picture.usage import Usage, Use
from koordlite.model.snapshot import Snapshot
from koordlite.model.status import FreshUse


def fresh_others_milli(usage: Usage, fresh: FreshUse) -> int | None:
    """Use of everything but best effort as `fresh` shows it, in millicores; None without a sample of the node.

    Where `fresh` has no counter of the whole node, what runs outside of pods counts as in the picture.
    """
    if usage.node is None or usage.best_effort_cpu is None:
        return None
    return _node_milli(usage, usage.node, fresh) - fresh.best_effort


def with_fresh_use(snapshot: Snapshot, fresh: FreshUse) -> Snapshot:
    """`snapshot` with the CPU use of `fresh`. Pods share it in the proportion of their last samples."""
    usage = snapshot.usage
    if usage.node is None:
        return snapshot
    inside = {uid for uid, place in snapshot.places.items() if place.group.startswith(f"{snapshot.layout.besteffort}/")}
    pods = {
        **_shared({uid: use for uid, use in usage.pods.items() if uid not in inside}, fresh.pods - fresh.best_effort),
        **_shared({uid: use for uid, use in usage.pods.items() if uid in inside}, fresh.best_effort),
    }
    node = msgspec.structs.replace(usage.node, cpu=_node_milli(usage, usage.node, fresh))
    return dataclasses.replace(
        snapshot, usage=msgspec.structs.replace(usage, node=node, pods=pods, best_effort_cpu=fresh.best_effort)
    )


def with_fresh_limits(snapshot: Snapshot, cgroups: Cgroups, time: float) -> Snapshot:
    """`snapshot` at `time` with the present best-effort tree: our writes of the last tick, and groups made since."""
    root = snapshot.layout.besteffort
    outside = {g: state for g, state in snapshot.cgroups.items() if g != root and not g.startswith(f"{root}/")}
    fresh = {group: state for group in cgroups.tree(root) if (state := _state(cgroups, group, snapshot)) is not None}
    return dataclasses.replace(snapshot, time=time, cgroups={**outside, **fresh})


def fresh_quotas(snapshot: Snapshot, cgroups: Cgroups, groups: Collection[str]) -> dict[str, Cgroup]:
    """The groups above `groups` that `snapshot` shows, with the quotas they have now. On cgroup v2, which takes any
    quota below any other, none."""
    if cgroups.layout.version != 1:
        return {}
    names = [group.split("/") for group in groups]
    above = {"/".join(parts[:depth]) for parts in names for depth in range(1, len(parts))} & snapshot.cgroups.keys()
    quotas = ((group, readable(cgroups.quota_us, group)) for group in above)
    return {
        group: msgspec.structs.replace(snapshot.cgroups[group], quota_us=quota_us)
        for group, quota_us in quotas
        if quota_us is not None
    }


def with_parents(groups: Collection[str]) -> frozenset[str]:
    """`groups` and the groups above them: that of a pod is among them where one of its groups is."""
    return frozenset(groups).union(group.rpartition("/")[0] for group in groups)


def of_groups(snapshot: Snapshot, groups: Collection[str]) -> Snapshot:
    """`snapshot` with the places, groups and values of ours of only those pods to which one of `groups` belongs, and
    with kubelet's own groups: enough to decide about `groups`, and quick to judge on a full node."""
    touched = with_parents(groups)
    places = {uid: place for uid, place in snapshot.places.items() if place.group in touched}
    layout = snapshot.layout
    names = (layout.kubepods, layout.burstable, layout.besteffort, *(g for place in places.values() for g in place.all))
    ours = [place for group in names for place in cgroup.places_of(group) if place in snapshot.ours]
    if not snapshot.core_sched.missing:
        ours += [place for place in snapshot.found if place.kind is core_cookie.COOKIE]
    return dataclasses.replace(
        snapshot,
        places=places,
        cgroups={group: snapshot.cgroups[group] for group in names if group in snapshot.cgroups},
        ours=frozenset(ours),
        found={place: snapshot.found[place] for place in ours if place in snapshot.found},
    )


def _node_milli(usage: Usage, node: Use, fresh: FreshUse) -> int:
    if fresh.node is not None:
        # Three counters are read one after the other.
        return max(fresh.node, fresh.pods, fresh.best_effort)
    outside = max(0, node.cpu - sum(use.cpu for use in usage.pods.values()))
    return max(fresh.pods, fresh.best_effort) + outside


def _shared(uses: Mapping[str, Use], milli: int) -> dict[str, Use]:
    shares = reaction.shared_out({uid: use.cpu for uid, use in uses.items()}, total=max(0, milli))
    return {uid: msgspec.structs.replace(use, cpu=shares[uid]) for uid, use in uses.items()}


def _state(cgroups: Cgroups, group: str, snapshot: Snapshot) -> Cgroup | None:
    state, before = readable(cgroups.state, group), snapshot.cgroups.get(group)
    return msgspec.structs.replace(state, values=before.values) if state and before else state
