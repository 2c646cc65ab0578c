"""Policies that are switched by an edit of a ConfigMap, with the version that was read: `open` or `close`.

Those of this project are members of one document of the ConfigMap that agents and the extender watch. It is JSON, so an
edit may change its layout; what it says besides stays.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal

import msgspec
import yaml

from koordlite.kube.client.access import Api
from koordlite.kube.client.answers import ApiError
from koordlite.model.errors import UNREADABLE
from koordlite.model.reading import declared, yaml_bounds
from koordlite.model.slo import config
from koordlite.model.slo.settings import NUMAPolicy
from koordlite.model.wire import objects
from koordlite.scheduler import watches

LOG = logging.getLogger(__name__)
Status = Literal["open", "close"]
TRIES = 3
"""Number of tries when another program writes the ConfigMap between reading and writing."""
_TIMEOUT = (2.0, 5.0)


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    status: Status


class NotThere(Exception):
    """The ConfigMap, or its key, does not exist; the text says which."""


class CannotEdit(Exception):
    """The text in the ConfigMap has a form that is not edited; the text says why."""


PLUGIN = "numa-aware"
MARK = f"name: {PLUGIN}"
_ITEM = re.compile(r"^(?P<indent>[ \t]*)-[ \t]+name:[ \t]*[\"']?(?P<name>[\w.-]+)[\"']?[ \t]*(#.*)?$")


def has_numa_aware(text: str) -> bool:
    """Tell whether the plugin is named. As openFuyao's volcano-config-service: the text has `name: numa-aware`."""
    return MARK in text


def with_numa_aware(text: str) -> str:
    """`text` with the plugin as the last one of the last tier; the same text where it is named. ValueError when that
    cannot be done without changing more."""
    if has_numa_aware(text):
        return text
    lines = text.splitlines()
    items = _items(lines)
    if not items:
        raise ValueError("no line `- name: PLUGIN` is in it, so where the plugin belongs is unknown")
    last = items[-1]
    indent = _indent(lines[last])
    edited = [*lines[: (end := _end(lines, last))], f"{indent}- {MARK}", *lines[end:]]
    return _checked(text, _joined(edited, text), add=True)


def without_numa_aware(text: str) -> str:
    """`text` without the plugin and its settings; the same text where it is not named. ValueError as of
    `with_numa_aware`."""
    if not has_numa_aware(text):
        return text
    lines, remaining, at = text.splitlines(), list[str](), 0
    while at < len(lines):
        item = _ITEM.match(lines[at])
        if item and item["name"] == PLUGIN:
            at = _end(lines, at)
        else:
            remaining.append(lines[at])
            at += 1
    edited = _joined(remaining, text)
    if has_numa_aware(edited):
        raise ValueError(f"`{MARK}` is also in it in another form than a line `- {MARK}`; remove that by hand")
    return _checked(text, edited, add=False)


def _items(lines: list[str]) -> list[int]:
    """Line at which plugins are named: below `tiers:`, as deep as the first of them."""
    start = next((at for at, line in enumerate(lines) if line.startswith("tiers:")), len(lines))
    end = next((at for at in range(start + 1, len(lines)) if lines[at][:1].isalpha()), len(lines))
    items = [at for at in range(start, end) if _ITEM.match(lines[at])]
    return [at for at in items if _indent(lines[at]) == _indent(lines[items[0]])]


def _joined(lines: list[str], like: str) -> str:
    return "\n".join(lines) + ("\n" if like.endswith("\n") else "")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _end(lines: list[str], start: int) -> int:
    """End of the item that begins at `start`: at the next line that is not indented deeper and not empty."""
    depth, end = len(_indent(lines[start])), start + 1
    for at in range(start + 1, len(lines)):
        if lines[at].strip() and len(_indent(lines[at])) <= depth:
            break
        if lines[at].strip():
            end = at + 1
    return end


def _checked(before: str, after: str, *, add: bool) -> str:
    """`after`, if its plugins are those of `before` and nothing but the one plugin differs."""
    old, new = _read(before), _read(after)
    with_it, without = (new, old) if add else (old, new)
    if _without_plugin(with_it) != without:
        raise ValueError("its form is not one that can be edited without changing more; edit it by hand")
    return after


def _read(text: str) -> Any:
    try:
        return yaml.safe_load(yaml_bounds.checked(text))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"it is no YAML: {' '.join(str(error).split())}") from error


def _without_plugin(conf: Any) -> Any:
    if not isinstance(conf, dict) or not isinstance(conf.get("tiers"), list):
        return None
    return {**conf, "tiers": [_tier(tier) for tier in conf["tiers"]]}


def _tier(tier: Any) -> Any:
    plugins = tier.get("plugins") if isinstance(tier, dict) else None
    if not isinstance(plugins, list):
        return tier
    plugins = [p for p in plugins if not (isinstance(p, dict) and p.get("name") == PLUGIN)]
    return {**tier, "plugins": plugins or None}


class Policy(msgspec.Struct, frozen=True):
    """Place where a policy is switched."""

    namespace: str
    config_map: str
    key: str
    is_open: Callable[[str], bool]
    """ValueError for a text that cannot be read, here and below."""
    edited: Callable[[str, bool], str]
    """The text with the policy open, or closed; the same text where it is so already."""
    without: str
    """Remedy where there is no such ConfigMap."""
    empty: str | None = None
    """Text for a missing key; None: the key has to be there."""


NUMA_AWARE = Policy(
    "volcano-system",
    "volcano-scheduler-configmap",
    "volcano-scheduler.conf",
    has_numa_aware,
    lambda text, is_open: with_numa_aware(text) if is_open else without_numa_aware(text),
    "is Volcano installed?",
)
"""Volcano's scheduler reads its configuration again by itself when the mounted file changes."""


def read_body(body: bytes) -> Status:
    """The status in `{"status": "open"}`; ValueError for anything else."""
    try:
        return msgspec.json.decode(body, type=_Body).status
    except UNREADABLE as error:
        raise ValueError(f'the content has to be {{"status": "open"}} or {{"status": "close"}}: {error}') from error


class Switches:
    """Reads and writes policies. ApiError and ApiUnreachable are the caller's."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def status(self, policy: Policy) -> Status:
        """State of the policy. NotThere without its ConfigMap."""
        text = self._read(policy)[1]
        try:
            return "open" if policy.is_open(text) else "close"
        except ValueError as error:
            raise CannotEdit(f"configmap {_where(policy)}: {error}") from error

    def put(self, policy: Policy, status: Status) -> bool:
        """Switch the policy; False when it was so already, and nothing was written."""
        for tries in reversed(range(TRIES)):
            version, text = self._read(policy)
            try:
                edited = policy.edited(text, status == "open")
            except ValueError as error:
                raise CannotEdit(f"configmap {_where(policy)}: {error}") from error
            if edited == text:
                return False
            patch = {"metadata": {"resourceVersion": version}, "data": {policy.key: edited}}
            try:
                self._api.request("PATCH", _path(policy), body=patch, timeout=_TIMEOUT)
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT or not tries:
                    raise
                continue
            LOG.info("configmap %s: policy set to %s", _where(policy), status)
            return True
        raise AssertionError("the last try returns or raises")

    def _read(self, policy: Policy) -> tuple[str, str]:
        where = f"configmap {policy.namespace}/{policy.config_map}"
        try:
            config_map = self._api.request("GET", _path(policy), timeout=_TIMEOUT).read(objects.ConfigMapObject)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise NotThere(f"there is no {where}: {policy.without}") from error
            if not error.status:  # What came is no ConfigMap.
                raise CannotEdit(f"{where}: {error.message}") from error
            raise
        text = (config_map.data or {}).get(policy.key, policy.empty)
        if text is None:
            raise NotThere(f"{where} has no key {policy.key}")
        return config_map.metadata.resource_version, text


def _where(policy: Policy) -> str:
    return f"{policy.namespace}/{policy.config_map}, {policy.key}"


def _path(policy: Policy) -> str:
    return f"/api/v1/namespaces/{policy.namespace}/configmaps/{policy.config_map}"


def _policies(text: str) -> NUMAPolicy:
    slo = config.effective({watches.KEY: text}, labels={}, annotations={})
    broken = [problem.why for problem in slo.problems]
    if broken:
        raise ValueError("; ".join(broken))
    _object(text)
    return slo.numa_policy


def _object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _ours(field: str) -> Policy:
    """The member `field` of the document."""

    def is_open(text: str) -> bool:
        return bool(getattr(_policies(text), field))

    def edited(text: str, value: bool) -> str:
        if is_open(text) is value:
            return text
        name, document = declared.camel(field), _object(text)
        # Names are read without regard to case.
        members = {key: member for key, member in document.items() if key.lower() != name.lower()}
        return json.dumps({**members, name: value}, indent=2) + "\n"

    return Policy(
        watches.NAMESPACE,
        watches.NAME,
        watches.KEY,
        is_open,
        edited,
        "the defaults hold; apply manifests/settings, or install Koordinator's manager",
        "{}",
    )


NUMA_DISTANCE = _ours("distance")
"""The extender watches the ConfigMap."""
POD_AFFINITY = _ours("pod_affinity")
"""Every agent watches the ConfigMap."""
