"""Words as Go's standard library reads them."""

from __future__ import annotations

from collections.abc import Mapping

STRICT_RESERVATION = "strict-cpu-reservation"
"""Option of the CPU manager's static policy: containers in the shared pool stay off reserved CPUs, too."""
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def boolean(text: str | None) -> bool | None:
    """Source: Go `strconv.ParseBool`; None for any other word."""
    return _BOOLEANS.get(text or "")


def is_on(options: Mapping[str, str], name: str) -> bool:
    """Tell whether an option of kubelet's is on. With a word that is no boolean kubelet does not start, so it is
    not."""
    return _BOOLEANS.get(options.get(name, ""), False)


def parse_bool(text: str) -> bool:
    """The same; ValueError for any other word."""
    value = boolean(text)
    if value is None:
        raise ValueError(f"{text!r} is neither true nor false")
    return value
