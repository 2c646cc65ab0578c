"""What a script claims inside of a booted kernel: one line of JSON each, judged by `kernelrig.check_claims`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

ALL = "all was looked at"
"""The last claim: the script came to its end."""


@contextlib.contextmanager
def claim(text: str) -> Iterator[None]:
    """Say whether what is inside held. A file that fails, or that is not there, breaks the claim as well."""
    began, detail = time.monotonic(), ""
    try:
        yield
    except (AssertionError, OSError, ValueError, KeyError) as error:
        detail = f"{type(error).__name__}: {error}"
    tell(text, detail, seconds=round(time.monotonic() - began, 1))


def tell(text: str, detail: str = "", **more: float) -> None:
    """Print a claim; `detail` says how it is broken, and is empty when it holds."""
    print(json.dumps({"claim": text, "ok": not detail, "detail": detail, **more}), flush=True)
