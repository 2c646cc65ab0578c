"""`profile apply`: what ClusterColocationProfiles would make of a pod; read-only, and without a cluster."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml

from koordlite import commandline
from koordlite.formulas.admission import colocation_profile as rules
from koordlite.formulas.admission.colocation_profile import PriorityClassValue
from koordlite.kube.folder import manifest_files
from koordlite.model import colocation_profile, printable
from koordlite.model.colocation_profile import Profile
from koordlite.model.errors import InputError, Problem, mismatch, noting
from koordlite.model.pod.qos import DEFAULT_PRIORITY
from koordlite.model.wire import objects

_WORKLOADS = ("DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet")


class Manifests(msgspec.Struct, frozen=True):
    """Inputs of the rules from a set of manifests."""

    profiles: list[Profile] = msgspec.field(default_factory=list)
    pods: list[tuple[str, dict[str, Any]]] = msgspec.field(default_factory=list)
    """Place of each pod in the files, and the pod."""
    templates: list[tuple[str, dict[str, Any]]] = msgspec.field(default_factory=list)
    """Place of each workload in the files, and the first pod that it makes."""
    namespaces: dict[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    priority_classes: dict[str, PriorityClassValue] = msgspec.field(default_factory=dict)
    problems: list[Problem] = msgspec.field(default_factory=list)


class _PriorityClass(msgspec.Struct, rename="camel"):
    metadata: objects.ObjectMeta
    value: int
    preemption_policy: str | None = None


class _Namespace(msgspec.Struct):
    metadata: objects.ObjectMeta


def profile(args: argparse.Namespace) -> int:
    """`profile apply`: print each pod as it would be admitted, after comments that say why. InputError for bad ones."""
    inputs = read(dict.fromkeys(map(pathlib.Path, (*args.profile, args.pod))))
    pods = [*inputs.pods, *inputs.templates]
    for matches, files, kind in (
        (inputs.profiles, args.profile, colocation_profile.KIND),
        (pods, [args.pod], "Pod"),
    ):
        if not matches:
            why, do = f"there is no {kind} in it", f"name a file that holds a {kind}"
            inputs.problems.append(Problem(", ".join(files), "kind", "", why, do))
    if inputs.problems:
        raise InputError(inputs.problems)
    assumed = {str(name): PriorityClassValue(value) for name, value in DEFAULT_PRIORITY.items() if name}
    admitted = [_admitted(place, pod, inputs, assumed) for place, pod in pods]
    if args.output == "json":
        commandline.print_json("koordlite-profile", pods=[{"why": why, "pod": pod} for why, pod in admitted])
        return 0
    texts = (
        "".join(f"# {line}\n" for line in why) + yaml.safe_dump(pod, sort_keys=False, width=120)
        for why, pod in admitted
    )
    print(printable.lines("---\n".join(texts)), end="")
    return 0


def read(paths: Iterable[pathlib.Path]) -> Manifests:
    """Profiles, pods, namespaces and priority classes of these files; what is wrong with them is in `problems`."""
    inputs = Manifests()
    for path in paths:
        with noting(inputs.problems):
            for place, content in manifest_files.contents(path):
                _take(place, content, inputs)
    return inputs


def takers(folder: pathlib.Path) -> tuple[list[str], list[Problem]]:
    """(one line for each pod of the folder that a profile of the folder takes, what is wrong with the profiles)."""
    if not folder.is_dir():
        return [], []
    inputs = read(
        path for path in sorted(folder.iterdir()) if path.suffix in manifest_files.SUFFIXES and path.is_file()
    )
    lines = []
    for _, pod in inputs.pods if inputs.profiles else ():
        meta = msgspec.convert(pod.get("metadata") or {}, objects.ObjectMeta)
        space = meta.namespace or "default"
        matched, notes = rules.matching(
            inputs.profiles, namespace=inputs.namespaces.get(space), labels=meta.labels or {}
        )
        named = f"pod/{space}/{meta.name}"
        if matched:
            lines.append(f"{named} would be taken by profile {', '.join(profile.name for profile in matched)}")
        lines.extend(f"{named}: {note}" for note in notes)
    ours = colocation_profile.KIND
    return [*map(printable.one_line, lines)], [problem for problem in inputs.problems if ours in problem.object]


def _take(place: str, content: dict[str, Any], inputs: Manifests) -> None:
    """Take an object of a file; kinds that the rules do not need are passed over."""
    kind = content["kind"]
    name = (content.get("metadata") or {}).get("name", "") if isinstance(content.get("metadata"), dict) else ""
    owner = f"{place}: {kind} {name}".rstrip()
    try:
        if kind == colocation_profile.KIND:
            inputs.profiles.append(colocation_profile.from_object(content, owner))
        elif kind == "Pod":
            msgspec.convert(content, objects.PodObject)
            inputs.pods.append((owner, content))
        elif kind in _WORKLOADS:
            pod = _first_pod(content)
            msgspec.convert(pod, objects.PodObject)
            inputs.templates.append((owner, pod))
        elif kind == "Namespace":
            inputs.namespaces[name] = msgspec.convert(content, _Namespace).metadata.labels or {}
        elif kind == "PriorityClass":
            priority_class = msgspec.convert(content, _PriorityClass)
            inputs.priority_classes[name] = PriorityClassValue(priority_class.value, priority_class.preemption_policy)
    except msgspec.ValidationError as error:
        path, why = mismatch(error)
        inputs.problems.append(Problem(owner, path or "$", "", why, "correct the manifest"))
    except InputError as error:
        inputs.problems.extend(error.problems)


def _first_pod(workload: Mapping[str, Any]) -> dict[str, Any]:
    """A pod of the template, in the namespace of the workload; msgspec.ValidationError where it has none."""
    template = (workload.get("spec") or {}).get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise msgspec.ValidationError("Object missing required field `template` - at `$.spec`")
    owner, meta = workload.get("metadata") or {}, template.get("metadata") or {}
    space = {"namespace": owner["namespace"]} if owner.get("namespace") else {}
    metadata = {"name": f"{owner.get('name', '')}-1", **space, **meta}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _admitted(
    place: str, pod: dict[str, Any], inputs: Manifests, assumed: Mapping[str, PriorityClassValue]
) -> tuple[list[str], dict[str, Any]]:
    """(what was decided, and why; the pod as it would be admitted)."""
    try:
        admission = rules.admitted(
            pod,
            inputs.profiles,
            namespaces=inputs.namespaces,
            priority_classes={**assumed, **inputs.priority_classes},
        )
        whole, repeated = rules.with_resource_spec(admission.pod) if admission.taken_by else (admission.pod, ())
    except InputError as error:
        # A problem of the pod gets the file it stands in.
        placed = (dataclasses.replace(p, object=place) if p.object == "pod" else p for p in error.problems)
        raise InputError(placed) from error
    percents = {profile.name: profile.probability for profile in inputs.profiles}
    lines = [] if admission.taken_by else ["taken by no profile: admitted as it is"]
    for name in admission.taken_by:
        percent = percents[name]
        part = "" if percent == 100 else f" ({percent} % of such pods; shown for one of them)" if percent else " (0 %)"
        lines.append(f"taken by profile {name}{part}")
    lines += [f"note: {note}" for note in admission.notes]
    lines += [f"{c.field}: {_text(c.before)} -> {_text(c.after)} ({c.why})" for c in (*admission.changes, *repeated)]
    used = {whole.get("spec", {}).get("priorityClassName", "")} & (assumed.keys() - inputs.priority_classes.keys())
    lines += [f"note: no PriorityClass {name} was given; {assumed[name].value} is assumed" for name in used]
    return [*map(printable.one_line, lines)], whole


def _text(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
