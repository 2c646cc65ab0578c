"""Reasons not to evict a pod: the protections of DefaultEvictor, each a function that says its reason.

Source: upstream DefaultEvictor (docs/compatibility.md lists what differs: a mirror pod, or one that is already
going, is never evicted, whatever its annotations say).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from descheduler.arguments.common import LabelSelector
from descheduler.arguments.evictor import SYSTEM_CRITICAL, Args
from descheduler.framework import PodView, Refusal, View
from descheduler.picture.pods import PREFER_NO_EVICTION
from descheduler.picture.templates import SpecGroup
from koordlite.model import duration, keys
from koordlite.model.errors import InputError, Problem
from koordlite.reservation.pods import stands_for

EVICT = "descheduler.alpha.kubernetes.io/evict"
_COST_NEVER = 2**31 - 1


Guard = Callable[[PodView, View, Args], str]
"""Says why the pod stays; empty when it has no objection."""
Protection = tuple[Callable[[Args], bool], Guard]
"""Condition on the arguments, and guard that is asked under it."""


def late_refusals(pod: PodView, view: View, args: Args) -> tuple[Refusal, ...]:
    """Refusals of the guards that are asked last (upstream PreEvictionFilter, without nodeFit). No annotation overrules
    it."""
    if args.namespace_label_selector is None and len(view.budgets_by_pod.get(pod.pod.uid, ())) < 2:
        return ()  # Neither of them can speak.
    return _collect(_LATE, pod, view, args)


def check(view: View, args: Args) -> None:
    """InputError when the arguments name something that is not in the picture."""
    name = args.priority_threshold.name
    if name and name not in view.priority_classes:
        classes = ", ".join(sorted(view.priority_classes)) or "none"
        do = f"add the PriorityClass to the snapshot (there: {classes}) or give a value"
        field = "DefaultEvictor.priorityThreshold.name"
        raise InputError(Problem("policy", field, name, "no such PriorityClass in the snapshot", do))


_Question = tuple[int, str, Args]
"""Its number, the protection that is asked, and with which arguments."""
_Numbered = list[tuple[int, Refusal]]
"""Refusals, by the number of the question."""


class Guards:
    """The guards of a profile's filters for one picture. Only what the arguments ask for is asked, and what a
    pod's template decides is asked once for all pods that share it."""

    def __init__(self, view: View, every: Iterable[Args]) -> None:
        self._view = view
        self._every = every = tuple(every)
        self._first = every[0]
        protections = [(reason, args) for args in every for reason, (holds, _) in _PROTECTIONS.items() if holds(args)]
        questions = [(number, reason, args) for number, (reason, args) in enumerate(protections)]
        self._of_templates = [question for question in questions if question[1] not in _PERSONAL]
        self._of_pods = [question for question in questions if question[1] in _PERSONAL]
        self._by_labels = any(reason == "LabelSelector" for _, reason, _ in questions)
        self._shared: dict[tuple[object, ...], _Numbered] = {}
        self._last: dict[tuple[object, ...], _Numbered] = {}
        """The same of the picture before."""

    @classmethod
    def of(cls, view: View, every: tuple[Args, ...], name: str) -> Guards:
        """The guards of the profile `name`, which know what they said of the picture before as far as that follows from
        pods and arguments alone."""
        guards = cls(view, every)
        if view.cache is not None:
            last = view.cache.get((Guards, name))
            if isinstance(last, Guards) and last._every == every and last._reads() == guards._reads():
                guards._last = last._shared
            view.cache[Guards, name] = guards
        return guards

    def _reads(self) -> tuple[object, ...]:
        """Return what is asked of the picture for pods that share a template."""
        return self._view.priority_classes, self._view.storage_classes, self._view.replicas

    def evictable(self, group: SpecGroup) -> Sequence[PodView]:
        """The pods that none of the filters speaks against, in the order of the picture."""
        if not (self._of_pods or self._by_labels or self._view.moving) and len(group.counts(_own)) == 1:
            return () if self.refusals(group.first) else group.pods
        return [pod for pod in group.pods if not self.refusals(pod)]

    def refusals(self, pod: PodView) -> tuple[Refusal, ...]:
        """Every reason that speaks against evicting the pod, not only the first, each once; empty when there is none.

        The annotation `descheduler.alpha.kubernetes.io/evict`, with any value, overrules the protections, but not what
        the API refuses or what the operator's namespaces forbid.
        """
        notes = pod.pod.annotations
        if _special(pod) or pod.pod.uid in self._view.moving:
            always = _collect(_ALWAYS, pod, self._view, self._first)
            if always:
                return always
        if EVICT in notes:
            return ()
        # The key holds all that the protections read, but for those that are `_PERSONAL`.
        template = pod.template if self._by_labels else pod.template.spec
        key = (template, *_own(pod))
        numbered = self._shared.get(key)
        if numbered is None:
            numbered = self._last.get(key)
            numbered = self._shared[key] = self._ask_each(pod, self._of_templates) if numbered is None else numbered
        if self._of_pods:
            numbered = sorted(numbered + self._ask_each(pod, self._of_pods), key=lambda one: one[0])
        return tuple(dict.fromkeys([refusal for _, refusal in numbered])) if numbered else ()

    def _ask_each(self, pod: PodView, questions: Iterable[_Question]) -> _Numbered:
        view = self._view
        texts = [(number, reason, _PROTECTIONS[reason][1](pod, view, args)) for number, reason, args in questions]
        return [(number, Refusal(reason, text)) for number, reason, text in texts if text]


def _special(pod: PodView) -> bool:
    """Tell whether one of the guards that nothing overrules may speak."""
    value = pod.pod
    return value.deleting or keys.CONFIG_MIRROR in value.annotations or keys.RESERVATION_UID in value.labels


def _own(pod: PodView) -> tuple[object, ...]:
    """The parts of a pod that guards read and that are not of its template, but for those that are `_PERSONAL`."""
    value, notes = pod.pod, pod.pod.annotations
    written = notes.get(PREFER_NO_EVICTION), notes.get(keys.EVICTION_COST)
    return (*written, value.priority, value.phase, EVICT in notes, pod.pod.uid if _special(pod) else "")


def _collect(guards: dict[str, Guard], pod: PodView, view: View, args: Args) -> tuple[Refusal, ...]:
    objections = [(reason, guard(pod, view, args)) for reason, guard in guards.items()]
    return tuple([Refusal(reason, text) for reason, text in objections if text])


def _mirror(pod: PodView, _view: View, _args: Args) -> str:
    """The API server lets nobody add this annotation to a pod that runs, and kubelet runs no pod that was created with
    it. `kubernetes.io/config.source` is no such proof: any running pod may carry it, and a static pod's mirror has
    both."""
    mirror = keys.CONFIG_MIRROR in pod.pod.annotations
    return "it mirrors a static pod: only its file on the node removes it" if mirror else ""


def _placeholder(pod: PodView, _view: View, _args: Args) -> str:
    """Moving one would free the place it holds, and nothing else."""
    reservation = stands_for(pod.object.metadata)
    return f"it holds the place of the Reservation with uid {reservation}" if reservation else ""


def _opted_out(pod: PodView, _view: View, _args: Args) -> str:
    asks = PREFER_NO_EVICTION in pod.pod.annotations
    return "it asks not to be evicted, and noEvictionPolicy is Mandatory" if asks else ""


def _cost(pod: PodView, _view: View, _args: Args) -> str:
    text = pod.pod.annotations.get(keys.EVICTION_COST, "")
    never = text == str(_COST_NEVER)
    return f"its annotation {keys.EVICTION_COST} says never" if never else ""


def _critical(pod: PodView, _view: View, _args: Args) -> str:
    priority = pod.pod.priority
    critical = priority is not None and priority >= SYSTEM_CRITICAL
    return f"its priority {priority} is that of a system-critical pod" if critical else ""


def _threshold(pod: PodView, view: View, args: Args) -> str:
    limit, priority = args.priority_threshold.number(view.priority_classes), pod.pod.priority
    above = priority is not None and limit <= priority < SYSTEM_CRITICAL
    return f"its priority {priority} is not below the threshold {limit}" if above else ""


def _bare(pod: PodView, _view: View, args: Args) -> str:
    if pod.object.metadata.owner_references or args.evict_all_bare_pods:
        return ""
    failed = pod.pod.phase == "Failed" and "FailedBarePods" not in args.protections
    return "" if failed else "it has no owner that would create it again"


def _local_storage(pod: PodView, _view: View, _args: Args) -> str:
    volumes = pod.object.spec.volumes or ()
    local = [v.name for v in volumes if v.host_path is not None or v.empty_dir is not None]
    return f"its local storage would be lost: {', '.join(local)}" if local else ""


def _daemon_set(pod: PodView, _view: View, _args: Args) -> str:
    owned = any(owner.kind == "DaemonSet" for owner in pod.object.metadata.owner_references or ())
    return "its DaemonSet would start it on the same node again" if owned else ""


def _claims(pod: PodView, view: View, args: Args) -> str:
    """Any claim counts without a list of classes; with one, a claim of these, and one whose class nobody knows."""
    claims = [
        v.persistent_volume_claim.get("claimName", "")
        for v in pod.object.spec.volumes or ()
        if v.persistent_volume_claim is not None
    ]
    protected = {c.name for c in args.pod_protections.config.pods_with_pvc.protected_storage_classes}
    classes = {claim: view.storage_classes.get(f"{pod.pod.namespace}/{claim}", "") for claim in claims}
    blocking = [claim for claim in claims if not protected or not classes[claim] or classes[claim] in protected]
    return f"it holds the claims {', '.join(blocking)}" if blocking else ""


def _labels(pod: PodView, _view: View, args: Args) -> str:
    selector = args.label_selector
    return "its labels are not those of labelSelector" if selector and not selector.matches(pod.pod.labels) else ""


def _namespace(pod: PodView, view: View, args: Args) -> str:
    selector = args.namespace_label_selector
    if selector is None or selector == LabelSelector():
        return ""
    labels = view.namespaces.get(pod.pod.namespace)
    if labels is None:
        return f"namespaceLabelSelector is set and the namespace {pod.pod.namespace} is not in the snapshot"
    return "" if selector.matches(labels) else f"the namespace {pod.pod.namespace} is not one of namespaceLabelSelector"


def _chosen_namespace(pod: PodView, _view: View, args: Args) -> str:
    namespace = pod.pod.namespace
    left_out = args.namespaces is not None and not args.namespaces.chosen(namespace)
    return f"the namespace {namespace} is not one of namespaces" if left_out else ""


def _replicas(pod: PodView, view: View, args: Args) -> str:
    owners = pod.object.metadata.owner_references or ()
    if len(owners) != 1:
        return ""
    count = view.replicas.get(owners[0].uid, 0)
    few = count < args.min_replicas
    return f"its {owners[0].kind} has {count} pods, minReplicas is {args.min_replicas}" if few else ""


def _age(pod: PodView, view: View, args: Args) -> str:
    age = view.age(pod) if pod.object.status.start_time else None
    young = age is None or age < duration.seconds(args.min_pod_age or "0")
    start = "at an unknown time" if age is None else f"{duration.age(age)} ago"
    return f"it started {start}, minPodAge is {args.min_pod_age}" if young else ""


def _many_budgets(pod: PodView, view: View, _args: Args) -> str:
    keys = [budget.key for budget in view.budgets_by_pod.get(pod.uid, ())]
    return f"{len(keys)} budgets cover it, the API refuses that: {', '.join(keys)}" if len(keys) > 1 else ""


_ALWAYS: dict[str, Guard] = {
    "MirrorPod": _mirror,
    "Placeholder": _placeholder,
    "Terminating": lambda pod, _view, _args: "it is being deleted already" if pod.pod.deleting else "",
    "MigrationJobExists": lambda pod, view, _args: view.moving.get(pod.uid, ""),
}
_LATE: dict[str, Guard] = {"NamespaceSelector": _namespace, "ManyDisruptionBudgets": _many_budgets}


def _protects(kind: str) -> Callable[[Args], bool]:
    return lambda args: kind in args.protections


_PROTECTIONS: dict[str, Protection] = {
    "PrefersNoEviction": (lambda args: args.no_eviction_policy == "Mandatory", _opted_out),
    "EvictionCostIsNever": (lambda _: True, _cost),
    "SystemCritical": (_protects("SystemCriticalPods"), _critical),
    "PriorityThreshold": (_protects("SystemCriticalPods"), _threshold),
    "BarePod": (lambda _: True, _bare),
    "LocalStorage": (_protects("PodsWithLocalStorage"), _local_storage),
    "DaemonSet": (_protects("DaemonSetPods"), _daemon_set),
    "HasPVC": (_protects("PodsWithPVC"), _claims),
    "NoDisruptionBudget": (
        _protects("PodsWithoutPDB"),
        lambda pod, view, _args: "" if pod.uid in view.budgets_by_pod else "no PodDisruptionBudget covers it",
    ),
    "HasResourceClaims": (
        _protects("PodsWithResourceClaims"),
        lambda pod, _view, _args: "it holds resource claims" if pod.object.spec.resource_claims else "",
    ),
    "LabelSelector": (lambda args: args.label_selector is not None, _labels),
    "Namespace": (lambda args: args.namespaces is not None, _chosen_namespace),
    "TooFewReplicas": (lambda args: args.min_replicas > 1, _replicas),
    "PodTooYoung": (lambda args: args.min_pod_age is not None, _age),
}
_PERSONAL = ("NoDisruptionBudget", "PodTooYoung")
"""Protections that ask for more of a pod than it shares with others of its template."""
