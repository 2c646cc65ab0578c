"""Render the few constructs of Go templates that `scripts/chart` writes, for machines without Helm."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from typing import Any

import cyaml

_ACTION = re.compile(r"^\{\{- (if|with|else|end)\b(.*)\}\}$")
_INLINE = re.compile(r"\s*\{\{- toYaml \. \| nindent (\d+) \}\}$")
_MERGED = re.compile(
    r"\s*\{\{- toYaml \(mergeOverwrite \(deepCopy \((\S+) \| default \(fromJson `(.*)`\)\)\) "
    r"\(dict (.*)\)\) \| nindent (\d+) \}\}$"
)


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
    merged = _MERGED.match(line)
    if merged:
        whole = copy.deepcopy(_value(merged[1], values) or json.loads(merged[2]))
        for name, path in re.findall(r'"(\w+)" (\S+)', merged[3]):
            whole[name] = _overwritten(whole.get(name), _value(path, values))
        text = cyaml.safe_dump(whole, default_flow_style=False)
        lines.extend(" " * int(merged[4]) + each for each in text.splitlines())
        return
    line = line.replace("{{ .Release.Namespace }}", namespace)
    line = re.sub(r"\{\{ \$?(\.Values[\w.]+) \}\}", lambda found: str(_value(found[1], values)), line)
    line = line.replace("{{ toJson . | quote }}", json.dumps(json.dumps(dot)))
    line = re.sub(
        r"\{\{ toJson \(list (.*?)\) \| sha256sum \}\}", lambda found: _digest(found[1].split(), values), line
    )
    line = line.replace('{{ printf "--prometheus-url=%s" . | quote }}', json.dumps(f"--prometheus-url={dot}"))
    line = line.replace('{{ "{{" }}', "\0")
    assert "{{" not in line, f"not a construct that is known here: {line}"
    lines.append(line.replace("\0", "{{"))


def _digest(paths: list[str], values: dict[str, Any]) -> str:
    held = [_value(path, values) for path in paths]
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def _overwritten(base: Any, over: Any) -> Any:
    """As sprig's mergeOverwrite: maps are merged, everything else is replaced."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: _overwritten(base.get(key), value) for key, value in over.items()}}


def _value(expression: str, values: dict[str, Any]) -> Any:
    if expression.startswith("and "):
        return all(_value(part, values) for part in re.findall(r"\(([^()]*)\)", expression))
    if expression.startswith("or "):
        return any(_value(part, values) for part in expression.split()[1:])
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
