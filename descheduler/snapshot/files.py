"""Objects out of files that `kubectl get … -o json` or `-o yaml` made, or that people wrote.

A file that is not JSON or YAML is a problem with its line and column. One object with a field of the wrong type is a
problem too, but only that object is left out: the rest of the picture stands.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import yaml

from descheduler.snapshot import stream
from descheduler.snapshot.pack import Packer
from koordlite.model import keys
from koordlite.model.errors import UNREADABLE, InputError, Problem, noting, refusing
from koordlite.model.reading import yaml_bounds
from koordlite.model.wire import metrics, numatopology, volumes
from koordlite.model.wire import objects as wire
from koordlite.model.wire.crane import TopologyObject

CRANE_KIND = "CraneNodeResourceTopology"
"""Name of Crane's kind here. Its own name is that of topology.node.k8s.io's kind, which has another shape: the group
decides which it is. Source: Crane `topology.crane.io/v1alpha1`."""
_SHARED_NAME = "NodeResourceTopology"
"""Name of the kind in both groups."""
SHAPES: dict[str, type[Any]] = {
    "Node": wire.NodeObject,
    "Pod": wire.PodObject,
    "NodeResourceTopology": wire.NRTObject,
    CRANE_KIND: TopologyObject,
    numatopology.KIND: numatopology.NumatopologyObject,
    "PodDisruptionBudget": wire.PodDisruptionBudgetObject,
    "Namespace": wire.NamespaceObject,
    "PriorityClass": wire.PriorityClassObject,
    "PersistentVolumeClaim": volumes.PersistentVolumeClaimObject,
    "PersistentVolume": volumes.PersistentVolumeObject,
    "StorageClass": volumes.StorageClassObject,
    "NodeMetric": metrics.NodeMetricObject,
    "NodeMetrics": metrics.NodeMetricsObject,
    "PodMetrics": metrics.PodMetricsObject,
}
_DECODE = {kind: msgspec.json.Decoder(shape).decode for kind, shape in SHAPES.items()}
_SUFFIXES = (".json", ".yaml", ".yml")


class Objects(msgspec.Struct):
    """Objects by kind; the last object of a name wins, because a later file is the newer version."""

    by_kind: dict[str, dict[tuple[str, str], Any]] = msgspec.field(
        default_factory=lambda: {kind: {} for kind in SHAPES}
    )
    ignored: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of objects of kinds that nobody decides on."""
    repeated: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of objects that came more than once, by kind."""
    problems: list[Problem] = msgspec.field(default_factory=list)
    """Objects that were left out."""
    packer: Packer = msgspec.field(default_factory=Packer)
    """Keeps equal parts of pods once."""

    known: dict[str, Mapping[tuple[str, str], Any]] = msgspec.field(default_factory=dict)
    """Objects of the last cycle, by kind."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    """Resource version of the lists, by kind."""

    def successor(self) -> Objects:
        """Nothing yet, but it knows these objects."""
        return Objects(packer=self.packer, known=dict(self.by_kind), versions=dict(self.versions))

    def reuse(self, kind: str, document: msgspec.Raw) -> bool:
        """Take an object over from the last cycle; False when it is another one, or has changed."""
        previous = self.known.get(kind)
        if not previous:
            return False
        try:
            meta = _decode_identity(document).metadata
        except UNREADABLE:
            return False
        place = (meta.namespace, meta.name)
        obj = previous.get(place)
        if obj is None or not meta.uid or not meta.resource_version or place in self.by_kind[kind]:
            return False
        if (obj.metadata.uid, obj.metadata.resource_version) != (meta.uid, meta.resource_version):
            return False
        self.by_kind[kind][place] = obj
        return True

    def of(self, kind: str) -> list[Any]:
        """Objects of `kind`, by namespace and name."""
        objects = self.by_kind[kind]
        return [objects[place] for place in sorted(objects)]

    def change(self, kind: str, before: Objects, changed: Mapping[tuple[str, str], Any]) -> None:
        """Take over a kind from the last cycle, but for the objects that changed; None stands for one that is gone.

        `before` changes with it: a watch reports a change once, whatever becomes of this cycle.
        """
        objects = before.by_kind[kind]
        for place, obj in changed.items():
            if obj is None:
                objects.pop(place, None)
            elif not _unchanged(objects.get(place), obj):
                objects[place] = obj
        self.by_kind[kind] = objects


class _Identity(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct):
    metadata: _Identity = msgspec.field(default_factory=_Identity)


_decode_identity = msgspec.json.Decoder(_Identified).decode


class _Header(msgspec.Struct, frozen=True):
    kind: str = ""
    metadata: wire.ObjectMeta = wire.ObjectMeta()
    items: tuple[msgspec.Raw, ...] | None = None


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")


def read(paths: Iterable[str]) -> Objects:
    """All objects in files and folders; InputError lists every file that cannot be read at all."""
    objects, broken = Objects(), list[Problem]()
    for path in _files(paths, broken):
        with noting(broken):
            for document in _documents(objects, path):
                take(objects, document, str(path))
    if broken:
        raise InputError(broken)
    return objects


def _files(paths: Iterable[str], broken: list[Problem]) -> Iterator[pathlib.Path]:
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
            yield from files
            if not files:
                broken.append(Problem(str(path), "folder", "", "no .json, .yaml or .yml file in it", _HOW))
        elif path.is_file() or path.is_fifo():
            yield path
        elif str(path) in ("-", "/dev/stdin"):
            yield pathlib.Path("/dev/stdin")
        else:
            broken.append(Problem(str(path), "file", "", "there is no such file or folder", _HOW))


KINDS = "nodes,pods,namespaces,noderesourcetopologies,pdb,pvc,pv,storageclasses,priorityclasses"
"""Kinds of a picture in the words of kubectl; measurements come from elsewhere."""
_HOW = f"make one with `kubectl get {KINDS} -A -o json > cluster.json`, without kinds that the cluster does not have"


def _documents(objects: Objects, path: pathlib.Path) -> Iterator[bytes]:
    """The JSON text of every document in a file or pipe. A large list is taken object by object and does not come."""
    try:
        with path.open("rb") as opened:
            file = stream.Rereadable(opened)
            # Nobody knows how much comes out of a pipe: more than its beginning is much.
            large = path.stat().st_size >= stream.LARGE_BYTES if path.is_file() else file.goes_on()
            if path.suffix not in _SUFFIXES[1:] and large and _take_in_pieces(objects, file, str(path)):
                return
            data = file.whole()
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(Problem(str(path), "file", "", why, "make it readable")) from error
    if not data.strip() and not path.is_file():
        raise InputError(Problem(str(path), "file", "", "nothing came from the pipe", _HOW))
    if path.suffix == ".json" or (path.suffix not in _SUFFIXES and data.lstrip()[:1] == b"{"):
        yield data
    else:
        yield from _from_yaml(path, data)


def _take_in_pieces(objects: Objects, file: stream.Rereadable, path: str) -> bool:
    """Take a list object by object. False: it is of another form, and has to be read at once."""
    pieces = stream.items(file, path, _as_pod)
    first = next(pieces, None)
    if first is None or not (first.kind or _header(first.text, path).kind):
        return False
    file.forget()
    for piece in itertools.chain((first,), pieces):
        if piece.made and (piece.made.kind or piece.kind) in ("Pod", "PodList"):
            _put(objects, piece.made, "Pod", path)
        else:
            take(objects, piece.text, path, piece.kind.removesuffix("List"))
    return True


class _PodOrOther(wire.PodObject, frozen=True):
    kind: str = ""


_decode_pod = msgspec.json.Decoder(_PodOrOther).decode
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode


def _as_pod(text: bytes) -> _PodOrOther | None:
    """Read as a pod what most likely is one, so that it is read once; None when it cannot be.

    msgspec.DecodeError when the text is no JSON.
    """
    try:
        return _decode_pod(text)
    except msgspec.ValidationError:
        _decode_any(text)  # A mistake is found before the end of the text is, which may be cut off.
        return None


def _from_yaml(path: pathlib.Path, data: bytes) -> Iterator[bytes]:
    try:
        text = data.decode()
        documents = list(yaml.load_all(yaml_bounds.checked(text), Loader=yaml_bounds.LOADER))
    except UnicodeDecodeError as error:
        raise InputError(Problem(str(path), "YAML", "", str(error), "write it in UTF-8")) from error
    except yaml_bounds.UNREADABLE as error:
        where, why = yaml_bounds.place(path, error), yaml_bounds.why(error)
        raise InputError(Problem(where, "YAML", "", why, "fix the syntax")) from error
    for number, document in enumerate(documents):
        if document is None:
            continue
        try:  # The times that YAML turned into datetimes are written back as RFC 3339.
            yield msgspec.json.encode(document)
        except TypeError as error:
            where = f"{path} document {number + 1}"
            raise InputError(Problem(where, "YAML", "", str(error), "write plain text keys and values")) from error


def take(objects: Objects, document: bytes | msgspec.Raw, path: str, kind: str = "") -> None:
    """Take one object, or every item of a list. Items of a list may name no kind: the list does."""
    header = _header(document, path)
    kind = kind_of(header.kind, header.api_version) or kind
    if kind.endswith("List"):
        with refusing(path, "$.items", "", _HOW):
            items = msgspec.json.decode(document, type=_Header).items or ()
        for item in items:
            take(objects, item, path, kind.removesuffix("List"))
    elif kind in SHAPES:
        keep(objects, document, kind, path)
    else:
        objects.ignored[kind or "objects without a kind"] += 1


def kind_of(kind: str, api_version: str) -> str:
    """`kind`, unless it is Crane's kind under the shared name (or a list of them)."""
    if kind.startswith(_SHARED_NAME) and api_version.startswith(keys.CRANE_GROUP):
        return CRANE_KIND + kind.removeprefix(_SHARED_NAME)
    return kind


def _header(document: bytes | msgspec.Raw, path: str) -> _Kind:
    try:
        return msgspec.json.decode(document, type=_Kind)
    except msgspec.ValidationError as error:
        raise InputError(Problem(path, "$", "", f"not a Kubernetes object: {error}", _HOW)) from error
    except UNREADABLE as error:
        raise InputError(_syntax(bytes(document), path)) from error


def _syntax(data: bytes, path: str) -> Problem:
    """The place where the JSON breaks: msgspec is fast but does not say the line, so the slow reader looks once
    more."""
    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        return Problem(f"{path}:{error.lineno}:{error.colno}", "JSON", "", error.msg, "fix the syntax")
    except UnicodeDecodeError as error:
        return Problem(path, "JSON", "", f"not UTF-8 text: {error.reason} at byte {error.start}", "save it as UTF-8")
    except UNREADABLE as error:
        return Problem(path, "JSON", "", str(error)[:200], _HOW)
    return Problem(path, "JSON", "", "not JSON as Kubernetes writes it", _HOW)


def keep(objects: Objects, document: bytes | msgspec.Raw, kind: str, path: str) -> None:
    """Take one object whose kind is known."""
    try:
        obj = _DECODE[kind](document)
    except UNREADABLE as error:
        objects.problems.append(_poison(document, kind, path, str(error)))
        return
    _put(objects, obj, kind, path)


def decode(document: bytes | msgspec.Raw, kind: str, packer: Packer) -> Any:
    """Decode an object of a known kind as it is kept; msgspec.DecodeError or OverflowError when it cannot be read."""
    return _settle(_DECODE[kind](document), kind, packer)


def _settle(obj: Any, kind: str, packer: Packer) -> Any:
    """A pod without what no rule looks at. A Node of one picture after the other without the times of its heartbeats,
    which are nearly all that ever changes in it; OverflowError for numbers beyond 64 bits."""
    if kind == "Pod":
        return packer.small(obj)
    if kind != "Node" or not packer.lasting:
        return obj
    replace = msgspec.structs.replace
    conditions = tuple([replace(one, last_heartbeat_time=None) for one in obj.status.conditions or ()])
    return replace(obj, status=replace(obj.status, conditions=conditions or None))


def _unchanged(previous: Any, obj: Any) -> bool:
    """Tell whether an object says what it said before, if in another version."""
    if previous is None or previous.metadata.uid != obj.metadata.uid:
        return False
    replace = msgspec.structs.replace
    meta = replace(obj.metadata, resource_version=previous.metadata.resource_version)
    same: bool = replace(obj, metadata=meta) == previous
    return same


def _put(objects: Objects, obj: Any, kind: str, path: str) -> None:
    """Put an object in its place; one without a name has none."""
    place = (obj.metadata.namespace, obj.metadata.name)
    if not place[1]:
        do = "give it a name; the object is left out of the picture until then"
        objects.problems.append(Problem(f"{path}: {kind.lower()}", "$.metadata.name", "", "there is no name", do))
        return
    try:
        obj = _settle(obj, kind, objects.packer)
    except OverflowError:
        do = "correct it; the object is left out of the picture until then"
        why = "a number in it is beyond 64 bits"
        objects.problems.append(Problem(f"{path}: pod/{'/'.join(place)}", "$.spec", "", why, do))
        return
    current, previous = objects.by_kind[kind], objects.known.get(kind)
    if previous and _unchanged(previous.get(place), obj):
        obj = previous[place]
    if place in current:
        objects.repeated[kind] += 1
    current[place] = obj


def _poison(document: bytes | msgspec.Raw, kind: str, path: str, why: str) -> Problem:
    """A problem that names the object as well as its broken state allows."""
    try:
        meta = _decode_identity(document).metadata
        names = [name for name in (meta.namespace, meta.name) if name]
    except UNREADABLE:
        names = [bytes(document)[:80].decode(errors="replace")]
    name = "/".join([kind.lower(), *names])
    why, _, field = why.partition(" - at ")
    do = "correct the field; the object is left out of the picture until then"
    return Problem(f"{path}: {name}", field.strip("`") or "$", "", why, do)
