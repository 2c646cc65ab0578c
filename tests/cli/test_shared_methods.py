"""Dataclasses answer the same by shared methods as by the generated ones."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from koordlite.cli import shared_methods


def none() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Value:
        pass

    return Value


def one() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Value:
        a: object

    return Value


def several() -> Any:
    @dataclasses.dataclass(frozen=True, order=True)
    class Value:
        a: object
        b: object = 2
        c: object = dataclasses.field(default=3, compare=False)
        d: object = dataclasses.field(default=4, repr=False, hash=False)

    return Value


def slotted() -> Any:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Value:
        a: object
        b: object = 2

    return Value


def mutable() -> Any:
    @dataclasses.dataclass(slots=True)
    class Value:
        a: object
        b: object = 2

    return Value


def by_hand() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Value:
        a: object

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "by hand"

    return Value


def without_equality() -> Any:
    @dataclasses.dataclass(frozen=True, eq=False)
    class Value:
        a: object

    return Value


def below() -> Any:
    class Value(several()):  # type: ignore[misc]
        pass

    return Value


CLASSES = [none, one, several, slotted, mutable, by_hand, without_equality, below]
NAN = float("nan")


def answers(cls: Any) -> Iterator[object]:
    """What values of the class say to each question, or how they refuse it."""
    count = len(dataclasses.fields(cls))
    values = [cls(*given[:count]) for given in ((1,), (1, 3), (1, 2, 9), (1, 2, 3, 9), (NAN,), ([],))]
    for value in values:
        yield attempt(lambda value=value: repr(value))
        yield attempt(lambda value=value: hash(value)) if cls.__hash__ is not object.__hash__ else "by identity"
        yield [attempt(lambda value=value, other=other: value == other) for other in (*values, 1, None)]
        yield attempt(lambda value=value: value < values[0])
        # Python 3.11 answers for a name that no field has by a TypeError of its own where there are slots.
        for name in ("a",) if hasattr(cls, "__slots__") else ("a", "more"):
            yield attempt(lambda value=value, name=name: setattr(value, name, 5))
            yield attempt(lambda value=value, name=name: delattr(value, name))
    if count:
        yield repr(dataclasses.replace(values[0], a=8))
        inside = cls([])
        inside.a.append(inside)
        yield repr(inside)


def attempt(question: Callable[[], object]) -> object:
    try:
        return question()
    except (TypeError, AttributeError) as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("make", CLASSES)
def test_values_answer_the_same(make: Callable[[], Any]) -> None:
    own, shared = make(), make()
    for cls in shared.__mro__[:-1]:
        shared_methods.share_in(cls)
    expected = [str(answer).replace(f"{make.__name__}.", "") for answer in answers(own)]
    assert [str(answer).replace(f"{make.__name__}.", "") for answer in answers(shared)] == expected


def test_what_is_loaded_of_ours_shares_and_nothing_else_does() -> None:
    code = """
import dataclasses, importlib.metadata, types
from koordlite.cli import run, shared_methods
from koordlite.model.picture.usage import Usage, Use
foreign = types.ModuleType("elsewhere")
Other = dataclasses.make_dataclass("Other", ["a"])
own = Other.__eq__
assert Use.__eq__ is not Usage.__eq__
shared_methods.share()
assert Use.__eq__ is Usage.__eq__ and Use.__hash__ is Usage.__hash__ and Use.__repr__ is Usage.__repr__
assert Use.__setattr__ is Usage.__setattr__ and Use.__delattr__ is Usage.__delattr__
assert Use.__init__ is not Usage.__init__
assert Other.__eq__ is own
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
