"""Render the few constructs of Go templates that `scripts/chart` writes, for machines without Helm."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import cyaml

_ACTION = re.compile(r"^\{\{- (if|with|else|end)\b(.*)\}\}$")
_INLINE = re.compile(r"\s*\{\{- toYaml \. \| nindent (\d+) \}\}$")


def render(template: str, values: dict[str, Any], namespace: str = "koordlite-system") -> list[Any]:
    """The objects that a template gives."""
    lines: list[str] = []
    # Of each open block: whether its lines count, and the dot in it.
    blocks: list[tuple[bool, Any]] = [(True, None)]
    for line in template.splitlines():
        action = _ACTION.match(line)
        if action is None:
            if blocks[-1][0]:
                _write(lines, line, blocks[-1][1], values, namespace)
        elif action[1] == "end":
            blocks.pop()
        elif action[1] == "else":
            counts, dot = blocks.pop()
            blocks.append((blocks[-1][0] and not counts, blocks[-1][1] if dot is None else dot))
        else:
            held = _value(action[2].strip(), values)
            blocks.append((blocks[-1][0] and bool(held), held if action[1] == "with" else blocks[-1][1]))
    assert len(blocks) == 1, "a block is not closed"
    return [each for each in cyaml.safe_load_all("\n".join(lines)) if each]


def _write(lines: list[str], line: str, dot: Any, values: dict[str, Any], namespace: str) -> None:
    inline = _INLINE.match(line)
    if inline:
        text = cyaml.safe_dump(dot, default_flow_style=False) if isinstance(dot, (dict, list)) else json.dumps(dot)
        lines.extend(" " * int(inline[1]) + each for each in text.splitlines())
        return
    line = line.replace("{{ .Release.Namespace }}", namespace)
    line = re.sub(r"\{\{ (\.Values[\w.]+) \}\}", lambda found: str(_value(found[1], values)), line)
    line = line.replace("{{ toJson . | quote }}", json.dumps(json.dumps(dot)))
    digest = hashlib.sha256(json.dumps(dot, sort_keys=True).encode()).hexdigest()
    line = line.replace("{{ toJson . | sha256sum }}", digest).replace('{{ "{{" }}', "\0")
    assert "{{" not in line, f"not a construct that is known here: {line}"
    lines.append(line.replace("\0", "{{"))


def _value(expression: str, values: dict[str, Any]) -> Any:
    if expression.startswith("and "):
        return all(_value(part, values) for part in re.findall(r"\(([^()]*)\)", expression))
    word, *rest = expression.split()
    if word in ("eq", "ne"):
        same = _value(rest[0], values) == rest[1].strip('"')
        return same if word == "eq" else not same
    if word == "has":
        return rest[0].strip('"') in _value(rest[1], values)
    held: Any = {"Values": values}
    for part in word.removeprefix(".").split("."):
        held = held[part]
    return held
