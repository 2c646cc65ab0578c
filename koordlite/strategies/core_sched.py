"""Keep pods off the hyperthreads of each other's cores, by the kernel's core scheduling, with `cpuPolicy: coreSched`.

Each core group has a cookie, and threads with different cookies never run on one core at the same time. Labels name the
group of a pod: `koordinator.sh/core-sched-group-id` joins pods of one namespace, `koordinator.sh/core-sched-policy` is
`exclusive` for a group of its own or `none`. A class with `coreExpeller` shares cores with no class without it. Pods of
a class with `schedIdle` have idle groups, as with `cpuIdentity`, which rests meanwhile. Pods labelled SYSTEM are left
alone. Source: Koordinator hook CoreSched; Linux `kernel/sched/core_sched.c`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koordlite.changes import cgroup, core_cookie
from koordlite.changes.cgroup import CgroupChange
from koordlite.changes.core_cookie import CoreCookieChange
from koordlite.formulas.cpu import core_groups
from koordlite.model import keys
from koordlite.model.cgroup_fields import CgroupField
from koordlite.model.change import Change
from koordlite.model.decision import Decision
from koordlite.model.errors import clipped
from koordlite.model.picture.groups import Cgroup, PodGroups, TaskCookie
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.settings import Mode, StrategySettings
from koordlite.model.slo.settings import SLO
from koordlite.model.snapshot import Snapshot
from koordlite.strategies.shared import class_cpu_qos, group_files

NAME = "coreSched"
NEW_CONTAINERS = "theirs"
IDLE: CgroupField = "cpu.idle"
_IDLE_FIELDS: tuple[CgroupField, ...] = (IDLE, "cpu.shares")
_HOLDERS = 4
"""Processes that are named to take the cookie from: one of them lives in all likelihood."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config(StrategySettings):
    """Section `coreSched`. Classes and `coreExpeller` come from `cpuQOS` of the ConfigMap key `resource-qos-config`,
    while its `policies.cpuPolicy` is coreSched. Two groups take turns on a core, so that it does less in all."""

    mode: Mode = "off"
    shared_group_ids: tuple[str, ...] = ()
    """Values of the label core-sched-group-id that name one group in all namespaces. Others name a group in each
    namespace, so that nobody joins the cores of a stranger by guessing his label. Koordinator shares all of them."""


def reads(slo: SLO, _pods: Sequence[Pod]) -> tuple[str, ...]:
    """Cookies, and what idle groups are made of, while the policy is on."""
    return ("core_sched", *_IDLE_FIELDS) if class_cpu_qos.is_on(slo, NAME) else ()


def decide(snapshot: Snapshot, config: Config) -> Iterator[Decision]:
    """Decide about each pod whose class has CPU QoS under this policy or that has something of ours, and about
    the node."""
    on, missing = class_cpu_qos.is_on(snapshot.slo, NAME), snapshot.core_sched.missing
    placed = [pod for pod in snapshot.pods if pod.uid in snapshot.places]
    memberships = {pod.uid: _Membership.of(snapshot, pod, config) for pod in placed if on and pod.active}
    groups = {each.group for each in memberships.values() if each.group}
    cookies = _Cookies.of(snapshot, {uid: each.group for uid, each in memberships.items() if each.group})
    if on or cookies.ours or any(origin.strategy == NAME for origin in snapshot.found.values()):
        for pod in placed:
            yield from _decided(snapshot, pod, memberships.get(pod.uid, _NONE), cookies)
    if on and missing:
        yield Decision("node", "skip", "NoCoreScheduling", {"why": missing})
    elif on:
        joined = sum(bool(each.group) for each in memberships.values())
        yield Decision("node", "hold", "CoreSchedOn", {"groups": len(groups), "pods": joined})
    else:
        yield Decision("node", "hold", "CoreSchedOff")


class _Membership(msgspec.Struct, frozen=True):
    """Core group that follows from class and labels of a pod."""

    group: str = ""
    """Core group; empty for none."""
    idle: bool = False
    policy: str = ""
    """The label `core-sched-policy`, where it is one."""
    wrong: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Evidence about a label that cannot be used."""
    enabled: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot, pod: Pod, config: Config) -> _Membership:
        settings = class_cpu_qos.of_pod(snapshot.slo, pod)
        if pod.raw_qos is QoSClass.SYSTEM or not settings.enable:
            return _NONE
        policy, group_id = pod.labels.get(keys.CORE_SCHED_POLICY, ""), pod.labels.get(keys.CORE_SCHED_GROUP, "")
        wrong: dict[str, str] = {}
        if policy not in ("", "none", "exclusive"):
            why = "it is none of none and exclusive; the group id holds"
            wrong = {"label": keys.CORE_SCHED_POLICY, "value": clipped(policy, 80), "why": why}
        elif not core_groups.is_label(group_id) and policy == "":
            why = "it is no value of a label; the pod has a group of its own"
            wrong = {"label": keys.CORE_SCHED_GROUP, "value": clipped(group_id, 80), "why": why}
        alone = policy == "exclusive" or not core_groups.is_label(group_id)
        group = core_groups.name(
            namespace=pod.namespace,
            group_id=group_id,
            exclusive_uid=pod.uid if alone else "",
            expeller=settings.core_expeller,
            shared_ids=config.shared_group_ids,
        )
        return cls("" if policy == "none" else group, settings.sched_idle == 1, policy, wrong, True)


_NONE = _Membership()


class _Cookies(msgspec.Struct, frozen=True):
    """Cookies by process."""

    ours: frozenset[int]
    """Cookies of our own making."""
    cookies: Mapping[str, tuple[int, tuple[int, ...]]]
    """The cookie of each core group, 0 for none yet, and some processes that have it."""

    @classmethod
    def of(cls, snapshot: Snapshot, groups: Mapping[str, str]) -> _Cookies:
        """`groups` are core groups by pod uid. Only processes of pods in a group show its cookie: once its last process
        has ended, the kernel gives the number of a cookie to the next one, and that may be a stranger's."""
        ours: dict[str, set[int]] = {}
        for place in snapshot.found:
            if place.kind is core_cookie.COOKIE:
                ours.setdefault(place.part("core_group"), set()).add(core_cookie.cookie_of(place))
        holders: dict[str, dict[int, list[int]]] = {group: {} for group in groups.values()}
        for uid, group in groups.items():
            for task in itertools.chain.from_iterable(tasks for _, tasks in _tasks(snapshot, snapshot.places[uid])):
                if task.cookie and task.cookie in ours.get(group, ()):
                    holders[group].setdefault(task.cookie, []).append(task.pid)
        current = {
            group: core_groups.cookie({number: len(pids) for number, pids in each.items()})
            for group, each in holders.items()
        }
        return cls(
            frozenset(cookie for each in ours.values() for cookie in each),
            {group: (cookie, tuple(holders[group].get(cookie, ())[:_HOLDERS])) for group, cookie in current.items()},
        )

    def is_foreign(self, task: TaskCookie) -> bool:
        """A process that gave itself a cookie keeps it: it shares its core with even fewer, and it could not be put
        back."""
        return bool(task.cookie) and task.cookie not in self.ours


def _tasks(snapshot: Snapshot, place: PodGroups) -> Iterator[tuple[str, tuple[TaskCookie, ...]]]:
    for group in place.inside:
        yield group, snapshot.core_sched.tasks.get(group, ())


def _decided(snapshot: Snapshot, pod: Pod, membership: _Membership, cookies: _Cookies) -> Iterator[Decision]:
    place, subject = snapshot.places[pod.uid], f"pod/{pod.key}"
    changes: list[Change] = [*_idle(snapshot, place.group, membership)]
    cookie, holders = cookies.cookies.get(membership.group, (0, ()))
    every = list[TaskCookie]()
    for group, tasks in _tasks(snapshot, place):
        every += tasks
        if not membership.group and any(task.cookie in cookies.ours for task in tasks):
            changes.append(CoreCookieChange(group, "", gives_back=True))
        movable = [task for task in tasks if task.cookie is not None and not cookies.is_foreign(task)]
        if membership.group and any(not cookie or task.cookie != cookie for task in movable):
            # They have no cookie, or that of another core group.
            changes.append(CoreCookieChange(group, membership.group, cookie, holders))
    evidence: dict[str, int | float | str] = {**membership.wrong, **({"idle": 1} if membership.idle else {})}
    evidence |= {"group": membership.group} if membership.group else {}
    if membership.group and not snapshot.core_sched.missing:
        evidence |= {"cookie": f"{cookie:016x}" if cookie else "to be made", "processes": len(every)}
        counts = {"foreign": sum(map(cookies.is_foreign, every)), "unseen": sum(task.cookie is None for task in every)}
        evidence |= {name: count for name, count in counts.items() if count}
    if not membership.enabled:
        if changes:
            yield Decision(subject, "release", "CoreSchedReleased", {"places": len(changes)}, tuple(changes))
    elif "unseen" in evidence:
        yield Decision(subject, "skip", "CoreSchedDenied", evidence, tuple(changes))
    elif membership.wrong:
        yield Decision(subject, "refuse", "BadCoreSchedLabel", evidence, tuple(changes))
    elif not membership.group:
        yield Decision(subject, "release" if changes else "hold", "CoreSchedNone", evidence, tuple(changes))
    else:
        reason = "CoreSchedOnlyIdle" if snapshot.core_sched.missing else "CoreSchedGroup"
        yield Decision(subject, "set" if changes else "hold", reason, evidence, tuple(changes))


def _idle(snapshot: Snapshot, group: str, membership: _Membership) -> Iterator[CgroupChange]:
    """An idle group for the classes with `schedIdle`; groups of others get back what was found. What `cpuIdentity` has
    made idle it gives back first."""
    values = snapshot.cgroups.get(group, Cgroup()).values
    originals = (snapshot.found.get(cgroup.PLACE.place(group, field)) for field in _IDLE_FIELDS)
    owners = {each.strategy for each in originals if each}
    if membership.idle and values.get(IDLE) == 0 and owners <= {NAME}:
        yield CgroupChange(group, IDLE, 1)
    elif not membership.idle and owners == {NAME}:
        yield from group_files.releases(snapshot, NAME, _IDLE_FIELDS, groups=(group,))
