"""TokenReview and SubjectAccessReview: questions that are answered and not stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver import shapes, status
from apiserver.authorizer import Authorizer, Verdict
from apiserver.requests import Target
from apiserver.resources import Resource
from apiserver.store import Object
from apiserver.users import User

AUDIENCE = "https://kubernetes.default.svc"
_GROUP = "authorization.k8s.io"
_ATTRIBUTES = shapes.Struct(
    dict.fromkeys(("verb", "group", "version", "resource", "subresource", "namespace", "name", "path"), shapes.TEXT)
)
_SPEC = shapes.Struct(
    {
        **dict.fromkeys(("token", "user", "uid", "namespace"), shapes.TEXT),
        **dict.fromkeys(("audiences", "groups"), shapes.ListOf(shapes.TEXT)),
        **dict.fromkeys(("resourceAttributes", "nonResourceAttributes"), _ATTRIBUTES),
    }
)


def answered(resource: Resource, sent: Object, *, tokens: Mapping[str, User], authorizer: Authorizer) -> Object:
    """The review with its status."""
    head: Object = {"kind": resource.kind, "apiVersion": resource.storage, "metadata": {"creationTimestamp": None}}
    try:
        spec = _SPEC.cast(sent.get("spec") or {}, resource.kind)
    except shapes.Mistyped as error:
        raise status.bad_request(str(error)) from error
    if resource.kind == "TokenReview":
        return head | {"spec": spec, "status": _token(spec, tokens)}
    _check(spec)
    asked = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
    kept = {key: value for key, value in spec.items() if value not in ("", [])}
    return head | {"spec": kept, "status": _access(authorizer, asked, spec)}


def _token(spec: Any, tokens: Mapping[str, User]) -> Object:
    token = spec.get("token", "")
    if not token:
        raise status.bad_request("token is required for TokenReview in authentication")
    user, audiences = tokens.get(token), spec.get("audiences") or [AUDIENCE]
    held = [each for each in (user.audiences or (AUDIENCE,)) if each in audiences] if user else []
    if user is None or not held:
        return {"user": {}, "error": "invalid bearer token"}
    known = user.authenticated()
    shown = {"username": known.name, "uid": known.uid, "groups": list(known.groups)}
    return {"authenticated": True, "user": shown, "audiences": held}


def _check(spec: Any) -> None:
    path = spec.get("nonResourceAttributes")
    if spec.get("resourceAttributes") and path:
        shown = f'{{"Path":"{path.get("path", "")}","Verb":"{path.get("verb", "")}"}}'
        why = f"Invalid value: {shown}: cannot be specified in combination with resourceAttributes"
        raise _invalid(status.Cause("FieldValueInvalid", why, "spec.nonResourceAttributes"))
    if not spec.get("user") and not spec.get("groups"):
        raise _invalid(status.wrong("spec.user", "", "at least one of user or group must be specified"))


def _invalid(cause: status.Cause) -> status.Refused:
    return status.invalid("", _GROUP, "", [cause])


def _access(authorizer: Authorizer, user: User, spec: Any) -> Object:
    wanted = spec.get("resourceAttributes")
    if wanted is None:
        path = spec.get("nonResourceAttributes") or {}
        return _shown(authorizer.judge_path(user, path.get("path", ""), path.get("verb", "")))
    names = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
    return _shown(authorizer.judge(user, Target(**{"verb": "", **{key: wanted.get(key, "") for key in names}})))


def _shown(verdict: Verdict) -> Object:
    return {"allowed": verdict.allowed} | ({"reason": verdict.reason} if verdict.reason else {})
