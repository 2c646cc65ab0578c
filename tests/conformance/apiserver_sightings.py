"""What a recorded session shows: what each interaction aims at, and the objects and revisions in its answers."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from apiserver.requests import Request, Target, target

REVISION = re.compile(r"\$rv\d+")
DELETION = {"request": {"method": "DELETE"}}
READING = {"request": {"method": "GET"}}


def target_of(interaction: Any) -> Target:
    """Which resource and object an interaction is about."""
    request = interaction["request"]
    return target(Request.of(request["method"], request["path"], {}))


def has_content(interaction: Any) -> bool:
    """Whether the answer shows that something was there."""
    return interaction["response"]["status"] == 201 or bool(list(objects(interaction)))


def created(interaction: Any) -> Iterator[tuple[str, str, str]]:
    """(resource, namespace, name) of what an interaction created."""
    if interaction["response"]["status"] != 201 or "dryRun" in interaction["request"]["path"]:
        return
    body = interaction["response"]["body"]
    if isinstance(body, dict) and "name" in (body.get("metadata") or {}):
        yield target_of(interaction).resource, body["metadata"].get("namespace", ""), body["metadata"]["name"]


def states(recording: list[Any]) -> dict[str, tuple[Any, Any]]:
    """Objects that answers show at revisions no recorded write made, oldest first."""
    written = {symbol for each in recording if not _is_read(each) and _is_done(each) for symbol in revisions(each)}
    found = {}
    for each in recording:
        for item, seen in objects(each):
            version = item["metadata"].get("resourceVersion", "")
            if seen == "state" and version.startswith("$rv") and version not in written:
                found.setdefault(version, (item, each))
    return dict(sorted(found.items(), key=lambda entry: int(entry[0][3:])))


def _is_done(interaction: Any) -> bool:
    return bool(interaction["response"]["status"] < 300)


def _is_read(interaction: Any) -> bool:
    request = interaction["request"]
    return request["method"] == "GET" or (request["method"] == "DELETE" and "dryRun=All" in request["path"])


def events(interaction: Any) -> Iterator[Any]:
    """Events of built-in kinds that a watch saw."""
    for event in interaction["response"].get("stream") or ():
        item = (event.get("object") or {}) if isinstance(event, dict) else {}
        if "name" in (item.get("metadata") or {}) and item["kind"] not in ("Table", "PartialObjectMetadata"):
            yield event


def everything(interaction: Any) -> Iterator[Any]:
    """Objects in the events and in the body of an answer."""
    yield from (event["object"] for event in events(interaction))
    yield from (item for item, _ in objects(interaction))


def key(item: Any) -> tuple[str, str, str]:
    """(resource, namespace, name) of an object."""
    return f"{item['kind'].lower()}s", item["metadata"].get("namespace", ""), item["metadata"]["name"]


def revisions(interaction: Any) -> list[str]:
    """Symbols of the revisions in an answer."""
    return REVISION.findall(str(interaction["response"]))


def objects(interaction: Any) -> Iterator[tuple[Any, str]]:
    """Objects the answer shows: as they are (`state`), or as the request made them (`written`)."""
    wanted = interaction["response"]
    body = wanted.get("body")
    read = _is_read(interaction)
    if "stream" in wanted:
        path = interaction["request"]["path"]
        synthetic = "resourceVersion=0" in path or "resourceVersion=" not in path
        for event in events(interaction) if synthetic else ():
            if event["type"] == "ADDED":
                yield event["object"], "state"
        return
    if not isinstance(body, dict) or wanted["status"] >= 300 or interaction["request"]["method"] == "POST":
        return
    yield from ((item, "state" if read else "written") for item in _of_body(body, interaction))


def _of_body(body: Any, interaction: Any) -> Iterator[Any]:
    kind, api_version = str(body.get("kind", "")), str(body.get("apiVersion", ""))
    at = target_of(interaction)
    if kind.endswith("List"):
        named = {"kind": kind.removesuffix("List"), "apiVersion": api_version}
        for item in body.get("items") or ():
            if isinstance(item, str):
                continue
            if item.get("kind") != "PartialObjectMetadata" and "metadata" in item:
                yield named | item
    elif kind == "Table":
        for row in body["rows"]:
            if row.get("object") and row["object"]["kind"] not in ("PartialObjectMetadata",):
                yield row["object"]
    elif "name" in (body.get("metadata") or {}) and kind not in ("Status", "PartialObjectMetadata", "") and at.name:
        yield body


def original(item: Any, interaction: Any) -> Any:
    """An object as it was before a deletion that the answer shows."""
    result = copy.deepcopy(item)
    if interaction["request"]["method"] == "DELETE" or interaction["request"]["method"] == "POST":
        result["metadata"].pop("deletionTimestamp", None)
        grace = result["metadata"].pop("deletionGracePeriodSeconds", 0)
        if grace and result["kind"] == "Pod" and "gracePeriodSeconds" not in str(interaction["request"]):
            result.setdefault("spec", {})["terminationGracePeriodSeconds"] = grace
    for part in (result, result.get("spec") or {}, result.get("status") or {}):
        part.pop("...", None)
    if result["kind"] == "Pod":
        result.setdefault("spec", {}).setdefault(
            "containers", [{"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never"}]
        )
    return result


def is_named(item: Any, kind: str, at: Target) -> bool:
    """Whether an object is the one that a target names."""
    meta = item["metadata"]
    return bool(item["kind"] == kind and meta["name"] == at.name and meta.get("namespace", "") == at.namespace)


def is_expired(interaction: Any) -> bool:
    """Whether the answer is that of a server that has forgotten a state."""
    text = str(interaction["response"])
    return "410" in text and "too old resource version" not in text
