"""Media types: what the client accepts, what it sends, and how bodies are read and written."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from apiserver import status
from apiserver.requests import Request
from apiserver.resources import Resource

JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BODY_LIMIT = 3 * 1024 * 1024
"""Bytes of a request."""
_SENT = f"application/json, application/yaml, {PROTOBUF}"
_NO_VERSION = "couldn't get version/kind; json parse error"


def check_accepted(request: Request) -> None:
    """Refused 406 when the client accepts nothing that we write: JSON, and nothing else."""
    ranges = [part.partition(";")[0].strip() for part in request.headers.get("accept", "").split(",")]
    if not {"", JSON, "*/*", "application/*"} & set(ranges):
        offered = f"{JSON}, application/yaml, {PROTOBUF}"
        message = f"406: Not Acceptable\n\nAvailable representations: {offered}"
        raise status.Refused(406, message, reason="NotAcceptable", details={})


def encoded(body: Any) -> bytes:
    """The answer's content."""
    return msgspec.json.encode(body)


def sent_media(request: Request) -> str:
    """Media type of the request's body; empty when the client does not say."""
    return request.headers.get("content-type", "").partition(";")[0].strip()


def decoded(request: Request, resource: Resource) -> dict[str, Any]:
    """The object a client sends to create or replace; Refused 400, 413 or 415."""
    media = sent_media(request)
    if media not in ("", JSON):
        raise status.unsupported_media(
            f"the body of the request was in an unknown format - accepted media types include: {_SENT}"
        )
    return _object(parsed(request.body, resource), request.body, resource)


def parsed(body: bytes, resource: Resource) -> Any:
    """The content of a body."""
    if len(body) > BODY_LIMIT:
        raise too_large()
    try:
        return json.loads(body)
    except ValueError as error:
        cut = not body or "Expecting" in str(error)
        why = "unexpected end of JSON input" if cut else str(error)
        raise _unrecognized(resource, f"{why} ({body.decode(errors='replace') or '<empty>'})") from error


def too_large() -> status.Refused:
    """413."""
    message = f"Request entity too large: limit is {BODY_LIMIT}"
    return status.Refused(413, message, reason="RequestEntityTooLarge")


def _object(found: Any, body: bytes, resource: Resource) -> dict[str, Any]:
    if not isinstance(found, dict):
        kind = "array" if isinstance(found, list) else type(found).__name__
        raise _unrecognized(resource, f"json: cannot unmarshal {kind} into Go value ({body.hex()})")
    return found


def _unrecognized(resource: Resource, why: str) -> status.Refused:
    return status.bad_request(
        f"the object provided is unrecognized (must be of type {resource.kind}): {_NO_VERSION}: {why}"
    )


def checked_kind(found: dict[str, Any], resource: Resource, version: str) -> dict[str, Any]:
    """The object with its kind and apiVersion; Refused when it says it is something else."""
    kind, api_version = str(found.get("kind") or ""), str(found.get("apiVersion") or "")
    wanted = resource.api_version(version)
    if not isinstance(found.get("metadata") or {}, dict):
        raise unfit(resource, version, "json: cannot unmarshal metadata into Go value of type v1.ObjectMeta")
    if resource.custom:
        _check_custom(found, resource, version)
    elif kind and kind != resource.kind:
        why = (
            f"converting ({_go_type(api_version, kind)}) to ({_internal(resource)}.{resource.kind}): unknown conversion"
        )
        raise _unhandled(kind, api_version, resource, why)
    elif api_version and api_version != wanted:
        why = (
            f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/api/legacyscheme/scheme.go:31"'
        )
        raise _unhandled(kind or resource.kind, api_version, resource, why)
    return {**found, "kind": resource.kind, "apiVersion": wanted, "metadata": found.get("metadata") or {}}


def _check_custom(found: dict[str, Any], resource: Resource, version: str) -> None:
    kind, api_version = found.get("kind") or "", found.get("apiVersion") or ""
    wanted = resource.api_version(version)
    if not kind:
        why = f"Object 'Kind' is missing in '{json.dumps(found)}'"
        raise status.bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {why}")
    if api_version != wanted:
        why = f"the API version in the data ({api_version}) does not match the expected API version ({wanted})"
        raise status.bad_request(why)
    if kind != resource.kind:
        name = (found.get("metadata") or {}).get("name", "")
        raise status.invalid(kind, resource.group, name, [status.wrong("kind", kind, f"must be {resource.kind}")])


def unfit(resource: Resource, version: str, why: str) -> status.Refused:
    """400 for an object whose fields have the wrong types."""
    return _unhandled(resource.kind, version, resource, why)


def _unhandled(kind: str, api_version: str, resource: Resource, why: str) -> status.Refused:
    version = api_version.rpartition("/")[2]
    return status.bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}')


def _go_type(api_version: str, kind: str) -> str:
    return f"{api_version.rpartition('/')[2]}.{kind}"


def _internal(resource: Resource) -> str:
    return resource.group.partition(".")[0] or "core"
