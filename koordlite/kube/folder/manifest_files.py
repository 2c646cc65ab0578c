"""One manifest file as objects, every mistake in it with FILE:LINE:COLUMN.

A file is taken whole or not at all: half a file is not what its author meant.
"""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import structs

from koordlite.kube.kubelet import configz
from koordlite.kube.kubelet.configz import CPUManagerState
from koordlite.model.errors import ConfigError, InputError, Problem, mismatch
from koordlite.model.picture.kubelet import Kubelet
from koordlite.model.reading import yaml_bounds
from koordlite.model.wire import affinity, objects

Object = (
    objects.NodeObject
    | objects.PodObject
    | objects.ConfigMapObject
    | objects.NRTObject
    | affinity.OenumaObject
    | affinity.WhitelistObject
)
Loaded = Object | Kubelet | CPUManagerState

SHAPES: Mapping[str, type[Object]] = {
    "Node": objects.NodeObject,
    "Pod": objects.PodObject,
    "ConfigMap": objects.ConfigMapObject,
    "NodeResourceTopology": objects.NRTObject,
    "Oenuma": affinity.OenumaObject,
    "Whitelist": affinity.WhitelistObject,
}
OPENEULER = ("Oenuma", "Whitelist")
"""Kinds that other groups may have too."""
SUFFIXES = (".yaml", ".yml", ".json")
KEEP = "fix it; the last good objects of this file stay"
_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]")


class _Loader(yaml_bounds.LOADER):  # type: ignore[misc,valid-type]
    """YAML as Kubernetes reads it: dates stay text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
    for first, pairs in _Loader.yaml_implicit_resolvers.items()
}


class Document(msgspec.Struct, frozen=True):
    """One document or list item: its content, and its YAML node to find positions (None for JSON)."""

    content: Any
    node: yaml.Node | None


def read(path: Path) -> tuple[Loaded, ...]:
    """The objects of one file; InputError lists everything that is wrong in it. OSError when it cannot be opened."""
    raw = path.read_bytes()
    if path.name == "cpu_manager_state":
        return (configz.parse_cpu_manager_state(raw),)
    if path.name == "configz.json":
        return (configz.parse_configz(raw),)
    problems: list[Problem] = []
    read = (_object(path, kind, each, problems) for kind, each in _opened(path, _documents(path, raw), problems))
    loaded = [obj for obj in read if obj is not None]
    if problems:
        raise InputError(problems)
    return tuple(loaded)


def config_map(path: Path) -> Mapping[str, str] | None:
    """data of the ConfigMap in a file; None where it holds no object of a cluster, as koordlite.yaml does. InputError
    when there is something wrong with its objects, or they are not one ConfigMap."""
    try:
        documents = [each.content for each in _documents(path, path.read_bytes())]
    except (OSError, InputError):
        return None  # The reader of koordlite.yaml says what is wrong with it.
    if not any(isinstance(each, dict) and "kind" in each for each in documents):
        return None
    data = [obj.data or {} for obj in read(path) if isinstance(obj, objects.ConfigMapObject)]
    if len(data) != 1:
        do = "write one ConfigMap, or a koordlite.yaml"
        raise ConfigError(Problem(str(path), "kind", "", f"there are {len(data)} ConfigMaps", do))
    return data[0]


def contents(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(FILE:LINE:COLUMN, content) of every object of one file, of any kind and as it is written; lists are opened.
    InputError when the file is no YAML or JSON, or holds what is no object."""
    problems: list[Problem] = []
    for _, document in _opened(path, list(_documents(path, path.read_bytes())), problems):
        yield yaml_bounds.place(path, document.node), document.content
    if problems:
        raise InputError(problems)


def contents_of_folder(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same of every file of a folder; InputError too where there is none."""
    if not folder.is_dir():
        raise InputError(Problem(str(folder), "$", "", "there is no such folder", "name a folder of manifests"))
    for path in sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES):
        yield from contents(path)


def _documents(path: Path, raw: bytes) -> Iterator[Document]:
    try:
        text = raw.decode()
        if path.suffix == ".json":
            yield Document(json.loads(text), None)
            return
        loader = _Loader(yaml_bounds.checked(text))
        while loader.check_node():
            node = loader.get_node()
            content = loader.construct_document(node)
            if content is not None:
                yield Document(content, node)
    except json.JSONDecodeError as error:
        raise InputError(_problem(f"{path}:{error.lineno}:{error.colno}", "not JSON: " + error.msg)) from error
    except UnicodeDecodeError as error:
        raise InputError(_problem(f"{path}:1:1", f"not UTF-8: {error}")) from error
    except yaml_bounds.UNREADABLE as error:
        form = "JSON" if path.suffix == ".json" else "YAML"
        raise InputError(_problem(yaml_bounds.place(path, error), f"not {form}: {yaml_bounds.why(error)}")) from error


def _opened(path: Path, documents: Iterable[Document], problems: list[Problem]) -> Iterator[tuple[str, Document]]:
    """Kind and content of each object; lists are opened."""
    for document in documents:
        place, content = yaml_bounds.place(path, document.node), document.content
        kind = content.get("kind") if isinstance(content, dict) else None
        if not isinstance(content, dict):
            problems.append(_problem(place, f"a manifest is a mapping, not {type(content).__name__}"))
        elif not isinstance(kind, str) or not kind:
            problems.append(_problem(place, "it does not say what it is", field="kind"))
        elif kind.endswith("List"):
            items, nodes = content.get("items") or [], yaml_bounds.child(document.node, "items")
            items = items if isinstance(items, list) else [items]
            for item in items:
                if isinstance(item, dict) and kind != "List":
                    item.setdefault("kind", kind.removesuffix("List"))  # Those of a PodList carry none of their own.
            listed = (Document(each, yaml_bounds.child(nodes, str(number))) for number, each in enumerate(items))
            yield from _opened(path, listed, problems)
        else:
            yield kind, document


def _object(path: Path, kind: str, document: Document, problems: list[Problem]) -> Loaded | None:
    try:
        if kind == "KubeletConfiguration":
            return configz.parse_configz(msgspec.json.encode({"kubeletconfig": document.content}))
        shape = SHAPES.get(kind)
        version = str(document.content.get("apiVersion"))
        if kind in OPENEULER and not version.startswith(f"{affinity.GROUP}/"):
            return None
        obj = msgspec.convert(document.content, shape) if shape else None
        return completed(obj) if isinstance(obj, objects.PodObject) else obj
    except msgspec.ValidationError as error:
        problems.append(_mismatch(path, kind, document, error))
    except InputError as error:
        place = yaml_bounds.place(path, document.node)
        problems.extend(dataclasses.replace(each, object=f"{place}: {each.object}") for each in error.problems)
    return None


def completed(pod: objects.PodObject) -> objects.PodObject:
    """A pod as the cluster would hold it: with namespace, uid and phase, which people leave out."""
    meta = pod.metadata
    namespace = meta.namespace or "default"
    # The same uid for the same name, in the form the API server gives.
    stable = str(uuid.uuid5(uuid.NAMESPACE_URL, f"pod/{namespace}/{meta.name}"))
    meta = structs.replace(meta, namespace=namespace, uid=meta.uid or stable)
    return structs.replace(pod, metadata=meta, status=structs.replace(pod.status, phase=pod.status.phase or "Running"))


def _mismatch(path: Path, kind: str, document: Document, error: Exception) -> Problem:
    """The problem at the place of the value; in its path `[...]` is some item of a mapping."""
    field, why = mismatch(error)
    node, value = document.node, document.content
    for name, number, _ in _STEP.findall(field):
        key = name or number
        node = yaml_bounds.child(node, key) or node if key else node
        if isinstance(value, dict) and key:
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
    meta = document.content.get("metadata")
    named = f"{kind} {meta.get('name', '')}" if isinstance(meta, dict) else kind
    text = "" if isinstance(value, dict | list) else str(value)
    return Problem(f"{yaml_bounds.place(path, node)}: {named}", field or "$", text, why, KEEP)


def _problem(place: str, why: str, *, field: str = "$") -> Problem:
    return Problem(place, field, "", why, KEEP)
