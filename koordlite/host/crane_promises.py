"""The CPUs that pods have by Crane's annotations, kept in the state folder so that a restart gives them the same.

One file, replaced as a whole before the first CPU set is written, and a second copy, which counts when the first cannot
be read. They live as long as the folder.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from koordlite.host import kept_file, state_folder
from koordlite.model.cpuset import EMPTY, CPUSet
from koordlite.model.errors import UNREADABLE, InputError, Problem
from koordlite.numa.crane.assignments import Entries, Entry, contradiction

NAME = "crane-promises.json"
COPY = "crane-promises-copy.json"
_FIXED = ("exclusive", "immovable")
_REMOVE = "remove both files: pods then get CPUs afresh, maybe others than they run on"


class _KeptPod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policy: str
    zones: tuple[tuple[int, int], ...]
    containers: dict[str, str]


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pods: dict[str, _KeptPod]


def read(folder: Path) -> tuple[Entries, tuple[Problem, ...]]:
    """The assignments by pod uid, and what was wrong with the first file where the copy counts; none without files.
    InputError when neither can be read: then nobody knows which CPUs are given away."""
    try:
        return kept_file.read(folder / NAME, parse, do=_REMOVE) or {}, ()
    except InputError as error:
        first = error
    try:
        copy = kept_file.read(folder / COPY, parse, do=_REMOVE) or {}
    except InputError as error:
        raise InputError((*first.problems, *error.problems)) from error
    (problem,) = first.problems
    do = f"nothing: {COPY} counts, and the next change writes both"
    return copy, (Problem(problem.object, problem.field, problem.value, problem.why, do),)


def write(folder: Path, entries: Entries) -> None:
    """Keep these in place of what was kept. OSError when the folder cannot be written."""
    pods: dict[str, _KeptPod] = {}
    for uid in sorted(entries):
        first = next(iter(entries[uid].values()))
        sets = {name: str(entry.cpus) for name, entry in entries[uid].items()}
        pods[uid] = _KeptPod(first.policy, first.zones, sets)
    content = _Content(pods)
    raw = msgspec.json.format(msgspec.json.encode(content), indent=1)
    for name in (NAME, COPY):
        state_folder.replace(folder / name, raw)


def parse(raw: bytes) -> Entries:
    """The assignments that `raw` writes; ValueError when it writes none, or such that cannot all hold."""
    try:
        content = msgspec.json.decode(raw, type=_Content)
    except UNREADABLE as error:
        raise ValueError(str(error)) from error
    entries = {uid: _entries(uid, pod) for uid, pod in content.pods.items()}
    why = contradiction(entries)
    if why:
        raise ValueError(why)
    return entries


def _entries(uid: str, pod: _KeptPod) -> dict[str, Entry]:
    if pod.policy not in (*_FIXED, "numa") or not pod.containers:
        raise ValueError(f"pod {uid} has policy {pod.policy!r} and {len(pod.containers)} containers")
    entries = {name: Entry(pod.policy, pod.zones, CPUSet.parse(text)) for name, text in pod.containers.items()}
    if any((entry.cpus == EMPTY) == (pod.policy in _FIXED) for entry in entries.values()):
        raise ValueError(f"pod {uid} of policy {pod.policy} has {sorted(pod.containers.values())}")
    return entries
