"""Configuration dataclasses printed as commented YAML, so that a file of defaults never differs from the code."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

from koordlite.model.reading import strict

_NOT_TEXT = ("off", "on", "yes", "no", "y", "n", "true", "false", "null")
"""Words that YAML reads as something else unless they are quoted."""


def section(name: str, value: object, *, indent: str = "", about: str = "") -> list[str]:
    """Lines of YAML for the section `name` with every field of the dataclass `value`, each under its own docstring."""
    shape: type[Any] = type(value)
    about = about or (shape.__doc__ or "").partition("\n")[0]
    lines = [f"{indent}# {line}" for line in about.splitlines()] + [f"{indent}{name}:"]
    texts = field_docs(shape)
    for key, (field, _) in strict.fields(shape).items():
        lines += [f"{indent}  # {line}" for line in texts.get(field.name, "").splitlines()]
        lines.append(f"{indent}  {key}: {_yaml(getattr(value, field.name))}")
    return lines


def field_docs(shape: type[Any]) -> Mapping[str, str]:
    """Field name → the docstring below it, base classes first. Fields without one are missing."""
    texts: dict[str, str] = {}
    for base in reversed(shape.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in itertools.pairwise(body.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    texts[name] = inspect.cleandoc(words)
    return texts


def _yaml(value: object) -> str:
    if isinstance(value, str):
        return value if value.isidentifier() and value.lower() not in _NOT_TEXT else json.dumps(value)
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("\n...\n").strip()
