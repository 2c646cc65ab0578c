"""Answers that refuse: Status objects with reason, details and causes (Kubernetes api/errors, field.Error)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from apiserver.resources import Resource

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
OVER_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
NOT_ALLOWED = "the server does not allow this method on the requested resource"
NO_RESOURCE = "the server could not find the requested resource"


class Refused(Exception):
    """A request that gets a Status instead of what it asked for."""

    def __init__(self, code: int, message: str, *, reason: str = "", details: Any = None, **meta: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.reason, self.details, self.meta = code, message, reason, details, meta

    @property
    def body(self) -> dict[str, Any]:
        """The Status object."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": self.meta, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}

    @property
    def headers(self) -> dict[str, str]:
        """Retry-After where the details say one."""
        seconds = (self.details or {}).get("retryAfterSeconds")
        return {} if seconds is None else {"Retry-After": str(seconds)}


class PlainNotFound(Exception):
    """A path below no known group: the answer is plain text, no Status."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong."""

    reason: str
    message: str
    field: str


def required(field: str, detail: str = "") -> Cause:
    """A field that must be there."""
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def wrong(field: str, value: Any, detail: str) -> Cause:
    """A field whose value cannot be."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {detail}", field)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """A value outside the few that exist."""
    shown = f'"{value}"' if isinstance(value, str) else "[" + ",".join(f'"{each}"' for each in value) + "]"
    words = ", ".join(f'"{word}"' for word in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {words}", field)


def duplicate(field: str, value: str) -> Cause:
    """A value that may be there once."""
    return Cause("FieldValueDuplicate", f'Duplicate value: "{value}"', field)


def forbidden_field(field: str, detail: str) -> Cause:
    """A field that may not be set or changed."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def too_long(field: str, limit: int) -> Cause:
    """A value with too many bytes."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> Refused:
    """422: fields of an object or of the request's options."""
    shown = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
    details: dict[str, Any] = {"name": name, "group": group, "kind": kind}
    details = {key: value for key, value in details.items() if value}
    details["causes"] = [dataclasses.asdict(cause) for cause in causes]
    full = f"{kind}.{group}" if group else kind
    return Refused(422, f'{full} "{name}" is invalid: {listed}', reason="Invalid", details=details)


def invalid_options(kind: str, cause: Cause) -> Refused:
    """422: a query parameter or a field of the request's options."""
    return invalid(kind, "meta.k8s.io", "", [cause])


def bad_request(message: str) -> Refused:
    """400."""
    return Refused(400, message, reason="BadRequest")


def internal(message: str) -> Refused:
    """500 without a reason, as a real server gives for what it did not foresee."""
    return Refused(500, message)


def broken(error: Exception) -> Refused:
    """500 for a fault of the server itself (apimachinery NewInternalError)."""
    message = f"{type(error).__name__}: {error}"
    return Refused(
        500,
        f"Internal error occurred: {message}",
        reason="InternalError",
        details={"causes": [{"message": message}]},
    )


def no_resource() -> Refused:
    """404 for a resource, version or subresource that is not served."""
    return Refused(404, NO_RESOURCE, reason="NotFound", details={})


def not_allowed() -> Refused:
    """405."""
    return Refused(405, NOT_ALLOWED, reason="MethodNotAllowed", details={})


def unsupported_media(message: str, *, routed: bool = True) -> Refused:
    """415; before the route was taken the details are an empty object."""
    return Refused(415, message, reason="UnsupportedMediaType", details=None if routed else {})


def not_found(resource: Resource, name: str) -> Refused:
    """404 for an object."""
    return Refused(404, f'{resource.full} "{name}" not found', reason="NotFound", details=_details(resource, name))


def already_exists(resource: Resource, name: str) -> Refused:
    """409 for a name that is taken."""
    message = f'{resource.full} "{name}" already exists'
    return Refused(409, message, reason="AlreadyExists", details=_details(resource, name))


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> Refused:
    """409 for a write that is based on an older state."""
    message = f'Operation cannot be fulfilled on {resource.full} "{name}": {why}'
    return Refused(409, message, reason="Conflict", details=_details(resource, name))


def precondition(resource: Resource, name: str, why: str) -> Refused:
    """409 for a precondition of a deletion; its details name the kind, not the plural."""
    full = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {"name": name, "group": resource.group, "kind": resource.kind}
    details = {key: value for key, value in details.items() if value}
    return Refused(409, f'Operation cannot be fulfilled on {full} "{name}": {why}', reason="Conflict", details=details)


def forbidden(resource: Resource, name: str, why: str, causes: list[Mapping[str, str]] | None = None) -> Refused:
    """403 by admission."""
    details = _details(resource, name) | ({"causes": causes} if causes else {})
    return Refused(403, f'{resource.full} "{name}" is forbidden: {why}', reason="Forbidden", details=details)


def too_many(budget_message: str, retry_after_seconds: int | None = None) -> Refused:
    """429: a disruption budget says no."""
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": budget_message}]}
    if retry_after_seconds is not None:
        details["retryAfterSeconds"] = retry_after_seconds
    return Refused(429, OVER_BUDGET, reason="TooManyRequests", details=details)


def expired(message: str, **meta: Any) -> Refused:
    """410: the state that was asked for has been forgotten."""
    return Refused(410, message, reason="Expired", **meta)


def too_new(asked: int, current: int) -> Refused:
    """504: a resourceVersion that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Refused(504, message, reason="Timeout", details=details)


def success(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """What a deletion answers."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body | {"details": _details(resource, name) | {"uid": uid}}


def created() -> dict[str, Any]:
    """What a binding or an eviction answers."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _details(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}
