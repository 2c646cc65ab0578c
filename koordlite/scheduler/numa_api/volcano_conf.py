"""Volcano's plugin numa-aware in the text of `volcano-scheduler.conf`: is it there, put it in, take it out.

The text is edited, not rewritten, so that comments and order stay. An edit is made only where the outcome, read as
YAML, differs from the text before in that plugin alone.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from koordlite.model.reading import yaml_bounds

PLUGIN = "numa-aware"
MARK = f"name: {PLUGIN}"
_ITEM = re.compile(r"^(?P<indent>[ \t]*)-[ \t]+name:[ \t]*[\"']?(?P<name>[\w.-]+)[\"']?[ \t]*(#.*)?$")


def is_open(text: str) -> bool:
    """Tell whether the plugin is named. As openFuyao's volcano-config-service: the text has `name: numa-aware`."""
    return MARK in text


def opened(text: str) -> str:
    """`text` with the plugin as the last one of the last tier; the same text where it is named. ValueError when that
    cannot be done without changing more."""
    if is_open(text):
        return text
    lines = text.splitlines()
    items = _items(lines)
    if not items:
        raise ValueError("no line `- name: PLUGIN` is in it, so where the plugin belongs is unknown")
    last = items[-1]
    indent = _indent(lines[last])
    made = [*lines[: (end := _end(lines, last))], f"{indent}- {MARK}", *lines[end:]]
    return _checked(text, _joined(made, text), add=True)


def closed(text: str) -> str:
    """`text` without the plugin and its settings; the same text where it is not named. ValueError as of `opened`."""
    if not is_open(text):
        return text
    lines, kept, at = text.splitlines(), list[str](), 0
    while at < len(lines):
        found = _ITEM.match(lines[at])
        if found and found["name"] == PLUGIN:
            at = _end(lines, at)
        else:
            kept.append(lines[at])
            at += 1
    made = _joined(kept, text)
    if is_open(made):
        raise ValueError(f"`{MARK}` is also in it in another form than a line `- {MARK}`; remove that by hand")
    return _checked(text, made, add=False)


def _items(lines: list[str]) -> list[int]:
    """Line at which plugins are named: below `tiers:`, as deep as the first of them."""
    start = next((at for at, line in enumerate(lines) if line.startswith("tiers:")), len(lines))
    end = next((at for at in range(start + 1, len(lines)) if lines[at][:1].isalpha()), len(lines))
    found = [at for at in range(start, end) if _ITEM.match(lines[at])]
    return [at for at in found if _indent(lines[at]) == _indent(lines[found[0]])]


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
    left = [p for p in plugins if not (isinstance(p, dict) and p.get("name") == PLUGIN)]
    return {**tier, "plugins": left or None}
