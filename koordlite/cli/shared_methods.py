"""Methods that all dataclasses of a running agent share.

`dataclasses` compiles its methods for each class, 10 KiB of them besides `__init__`, which makes 2 MiB for the agent's
classes. Here these give way to one function each, which asks the class for its fields. They answer the same. Comparing
and hashing take twice the time, a microsecond more, which a round at 250 pods does about 140 times.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

_PACKAGE = "koordlite."


def share() -> None:
    """Let every dataclass of ours that is loaded by now use the shared methods where its own were generated.

    At the start of a run: what is freed once all is loaded leaves holes that nothing fills, and the agent stays large.
    """
    for cls in _loaded():
        share_in(cls)


def share_in(cls: Any) -> None:
    """Let one dataclass use the shared methods where its own were generated. What was written by hand stays."""
    fields = dataclasses.fields(cls)
    if _is_generated(cls, "__eq__"):
        cls.__compared__ = _values_of([field.name for field in fields if field.compare])
        cls.__eq__ = _eq
    if _is_generated(cls, "__hash__"):
        cls.__hashed__ = _values_of([f.name for f in fields if (f.compare if f.hash is None else f.hash)])
        cls.__hash__ = _hash
    for name, shared in (("__repr__", _repr), ("__setattr__", _setattr), ("__delattr__", _delattr)):
        if _is_generated(cls, name):
            setattr(cls, name, shared)


def _loaded() -> Iterator[Any]:
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_PACKAGE):
            for value in tuple(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name and "__dataclass_fields__" in vars(value):
                    yield value


def _is_generated(cls: type, name: str) -> bool:
    method = vars(cls).get(name)
    code = getattr(getattr(method, "__wrapped__", method), "__code__", None)
    return code is not None and code.co_filename == "<string>"


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return staticmethod(lambda value: tuple(getattr(value, name) for name in names))


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is self.__class__:
        values = self.__compared__
        return values(self) == values(other)
    return NotImplemented


def _hash(self: Any) -> int:
    return hash(self.__hashed__(self))


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _setattr(self: Any, name: str, value: object) -> None:
    _refuse(self, "assign to", name)
    object.__setattr__(self, name, value)


def _delattr(self: Any, name: str) -> None:
    _refuse(self, "delete", name)
    object.__delattr__(self, name)


def _refuse(value: Any, act: str, name: str) -> None:
    """What has fields of its own takes nothing; a class below it may have more attributes."""
    if "__dataclass_fields__" in vars(type(value)) or name in value.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot {act} field {name!r}")
